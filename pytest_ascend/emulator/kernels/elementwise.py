"""Arithmetic, element by element."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

family = Family("elementwise")
op = family.op


def add(self, other, alpha, out=None):
    return torch.add(self, other, alpha=alpha, out=out)

op("aclnnAdd(Tensor self, Tensor other, Scalar alpha, out Tensor out)", add, into=True)
op("aclnnAdds(Tensor self, Scalar other, Scalar alpha, out Tensor out)", lambda a, b, alpha: torch.add(a, b, alpha=alpha))
op("aclnnInplaceAdd(inout Tensor self, Tensor other, Scalar alpha)", lambda a, b, alpha: a.add_(b, alpha=alpha))
op("aclnnInplaceAdds(inout Tensor self, Scalar other, Scalar alpha)", lambda a, b, alpha: a.add_(b, alpha=alpha))
op("aclnnInplaceCopy(inout Tensor self, Tensor source)", torch.Tensor.copy_)
