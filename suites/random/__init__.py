"""Random numbers: their cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pytest_ascend.records.case import Case

from .batteries import BATTERIES
from .drawings import DRAWINGS, MASKED

#: At level smoke: two seeded runs of operators that draw in several dtypes, and which weights attention drops.
_AT_SMOKE = {(each.name, "seed") for each in DRAWINGS if len(each.dtypes) > 1 and "." not in each.name}
_AT_SMOKE |= {("scaled_dot_product_attention", "distribution")}


def _cases() -> Iterator[Case]:
    case = partial(Case, suite="random", family="random")
    for drawing in DRAWINGS:
        for dtype in drawing.dtypes:
            asked = "distribution", *(("seed", "state") if dtype == drawing.dtypes[0] else ())
            for property_ in (*asked, "backward") if drawing.name in MASKED else asked:
                level = "smoke" if (drawing.name, property_) in _AT_SMOKE else "standard"
                yield case(subject=drawing.name, property=property_, dtype=dtype, level=level)
    for name, (level, _) in BATTERIES.items():
        yield case(subject=name, property="battery", level=level)


CASES: tuple[Case, ...] = tuple(_cases())
