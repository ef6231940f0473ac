"""Losses. Reductions are numbered as in PyTorch: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.kernels.widening import widened
from pytest_ascend.emulator.registry import Family, aten

family = Family("loss")
op = family.op
T = torch.Tensor
Optional = T | None


def _mean_gradient(grad: T, x: T, reduction: int) -> T:
    """Return the gradient that each element of an unreduced loss gets."""
    return grad / x.numel() if reduction == 1 else grad


_PAIR = "Tensor self, Tensor target"
_NLL = "Tensor self, Tensor target, Tensor weight, int64 reduction, int64 ignoreIndex"


def _with_long(function: Any, place: int) -> Any:
    """Return a loss of classes with its target as int64: CANN takes int32 too, torch's CPU does not."""

    def body(*given: Any) -> Any:
        return function(*given[:place], given[place].long(), *given[place + 1 :])

    return body


for _cann, _torch in (("NLLLoss", "nll_loss"), ("NLLLoss2d", "nll_loss2d")):
    op(
        f"aclnn{_cann}({_NLL}, out Tensor out, out Tensor totalWeight)",
        _with_long(getattr(aten, f"{_torch}_forward").default, 1),
    )
    op(
        f"aclnn{_cann}Backward(Tensor gradOutput, {_NLL}, Tensor totalWeight, out Tensor out)",
        _with_long(getattr(aten, f"{_torch}_backward").default, 2),
    )

for _cann, _torch in (("MseLoss", "mse_loss"), ("SoftMarginLoss", "soft_margin_loss")):
    op(f"aclnn{_cann}({_PAIR}, int64 reduction, out Tensor out)", getattr(aten, _torch).default)
    op(
        f"aclnn{_cann}Backward(Tensor gradOutput, {_PAIR}, int64 reduction, out Tensor out)",
        getattr(aten, f"{_torch}_backward").default,
    )

op(f"aclnnSmoothL1Loss({_PAIR}, int64 reduction, float beta, out Tensor out)", aten.smooth_l1_loss.default)
op(
    f"aclnnSmoothL1LossBackward(Tensor gradOut, {_PAIR}, int64 reduction, float beta, out Tensor gradInput)",
    aten.smooth_l1_loss_backward.default,
)
op(f"aclnnL1Loss({_PAIR}, int64 reduction, out Tensor out)", aten.l1_loss.default)


@family.kernel(f"aclnnL1LossBackward(Tensor gradOutput, {_PAIR}, int64 reduction, out Tensor gradInput)")
def l1_loss_backward(grad: T, x: T, target: T, reduction: int) -> T:
    return _mean_gradient(grad, x, reduction) * (x - target).sgn()


op(
    f"aclnnBinaryCrossEntropy({_PAIR}, Tensor weight, int64 reduction, out Tensor out)",
    aten.binary_cross_entropy.default,
)
op(
    f"aclnnBinaryCrossEntropyBackward(Tensor gradOutput, {_PAIR}, Tensor weight, int64 reduction, out Tensor out)",
    aten.binary_cross_entropy_backward.default,
)
op(
    f"aclnnBinaryCrossEntropyWithLogits({_PAIR}, Tensor weight, Tensor posWeight, int64 reduction, out Tensor out)",
    widened(aten.binary_cross_entropy_with_logits.default),
)


@family.kernel(
    f"aclnnBinaryCrossEntropyWithLogitsBackward(Tensor gradOutput, {_PAIR}, Tensor weight, Tensor posWeight,"
    " int64 reduction, out Tensor out)"
)
def binary_cross_entropy_with_logits_backward(
    grad: T, x: T, target: T, weight: Optional, pos_weight: Optional, reduction: int
) -> T:
    grad, x, target = grad.float(), x.float(), target.float()
    if pos_weight is None:
        result = x.sigmoid().sub_(target).mul_(grad)
    else:
        weighted = pos_weight * target
        result = (weighted + 1).sub_(target).mul_(x.sigmoid()).sub_(weighted).mul_(grad)
    if weight is not None:
        result.mul_(weight)
    return result.div_(x.numel()) if reduction == 1 else result


@family.kernel(f"aclnnKlDiv({_PAIR}, int64 reduction, bool logTarget, out Tensor out)")
def kl_div(x: T, target: T, reduction: int, log_target: bool) -> T:
    return aten.kl_div(x, target, reduction, log_target=log_target)  # type: ignore[no-any-return]


_KL_BACKWARD = f"Tensor gradOutput, {_PAIR}, int64 reduction, bool logTarget"


@family.kernel(f"aclnnKlDivBackward({_KL_BACKWARD}, out Tensor out)")
def kl_div_backward(grad: T, x: T, target: T, reduction: int, log_target: bool) -> T:
    return -_mean_gradient(grad, x, reduction) * (target.exp() if log_target else target)


@family.kernel(f"aclnnKlDivTargetBackward({_KL_BACKWARD}, out Tensor out)")
def kl_div_target_backward(grad: T, x: T, target: T, reduction: int, log_target: bool) -> T:
    grad = _mean_gradient(grad, x, reduction)
    if log_target:
        likely = target.exp()
        return grad * (target - x) * likely + grad * likely
    return torch.xlogy(grad, target) + grad * target / target - grad * x  # in CPU's order: 0 gives a NaN there too


op(
    f"aclnnMultilabelMarginLoss({_PAIR}, int64 reduction, out Tensor out, out Tensor isTarget)",
    _with_long(widened(aten.multilabel_margin_loss_forward.default), 1),
)

_CTC = "IntArray inputLengths, IntArray targetLengths"


@family.kernel(
    f"aclnnCtcLoss(Tensor logProbs, Tensor targets, {_CTC}, int64 blank, bool zeroInfinity, out Tensor loss,"
    " out Tensor logAlpha)"
)
def ctc_loss(log_probs: T, targets: T, lengths: list[int], target_lengths: list[int], blank: int, zero: bool) -> Any:
    """Return the losses and, with a last dimension that CANN rounds up to 8, the logarithms for the backward."""
    one = log_probs.dim() == 2  # no batch: torch_npu before 2.6 hands that on as it is
    batch = log_probs.unsqueeze(1) if one else log_probs
    loss, log_alpha = _ctc_loss(batch, targets, lengths, target_lengths, blank, zero)
    loss = loss.squeeze(0) if one else loss
    return loss, torch.nn.functional.pad(log_alpha, (0, -log_alpha.shape[-1] % 8))


@family.kernel(
    f"aclnnCtcLossBackward(Tensor gradOut, Tensor logProbs, Tensor targets, {_CTC}, Tensor loss, Tensor logAlpha,"
    " int64 blank, bool zeroInfinity, out Tensor out)"
)
def ctc_loss_backward(
    grad: T,
    log_probs: T,
    targets: T,
    lengths: list[int],
    target_lengths: list[int],
    loss: T,
    log_alpha: T,
    *rest: Any,
) -> Any:
    log_alpha = log_alpha[..., : 2 * max(target_lengths, default=0) + 1].contiguous()
    return _ctc_loss_backward(grad, log_probs, targets, lengths, target_lengths, loss, log_alpha, *rest)


_ctc_loss = widened(aten._ctc_loss.default)
_ctc_loss_backward = widened(aten._ctc_loss_backward.default)
