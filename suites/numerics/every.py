"""Functions with every input of a format: all 65,536 numbers of 16 bits, casts between formats, all pairs of 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from pytest_ascend.operators.accuracy import DTYPES, FUNCTIONS, FURTHER, every_short, part_of_float32
from pytest_ascend.records.case import Case

T = torch.Tensor
#: Functions that are not judged here: CANN computes the tanh form of GELU, torch_npu leaves the next three to the CPU,
#: and composes the last two of operators that round to 16 bits in between.
_OTHERWISE = ("nn.functional.gelu", "digamma", "lgamma", "special.i0", "special.ndtr", "nn.functional.tanhshrink")

#: Functions whose gradients are judged at standard; those of others at full.
_GRADIENTS = frozenset(["erf", "exp", "tanh", "sigmoid", "log1p", "rsqrt", "sin", "nn.functional.silu", *FURTHER])
#: Functions whose gradients are zero wherever they have one; and sinc, whose formula loses all digits near zero.
_WITHOUT_GRADIENTS = frozenset("ceil floor round sign trunc sinc".split())  # noqa: SIM905


def _cases(prop: str, dtypes: tuple[str, ...], left_out: frozenset[str] = frozenset()) -> Iterator[Case]:
    for name in (*FUNCTIONS, *FURTHER):
        is_full = (prop == "gradient" and name not in _GRADIENTS) or dtypes == ("float32",)
        for dtype in dtypes if name not in (*_OTHERWISE, *left_out) else ():
            level = "full" if is_full else "standard"
            yield Case(suite="numerics", subject=name, property=prop, dtype=dtype, family="accuracy", level=level)


ACCURACY: tuple[Case, ...] = (
    *_cases("accuracy", DTYPES),
    *_cases("accuracy", ("float32",)),
    *_cases("gradient", DTYPES, _WITHOUT_GRADIENTS),
)


def inputs_of(dtype: str, *, is_sampled: bool) -> Iterator[T]:
    """Return every number of a dtype; of float32 one in 256 if ``is_sampled``, which is 2^24."""
    if dtype != "float32":
        yield every_short(getattr(torch, dtype))
        return
    for part in range(1 if is_sampled else 256):
        numbers = part_of_float32(part)
        yield from numbers.tensor_split(256 if is_sampled else 4)  # on few threads what fits their caches is quick


def _numbers(dtype: torch.dtype) -> T:
    """Return every number of a 16-bit format but NaN, whose bits no cast promises."""
    found = every_short(dtype)
    return found[~found.isnan()]


def around(dtype: torch.dtype) -> T:
    """Return float32 numbers that decide roundings: every number of a short format, its ties, and their neighbours."""
    numbers = _numbers(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values
    ties = (numbers[1:] + numbers[:-1]) / 2
    infinite = torch.full_like(ties, torch.inf)
    return torch.cat([numbers, ties, torch.nextafter(ties, infinite), torch.nextafter(ties, -infinite)])


def _whole(dtype: torch.dtype) -> T:
    return torch.arange(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1).to(dtype)


def _fractions(of: torch.dtype, to: torch.dtype) -> T:
    """Return numbers with fractions, whose whole part an integer of 8 or 16 bits holds; PyTorch leaves others open."""
    ends, numbers = torch.iinfo(to), _numbers(of)
    return numbers[(numbers > ends.min - 1) & (numbers < ends.max + 1) & (numbers > -1 if ends.min == 0 else True)]


SHORT, WHOLE = (torch.float16, torch.bfloat16), (torch.int8, torch.uint8, torch.int16)
#: Inputs and the dtype that they are cast to.
CASTS: Mapping[str, tuple[Callable[[], T], torch.dtype]] = {
    f"{str(of).removeprefix('torch.')}-to-{str(to).removeprefix('torch.')}": (make, to)
    for of, to, make in (
        *((torch.float32, each, lambda each=each: around(each)) for each in SHORT),
        *((each, torch.float32, lambda each=each: _numbers(each)) for each in SHORT),
        (torch.float16, torch.bfloat16, lambda: _numbers(torch.float16)),
        (torch.bfloat16, torch.float16, lambda: _numbers(torch.bfloat16)),
        *((a, b, lambda a=a, b=b: _fractions(a, b)) for a in SHORT for b in WHOLE),
        *((b, a, lambda b=b: _whole(b)) for a in SHORT for b in WHOLE),
    )
}
OF_CASTS: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=name, property="cast", dtype=name.partition("-")[0], family="cast", level="standard")
    for name in CASTS
)

#: Functions of two integers of 8 bits; every pair is an input.
PAIRED: Mapping[str, Callable[[T, T], T]] = {
    name: getattr(torch, name)
    for name in ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "bitwise_and", "bitwise_or", "bitwise_xor")
}
#: Functions of one integer, in the dtypes of 8 and 16 bits that CANN takes.
OF_ONE: Mapping[str, tuple[str, ...]] = {
    "abs": ("int8", "uint8", "int16"),
    "bitwise_not": ("int8", "uint8", "int16"),
    "neg": ("int8",),
    "relu": ("int8", "uint8"),
}
OF_INTEGERS: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=name, property=prop, dtype=dtype, family=prop, level="standard")
    for prop, table in (("pairs", dict.fromkeys(PAIRED, ("int8", "uint8"))), ("integers", OF_ONE))
    for name, dtypes in table.items()
    for dtype in dtypes
)


def integers(case: Case) -> tuple[Callable[..., T], tuple[T, ...]]:
    """Return a case's function and its inputs: every integer of its dtype, or every pair as two tensors (65536,)."""
    every = _whole(getattr(torch, case.dtype))
    if case.property == "integers":
        return getattr(torch, case.subject), (every,)
    return PAIRED[case.subject], (every.repeat_interleave(256), every.repeat(256))
