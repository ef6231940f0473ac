"""Comparisons, logic and choices, element by element."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

T = torch.Tensor

family = Family("comparison")
op = family.op

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _operator = _name.capitalize()
    for _kind in ("Tensor", "Scalar"):
        op(f"aclnn{_operator}{_kind}(Tensor self, {_kind} other, out Tensor out)", getattr(torch, _name), into=True)
        op(f"aclnnInplace{_operator}{_kind}(inout Tensor self, {_kind} other)", getattr(T, f"{_name}_"))

op("aclnnLogicalAnd(Tensor self, Tensor other, out Tensor out)", torch.logical_and, into=True)
op("aclnnLogicalOr(Tensor self, Tensor other, out Tensor out)", torch.logical_or, into=True)
op("aclnnLogicalXor(Tensor self, Tensor other, out Tensor out)", torch.logical_xor, into=True)
op("aclnnLogicalNot(Tensor self, out Tensor out)", torch.logical_not, into=True)
op("aclnnInplaceLogicalAnd(inout Tensor self, Tensor other)", T.logical_and_)
op("aclnnInplaceLogicalOr(inout Tensor self, Tensor other)", T.logical_or_)
op("aclnnInplaceLogicalNot(inout Tensor self)", T.logical_not_)

op("aclnnIsFinite(Tensor self, out Tensor out)", torch.isfinite)
op("aclnnIsNegInf(Tensor self, out Tensor out)", torch.isneginf, into=True)
op("aclnnIsPosInf(Tensor self, out Tensor out)", torch.isposinf, into=True)
op("aclnnSignbit(Tensor self, out Tensor out)", torch.signbit, into=True)
op("aclnnSWhere(Tensor condition, Tensor self, Tensor other, out Tensor out)", torch.where, into=True)
op("aclnnIsClose(Tensor self, Tensor other, double rtol, double atol, bool equalNan, out Tensor out)", torch.isclose)


def _equal(self: T, other: T, *, out: T) -> None:
    out.fill_(torch.equal(self, other))


op("aclnnEqual(Tensor self, Tensor other, out Tensor out)", _equal, into=True)
