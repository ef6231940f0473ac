"""Mixture of experts: choosing experts, sending rows to them, and adding their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from pytest_ascend.operators import InputFactory, Operator, Sample, call

from ..entry import fused, in_family

T = torch.Tensor
#: Rows, experts, and experts of a row.
_SIZES = ((6, 4, 2), (17, 8, 3))


def choices(make: InputFactory, rows: int, experts: int, k: int, dtype: torch.dtype = torch.int32) -> T:
    return make.uniform(rows, experts, dtype=torch.float32).argsort(-1)[:, :k].to(dtype)


def separate(make: InputFactory, rows: int, experts: int) -> T:
    """Return scores without ties in a row in any dtype, so that rounding does not decide which is largest."""
    return (make.uniform(rows, experts, dtype=torch.float32).argsort(-1) * 0.25 - 2).to(make.dtype)


def _gating(x: T, finished: T | None = None, k: int = 1) -> tuple[T, T, T]:
    shares, rows = x.softmax(-1), torch.arange(x.shape[0] * k, dtype=torch.int32).view(k, -1).T
    experts = torch.sort(shares, dim=-1, descending=True, stable=True).indices[:, :k]  # of equal ones, the first
    chosen = experts if finished is None else experts.masked_fill(finished[:, None], x.shape[-1])
    return shares.gather(-1, experts), chosen.int(), rows


def _gating_inputs(make: InputFactory) -> Iterator[Sample]:
    yield call(separate(make, 7, 16), k=2)
    yield call(separate(make, 33, 8), k=1)
    yield call(separate(make, 5, 16), finished=make.mask(5), k=4)
    yield call(separate(make, 2049, 8), k=2, name="2,049 rows")  # vllm-ascend#11391
    yield call(torch.arange(64).remainder(3).to(make.dtype).view(4, 16), k=4, name="equal scores")


def _init_routing(x: T, row_idx: T, expert_idx: T, active_num: int) -> tuple[T, T, T]:
    count = min(x.shape[0], active_num) * expert_idx.shape[1]
    experts, order = expert_idx.flatten().sort(stable=True)
    source = row_idx.flatten()[order].long()
    return x[source % x.shape[0]][:count], source.argsort().int(), experts


def _init_inputs(make: InputFactory) -> Iterator[Sample]:
    for rows, experts, k in _SIZES:
        columns = torch.arange(rows * k, dtype=torch.int32).view(k, rows).T.contiguous()
        yield call(make.normal(rows, 32), columns, choices(make, rows, experts, k), rows)


def _finalize(rows: T, skip1: T, skip2: T | None, bias: T, scales: T, source: T, experts: T) -> T:
    count, k = scales.shape
    parts = rows[source.long().view(k, count)].transpose(0, 1)
    total = (scales.unsqueeze(-1) * (parts + bias[experts.long()])).sum(1)
    return skip1 + total if skip2 is None else skip1 + skip2 + total


def _finalize_inputs(make: InputFactory) -> Iterator[Sample]:
    for rows, experts, k in _SIZES:
        order = make.uniform(rows * k, dtype=torch.float32).argsort().int()
        given = make.normal(rows * k, 32), make.normal(rows, 32), make.normal(rows, 32), make.normal(experts, 32)
        yield call(*given, make.uniform(rows, k, low=0.1), order, choices(make, rows, experts, k))


def _permute_inputs(make: InputFactory) -> Iterator[Sample]:
    for (rows, width), experts, k in (((6, 32), 4, 2), ((17, 16), 8, 3)):
        yield call(make.normal(rows, width), choices(make, rows, experts, k, torch.int64))


def _permute(tokens: T, indices: T) -> tuple[T, T]:
    order = indices.flatten().argsort(stable=True)
    return tokens[order // (indices.numel() // indices.shape[0])], order.argsort().int()


def _unpermute(permuted: T, sorted_indices: T, probs: T | None = None) -> T:
    rows = permuted[sorted_indices.long()]
    return rows if probs is None else (rows.view(*probs.shape, -1) * probs.unsqueeze(-1)).sum(1)


def _unpermute_inputs(make: InputFactory) -> Iterator[Sample]:
    for rows, k in ((6, 2), (17, 3)):
        order = make.uniform(rows * k, dtype=torch.float32).argsort().int()
        yield call(make.normal(rows * k, 32), order, make.uniform(rows, k, low=0.1))


def _top_k_top_p(logits: T, p: T, k: T) -> T:
    values, order = torch.sort(logits, dim=-1, stable=True)
    least = values.gather(-1, (values.shape[-1] - k.long())[:, None])
    values = values.masked_fill(values < least, float("-inf"))
    left_out = values.softmax(-1).cumsum(-1) <= 1 - p[:, None]
    left_out[:, -1] = False
    return torch.empty_like(values).scatter_(-1, order, values.masked_fill(left_out, float("-inf")))


def _sampling_inputs(make: InputFactory) -> Iterator[Sample]:
    ks = make.integers(5, low=2, high=16, dtype=torch.int32)
    yield call(separate(make, 5, 40), make.given([0.3, 0.5, 0.7, 0.8, 0.9]), ks)


def gating(
    x: T, k: int, k_group: int = 1, groups: int = 1, mode: int = 0, _: int = 0, norm_type: int = 0, __: bool = False,
    routed_scaling_factor: float = 1.0, eps: float = 1e-20, bias: T | None = None,
) -> tuple[T, T]:  # fmt: skip
    """Choose experts from the best groups, ranked by their best expert or by the sum of their best two."""
    scores = x.sigmoid() if norm_type else x.softmax(-1)
    parts = (scores if bias is None else scores + bias).view(len(x), groups, -1)
    best = parts.topk(1 + mode, -1).values.sum(-1).topk(k_group, -1).indices
    left_out = torch.ones(len(x), groups, dtype=torch.bool).scatter(1, best, value=False)
    experts = parts.masked_fill(left_out[..., None], -torch.inf).flatten(1).topk(k, -1).indices
    weights = scores.gather(-1, experts)
    return weights / (weights.sum(-1, keepdim=True) + eps) * routed_scaling_factor, experts.int()


def _grouped_inputs(make: InputFactory) -> Iterator[Sample]:
    yield from (call(separate(make, rows, 16), k=4, norm_type=1) for rows in (9, 2048, 8192))
    yield call(separate(make, 9, 16), k=4, norm_type=1, routed_scaling_factor=2.5)


_routed: Callable[..., Operator] = partial(fused, outputs=("", "int32"), grad=False, terms=16)
_GRADIENTS: dict[str, Any] = {"dtypes": ("bfloat16", "float16", "float32"), "terms": 4}

OPERATORS = in_family(
    "routing",
    _routed("npu_moe_gating_top_k_softmax", _gating, _gating_inputs, outputs=("", "int32", "int32")),
    _routed("npu_moe_gating_top_k", gating, _grouped_inputs),
    fused("npu_moe_init_routing", _init_routing, _init_inputs, outputs=("", "int32", "int32"), grad=False, exact=True),
    fused("npu_moe_finalize_routing", _finalize, _finalize_inputs, grad=False, terms=8),
    fused(
        "npu_moe_compute_expert_tokens",
        lambda experts, count: torch.bincount(experts.long(), minlength=count).cumsum(0).int(),
        lambda d: [call(d.integers(33, high=8, dtype=torch.int32).sort().values, 8)],
        dtypes=("int32",),
        grad=False,
        exact=True,
    ),
    fused("npu_moe_token_permute", _permute, _permute_inputs, outputs=("", "int32"), **_GRADIENTS),
    fused("npu_moe_token_unpermute", _unpermute, _unpermute_inputs, **_GRADIENTS),
    fused("npu_top_k_top_p", _top_k_top_p, _sampling_inputs, grad=False, exact=True),
)
