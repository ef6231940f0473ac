"""Contents of lists of cases: their columns, each declared once, links, counts in words, the order of dtypes.

The page, CSV, JSON and pytest-html all use this table of columns.

A new column needs a row here, and a description in docs/report.md.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any
from urllib.parse import quote

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system import figures
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.phrase import Phrase, commas
from pytest_ascend.verdict.summary import ORDER, counted_outcome


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``value`` is for programs, ``shown`` for people; both also get the ID of the case's cause, or "".

    CSV and JSON have all columns; ``places`` are "page" and "pytest-html". ``title`` has the heading by language.
    """

    name: str
    title: Mapping[str, str]
    value: Callable[[ResultRecord, str], str | float]
    shown: Callable[[ResultRecord, str], str]
    places: tuple[str, ...]
    is_number: bool


def _of_case(name: str) -> Callable[[ResultRecord, str], str]:
    return lambda record, _: evidence.line(getattr(record.case, name))


def _used(record: ResultRecord, _: str) -> str | float:
    used = evidence.limit_used(record)
    return "" if used is None else used if math.isfinite(used) else str(used)


def _used_shown(record: ResultRecord, _: str) -> str:
    used = evidence.limit_used(record)
    return "" if used is None else figures.used(used)


def _standards(record: ResultRecord, _: str) -> str:
    return ", ".join(dict.fromkeys(evidence.line(verdict.standard) for verdict in record.verdicts))


def _duration(record: ResultRecord, _: str) -> str:
    return figures.duration(record.duration_s) if record.node_id else ""


def _column(name: str, en: str, zh: str, value: Any, *places: str, number: Any = None) -> Column:
    """Declare a column of text or, given a function ``number`` that formats its values, of numbers."""
    is_number = number is not None
    return Column(name, {"en": en, "zh": zh}, value, number if is_number else value, places, is_number)


COLUMNS = (
    _column("outcome", "Outcome", "结果", lambda record, _: record.outcome_name, "page", "pytest-html"),
    _column("case", "Case", "用例", _of_case("id"), "page"),
    _column("suite", "Suite", "测试套件", _of_case("suite")),
    _column("subject", "Subject", "被测对象", _of_case("subject")),
    _column("property", "Property", "检查项", _of_case("property")),
    _column("dtype", "dtype", "数据类型", _of_case("dtype")),
    _column("cause", "Cause", "原因", lambda _, cause: cause),
    _column("limit_used", "Limit used", "误差占限值", _used, "page", "pytest-html", number=_used_shown),
    _column("standard", "Standard", "精度标准", _standards, "pytest-html"),
    _column("duration_s", "Time", "耗时", lambda record, _: record.duration_s, "page", number=_duration),
    _column(
        "reason", "Finding", "说明", lambda record, _: evidence.loosened(record) or evidence.finding(record), "page"
    ),
)


def columns_of(place: str) -> tuple[Column, ...]:
    """Return the columns of a place, in order."""
    return tuple(each for each in COLUMNS if place in each.places)


def headings(language: str) -> dict[str, str]:
    """Return the headings for a page, by ``column.`` and the name."""
    return {f"column.{each.name}": each.title.get(language, each.title["en"]) for each in COLUMNS}


#: Floating-point dtypes first, the most used in training in front; others follow by name.
DTYPE_ORDER = (
    *("float32", "float16", "bfloat16", "float64", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)


def dtype_key(dtype: str) -> tuple[int, str]:
    """Return the key by which dtypes are sorted."""
    return (DTYPE_ORDER.index(dtype) if dtype in DTYPE_ORDER else len(DTYPE_ORDER), dtype)


def link(case_id: str) -> str:
    """Return the permanent link of a case within its page."""
    return f"#case={quote(figures.one_line(case_id), safe='/')}"


def tally(results: Iterable[ResultRecord]) -> Phrase:
    """Return the counts of results by outcome, in words, the worst first."""
    found = Counter(result.outcome_name for result in results)
    return commas([counted_outcome(name, found[name]) for name in ORDER if found[name]])


def abbreviations(names: list[str]) -> dict[str, str]:
    """Return the initials of each name, lengthened or numbered to be unique."""
    found: dict[str, str] = {}
    for name in names:
        parts = re.findall(r"[^\W_]+", name) or ["?"]
        initials = "".join(part[0] for part in parts).upper()[:3]
        numbered = (f"{initials[:2]}{number}" for number in count(2))
        candidates = chain((initials, f"{initials}{parts[-1][1:2]}"), numbered)
        found[name] = next(short for short in candidates if short not in found.values())
    return found
