"""What grids and lists of cases share: the order of dtypes, links, counts in words, short names of properties."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import figures
from pytest_ascend.verdict.phrase import Phrase, commas
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


def dtype_key(dtype: str) -> tuple[int, str]:
    """Return the key by which dtypes are sorted."""
    return (DTYPE_ORDER.index(dtype) if dtype in DTYPE_ORDER else len(DTYPE_ORDER), dtype)


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
