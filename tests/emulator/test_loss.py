"""Losses give the same bits on the emulated device as on the CPU, with every reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, assert_identical, assert_same, floats, integers
from .kernel import called

Tensor = torch.Tensor
Inputs = Callable[[torch.dtype], tuple[Any, ...]]

pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")


def _pair(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return floats(4, 5, dtype=dtype), floats(4, 5, dtype=dtype, seed=1)


def _with_classes(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return floats(4, 5, dtype=dtype), torch.tensor([1, 0, 3, -100])


def _with_likelihoods(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return floats(4, 5).log_softmax(1).to(dtype), floats(4, 5, seed=1).softmax(1).to(dtype)


def _with_labels(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return floats(4, 5, dtype=dtype), (floats(4, 5, seed=1) > 0).to(dtype)


def _fixed_target(loss: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """Ask for the gradient of the input alone."""
    return lambda x, *others, reduction: loss(x, *(each.detach() for each in others), reduction=reduction, **options)


def _weighted_logits(x: Tensor, target: Tensor, weight: Tensor, positive: Tensor, *, reduction: str) -> Tensor:
    fixed = {"weight": weight.detach(), "pos_weight": positive.detach()}
    return F.binary_cross_entropy_with_logits(x, target.detach(), reduction=reduction, **fixed)


CASES: dict[str, tuple[Callable[..., Tensor], Inputs]] = {
    "nll": (F.nll_loss, _with_classes),
    "nll, weighted": (_fixed_target(F.nll_loss), _with_classes),
    "nll, images": (F.nll_loss, lambda dtype: (floats(2, 5, 3, 3, dtype=dtype), integers(2, 3, 3, low=0, high=5))),
    "cross entropy": (F.cross_entropy, _with_classes),
    "cross entropy, smoothed": (
        lambda x, y, reduction: F.cross_entropy(x, y, reduction=reduction, label_smoothing=0.1),
        _with_classes,
    ),
    "cross entropy, likelihoods": (
        F.cross_entropy,
        lambda dtype: (floats(4, 5, dtype=dtype), _with_likelihoods(dtype)[1]),
    ),
    "mse": (F.mse_loss, _pair),
    "l1": (F.l1_loss, _pair),
    "smooth l1": (F.smooth_l1_loss, _pair),
    "smooth l1, beta": (lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.1), _pair),
    "huber": (F.huber_loss, _pair),
    "binary cross entropy": (
        _fixed_target(F.binary_cross_entropy),
        lambda dtype: (floats(4, 5).sigmoid().to(dtype), _with_labels(dtype)[1]),
    ),
    "binary cross entropy, weighted": (
        _fixed_target(F.binary_cross_entropy),
        lambda dtype: (floats(4, 5).sigmoid().to(dtype), _with_labels(dtype)[1], floats(5, dtype=dtype)),
    ),
    "logits": (_fixed_target(F.binary_cross_entropy_with_logits), _with_labels),
    "logits, weighted": (
        _weighted_logits,
        lambda dtype: (*_with_labels(dtype), floats(5, dtype=dtype, seed=2), floats(5, dtype=dtype, seed=3)),
    ),
    "kl": (F.kl_div, _with_likelihoods),
    "kl, logarithmic": (
        lambda x, y, reduction: F.kl_div(x, y, reduction=reduction, log_target=True),
        lambda dtype: (_with_likelihoods(dtype)[0], floats(4, 5, seed=1).log_softmax(1).to(dtype)),
    ),
    "soft margin": (
        _fixed_target(F.soft_margin_loss),
        lambda dtype: (floats(4, 5, dtype=dtype), _with_labels(dtype)[1] * 2 - 1),
    ),
    "triplet": (F.triplet_margin_loss, lambda dtype: (*_pair(dtype), floats(4, 5, dtype=dtype, seed=2))),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_its_gradients(name: str, reduction: str, dtype: torch.dtype) -> None:
    if name.startswith("logits") and dtype is not torch.float32:
        pytest.skip("torch's CPU rounds at each step in half precision; see test_half_precision.py")
    function, inputs = CASES[name]
    by = "cpu" if name == "huber" else "device"
    assert_same(function, *inputs(dtype), reduction=reduction, backward=True, by=by)


def test_a_mean_is_over_what_an_input_is_broadcast_to() -> None:
    assert_same(torch.ops.aten.l1_loss, floats(4, 1), floats(4, 5, seed=1), backward=True)
    grad, x, target = floats(4, 5), floats(4, 1), floats(4, 5, seed=1)
    made = called("KlDivBackward", grad, x, target, reduction=1)  # ops-nn 84f5e6b29ddb
    torch.testing.assert_close(made, (-grad * target / 20).sum(1, keepdim=True))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc(reduction: str) -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.ctc_loss(x, y, (6, 6), (3, 2), reduction=reduction)

    assert_same(loss, floats(6, 2, 5).log_softmax(2), integers(2, 3, low=1, high=5), backward=True)


def test_margins_of_several_labels() -> None:
    labels = torch.tensor([[0, 2, -1, 1], [3, -1, 0, 1], [0, 1, 2, 3]])
    assert_same(F.multilabel_margin_loss, floats(3, 4), labels)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances(p: float) -> None:
    one, other = floats(4, 5), floats(3, 5, seed=1)
    found = torch.cdist(one.npu(), other.npu(), p=p)
    assert_identical(found, torch.cdist(one.double(), other.double(), p=p).float())  # summed in float64
    assert_same(torch.pdist, floats(4, 5), p=p)


@pytest.mark.parametrize(
    ("loss", "shape", "target"),
    [
        (F.cross_entropy, (4, 5), [1, 0, 3, -100]),
        (F.nll_loss, (4, 5), [1, 0, 3, 4]),
        (F.nll_loss, (1, 3, 2, 2), [[[0, 1], [2, 0]]]),
    ],
)
def test_targets_may_be_int32_as_in_cann(
    loss: Callable[..., Tensor], shape: tuple[int, ...], target: list[Any]
) -> None:
    on_cpu, on_npu = floats(*shape).requires_grad_(), floats(*shape).npu().requires_grad_()
    expected = loss(on_cpu, torch.tensor(target))
    actual = loss(on_npu, torch.tensor(target, dtype=torch.int32).npu())
    expected.backward()
    actual.backward()
    assert_identical(actual, expected)
    assert_identical(on_npu.grad, on_cpu.grad)


def test_multilabel_margin_loss_takes_int32_targets() -> None:
    x, target = floats(2, 4), torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0]])
    actual = F.multilabel_margin_loss(x.npu(), target.int().npu())
    assert_identical(actual, F.multilabel_margin_loss(x, target))
