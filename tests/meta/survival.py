"""Runs that something happens to at random moments: faults of the device, kill -9, signals, a full disk, a lost folder.

    python -m tools.evaluation survival                      300 runs with a fault, 300 with a kill, 100 disturbed ones
    python -m tools.evaluation survival --faults 6 --kills 6 --disturbances 6 --seed 1

Each run has to end by itself within its deadline, resumed where it was stopped; to have the verdict of an undisturbed
run for every case that nothing was planted in; to blame the case that something was planted in, and no other; to keep
every record that was ever written; to end with the exit code of what happened, and in the end with that of the verdict;
and to show no traceback. What does not is printed with its seed, and the exit code is 1.

To spare the import of torch at each run, every run is forked from a process that has it and has touched no device.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import torch
import torch_npu  # noqa: F401

import pytest_ascend.precision  # noqa: F401

CASES = 12
FAILING = 4
#: Elements of the tensors of a case are this many and its number: by that, a fault finds it.
FIRST_SIZE = 4001
RUN_DEADLINE_S = 180.0
CASE_DEADLINE_S = 5.0
RESUMES_LIMIT = 4

SUITE = f"""
import time
import pytest, torch

@pytest.mark.parametrize("i", range({CASES}))
def test_case(npu_device, precision_compare, i):
    x = torch.arange({FIRST_SIZE} + i, dtype=torch.float32)
    on_device = x.to(npu_device)
    time.sleep(0.02)
    made = (on_device + 1) * 2
    precision_compare(made.cpu(), (x.double() + (2 if i == {FAILING} else 1)) * 2)
