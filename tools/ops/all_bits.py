"""Samples whose numbers use all bits of a dtype, so that a device that truncates its inputs is detected."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch

from pytest_ascend.operators.calling import forward, on_tensors
from pytest_ascend.operators.reference import SUM_LAYOUTS
from pytest_ascend.operators.samples import Sample
from pytest_ascend.precision.nested import widened

from .choosing import LARGEST, in_turn
from .computing import Subject, Tally, gradients_of, quiet
from .samples import Change, drawn, is_usable, named

#: Dtypes with such samples: how many, the number of bits left after truncation (those of TF32, bfloat16 and
#: float32), and the least resulting change of a result, relative to the largest.
ALL_BITS = {
    "float32": (4, 11, 2.0**-16),
    "float16": (1, 8, 2.0**-10),
    "float64": (1, 24, 2.0**-32),
    "complex64": (1, 11, 2.0**-16),
}
#: Number of calls that are tried, those with gradients first.
_TRIED = 8
_LARGEST = 4 * LARGEST
_BITS_OF_FLOAT64 = 53


def in_all_bits(subject: Subject, dtype: str, taken: Counter[str]) -> Iterator[Sample]:
    """Yield candidate samples, the best first; none for an operator whose results do not change."""
    telling = _telling(subject, dtype, torch.clone)
    if not telling:  # then scaled to use all bits instead of integers; order and equality stay
        telling = _telling(subject, dtype, lambda tensor: tensor * (1 + 3.0**-5))
    tried = itertools.islice(in_turn(telling), _TRIED)
    for sample in sorted(tried, key=lambda each: _lacks_gradient(subject, each, dtype)):
        yield named(replace(sample, all_bits=True), taken, f", all bits of {dtype}")


def _telling(subject: Subject, dtype: str, change: Change) -> list[Sample]:
    """Return the calls that can be recorded and whose results change when their inputs are truncated."""
    drawn_in, operator, (_, bits, least) = getattr(torch, dtype), subject.operator, ALL_BITS[dtype]
    known = (info for info in subject.infos if drawn_in in info.supported_dtypes("cpu"))
    found = []
    for sample in (each for info in known for each in drawn(operator, info, drawn_in, change)):
        if is_usable(operator, drawn_in, sample, _LARGEST):
            given = sample.arguments(operator.name, drawn_in)
            with contextlib.suppress(Exception), quiet():  # a call that raises anything cannot be used
                usual = forward(operator, operator.function, *on_tensors(widened, given))
                other = forward(operator, operator.function, *on_tensors(lambda each: cut(each, bits), given))
                if any(_differ(*pair, least) for pair in zip(usual, other, strict=True)):
                    found.append(sample)
    return found


def _lacks_gradient(subject: Subject, sample: Sample, dtype: str) -> bool:
    """Return whether a gradient is required but cannot be recorded."""
    if not subject.differentiates(sample, dtype):
        return False
    with quiet():
        return gradients_of(subject, sample, dtype, Tally(), SUM_LAYOUTS[:1]) is None


def cut(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a tensor in float64 or complex128 rounded to ``bits`` bits; tensors of other kinds are unchanged."""
    if tensor.is_complex():
        return torch.view_as_complex(cut(torch.view_as_real(tensor.resolve_conj()), bits).contiguous())
    if not tensor.is_floating_point():
        return tensor
    wide = widened(tensor)
    high = wide * (2.0 ** (_BITS_OF_FLOAT64 - bits) + 1)  # T. J. Dekker's splitting of a number, 1971
    return torch.where(wide.isfinite(), high - (high - wide), wide)


def _differ(one: torch.Tensor, other: torch.Tensor, least: float) -> bool:
    if one.shape != other.shape or not (one.is_floating_point() or one.is_complex()):
        return not torch.equal(one, other)
    known = one.isfinite() & other.isfinite()
    difference, size = (one - other)[known].abs(), one[known].abs()
    return bool(known.any()) and bool(difference.max() > least * size.max())
