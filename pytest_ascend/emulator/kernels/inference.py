"""Attention for inference: prefill, decoding, and both in one operator; also over paged caches.

Each sequence is computed alone, over its own keys, in float64: no bit depends on the rest of the batch, on padding, on
the location of a page, or on the number of queries per call. As in CANN's kernels, weights are rounded to the dtype of
the values before they multiply them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_ascend.emulator.kernels.attention import masked_out, to_bnsd
from pytest_ascend.emulator.kernels.quantization import to_int8
from pytest_ascend.emulator.registry import L, Optional, T, gap
from pytest_ascend.system.dispatching import HALF

_ANY_TOKENS = 2**31 - 1
_PACKED = ("TND", "NTD")

#: keyAntiquantMode, by CANN's numbers: a scale per channel (or one for all), or per token.
_BY_CHANNEL, _BY_TOKEN = 0, 1


def attend_alone(
    q: T, k: T, v: T, scale: float, left_out: Optional = None, bias: Optional = None, sink: Optional = None
) -> tuple[T, T]:
    """Attend with one sequence: q (heads, queries, depth), k and v (fewer heads, keys, depth).

    ``left_out`` and ``bias`` broadcast to the scores; ``sink`` (heads) is one more score, whose value is zero. Return
    the result in float64 and log-sum-exps (heads, queries, 1); a query without keys has zeros and infinity.
    """
    keys, values = (each.double().repeat_interleave(q.shape[0] // k.shape[0], 0) for each in (k, v))
    scores = q.double() @ keys.mT * scale
    scores = scores if bias is None else scores + bias.double()
    scores = scores if left_out is None else scores.masked_fill(left_out, float("-inf"))
    if scores.numel() == 0:
        return scores.new_zeros(*q.shape[:2], v.shape[-1]), scores.new_full((*q.shape[:2], 1), float("inf"))
    most = scores.amax(-1, keepdim=True)
    most = most if sink is None else torch.maximum(most, sink.double().view(-1, 1, 1))
    shifted = (scores - most).exp().nan_to_num(0.0)
    total = shifted.sum(-1, keepdim=True)
    total = total if sink is None else total + (sink.double().view(-1, 1, 1) - most).exp()
    weights = shifted.to(v.dtype).double() if v.dtype in HALF else shifted
    has_none = most.isneginf()
    out = torch.where(has_none, 0.0, weights @ values / total)
    return out, torch.where(has_none, float("inf"), most + total.log())


def gathered(pages: T, blocks: T, length: int) -> T:
    """Return the first ``length`` rows (heads, length, depth) of a cache (blocks, heads, block, depth) by its table."""
    used = blocks[: -(-length // pages.shape[2])].long()
    return pages[used].transpose(0, 1).flatten(1, 2)[:, :length]


def alone(x: T, layout: str, heads: int, lengths: L | None, padding: Optional = None) -> list[T]:
    """Return a view of each sequence, as (heads, sequence, depth); lengths are end positions if packed."""
    if layout in _PACKED:
        x, ends = x.transpose(0, 1) if layout == "TND" else x, lengths or []
        return [x[:, start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if layout == "NSD":
        return [x]
    whole = to_bnsd(x, layout, x.shape[-1] // (heads if layout.endswith("H") else 1))
    if not lengths:
        return list(whole)
    count, size = whole.shape[0], whole.shape[2]
    lengths = lengths * count if len(lengths) == 1 else lengths[:count]
    if padding is None:  # the sequence is at the start of its row, or at its end
        return [each[:, :length] for each, length in zip(whole, lengths, strict=True)]
    ends = (size - padding.flatten().clamp(min=0).expand(count)).tolist()
    return [each[:, end - length : end] for each, length, end in zip(whole, lengths, ends, strict=True)]


def _mask_of(mask: Optional, place: int, queries: int, keys: int, *, rows_are_batches: bool) -> Optional:
    """Return one sequence's part of a mask or bias: (queries, keys), or with leading dimensions for batch and heads."""
    if mask is None:
        return None
    mask = mask.unsqueeze(1) if rows_are_batches and mask.dim() == 2 else mask
    mask = mask[place if len(mask) > 1 else 0] if mask.dim() > 2 else mask
    return mask[..., :queries, :keys]