"""

#: Faults that take down the case that they are in each time; and what a single one of them makes of its case:
#: a crash and a hang are answers, so that the case is flaky, while what a faulty device said is forgotten.
FAULTS = {
    "crash:by=segv": "flaky",
    "crash:by=abort": "flaky",
    "crash:by=bus": "flaky",
    "crash:by=kill": "",
    "hang:gil=held": "flaky",
    "hang:gil=released": "flaky",
    "poison": "",
    "late": "",
    "lost": "",
    "oom": "flaky or as before",
}
#: Device faults of the second of two cards.
FAULTY_CARDS = ("poison:device=1", "crash:device=1", "lost:device=1", "poison:device=1:after=40")


def _full(pid: int, folder: Path) -> None:
    """Let a run write no byte more to its log, as on a full disk."""
    size = (folder / "ascend-report" / "run.jsonl").stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _sent(number: int, *, to_worker: bool = False) -> Callable[[int, Path], None]:
    def send(pid: int, _: Path) -> None:
        victims = descendants(pid) if to_worker else [pid]
        if victims:
            os.kill(random.choice(victims), number)  # noqa: S311  (chance, no secret)

    return send


#: What kills, and what it is done to.
KILLS: Mapping[str, Callable[[int, Path], None]] = {
    "killed": _sent(signal.SIGKILL),
    "worker killed": _sent(signal.SIGKILL, to_worker=True),
}
#: Disturbance: what is done, and the exit code of the run that it is done to, but for one that is over by then.
DISTURBANCES: Mapping[str, tuple[Callable[[int, Path], None], int]] = {
    "interrupted": (_sent(signal.SIGINT), 2),
    "terminated": (_sent(signal.SIGTERM), -signal.SIGTERM),
    "worker stopped": (_sent(signal.SIGSTOP, to_worker=True), 1),
    "worker terminated": (_sent(signal.SIGTERM, to_worker=True), 1),
    "worker killed": (KILLS["worker killed"], 1),
    "disk full": (_full, 7),
    "folder removed": (lambda _, folder: shutil.rmtree(folder / "ascend-report"), 1),
}
#: The exit code of an undisturbed run, one of whose cases fails.
USUAL = 1


@dataclass(frozen=True)
class Plan:
    """What is done to a run: a fault with the case it is in (-1 for any), or a kill or disturbance at a time."""

    fault: str = ""
    case: int = -1
    single: bool = False
    cards: int = 1
    after_s: float = 0.0
    happens: str = ""


def planned_fault(chance: random.Random, folder: Path) -> Plan:
    """Choose a fault and its moment."""
    way = chance.random()
    if way < 0.1:
        return Plan(fault=chance.choice(FAULTY_CARDS), cards=2)
    fault, case = chance.choice(list(FAULTS)), chance.choice([i for i in range(CASES) if i != FAILING])
    if way < 0.55:
        return Plan(fault=f"{fault}:numel={FIRST_SIZE + case}", case=case)
    return Plan(fault=f"{fault}:once={folder / 'spent'}:after={chance.randrange(3, 8 * CASES)}", single=True)


def planned_kill(chance: random.Random, usual_s: float) -> Plan:
    """Choose whom to kill, and when; some runs have two cards."""
    happens = chance.choice(list(KILLS))
    return Plan(after_s=chance.uniform(0, usual_s), happens=happens, cards=chance.choice((1, 1, 2)))


def planned_disturbance(chance: random.Random, number: int, usual_s: float) -> Plan:
    """Take the disturbances in turns, each at some moment while cases run."""
    happens = list(DISTURBANCES)[number % len(DISTURBANCES)]
    return Plan(after_s=chance.uniform(0, usual_s), happens=happens, cards=chance.choice((1, 1, 2)))


# --- one run ---


def begin(folder: Path, plan: Plan, *, resume: bool) -> int:
    """Fork a run, and return its process."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    log = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ["PYTEST_ASCEND_FAULTS"] = plan.fault
    os.environ["PATH"] = "/nonexistent"  # debuggers take longer than all the rest
    arguments = [
        "--ascend",
        "--ascend-device=emulated",
        f"--ascend-deadline=case={CASE_DEADLINE_S}",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    arguments += ["--ascend-resume"] if resume else []
    arguments += ["-n", str(plan.cards)] if plan.cards > 1 else []
    code = 70
    try:
        code = int(pytest.main([*arguments, "test_suite.py"]))
    except BaseException:  # noqa: BLE001 - what ended the run is part of what it printed
        traceback.print_exc()
    finally:
        os._exit(code)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    return []


def wait(pid: int, limit_s: float) -> int | None:
    """Wait for a process: its exit code, None where it does not end in time (and is ended)."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def records(folder: Path) -> dict[str, str]:
    """Return the whole lines of records by case."""
    path = folder / "ascend-report" / "run.jsonl"
    if not path.exists():
        return {}
    lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line.startswith(b'{"type":"record"')]
    return {json.loads(line)["node_id"].rpartition("[")[2].rstrip("]"): line.decode() for line in lines}


def outcomes(folder: Path) -> dict[str, str]:
    """Return the outcome of each case."""
    return {case: json.loads(line)["outcome"] for case, line in records(folder).items()}


def has_ended(folder: Path) -> bool:
    """Whether the log has its footer."""
    path = folder / "ascend-report" / "run.jsonl"
    return path.exists() and b'\n{"type":"footer"' in path.read_bytes()


def strike(pid: int, plan: Plan, folder: Path) -> None:
    """Do what is planned at its time, if the run is still there; a disturbance waits for the first record."""
    while plan.happens not in KILLS and not records(folder) and not os.waitid(os.P_PID, pid, _OVER):
        time.sleep(0.02)
    time.sleep(plan.after_s)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        (KILLS.get(plan.happens) or DISTURBANCES[plan.happens][0])(pid, folder)


_OVER = os.WEXITED | os.WNOHANG | os.WNOWAIT


def left_behind(session: int) -> Iterator[str]:
    """Name the processes of a run that outlive it by more than a second. (Children are groups of its session.)"""
    end = time.monotonic() + 1.0
    while (found := in_session(session)) and time.monotonic() < end:
        time.sleep(0.01)
    yield from (f"left process {each} behind" for each in found)


def in_session(session: int) -> list[int]:
    """Return the processes of a session that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="utf-8").rpartition(") ")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def survive(folder: Path, plan: Plan) -> Iterator[str]:
    """Do what is planned to a run, resume it as often as needed, and say what was wrong on the way."""
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    pid = begin(folder, plan, resume=False)
    if plan.happens:
        strike(pid, plan, folder)
    before: dict[str, str] = {}
    for turn in range(RESUMES_LIMIT):
        code = wait(pid, RUN_DEADLINE_S)
        if code is None:
            yield f"did not end within {RUN_DEADLINE_S:g} s"
            return
        after = records(folder)
        yield from (f"lost the record of case {case}" for case in before if after.get(case) != before[case])
        yield from left_behind(pid)
        if plan.happens in DISTURBANCES:
            due = {USUAL} if turn else {USUAL, DISTURBANCES[plan.happens][1]}
            yield from [f"ended with {code}, and not with {due}"] if code not in due else []
            said = (folder / "output.txt").read_text("utf-8", "replace")
            yield from [f"shows {word!r}" for word in ("Traceback (most", "INTERNALERROR") if word in said]
        if has_ended(folder):
            return
        before = after
        pid = begin(folder, plan, resume=True)
    wait(pid, RUN_DEADLINE_S)
    yield "was resumed again and again, and never done"


