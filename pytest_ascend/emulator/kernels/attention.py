"""Attention in one operator.

``softmaxMax`` and ``softmaxSum`` hold the log-sum-exp, which torch's own kernel returns, and 1: ``exp(score - max) /
sum`` still gives the softmax. Gradients are those of torch, which recomputes the attention.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from pytest_ascend.emulator.kernels.random import bits_of, drop_mask
from pytest_ascend.emulator.registry import L, Optional, T, aten, gap, gradients, is_missing

#: Layout -> the order of batch, heads, sequence and depth, once H is split into heads and depth.
_ORDERS = {
    "BNSD": (0, 1, 2, 3),
    "BSND": (0, 2, 1, 3),
    "BSH": (0, 2, 1, 3),
    "SBH": (1, 2, 0, 3),
    "NBSD": (1, 0, 2, 3),
}


#: torch 2.1 has no fused attention for the CPU: it is computed step by step.
_HAS_FUSED = not is_missing(aten._scaled_dot_product_flash_attention_for_cpu)


def to_bnsd(tensor: T, layout: str, depth: int) -> T:
    """Return a view as batch, heads, sequence, depth."""
    if layout.endswith("H"):
        tensor = tensor.view(*tensor.shape[:-1], tensor.shape[-1] // max(depth, 1), depth)
    return tensor.permute(_ORDERS[layout])


def attend(
    q: T, k: T, v: T, scale: float, causal: bool = False, mask: Optional = None, bias: Optional = None,
    keep: Optional = None, keep_prob: float = 1.0, scales_bias: bool = False,
) -> tuple[T, T]:  # fmt: skip
    """Attend over (batch, heads, sequence, depth).

    ``mask`` marks masked scores; ``keep`` are dropout's bits, None without it. ``bias`` is added to the scaled scores,
    with ``scales_bias`` to the unscaled ones. Return the result, and log-sum-exps (batch, heads, sequence) in float32.
    """
    k, v = _for_all_heads(k, q), _for_all_heads(v, q)
    if _is_for_fused(q, k, v, bias, keep, scales_bias):
        # What torch's kernel adds to the scores: the bias, and minus infinity where masked out.
        added = None if bias is None else bias.to(q.dtype)
        if mask is not None:
            added = (torch.zeros((), dtype=q.dtype) if added is None else added).masked_fill(mask, float("-inf"))
        added = None if added is None else _dense(added.expand(*q.shape[:3], k.shape[2]))
        forward = aten._scaled_dot_product_flash_attention_for_cpu
        return forward(*map(_dense, (q, k, v)), 0.0, causal, attn_mask=added, scale=scale)  # type: ignore[no-any-return]
    scores = q.float() @ k.float().mT
    shift = 0.0 if bias is None else bias.float()
    scores = (scores + shift) * scale if scales_bias else scores * scale + shift
    left_out = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) if causal else mask
    scores = scores if left_out is None else scores.masked_fill(left_out, float("-inf"))
    lse = scores.logsumexp(-1)
    none = lse.isneginf().unsqueeze(-1)  # everything is masked out: weights and gradients are zero
    # Not from ``lse``: for scores in the thousands it has only three decimal places.
    weights = scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    weights = weights if keep is None else weights * keep / keep_prob
    return (weights @ v.float()).to(q.dtype), lse


def _is_for_fused(q: T, k: T, v: T, bias: Optional = None, keep: Optional = None, scales_bias: bool = False) -> bool:
    """Return whether torch's fused kernels support these arguments.

    They add the bias last, in the dtype of the scores, without a gradient, and divide by zero if a dimension is empty.
    """
    is_plain = keep is None and (bias is None or not (scales_bias or bias.requires_grad))
    has_all = q.numel() > 0 and k.numel() > 0 and v.numel() > 0
    return _HAS_FUSED and is_plain and q.shape[-1] == v.shape[-1] and has_all


def _dense(x: T) -> T:
    """Make the last dimension contiguous: torch's fused kernels for the CPU ignore its stride."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _for_all_heads(kv: T, q: T) -> T:
    repeats = q.shape[1] // kv.shape[1]
    return kv if repeats == 1 else kv.repeat_interleave(repeats, 1)


#: sparseMode, by CANN's numbers. The first two use the given mask; the others are generated here, and the mask that is
#: passed, of 2048 x 2048, adds nothing.
_ALL_MASK, _LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL, _BAND, _PREFIX, _PREFIX_COMPRESSED = 1, 2, 3, 4, 5, 6


def masked_out(
    queries: int, keys: int, mask: Optional, prefix: L | None, before: int, after: int, mode: int
) -> Optional:
    """Return which scores are masked out (True), or None if none are."""
    if mask is None:
        return None
    if mode <= _ALL_MASK:
        return mask.bool()
    distance = torch.arange(keys) - torch.arange(queries)[:, None]
    distance = distance if mode == _LEFT_UP_CAUSAL else distance - (keys - queries)
    if mode == _BAND:
        return (distance > after) | (distance < -before)
    if mode in (_PREFIX, _PREFIX_COMPRESSED):
        return (distance > 0) & (torch.arange(keys) >= torch.tensor(prefix)[:, None, None, None])
    if mode in (_LEFT_UP_CAUSAL, _RIGHT_DOWN_CAUSAL):
        return distance > 0
    raise NotImplementedError(f"sparse mode {mode} is not implemented")


#: The ``pseType`` by which the position bias is added before the scores are scaled: see aclnnFlashAttentionScoreV2.
_ADD_AND_SCALE = 1


