"""Operators for serving language models: paged attention, quantized products, norms and gates, routing, and rope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.device import npu
from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES
from pytest_ascend.precision.kernel_fallbacks import rms_norm, swiglu
from pytest_ascend.system.programs import for_now

from ..entry import by_name, given_as_made, in_family, on_copies, ties_forgiven
from .routing import choices

T = torch.Tensor

#: Keys in the longest sequence.
TERMS = 768
_INF = float("inf")


# --- attention over paged caches ---


def one_sequence(q: T, k: T, v: T, scale: float, left_out: T | None = None, bias: T | None = None) -> T:
    """Attend with (queries, heads, depth); keys and values may have fewer heads."""
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale + (0 if bias is None else bias)
    scores = scores if left_out is None else scores.masked_fill(left_out, -_INF)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def causal(queries: int, keys: int) -> T:
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)


def _read(cache: T, blocks: T, length: int) -> T:
    """Return the rows (length, heads, depth) of a sequence in a cache (blocks, block, heads, depth), block by block."""
    return torch.cat([cache[block] for block in blocks.tolist()])[:length]


def paged(
    query: T, key: T, value: T, block_table: T, lengths: Sequence[int], scale: float, kv_heads: int,
    atten_mask: T | None = None, sparse_mode: int = 0, ends: Sequence[int] = (), query_rope: T | None = None,
    key_rope: T | None = None, pse_shift: T | None = None, without: Sequence[int] = (),
) -> T:  # fmt: skip
    """Attend over pages, with queries by row or packed; in the range ``without`` the bias is minus infinity."""
    depth, starts, made = key.shape[-1] // kv_heads, [0, *ends[:-1]], []
    whole = query if query_rope is None else torch.cat((query, query_rope), -1)
    for place, length in enumerate(lengths):
        q = whole[starts[place] : ends[place]] if ends else whole[place].view(query.shape[1], -1, depth)
        k, v = (_read(x.view(*x.shape[:2], kv_heads, -1), block_table[place], length) for x in (key, value))
        if key_rope is not None:
            k = torch.cat((k, _read(key_rope.view(*key_rope.shape[:2], kv_heads, -1), block_table[place], length)), -1)
        left_out = causal(len(q), length) if sparse_mode else None
        if atten_mask is not None and not sparse_mode:
            left_out = atten_mask[place, ..., :length].view(-1, length)
        bias = None if pse_shift is None else _without(pse_shift, without)[place, :, : len(q), :length]
        made.append(one_sequence(q, k, v, scale, left_out, bias))
    return torch.cat(made) if ends else torch.stack(made).flatten(2)


def _without(bias: T, keys: Sequence[int]) -> T:
    places = torch.arange(bias.shape[-1], device=bias.device)
    return bias.masked_fill((places >= keys[0]) & (places < keys[1]), -_INF)


def call_paged(apply: Any, *given: Any, ends: Any = (), without: Any = (), **named: Any) -> Any:
    if without:
        named["pse_shift"] = _without(named["pse_shift"], without)
    query, key, value, table, lengths, scale, kv_heads = given
    heads = query.shape[1] if ends else query.shape[-1] // (key.shape[-1] // kv_heads)
    how = {"actual_seq_lengths": list(ends), "input_layout": "TND"} if ends else {"input_layout": "BSH"}
    return apply(
        query, key, value, block_table=table, block_size=key.shape[1], actual_seq_lengths_kv=list(lengths),
        num_heads=heads, num_key_value_heads=kv_heads, scale=scale, **how, **named,
    )[0]  # fmt: skip


_NAMES_OF_V2 = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
}


def _call_paged_v2(apply: Any, *given: Any, **named: Any) -> Any:
    def renamed(*tensors: T, **how: Any) -> Any:
        return apply(*tensors, **{_NAMES_OF_V2.get(name, name): value for name, value in how.items()})

    return call_paged(renamed, *given, **named)


def new_table(make: InputFactory, batch: int, blocks: int) -> T:
    return make.uniform(batch * blocks, dtype=torch.float32).argsort().int().view(batch, blocks)


def _paged_inputs(make: InputFactory) -> Iterator[Sample]:
    def of(batch: int, blocks: int, width: int = 32) -> tuple[T, T, T]:
        key, value = (make.normal(batch * blocks, 128, width) for _ in "kv")
        return key, value, new_table(make, batch, blocks)

    for name, lengths in (
        ("one key to one page", [1, 127, 128]), ("across a page", [129, 511, 513]), ("several pages", [767, 768, 512])
    ):  # fmt: skip
        yield call(make.normal(3, 1, 64), *of(3, 6), lengths, 0.25, 2, name=name)
    # A boolean mask of more than 512 keys: vllm-ascend#15503.
    given = make.normal(2, 1, 64), *of(2, 6)
    yield call(*given, [700, 768], 0.25, 2, atten_mask=make.mask(2, 1, 1, 768), name="mask")
    whole = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    for name, lengths in (("packed", [5, 130, 64]), ("packed, chunks of prompts", [300, 512, 600])):
        given = make.normal(14, 4, 16), *of(3, 5)
        yield call(*given, lengths, 0.25, 2, ends=[5, 6, 14], atten_mask=whole, sparse_mode=3, name=name)
    # Minus infinity in a bias of 768: llama.cpp-omni#89.
    given, bias = (make.normal(2, 1, 64), *of(2, 6)), make.normal(2, 4, 1, 768)
    yield call(*given, [768, 640], 0.25, 2, pse_shift=bias, without=[64, 96], name="bias")
    keys, table = make.normal(4, 128, 512), new_table(make, 2, 2)
    yield call(
        make.normal(2, 32, 512), keys, keys, table, [130, 256], 0.04, 1, ends=[1, 2],
        query_rope=make.normal(2, 32, 64), key_rope=make.normal(4, 128, 64), name="MLA",
    )  # fmt: skip


def _call_boost_paged(apply: Any, query: T, key: T, value: T, table: T, lengths: T, scale: float) -> T:
    out = query.new_empty(*query.shape[:2], value.shape[-1])
    apply(query, key, value, key.shape[2], query.shape[1], scale, table, lengths.cpu(), out)
    return out


def _boost_inputs(make: InputFactory) -> Iterator[Sample]:
    for lengths in ([1, 128, 200], [129, 256, 64]):
        caches = [make.normal(6, 128, 2, 32) for _ in "kv"]
        query, counts = make.normal(3, 8, 32), torch.tensor(lengths, dtype=torch.int32)
        yield call(query, *caches, new_table(make, 3, 2), counts, 0.2)


def _boost_flash(query: T, key: T, value: T, lengths: T, scale: float) -> T:
    parts = zip(*(torch.split(x, lengths.tolist()) for x in (query, key, value)), strict=True)
    return torch.cat([one_sequence(q, k, v, scale, causal(len(q), len(k))) for q, k, v in parts])


def _call_boost_flash(apply: Any, query: T, key: T, value: T, lengths: T, scale: float) -> T:
    longest = int(lengths.max())
    mask = torch.full((longest, longest), -_INF, dtype=query.dtype).triu(1).to(query.device)
    out = torch.empty_like(query)
    apply(query, key, value, mask, lengths.cpu(), scale, query.shape[1], key.shape[1], out)
    return out


def written(key: T, value: T, key_cache: T, value_cache: T, slots: T) -> tuple[T, T]:
    """Write rows into slots, one at a time; a negative slot is skipped."""
    caches = key_cache.clone(), value_cache.clone()
    for row, slot in enumerate(slots.tolist()):
        for cache, rows in zip(caches, (key, value), strict=True):
            if slot >= 0:
                cache[slot // cache.shape[1], slot % cache.shape[1]] = rows[row]
    return caches


def slots_inputs(make: InputFactory) -> Iterator[Sample]:
    rows, caches = (make.normal(9, 2, 16), make.normal(9, 2, 16)), [make.normal(4, 8, 2, 16) for _ in "kv"]
    slots = make.uniform(32, dtype=torch.float32).argsort()[:9].int()
    yield call(*rows, *caches, slots)
    slots = slots.clone()
    slots[[2, 5]] = -1
    yield call(*rows, *caches, slots, name="rows of padding")


def _call_gathered(apply: Any, key_cache: T, value_cache: T, tables: T, lengths: T) -> Any:
    made = [x.new_zeros(int(lengths.sum()), *x.shape[2:]) for x in (key_cache, value_cache)]
    apply(key_cache, value_cache, tables, lengths, *made)
    return made


def _merged(lse: list[T], parts: list[T]) -> tuple[T, T]:
    weights = torch.stack([each.exp() for each in lse])
    total = weights.sum(0)
    return sum(w.unsqueeze(-1) * x for w, x in zip(weights / total, parts, strict=True)), total.log()


# --- sparse attention and the gated delta rule ---


def _indexer(query: T, key: T, weights: T, count: int) -> T:
    """Choose keys by the sum over heads of weight * relu(query . key), up to each query's own position."""
    scores = torch.einsum("bqh,bqhk->bqk", weights, F.relu(torch.einsum("bqhd,bkd->bqhk", query, key[:, :, 0])))
    scores = scores.masked_fill(causal(query.shape[1], key.shape[1]), -_INF)
    best = scores.argsort(-1, descending=True)[..., :count]
    return best.masked_fill(scores.gather(-1, best).isneginf(), -1).unsqueeze(2).int()


