"""Settings that change numbers on a chip: products and convolutions, what each setting promises, and the cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.environment.chips import Mode
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs

from .every import ACCURACY, OF_CASTS, OF_INTEGERS

T = torch.Tensor


def ends(dtype: torch.dtype) -> T:
    """Return inputs of each of these computations: the largest numbers, numbers near them, and usual ones."""
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
    """Return a result as on a chip without infinities: the largest numbers, and zero in place of NaN."""
    largest = torch.finfo(dtype).max
    return x.nan_to_num(0.0, largest, -largest).clamp(-largest, largest)


#: Bits of HF32's fraction; public sources name both.
FRACTION_BITS = (10, 11)

#: The factor of the second input and divisor of the first: far outside float16, with the same products.
WIDE = 2.0**24


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A bilinear operator of two tensors of these shapes. ``mode`` allows HF32 in it."""

    name: str
    mode: str
    function: Callable[[T, T], T]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    def pairs(self) -> dict[str, tuple[T, T]]:
        """Return the inputs: usual ones, and ones that need all of float32's range."""
        first, second = (inputs.normal(f"numerics/{self.name}/{i}", shape) for i, shape in enumerate(self.shapes))
        return {"usual": (first, second), "of a wide range": (first / WIDE, second * WIDE)}


def gradient(function: Callable[[T, T], T], first: T, second: T) -> T:
    """Return the gradient of the second input, with a fixed gradient of the result."""
    leaf = second.detach().requires_grad_()
    result = function(first, leaf)
    grad_output = inputs.normal("numerics/above", result.shape).to(result.device, result.dtype)
    return torch.autograd.grad(result, leaf, grad_output)[0]


def hf32(x: T, fraction_bits: int) -> T:
    """Round float32 to ``fraction_bits`` bits of fraction, to nearest."""
    cut = 23 - fraction_bits
    return ((x.contiguous().view(torch.int32) + (1 << (cut - 1))) & -(1 << cut)).view(torch.float32)


def half(x: T) -> T:
    """Round float32 to half precision."""
    return x.half().float()


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
#: Modes in which repeated calls give the same bits.
DETERMINISTIC = ("deterministic-1", "deterministic-2")
#: Modes tested at level full only.
_FULL = ("deterministic-2", "jit-compile")

#: The overflow case, in each dtype: infinities, or the largest numbers if the chip is in its old mode.
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

CASES: tuple[Case, ...] = (*OF_PRODUCTS, *OVERFLOWING, *ACCURACY, *OF_CASTS, *OF_INTEGERS)
