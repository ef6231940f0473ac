"""What a wrong result would be right on: chips that compute otherwise than PyTorch promises, as their makers document.

The judge says so beside its verdict, which stays what it is. On which chips a deviation is documented stands among the
known ones (``baselines/expectations.json``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import sqrt
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.precision.request import Request, explain
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES, Verdict, told

#: Judges a result by what is expected and by reference runs: path, actual, expected, reference_runs, how.
Judge: TypeAlias = Callable[[str, Tensor, Tensor, Sequence[Tensor], Request], Verdict]

#: How much larger a rounding of float16 is than one of float32.
_WIDER = 2.0**13
#: The error model's limits that are multiples of a rounding, or of an error of a reference run.
_OF_ROUNDINGS = (
    *("element_ulps", "rms_ulps", "bias_ulps", "approximation_ulps", "sampled_ulps"),
    *("largest", "sampled_largest", "block", "rms"),
)
#: And those of sums, in which factors are rounded once, however many are added up in float32.
_OF_SUMS = ("sums", "sums_rms")


def _finite(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where a number stands for NaN, or for an infinity of its sign."""
    infinite = expected.isinf() | (expected.abs() > torch.finfo(actual.dtype).max)
    return actual.isfinite() & (expected.isnan() | (infinite & (actual.signbit() == expected.signbit())))


def _flushed(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where zero stands for a subnormal number."""
    return (actual == 0) & (expected != 0) & (expected.abs() < torch.finfo(actual.dtype).tiny)


#: Deviation -> where, of actual and expected, it may show: there nothing else is expected.
PLACES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {SATURATES: _finite, FLUSHES: _flushed}


#: Dtypes, and the most elements, that are looked at: looking needs tensors of the same size.
LOOKED_AT, ELEMENTS = (torch.float16, torch.bfloat16, torch.float32), 1 << 24


def explained(verdict: Verdict, tensors: Sequence[Tensor], request: Request, judge: Judge) -> Verdict:
    """Return a verdict that disagrees, with the fewest deviations that explain all of it, if any, in its pattern.

    ``tensors`` are the actual result, the expected one and the reference runs, of one shape.
    """
    actual = tensors[0]
    if actual.dtype not in LOOKED_AT or actual.numel() > ELEMENTS or actual.layout is not torch.strided:
        return verdict
    actual, expected, *reference_runs = (each.detach().cpu() for each in tensors)
    shown = {name: found for name, shows in PLACES.items() if (found := shows(actual, expected)).any()}
    names = [*shown, *([HALVES] if actual.dtype is torch.float32 and request.standard.rule == "model" else [])]
    for chosen in (each for count in range(1, len(names) + 1) for each in combinations(names, count)):
        rest = torch.ones_like(actual, dtype=torch.bool)
        for name in chosen:
            rest &= ~shown[name] if name in shown else rest
        ours, theirs, *beside = (each[rest] for each in (actual, expected, *reference_runs))
        how = _in_halves(request) if HALVES in chosen else request
        if not ours.numel() or judge(verdict.path, ours, theirs, beside, how).agrees:
            named = replace(verdict, pattern="; ".join(filter(None, [verdict.pattern, told(chosen)])))
            return replace(named, message="\n".join(explain(named)))
    return verdict


def _in_halves(request: Request) -> Request:
    """Return how to judge float32 by what would be allowed in float16."""
    usual = request.standard.numbers("float32")
    limits = {name: usual[name] * _WIDER for name in _OF_ROUNDINGS}
    limits |= {name: usual[name] * _WIDER / sqrt(request.accumulation or ALLOWANCES.terms) for name in _OF_SUMS}
    return replace(request, limits={**request.limits, **limits}, waiver=HALVES)
