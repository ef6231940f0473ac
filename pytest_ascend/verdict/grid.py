"""Cases laid out as subjects by dtype, a mark for each property: the part of a page that shows a suite at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import figures
from pytest_ascend.verdict.phrase import Phrase, commas, say
from pytest_ascend.verdict.summary import ORDER, counted_outcome

#: Floating point first, from the one that training uses most; what is not named here comes after, by name.
DTYPE_ORDER = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
#: With more rows than this only families with something to see are open at first, as many as have so many rows.
OPEN_ROWS = 120
_WELL = ("passed", "waived", "disputed")


@dataclass(frozen=True, slots=True)
class Mark:
    """One case in a grid: the letters of its property, its outcome, where its details are, and all that in words."""

    letters: str
    outcome: str
    href: str
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """One subject: a tuple of marks for each dtype of the grid, empty where no case exists."""

    subject: str
    cells: tuple[tuple[Mark, ...], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Subjects that belong together; ``tally`` counts their cases by outcome, in words."""

    name: str | Phrase
    tally: Phrase
    is_open: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of families. ``properties`` maps the letters of the marks to the properties they stand for."""

    dtypes: tuple[str | Phrase, ...]
    properties: Mapping[str, str]
    families: tuple[Family, ...]


def grid_of(results: Iterable[ResultRecord]) -> Grid:
    """Lay out the results of one suite. Every case is in exactly one cell."""
    results = tuple(results)
    dtypes = tuple(sorted({result.case.dtype for result in results}, key=_dtype_key))
    letters = abbreviations(list(dict.fromkeys(result.case.property for result in results)))
    families = _grouped(results)
    opened = _opened(families)
    return Grid(
        dtypes=tuple(figures.one_line(dtype) or say("grid.no-dtype") for dtype in dtypes),
        properties={short: figures.one_line(name) for name, short in letters.items()},
        families=tuple(
            _family(name, families[name], dtypes, letters, is_open=name in opened)
            for name in sorted(families, key=figures.sort_key)
        ),
    )


def _dtype_key(dtype: str) -> tuple[int, str]:
    return (DTYPE_ORDER.index(dtype) if dtype in DTYPE_ORDER else len(DTYPE_ORDER), dtype)


def _grouped(results: Iterable[ResultRecord]) -> dict[str, list[ResultRecord]]:
    families: dict[str, list[ResultRecord]] = {}
    for result in results:
        families.setdefault(result.case.family, []).append(result)
    return families


def _opened(families: Mapping[str, list[ResultRecord]]) -> set[str]:
    """Choose the families whose rows are seen at first."""
    rows = {name: len({result.case.subject for result in results}) for name, results in families.items()}
    if sum(rows.values()) <= OPEN_ROWS:
        return set(families)
    opened, left = set(), OPEN_ROWS
    for name in sorted(families, key=figures.sort_key):
        left -= 0 if _is_well(families[name]) else rows[name]
        if left >= 0 and not _is_well(families[name]):
            opened.add(name)
    return opened


def _is_well(results: Iterable[ResultRecord]) -> bool:
    return all(result.outcome.name in _WELL for result in results)


def _family(
    name: str, results: list[ResultRecord], dtypes: tuple[str, ...], letters: Mapping[str, str], *, is_open: bool
) -> Family:
    cells: dict[str, dict[str, list[ResultRecord]]] = {}
    for result in results:
        cells.setdefault(result.case.subject, {}).setdefault(result.case.dtype, []).append(result)
    order = list(letters)
    rows = tuple(
        Row(
            figures.one_line(subject),
            tuple(_marks(cells[subject].get(dtype, []), letters, order) for dtype in dtypes),
        )
        for subject in sorted(cells, key=figures.sort_key)
    )
    return Family(figures.one_line(name) or say("grid.other"), tally(results), is_open, rows)


def _marks(results: list[ResultRecord], letters: Mapping[str, str], order: list[str]) -> tuple[Mark, ...]:
    results = sorted(results, key=lambda result: order.index(result.case.property))
    return tuple(_mark(result, letters[result.case.property]) for result in results)


def _mark(result: ResultRecord, letters: str) -> Mark:
    case, outcome = result.case, result.outcome.name
    label = figures.one_line(" ".join(part for part in (case.subject, case.property, case.dtype) if part))
    return Mark(letters, outcome, link(case.id), f"{label}: {say(f'outcome.{outcome}')}")


def link(case_id: str) -> str:
    """Return the permanent link of a case within its page."""
    return f"#case={quote(figures.one_line(case_id), safe='/')}"


def tally(results: Iterable[ResultRecord]) -> Phrase:
    """Count results by outcome, in words, the worst first."""
    found = Counter(result.outcome.name for result in results)
    return commas([counted_outcome(name, found[name]) for name in ORDER if found[name]])


def abbreviations(names: list[str]) -> dict[str, str]:
    """Return each name its initials, lengthened or numbered where two would be the same."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = next(short for short in _candidates(name) if short not in found.values())
    return found


def _candidates(name: str) -> Iterator[str]:
    parts = re.findall(r"[^\W_]+", name) or ["?"]
    initials = "".join(part[0] for part in parts).upper()[:3]
    yield initials
    yield f"{initials}{parts[-1][1:2]}"
    number = 2
    while True:
        yield f"{initials[:2]}{number}"
        number += 1
