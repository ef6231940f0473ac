"""The bank of conditional faults: what the operator suite detects of randomly drawn faults in kernels, by seed.

A fault is an effect, a condition and a kernel (``tests/meta/kernel_faults.py``). It counts if a random call drawn
outside the suite shows it (``tests/meta/kernel_calls.py``). Then the cases that call the kernel run level by level
until one fails, starting with those of the operator that shows it. Generated calls follow for ``--explore`` seconds.
Each trial is a line in the folder of results, and is not repeated. Needs the extra ``corpus``.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
import torch_npu  # noqa: F401  (which torch loads by itself unless forbidden)

from pytest_ascend.operators import sweep
from pytest_ascend.operators.exploring import CALLS, EXPLORE
from pytest_ascend.operators.sweep import SweepReference
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.programs import memory_limited
from tests.meta.kernel_calls import DTYPES, NPU, TIES, Calls, is_wrong
from tests.meta.kernel_cases import Suite, emulated
from tests.meta.kernel_faults import CONDITIONS, EFFECTS, Seen
from tests.meta.kernel_switch import SWITCH
from tools.ops.database import database

from .support import lines_of, show, table

os.environ["PYTEST_ASCEND_FAULTS"] = "tests.meta.kernel_switch:EVERY_KERNEL"
#: Kernels that bring tensors to the device, fill and compare them: if these are wrong, everything is.
PLUMBING = {"aclnnInplaceCopy", "aclnnCast"}
LEVELS = ("smoke", "standard", "full")
#: Recorded instead of a level if there was no time for generated calls.
NOT_EXPLORED = "not explored"
#: Recorded instead of a level if not all levels were to be run.
NOT_RUN = "not run above"
#: CPU seconds for one fault at a level. A fault that takes longer is not counted at this level or above.
SECONDS = {"smoke": 60.0, "standard": 180.0, "full": 300.0}
#: Recorded instead of a level if the time was up before all cases had run.
NOT_FINISHED = "not finished at "
#: Memory that a call may use: tensors of 2^20 elements, many times over.
MEMORY_BYTES = 4 << 30
#: Tries, and seconds, to find a call that shows a fault.
TRIES, LOOKING_S = 80, 4.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as data: everything else about it follows from its number."""

    number: int
    kernel: str
    effect: str
    condition: str


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a fault.

    ``shown`` is the operator and dtype of a call that shows it ("" if none was found), and ``call`` that call.
    ``level`` is the lowest that detects it, with the case and its message; "missed" if none does. ``reached`` counts
    the suite's calls up to then whose results differed.
    """

    fault: Fault
    shown: str
    level: str = ""
    case: str = ""
    complaint: str = ""
    call: str = ""
    reached: int = 0


#: The random calls of an operator in a dtype, cached because the database makes samples slowly.
calls_of = cache(Calls)


def reached(only: Sequence[str]) -> dict[str, list[tuple[str, object]]]:
    """Make each database operator's own calls; return the callers of each kernel, and record its arguments."""
    found: dict[str, set[tuple[str, object]]] = defaultdict(set)
    SWITCH.records = True
    with click.progressbar([name for name in database() if not only or name in only], label="kernels") as names:
        for name in names:
            for dtype in DTYPES:
                SWITCH.called.clear()
                for call in _silently(lambda: [*calls_of(name, dtype).as_they_are()]) or ():  # noqa: B023
                    _silently(lambda: call.on(NPU))  # noqa: B023
                for kernel in SWITCH.called - PLUMBING:
                    found[kernel].add((name, dtype))
    SWITCH.records = False
    return {kernel: sorted(pairs, key=str) for kernel, pairs in sorted(found.items())}


def _silently(run: Callable[[], Any]) -> Any:
    """Return the result, or None if there is no legal call, or the device or the database lacks something."""
    try:
        return run()
    except Exception:  # noqa: BLE001
        return None


def faults(seed: int, callers: Mapping[str, object]) -> Iterator[Fault]:
    """Draw faults endlessly: kernel, effect and condition uniformly, if they can be combined."""
    chance, kernels = random.Random(seed), sorted(callers)  # noqa: S311  (not for security)
    for number in itertools.count():
        kernel = chance.choice(kernels)
        fault = Fault(number, kernel, chance.choice(sorted(EFFECTS)), chance.choice(sorted(CONDITIONS)))
        if plant(fault, seed):
            yield fault


def plant(fault: Fault, seed: int) -> bool:
    """Plant the fault in the kernel, as if first called in this process. Return whether the kernel can have it."""
    chance, seen = random.Random(f"{seed} {fault.number}"), SWITCH.seen[fault.kernel]  # noqa: S311  (not for security)
    effect, condition = EFFECTS[fault.effect](chance, seen), CONDITIONS[fault.condition](chance, seen)
    if effect is None or condition is None:
        return False
    SWITCH.plant(fault.kernel, effect, condition)
    return True


