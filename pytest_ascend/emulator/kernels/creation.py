"""Creation: constants, sequences, copies with or without a change of the dtype."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family, aten

family = Family("creation")
op = family.op
T = torch.Tensor

op("aclnnInplaceZero(inout Tensor self)", T.zero_)
op("aclnnInplaceOne(inout Tensor self)", lambda x: x.fill_(1))
op("aclnnInplaceFillScalar(inout Tensor self, Scalar value)", T.fill_)
op("aclnnInplaceFillTensor(inout Tensor self, Tensor value)", lambda x, value: x.copy_(value))


@family.kernel("aclnnInplaceCopy(inout Tensor self, Tensor source)")
def copy_(x: T, source: T) -> None:
    if source.is_complex() and not x.is_complex():
        source = source.real  # CPU would warn, which is torch_npu's to do
    x.copy_(source)


op("aclnnCast(Tensor self, dtype dtype, out Tensor out)", lambda x, _: x)

op("aclnnArange(Scalar start, Scalar end, Scalar step, out Tensor out)", torch.arange, into=True)
op("aclnnRange(Scalar start, Scalar end, Scalar step, out Tensor out)", aten.range.out, into=True)
op("aclnnLinspace(Scalar start, Scalar end, int64 steps, out Tensor out)", torch.linspace, into=True)
op("aclnnLogSpace(Scalar start, Scalar end, int64 steps, double base, out Tensor out)", torch.logspace, into=True)
op("aclnnEye(int64 n, int64 m, out Tensor out)", torch.eye, into=True)
