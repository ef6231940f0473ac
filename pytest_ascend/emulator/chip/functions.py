"""Transcendental functions that are within 2 ulp, like a chip's, but differ from the CPU's.

A CPU result, which is within 1 ulp of the true value, moves by at most one ulp: one in eight up, one in eight down,
determined by its bits and the seed, so that equal operands always give equal results. bfloat16 is computed in float32
and rounded once, so that an ulp there is lost; float64 is computed by a chip's scalar cores, with the CPU's functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

T = torch.Tensor

_NAMES = """
    acos acosh asin asinh atan atanh atan2 cos cosh erf erfc erfinv exp exp2 expm1 log log10 log1p log2 logaddexp
    logaddexp2 rsqrt sigmoid sin sinc sinh tan tanh digamma lgamma mvlgamma polygamma logit polar angle xlogy
    special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_xlog1py i0
    celu elu gelu log_sigmoid_forward mish selu silu softplus
    elu_backward gelu_backward log_sigmoid_backward logit_backward mish_backward sigmoid_backward silu_backward
    softplus_backward tanh_backward
"""

#: Exponents that need no transcendental function: the operand itself, and its square.
_PRODUCTS = (1, 2)

#: Integer type of the same width; bits of the fraction, of the smallest normal and of the largest finite number.
_FORMATS = {
    torch.float32: (torch.int32, 0x007FFFFF, 0x00800000, 0x7F7FFFFF),
    torch.float16: (torch.int16, 0x03FF, 0x0400, 0x7BFF),
}


def nudge(result: Any, seed: int) -> Any:
    """Move the tensors of a result by at most one ulp, in place; zeros, powers of two, NaN and infinities stay."""
    for tensor in floating(result):
        real = torch.view_as_real(tensor) if tensor.is_complex() and not tensor.is_conj() else tensor
        if real.dtype in _FORMATS:
            integer, fraction, smallest, largest = _FORMATS[real.dtype]
            bits = real.view(integer)
            size = bits & (largest | (largest + 1))
            moves = (size > smallest) & (size < largest) & (size & fraction != 0)
            x = bits.int() ^ (seed * 0x9E3779B1 & 0x7FFFFFFF)  # pseudorandom, equal for equal bits
            x = (x ^ (x >> 15)) * 0x2C1B3C6D
            chance = (x ^ (x >> 12)) * 0x297A2D39 >> 17 & 7
            bits.add_((moves & (chance == 1)).to(integer)).sub_((moves & (chance == 2)).to(integer))
    return result


def _nudged(call: Call, seed: int) -> Any:
    made = call.make()
    nudge(call.targets() if made is None else made, seed)  # functions on lists that work in place return None
    return made


def _power(call: Call, seed: int) -> Any:
    """Keep first powers unchanged, and square by a product, as chips do; other powers are transcendental."""
    exponent = call.get("exponent")
    return call.make() if not isinstance(exponent, T) and exponent in _PRODUCTS else _nudged(call, seed)


def _contracted(call: Call, seed: int) -> Any:
    """Round a product plus a sum in float32 once, as a fused multiply-add does, if the seed is even."""
    if seed % 2 or not any(isinstance(x, T) and x.dtype is torch.float32 for x in tree_flatten(call.arguments)[0]):
        return call.make()
    double = lambda x: x.double() if isinstance(x, T) and x.dtype is torch.float32 else x  # noqa: E731
    wide = {name: tree_map(double, value) for name, value in call.arguments.items()}
    made = call.make(wide)
    if not call.written:
        return tree_map(lambda x: x.to(torch.float32) if x.dtype is torch.float64 else x, made)
    for name in call.written:
        for target, value in zip(tree_flatten(call.arguments[name])[0], tree_flatten(wide[name])[0], strict=True):
            target.copy_(value)
    return None if made is None else call.arguments[call.written[0]]


FUNCTIONS: Mapping[str, Callable[[Call, int], Any]] = {
    **dict.fromkeys(_NAMES.split(), _nudged),
    "pow": _power,
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), _contracted),
}


@functools.cache
def _parameters(func: torch._ops.OpOverload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all parameters, and of those that the function writes to."""
    parameters = func._schema.arguments  # noqa: SLF001  no public name exists
    written = (each.name for each in parameters if each.alias_info is not None and each.alias_info.is_write)
    return tuple(each.name for each in parameters), tuple(written)


class Call:
    """``func(*args, **kwargs)``, to be inspected, changed and called."""

    def __init__(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.func = func
        self.names, self.written = _parameters(func)
        self.positional = self.names[: len(args)]
        self.arguments = {**dict(zip(self.positional, args, strict=True)), **kwargs}

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, ``default`` if omitted."""
        return self.arguments.get(name, default)

    def make(self, changed: Mapping[str, Any] | None = None) -> Any:
        """Execute the call, with some of the given arguments replaced."""
        changed = changed or {}
        arguments = {name: changed.get(name, value) for name, value in self.arguments.items()}
        rest = {name: value for name, value in arguments.items() if name not in self.positional}
        return self.func(*(arguments[name] for name in self.positional), **rest)

    def targets(self) -> list[Any]:
        """Return the tensors to write: the outputs of ``out=``, or the operand of an in-place function."""
        return [self.arguments[name] for name in self.written]

    def give(self, made: T) -> T:
        """Return a result of one tensor to the caller: directly, or written to its target."""
        for target in self.targets():
            return target.copy_(made)  # type: ignore[no-any-return]
        return made


def floating(value: Any) -> Iterator[T]:
    """Yield the tensors of floating or complex dtype in a result."""
    for leaf in tree_flatten(value)[0]:
        if isinstance(leaf, T) and (leaf.is_floating_point() or leaf.is_complex()):
            yield leaf