def sparse(query: T, key: T, indices: T, query_rope: T, key_rope: T, scale: float) -> T:
    q, k = torch.cat((query, query_rope), -1), torch.cat((key, key_rope), -1)
    count = k.shape[1] + 1  # one extra column, for -1
    left_out = torch.ones(*q.shape[:2], count, dtype=torch.bool)
    left_out = left_out.scatter_(2, indices[:, :, 0].long() % count, value=False)[..., :-1]
    return torch.stack([one_sequence(*each[:3], scale, each[3]) for each in zip(q, k, key, left_out, strict=True)])


def _call_sparse(apply: Any, query: T, key: T, indices: T, query_rope: T, key_rope: T, scale: float) -> Any:
    how = {"query_rope": query_rope, "key_rope": key_rope, "sparse_mode": 3, "attention_mode": 2}
    return apply(query, key, key, indices, scale, **how)[0]


def chosen_keys(make: InputFactory) -> T:
    """Return up to 32 of 80 keys for six queries of two sequences, none after its own position; the rest is -1."""
    order = make.uniform(2, 6, 80, dtype=torch.float32).argsort(-1)
    chosen = order.masked_fill(order > torch.arange(74, 80)[:, None], 80)[..., :32].sort(-1).values.int()
    return torch.where(chosen == 80, -1, chosen).unsqueeze(2)


