"""The cases of the suite on modes that change numbers on a chip: each judged by what the mode promises."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_ascend.records.case import Case

from .products import PRODUCTS

#: Mode -> what is set for it; all other suites run with everything off. On a chip the first and the last are on by
#: default.
MODES: Mapping[str, Mapping[str, bool]] = {
    "conv-hf32": {"conv.allow_hf32": True},
    "matmul-hf32": {"matmul.allow_hf32": True},
    "internal-format": {"allow_internal_format": True},
}

CASES: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=product.name, property=mode, dtype="float32", family=product.mode, level="standard")
    for product in PRODUCTS
    for mode in (product.mode, "internal-format")
)
