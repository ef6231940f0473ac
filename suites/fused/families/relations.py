"""A serving operator called in several ways that must agree: other blocks, no blocks, chunks, other orders.

Each way is one output of the case, restored to the first one's order, and compared with the same float64 result within
the usual tolerance: two orders of summation need not give equal bits. If only addresses or unread data differ, bits
must be equal: CANN splits attention by lengths and by the table's shape, not by its blocks (ProcessBlockTable in
incre_flash_attention_tiling.cpp, hicann/ops-transformer c29bc10), and is deterministic. A table of another length, no
table, and another batch are split differently (maxBlockNumPerBatch_, batchSize_ there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import HALVES

from ..entry import given_as_made, in_family, on_copies
from . import serving
from .routing import choices

T = torch.Tensor

_SCALE, _KV_HEADS = 0.25, 2


def _heads_turned(x: T) -> T:
    return x.view(*x.shape[:-1], _KV_HEADS, -1).flip(-2).flatten(-2)


def _decoding(apply: Any, query: T, key: T, value: T, table: T, lengths: Sequence[int]) -> tuple[T, ...]:
    """Return as given; each sequence alone; longer table; no pages; heads reversed; and calls with equal bits.

    Those are blocks moved with their table, rows beyond the lengths, and a first block that is shared, not copied.
    """

    def run(q: T, k: T, v: T, blocks: T, counts: Sequence[int]) -> Any:
        return serving.call_paged(apply, q, k, v, blocks, counts, _SCALE, _KV_HEADS)

    rows = [each[table.long()].flatten(1, 2) for each in (key, value)]
    how = {"num_heads": 4, "num_key_value_heads": _KV_HEADS, "scale": _SCALE, "input_layout": "BSH"}
    first, last = run(query, key, value, table, lengths), len(key) - 1 - table
    is_beyond = torch.arange(rows[0].shape[1], device=key.device) >= torch.tensor(lengths, device=key.device)[:, None]
    stale = [  # no block is in the table twice
        each.index_copy(0, table.flatten().long(), old.masked_fill(is_beyond[..., None], 7.0).view(-1, *each.shape[1:]))
        for each, old in zip((key, value), rows, strict=True)
    ]
    shared = torch.cat([table[:1, :1].expand(len(table), 1), table[:, 1:]], 1)
    copied = [each.index_copy(0, table[:, 0].long(), each[shared[:, 0].long()]) for each in (key, value)]
    same = (
        (first, run(query, key.flip(0), value.flip(0), last, lengths)),
        (first, run(query, stale[0], stale[1], table, lengths)),
        (run(query, key, value, shared, lengths), run(query, copied[0], copied[1], table, lengths)),
    )
    return (
        first,
        torch.cat([run(query[i : i + 1], key, value, table[i : i + 1], [n]) for i, n in enumerate(lengths)]),
        run(query, key, value, torch.cat((table, table.flip(1)), 1), lengths),
        apply(query, *rows, actual_seq_lengths_kv=list(lengths), **how)[0],
        _heads_turned(run(_heads_turned(query), _heads_turned(key), _heads_turned(value), table, lengths)),
        torch.stack([(a == b).all() for a, b in same]),
    )


def _in_pages(apply: Any, query: T, key: T, value: T, table: T, lengths: Sequence[int]) -> tuple[T, ...]:
    found = []
    for size in (128, 64, 32, 16):  # keys of a page, in a decoding step multiples of 16: CANN splits the work by them
        parts = torch.arange(key.shape[1] // size, device=table.device, dtype=table.dtype)
        tables = (table[..., None] * len(parts) + parts).flatten(1)
        caches = [each.reshape(-1, size, each.shape[-1]) for each in (key, value)]
        found.append(serving.call_paged(apply, query, *caches, tables, lengths, _SCALE, _KV_HEADS))
    return tuple(found)


def _prefill(apply: Any, query: T, key: T, value: T, table: T, length: int) -> tuple[T, ...]:
    """Return a prompt's results computed at once, in two chunks, and token by token."""
    how = {"atten_mask": torch.ones(2048, 2048, dtype=torch.bool, device=query.device).triu(1), "sparse_mode": 3}

    def run(start: int, end: int) -> Any:
        given = query[start:end], key, value, table, [length - len(query) + end], _SCALE, _KV_HEADS
        return serving.call_paged(apply, *given, ends=[end - start], **how)

    ways = ((0, len(query)), (0, 5, len(query)), range(len(query) + 1))
    return tuple(torch.cat([run(*pair) for pair in pairwise(cuts)]) for cuts in ways)


def _turned(rows: T, numbers: Sequence[int]) -> T:
    return torch.cat(torch.split(rows, list(numbers))[::-1])


