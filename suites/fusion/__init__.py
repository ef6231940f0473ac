"""The cases of the fusion suite: each fused form, by property."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from .patterns import FORMS

#: Forms that need an operator which not every chip has.
OF_SOME_CHIPS = {"linear-relu.npu_fused_matmul"}
#: Level of each property.
PROPERTIES = {"precision": "standard", "time": "full", "memory": "full"}

CASES = tuple(
    Case(
        suite="fusion",
        subject=name,
        property=property_,
        dtype="float32",
        family=name.partition(".")[0],
        level="full" if name in OF_SOME_CHIPS else level,
    )
    for property_, level in PROPERTIES.items()
    for name in FORMS
)