def _sparse_inputs(make: InputFactory) -> Iterator[Sample]:
    indices, given = chosen_keys(make), [make.normal(*shape) for shape in ((2, 6, 8, 512), (2, 80, 1, 512))]
    yield call(*given, indices, make.normal(2, 6, 8, 64), make.normal(2, 80, 1, 64), 0.04)


def _delta_rule(q: T, k: T, v: T, state: T, lengths: T, g: T, beta: T, scale: float) -> tuple[T, T]:
    """Return the results of S <- S * exp(g) + beta * (v - S k) k', o = S q; and the state after each sequence."""
    repeats, made, last, start = v.shape[1] // q.shape[1], torch.zeros_like(v), [], 0
    q, k = q.repeat_interleave(repeats, 1) * scale, k.repeat_interleave(repeats, 1)
    q, k, v = (x.to(torch.promote_types(x.dtype, g.dtype)) for x in (q, k, v))  # torch 2.1 needs equal dtypes
    for place, count in enumerate(lengths.tolist()):
        s = state[place].clone()
        for t in range(start, start + count):
            s = s * g[t].exp()[:, None, None]
            change = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", s, k[t]))
            s = s + torch.einsum("hv,hk->hvk", change, k[t])
            made[t] = torch.einsum("hvk,hk->hv", s, q[t])
        last.append(s)
        start += count
    return made, torch.stack(last)