def shown(fault: Fault, seed: int, callers: Sequence[tuple[str, object]]) -> tuple[str, str]:
    """Look for a legal call that shows a planted fault; return its operator and dtype, and the call."""
    chance, until = random.Random(f"{seed} {fault.number} calls"), time.thread_time() + LOOKING_S  # noqa: S311  (no secret)
    allowed = [each for each in callers if fault.effect != "wrong tie" or each[0] in TIES]
    for _ in range(TRIES if allowed else 0):
        name, dtype = chance.choice(allowed)
        for call in _silently(lambda: [*calls_of(name, dtype).three(chance)]) or ():  # noqa: B023
            before = SWITCH.effects
            result = _silently(lambda: call.on(NPU))  # noqa: B023
            if SWITCH.effects == before:
                continue
            kernel, SWITCH.kernel = SWITCH.kernel, ""
            wrong = _silently(lambda: is_wrong(call, result if isinstance(result, list) else []))  # noqa: B023
            SWITCH.kernel = kernel
            if wrong:
                way = " backward" if call.goes_back else ""
                return f"{name} {str(dtype).removeprefix('torch.')}{way}", call.text
        if time.thread_time() > until:
            break
    return "", ""


def judged(suite: Suite, trial: Trial, seed: int, names: Iterable[str], levels: Sequence[str]) -> Trial:
    """Run the cases that call the kernel of a planted fault until one fails; return the updated trial."""
    fault = trial.fault
    cases = suite.cases_of(fault.kernel, names, trial.shown, random.Random(f"{seed} {fault.number} cases"))  # noqa: S311
    SWITCH.effects = 0
    for level in levels:
        until = time.thread_time() + SECONDS[level]
        for case in cases:
            # Level standard makes more generated calls than smoke.
            asks_more = (level, case.level) == (LEVELS[1], LEVELS[0]) and case.property == "sweep"
            if case.level != level and not asks_more:
                continue
            if time.thread_time() > until:
                return replace(trial, level=f"{NOT_FINISHED}{level}", reached=SWITCH.effects)
            said, reached = suite.complaint(case, level), SWITCH.effects
            if said and suite.passes(case):
                return replace(trial, level=level, case=case.id, complaint=said[:300], reached=reached)
    return replace(trial, level=NOT_EXPLORED if len(levels) == len(LEVELS) else NOT_RUN, reached=SWITCH.effects)


def explored(suite: Suite, trial: Trial, names: Iterable[str], seconds: float) -> Trial:
    """Make generated calls of the operators that have sweeps, in turns, for ``seconds``."""
    chance = random.Random(trial.fault.number)  # noqa: S311  (not for security)
    cases = suite.cases_of(trial.fault.kernel, names, trial.shown, chance)
    swept = [case for case in cases if case.property == "sweep"]
    until, turn = time.thread_time() + seconds, 0
    while swept and time.thread_time() < until:
        for case in swept:
            target = emulated(case)
            target.use(SweepReference.of(target.operator, case.dtype, range(CALLS), seed=(1 << 20) + turn))
            try:
                sweep.run(target, PrecisionCompare(note=lambda _: None))
            except Exception as error:  # noqa: BLE001  (a faulty kernel may also raise)
                return replace(trial, level=EXPLORE, case=case.id, complaint=f"{error}".partition("\n")[0][:300])
            if time.thread_time() > until:
                break
        turn += 1
    return replace(trial, level="missed")


#: Operators and dtypes that call each kernel, the kernels that each case calls, and the arguments of each kernel.
KNOWN = tuple[dict[str, list[tuple[str, torch.dtype]]], dict[str, set[str]], dict[str, Seen]]


def known_calls(results: Path, only: Sequence[str]) -> tuple[Suite, dict[str, list[tuple[str, torch.dtype]]]]:
    """Return the suite and the callers of each kernel, measured now or read from earlier results."""
    suite, file = Suite(), results / "calls.json"
    if file.exists():
        callers, suite.calls, seen = msgspec.json.decode(
            file.read_bytes(), type=KNOWN, dec_hook=lambda _, text: getattr(torch, text.removeprefix("torch."))
        )
        SWITCH.seen.update(seen)
    else:
        callers = reached(only)
        suite.watch(LEVELS[:1], only)
        beside, seen = file.with_suffix(".new"), {kernel: SWITCH.seen[kernel] for kernel in callers}
        beside.write_bytes(msgspec.json.encode((callers, suite.calls, seen), enc_hook=str))
        beside.replace(file)
    return suite, callers


def all_trials(results: Path, seed: int) -> dict[int, Trial]:
    """Read the trials of a seed, by number: the last line of each counts."""
    rows = (row for file in sorted(results.glob(f"faults-{seed}-*.jsonl")) for row in lines_of(file))
    return {row["fault"]["number"]: msgspec.convert(row, Trial) for row in rows}


