"""Reductions: sums, extremes, statistics, norms, and cumulative sums along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_ascend.dispatching import torch_is_before
from pytest_ascend.emulator.registry import Family, aten

#: Operators inside which torch's CPU kernels would round.
_WIDE = (
    "Histc",
    "InplaceRenorm",
    "LogSumExp",
    "Prod",
    "ProdDim",
    "ReduceNansum",
    "Renorm",
    *(("ReduceSum",) if torch_is_before(2, 3) else ()),  # 2.1 rounds each row's sum, if memory has gaps
)

family = Family("reduction", wide=_WIDE)
op = family.op
T = torch.Tensor
L = list[int]
Table = dict[str, Callable[..., Any]]

_DIMS = "Tensor self, IntArray dim, bool keepdim"
_DIM = "Tensor self, int64 dim, bool keepdim"
_PAIR = "out Tensor values, out Tensor indices"


def _over_dims(function: Callable[..., T]) -> Callable[..., T]:
    """Make a body of a function that takes ``dtype`` and ``out`` by name, as torch's reductions do."""
    return lambda x, dims, keepdim, dtype, out: function(x, dims, keepdim, dtype=dtype, out=out)


_SUMS: Table = {"ReduceSum": torch.sum, "ReduceNansum": torch.nansum}
for _name, _function in _SUMS.items():
    op(f"aclnn{_name}({_DIMS}, dtype dtype, out Tensor out)", _over_dims(_function), into=True)


def _reduce_by_name(function: Callable[..., T]) -> Callable[..., T]:
    """Make a body that reduces the dimensions in a tensor, or all if it is empty."""

    def body(x: T, axes: T, keep_dims: bool = False, **_: Any) -> T:
        return function(x, axes.reshape(-1).tolist() or tuple(range(x.dim())), keep_dims)

    return body


def _product(x: T, dims: Any, keepdim: bool) -> T:
    for dim in sorted((each % max(1, x.dim()) for each in dims), reverse=True):
        x = x.prod(dim, keepdim)
    return x


def _spread_by_name(
    x: T, _: T, *, dim: L, keepdim: bool, unbiased: bool = True, correction: int = 1, if_std: bool = True, **__: Any
) -> T:
    """Return the standard deviation or the variance; the given mean is not needed."""
    spread = torch.std if if_std else torch.var
    return spread(x, dim or None, correction=correction if unbiased else 0, keepdim=keepdim)


_BY_NAME: Table = {
    "ReduceAll": torch.all,
    "ReduceAny": torch.any,
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": torch.amax,
    "ReduceMean": torch.mean,
    "ReduceMin": torch.amin,
    "ReduceProd": _product,
    "ReduceSum": torch.sum,
}
for _name, _function in _BY_NAME.items():
    family.named(_name, _reduce_by_name(_function), wide=True)

family.named("ReduceMeanD", lambda x, axes, keep_dims: x.mean(axes or None, keep_dims), wide=True)
family.named("ReduceStdWithMean", _spread_by_name, wide=True)
family.named("ReduceStdV2Update", _spread_by_name, wide=True)
family.named("ArgMaxV2", lambda x, dim, keep_dims=False, **_: x.argmax(int(dim), keep_dims))
family.named("ArgMin", lambda x, dim, keep_dims=False, **_: x.argmin(int(dim), keep_dims))
family.named("ArgMaxWithValue", lambda x, dimension, keep_dims: x.max(dimension, keep_dims)[::-1])
family.named("ArgMinWithValue", lambda x, dimension, keep_dims: x.min(dimension, keep_dims)[::-1])


def _cumulative(function: Callable[[T, int], T], first: int) -> Callable[..., T]:
    """Accumulate up to each element or, with ``exclusive``, before it; from the end with ``reverse``."""

    def body(x: T, dim: T, exclusive: bool = False, reverse: bool = False) -> T:
        axis = int(dim)
        made = function(x.flip(axis) if reverse else x, axis)
        if exclusive:
            made = made.roll(1, axis).index_fill_(axis, torch.tensor([0]), first)
        return made.flip(axis) if reverse else made

    return body


family.named("Cumsum", _cumulative(torch.cumsum, 0), wide=True)
family.named("Cumprod", _cumulative(torch.cumprod, 1), wide=True)
family.named("Sort", lambda x, axis, descending=False, **_: tuple(x.sort(dim=axis, descending=descending, stable=True)))
family.named("SoftmaxV2", lambda x, axes, **_: x.float().softmax(axes[0]))
family.named("LogSoftmaxV2", lambda x, axes, **_: x.float().log_softmax(axes[0]))