def _delta_inputs(make: InputFactory, lengths: Sequence[int] = (3, 70)) -> Iterator[Sample]:
    rows = sum(lengths)
    q, k = (make.normal(rows, 2, 16, std=0.25) for _ in "qk")
    g = make.uniform(rows, 4, low=-1.0, high=0.0, dtype=torch.float32)
    state, counts = make.normal(len(lengths), 4, 16, 16, std=0.1), torch.tensor(lengths, dtype=torch.int32)
    beta = make.uniform(rows, 4, low=0.1, high=0.9)
    yield call(q, k, make.normal(rows, 4, 16), state, counts, g, beta, 0.25)


def _call_delta(apply: Any, q: T, k: T, v: T, state: T, lengths: T, g: T, beta: T, scale: float) -> Any:
    """Keep the state of every token; the sequence's first token has the initial state."""
    ends = lengths.cpu().cumsum(0).tolist()
    places = torch.arange(len(q), dtype=torch.int32, device=q.device)
    states = state.new_zeros(len(q), *state.shape[1:])
    states[[0, *ends[:-1]]] = state
    made = apply(q, k, v, states, beta=beta, scale=scale, actual_seq_lengths=lengths, ssm_state_indices=places, g=g)
    return made, states[[end - 1 for end in ends]]


# --- rope ---


def interleave_rope(x: T, cos: T, sin: T) -> T:
    even, odd, half = x[..., ::2], x[..., 1::2], x.shape[-1] // 2
    first = even * cos[..., :half] - odd * sin[..., :half]
    return torch.cat((first, odd * cos[..., half:] + even * sin[..., half:]), -1)


def mrope(positions: T, q: T, k: T, cache: T, head_size: int, sections: list[int], mode: str) -> tuple[T, T]:
    cos, sin = cache.view(len(cache), 2, -1).unbind(1)
    if positions.dim() == 2:  # which row of positions gives each angle
        rows = torch.tensor([axis for axis, count in enumerate(sections) for _ in range(count)])
        cos, sin = (torch.stack([x[positions[a], i] for i, a in enumerate(rows.tolist())], -1) for x in (cos, sin))
    else:
        cos, sin = cos[positions], sin[positions]

    def rotated(x: T) -> T:
        heads = x.view(len(x), -1, head_size)
        pairs = heads.unflatten(-1, (2, -1)) if mode == "half" else heads.unflatten(-1, (-1, 2)).mT  # type: ignore[no-untyped-call]
        first, second = pairs.unbind(-2)
        c, s = cos[:, None], sin[:, None]
        made = torch.stack((first * c - second * s, second * c + first * s), -2)
        return (made if mode == "half" else made.mT).reshape(x.shape)

    return rotated(q), rotated(k)


def _mrope_inputs(make: InputFactory) -> Iterator[Sample]:
    for mode in ("half", "interleave"):
        both = make.integers(5, high=40), make.integers(3, 5, high=40)
        for positions, sections in zip(both, ([0, 0, 0], [16, 24, 24]), strict=True):
            rows = make.normal(5, 256), make.normal(5, 128)
            yield call(positions, *rows, make.uniform(40, 128), 128, sections, mode)


