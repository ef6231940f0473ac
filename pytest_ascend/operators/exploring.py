"""Exploration: generated calls of every operator with new seeds, and findings saved as files that can become cases.

A seed generates the same calls in the same order on every machine; the time limit only decides how many.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, convert

from pytest_ascend.operators import sweep
from pytest_ascend.operators.generator import Generated, generate, resized
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.sweep import SPARE, SweepReference, WrongCall
from pytest_ascend.operators.target import BACKWARD, Target
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.run.inputs import Chance
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import read_regular, strict_json, write_if_new

#: The property of exploration cases, and of cases made from kept findings.
EXPLORE, FOUND = "explore", "found"
#: Generated calls per round, each with a seed of its own; rounds reserved for a seed, so that seeds share none.
CALLS, _ROUNDS = 24, 1 << 20
#: Least seconds per operator and dtype; if there is less time, some of them are left out.
LEAST_S = 2.0
#: The file of kept findings, in the suite's folder; the largest size in bytes of this file and of a finding's file.
KEPT, _LIMIT_BYTES = "findings.json", 1 << 20
#: Exceptions raised for a file of another format.
_OTHERS = (OSError, ValueError, TypeError, KeyError)
_Number: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A generated call with a wrong result: its seed and number, how it was shrunk, and the message."""

    operator: str
    dtype: str
    seed: _Number
    call: Annotated[int, Meta(ge=0, lt=CALLS + SPARE)]
    resized: tuple[tuple[_Number, _Number], ...] = ()
    backward: bool = False
    says: str = ""

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.operator}-{self.dtype}-{self.seed}-{self.call}.json"

    @classmethod
    def from_dict(cls, data: Any) -> Finding:
        """Return the finding in a file's data. Raises ValueError for anything else."""
        if not isinstance(data, dict) or set(data) != set(cls.__slots__):
            raise ValueError(f"a finding has the keys {', '.join(cls.__slots__)}")
        return convert(data, cls)

    def generated(self, operator: Operator) -> Generated:
        """Generate the call again, for this operator."""
        place = self.call % 3  # calls come in threes
        found = next(islice(generate(operator, self.dtype, self.call + 1, self.seed, self.call - place), place, None))
        for size, to in self.resized:
            found = resized(found, size, to)
        return found


#: Receives the finding of a wrong call.
Keep: TypeAlias = Callable[[Finding], object]


def cases(
    known: Iterable[Case], seed: int, seconds: float, lanes: int, may_match: Callable[[Case], bool]
) -> tuple[tuple[Case, ...], float]:
    """Return the exploration cases, and the time of each in seconds.

    There is one for each torch operator and dtype that has a sweep in the manifest ``known``; ``lanes`` of them run at
    once. If there is not enough time for all, the seed selects some.
    """
    swept = [
        Case(suite=each.suite, subject=each.subject, property=EXPLORE, dtype=each.dtype, family=each.family)
        for each in known
        if each.suite == "ops" and each.property == "sweep"
    ]
    chance = Chance(f"explore/{seed}")
    order = sorted((case for case in swept if may_match(case)), key=lambda case: (chance.below(1 << 30), case.id))
    chosen = tuple(order[: max(1, int(seconds * lanes / LEAST_S))])
    return chosen, seconds * lanes / max(1, len(chosen))


def explore(
    target: Target, compare: PrecisionCompare, measure: Measure, *, seed: int, seconds: float, keep: Keep
) -> None:
    """Run rounds until the time is up. Raises WrongCall at the first wrong call, which ``keep`` receives."""
    until, asked, turn = time.monotonic() + seconds, Counter[str](), 0
    # Thousands of passing verdicts carry no more information than the last one.
    verdicts: deque[Verdict] = deque(maxlen=1)
    quiet = replace(compare, note=verdicts.append)
    try:
        while not turn or (time.monotonic() < until and turn < _ROUNDS):
            target.use(SweepReference.of(target.operator, target.case.dtype, range(CALLS), seed=seed * _ROUNDS + turn))
            found = sweep.run(target, quiet)
            found["arguments"] = max(0, found["arguments"] - asked["arguments"])  # each is counted once
            asked += found
            turn += 1
    except WrongCall as error:
        keep(
            Finding(
                operator=target.operator.name,
                dtype=target.case.dtype,
                seed=int(error.generated.seed),
                call=error.generated.number,
                resized=error.generated.resized,
                backward=error.direction == BACKWARD,
                says=str(error).partition("\n")[0][:300],
            )
        )
        raise
    finally:
        for verdict in verdicts:
            compare.note(verdict)
        sweep.note(asked, measure)


def write(folder: Path, finding: Finding) -> Path:
    """Write a finding to a folder, created if needed, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / finding.name
    write_if_new(path, (json.dumps(asdict(finding), indent=1, sort_keys=True) + "\n").encode())
    return path


def read(path: Path) -> Finding:
    """Read a finding's file. Raises UsageError if it is not one."""
    with as_error(f"{path} is not a finding", "give a file of ascend-report/findings", *_OTHERS, why=str):
        return Finding.from_dict(strict_json(read_regular(path, _LIMIT_BYTES)))


def kept(path: Path) -> tuple[Finding, ...]:
    """Return the kept findings, none without a file. Raises UsageError for a damaged one."""
    if not path.exists():
        return ()
    with as_error(f"{path} cannot be read", "put the earlier version of the file back", *_OTHERS, why=str):
        rows = strict_json(read_regular(path, _LIMIT_BYTES))
        return tuple(Finding.from_dict(each) for each in rows)


def add(path: Path, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Add findings to the kept ones, without duplicates, and return the new ones."""
    known = kept(path)
    new = tuple(dict.fromkeys(each for each in findings if each not in known))
    rows = [asdict(each) for each in sorted((*known, *new), key=lambda each: each.name)]
    if new:
        write_if_new(path, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
    return new


def cases_of(findings: Iterable[Finding], families: Mapping[str, str]) -> tuple[Case, ...]:
    """Return one case for each operator and dtype with a finding."""
    pairs = dict.fromkeys((each.operator, each.dtype) for each in findings)
    return tuple(
        Case(suite="ops", subject=name, property=FOUND, dtype=dtype, family=families[name], level="standard")
        for name, dtype in pairs
    )


def sweep_of(operator: Operator, dtype: str, findings: Iterable[Finding]) -> SweepReference:
    """Return the reference for the findings of an operator in a dtype."""
    own = [each for each in findings if (each.operator, each.dtype) == (operator.name, dtype)]
    return replace(SweepReference.of(operator, dtype), calls=tuple(each.generated(operator) for each in own), seed=None)
