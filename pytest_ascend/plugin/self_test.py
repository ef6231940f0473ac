"""Planted errors that the judge of this run must detect, and correct results that it must accept.

A loosened, broken or replaced judge is noticed before the first case; the log of every run records the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch

from pytest_ascend import precision
from pytest_ascend.operators.samples import with_one
from pytest_ascend.runlog.contents import SelfTest

#: Name -> dtype of the result, and the function that plants the error.
PLANTED: Mapping[str, tuple[torch.dtype, Callable[[torch.Tensor], torch.Tensor]]] = {
    "one element of 1,000 is wrong": (torch.float32, partial(with_one, place=617, number=12.5)),
    "the last element is left over": (torch.float32, partial(with_one, place=-1, number=0.0)),
    "all is zero": (torch.float32, torch.zeros_like),
    "twice what it should be": (torch.float32, lambda x: 2 * x),
    "three per cent off": (torch.float16, lambda x: x * 1.03),
    "rows are exchanged": (torch.float32, lambda x: x.flip(0)),
    "the sign is lost": (torch.bfloat16, torch.abs),
    "a NaN where there was none": (torch.float32, partial(with_one, place=3)),
    "a NaN is dropped": (torch.float32, lambda x: x.nan_to_num(0.0)),
    "an infinity has the other sign": (torch.float32, lambda x: torch.where(x.isinf(), -x, x)),
    "an infinity is saturated": (torch.float16, lambda x: x.nan_to_num(nan=float("nan"), posinf=65504.0)),
    "another dtype": (torch.float32, lambda x: x.half()),
    "another shape": (torch.float32, lambda x: x.reshape(-1)),
    "one integer is off by one": (torch.int64, lambda x: with_one(x, 5, float(x.view(-1)[5]) + 1)),
    "one truth is false": (torch.bool, lambda x: with_one(x, 7, not bool(x.view(-1)[7]))),
}
#: Value that one of the correct numbers gets, by the name of an error.
_AMONG = {
    "a NaN is dropped": math.nan,
    "an infinity has the other sign": math.inf,
    "an infinity is saturated": math.inf,
}
#: Dtypes of the correct results, one each.
CORRECT = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)


def score(standard: str) -> SelfTest:
    """Run the judge on every planted error and every correct result; ``standard`` is "" for the default rule.

    Return the event of the run log: how many errors were ``planted`` and ``detected``, how many results are
    ``correct``, and which were judged wrongly (``missed``).
    """
    unseen = [name for name, (dtype, change) in PLANTED.items() if _agrees(dtype, name, change, standard)]
    accused = [str(dtype) for dtype in CORRECT if not _agrees(dtype, "", torch.clone, standard)]
    return SelfTest(
        planted=len(PLANTED),
        detected=len(PLANTED) - len(unseen),
        correct=len(CORRECT),
        missed=(*unseen, *(f"a correct result of {dtype} was rejected" for dtype in accused)),
    )


def _agrees(dtype: torch.dtype, name: str, change: Callable[[torch.Tensor], torch.Tensor], standard: str) -> bool:
    expected = _expected(dtype, name)
    run = expected.to(dtype)  # some standards compare with a second device, which is correct here
    return precision.compare(change(run), expected, reference_runs=run, standard=standard or None, dtype=dtype).agrees


def _expected(dtype: torch.dtype, name: str) -> torch.Tensor:
    """Return 1,000 numbers of both signs, in float64 for a floating dtype."""
    numbers = torch.linspace(-4.0, 4.5, 1000, dtype=torch.float64).reshape(20, 50)
    if dtype is torch.bool:
        return numbers > 0
    if not dtype.is_floating_point:
        return (numbers * 100).to(dtype)
    return with_one(numbers, 41, _AMONG[name]) if name in _AMONG else numbers