def results_of(folder: Path, count: int) -> Iterator[str]:
    """Yield the lines of the table for all seeds in a folder: by effect, by condition, and in total."""
    seeds = sorted({int(file.name.split("-")[1]) for file in folder.glob("faults-*-*.jsonl")})
    tried = [each for seed in seeds for each in all_trials(folder, seed).values()]
    visible = [each for each in tried if each.shown]
    unfinished = sum(each.level.startswith(NOT_FINISHED) for each in visible)
    yield (
        f"{len(tried):,} of {count * len(seeds):,} faults were tried; {len(visible):,} of them, "
        f"in {len({each.fault.kernel for each in visible})} kernels, show in a legal call. "
        f"For {unfinished} of these, not all cases finished in time: they count only at the levels below."
    )
    yield ""
    rows = [
        _row(f"{part}: {name}", [each for each in visible if getattr(each.fault, part) == name])
        for part in ("effect", "condition")
        for name in sorted({getattr(each.fault, part) for each in visible})
    ]
    heads = ("faults", "visible", "caught at smoke", "standard", "full", "exploring")
    yield from table(heads, [*rows, _row("**all**", visible)])


def _row(name: str, trials: Sequence[Trial]) -> tuple[object, ...]:
    shares, levels = [], (*LEVELS, EXPLORE)
    for place, level in enumerate(levels):
        # Levels that were not to be run are unknown; unfinished trials are left out.
        left_open = {"full": {NOT_RUN}, EXPLORE: {NOT_RUN, NOT_EXPLORED}}.get(level, set())
        known = [each for each in trials if each.level not in {NOT_FINISHED + each for each in levels[: place + 1]}]
        caught = sum(each.level in levels[: place + 1] for each in known)
        is_known = known and not any(each.level in left_open for each in trials)
        shares.append(f"{caught / len(known):.0%}" if is_known else "")
    return name, len(trials), *shares


@click.command(help=__doc__)
@click.option("--results", type=click.Path(path_type=Path), required=True, help="Folder of what was tried.")
@click.option("--faults", "count", default=2000, show_default=True, help="Faults to draw.")
@click.option("--seed", default=0, show_default=True)
@click.option("--minutes", default=30.0, show_default=True, help="Time after which no fault is begun.")
@click.option("--explore", "explore_s", default=60.0, show_default=True, help="Seconds to explore what is missed.")
@click.option("--part", default="0/1", help="Which of how many parts of the faults.")
@click.option("--operator", "only", multiple=True, help="Only kernels of these operators of torch's database.")
@click.option("--level", type=click.Choice(LEVELS), default="full", show_default=True, help="The last to be run.")
@click.option("--write", "is_written", is_flag=True, help="Put the table into docs/evaluation/operators.md.")
def main(
    results: Path,
    count: int,
    seed: int,
    minutes: float,
    explore_s: float,
    part: str,
    only: tuple[str, ...],
    level: str,
    *,
    is_written: bool,
) -> None:
    """Test faults, print the results, and write them if requested."""
    results.mkdir(parents=True, exist_ok=True)
    if minutes:
        until, known = time.monotonic() + minutes * 60, all_trials(results, seed)
        place, parts = map(int, part.split("/"))
        levels, lines = LEVELS[: LEVELS.index(level) + 1], results / f"faults-{seed}-{place}.jsonl"
        # Without a limit the system would kill the process for a call that needs more.
        with memory_limited(MEMORY_BYTES), lines.open("ab", buffering=0) as file:
            suite, callers = known_calls(results, only)
            for fault in itertools.islice(faults(seed, callers), place, count, parts):
                if fault.number in known:
                    continue
                # A wrong kernel may kill the process: then this line remains, and the fault is not tried again.
                file.write(msgspec.json.encode(Trial(fault, "", "crashed")) + b"\n")
                found, call = shown(fault, seed, callers[fault.kernel])
                trial, names = Trial(fault, found, call=call), {name for name, _ in callers[fault.kernel]}
                plant(fault, seed)
                torch.npu.empty_cache()  # its cache may hold right results of the same calls from earlier faults
                if found:
                    trial = judged(suite, trial, seed, names, levels)
                    if trial.level == NOT_EXPLORED and explore_s:
                        trial = explored(suite, trial, names, explore_s)
                SWITCH.clear()
                file.write(msgspec.json.encode(trial) + b"\n")
                if trial.shown:
                    said = f"{fault.effect}, by {fault.condition}: {trial.level} {trial.case}"
                    click.echo(f"{fault.number} {fault.kernel}: {said}")
                if time.monotonic() > until:
                    break
    show(results_of(results, count), "operators", "faults", is_written=is_written)
