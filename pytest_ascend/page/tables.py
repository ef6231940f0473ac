"""What the benchmarks of a run say together: the speed-up of one dtype over another, and figures from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from pathlib import Path

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.untrusted import read_regular
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.grid import link
from pytest_ascend.verdict.phrase import Phrase, say

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


#: What a speed-up is over.
USUAL = "float32"
#: The time of one call: the device's own clock tells, where both have one.
_TIMES = ("device_p50_us", "latency_p50_us")
#: Rows of one table.
LINES_LIMIT = 300
#: The name of the figure, as that of a measurement.
SPEED_UP = "speed_up"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: a case, the link to it, and a text for each column after it."""

    id: str
    href: str
    cells: tuple[Phrase | str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureTable:
    """A table over cases; ``lead`` says how to read it, ``columns`` name what stands after the case."""

    title: Phrase
    lead: Phrase
    columns: tuple[Phrase, ...]
    lines: tuple[Line, ...]


def tables(results: Sequence[ResultRecord]) -> Iterator[FigureTable]:
    """Yield the tables that a suite has something for."""
    gained = speed_ups(results)
    if gained:
        yield _speed_ups(results, gained)
    if beside := tuple(islice(_beside(results, gained), LINES_LIMIT)):
        yield FigureTable(
            title=say("published.title"),
            lead=say("published.lead"),
            columns=tuple(say(f"published.{name}") for name in ("figure", "own", "elsewhere", "stack", "source")),
            lines=beside,
        )


def speed_ups(results: Sequence[ResultRecord]) -> Mapping[str, float]:
    """Return by case id how many times as fast as in float32 the same work was in the case's dtype, in the same run."""
    by_case = {result.case.id: result for result in results if result.case.suite == "benchmarks"}
    found = {}
    for name, result in by_case.items():
        usual = by_case.get(result.case.but(dtype=USUAL).id)
        if usual is None or usual is result:
            continue
        times = [(usual.measurements[time], result.measurements[time]) for time in _TIMES if _have(time, usual, result)]
        if times and times[0][1] > 0:
            found[name] = times[0][0] / times[0][1]
    return found


def _have(name: str, *results: ResultRecord) -> bool:
    return all(name in result.measurements for result in results)


def _speed_ups(results: Sequence[ResultRecord], gained: Mapping[str, float]) -> FigureTable:
    by_case = {result.case.id: result for result in results}
    lines = []
    for name, factor in islice(gained.items(), LINES_LIMIT):
        result = by_case[name]
        usual = by_case[result.case.but(dtype=USUAL).id]
        times = (_time(usual), _time(result))
        lines.append(Line(evidence.line(name), link(name), (*times, _times(factor))))
    return FigureTable(
        title=say("speed-up.title"),
        lead=say("speed-up.lead"),
        columns=(say("speed-up.usual"), say("speed-up.time"), say("speed-up.factor")),
        lines=tuple(lines),
    )


def _time(result: ResultRecord) -> str:
    name = next(each for each in _TIMES if each in result.measurements)
    return figures.quantity(name, result.measurements[name])


def _times(factor: float) -> str:
    return f"{factor:.2f} ×"


def _beside(results: Sequence[ResultRecord], gained: Mapping[str, float]) -> Iterator[Line]:
    """Set what was published of each benchmark beside what this run measured of the same."""
    for result in results:
        own = {**result.measurements, **({SPEED_UP: gained[result.case.id]} if result.case.id in gained else {})}
        for each in published_of(result.case):
            if each.measurement in own:
                yield Line(
                    evidence.line(result.case.id),
                    link(result.case.id),
                    (
                        figures.words(each.measurement),
                        f"{_figure(each.measurement, own[each.measurement])}{_batch(result)}",
                        f"{_figure(each.measurement, each.value)} ({each.work})",
                        each.stack,
                        each.source,
                    ),
                )


def _figure(name: str, value: float) -> str:
    return _times(value) if name == SPEED_UP else figures.quantity(name, value)


def _batch(result: ResultRecord) -> str:
    """Say how many samples a call took, where that is known: what is set beside it may have taken more."""
    batch = result.measurements.get("items_per_call")
    return f" (batch {figures.number(batch)})" if batch else ""