# Not with out=: torch 2.5 replaces a half-precision tensor by another, and leaves its memory unchanged.
op(
    f"aclnnMean({_DIMS}, dtype dtype, out Tensor out)",
    lambda x, dims, keepdim, dtype: x.mean(dims, keepdim, dtype=dtype),
)

op("aclnnProd(Tensor self, dtype dtype, out Tensor out)", lambda x, dtype: torch.prod(x, dtype=dtype))
op(f"aclnnProdDim({_DIM}, dtype dtype, out Tensor out)", _over_dims(torch.prod), into=True)


def _over_some(function: Callable[..., T]) -> Callable[..., T]:
    """Make a body that reduces all dimensions if none are given, one after another, as torch before 2.2 wants it."""

    def body(x: T, dims: L | None, keepdim: bool) -> T:
        if not x.dim():
            return function(x)
        for dim in sorted({each % x.dim() for each in dims or range(x.dim())}, reverse=True):
            x = function(x, dim, keepdim)
        return x

    return body


for _name, _function in {"All": torch.all, "Any": torch.any}.items():
    op(f"aclnn{_name}({_DIMS}, out Tensor out)", _over_some(_function))

for _name, _function in {"Amax": torch.amax, "Amin": torch.amin, "LogSumExp": torch.logsumexp}.items():
    op(f"aclnn{_name}({_DIMS}, out Tensor out)", _function, into=True)

for _name, _function in {"ArgMax": torch.argmax, "ArgMin": torch.argmin}.items():
    op(f"aclnn{_name}({_DIM}, out Tensor out)", _function)

_PICKED: Table = {"Max": torch.max, "Min": torch.min, "Median": torch.median, "NanMedian": torch.nanmedian}
for _name, _function in _PICKED.items():
    op(f"aclnn{_name}(Tensor self, out Tensor out)", _function)
    op(f"aclnn{_name}Dim({_DIM}, {_PAIR})", _function)

op(f"aclnnKthvalue(Tensor self, int64 k, int64 dim, bool keepdim, {_PAIR})", torch.kthvalue)


# --- both extremes at once ---

_EXTREMES = "out Tensor smallest, out Tensor largest"

op(f"aclnnAminmaxAll(Tensor self, {_EXTREMES})", torch.aminmax)
op(f"aclnnAminmaxDim({_DIM}, {_EXTREMES})", lambda x, dim, keepdim: torch.aminmax(x, dim=dim, keepdim=keepdim))


@family.kernel(f"aclnnAminmax({_DIMS}, {_EXTREMES})")
def aminmax(x: T, dims: L, keepdim: bool) -> tuple[T, T]:
    return torch.amin(x, dims, keepdim), torch.amax(x, dims, keepdim)


# --- deviation and variance ---

_SPREAD = "Tensor self, IntArray dim, int64 correction, bool keepdim"


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dims, correction, keepdim: function(x, dims, correction=correction, keepdim=keepdim)


op(f"aclnnStd({_SPREAD}, out Tensor out)", _spread(torch.std))
op(f"aclnnVarCorrection({_SPREAD}, out Tensor out)", _spread(torch.var))
op(f"aclnnStdMeanCorrection({_SPREAD}, out Tensor std, out Tensor mean)", _spread(torch.std_mean))
op(f"aclnnVarMean({_SPREAD}, out Tensor var, out Tensor mean)", _spread(torch.var_mean))


# --- norms ---


def norm(x: T, p: float, dims: L, keepdim: bool, out: T) -> None:
    torch.linalg.vector_norm(x, p, dims, keepdim, dtype=None if x.is_complex() else out.dtype, out=out)


op("aclnnNorm(Tensor self, Scalar p, IntArray dim, bool keepdim, out Tensor out)", norm, into=True)


@family.kernel(
    "aclnnLinalgVectorNorm(Tensor self, Scalar ord, IntArray dims, bool keepdim, dtype dtype, out Tensor out)"
)
def linalg_vector_norm(x: T, p: float, dims: L | None, keepdim: bool, dtype: torch.dtype) -> T:
    return torch.linalg.vector_norm(x, p, dims, keepdim, dtype=None if dtype == x.dtype else dtype)  # type: ignore[no-any-return]


op("aclnnRenorm(Tensor self, Scalar p, int64 dim, Scalar maxNorm, out Tensor out)", torch.renorm, into=True)
op("aclnnInplaceRenorm(inout Tensor self, Scalar p, int64 dim, Scalar maxNorm)", T.renorm_)


