"""Watches every kernel while it computes in half precision, and computes the same from the same inputs in float64.

A chip widens its operands to float32, and rounds once, when it writes: so does a kernel that is right here. A result in
half precision is then off by half a unit in its last place, and by what float32 is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pytest_ascend.emulator.registry import Kernel
from pytest_ascend.emulator.signature import Parameter
from pytest_ascend.system.dispatching import HALF

T = torch.Tensor

#: What float32 is off by inside, of the largest number in a result, where one rounding to float16 is 5e-4; and of the
#: largest number in a call, where terms cancel.
NOISE, CANCELLED = 2e-5, 1e-6


@dataclass
class Watch:
    """What was seen: the kernels that computed in half precision, and how far each was off, in what it may be."""

    excess: dict[str, float] = field(default_factory=dict)

    def over(self, kernel: Kernel) -> Kernel:
        """Return the kernel with this watching it."""
        return replace(kernel, body=lambda *given, **out: self._run(kernel, given, out))

    def _run(self, kernel: Kernel, given: Sequence[Any], out: dict[str, Any]) -> Any:
        if not {each.dtype for each in tensors(given)} & set(HALF):
            return kernel.body(*given, **out)
        changed = [i for i, each in enumerate(_inputs(kernel)) if each == "inout"]
        wide, wide_out = _wide(list(given)), _wide(out)
        try:
            expected = [*tensors(kernel.body(*wide, **wide_out)), *tensors([wide[i] for i in changed])]
        except (RuntimeError, TypeError, NotImplementedError):  # no such call in float64, or none at all
            return kernel.body(*given, **out)
        result = kernel.body(*given, **out)
        actual = [*tensors(result), *tensors([given[i] for i in changed])]
        if out:
            actual, expected = tensors(out), tensors(wide_out)
        noise = CANCELLED * max((float(each.abs().max()) for each in tensors(wide) if _is_finite(each)), default=0.0)
        worst = max((excess(*pair, noise) for pair in zip(actual, expected, strict=True)), default=0.0)
        self.excess[kernel.name] = max(worst, self.excess.get(kernel.name, 0.0))
        return result


def _inputs(kernel: Kernel) -> list[str]:
    return [each.role for each in kernel.signature.parameters if each.is_input]


def tensors(value: Any) -> list[T]:
    """Return the tensors in a structure, in order."""
    if isinstance(value, T):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [leaf for each in inner for leaf in tensors(each)]


def _wide(value: Any) -> Any:
    """Return a structure with copies of its tensors, those of floating point in float64."""
    if isinstance(value, dict):
        return {name: _wide(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_wide(each) for each in value)
    if isinstance(value, T):
        return value.double() if value.is_floating_point() else value.clone()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _is_finite(x: T) -> bool:
    return x.is_floating_point() and x.numel() > 0 and bool(x.isfinite().all())


def excess(actual: T, expected: T, noise: float = 0.0) -> float:
    """Return the largest error of a result, over what is allowed: a rounding, what float32 is off by, and ``noise``."""
    if actual.dtype not in (*HALF, torch.float32) or not actual.numel():
        return 0.0
    limits = torch.finfo(actual.dtype)
    actual, expected = actual.double(), expected.double()
    counts = expected.isfinite() & (expected.abs() <= limits.max)
    if not counts.any():
        return 0.0
    actual, expected = actual[counts], expected[counts]
    spacing = limits.eps * torch.frexp(expected).exponent.sub(1).double().exp2()
    allowed = spacing.clamp_min(limits.smallest_normal * limits.eps) / 2 + NOISE * expected.abs().max() + noise
    ratio = (actual - expected).abs() / allowed
    return float(ratio.nan_to_num(torch.inf, torch.inf).where(actual != expected, 0.0).max())


#: What is drawn for a type of a declaration that holds no tensors; None for the others.
_NUMBERS: dict[str, Any] = {
    "Scalar": 0.5,
    "bool": False,
    "float": 0.5,
    "double": 0.5,
    **dict.fromkeys(("int8", "uint8", "int32", "uint32", "int64", "uint64"), 1),
    "ScalarList": [0.5, 0.25],
    "IntArray": [0],
    "BoolArray": [True, True, True],
    "dtype": torch.float32,
}
#: Shapes of all tensors of a call; of one element and of two, as scalars and lists of them are given, too.
_SHAPES = ((5, 7), (7,), (2, 3, 5, 7), (2, 4, 6), (6, 6), (1,), (2,))


def drawn(kernel: Kernel, dtype: torch.dtype, generator: torch.Generator) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield arguments that its declaration alone gives, of a shape after the other; not every kernel takes them."""
    for shape in _SHAPES:

        def made(each: Parameter, shape: tuple[int, ...] = shape) -> Any:
            tensors = [torch.rand(shape, generator=generator).mul_(0.75).add_(0.125).to(dtype) for _ in range(2)]
            return {"Tensor": tensors[0], "TensorList": tensors}.get(each.type, _NUMBERS.get(each.type))

        given = [made(each) for each in kernel.signature.parameters if each.is_input]
        out = [made(each) for each in kernel.signature.parameters if not each.is_input]
        yield given, {"out": out[0] if len(out) == 1 else tuple(out)} if kernel.into else {}
