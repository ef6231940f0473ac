"""Sums of thousands of terms that lose one term, lose their tail, take terms of beside, or are kept in half precision.

Each is a fault of one kernel and dtype, by its name in this module (``tests.meta.lost_terms:Mm_tail_float16``). Where
the kernel has fewer than ``TERMS`` terms to add it is right, so that only sums as long as this can show it. The kernels
of optimizers, which add nothing up, lose, mix up or round elements of tensors as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pytest_ascend.emulator.faults import Body, Fault

T = torch.Tensor
#: Terms from which a kernel is wrong.
TERMS = 1000
DTYPES = ("float32", "float16", "bfloat16")


class Sum(NamedTuple):
    """A kernel that adds: the place of an argument that it is linear in, the dimensions it adds, and cases of it."""

    kernel: str
    place: int
    dims: Callable[..., Sequence[int]]
    subject: str


def _listed(x: T, dims: Any, *_: Any) -> Sequence[int]:
    return list(dims) if dims else range(x.dim())


def _last(*_: Any) -> Sequence[int]:
    return (-1,)


def _rows_of_second(*_: Any) -> Sequence[int]:
    return (-2,)


def _image(*_: Any) -> Sequence[int]:
    return (-2, -1)


def _along(x: T, dim: int, *_: Any) -> Sequence[int]:
    return (dim,)


def _weights(x: T, weight: T, *_: Any) -> Sequence[int]:
    return range(1, weight.dim())


SUMS: Mapping[str, Sum] = {
    "Mm": Sum("Mm", 0, _last, "mm"),
    "MmSecond": Sum("Mm", 1, _rows_of_second, "mm"),
    "BatchMatMul": Sum("BatchMatMul", 0, _last, "bmm"),
    "BatchMatMulSecond": Sum("BatchMatMul", 1, _rows_of_second, "bmm"),
    "Matmul": Sum("Matmul", 0, _last, "matmul"),
    "Mv": Sum("Mv", 0, _last, "mv"),
    "Dot": Sum("Dot", 0, _last, "dot"),
    "Addmm": Sum("Addmm", 1, _last, "addmm"),
    "AddmmOfLinear": Sum("Addmm", 1, _last, "linear"),
    "Addmv": Sum("Addmv", 1, _last, "addmv"),
    "Baddbmm": Sum("Baddbmm", 1, _last, "baddbmm"),
    "ReduceSum": Sum("ReduceSum", 0, _listed, "sum"),
    "ReduceNansum": Sum("ReduceNansum", 0, _listed, "nansum"),
    "Mean": Sum("Mean", 0, _listed, "mean"),
    "Cumsum": Sum("Cumsum", 0, _along, "cumsum"),
    "Convolution": Sum("Convolution", 1, _weights, "conv2d"),
    "ConvolutionOfLines": Sum("Convolution", 1, _weights, "conv1d"),
    "AvgPool2d": Sum("AvgPool2d", 0, _image, "avg_pool2d"),
    "AdaptiveAvgPool2d": Sum("AdaptiveAvgPool2d", 0, _image, "adaptive_avg_pool2d"),
    "IndexAdd": Sum("IndexAdd", 3, _along, "index_add"),
    "ScatterAdd": Sum("ScatterAdd", 3, _along, "scatter_add"),
    "IndexPutImpl": Sum("IndexPutImpl", 2, lambda *_: (0,), "index_put.accumulate"),
    **{
        f"FlashAttentionScore{what}": Sum(
            "FlashAttentionScore", place, _rows_of_second, "scaled_dot_product_attention.long"
        )
        for what, place in (("OfKeys", 1), ("OfValues", 2))
    },
    "FlashAttentionScoreGrad": Sum("FlashAttentionScoreGrad", 3, _rows_of_second, "scaled_dot_product_attention.long"),
    "EmbeddingDenseBackward": Sum("EmbeddingDenseBackward", 0, lambda grad, *_: range(grad.dim() - 1), "embedding"),
}
#: Kernels that add to their first argument.
IN_PLACE = ("IndexPutImpl",)
#: Kernels of optimizers.
STEPS = (
    *("ApplyAdamWV2", "ForeachAddListV2", "ForeachAddcdivScalarV2", "ForeachAddcmulScalarV2", "ForeachLerpScalar"),
    *("ForeachMaximumList", "ForeachMulScalarV2", "ForeachNeg", "ForeachSqrt", "InplaceAdd", "InplaceAddcdiv"),
    *("InplaceAddcmul", "InplaceLerps", "InplaceMuls", "Maximum", "Sqrt"),
)
#: Sums by repeated index: torch's CPU kernels keep them in the dtype, so that half precision is no fault of 16 bits.
#: Of 256 gradients that attention adds, as small as 16 bits hold, and of one key and no other, so are sums.
IN_THEIR_DTYPE = (
    *("IndexAdd", "ScatterAdd", "IndexPutImpl", "EmbeddingDenseBackward"),
    *("FlashAttentionScoreGrad", "FlashAttentionScoreOfKeys"),
)


def _rows(x: T, dims: Sequence[int], change: Callable[[T], None]) -> T:
    """Return a copy with the dimensions that are added as one, changed."""
    dims = tuple(each % x.dim() for each in dims)
    last = tuple(range(-len(dims), 0))
    moved = x.movedim(dims, last).clone(memory_format=torch.contiguous_format)
    change(moved.view(*moved.shape[: x.dim() - len(dims)], -1))
    return moved.movedim(last, dims)


def _one(rows: T) -> None:
    rows[..., rows.shape[-1] // 3] = 0


def _tail(rows: T) -> None:
    rows[..., rows.shape[-1] // 64 * 63 :] = 0


def _stride(rows: T) -> None:
    half = rows.shape[-1] // 2
    rows[..., half:] = rows[..., half - 1 : -1].clone()


EFFECTS: Mapping[str, Callable[[T], None] | None] = {"one": _one, "tail": _tail, "stride": _stride, "half": None}


def _in_half(call: Callable[[T], Any], x: T, dims: Sequence[int]) -> Any:
    """Add sixteen parts, each sum rounded to half precision."""
    start = call(_rows(x, dims, torch.Tensor.zero_))
    kind, total = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16, torch.zeros_like(start)
    for part in range(16):

        def only(rows: T, part: int = part) -> None:
            size = -(-rows.shape[-1] // 16)
            rows[..., : part * size] = 0
            rows[..., (part + 1) * size :] = 0

        total = (total + (call(_rows(x, dims, only)) - start)).to(kind).to(start.dtype)
    return start + total


def _fault(known: Sum, effect: str, dtype: str) -> Callable[[Body], Body]:
    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            x = given[known.place]
            dims = known.dims(*given) if isinstance(x, T) and x.dim() else ()
            count = 1
            for each in dims:
                count *= x.shape[each]
            if not dims or x.dtype is not getattr(torch, dtype) or count < TERMS:
                return correct(*given)

            before = given[0].clone() if known.kernel in IN_PLACE else None

            def call(instead: T) -> Any:
                if before is None:
                    return correct(*given[: known.place], instead, *given[known.place + 1 :])
                given[0].copy_(before)
                correct(*given[: known.place], instead, *given[known.place + 1 :])
                return given[0].clone()

            change = EFFECTS[effect]
            made = _in_half(call, x, dims) if change is None else call(_rows(x, dims, change))
            return made if before is None else given[0].copy_(made)

        return body

    return plant


def _misstep(effect: str, dtype: str) -> Callable[[Body], Body]:
    """Spoil long tensors that a kernel returns or changes: elements are lost, those of beside, or rounded to half."""

    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            tensors = _tensors(given)
            before = [each.clone() for each in tensors]
            found = correct(*given)
            changed = [(x, old) for x, old in zip(tensors, before, strict=True) if not x.equal(old)]
            for x, old in (*changed, *((each, torch.zeros_like(each)) for each in _tensors(found))):
                if x.numel() < TERMS or x.dtype is not getattr(torch, dtype):
                    continue
                wrong = x.half().to(x.dtype).view(1, -1) if effect == "half" else x.reshape(1, -1).clone()
                if (change := EFFECTS[effect]) is not None:
                    change(wrong)
                is_lost = (wrong == 0) if effect in ("one", "tail") else torch.zeros_like(wrong, dtype=torch.bool)
                x.copy_(torch.where(is_lost, old.reshape(1, -1), wrong).view(x.shape))
            return found

        return body

    return plant


def _tensors(found: Any) -> list[T]:
    parts = found if isinstance(found, list | tuple) else [found]
    return [each for part in parts for each in (part if isinstance(part, list) else [part]) if isinstance(each, T)]


FAULTS: Mapping[str, Fault] = {
    f"{name}_{effect}_{dtype}": {f"aclnn{known.kernel}": _fault(known, effect, dtype)}
    for name, known in SUMS.items()
    for effect in EFFECTS
    for dtype in DTYPES
    if effect != "half" or dtype == "float32" or name not in IN_THEIR_DTYPE
} | {
    f"{kernel}_{effect}_{dtype}": {f"aclnn{kernel}": _misstep(effect, dtype)}
    for kernel in STEPS
    for effect in EFFECTS
    for dtype in DTYPES
    if effect != "half" or dtype == "float32"
}
globals().update(FAULTS)


def case_of(fault: str) -> str:
    """Return the case, of level smoke, that has to fail with this fault."""
    name, _, dtype = fault.split("_")
    if name in STEPS:
        return f"programs/first-steps{'-bfloat16' if dtype == 'bfloat16' else ''}/optimizers"
    return f"ops/{SUMS[name].subject}/exact/{dtype}"