#: torch_npu's spelling of infinite orders.
_INFINITE = {float(2**31): float("inf"), float(-(2**31)): float("-inf")}


@family.kernel_named("LpNormReduceV2")
def lp_norm_reduce(x: T, p: float, axes: L, keepdim: bool, epsilon: float) -> T:  # noqa: ARG001
    """Return a norm without the root, which another operator takes: the sum of powers, a count, or an extreme."""
    order = _INFINITE.get(p, p)
    size = x.abs()
    if order in (float("inf"), float("-inf")):
        return (torch.amax if order > 0 else torch.amin)(size, axes, keepdim)
    powers = (size != 0).float() if order == 0 else size if order == 1 else size.pow(order)
    return torch.sum(powers, axes, keepdim)


@family.kernel_named("LpNormUpdateV2")
def lp_norm_update(total: T, p: float, epsilon: float) -> T:  # noqa: ARG001
    return total if p in (0, 1) or p in _INFINITE else total.pow(1 / p)


# --- along a dimension ---

op(
    "aclnnCumsum(Tensor self, int64 dim, dtype dtype, out Tensor out)",
    lambda x, dim, dtype, out: torch.cumsum(x, dim, dtype=dtype, out=out),
    into=True,
)
op(
    "aclnnCumprod(Tensor self, Scalar dim, dtype dtype, out Tensor out)",
    lambda x, dim, dtype, out: torch.cumprod(x, dim, dtype=dtype, out=out),
    into=True,
)
op(f"aclnnCummax(Tensor self, int64 dim, {_PAIR})", torch.cummax)
op(f"aclnnCummin(Tensor self, int64 dim, {_PAIR})", torch.cummin)


# --- the rest ---


@family.kernel("aclnnHistc(Tensor self, int64 bins, Scalar min, Scalar max, out Tensor out)")
def histc(x: T, bins: int, low: float, high: float) -> T:
    return torch.histc(x if x.is_floating_point() else x.float(), bins, low, high)  # the CPU has it for floats only


op("aclnnBincount(Tensor self, Tensor weights, int64 minlength, out Tensor out)", torch.bincount)
op("aclnnTrace(Tensor self, out Tensor out)", torch.trace)


Optional = T | None


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


# --- distinct elements: their number depends on the data ---

Distinct = tuple[T, Optional, T]

_FOUND = "dynamic Tensor values, out Tensor inverse"

# In order also where none is asked for: torch from 2.3 on does so, and 2.1 has that of a hash table.
op(
    f"aclnnUnique(Tensor self, bool sorted, bool returnInverse, {_FOUND})",
    lambda x, _, inverse: aten._unique.default(x, True, inverse),
)


def _asked(found: tuple[T, T, T], inverse: bool, counts: bool) -> Distinct:
    """Omit results that were not requested: torch_npu has no room for them."""
    return found[0], found[1] if inverse else None, found[2] if counts else found[2][:0]


@family.kernel(
    f"aclnnUnique2(Tensor self, bool sorted, bool returnInverse, bool returnCounts, {_FOUND}, dynamic Tensor counts)"
)
def unique2(x: T, _: bool, inverse: bool, counts: bool) -> Distinct:
    return _asked(aten._unique2(x, True, inverse, counts), inverse, counts)


@family.kernel_named("UniqueWithCountsAndSorting")
def unique_by_name(x: T, *, sorted: bool, return_inverse: bool, return_counts: bool) -> Distinct:  # noqa: A002
    return unique2(x, sorted, return_inverse, return_counts)


@family.kernel(
    f"aclnnUniqueDim(Tensor self, bool sorted, bool returnInverse, int64 dim, {_FOUND}, dynamic Tensor counts)"
)
def unique_dim(x: T, order: bool, _: bool, dim: int) -> Distinct:
    return aten.unique_dim(x, dim, order, True, True)  # type: ignore[no-any-return]  # there is room for all of it


#: The dimension that torch_npu passes for "none, all elements in a row".
_NO_DIM = 1000


@family.kernel(
    f"aclnnUniqueConsecutive(Tensor self, bool returnInverse, bool returnCounts, int64 dim, {_FOUND},"
    " dynamic Tensor counts)"
)
def unique_consecutive(x: T, inverse: bool, counts: bool, dim: int) -> Distinct:
    found = aten.unique_consecutive(x, inverse, counts, None if dim == _NO_DIM else dim)
    return _asked(found, inverse, counts)
