"""Known deviations of chips from what PyTorch promises, as documented by their makers.

If the chip in use has one that explains a wrong result, the judge says so; the verdict stays the same.
``baselines/expectations.json`` lists the chips for which each deviation is documented.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import sqrt
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_ascend.precision.chip import documented_deviations, hf32_settings
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.precision.request import Request, explain
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES, Verdict, told

#: Judges a result. Arguments: path, actual, expected, reference_runs, how.
Judge: TypeAlias = Callable[[str, Tensor, Tensor, Sequence[Tensor], Request], Verdict]

#: The ratio of a float16 rounding to a float32 rounding.
_WIDER = 2.0**13
#: Limits of the error model that are multiples of a rounding, or of a reference run's error.
_OF_ROUNDINGS = (
    *("element_ulps", "rms_ulps", "bias_ulps", "approximation_ulps", "sampled_ulps"),
    *("largest", "sampled_largest", "block", "rms"),
)
#: Limits for sums: the factors are rounded once, however many are added up in float32.
_OF_SUMS = ("sums", "sums_rms")


def _finite(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where a number stands for NaN, or for an infinity of its sign."""
    infinite = expected.isinf() | (expected.abs() > torch.finfo(actual.dtype).max)
    return actual.isfinite() & (expected.isnan() | (infinite & (actual.signbit() == expected.signbit())))


def _flushed(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where zero stands for a subnormal number."""
    return (actual == 0) & (expected != 0) & (expected.abs() < torch.finfo(actual.dtype).tiny)


#: Deviation -> the elements (of actual and expected) in which it may show.
PLACES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {SATURATES: _finite, FLUSHES: _flushed}


#: The dtypes that are examined, and up to how many elements: examining needs tensors of the same size.
LOOKED_AT, ELEMENTS = (torch.float16, torch.bfloat16, torch.float32), 1 << 24


def explained(verdict: Verdict, tensors: Sequence[Tensor], request: Request, judge: Judge) -> Verdict:
    """Return a disagreeing verdict; its pattern names the fewest deviations that explain all of it, if any do.

    ``tensors`` are the actual result, the expected one and the reference runs, of one shape. Where the chip may use
    HF32 and that explains it, the pattern names the setting.
    """
    actual, documented, hf32 = tensors[0], documented_deviations(), hf32_settings()
    if actual.dtype not in LOOKED_AT or actual.numel() > ELEMENTS or not (documented or hf32):
        return verdict
    actual, expected, *reference_runs = (each.detach().cpu() for each in tensors)
    shown = {name: PLACES[name](actual, expected) for name in PLACES if name in documented}
    names = [name for name, found in shown.items() if found.any()]
    if actual.dtype is torch.float32 and request.standard.rule == "model" and (hf32 or HALVES in documented):
        names.append(HALVES)
    for chosen in (each for count in range(1, len(names) + 1) for each in combinations(names, count)):
        rest = torch.ones_like(actual, dtype=torch.bool)
        for name in chosen:
            rest &= ~shown[name] if name in shown else rest
        ours, theirs, *beside = (each[rest] for each in (actual, expected, *reference_runs))
        how = _in_halves(request) if HALVES in chosen else request
        if not ours.numel() or judge(verdict.path, ours, theirs, beside, how).agrees:
            text = _of_hf32(hf32) if HALVES in set(chosen) - documented else told(chosen)
            named = replace(verdict, pattern="; ".join(filter(None, [verdict.pattern, text])))
            return replace(named, message="\n".join(explain(named)))
    return verdict


def _of_hf32(settings: Sequence[str]) -> str:
    return f"as of products in HF32: {' and '.join(settings)} is on (torch_npu's default for convolutions); set False"


def _in_halves(request: Request) -> Request:
    """Return a request that judges float32 by float16's limits."""
    usual = request.standard.numbers("float32")
    limits = {name: usual[name] * _WIDER for name in _OF_ROUNDINGS}
    limits |= {name: usual[name] * _WIDER / sqrt(request.accumulation or ALLOWANCES.terms) for name in _OF_SUMS}
    return replace(request, limits={**request.limits, **limits}, waiver=HALVES)
