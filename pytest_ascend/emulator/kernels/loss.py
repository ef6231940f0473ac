"""Losses. Reductions have PyTorch's numbers: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.choices import is_950
from pytest_ascend.emulator.kernels.random import bits_of, in_bits  # noqa: F401  (a row reads ``in_bits``)
from pytest_ascend.emulator.registry import Optional, T, aten, gap
from pytest_ascend.emulator.tensors import Refused


def mean_gradient(grad: T, x: T, reduction: int) -> T:
    """Return the gradient of each element of an unreduced loss."""
    return grad / x.numel() if reduction == 1 else grad


def ctc_loss(log_probs: T, targets: T, lengths: list[int], target_lengths: list[int], blank: int, zero: bool) -> Any:
    """Return the losses and what the backward takes, whose last dimension is rounded up to 8 except on a 950."""
    one = log_probs.dim() == 2  # no batch: torch_npu before 2.6 passes that on unchanged
    batch = log_probs.unsqueeze(1) if one else log_probs
    loss, log_alpha = aten._ctc_loss(batch, targets, lengths, target_lengths, blank, zero)
    loss = loss.squeeze(0) if one else loss
    return loss, F.pad(log_alpha, (0, -log_alpha.shape[-1] % (1 if is_950() else 8)))


def ctc_loss_backward(
    grad: T, log_probs: T, targets: T, lengths: list[int], target_lengths: list[int], loss: T, log_alpha: T, *rest: Any
) -> Any:
    one = log_probs.dim() == 2
    batch, grad, loss = (log_probs.unsqueeze(1), grad.view(1), loss.view(1)) if one else (log_probs, grad, loss)
    log_alpha = log_alpha[..., : 2 * max(target_lengths, default=0) + 1].contiguous()
    found = aten._ctc_loss_backward(grad, batch, targets, lengths, target_lengths, loss, log_alpha, *rest)
    return found.squeeze(1) if one else found


#: Stands for minus infinity where a mask excludes.
_MASKED = -10000.0


def _loss(shares: T, target: T, weight: Optional, reduction: str | None, ignored: int, smoothing: float) -> T:
    """Return the loss of log-probabilities; their softmax is the same."""
    return F.cross_entropy(
        shares, target.long(), weight, ignore_index=ignored, reduction=reduction or "mean", label_smoothing=smoothing
    )


def _left_out(mask: Optional, like: T, triangular: bool) -> T:
    if triangular or mask is None:
        return torch.ones(like.shape[-2:], dtype=torch.bool).triu(1)
    return mask.bool()


def scaled_masked_softmax(x: T, mask: Optional, scale: float, fixed_triu_mask: bool) -> T:
    return (x.float() * scale).masked_fill(_left_out(mask, x, fixed_triu_mask), _MASKED).softmax(-1)


def scaled_masked_softmax_backward(grad: T, y: T, mask: Optional, scale: float, fixed_triu_mask: bool) -> T:
    made: T = aten._softmax_backward_data(grad.float(), y.float(), -1, torch.float32)
    return (made * scale).masked_fill(_left_out(mask, y, fixed_triu_mask), 0.0)


# A cross entropy with classes split among devices, each with those from vocabStartIndex to vocabEndIndex. Source:
# CANN's pages of the three operators. Logits are (rows, classes), all other tensors have one number per row.


def fused_linear_cross_entropy_loss_grad(
    grad: T, x: T, weight: T, mask: T, place: T, smoothing: float, largest: Optional, total: Optional, shares: Optional
) -> tuple[T, T]:
    gap(smoothing, "labelSmoothing is not implemented")
    if shares is None:
        if largest is None or total is None:
            raise Refused("softmax must be given, or both logitsMax and sumExpLogits")
        shares = (x @ weight.T - largest[:, None]).exp() / total[:, None]
    ours = ~(mask if len(mask) == len(x) else bits_of(mask, x.shape[:1])).bool()  # a mask may come as it is
    above = shares.scatter_add(1, place.long()[:, None], -ours.to(shares.dtype)[:, None]) * grad[:, None]
    return above @ weight, above.T @ x
