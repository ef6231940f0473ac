"""Which operators of CANN a chip has, and which dtypes they take there, by the operators' official documentation.

``chip_operators.json`` is written by ``tools/chip_operators.py``, which also says how the pages are read; the file
names its sources. The pages are not complete and not always right: what none of them is about is not judged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_ascend.environment.chips import FAMILIES

DATA = Path(__file__).with_name("chip_operators.json")

#: How CANN names dtypes that are not called as torch's are.
NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}

_BFLOAT16 = "BFLOAT16"


@functools.cache
def _data() -> Mapping[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def sources() -> tuple[str, ...]:
    """Return what was read, and when."""
    return tuple(_data()["sources"])


def name_in_cann(dtype: str) -> str:
    """Return CANN's name of a dtype of torch, given without "torch."."""
    return NAMES.get(dtype, dtype.upper())


def undocumented(operator: str, family: str) -> bool:
    """Whether the page of an operator (without ``aclnn``) says that a family of chips does not have it."""
    return family in _data()["operators"].get(operator, {}).get("not_on", ())


def refused(operator: str, family: str) -> frozenset[str]:
    """Return the dtypes, as CANN names them, that others take for an operator and a family of chips does not.

    Families without bfloat16 have it in no operator, whether or not its page says so.
    """
    has_none = any(each.name == family and not each.bfloat16 for each in FAMILIES)
    said = _data()["operators"].get(operator, {}).get("without", {}).get(family, ())
    return frozenset({*said, _BFLOAT16} if has_none else said)


@functools.cache
def _callers() -> Mapping[str, tuple[str, ...]]:
    """Return the functions of CANN that an operator of torch calls, without ``aclnn``, by its name and overload."""
    found: dict[str, list[str]] = {}
    for function, page in _data()["operators"].items():
        for name in page.get("used_by", ()):
            found.setdefault(name, []).append(function)
    return {name: tuple(functions) for name, functions in found.items()}


def objections(operator: str, dtypes: Iterable[str], family: str) -> tuple[str, ...]:
    """Return what the documentation has against an operator of torch ("add.Tensor") with some dtypes on a family.

    ``dtypes`` are torch's names, without "torch.". Where torch_npu may call one of several functions, one that has
    nothing against it is enough.
    """
    functions = _callers().get(operator) or _callers().get(operator.partition(".")[0]) or ()
    said = [tuple(_against(each, dtypes, family)) for each in functions]
    return () if not said or any(not each for each in said) else said[0]


def _against(function: str, dtypes: Iterable[str], family: str) -> Iterable[str]:
    lost = refused(function, family) & {name_in_cann(each) for each in dtypes}
    if lost:
        yield f"aclnn{function} does not take {', '.join(sorted(lost))} there"
    if undocumented(function, family):
        yield f"aclnn{function} is not documented for it"
