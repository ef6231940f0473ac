"""Operators without a kernel in half precision are computed by float32's, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pytest_ascend.system import dispatching
from pytest_ascend.system.dispatching import in_rounded_steps, no_dispatch

SAYS = "\"step\" not implemented for 'Half'"
REFUSED = [0]


@pytest.fixture(scope="module", autouse=True)
def without_half() -> Iterator[None]:
    """Operators as an old torch has them: they refuse half precision."""
    library = torch.library.Library("rounded_steps", "DEF")

    def refuse(*given: torch.Tensor) -> None:
        if any(each.dtype in {torch.float16, torch.bfloat16} for each in given):
            REFUSED[0] += 1
            raise RuntimeError(SAYS)

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        refuse(x, y)
        return x * y

    def double_(x: torch.Tensor) -> torch.Tensor:
        refuse(x)
        return x.mul_(2)

    def largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        refuse(x)
        found = x.max(0)
        return found.values, found.indices

    def wide(x: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
        refuse(x)
        return x.to(dtype)

    def less_their_sum(x: torch.Tensor) -> torch.Tensor:
        return x - x.sum()  # which is rounded to the dtype

    def filled(n: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        refuse(torch.empty(0, dtype=dtype))
        return torch.full((n,), 1 / 3, dtype=dtype, device=device)

    library.define("filled(int n, *, ScalarType dtype, Device device) -> Tensor")
    library.impl("filled", filled, "BackendSelect")
    library.define("composed(Tensor x) -> Tensor")
    library.impl("composed", lambda x: x * 2 * 3, "CompositeImplicitAutograd")
    library.define("less_their_sum(Tensor x) -> Tensor")
    library.define("product(Tensor x, Tensor y) -> Tensor")
    library.define("double_(Tensor(a!) x) -> Tensor(a!)")
    library.define("largest(Tensor x) -> (Tensor, Tensor)")
    library.define("wide(Tensor x, *, ScalarType dtype) -> Tensor")
    for body in (product, double_, largest, wide, less_their_sum):
        library.impl(body.__name__, body, "CPU")
    yield
    library._destroy()


def tensor(*numbers: float, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_is_that_of_float32_rounded(dtype: torch.dtype) -> None:
    x, y = tensor(1.1, -3.3, dtype=dtype), tensor(7.7, 9.9, dtype=dtype)
    found = in_rounded_steps(lambda: torch.ops.rounded_steps.product(x, y))
    assert found.dtype is dtype
    assert found.equal((x.float() * y.float()).to(dtype))


def test_an_operator_that_refused_a_dtype_is_not_asked_again() -> None:
    x, before = tensor(2.0), REFUSED[0]
    product = torch.ops.rounded_steps.product
    assert in_rounded_steps(lambda: product(product(product(x, x), x), x)).tolist() == [16]
    assert REFUSED[0] == before + 1
    wide = in_rounded_steps(lambda: (product(x.float(), x.float()), product(x, x), product(x.bfloat16(), x.bfloat16())))
    assert [each.dtype for each in wide] == [torch.float32, torch.float16, torch.bfloat16]
    assert REFUSED[0] == before + 3


def test_a_step_overflows_as_half_precision_does() -> None:
    far = tensor(300.0)
    assert in_rounded_steps(lambda: 1 / torch.ops.rounded_steps.product(far, far)).tolist() == [0.0]


def test_what_is_changed_in_place_is_changed_and_returned() -> None:
    x = tensor(1.5, 60000.0)
    assert in_rounded_steps(lambda: torch.ops.rounded_steps.double_(x)) is x
    assert x.tolist() == [3.0, float("inf")]


def test_integers_are_left_alone_and_a_dtype_that_was_asked_for_too() -> None:
    values, places = in_rounded_steps(lambda: torch.ops.rounded_steps.largest(tensor(1, 4, 2)))
    assert (values.dtype, values.item(), places.dtype, places.item()) == (torch.float16, 4, torch.int64, 1)
    asked = in_rounded_steps(lambda: torch.ops.rounded_steps.wide(tensor(1), dtype=torch.float32))
    assert asked.dtype is torch.float32


def test_a_factory_gives_the_dtype_that_was_asked_for() -> None:
    found = in_rounded_steps(lambda: torch.ops.rounded_steps.filled(3, dtype=torch.bfloat16, device="cpu"))
    assert found.dtype is torch.bfloat16
    assert found.equal(torch.full((3,), 1 / 3, dtype=torch.bfloat16))


def test_an_operator_composed_of_others_has_their_gradients_where_a_mode_sees_it() -> None:
    x, mode = tensor(1.5, -2.0).requires_grad_(), dispatching._StepsOfFloat32()
    with torch._C._AutoDispatchBelowAutograd():  # where torch_npu 2.1 has modes see it, as it has a kernel of its own
        found = mode.__torch_dispatch__(torch.ops.rounded_steps.composed.default, (), (x,))
        assert not mode.__torch_dispatch__(torch.ops.aten.mul.Tensor, (), (x, x)).requires_grad
    assert torch.autograd.grad(found.sum(), x)[0].tolist() == [6.0, 6.0]


def test_it_works_where_modes_are_kept_away() -> None:
    with no_dispatch():
        assert in_rounded_steps(lambda: torch.ops.rounded_steps.product(tensor(2), tensor(3))).tolist() == [6]


def test_other_errors_are_raised_as_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"must match|size"):
        in_rounded_steps(lambda: torch.ones(2) + torch.ones(3))


def test_a_step_that_rounds_inside_is_that_of_float32_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor(1.0, 2.0**-9, dtype=torch.bfloat16)
    compute = lambda: torch.ops.rounded_steps.less_their_sum(x)  # noqa: E731
    assert in_rounded_steps(compute).tolist() == [0.0, -1.0]
    monkeypatch.setattr(dispatching, "ROUNDED_INSIDE", {"less_their_sum"})
    assert in_rounded_steps(compute).tolist() == [-(2.0**-9), -1.0]


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_the_gradient_of_a_softmax_is_that_of_float32_rounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "ROUNDED_INSIDE", {name, f"{name}_backward_data"})
    x, above = (torch.linspace(-3, 5, 24).view(4, 6).sin().mul(scale).bfloat16() for scale in (4, 1))
    forward, back = (getattr(torch.ops.aten, f"{name}{part}").default for part in ("", "_backward_data"))
    out = in_rounded_steps(lambda: forward(x, -1, False))
    assert out.equal(forward(x.float(), -1, False).bfloat16())
    found = in_rounded_steps(lambda: back(above, out, -1, torch.bfloat16))
    assert found.equal(back(above.float(), out.float(), -1, torch.float32).bfloat16())
