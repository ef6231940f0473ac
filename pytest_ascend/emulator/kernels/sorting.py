"""Sorting, searching in what is sorted, and distinct elements."""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.registry import Family, aten

family = Family("sorting")
op = family.op
T = torch.Tensor
Optional = T | None

_PAIR = "out Tensor values, out Tensor indices"


def sort(x: T, stable: bool, dim: int, descending: bool, out: tuple[T, T]) -> None:
    torch.sort(x, stable=stable, dim=dim, descending=descending, out=out)


def topk(x: T, k: int, dim: int, largest: bool, order: bool, *_policy: int, out: tuple[T, T]) -> None:
    torch.topk(x, k, dim, largest, order, out=out)


_TOPK = "Tensor self, int64 k, int64 dim, bool largest, bool sorted"

op(f"aclnnSort(Tensor self, bool stable, int64 dim, bool descending, {_PAIR})", sort, into=True)
op(f"aclnnTopk({_TOPK}, {_PAIR})", topk, into=True)
op(f"aclnnTopkV2({_TOPK}, int64 sortPolicy, {_PAIR})", topk, into=True)


# --- searching ---

_SEARCH = "bool outInt32, bool right"


@family.kernel(f"aclnnSearchSorted(Tensor sortedSequence, Tensor self, {_SEARCH}, Tensor sorter, out Tensor out)")
def searchsorted(sequence: T, values: Any, narrow: bool, right: bool, sorter: Optional) -> T:
    return torch.searchsorted(sequence, values, out_int32=narrow, right=right, sorter=sorter)


op(f"aclnnSearchSorteds(Tensor sortedSequence, Scalar self, {_SEARCH}, Tensor sorter, out Tensor out)", searchsorted)
op(
    f"aclnnBucketize(Tensor self, Tensor boundaries, {_SEARCH}, out Tensor out)",
    lambda x, boundaries, narrow, right: torch.bucketize(x, boundaries, out_int32=narrow, right=right),
)

_ISIN = "bool assumeUnique, bool invert, out Tensor out"


def isin(elements: Any, tested: Any, unique: bool, invert: bool) -> T:
    return torch.isin(elements, tested, assume_unique=unique, invert=invert)


op(f"aclnnIsInScalarTensor(Scalar element, Tensor testElements, {_ISIN})", isin)
op(f"aclnnIsInTensorScalar(Tensor element, Scalar testElement, {_ISIN})", isin)


# --- distinct elements: how many there are depends on the data ---

Distinct = tuple[T, Optional, T]

_FOUND = "dynamic Tensor values, out Tensor inverse"

op(f"aclnnUnique(Tensor self, bool sorted, bool returnInverse, {_FOUND})", aten._unique.default)


def _asked(found: tuple[T, T, T], inverse: bool, counts: bool) -> Distinct:
    """Leave out what was not asked for: torch_npu has no room for it."""
    return found[0], found[1] if inverse else None, found[2] if counts else found[2][:0]


@family.kernel(
    f"aclnnUnique2(Tensor self, bool sorted, bool returnInverse, bool returnCounts, {_FOUND}, dynamic Tensor counts)"
)
def unique2(x: T, order: bool, inverse: bool, counts: bool) -> Distinct:
    return _asked(aten._unique2(x, order, inverse, counts), inverse, counts)


@family.kernel(
    f"aclnnUniqueDim(Tensor self, bool sorted, bool returnInverse, int64 dim, {_FOUND}, dynamic Tensor counts)"
)
def unique_dim(x: T, order: bool, _: bool, dim: int) -> Distinct:
    return aten.unique_dim(x, dim, order, True, True)  # type: ignore[no-any-return]  # there is room for all of it


#: The dimension that torch_npu gives for "none, all elements in a row".
_NO_DIM = 1000


@family.kernel(
    f"aclnnUniqueConsecutive(Tensor self, bool returnInverse, bool returnCounts, int64 dim, {_FOUND},"
    " dynamic Tensor counts)"
)
def unique_consecutive(x: T, inverse: bool, counts: bool, dim: int) -> Distinct:
    found = aten.unique_consecutive(x, inverse, counts, None if dim == _NO_DIM else dim)
    return _asked(found, inverse, counts)
