"""The same function on the emulated device and on the CPU, compared bit by bit.

from .both import assert_same

assert_same(torch.add, floats(3, 4), floats(3, 4))
assert_same(torch.sigmoid, floats(3, 4), backward=True)
assert_same(lambda x: x.relu_(), floats(3, 4), strided=True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from pytest_ascend import emulator
from pytest_ascend.environment import chips
from pytest_ascend.precision.kernel_fallbacks import cann_formulas
from pytest_ascend.system.dispatching import HALF, slow_dtypes

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan"))

#: Operators that prepare, and move what is there already: of a function that computes, others have to be called.
_MOVES = {"aclnnInplaceCopy", "aclnnInplaceZero"}

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def floats(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers, in float32 first, so that all dtypes get the same ones."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(
    *shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64, seed: int = 0
) -> torch.Tensor:
    """Integers from ``low`` to below ``high``; for an unsigned dtype their absolute values."""
    drawn = torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))
    return (drawn if dtype.is_signed else drawn.abs()).to(dtype)


def assert_same(
    function: Callable[..., Any],
    *inputs: Any,
    backward: bool = False,
    strided: bool = False,
    by: str = "device",
    **options: Any,
) -> None:
    """Assert that results, inputs afterwards and, on demand, gradients are the same on both devices.

    In half precision they may differ where the device is about as near to what float32 gives as the CPU is: torch's CPU
    rounds inside of some kernels, and the device of none.

    ``strided``: tensors are given as every second element of a larger one. NaNs agree whatever their payload. ``by``
    says who computes: "device", a kernel of which has to run; "cpu" where torch_npu leaves it to
    that; "any" where nothing is computed, in views and copies.

    Where CANN does not take a dtype, the device must refuse it with CANN's code instead, and for the dtype that the
    chip's data lack. The CPU computes by CANN's formulas.
    """
    with cann_formulas():
        expected = _outcome("cpu", function, inputs, options, backward=backward, strided=strided)
    try:
        actual = _on_the_device(function, inputs, options, by, backward=backward, strided=strided)
    except RuntimeError as error:
        assert_refused(error)
        return
    assert len(actual) == len(expected), f"{len(actual)} results, expected {len(expected)}"
    narrow = {each.dtype for each in _flat(inputs) if isinstance(each, torch.Tensor)} & set(HALF)
    exact: list[Any] = []
    for position, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
        if len(narrow) == 1 and _differ(mine, reference):
            exact = exact or _in_float32(function, inputs, options, *narrow, backward=backward, strided=strided)
            assert_as_near(mine, reference, exact[position], f"value {position}")
        else:
            assert_identical(mine, reference, f"value {position}")


#: What the emulated device says of a dtype that an operator of CANN does not take: operator, parameter, dtype.
_REFUSAL = re.compile(
    r"error code is 161002.*emulated CANN: (aclnn\w+): EZ1001: Tensor (\w+) not implemented for DT_(\w+),", re.DOTALL
)


def assert_refused(error: BaseException) -> None:
    """Assert that an error is CANN's refusal of a dtype that the chip's data do not let the operator take."""
    if not (found := _REFUSAL.search(str(error))):
        raise error
    operator, name, dtype = found.groups()
    limits = chips.limits(operator.removeprefix("aclnn"), "A2")
    alone = name in limits.takes and dtype not in limits.takes[name]
    if not alone and not any(names.split()[0] == name and dtype in lost for names, lost in limits.together.items()):
        raise error


def _differ(actual: Any, expected: Any) -> bool:
    """Whether these are numbers of the same kind, and not the same ones."""
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point() or actual.dtype != expected.dtype:
        return False
    return not bool(_same(actual.detach().cpu(), expected.detach()).all())


def _in_float32(function: Callable[..., Any], inputs: Any, options: Any, dtype: torch.dtype, **how: bool) -> list[Any]:
    """Return what the CPU makes of the same in float32."""

    def wide(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(wide(each) for each in value)
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALF else value

    with cann_formulas():
        return _outcome("cpu", function, wide(inputs), {k: wide(v) for k, v in options.items()}, **how, rounded=dtype)


def assert_as_near(actual: torch.Tensor, other: torch.Tensor, exact: torch.Tensor, name: str = "output") -> None:
    """Assert that a result is not twice as far from the exact one as another is, but for a unit in the last place."""
    limits = torch.finfo(actual.dtype)
    actual, other, exact = (each.detach().cpu().double() for each in (actual, other, exact))
    finite = actual.isfinite() & other.isfinite()
    assert torch.equal(actual[~finite].nan_to_num(0.5), other[~finite].nan_to_num(0.5)), f"{name}: not finite elsewhere"
    if finite.any():
        error, of_other = ((each - exact)[finite].abs() for each in (actual, other))
        allowed = 2 * of_other.max() + exact[finite].abs() * limits.eps + limits.smallest_normal * limits.eps
        assert (error <= allowed).all(), f"{name}: off by {float(error.max())}, the CPU by {float(of_other.max())}"


def assert_rounded_once(function: Callable[..., Any], *inputs: Any, **how: Any) -> None:
    """Assert as :func:`assert_same` does; where the CPU is slow in half precision, of its float32 results, rounded."""
    dtypes = {each.dtype for each in inputs if isinstance(each, torch.Tensor)} & slow_dtypes()
    if not dtypes:
        assert_same(function, *inputs, **how)
        return
    (dtype,) = dtypes
    how = {"backward": False, "strided": False, **how}
    wide = [each.float() if isinstance(each, torch.Tensor) else each for each in inputs]
    expected = _outcome("cpu", function, wide, {}, **how, rounded=dtype)
    actual = _on_the_device(function, inputs, {}, "device", **how)
    for position, (mine, reference) in enumerate(zip(actual, expected, strict=True)):
        assert_identical(mine, reference.to(dtype), f"value {position}")


def assert_identical(actual: Any, expected: Any, name: str = "output") -> None:
    """Assert the same type, dtype, shape and bits; NaNs agree whatever their payload."""
    if not isinstance(expected, torch.Tensor):
        assert type(actual) is type(expected), name
        assert repr(actual) == repr(expected), name
        return
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().cpu().resolve_conj(), expected.detach().resolve_conj()
    differ = ~_same(actual, expected)
    assert not differ.any(), (
        f"{name}: {int(differ.sum())} of {differ.numel()} differ: {actual[differ][:8]}, expected {expected[differ][:8]}"
    )


def operators(function: Callable[[], Any]) -> set[str]:
    """Return the operators of CANN that a function calls."""
    before = emulator.called()
    function()
    torch.npu.synchronize()
    return {name for name, count in emulator.called().items() if count > before.get(name, 0)}


def _on_the_device(
    function: Callable[..., Any], inputs: Iterable[Any], options: dict[str, Any], by: str, **how: Any
) -> list[Any]:
    """Return what the device makes of a function, once it is known who computed it."""
    found: list[Any] = []
    called = operators(lambda: found.extend(_outcome("npu", function, inputs, options, **how)))
    computed = bool(called - _MOVES)
    if by == "device":
        assert computed, f"no kernel of the device computed this; called: {sorted(called)}"
    if by == "cpu":
        assert not computed, f"the device has kernels for this by now, and is to be asked for them: {sorted(called)}"
    return found


def _same(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if expected.is_complex():
        return _same(torch.view_as_real(actual), torch.view_as_real(expected)).all(-1)
    bits = _BITS[expected.element_size()]
    same = actual.contiguous().view(bits) == expected.contiguous().view(bits)
    return same | (actual.isnan() & expected.isnan()) if expected.is_floating_point() else same


def _outcome(
    device: str,
    function: Callable[..., Any],
    inputs: Iterable[Any],
    options: dict[str, Any],
    *,
    backward: bool,
    strided: bool,
    rounded: torch.dtype | None = None,
) -> list[Any]:
    placed = [_placed(each, device, backward=backward, strided=strided) for each in inputs]
    options = {name: _placed(each, device, backward=False, strided=strided) for name, each in options.items()}
    results = list(_flat(function(*placed, **options)))
    leaves = [each for each in _flat(placed) if isinstance(each, torch.Tensor)]
    if not backward:
        return [*results, *leaves]
    differentiable = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    weights = [floats(*each.shape, seed=9).to(rounded or each.dtype).to(device, each.dtype) for each in differentiable]
    torch.autograd.backward(differentiable, weights)
    return [*results, *(each.grad for each in leaves if each.requires_grad)]


def _placed(value: Any, device: str, *, backward: bool, strided: bool) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(each, device, backward=backward, strided=strided) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    placed = torch.stack([value, value], -1).to(device)[..., 1] if strided else value.clone().to(device)
    return placed.requires_grad_(backward and (placed.is_floating_point() or placed.is_complex()))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        yield value
        return
    for each in value:
        yield from _flat(each)
