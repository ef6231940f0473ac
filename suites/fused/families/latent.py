"""Latent attention and related operators: its prologue, sparse attention on quantized keys, convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision.kernel_fallbacks import rms_norm

from ..entry import given_as_made, in_family
from .serving import causal, chosen_keys, codes, interleave_rope, sparse, written

T = torch.Tensor

#: Sizes fixed by CANN's pages: of a token, of latent queries and keys, of a head without and with rope.
_TOKEN, _QUERY, _KEY, _HEAD, _ROPE = 7168, 1536, 512, 128, 64
#: Terms in the longest sum.
TERMS = _TOKEN


def _before_attention(
    x: T, down: T, up: T, up_key: T, down_key: T, gamma: T, gamma_key: T, sin: T, cos: T, slots: T, keys: T, ropes: T
) -> tuple[T, T, T, T]:
    heads = up_key.shape[0]
    latent = rms_norm(x @ down, gamma, 1e-5)[0]
    plain, turned = torch.split((latent @ up).view(len(x), heads, -1), [_HEAD, _ROPE], -1)
    query = torch.einsum("thd,hdc->thc", plain, up_key)
    key, rope = torch.split(x @ down_key, [_KEY, _ROPE], -1)
    rotated = interleave_rope(rope, cos, sin)
    caches = written(rms_norm(key, gamma_key, 1e-5)[0].unsqueeze(1), rotated.unsqueeze(1), keys, ropes, slots)
    return query, interleave_rope(turned, cos[:, None], sin[:, None]), *caches


def _call_before_attention(apply: Any, *given: T, is_third: bool = False) -> Any:
    *head, slots, keys, ropes = given
    caches = keys.clone(), ropes.clone()
    if is_third:
        return *apply(*head, *caches, cache_index=slots)[:2], *caches
    return apply(*head, slots, *caches)[:4]


def _weight(make: InputFactory, *shape: int) -> T:
    """Return a matrix whose parts of 64 rows are equal up to scale: quick to generate, and no two parts are equal."""
    part = make.normal(64, shape[1], std=shape[0] ** -0.5)
    return (part * make.uniform(shape[0] // 64, 1, 1, low=0.5, high=1.5)).view(shape)


def _tokens(make: InputFactory) -> Iterator[Sample]:
    heads, gamma = 2, [make.uniform(n, low=0.5, high=1.5) for n in (_QUERY, _KEY)]
    yield call(
        make.normal(3, _TOKEN), _weight(make, _TOKEN, _QUERY), _weight(make, _QUERY, heads * (_HEAD + _ROPE)),
        make.normal(heads, _HEAD, _KEY, std=_HEAD**-0.5), _weight(make, _TOKEN, _KEY + _ROPE), *gamma,
        *(make.uniform(3, _ROPE) for _ in "sc"), torch.tensor([130, 7, 255]),
        *(make.normal(2, 128, 1, n) for n in (_KEY, _ROPE)),
    )  # fmt: skip


# --- on quantized keys ---


def _scores(query: T, key: T, weights: T, query_scale: T, key_scale: T) -> T:
    products = F.relu(torch.einsum("bqhd,bkd->bqhk", query.double(), key[:, :, 0].double()))
    scores = torch.einsum("bqh,bqhk->bqk", weights.double() * query_scale.double(), products)
    return (scores * key_scale.double()[:, None, :, 0]).masked_fill(causal(query.shape[1], key.shape[1]), -torch.inf)


def _best_scores(*given: Any) -> tuple[T, T]:
    """Return the scores of the best keys, and how many are chosen; among equal scores, any choice is valid."""
    best = _scores(*given[:-1]).topk(given[-1], -1).values
    return best.masked_fill(best.isneginf(), 0), (~best.isneginf()).sum(-1)


def _lengths(x: T) -> T:
    return torch.full((len(x),), x.shape[1], dtype=torch.int32, device=x.device)


def _call_best(apply: Any, *given: Any) -> Any:
    *x, count = given
    made = apply(*x, 0, 0, actual_seq_lengths_key=_lengths(x[1]), sparse_count=count, sparse_mode=3)
    chosen, device = made.cpu()[:, :, 0].long(), made.device
    is_there = torch.tensor([[row.unique().numel() == len(row) for row in rows - torch.arange(count) * (rows < 0)]
                             for rows in chosen])  # fmt: skip
    found = _scores(*(each.cpu() for each in x)).gather(-1, chosen.clamp(min=0)).masked_fill(chosen < 0, 0)
    return found.bfloat16().to(device), ((chosen >= 0).sum(-1) * is_there).to(device)


def _indexer_inputs(make: InputFactory) -> Iterator[Sample]:
    query, key = codes(make, 2, 5, 64, 128), codes(make, 2, 70, 1, 128)
    scales = [make.uniform(*shape, low=0.001, high=0.01, dtype=torch.float16) for shape in ((2, 5, 64), (2, 70, 1))]
    yield call(query, key, make.uniform(2, 5, 64, low=0.1, high=1, dtype=torch.float16), *scales, 16)


def _sparse(query: T, numbers: T, rope: T, steps: T, indices: T, scale: float) -> T:
    """Attend over chosen keys, whose eight-bit numbers have a scale per 128 of them."""
    plain = (numbers.double() * steps.double().repeat_interleave(128, -1)).to(query.dtype)
    return sparse(query[..., :_KEY], plain, indices, query[..., _KEY:], rope, scale)


def _call_sparse(apply: Any, query: T, numbers: T, rope: T, steps: T, indices: T, scale: float) -> Any:
    host = [each.cpu().contiguous().view(torch.int8) for each in (numbers, rope, steps)]
    key = torch.cat(host, -1).to(query.device)
    lengths = {"actual_seq_lengths_query": _lengths(query), "actual_seq_lengths_kv": _lengths(key)}
    how = {"sparse_mode": 3, "attention_mode": 2, "quant_scale_repo_mode": 1, "tile_size": 128, "rope_head_dim": 64}
    return apply(query, key, key, indices, scale, 2, 2, **lengths, **how)


def _sparse_inputs(make: InputFactory) -> Iterator[Sample]:
    numbers = make.integers(2, 80, 1, 512, low=-127, high=128, dtype=torch.int8)
    steps = make.uniform(2, 80, 1, 4, low=0.005, high=0.02, dtype=torch.float32)
    query, rope = make.normal(2, 6, 8, 576), make.normal(2, 80, 1, 64)
    yield call(query, numbers, rope, steps, chosen_keys(make), 0.04)


# --- convolution of sequences ---


def _convolved(x: T, weight: T, states: T, ends: tuple[int, ...], slots: T, computed: T) -> tuple[T, T]:
    """Convolve sequences after the last inputs of their states, which are zero if nothing was computed yet."""
    made, states, width = torch.zeros_like(x), states.clone(), len(weight)
    for place, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        state = states[int(slots[place])]
        whole = torch.cat((state[len(state) - width + 1 :] * bool(computed[place]), x[start:end]))
        made[start:end] = sum(weight[tap] * whole[tap : tap + end - start] for tap in range(width)) + x[start:end]
        longer = torch.cat((state[: 0 if not computed[place] else len(state) - width + 1], whole))
        kept = min(len(state), len(longer))
        state[-kept:] = longer[-kept:]
    return made, states


def _call_convolved(apply: Any, x: T, weight: T, states: T, ends: tuple[int, ...], slots: T, computed: T) -> Any:
    states, starts = states.clone(), torch.tensor([0, *ends], dtype=torch.int32, device=x.device)
    places = {"query_start_loc": starts, "cache_indices": slots, "num_computed_tokens": computed}
    return apply(x, weight, states, **places, residual_connection=1, pad_slot_id=-1), states


def _convolved_inputs(make: InputFactory) -> Iterator[Sample]:
    for ends in ((5, 8, 15, 19), (1, 2, 3, 4)):
        given = make.normal(ends[-1], 128), make.normal(3, 128), make.normal(8, 2, 128)
        yield call(*given, ends, *(torch.tensor(each, dtype=torch.int32) for each in ([0, 3, 1, 5], [0, 4, 0, 9])))


_bf16: Callable[..., Operator] = partial(given_as_made, dtypes=("bfloat16",))

OPERATORS = in_family(
    "latent attention",
    *(
        _bf16(name, _before_attention, _tokens, through=partial(_call_before_attention, is_third=name.endswith("v3")),
              terms=TERMS)
        for name in ("npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3")
    ),
    given_as_made(
        "npu_quant_lightning_indexer", _best_scores, _indexer_inputs, through=_call_best,
        outputs=("bfloat16", "int64"), dtypes=("int8",), terms=64,
    ),
    _bf16("npu_kv_quant_sparse_flash_attention", _sparse, _sparse_inputs, through=_call_sparse, terms=576),
    given_as_made("npu_fused_causal_conv1d", _convolved, _convolved_inputs, through=_call_convolved, dtypes=HALVES,
                  terms=3),
)  # fmt: skip
