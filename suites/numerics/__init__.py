"""Settings that change numbers on a chip, with what each guarantees for products; and all inputs of a format.

These are all 65,536 numbers of 16 bits, casts between formats, and all pairs of 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.environment.chips import Mode
from pytest_ascend.operators.accuracy import DTYPES, FUNCTIONS, FURTHER, every_short, part_of_float32
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs

T = torch.Tensor


def ends(dtype: torch.dtype) -> T:
    """Return the inputs of these computations: the largest numbers, numbers near them, and ordinary ones."""
    largest = torch.finfo(dtype).max
    return torch.tensor([largest, -largest, 0.75 * largest, -0.75 * largest, 0.0, -1.0, 2.0, -3.0]).to(dtype)


#: Functions of one tensor, on any device.
OVERFLOWS: Mapping[str, Callable[[T], T]] = {
    "product": lambda x: x * 2,
    "sum": lambda x: x + x,
    "difference": lambda x: -x - x,
    "quotient": lambda x: x / 0.25,
    "exponential": lambda x: torch.exp(x.clamp(-120, 120)),
    "root": torch.sqrt,
    "logarithm": lambda x: torch.log(x.clamp(max=1)),
}


def saturated(x: T, dtype: torch.dtype) -> T:
    """Return a result as on a chip without infinities: the largest numbers instead, and zero in place of NaN."""
    largest = torch.finfo(dtype).max
    return x.nan_to_num(0.0, largest, -largest).clamp(-largest, largest)


#: Factor of the second input and divisor of the first: far outside float16's range, with the same products.
WIDE = 2.0**24


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A bilinear operator on two tensors of these shapes. ``mode`` allows HF32 in it."""

    name: str
    mode: str
    function: Callable[[T, T], T]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    def pairs(self) -> dict[str, tuple[T, T]]:
        first, second = (inputs.normal(f"numerics/{self.name}/{i}", shape) for i, shape in enumerate(self.shapes))
        return {"usual": (first, second), "of a wide range": (first / WIDE, second * WIDE)}


def gradient(function: Callable[[T, T], T], first: T, second: T) -> T:
    leaf = second.detach().requires_grad_()
    result = function(first, leaf)
    grad_output = inputs.normal("numerics/above", result.shape).to(result.device, result.dtype)
    return torch.autograd.grad(result, leaf, grad_output)[0]


def hf32(x: T, fraction_bits: int) -> T:
    """Round float32 to ``fraction_bits`` bits of fraction, to nearest."""
    cut = 23 - fraction_bits
    return ((x.contiguous().view(torch.int32) + (1 << (cut - 1))) & -(1 << cut)).view(torch.float32)


def half(x: T) -> T:
    return x.half().float()


#: Both numbers of fraction bits that public sources name.
_HF32 = partial(hf32, fraction_bits=10), partial(hf32, fraction_bits=11)
#: Mode -> how it may round inputs; in other modes they stay float32.
ROUNDS = {"conv-hf32": _HF32, "matmul-hf32": _HF32, "half-allowed": (half, *_HF32)}

_conv2d = partial(F.conv2d, padding=1)
_IMAGES, _KERNELS = (2, 16, 12, 13), (24, 16, 3, 3)

PRODUCTS: tuple[Product, ...] = (
    Product("conv1d", "conv-hf32", F.conv1d, ((3, 16, 65), (24, 16, 5))),
    Product("conv2d", "conv-hf32", _conv2d, (_IMAGES, _KERNELS)),
    Product("conv2d.weight-gradient", "conv-hf32", partial(gradient, _conv2d), (_IMAGES, _KERNELS)),
    Product("conv_transpose2d", "conv-hf32", F.conv_transpose2d, (_IMAGES, (16, 24, 3, 3))),
    Product("mm", "matmul-hf32", torch.mm, ((65, 257), (257, 33))),
    Product("bmm", "matmul-hf32", torch.bmm, ((5, 33, 129), (5, 129, 17))),
    Product("linear", "matmul-hf32", F.linear, ((65, 257), (33, 257))),
    Product("linear.weight-gradient", "matmul-hf32", partial(gradient, F.linear), ((65, 257), (33, 257))),
)


