"""The cases of the suite on random numbers."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from .draws import DRAWINGS, Drawing

DISTRIBUTION, SEED, STATE, GRADIENT = "distribution", "seed", "state", "gradient"


def _properties(drawing: Drawing, dtype: str) -> tuple[str, ...]:
    if dtype != drawing.dtypes[0]:
        return (DISTRIBUTION,)
    return (DISTRIBUTION, SEED, STATE, *((GRADIENT,) if drawing.gradient else ()))


CASES: tuple[Case, ...] = tuple(
    Case(
        suite="random",
        subject=drawing.name,
        property=property_,
        dtype=dtype,
        family="random",
        level="smoke" if property_ == SEED and "." not in drawing.name else "standard",
    )
    for drawing in DRAWINGS
    for dtype in drawing.dtypes
    for property_ in _properties(drawing, dtype)
)