def _experts(apply: Any, x: T, weight: T, counts: Sequence[int]) -> tuple[T, ...]:
    """Return the products of each expert's rows with its weight: as given, in reverse order, each expert alone."""

    def run(rows: T, weights: T, numbers: Sequence[int]) -> Any:
        ends = torch.tensor(numbers, device=x.device).cumsum(0)
        return apply([rows], [weights], group_list=ends, split_item=3, group_type=0, group_list_type=0)[0]

    back = counts[::-1]
    parts = [(rows, weight[i : i + 1], [len(rows)]) for i, rows in enumerate(torch.split(x, list(counts))) if len(rows)]
    turned = _turned(run(_turned(x, counts), weight.flip(0), back), back)
    return run(x, weight, counts), turned, torch.cat([run(*part) for part in parts])


def _routed(apply: Any, x: T, experts: T, count: int) -> tuple[T, ...]:
    """Return the rows of each expert: as given; with experts numbered from the last; with tokens reversed."""

    def run(rows: T, choices: T) -> Any:
        return serving.call_rows(apply, rows, choices, count, 0, count)[0]

    numbers = torch.bincount(experts.cpu().flatten(), minlength=count).tolist()
    turned = torch.split(run(x.flip(0), experts.flip(0)), numbers)
    from_last = _turned(run(x, count - 1 - experts), numbers[::-1])
    return run(x, experts), from_last, torch.cat([rows.flip(0) for rows in turned])


def _stored(apply: Any, key: T, value: T, key_cache: T, value_cache: T, slots: T) -> tuple[T, ...]:
    caches, rows = (key_cache, value_cache), (key.flip(0), value.flip(0))
    write = on_copies(2, 3, cache_mode="Norm")
    return *write(apply, key, value, *caches, slots), *write(apply, *rows, *caches, slots.flip(0))


def _decoding_inputs(make: InputFactory) -> Iterator[Sample]:
    caches = [make.normal(12, 128, 32) for _ in "kv"]
    yield call(make.normal(3, 1, 64), *caches, serving.new_table(make, 3, 4), [1, 129, 512])


def _prefill_inputs(make: InputFactory) -> Iterator[Sample]:
    caches = [make.normal(3, 128, 32) for _ in "kv"]
    yield call(make.normal(12, 4, 16), *caches, serving.new_table(make, 1, 3), 300)


def _lengths_inputs(make: InputFactory) -> Iterator[Sample]:
    """Yield lengths around 128, 512 and 2,048 up to 4,096; all sequences begin at different blocks of the same 32."""
    lengths = [1, 127, 129, 511, 513, 2047, 2048, 2049, 4095, 4096]
    table, caches = serving.new_table(make, 1, 32), [make.normal(32, 128, 32) for _ in "kv"]
    tables = torch.cat([table.roll(place, 1) for place in range(len(lengths))])
    yield call(make.normal(len(lengths), 1, 64), *caches, tables, lengths, _SCALE, _KV_HEADS)


_attended: Callable[..., T] = partial(serving.paged, scale=_SCALE, kv_heads=_KV_HEADS)
_relation: Callable[..., Operator] = partial(given_as_made, dtypes=HALVES[:1])

OPERATORS = in_family(
    "serving",
    _relation("npu_fused_infer_attention_score", lambda *given: (
        *(_attended(*given),) * 5, torch.ones(3, dtype=torch.bool)), _decoding_inputs,
        part="decoding", through=_decoding, outputs=(*("",) * 5, "bool"), terms=512),
    _relation("npu_fused_infer_attention_score", lambda *given: (_attended(*given),) * 4,
              _decoding_inputs, part="pages", through=_in_pages, outputs=("",) * 4, terms=512),
    _relation("npu_fused_infer_attention_score", lambda query, key, value, table, length: (
        _attended(query, key, value, table, [length], sparse_mode=3, ends=[len(query)]),) * 3, _prefill_inputs,
        part="chunks", through=_prefill, outputs=("",) * 3, terms=300),
    _relation("npu_grouped_matmul", lambda x, weight, counts: (
        torch.cat([a @ b for a, b in zip(torch.split(x, counts), weight, strict=True)]),) * 3, lambda d: [
        call(d.normal(12, 64), d.normal(4, 64, 32), [4, 3, 0, 5])], part="permuted",
        through=_experts, outputs=("",) * 3, terms=64),
    _relation("npu_fused_infer_attention_score", serving.paged, _lengths_inputs, part="lengths",
              through=serving.call_paged, outputs=("",), terms=4096),
    _relation("npu_moe_init_routing_v2", lambda x, experts, count: (
        serving.routed(x, experts, count, 0, count)[0],) * 3, lambda d: [
        call(d.normal(17, 16), choices(d, 17, 8, 3), 8)], part="permuted", through=_routed,
        outputs=("",) * 3, exact=True),
    _relation("npu_scatter_pa_kv_cache", lambda *given: serving.written(*given) * 2, serving.slots_inputs,
              part="permuted", through=_stored, outputs=("",) * 4, exact=True),
)  # fmt: skip