#: Mode -> its settings; all other suites run with everything off. On by default are HF32 in convolutions, internal
#: formats with older torch_npu, and on old chips half precision and just-in-time compilation.
MODES: Mapping[str, Mapping[str, Mode]] = {
    "conv-hf32": {"conv.allow_hf32": True},
    "matmul-hf32": {"matmul.allow_hf32": True},
    "internal-format": {"allow_internal_format": True},
    "half-allowed": {"ACL_PRECISION_MODE": "allow_fp32_to_fp16"},
    "deterministic-1": {"deterministic_level": 1},
    "deterministic-2": {"deterministic_level": 2},
    "jit-compile": {"jit_compile": True},
}
#: Modes in which repeated calls must give the same bits.
DETERMINISTIC = ("deterministic-1", "deterministic-2")
#: Modes tested at level full only.
_FULL = ("deterministic-2", "jit-compile")

#: The overflow case in each dtype: it expects infinities, or the largest numbers in a chip's saturation mode.
OVERFLOWING = tuple(
    Case(suite="numerics", subject="overflow", property="inf-nan", dtype=dtype, family="inf-nan", level="standard")
    for dtype in ("float32", "float16", "bfloat16")
)


#: torch_npu keeps just-in-time compilation on in the backward thread, where it cannot be turned off.
OF_PRODUCTS: tuple[Case, ...] = tuple(
    Case(suite="numerics", subject=of.name, property=mode, dtype="float32", family=of.mode, level=level)
    for of in PRODUCTS
    for mode, level in {mode: "full" if mode in _FULL else "standard" for mode in MODES}.items()
    if (not mode.endswith("hf32") or mode == of.mode) and not (mode == "jit-compile" and of.name.endswith("gradient"))
)


# --- every input of a format ---

#: Functions not judged here: CANN computes the tanh form of GELU, torch_npu leaves the next three to the CPU
#: and composes the last two from operators that round to 16 bits in between.
_OTHERWISE = ("nn.functional.gelu", "digamma", "lgamma", "special.i0", "special.ndtr", "nn.functional.tanhshrink")

#: Functions whose gradients are judged at level standard; those of others at full.
_GRADIENTS = frozenset(["erf", "exp", "tanh", "sigmoid", "log1p", "rsqrt", "sin", "nn.functional.silu", *FURTHER])
#: Functions whose gradients are zero wherever defined; and sinc, whose formula loses all digits near zero.
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
    """Yield every number of a dtype; of float32 one in 256 if ``is_sampled``, which is 2^24."""
    if dtype != "float32":
        yield every_short(getattr(torch, dtype))
        return
    for part in range(1 if is_sampled else 256):
        numbers = part_of_float32(part)
        yield from numbers.tensor_split(256 if is_sampled else 4)  # with few threads, parts that fit caches are fast


def _numbers(dtype: torch.dtype) -> T:
    found = every_short(dtype)
    return found[~found.isnan()]


def around(dtype: torch.dtype) -> T:
    """Return float32 numbers that test rounding: every number of a 16-bit format, all ties, and their neighbours."""
    numbers = _numbers(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values
    ties = (numbers[1:] + numbers[:-1]) / 2
    infinite = torch.full_like(ties, torch.inf)
    return torch.cat([numbers, ties, torch.nextafter(ties, infinite), torch.nextafter(ties, -infinite)])


def _whole(dtype: torch.dtype) -> T:
    return torch.arange(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1).to(dtype)


def _fractions(of: torch.dtype, to: torch.dtype) -> T:
    """Return numbers with fractions that fit an integer of 8 or 16 bits; PyTorch leaves other casts undefined."""
    ends, numbers = torch.iinfo(to), _numbers(of)
    return numbers[(numbers > ends.min - 1) & (numbers < ends.max + 1) & (numbers > -1 if ends.min == 0 else True)]


SHORT, WHOLE = (torch.float16, torch.bfloat16), (torch.int8, torch.uint8, torch.int16)
#: Inputs and the dtype to which they are cast.
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

#: Functions of two 8-bit integers; every pair is an input.
PAIRED: Mapping[str, Callable[[T, T], T]] = {
    name: getattr(torch, name)
    for name in ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "bitwise_and", "bitwise_or", "bitwise_xor")
}
#: Functions of one integer, with the 8- and 16-bit dtypes that CANN supports.
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


CASES: tuple[Case, ...] = (*OF_PRODUCTS, *OVERFLOWING, *ACCURACY, *OF_CASTS, *OF_INTEGERS)
