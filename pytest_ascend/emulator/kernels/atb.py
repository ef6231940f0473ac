"""Operations of Ascend Transformer Boost (ATB), which torch_npu calls through the C++ interface of libatb.so.

An operation gets tensors and the 32-bit words of its parameter structure, in the order of ATB's ``infer_op_params.h``.
Caches are (blocks, block, heads, depth); rows of several sequences are concatenated; masks are added to the scores.
"""

from __future__ import annotations

import struct
from typing import Any

import torch

from pytest_ascend.emulator.kernels.activation import HALF, INTERLEAVE, rotary_position_embedding  # noqa: F401  (rows)
from pytest_ascend.emulator.kernels.inference import attend_alone, gathered
from pytest_ascend.emulator.kernels.quantization import to_int8  # noqa: F401  (a row reads it)
from pytest_ascend.emulator.registry import L, Optional, T

#: PagedAttentionParam.MaskType, and the values by which both kinds of attention denote a compressed causal mask.
_SPEC, _PAGED_COMPRESSED, _COMPRESSED, _NONE, _NORM, _ALIBI = 3, 5, 3, 0, 1, 2
_PREFIX_ENCODER, _PA_ENCODER = 4, 3


def real(word: int) -> float:
    """Return the float32 with the bits of a word."""
    return float(struct.unpack("<f", struct.pack("<i", word))[0])


def _causal(queries: int, keys: int) -> T:
    return torch.arange(keys) > torch.arange(queries)[:, None] + (keys - queries)


def _packed(
    q: T, sequences: list[tuple[int, T, T]], scale: float, heads: int, kind: int, mask: Optional, *, compressed: int,
    by_token: int | None = None,
) -> T:  # fmt: skip
    """Attend with concatenated sequences: (queries, keys, values) of each.

    Rows are (tokens, heads, depth), or a query with its last two dimensions merged, and so is the result. A mask of a
    ``compressed`` kind is causal, one ``by_token`` has a row for each query, and others have one for each key.
    """
    start, made = 0, []
    rows = q.reshape(q.shape[0], heads, -1)
    if mask is not None and kind not in (compressed, by_token, _NONE, _NORM, _ALIBI):
        raise NotImplementedError(f"mask type {kind} is not implemented")
    for queries, keys, values in sequences:
        left_out, added, count = None, None, keys.shape[1]
        if kind == compressed:
            left_out = _causal(queries, count)
        elif kind != _NONE and mask is not None:
            first = start if kind == by_token else count - queries
            added = mask[..., first : first + queries, :count]
        each = rows[start : start + queries].transpose(0, 1)
        made.append(attend_alone(each, keys, values, scale, left_out, added)[0].transpose(0, 1))
        start += queries
    rest = q.new_zeros(max(0, q.shape[0] - start), *made[0].shape[1:], dtype=torch.float64)
    out = torch.cat([*made, rest]).to(q.dtype)
    return out if q.dim() == 3 else out.flatten(1)


def _of_pages(keys: Any, values: Any, counts: L, table: Any, lengths: Any) -> list[tuple[int, T, T]]:
    """Return queries, keys and values of each sequence, from paged caches."""
    caches = keys.transpose(1, 2), values.transpose(1, 2)
    return [
        (count, gathered(caches[0], blocks, length), gathered(caches[1], blocks, length))
        for count, blocks, length in zip(counts, table, lengths.tolist(), strict=False)
    ]


def paged_attention(*tensors: Optional, words: L) -> T:
    """Attend over pages; values are the first part of the keys if ``mlaVHeadSize`` (word 12) gives its length."""
    heads, scale, kind, calc, depth = words[0], real(words[1]), words[3], words[9], words[12]
    query, keys, *rest = tensors
    values = keys[..., :depth] if depth else rest.pop(0)  # type: ignore[index]
    table, lengths, *more = rest
    if words[5] or words[8] or words[10] or query is None or values is None:
        raise NotImplementedError("quantized or compressed caches are not implemented")
    mask = more.pop(0) if kind != _NONE else None
    counts = more[0].tolist() if calc else [1] * len(lengths)  # type: ignore[arg-type, union-attr]
    pages = _of_pages(keys, values, counts, table, lengths)
    return _packed(query, pages, scale, heads, kind, mask, compressed=_PAGED_COMPRESSED, by_token=_SPEC)


