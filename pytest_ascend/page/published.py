"""Figures from elsewhere, with their source: for a reader to set beside a run's own. Nothing decides by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from pytest_ascend.records.case import Case
from pytest_ascend.runlog import codec
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.untrusted import read_regular

FILE = Path("published", "figures.json")
SCHEMA = 2
LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """One figure: of which benchmark (its ``subject`` and ``property``), in the unit that ``measurement`` ends with.

    ``dtypes`` are the case's, empty where the source does not say in what the work was done; ``work`` is what was
    computed and ``stack`` on what, as far as the source says.
    """

    subject: str
    property: str
    dtypes: tuple[str, ...]
    measurement: str
    value: float
    work: str
    stack: str
    source: str

    def is_of(self, case: Case) -> bool:
        """Whether a case measures the same thing."""
        is_same = (case.suite, case.subject, case.property) == ("benchmarks", self.subject, self.property)
        return is_same and (not self.dtypes or case.dtype in self.dtypes)


@cache
def published() -> Sequence[Published]:
    """Read the figures that come with the package. Raises ValueError for a file of another schema."""
    path = folder("baselines") / FILE
    data = codec.loads(read_regular(path, LARGEST_BYTES).decode("utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"{path} is of schema {data['schema']!r}, and this release reads {SCHEMA}")
    names = [each.name for each in fields(Published)]
    return [
        Published(**{**{name: row[name] for name in names}, "dtypes": tuple(row["dtypes"])}) for row in data["figures"]
    ]


def published_of(case: Case) -> Iterator[Published]:
    """Yield the figures that were published of what a case measures."""
    yield from (each for each in published() if each.is_of(case))
