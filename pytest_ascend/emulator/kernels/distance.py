"""Distances between rows."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.widening import widened
from pytest_ascend.emulator.registry import Family, aten

family = Family("distance")
op = family.op
T = torch.Tensor

# There are no public names for what these do without a gradient.
op(
    "aclnnCdist(Tensor x1, Tensor x2, float p, int64 mode, out Tensor out)",
    widened(aten._cdist_forward.default),
)
op("aclnnPdist(Tensor self, float p, out Tensor out)", widened(lambda x, p: aten._pdist_forward(x.contiguous(), p)))
op(
    "aclnnCdistBackward(Tensor grad, Tensor x1, Tensor x2, Tensor cdist, float p, out Tensor out)",
    widened(lambda grad, x1, x2, distance, p: aten._cdist_backward(grad.contiguous(), x1, x2, p, distance)),
)


@family.kernel_named("CdistGrad")
def cdist_grad(grad: T, x1: T, x2: T, distance: T, p: float) -> T:
    """Return the gradient of the first rows; all operands come expanded to (..., rows, other rows, columns).

    An infinite p comes as -1.
    """
    apart = x1 - x2
    if p == -1:
        return (apart.sign() * (apart.abs() == distance) * grad).sum(-2)
    share = apart.sign() * apart.abs().pow(p - 1) * grad / distance.pow(p - 1)
    return share.masked_fill((distance == 0) | ((apart == 0) & (p < 2)), 0.0).sum(-2)
