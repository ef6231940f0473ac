"""Noticing what the CPU computes. Without torch_npu no operator has a kernel of the device's own, so all fall back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from pytest_ascend.device import dispatcher
from pytest_ascend.device.dispatcher import OWN, FallbackWatch, differentiates_inside
from pytest_ascend.records.census import FALLBACK


@pytest.fixture(autouse=True)
def own_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let relu and its like stand for what a device has, and the CPU take the rest."""
    has, arrives = dispatcher.has_kernel, dispatcher.arrives
    native = {"aten::relu", "aten::sin.out", "inside::twice"}
    monkeypatch.setattr(dispatcher, "has_kernel", lambda name, key: name in native if key == OWN else has(name, key))
    monkeypatch.setattr(dispatcher, "arrives", lambda name, key: key == OWN or arrives(name, key))
    known = (dispatcher.kind, differentiates_inside)
    for each in known:
        each.cache_clear()
    yield
    for each in known:
        each.cache_clear()


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (torch.ops.aten.relu.default, False),
        (torch.ops.aten.lgamma_.default, True),
        (torch.ops.aten.cholesky_inverse.default, True),
        (torch.ops.aten.ones_like.default, False),  # made of others
        (torch.ops.aten.sin.default, False),  # by its out= variant
        (torch.ops.aten.sin_.default, False),
        (torch.ops.aten.cos.default, True),
        (torch.ops.aten._cudnn_rnn.default, False),  # the CPU cannot compute it either
    ],
)
def test_the_dispatcher_knows_who_computes(operator: torch._ops.OpOverload, *, expected: bool) -> None:
    assert (dispatcher.kind(str(operator.name())) == FALLBACK) is expected


def test_operators_on_the_device_are_noted_once_in_their_order() -> None:
    with FallbackWatch("cpu") as watch:
        x = torch.ones(2)
        torch.cos(torch.lgamma(x))
        torch.cos(torch.relu(x))
    assert list(watch.seen) == ["aten::lgamma", "aten::cos"]


def test_operators_elsewhere_are_not_noted() -> None:
    with FallbackWatch("npu") as watch:
        torch.cos(torch.ones(2))
    assert not watch.seen


def test_operators_of_the_backward_pass_are_noted() -> None:
    x = torch.ones(2, requires_grad=True)
    y = torch.sin(x).sum()
    with FallbackWatch("cpu") as watch:
        y.backward()
    assert "aten::cos" in watch.seen


def test_tensors_in_lists_and_keywords_count() -> None:
    with FallbackWatch("cpu") as watch:
        torch.cos(torch.ones(2), out=torch.empty(2))
    assert "aten::cos.out" in watch.seen


PRODUCTS = {
    "mm": lambda x: x @ x,
    "addmv": lambda x: torch.addmv(x[0], x, x[1]),
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "conv": lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]),
    "pinv": torch.linalg.pinv,
    "gradient": lambda x: torch.autograd.grad((x.requires_grad_() @ x).sum(), x),
}
NO_PRODUCTS = {
    "exp": torch.exp,
    "sum": torch.sum,
    "mul": lambda x: x * x,
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "upsample": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
}


@pytest.mark.parametrize("name", [*PRODUCTS, *NO_PRODUCTS])
def test_products_of_matrices_on_the_device_are_noted(name: str) -> None:
    work = {**PRODUCTS, **NO_PRODUCTS}[name]
    watches = [FallbackWatch("cpu"), FallbackWatch("npu")]
    for watch in watches:
        with watch:
            work(torch.rand(4, 4))
    assert [watch.multiplied for watch in watches] == [name in PRODUCTS, False]


@pytest.fixture
def composite() -> Iterator[None]:
    """A composite operator, in whose place the device has a kernel that calls others."""
    library = torch.library.Library("inside", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice", torch.library.fallthrough_kernel, "AutogradCPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("composite")
def test_a_composite_operator_with_a_kernel_keeps_its_gradient() -> None:
    x = torch.ones(3, requires_grad=True)
    with FallbackWatch("cpu"):
        y = torch.ops.inside.twice(x).relu().flatten()
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [2, 2, 2]
    with FallbackWatch("cpu"), torch.no_grad():
        assert not torch.ops.inside.twice(x).requires_grad


@pytest.mark.usefixtures("composite")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("inside::twice", True), ("aten::relu", False), ("aten::matmul", False), ("aten::flatten.using_ints", False)],
)
def test_whose_gradient_is_that_of_what_is_called(name: str, *, expected: bool) -> None:
    assert differentiates_inside(name) is expected


def test_what_is_compiled_is_compiled_under_a_watch_and_the_watch_is_not() -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., object]:
        compiled.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x.cos() + 1, backend=backend)
    with FallbackWatch("cpu") as watch:
        assert function(torch.zeros(3)).tolist() == [2, 2, 2]
    assert len(compiled) == 1
    assert "aten::cos" in watch.seen
