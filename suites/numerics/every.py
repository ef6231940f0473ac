"""Functions with every input of a format: all 65,536 numbers of 16 bits, casts between formats, all pairs of 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from pytest_ascend.operators.accuracy import DTYPES, FUNCTIONS
from pytest_ascend.records.case import Case

T = torch.Tensor
#: Functions that are not judged here: CANN computes the tanh form of GELU, torch_npu leaves the next three to the CPU,
#: and composes the last two of operators that round to 16 bits in between.
_OTHERWISE = ("nn.functional.gelu", "digamma", "lgamma", "special.i0", "special.ndtr", "nn.functional.tanhshrink")

ACCURACY: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=name, property="accuracy", dtype=dtype, family="accuracy", level="standard")
    for name in FUNCTIONS
    if name not in _OTHERWISE
    for dtype in DTYPES
)


def every_short(dtype: torch.dtype) -> T:
    """Return every number of a 16-bit format but NaN, whose bits no cast promises."""
    found = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    return found[~found.isnan()]


def around(dtype: torch.dtype) -> T:
    """Return float32 numbers that decide roundings: every number of a short format, its ties, and their neighbours."""
    numbers = every_short(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values
    ties = (numbers[1:] + numbers[:-1]) / 2
    infinite = torch.full_like(ties, torch.inf)
    return torch.cat([numbers, ties, torch.nextafter(ties, infinite), torch.nextafter(ties, -infinite)])


def _whole(dtype: torch.dtype) -> T:
    return torch.arange(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1).to(dtype)


def _fractions(of: torch.dtype, to: torch.dtype) -> T:
    """Return numbers with fractions, whose whole part an 8-bit format holds; PyTorch leaves others open."""
    ends, numbers = torch.iinfo(to), every_short(of)
    return numbers[(numbers > ends.min - 1) & (numbers < ends.max + 1) & (numbers > -1 if ends.min == 0 else True)]


SHORT, BYTES = (torch.float16, torch.bfloat16), (torch.int8, torch.uint8)
#: Inputs and the dtype that they are cast to.
CASTS: Mapping[str, tuple[Callable[[], T], torch.dtype]] = {
    f"{str(of).removeprefix('torch.')}-to-{str(to).removeprefix('torch.')}": (make, to)
    for of, to, make in (
        *((torch.float32, each, lambda each=each: around(each)) for each in SHORT),
        *((each, torch.float32, lambda each=each: every_short(each)) for each in SHORT),
        (torch.float16, torch.bfloat16, lambda: every_short(torch.float16)),
        (torch.bfloat16, torch.float16, lambda: every_short(torch.bfloat16)),
        *((a, b, lambda a=a, b=b: _fractions(a, b)) for a in SHORT for b in BYTES),
        *((b, a, lambda b=b: _whole(b)) for a in SHORT for b in BYTES),
    )
}
OF_CASTS: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=name, property="cast", dtype=name.partition("-")[0], family="cast", level="standard")
    for name in CASTS
)

#: Functions of two integers; of 8 bits every pair is an input.
PAIRED: Mapping[str, Callable[[T, T], T]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}
OF_PAIRS: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=name, property="pairs", dtype=dtype, family="pairs", level="standard")
    for name in PAIRED
    for dtype in ("int8", "uint8")
)


def pairs(dtype: torch.dtype) -> tuple[T, T]:
    """Return every pair of 8-bit integers, as two tensors of 65,536 elements."""
    whole = _whole(dtype)
    return whole.repeat_interleave(256), whole.repeat(256)
