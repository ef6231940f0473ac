"""Cross entropy and masked softmax in one operator."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.registry import Family, aten

family = Family("fused_loss")
T = torch.Tensor
Optional = T | None

#: What stands for minus infinity where a mask leaves out.
_MASKED = -10000.0

_HOW = "text reduction, int64 ignoreIndex, double labelSmoothing, double lseSquareScale"


def _loss(shares: T, target: T, weight: Optional, reduction: str | None, ignored: int, smoothing: float) -> T:
    """Return the loss of logarithms of shares; a softmax of them changes nothing."""
    return F.cross_entropy(
        shares, target.long(), weight, ignore_index=ignored, reduction=reduction or "mean", label_smoothing=smoothing
    )


@family.kernel(
    f"aclnnCrossEntropyLoss(Tensor input, Tensor target, Tensor weight, {_HOW}, bool returnZloss, out Tensor loss,"
    " out Tensor logProb, out Tensor zloss, out Tensor lse)"
)
def cross_entropy_loss(
    x: T,
    target: T,
    weight: Optional,
    reduction: str | None,
    ignored: int,
    smoothing: float,
    _scale: float,
    z_loss: bool,
) -> tuple[T, T, None, None]:
    if z_loss:
        raise NotImplementedError("return_zloss is not implemented")
    shares = x.float().log_softmax(-1)
    loss = _loss(shares, target, weight, reduction, ignored, smoothing)
    return loss.reshape(-1), shares, None, None


@family.kernel(
    "aclnnCrossEntropyLossGrad(Tensor grad, Tensor logProb, Tensor target, Tensor weight, Tensor gradZloss,"
    f" Tensor lse, {_HOW}, out Tensor out)"
)
def cross_entropy_loss_grad(
    grad: T, shares: T, target: T, weight: Optional, _grad_z: Optional, _lse: Optional, reduction: str | None,
    ignored: int, smoothing: float, _scale: float,
) -> T:  # fmt: skip
    """Differentiate the loss by the scores: as the softmax of logarithms of shares is the same, by these."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = shares.float().clone().requires_grad_()
        loss = _loss(leaf, target.clone(), weight, reduction, ignored, smoothing)
        return torch.autograd.grad(loss, leaf, grad.float().clone().view(loss.shape))[0]


@family.kernel_named("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_with_logits(x: T, labels: T) -> tuple[T, T]:
    """Return the loss of each row against shares of all classes, and its gradient."""
    wide, expected = x.float(), labels.float()
    return -(expected * wide.log_softmax(-1)).sum(-1), wide.softmax(-1) - expected


def _left_out(mask: Optional, like: T, triangular: bool) -> T:
    if triangular or mask is None:
        return torch.ones(like.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


def scaled_masked_softmax(x: T, mask: Optional, scale: float, fixed_triu_mask: bool) -> T:
    return (x.float() * scale).masked_fill(_left_out(mask, x, fixed_triu_mask), _MASKED).softmax(-1)


def scaled_masked_softmax_backward(grad: T, y: T, mask: Optional, scale: float, fixed_triu_mask: bool) -> T:
    made: T = aten._softmax_backward_data(grad.float(), y.float(), -1, torch.float32)
    return (made * scale).masked_fill(_left_out(mask, y, fixed_triu_mask), 0.0)


# torch_npu calls the newer ones on chips that are newer than the emulated one.
_SCALED = "Tensor mask, double scale, bool fixedTriuMask"
family.op(f"aclnnScaledMaskedSoftmax(Tensor x, {_SCALED}, out Tensor y)", scaled_masked_softmax)
family.op(
    f"aclnnScaledMaskedSoftmaxBackward(Tensor grad, Tensor y, {_SCALED}, out Tensor out)",
    scaled_masked_softmax_backward,
)
family.named("ScaledMaskedSoftmax", scaled_masked_softmax)
family.named("ScaledMaskedSoftmaxGrad", scaled_masked_softmax_backward)
