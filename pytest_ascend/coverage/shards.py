"""Divide a run among machines, into parts of about equal duration.

Every shard computes the same division by itself, from the cases and the durations bundled with the suites.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular
from pytest_ascend.system.groups import by_key

SCHEMA = 1
#: The file beside the manifest, and the command that writes it.
NAME, COMMAND = "durations.json", "pytest-ascend manifest --durations=RUN"
#: Duration in seconds of cases that are not in the file, which lists only longer ones.
USUAL_S = 0.05
COUNT_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` of ``count``, from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse(text: str) -> Shard:
    """Parse a shard such as "2/5". Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count <= COUNT_LIMIT:
        hint = f"give part and number of parts, up to {COUNT_LIMIT}: --ascend-shard=2/5 is the second of five"
        raise UsageError(f"--ascend-shard={text}: not a part of a whole", hint=hint)
    return Shard(index, count)


def unit(case: Case) -> str:
    """Return the unit of a case: cases of one operator or model in one dtype share results and stay together."""
    return "/".join((case.suite, case.subject, case.dtype))


def part(cases: Iterable[Case], durations_s: Mapping[str, float], shard: Shard) -> frozenset[str]:
    """Return the IDs of the cases that a shard must run. Every case is in exactly one of the ``count`` shards.

    The longest unit goes to the shard with the least work, and so on (R. L. Graham, "Bounds on multiprocessing timing
    anomalies", SIAM Journal on Applied Mathematics 17, 1969: at most a third longer than the best division).
    """
    units = by_key((unit(case), case) for case in cases)
    lengths = {name: sum(durations_s.get(case.id, USUAL_S) for case in units[name]) for name in units}
    loads = [0.0] * shard.count
    mine: set[str] = set()
    for name in sorted(units, key=lambda each: (-lengths[each], each)):
        place = loads.index(min(loads))
        loads[place] += lengths[name]
        if place == shard.index - 1:
            mine.update(case.id for case in units[name])
    return frozenset(mine)


def load(suites: Path) -> Mapping[str, float]:
    """Read the durations in the folder ``suites``, in seconds by case ID. Raises UsageError for a damaged file."""
    path = suites / NAME
    message, hint = f"the durations cannot be read: {path}", f"write them again: {COMMAND}"
    refused = as_error(message, hint, OSError, ValueError, KeyError, TypeError, AttributeError, why=str)
    with refused, contextlib.suppress(FileNotFoundError):
        data = json.loads(read_regular(path, 64 << 20))
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA}")
        return {str(case_id): max(float(seconds), 0.0) for case_id, seconds in data["durations_s"].items()}
    return {}


def encode(records: Iterable[ResultRecord]) -> str:
    """Return the text of the file of durations: one case per line, sorted, only those that take longer than usual."""
    found = {record.case.id: record.duration_s for record in records if record.duration_s > USUAL_S}
    body = ",\n".join(f"{json.dumps(case_id)}: {found[case_id]:.2g}" for case_id in sorted(found))
    return f'{{"schema": {SCHEMA}, "durations_s": {{\n{body}\n}}}}\n'