def _whole_numbers(x: T, scale: Optional, offset: Optional, mode: int, place: int) -> T:
    """Undo the quantization of one sequence's keys or values (heads, keys, depth)."""
    if scale is None:
        return x
    gap(mode not in (_BY_CHANNEL, _BY_TOKEN), f"quantized keys and values by mode {mode} are not implemented")

    def fitting(values: T) -> T:
        if mode == _BY_TOKEN:
            return values.reshape(-1, values.shape[-1])[place, : x.shape[1]].double().view(1, -1, 1)
        return values.double().view(-1, 1, x.shape[-1]) if values.numel() > 1 else values.double().view(())

    return (x.double() + (0 if offset is None else fitting(offset))) * fitting(scale)


def fused_infer_attention_score(
    query: T, key: Sequence[T] | T, value: Sequence[T] | T, numHeads: int, scale: float, layout: str,
    pseShift: Optional = None, attenMask: Optional = None, actualSeqLengths: L | None = None,
    actualSeqLengthsKv: L | None = None, numKeyValueHeads: int = 0, sparseMode: int = 0,
    quantScale2: Optional = None, quantOffset2: Optional = None,
    antiquantScale: Optional = None, antiquantOffset: Optional = None, blockTable: Optional = None,
    queryPaddingSize: Optional = None, kvPaddingSize: Optional = None, keyAntiquantScale: Optional = None,
    keyAntiquantOffset: Optional = None, valueAntiquantScale: Optional = None, valueAntiquantOffset: Optional = None,
    keySharedPrefix: Optional = None, valueSharedPrefix: Optional = None, actualSharedPrefixLen: L | None = None,
    preTokens: int = _ANY_TOKENS, nextTokens: int = _ANY_TOKENS, antiquantMode: int = 0, softmaxLseFlag: bool = False,
    keyAntiquantMode: int = 0, valueAntiquantMode: int = 0, queryRope: Optional = None, keyRope: Optional = None,
    learnableSink: Optional = None,
) -> tuple[T, Optional]:  # fmt: skip
    """Attend in any layout, or ``LAYOUT_LAYOUT`` of queries and result.

    Return the result in the query's dtype and log-sum-exps (batch, heads, queries, 1) or (tokens, heads, 1) if packed.
    """
    of_keys = (keyAntiquantScale, keyAntiquantOffset, keyAntiquantMode)
    of_values = (valueAntiquantScale, valueAntiquantOffset, valueAntiquantMode)
    if keyAntiquantScale is None and antiquantScale is not None:  # one tensor: of keys, then of values
        of_keys, of_values = (
            (antiquantScale[i], None if antiquantOffset is None else antiquantOffset[i], antiquantMode) for i in (0, 1)
        )
    layout, _, out_layout = layout.partition("_")
    out_layout, heads, kv_heads = out_layout or layout, numHeads, numKeyValueHeads or numHeads
    how_packed = (heads, actualSeqLengths, queryPaddingSize)
    queries = alone(query, layout, *how_packed)
    count = len(queries)

    def all_of(caches: Sequence[T] | T) -> list[T]:
        # The keys or values of each of ``count`` sequences: from pages, a tensor for each, or one for all.
        caches = [caches] if isinstance(caches, T) else caches
        if blockTable is not None:
            lengths = actualSeqLengthsKv or []
            gap(not lengths, "a cache in pages needs actual_seq_lengths_kv")
            pages = caches[0]  # (blocks, heads, block, depth), or (blocks, block, heads * depth), or NZ
            if pages.dim() == 3:
                pages = pages.view(*pages.shape[:2], kv_heads, -1).transpose(1, 2)
            elif pages.dim() == 5:
                pages = pages.permute(0, 1, 3, 2, 4).flatten(-2)
            each_length = lengths * (count if len(lengths) == 1 else 1)
            return [gathered(pages, blocks, length) for blocks, length in zip(blockTable, each_length, strict=False)]
        if len(caches) > 1:
            parts = [alone(x, layout, kv_heads, None)[0] for x in caches]
            counts = actualSeqLengthsKv or [x.shape[1] for x in parts]
            return [x[:, :n] for x, n in zip(parts, counts, strict=False)]
        return alone(caches[0], layout, kv_heads, actualSeqLengthsKv, kvPaddingSize)

    keys, values = all_of(key), all_of(value)
    if queryRope is not None and keyRope is not None:
        turned = alone(queryRope, layout, *how_packed)
        queries = [torch.cat(each, -1) for each in zip(queries, turned, strict=True)]
        keys = [torch.cat(each, -1) for each in zip(keys, all_of(keyRope), strict=True)]
    single = layout not in _PACKED and to_bnsd(query, layout, 1).shape[2] == 1 if layout != "NSD" else False
    made, sums = [], []
    for place, (q, k, v) in enumerate(zip(queries, keys, values, strict=True)):
        k, v = _whole_numbers(k, *of_keys, place), _whole_numbers(v, *of_values, place)  # noqa: PLW2901
        if keySharedPrefix is not None and valueSharedPrefix is not None:
            first = slice((actualSharedPrefixLen or [0])[0] or None)
            k = torch.cat((alone(keySharedPrefix, layout, kv_heads, None)[0][:, first], k), 1)  # noqa: PLW2901
            v = torch.cat((alone(valueSharedPrefix, layout, kv_heads, None)[0][:, first], v), 1)  # noqa: PLW2901
        part = attenMask
        if sparseMode <= 1:
            part = _mask_of(attenMask, place, q.shape[1], k.shape[1], rows_are_batches=single)
        left = masked_out(q.shape[1], k.shape[1], part, None, preTokens, nextTokens, sparseMode)
        added = _mask_of(pseShift, place, q.shape[1], k.shape[1], rows_are_batches=False)
        out, total = attend_alone(q, k, v, scale, left, added, learnableSink)
        made.append(out)
        sums.append(total)
    out = _placed(made, query, layout, out_layout, *how_packed)
    out = out.to(query.dtype if query.is_floating_point() else torch.float16)
    if quantScale2 is not None:
        out = to_int8(out.float() * quantScale2.float() + (0 if quantOffset2 is None else quantOffset2.float()))
    if not softmaxLseFlag:
        return out, None
    return out, _placed(sums, query, layout, "TND" if layout in _PACKED else "BNSD", *how_packed).float()