def _kv_cache(kv: T, gamma: T, cos: T, sin: T, index: T, k_cache: T, ckv_cache: T) -> tuple[T, T]:
    latent, rope = kv[:, 0].flatten(0, 1).tensor_split([512], -1)
    rotated = interleave_rope(rope, cos[:, 0].flatten(0, 1), sin[:, 0].flatten(0, 1))
    return written(rotated.unsqueeze(1), rms_norm(latent, gamma, 1e-5)[0].unsqueeze(1), k_cache, ckv_cache, index)


def _kv_inputs(make: InputFactory) -> Iterator[Sample]:
    slots = make.uniform(256, dtype=torch.float32).argsort()[:6].clone()
    angles = [make.uniform(2, 1, 3, 64) for _ in "cs"]
    kv, gamma = make.normal(2, 1, 3, 576), make.uniform(512, low=0.5, high=1.5)
    yield call(kv, gamma, *angles, slots, *[make.normal(2, 128, 1, depth) for depth in (64, 512)])


# --- quantized products ---


def codes(make: InputFactory, *shape: int) -> T:
    return make.integers(*shape, low=-128, high=128, dtype=torch.int8)


def _w8a16(x: T, weight: T, scale: T, offset: T | None = None, group: int = 0) -> T:
    scale = scale.repeat_interleave(group, 0) if group else scale
    return x @ ((weight.double() + (0 if offset is None else offset)) * scale).to(x.dtype)


def _w8a16_inputs(make: InputFactory) -> Iterator[Sample]:
    weight, x, by_column = codes(make, 128, 32), make.normal(5, 128), make.uniform(32, low=0.01, high=0.1)
    yield call(x, weight, by_column, name="by column")
    yield call(x, weight, by_column, make.integers(32, low=-9, high=9).to(make.dtype), name="with an offset")
    yield call(x, weight, make.uniform(4, 32, low=0.01, high=0.1), None, 32, name="by group")


def _w8a8(x1: T, x2: T, scale: T, rows: T | None = None, bias: T | None = None) -> T:
    total = x1.double() @ x2.double() + (0 if bias is None else bias)
    return total * scale * (1 if rows is None else rows[:, None])


def _w8a8_inputs(make: InputFactory) -> Iterator[Sample]:
    x1, x2 = codes(make, 7, 300), codes(make, 300, 32)
    scale, rows = (make.uniform(n, low=0.001, high=0.01, dtype=torch.float32) for n in (32, 7))
    bias = make.integers(32, low=-1000, high=1000, dtype=torch.int32)
    yield call(x1, x2, scale.bfloat16(), name="by column")
    yield call(x1, x2, scale.bfloat16(), rows, name="by token")
    yield call(x1, x2, scale.bfloat16(), rows, bias, name="with a bias")


def _grouped_w8a8(x: T, weight: T, scale: T, rows: T, ends: T) -> T:
    owner = (ends <= torch.arange(len(x))[:, None]).sum(1)
    return torch.einsum("rk,rkn->rn", x.double(), weight.double()[owner]) * scale[owner] * rows[:, None]


def _grouped_inputs(
    scales: torch.dtype, columns: int, high: float, ends: Sequence[int], make: InputFactory
) -> Iterator[Sample]:
    x, weight = (codes(make, *shape) for shape in ((ends[-1], 64), (len(ends), 64, columns)))
    shapes = (len(ends), columns), ends[-1:]
    scale, rows = (make.uniform(*shape, low=0.001, high=high, dtype=torch.float32) for shape in shapes)
    yield call(x, weight, scale.to(scales), rows, torch.tensor(ends), name="an expert without rows")


# --- quantized norms and gates: the definitions do not round, see entry.ties_forgiven ---


def by_row(x: T) -> tuple[T, T]:
    scale = x.abs().amax(-1) / 127
    return x / scale.unsqueeze(-1), scale


def added_norm(x1: T, x2: T, gamma: T) -> tuple[T, T]:
    return x1 + x2, rms_norm(x1 + x2, gamma)[0]