def blame(plan: Plan, found: dict[str, str], undisturbed: dict[str, str]) -> Iterator[str]:
    """Say where the verdict is not what it has to be."""
    kind = next((name for name in FAULTS if plan.fault.startswith(name)), "")
    allowed = FAULTS.get(kind, "")
    different = {case for case in undisturbed if found.get(case) != undisturbed[case]}
    if plan.case >= 0:
        wanted = {"not-run", None} if kind == "crash:by=kill" else {"errored"}
        if found.get(str(plan.case)) not in wanted:
            yield f"the faulty case {plan.case} is {found.get(str(plan.case))}"
        different -= {str(plan.case)}
    elif plan.single and "flaky" in allowed and len(different) == 1:
        (one,) = different
        different = set() if found.get(one) == "flaky" else different
    for case in sorted(different):
        yield f"case {case} is {found.get(case)}, and {undisturbed[case]} in an undisturbed run"


# --- all runs ---


def run_one(number: int, seed: int, kind: str, base: dict[str, str], usual_s: float) -> list[str]:
    """Make one run and return what was wrong with it."""
    chance = random.Random(f"{seed}/{kind}/{number}")  # noqa: S311  (chance, no secret)
    random.seed(chance.random())
    folder = Path(tempfile.mkdtemp(prefix="survival-"))
    plan = {
        "fault": lambda: planned_fault(chance, folder),
        "kill": lambda: planned_kill(chance, usual_s),
        "disturbance": lambda: planned_disturbance(chance, number, usual_s / 2),
    }[kind]()
    wrong = list(survive(folder, plan))
    wrong += blame(plan, outcomes(folder), base)
    if wrong:
        click.echo(f"{kind} {number} (seed {seed}): {plan}: {'; '.join(wrong)}  [{folder}]")
    else:
        shutil.rmtree(folder)
    return wrong


@click.command()
@click.option("--faults", default=300, show_default=True, help="Runs with a fault.")
@click.option("--kills", default=300, show_default=True, help="Runs with a kill -9.")
@click.option("--disturbances", default=100, show_default=True, help="Runs with a signal, a full disk, a lost folder.")
@click.option("--seed", default=0, show_default=True)
@click.option("--seconds", default=0.0, help="Stop after so many seconds; 0 is never.")
def main(faults: int, kills: int, disturbances: int, seed: int, seconds: float) -> None:
    """Run them all, and exit with 1 where anything was wrong."""
    torch.set_num_threads(1)
    folder, began = Path(tempfile.mkdtemp(prefix="survival-")), time.monotonic()
    wrong = list(survive(folder, Plan()))
    usual_s, base = time.monotonic() - began, outcomes(folder)
    if wrong or Counter(base.values()) != {"passed": CASES - 1, "failed": 1}:
        raise SystemExit(f"the undisturbed run is wrong: {wrong} {base} [{folder}]")
    click.echo(f"an undisturbed run takes {usual_s:.1f} s")
    done: Counter[str] = Counter()
    counts = {"fault": faults, "kill": kills, "disturbance": disturbances}
    planned = [(each, kind) for each in range(max(counts.values())) for kind, of in counts.items() if each < of]
    with click.progressbar(planned, file=sys.stderr, show_pos=True) as progress:
        for number, kind in progress:
            if not (seconds and time.monotonic() - began > seconds):
                done[kind] += 1
                done[f"{kind}, wrong"] += bool(run_one(number, seed, kind, base, usual_s))
    said = (f"{done[kind]} runs with a {kind}, {done[f'{kind}, wrong']} wrong" for kind in counts)
    click.echo(f"{'; '.join(said)}; {time.monotonic() - began:.0f} s")
    sys.exit(any(done[f"{kind}, wrong"] for kind in counts))