def _placed(
    parts: list[T], query: T, layout: str, out_layout: str, heads: int, lengths: L | None, padding: Optional
) -> T:
    """Put the results of all sequences together, with zeros for padded queries."""
    if not parts:  # no sequence: no elements, whatever the depth
        return torch.zeros(query.shape)
    heads, _, depth = parts[0].shape
    if layout in _PACKED:
        tokens = query.shape[0 if layout == "TND" else 1]
        shape: tuple[int, ...] = (tokens, heads, depth) if out_layout == "TND" else (heads, tokens, depth)
    elif layout == "NSD":
        return parts[0] if out_layout == "NSD" else parts[0].unsqueeze(0)
    else:
        whole = to_bnsd(query, layout, query.shape[-1] // (heads if layout.endswith("H") else 1))
        b, s = whole.shape[0], whole.shape[2]
        shapes = {"BSH": (b, s, heads * depth), "BSND": (b, s, heads, depth), "NBSD": (heads, b, s, depth)}
        shape = shapes.get(out_layout, (b, heads, s, depth))
    out = torch.zeros(shape, dtype=torch.float64)
    for target, part in zip(alone(out, out_layout, heads, lengths, padding), parts, strict=True):
        target.copy_(part)
    return out


def incre_flash_attention(
    query: T, key: list[T], value: list[T], pseShift: Optional, attenMask: Optional,
    actualSeqLengths: L | None, blocktable: Optional, kvPaddingSize: Optional, numHeads: int,
    scale: float, layout: str, numKeyValueHeads: int,
) -> T:  # fmt: skip
    mask = None if attenMask is None else attenMask.view(attenMask.shape[0], 1, -1)
    return fused_infer_attention_score(
        query, key, value, numHeads, scale, layout, pseShift, mask, None, actualSeqLengths, numKeyValueHeads,
        blockTable=blocktable, kvPaddingSize=kvPaddingSize,
    )[0]  # fmt: skip


def ring_attention_update(
    out1: T, max1: T, sum1: T, out2: T, max2: T, sum2: T, _lengths: Optional, layout: str, statistics: str
) -> tuple[T, T, T]:
    """Merge two parts of attention over different keys, by their softmax statistics.

    Statistics are (..., 8), equal copies: (batch, heads, length) for SBH, (tokens, heads) for TND, ignoring lengths.
    """
    if layout == "TND" != statistics:
        raise NotImplementedError(f"statistics in the layout {statistics} for attention in {layout}: not implemented")
    most = torch.maximum(max1.float(), max2.float())
    weights = [total.float() * (each.float() - most).exp() for total, each in ((sum1, max1), (sum2, max2))]
    total = weights[0] + weights[1]
    shares = ((each / total)[..., :1] for each in weights)
    first, second = (each.permute(2, 0, 1, 3) if layout == "SBH" else each for each in shares)
    parts = (x.float().view(*first.shape[:-1], -1) for x in (out1, out2))
    return (next(parts) * first + next(parts) * second).view(out1.shape), most, total
