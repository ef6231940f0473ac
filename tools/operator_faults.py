"""How many faults at random the operator suite notices: a random kernel of the device, a random kind of damage.

    python tools/operator_faults.py [--faults 300] [--seed 0] [--operators 40] [--json FILE]

First every case at level standard runs on the honest device, which tells what kernels it calls; then one fault after
the other is planted, and the cases that call its kernel run until one complains. A fault that changes no bit of any
result is none, and counts for nothing; one that changes some and is not complained of is a blind spot, and named.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from pytest_ascend import emulator

emulator.activate()
os.environ["PYTEST_ASCEND_FAULTS"] = "operator_switch:EVERY_KERNEL"

from operator_cases import STANDARD, complaint  # noqa: E402  (after the activation)
from operator_damage_in import ON_THE_WAY_IN  # noqa: E402
from operator_damage_out import ON_THE_WAY_OUT  # noqa: E402
from operator_switch import SWITCH  # noqa: E402

from pytest_ascend.records.case import Case  # noqa: E402

#: Kernels that bring tensors to the device, fill and compare them: with these wrong nothing is right.
PLUMBING = {"aclnnInplaceCopy", "aclnnCast"}
KINDS = (*ON_THE_WAY_IN, *ON_THE_WAY_OUT)
#: Cases of one fault that are run at most, drawn at random where there are more.
MOST_CASES = 200


@dataclass(frozen=True, slots=True)
class CaseContext:
    """A fault that was planted: how often it changed a result, cases that there were, and the first that complained."""

    kernel: str
    damage: str
    seed: int
    effects: int
    cases: int
    case: str
    complaint: str


def watched(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Run cases on the honest device; give for each kernel those that call it, without those that complain as it is."""
    found: dict[str, list[Case]] = defaultdict(list)
    SWITCH.kernel, SWITCH.records = "", True
    for case in cases:
        SWITCH.called.clear()
        if not complaint(case):
            for kernel in SWITCH.called - PLUMBING:
                found[kernel].append(case)
    SWITCH.records = False
    return found


def trial(kernel: str, damage: str, seed: int, cases: Sequence[Case]) -> CaseContext:
    """Plant a fault, run cases until one complains, take it out again."""
    chance = random.Random(f"{kernel} {damage} {seed}")  # noqa: S311  (no secret)
    draw = ON_THE_WAY_IN.get(damage)
    SWITCH.into = draw(chance, SWITCH.seen[kernel]) if draw else None
    SWITCH.out = ON_THE_WAY_OUT[damage](chance, SWITCH.seen[kernel]) if not draw else None
    SWITCH.kernel, SWITCH.effects = kernel, 0
    chosen = list(cases) if len(cases) <= MOST_CASES else chance.sample(list(cases), MOST_CASES)
    chance.shuffle(chosen)
    complaints = ((case.id, complaint(case)) for case in chosen)
    name, said = next(((name, said) for name, said in complaints if said), ("", ""))
    SWITCH.kernel = ""
    return CaseContext(kernel, damage, seed, SWITCH.effects, len(chosen), name, said)


def trials(seed: int, callers: Mapping[str, Sequence[Case]]) -> Iterator[CaseContext]:
    """Draw faults without end."""
    chance, kernels = random.Random(seed), sorted(callers)  # noqa: S311
    while True:
        kernel, damage, each = chance.choice(kernels), chance.choice(KINDS), chance.randrange(1 << 16)
        yield trial(kernel, damage, each, callers[kernel])


def is_named(found: CaseContext) -> bool:
    """Whether the complaint says whose it is: the case's operator."""
    return found.case.split("/")[1].partition(".")[0] in found.complaint


@click.command()
@click.option("--faults", default=300, help="faults that change something")
@click.option("--seed", default=0)
@click.option("--operators", default=0, help="operators of the suite, drawn at random; 0 is all")
@click.option("--json", "file", type=click.Path(path_type=Path), help="write all trials there")
def main(faults: int, seed: int, operators: int, file: Path | None) -> None:
    """Plant faults at random; print the share that is noticed, and what is not."""
    warnings.simplefilter("ignore")
    subjects = sorted({case.subject for case in STANDARD})
    chosen = set(random.Random(seed).sample(subjects, operators) if operators else subjects)  # noqa: S311
    callers = watched([case for case in STANDARD if case.subject in chosen])
    made = trials(seed, callers)
    found: list[CaseContext] = []
    while sum(each.effects > 0 for each in found) < faults:
        found.append(next(made))
    visible = [each for each in found if each.effects]
    caught = [each for each in visible if each.case]
    click.echo(f"{len(callers)} kernels, {len(found)} faults, {len(visible)} of them change a result")
    click.echo(f"noticed: {len(caught)} ({len(caught) / len(visible):.1%}); by name: {sum(map(is_named, caught))}")
    for each in visible:
        if not each.case:
            click.echo(
                f"not noticed: {each.kernel}: {each.damage} ({each.seed}; {each.effects} calls in {each.cases} cases)"
            )
    for damage, count in Counter(each.damage for each in found if not each.effects).most_common():
        click.echo(f"no effect: {damage}: {count}")
    if file:
        file.write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