def _norm_quant(x1: T, x2: T, gamma: T, scales: T, zero_points: T) -> tuple[T, T]:
    x, normal = added_norm(x1, x2, gamma)
    return normal / scales + zero_points, x


def _norm_inputs(make: InputFactory) -> Iterator[Sample]:
    rows, gamma = (make.normal(9, 64), make.normal(9, 64)), make.uniform(64, low=0.5, high=1.5)
    points = make.integers(64, low=-5, high=6, dtype=torch.int32)
    yield call(*rows, gamma, make.uniform(64, low=0.02, high=0.1, dtype=torch.float32), points)


def _norm_dynamic(x1: T, x2: T, gamma: T, smooth: T) -> tuple[T, T, T]:
    x, normal = added_norm(x1, x2, gamma)
    return (*by_row(normal * smooth), x)


def _owners(counts: T) -> T:
    return torch.arange(len(counts)).repeat_interleave(counts)


def _call_grouped_gate(apply: Any, x: T, weight: T, scale: T, rows: T, ends: T) -> Any:
    """Multiply by weights in the format NZ, the only one that CANN takes here."""
    config, cast = npu.Npu().module.config, npu.operator("npu_format_cast")
    with for_now(partial(setattr, config, "allow_internal_format"), True, False):  # as a run sets it
        return apply(x, cast(weight, 29), ends, scale, rows)[:2]  # ACL's number of NZ


def _kronecker(x: T, p1: T, p2: T) -> tuple[T, T]:
    made = p1 @ (x @ p2)
    scale = made.abs().amax((1, 2)) / 7
    return made / scale[:, None, None], scale


def _call_kronecker(apply: Any, x: T, p1: T, p2: T) -> Any:
    words, scale = apply(x, p1, p2)
    numbers = torch.stack([(words.cpu() >> (4 * place)) & 15 for place in range(8)], -1).flatten(-2)
    return ((numbers + 8) % 16 - 8).to(torch.int8).to(words.device), scale


# --- routing ---


