"""Distances between rows."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.widening import widened
from pytest_ascend.emulator.registry import Family

family = Family("distance")
op = family.op
aten = torch.ops.aten

# There are no public names for what these do without a gradient.
op(
    "aclnnCdist(Tensor x1, Tensor x2, float p, int64 mode, out Tensor out)",
    widened(aten._cdist_forward.default),
)
op("aclnnPdist(Tensor self, float p, out Tensor out)", widened(aten._pdist_forward.default))
