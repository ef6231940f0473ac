"""Losses of CANN's own by themselves, against torch's in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_ascend.emulator.kernels.random import bits_of, in_bits

from .kernel import T, by_name, called, close, floats, gradients

TARGET = torch.tensor([2, 0, -7, 4, 2])
HOW: list[dict[str, Any]] = [
    {},
    {"reduction": "mean"},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignoreIndex": -7},
    {"ignoreIndex": -7, "reduction": "sum", "labelSmoothing": 0.25},
    {"labelSmoothing": 0.25},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", HOW, ids=str)
def test_cross_entropies_and_their_gradients(how: dict[str, Any], weighted: bool) -> None:
    x, weight = floats(5, 6), floats(6, seed=1).abs() if weighted else None
    target = TARGET if "ignoreIndex" in how else TARGET.abs() % 6
    options = {
        "ignore_index": how.get("ignoreIndex", -100),
        "reduction": how.get("reduction", "mean"),
        "label_smoothing": how.get("labelSmoothing", 0.0),
    }

    def defined(x: T) -> T:
        wide = None if weight is None else weight.to(x.dtype)
        return F.cross_entropy(x, target, wide, **options)

    how = {"ignoreIndex": -100, **how}
    wanted = defined(x)
    found = called("CrossEntropyLoss", x, target.int(), weight, **how)
    close(found, (wanted.reshape(-1), x.log_softmax(-1)))
    dy = floats(*wanted.shape, seed=2)
    gradient = called("CrossEntropyLossGrad", dy.reshape(-1), x.log_softmax(-1), target, weight, **how)
    close(gradient, gradients(defined, dy, x)[0])
    assert not gradient.requires_grad


def test_a_loss_of_logarithms_is_not_emulated() -> None:
    with pytest.raises(NotImplementedError, match="zloss"):
        called("CrossEntropyLoss", floats(2, 3), torch.tensor([0, 1]), ignoreIndex=-100, returnZloss=True)


def test_a_loss_against_probabilities_and_its_gradient() -> None:
    x, labels = floats(4, 5), floats(4, 5, seed=1).softmax(-1)
    found, gradient = by_name("SoftmaxCrossEntropyWithLogits")(x, labels)
    close(found, F.cross_entropy(x, labels, reduction="none"))
    close(
        gradient, gradients(lambda each: F.cross_entropy(each, labels.double(), reduction="sum"), torch.ones(()), x)[0]
    )


MASK = torch.arange(2 * 1 * 4 * 5).view(2, 1, 4, 5) % 3 == 0


@pytest.mark.parametrize("triangular", [False, True])
@pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
def test_scaled_and_masked_softmax(mask: T | None, triangular: bool) -> None:
    x, dy = floats(2, 3, 4, 5), floats(2, 3, 4, 5, seed=1)
    later = torch.arange(5) > torch.arange(4)[:, None]
    left_out = later if mask is None or triangular else mask

    def defined(x: T) -> T:
        return (x * 0.3).masked_fill(left_out, -10000.0).softmax(-1)

    wanted, gradient = defined(x), gradients(defined, dy, x)[0]
    given = None if mask is None else mask.to(torch.uint8)
    close(called("ScaledMaskedSoftmax", x, given, 0.3, triangular), wanted)
    close(by_name("ScaledMaskedSoftmax")(x, given, 0.3, triangular), wanted)
    close(called("ScaledMaskedSoftmaxBackward", dy, wanted, given, 0.3, triangular), gradient)
    close(by_name("ScaledMaskedSoftmaxGrad")(dy, wanted, given, 0.3, triangular), gradient)
    assert (
        called("ScaledMaskedSoftmaxBackward", dy, torch.full_like(x, 0.2), given, 0.3, triangular)[
            left_out.expand(x.shape)
        ]
        .eq(0)
        .all()
    )


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16])
def test_masks_are_packed_into_bits_from_the_lowest_on(count: int) -> None:
    mask = torch.arange(count) % 3 == 0
    packed = in_bits(mask)
    assert packed.dtype == torch.uint8
    assert packed.tolist() == [
        sum(1 << bit for bit in range(8) if 8 * byte + bit < count and mask[8 * byte + bit])
        for byte in range(-(-count // 8))
    ]
    assert bits_of(packed, [count]).bool().equal(mask)


def test_options_of_divided_losses_that_are_not_emulated_are_refused() -> None:
    x = floats(3)
    with pytest.raises(NotImplementedError, match="labelSmoothing"):
        called("FusedCrossEntropyLossWithMaxSum", x, x, x, 0.1)
    with pytest.raises(NotImplementedError, match="labelSmoothing"):
        called("FusedLinearCrossEntropyLossGrad", x, x, x, x, x, 0.1)
    for given in ({"logitsMax": x}, {"sumExpLogits": x}, {}):
        with pytest.raises(Exception, match="softmax must be given"):
            called("FusedLinearCrossEntropyLossGrad", x, x, x, x, x, 0.0, **given)


def test_a_single_sequence_has_a_connectionist_loss_and_its_gradient() -> None:
    """torch_npu before 2.6 gives the kernels of ``ctc_loss`` two dimensions as they are."""
    x, targets = floats(6, 5).log_softmax(1), torch.tensor([1, 2, 2])
    lengths = {"inputLengths": [6], "targetLengths": [3]}
    found, log_alpha = called("CtcLoss", x, targets, **lengths)
    close(found, F.ctc_loss(x, targets, [6], [3], reduction="none"))
    grad = torch.tensor(2.5)
    back = called("CtcLossBackward", grad, x, targets, loss=found, logAlpha=log_alpha, **lengths)
    assert back.shape == x.shape
    close(back, gradients(lambda x: F.ctc_loss(x, targets, [6], [3], reduction="none"), grad, x)[0])
