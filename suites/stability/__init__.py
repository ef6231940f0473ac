"""The cases of the stability suite: the same call gives the same bits, whatever ran before, whatever is beside it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.case import Case

from .table import MIXED, SUBJECTS, Subject

DETERMINISM, BATCH, STALE = "determinism", "batch-invariance", "stale-memory"
DTYPES = ("float32", "float16")


def _properties(subject: Subject) -> Iterator[str]:
    yield DETERMINISM
    yield STALE
    if subject.rows != MIXED:
        yield BATCH


CASES: tuple[Case, ...] = tuple(
    Case(
        suite="stability",
        subject=subject.name,
        property=property_,
        dtype=dtype,
        family=property_,
        level="standard" if dtype == DTYPES[0] else "full",
    )
    for subject in SUBJECTS
    for dtype in DTYPES
    for property_ in _properties(subject)
)
