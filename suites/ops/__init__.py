"""The cases of the suite, frozen in the manifest: from the table of operators, and from recordings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from pytest_ascend.operators.exploring import cases_of as cases_of_findings
from pytest_ascend.operators.operator import BOOL, FLOATS, HALVES, INTS, Operator, cases_of
from pytest_ascend.operators.replay import Entry
from pytest_ascend.operators.sweep import CALLS
from pytest_ascend.records.case import REPEAT, Case

from ..numerics import ACCURACY
from .table import AT_SMOKE, FINDINGS, OPERATORS, RARE, RECORDED, exceptions, is_recorded

#: Dtypes other than their first in which recorded operators have generated calls, as these have other kernels.
OTHERS = ("int32", "int64", "bool", *HALVES)
#: Families of recorded operators without generated calls: torch_npu leaves them to the CPU, or they take no tensors.
_NOT_SWEPT_FAMILIES = ("linalg", "fft", "special", "creation")

#: Properties that generated calls vary too: where there are such calls, level standard tests only the first dtype.
ALSO_GENERATED = ("shapes", "layout", "backward", "backward-layout", "in-place")
#: Functions and dtypes for which the suite numerics runs all 65,536 inputs at level standard.
ALL_INPUTS = frozenset(
    (each.subject.rpartition(".")[2], each.dtype)
    for each in ACCURACY
    if (each.property, each.level) == ("accuracy", "standard")
)


def _level(operator: Operator, property_: str, dtype: str) -> str:
    """Return the lowest level that runs the property: exact sums and generated calls in some dtypes come first."""
    if property_ == "exact" or ((property_, dtype) == ("forward", "float32") and not operator.sweep):
        return "smoke"
    if property_ == "sweep":
        return "smoke" if dtype in AT_SMOKE else "standard"
    if property_.startswith("sweep"):
        return "full"
    is_late = property_ in ("forward", "special") and (operator.name, dtype) in ALL_INPUTS
    is_late |= property_ in ALSO_GENERATED and bool(operator.sweep) and dtype != operator.dtypes[0]
    is_late |= property_ == "out" and dtype in (*INTS[2:], *BOOL)  # less common integers
    return "full" if is_late else "standard"


def _level_of_recorded(name: str, property_: str, dtype: str, *, first: bool, swept: bool) -> str:
    """Return the lowest level of a recorded operator's property; ``first`` and ``swept`` describe its dtype."""
    if property_ == "sweep" and dtype in AT_SMOKE and exceptions(name).at_smoke:
        return "smoke"
    if property_ in CALLS:
        return "standard" if property_ == "sweep" else "full"
    early = FLOATS[:1] if property_ == "backward" and swept else FLOATS[:2]
    usual = property_ in ("forward", "backward") and dtype in early
    in_float32 = property_ in ("special", "layout") and dtype == "float32"
    return "standard" if usual or in_float32 or (property_ == REPEAT and first) else "full"


def _recorded() -> Iterator[Case]:
    for entry in RECORDED.values():
        family = OPERATORS[entry.name].family if entry.name in OPERATORS else entry.family
        for dtype in (each for each in entry.properties if is_recorded(entry.name, each)):
            first = entry.name not in OPERATORS and dtype == entry.first_dtype
            recorded = entry.properties[dtype]
            repeats = "forward" in recorded and not exceptions(entry.name).not_repeated
            swept = _swept(entry, dtype, first=first)
            for property_ in (*((*recorded, REPEAT) if repeats else recorded), *swept):
                level = _level_of_recorded(entry.name, property_, dtype, first=first, swept=bool(swept))
                of = {"subject": entry.name, "property": property_, "dtype": dtype, "family": family}
                yield Case(suite="ops", **of, level=level)


def _swept(entry: Entry, dtype: str, *, first: bool) -> tuple[str, ...]:
    """Return the sweep properties of a recorded operator: in its first dtype, in integers, and in half precision.

    At level full there are more in the first dtype, and in all dtypes where few calls reach a kernel; exploration
    covers the rest. Network layers have the most options, and also get more in half precision.
    """
    special = exceptions(entry.name)
    is_other = dtype in OTHERS and not special.one_dtype and (dtype in HALVES or not special.no_integers)
    is_free = (entry.family not in _NOT_SWEPT_FAMILIES or special.calls) and not special.no_calls
    is_free &= entry.name not in OPERATORS or bool(OPERATORS[entry.name].sweep)
    is_real = "forward" in entry.properties[dtype] and not getattr(torch, dtype).is_complex
    if not (is_free and is_real and (first or is_other)):
        return ()
    has_more = first or entry.name in RARE or (dtype in HALVES and entry.family == "network")
    return tuple(CALLS) if has_more else ("sweep",)


@cache
def __getattr__(name: str) -> tuple[Case, ...]:
    """Compute ``CASES`` on first use: a run takes its cases from the manifest, and computing them takes seconds."""
    if name != "CASES":
        raise AttributeError(name)
    families = {name: each.family for table in (RECORDED, OPERATORS) for name, each in table.items()}
    found = cases_of_findings(FINDINGS, families)
    return (*cases_of(*OPERATORS.values(), suite="ops", level=_level), *_recorded(), *found)