def self_attention(*tensors: Optional, words: L) -> T:
    """Attend with sequences of rows (PA_ENCODER), or over pages with several queries (PREFIX_ENCODER)."""
    heads, kv_heads, scale, calc, kind = words[2], words[3], real(words[5]), words[8], words[13]
    query, key, value, *rest = tensors
    if words[0] or words[10] or query is None or key is None or value is None:
        raise NotImplementedError("quantized queries and clamped scores are not implemented")
    if calc == _PREFIX_ENCODER:
        table, mask, counts, lengths = rest[:4]
        parts = _of_pages(key, value, counts.tolist(), table, lengths)  # type: ignore[union-attr]
    elif calc == _PA_ENCODER:
        mask = rest.pop(0) if kind != _NONE else None
        counts = rest[0].flatten().tolist()  # type: ignore[assignment, union-attr]
        rows = [each.reshape(len(each), kv_heads or heads, -1).transpose(0, 1) for each in (key, value)]
        ends = torch.tensor(counts).cumsum(0).tolist()
        parts = [(n, rows[0][:, end - n : end], rows[1][:, end - n : end]) for n, end in zip(counts, ends, strict=True)]  # type: ignore[arg-type]
    else:
        raise NotImplementedError(f"attention of type {calc} is not implemented")
    return _packed(query, parts, scale, heads, kind, mask, compressed=_COMPRESSED)


def placed(rows: T, cache: T, slots: T) -> T:
    """Return a cache (blocks, block, ...) with rows in their slots; rows of a negative slot are dropped."""
    made, slots = cache.clone(), slots.flatten().long()
    rows = rows[: len(slots)]
    flat = made.view(-1, *made.shape[2:])
    flat[slots[slots >= 0]] = rows[slots >= 0].reshape(-1, *flat.shape[1:])
    return made


def ring_mla(
    q: T, q_rope: T, k: T, k_rope: T, v: T, _mask: Optional, lengths: T, before: Optional, before_lse: Optional,
    _heads: int, _kv_heads: int, scale: float, _kernel: int, causal: int, _layout: int, first: int,
) -> tuple[T, T]:  # fmt: skip
    """Attend with packed sequences, and merge with an earlier result over other keys.

    ``lengths`` has the queries of each sequence, and in a second row the keys.
    """
    counts = lengths.view(-1, lengths.shape[-1]).long()
    out, lse = torch.zeros(*q.shape[:2], v.shape[-1]).double(), torch.zeros(q.shape[1], q.shape[0]).double()
    q_start = k_start = 0
    for queries, keys in zip(counts[0].tolist(), counts[-1].tolist(), strict=True):
        mine, its = slice(q_start, q_start + queries), slice(k_start, k_start + keys)
        whole_q = torch.cat((q[mine], q_rope[mine]), -1).transpose(0, 1)
        whole_k = torch.cat((k[its], k_rope[its].expand(-1, k.shape[1], -1)), -1).transpose(0, 1)
        left_out = _causal(queries, keys) if causal else None
        part, total = attend_alone(whole_q, whole_k, v[its].transpose(0, 1), scale, left_out)
        out[mine], lse[:, mine] = part.transpose(0, 1), total[..., 0]
        q_start, k_start = mine.stop, its.stop
    if not first and before is not None and before_lse is not None:
        both = torch.stack((before_lse.double(), lse))
        shares = both.softmax(0).mT.unsqueeze(-1)
        out, lse = shares[0] * before.double() + shares[1] * out, both.logsumexp(0)
    return out.to(q.dtype), lse.float()