def _parts(x: T, layout: str, depth: int, ends: L | None) -> list[T]:
    """Return views as (batch, heads, sequence, depth): one of everything, or one per sequence if packed."""
    if layout != "TND":
        return [to_bnsd(x, layout, depth)]
    spans = zip([0, *(ends or [])], ends or [], strict=False)
    return [x[start:end].transpose(0, 1).unsqueeze(0) for start, end in spans]


def _joined(parts: list[T], layout: str, whole: T) -> T:
    """Join parts in the layout; packed rows that belong to no sequence are taken from ``whole``.

    Not written in place: torch_npu's backward calls CANN where torch does not track changes of views.
    """
    if layout != "TND":
        made = parts[0].permute(torch.tensor(_ORDERS[layout]).argsort().tolist())
        return made.flatten(-2) if layout.endswith("H") else made
    rows = [each[0].transpose(0, 1) for each in parts]
    return torch.cat([*rows, whole[sum(map(len, rows)) :]])


def flash_attention_score(
    query: T, key: T, value: T, pseShift: Optional, dropMask: Optional, attenMask: Optional, prefix: L | None,
    scale: float, keepProb: float, preTokens: int, nextTokens: int, headNum: int, layout: str, sparseMode: int,
    pseType: int = _ADD_AND_SCALE, seed: int | None = None, offset: int = 0, actualSeqQLen: L | None = None,
    actualSeqKvLen: L | None = None,
) -> tuple[T, T, None, T]:  # fmt: skip
    """Return maximum and sum, each eight times as CANN stores them (see :mod:`attention`), and the result.

    Dropout's bits are concatenated: (batch, heads, queries, keys) of each part. An Ascend 950 draws them itself:
    torch_npu passes it a seed and an offset, and no mask. Source: op-plugin, FlashAttentionKernelNpuOpApi.cpp: only
    earlier chips get a mask of aclnnDropoutGenMaskV2.
    """
    is_packed, depth = layout == "TND", query.shape[-1] // (headNum if layout.endswith("H") else 1)
    gap(is_packed and pseShift is not None, "a position bias is not implemented for the layout TND")
    queries = _parts(query, layout, depth, actualSeqQLen)
    keys, values = (_parts(each, layout, depth, actualSeqKvLen) for each in (key, value))
    shapes = [torch.Size((*q.shape[:3], k.shape[2])) for q, k in zip(queries, keys, strict=True)]
    drop = dropMask
    if drop is None and seed is not None and keepProb < 1:
        drop = drop_mask(1 - keepProb, -(-sum(each.numel() for each in shapes) // 8), seed, offset)
    bits, used = None if drop is None or keepProb >= 1 else bits_of(drop, (drop.numel() * 8,)), 0
    causal, made = sparseMode == _LEFT_UP_CAUSAL and attenMask is not None, []
    for q, k, v, shape in zip(queries, keys, values, shapes, strict=True):
        mask = attenMask
        if mask is not None and sparseMode <= _ALL_MASK:
            mask = mask[..., : shape[2], : shape[3]]
        left_out = None if causal else masked_out(shape[2], shape[3], mask, prefix, preTokens, nextTokens, sparseMode)
        keep = None if bits is None else bits[used : used + shape.numel()].view(shape)
        used += shape.numel()
        made.append(attend(q, k, v, scale, causal, left_out, pseShift, keep, keepProb, pseType == _ADD_AND_SCALE))
    out = _joined([each for each, _ in made], layout, query.new_zeros(*query.shape[:-1], value.shape[-1]))
    sums = [each.unsqueeze(-1) for _, each in made]
    lse = _joined(sums, "TND" if is_packed else "BNSD", torch.zeros(*query.shape[:2], 1))
    eight = lse.expand(*lse.shape[:-1], 8)
    return eight, torch.ones(()).expand(eight.shape), None, out


def flash_attention_score_grad(
    query: T, key: T, value: T, dy: T, pseShift: Optional, dropMask: Optional, attenMask: Optional,
    softmaxMax: T, softmaxSum: T, softmaxIn: Optional, attentionIn: T, prefix: L | None,
    scale: float, keepProb: float, preTokens: int, nextTokens: int, headNum: int, layout: str, sparseMode: int,
    pseType: int = _ADD_AND_SCALE, seed: int | None = None, offset: int = 0, actualSeqQLen: L | None = None,
    actualSeqKvLen: L | None = None,
) -> tuple[T, T, T, Optional]:  # fmt: skip
    """Return the gradients of query, key, value and, if there is one, bias, by recomputing the attention."""
    del softmaxMax, softmaxSum, softmaxIn, attentionIn  # recomputed

    def attended(query: T, key: T, value: T, bias: Optional = None) -> T:
        return flash_attention_score(
            query, key, value, bias, dropMask, attenMask, prefix, scale, keepProb, preTokens, nextTokens, headNum,
            layout, sparseMode, pseType, seed, offset, actualSeqQLen, actualSeqKvLen,
        )[3]  # fmt: skip

    leaves = [query, key, value, *([] if pseShift is None else [pseShift])]
    dq, dk, dv, *dpse = gradients(attended, leaves, dy, dtype=query.dtype)
    return dq, dk, dv, dpse[0] if dpse else None


@functools.wraps(flash_attention_score_grad)
def flash_attention_score_grad_v4(**given: Any) -> tuple[T, T, T, None, None, Optional]:
    dq, dk, dv, dpse = flash_attention_score_grad(**given)
    return dq, dk, dv, None, None, dpse