def routed(x: T, experts: T, _: int, first: int, last: int) -> tuple[T, T, T]:
    """Sort the rows of a range of experts. Return them, where each choice went, and counts by expert."""
    flat, places = experts.flatten(), torch.full((experts.numel(),), -1, dtype=torch.int32)
    order = torch.cat([(flat == each).nonzero().flatten() for each in range(first, last)])
    places[order] = torch.arange(len(order), dtype=torch.int32)
    return x[order // experts.shape[1]], places, torch.bincount(flat, minlength=last)[first:last]


def call_rows(apply: Any, x: T, experts: T, count: int, first: int, last: int) -> Any:
    return apply(
        x, experts, active_num=experts.numel(), expert_num=count, expert_tokens_num_type=1,
        expert_tokens_num_flag=True, quant_mode=-1, active_expert_range=[first, last], row_idx_type=0,
    )  # fmt: skip


def call_routed(apply: Any, x: T, experts: T, count: int, first: int, last: int) -> Any:
    rows, places, numbers, _ = call_rows(apply, x, experts, count, first, last)
    return rows[: int(numbers.sum())], places, numbers


def _rerouted(tokens: T, counts: T) -> tuple[T, T, T]:
    experts = torch.arange(counts.shape[1]).repeat(len(counts)).repeat_interleave(counts.flatten())
    order = experts.argsort(stable=True)
    return tokens[order], order.int(), counts.sum(0)


_halves: Callable[..., Operator] = partial(given_as_made, dtypes=HALVES)
_moved: Callable[..., Operator] = partial(_halves, exact=True)
_bf16: Callable[..., Operator] = partial(given_as_made, dtypes=("bfloat16",))
_int8: Callable[..., Operator] = partial(given_as_made, dtypes=("int8",))

OPERATORS = in_family(
    "serving",
    _halves("npu_fused_infer_attention_score", paged, _paged_inputs, part="paged", through=call_paged, terms=TERMS),
    _int8("npu_grouped_matmul", _grouped_w8a8, partial(_grouped_inputs, torch.bfloat16, 32, 0.01, (4, 4, 9, 11)),
          part="quantized", through=lambda apply, x, weight, scale, rows, ends: apply(
              [x], [weight], scale=[scale], per_token_scale=[rows], group_list=ends, split_item=3, group_type=0,
              group_list_type=0, output_dtype=torch.bfloat16)[0], outputs=("bfloat16",)),
    _halves("npu_fused_infer_attention_score_v2", paged, _paged_inputs, through=_call_paged_v2, terms=TERMS),
    _halves("_npu_paged_attention", lambda query, key, value, table, lengths, scale: paged(
        query, key, value, table, lengths.tolist(), scale, key.shape[2], ends=range(1, len(query) + 1)),
        _boost_inputs, through=_call_boost_paged, terms=TERMS),
    _halves("_npu_flash_attention", _boost_flash, lambda d: [call(
        d.normal(40, 4, 32), d.normal(40, 2, 32), d.normal(40, 2, 32), torch.tensor([3, 37], dtype=torch.int32), 0.2)],
        through=_call_boost_flash, terms=TERMS),
    _moved("_npu_reshape_and_cache", written, slots_inputs, through=on_copies(2, 3)),
    _moved("npu_scatter_pa_kv_cache", written, slots_inputs, through=on_copies(2, 3, cache_mode="Norm")),
    _moved("npu_gather_pa_kv_cache", lambda keys, values, tables, lengths: tuple(
        torch.cat([*map(partial(_read, x), tables, lengths.tolist())]) for x in (keys, values)), lambda d: [call(
        d.normal(8, 8, 2, 16), d.normal(8, 8, 2, 16), new_table(d, 2, 4), torch.tensor([9, 32], dtype=torch.int32))],
        through=_call_gathered),
    _halves("npu_attention_update", _merged, lambda d: [call(
        [d.normal(9, dtype=torch.float32) for _ in range(3)], [d.normal(9, 32) for _ in range(3)])],
        through=lambda apply, lse, parts: apply(lse, parts, 1), outputs=("", "float32"), terms=3),
    _bf16("npu_lightning_indexer", _indexer, lambda d: [call(
        d.normal(2, 5, 64, 128), d.normal(2, 70, 1, 128), d.uniform(2, 5, 64, low=0.1), 16)], through=by_name(
            "_ _ _ sparse_count", 0, layout_query="BSND", layout_key="BSND", sparse_mode=3), outputs=("int32",)),
    _bf16("npu_sparse_flash_attention", sparse, _sparse_inputs, through=_call_sparse, terms=TERMS),
    _bf16("npu_chunk_gated_delta_rule", _delta_rule, _delta_inputs, through=by_name(
        "_ _ _ initial_state actual_seq_lengths g beta scale"), terms=TERMS),
    _bf16("npu_recurrent_gated_delta_rule", _delta_rule, partial(_delta_inputs, lengths=(1, 3)), through=_call_delta,
          terms=TERMS),
    _halves("npu_interleave_rope", interleave_rope, lambda d: [call(
        d.normal(2, 4, 1, 64), d.uniform(2, 1, 1, 64), d.uniform(2, 1, 1, 64))]),
    _halves("npu_mrope", mrope, _mrope_inputs, through=by_name("_ _ _ _ _ mrope_section rotary_mode")),
    _halves("npu_kv_rmsnorm_rope_cache", _kv_cache, _kv_inputs, through=on_copies(5, 6, cache_mode="PA"), terms=512),
    _halves("npu_weight_quant_batchmatmul", _w8a16, _w8a16_inputs, through=by_name(
        "_ _ _ antiquant_offset antiquant_group_size"), terms=128),
    _halves("npu_convert_weight_to_int4pack", _w8a16, lambda d: [call(
        d.normal(5, 64), d.integers(64, 64, low=-8, high=8, dtype=torch.int32), d.uniform(64, low=0.01, high=0.1))],
        through=lambda pack, x, weight, scale: npu.operator("npu_weight_quant_batchmatmul")(x, pack(weight), scale),
        terms=64),
    _int8("npu_quant_matmul", _w8a8, _w8a8_inputs, through=by_name(
        "_ _ _ pertoken_scale bias", output_dtype=torch.bfloat16), outputs=("bfloat16",)),
    ties_forgiven(_halves("npu_add_rms_norm_quant", _norm_quant, _norm_inputs, through=by_name(
        "_ _ _ _ _", 0, 2, axis=-1, epsilon=1e-6, div_mode=True), outputs=("int8", ""), terms=64)),
    ties_forgiven(_halves("npu_add_rms_norm_dynamic_quant", _norm_dynamic, lambda d: [call(
        d.normal(9, 64), d.normal(9, 64), d.uniform(64, low=0.5, high=1.5), d.uniform(64, low=0.5, high=2))],
        through=by_name("_ _ _ smooth_scale1", 0, 3, 2, epsilon=1e-6), outputs=("int8", "float32", ""), terms=64)),
    ties_forgiven(given_as_made("npu_dequant_swiglu_quant", lambda x, weight_scale, activation_scale, groups: by_row(
        swiglu(x.double() * weight_scale[_owners(groups)] * activation_scale[:, None])), lambda d: [call(
            d.integers(9, 64, low=-20000, high=20000, dtype=torch.int32),
            *(d.uniform(*shape, low=0.001, high=0.02, dtype=torch.float32) for shape in ((3, 64), (9,))),
            torch.tensor([4, 0, 5]))], through=by_name(
        "_ weight_scale activation_scale group_index", activate_left=True, quant_mode=1),
        outputs=("int8", "float32"), dtypes=("int32",))),
    ties_forgiven(_halves(
        "npu_swiglu_quant", lambda x, smooth, counts: by_row(swiglu(x.double()) * smooth[_owners(counts)]),
        lambda d: [call(d.normal(9, 64), d.uniform(3, 32, low=0.5, high=2, dtype=torch.float32),
                        torch.tensor([4, 0, 5], dtype=torch.int32))],
        through=by_name("_ smooth_scales group_index", activate_left=True, quant_mode=1, group_list_type=1),
        outputs=("int8", "float32"))),
    ties_forgiven(_int8("npu_grouped_matmul_swiglu_quant", lambda *given: by_row(swiglu(_grouped_w8a8(*given))),
        partial(_grouped_inputs, torch.float32, 128, 0.02, (4, 4, 11)), through=_call_grouped_gate,
        outputs=("int8", "float32"), terms=64)),
    ties_forgiven(_halves("npu_kronecker_quant", _kronecker, lambda d: [call(
        d.normal(3, 16, 64), d.normal(16, 16, std=0.25), d.normal(64, 64, std=0.125))],
        through=_call_kronecker, outputs=("int8", "float32"), terms=64), within=0.05),
    given_as_made("npu_moe_init_routing_v2", routed, lambda d: [
        call(d.normal(rows, 16), choices(d, rows, experts, k), experts, first, last)
        for rows, experts, k, first, last in ((6, 4, 2, 0, 4), (17, 8, 3, 2, 6), (2049, 8, 2, 0, 8))],
        through=call_routed, outputs=("", "int32", "int64"), exact=True),
    _moved("npu_moe_re_routing", _rerouted, lambda d: [
        call(d.normal(int((counts := d.integers(3, 5, high=4)).sum()), 16), counts)],
        through=by_name("_ _", 0, 2, 3), outputs=("", "int32", "int64")),
)  # fmt: skip
