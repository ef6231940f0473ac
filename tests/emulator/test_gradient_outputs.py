"""Activations and their gradients by themselves, into outputs of another layout or dtype, and by their older names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from .kernel import T, by_name, called, close, floats, gradients

X, DY = floats(3, 4), floats(3, 4, seed=1)


@pytest.mark.parametrize("scale", [1, 0.5, 2])
def test_swish_by_name_has_a_scale(scale: float) -> None:
    close(by_name("Swish")(X, scale), X * torch.sigmoid(scale * X))


def test_gradients_by_name() -> None:
    close(by_name("SwishGrad")(DY, X, F.silu(X)), gradients(F.silu, DY, X)[0])
    close(by_name("Mish")(X), F.mish(X))
    close(by_name("MishGrad")(DY, X), gradients(F.mish, DY, X)[0])


def outputs() -> list[T]:
    """Return outputs that are dense, not dense, and of another dtype."""
    return [
        torch.empty(3, 4),
        torch.empty(4, 3).T,
        torch.empty(3, 4, 2)[..., 0],
        torch.empty(3, 4, dtype=torch.float64),
    ]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("name", "function"), [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)])
def test_shares_and_their_gradients(name: str, function: Callable[..., T], dim: int) -> None:
    made = function(X, dim)
    (wanted,) = gradients(lambda x: function(x, dim), DY, X)
    for out in outputs():
        called(name, X, dim, out=out)
        close(out.float(), made)
        called(f"{name}Backward", DY, made, dim, out=out)
        close(out.float(), wanted)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_in_both_ways(approximate: str) -> None:
    out = torch.empty(3, 4)
    called("GeluV2", X, int(approximate == "tanh"), out=out)
    close(out, F.gelu(X, approximate=approximate))
    called("GeluBackwardV2", DY, X, approximate, out=out)
    close(out, gradients(lambda x: F.gelu(x, approximate=approximate), DY, X)[0])


@pytest.mark.parametrize("channels", [1, 4])
def test_gradients_of_a_weight_per_channel(channels: int) -> None:
    weight = floats(channels, seed=2).abs()
    out = torch.empty(3, 4), torch.empty(channels)
    called("PreluBackward", DY, X, weight, out=out)
    close(out, gradients(F.prelu, DY, X, weight))


def test_a_logarithm_of_shares_keeps_no_buffer() -> None:
    close(called("LogSigmoidForward", X), (F.logsigmoid(X), None))
    close(called("LogSigmoidBackward", DY, X, torch.empty(0)), gradients(F.logsigmoid, DY, X)[0])


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_logits_within_a_margin(eps: float) -> None:
    x, out = X.sigmoid(), torch.empty(3, 4)
    called("Logit", x, eps, out=out)
    close(out, torch.logit(x, eps))
    called("LogitGrad", x, DY, eps, out=out)
    close(out, gradients(lambda x: torch.logit(x, eps), DY, x)[0])


def test_numbers_that_are_not_finite_are_replaced() -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 1.0])
    for dtype, large in ((torch.float32, 3.0), (torch.float64, 3.0)):
        out = x.to(dtype, copy=True)
        called("InplaceNanToNum", out, 2.0, large, -large)
        assert out.tolist() == [2.0, 3.0, -3.0, 1.0]
    wide = x.double()
    called("InplaceNanToNum", wide, 0.0, float("inf"), float("-inf"))
    assert wide.tolist() == [0.0, torch.finfo(torch.float64).max, -torch.finfo(torch.float64).max, 1.0]


def test_the_parts_of_unary_functions() -> None:
    close(called("Celu", X, 0.5), F.celu(X, 0.5))
    close(called("HardswishBackward", DY, X), gradients(F.hardswish, DY, X)[0])
    close(called("HardswishBackwardV2", DY, X), gradients(F.hardswish, DY, X)[0])
