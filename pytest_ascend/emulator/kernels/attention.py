"""Attention in one operator.

``softmaxMax`` and ``softmaxSum`` hold the log-sum-exp and 1: ``exp(score - max) / sum`` is the softmax all the same,
and torch's own kernel, which returns the log-sum-exp, needs the same bits in its backward.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from pytest_ascend.emulator.kernels.random import bits_of, drop_mask
from pytest_ascend.emulator.registry import L, MissingOperator, Optional, T, aten

#: Layout -> the order of batch, heads, sequence and depth, once H is split into heads and depth.
_ORDERS = {
    "BNSD": (0, 1, 2, 3),
    "BSND": (0, 2, 1, 3),
    "BSH": (0, 2, 1, 3),
    "SBH": (1, 2, 0, 3),
    "NBSD": (1, 0, 2, 3),
}


@dataclass(frozen=True)
class Attention:
    """How scores become weights. ``mask`` marks masked scores; ``keep`` are dropout's bits, None without it.

    ``bias`` is added to the scaled scores, or, with ``scales_bias``, to the scores before they are scaled.
    """

    scale: float
    causal: bool = False
    mask: Optional = None
    bias: Optional = None
    keep: Optional = None
    keep_prob: float = 1.0
    scales_bias: bool = False

    def added(self, q: T, k: T) -> Optional:
        """Return what torch's fused kernel adds to the scores: the bias, and minus infinity where masked out."""
        added = None if self.bias is None else self.bias.to(q.dtype)
        if self.mask is not None:
            added = torch.zeros((), dtype=q.dtype) if added is None else added
            added = added.masked_fill(self.mask, float("-inf"))
        return None if added is None else _dense(added.expand(*q.shape[:3], k.shape[2]))


#: torch 2.1 has no fused attention for the CPU: it is computed step by step.
_HAS_FUSED = not isinstance(aten._scaled_dot_product_flash_attention_for_cpu, MissingOperator)


def to_bnsd(tensor: T, layout: str, depth: int) -> T:
    """Return a view as batch, heads, sequence, depth."""
    if layout.endswith("H"):
        tensor = tensor.view(*tensor.shape[:-1], -1, depth)
    return tensor.permute(_ORDERS[layout])


def from_bnsd(tensor: T, layout: str) -> T:
    """Undo :func:`to_bnsd`."""
    order = _ORDERS[layout]
    tensor = tensor.permute([order.index(axis) for axis in range(4)])
    return tensor.flatten(-2) if layout.endswith("H") else tensor


def attend(q: T, k: T, v: T, how: Attention) -> tuple[T, T]:
    """Attend over (batch, heads, sequence, depth).

    Returns the result, and log-sum-exps (batch, heads, sequence) in float32.
    """
    k, v = _for_all_heads(k, q), _for_all_heads(v, q)
    if _is_for_fused(q, k, v, how):
        forward = aten._scaled_dot_product_flash_attention_for_cpu
        dense = (_dense(each) for each in (q, k, v))
        return forward(*dense, 0.0, how.causal, attn_mask=how.added(q, k), scale=how.scale)  # type: ignore[no-any-return]
    scores = _scores(q, k, how)
    lse = scores.logsumexp(-1)
    # Not by ``lse``: of scores of some thousands it has three digits behind the point.
    softmax = scores.softmax(-1).masked_fill(lse.isneginf().unsqueeze(-1), 0.0)
    weights = _dropped(softmax, how)
    return (weights @ v.float()).to(q.dtype), lse


def _is_for_fused(q: T, k: T, v: T, how: Attention) -> bool:
    """Whether torch's fused kernels support these.

    They add the bias last, in the dtype of the scores, and divide by zero if a dimension is empty.
    """
    is_plain = how.keep is None and (how.bias is None or not how.scales_bias)
    has_all = q.numel() > 0 and k.numel() > 0 and v.numel() > 0
    return _HAS_FUSED and is_plain and q.shape[-1] == v.shape[-1] and has_all


def _dense(x: T) -> T:
    """Make the last dimension contiguous: torch's fused kernels for the CPU ignore its stride."""
    return x if x.stride(-1) == 1 else x.contiguous()


def attend_backward(dy: T, q: T, k: T, v: T, out: T, lse: T, how: Attention) -> tuple[T, T, T, Optional]:
    """Return the gradients of query, key, value and bias (None without one)."""
    kv_heads = k.shape[1]
    k, v = _for_all_heads(k, q), _for_all_heads(v, q)
    dbias: Optional = None
    if how.bias is None and _is_for_fused(q, k, v, how):
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        mask = how.added(q, k)
        dy, q, k, v, out = (_dense(each) for each in (dy, q, k, v, out))
        dq, dk, dv = backward(dy, q, k, v, out, lse, 0.0, how.causal, attn_mask=mask, scale=how.scale)
    else:
        dq, dk, dv, dbias = _plain_backward(dy, q, k, v, lse, how)
    return dq, _over_shared_heads(dk, kv_heads), _over_shared_heads(dv, kv_heads), dbias


def _plain_backward(dy: T, q: T, k: T, v: T, lse: T, how: Attention) -> tuple[T, T, T, Optional]:
    # A fully masked row has zero weights.
    weights = (_scores(q, k, how) - lse.unsqueeze(-1)).exp().nan_to_num(0.0)
    dy = dy.float()
    dv = _dropped(weights, how).mT @ dy
    dweights = _dropped(dy @ v.float().mT, how)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdim=True))
    dbias = None if how.bias is None else dscores.sum_to_size(how.bias.shape) * (how.scale if how.scales_bias else 1)
    return dscores @ k.float() * how.scale, dscores.mT @ q.float() * how.scale, dv, dbias


def _scores(q: T, k: T, how: Attention) -> T:
    scores = q.float() @ k.float().mT
    bias = 0.0 if how.bias is None else how.bias.float()
    scores = (scores + bias) * how.scale if how.scales_bias else scores * how.scale + bias
    left_out = how.mask
    if how.causal:
        left_out = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores if left_out is None else scores.masked_fill(left_out, float("-inf"))


def _dropped(weights: T, how: Attention) -> T:
    return weights if how.keep is None else weights * how.keep / how.keep_prob


def _for_all_heads(kv: T, q: T) -> T:
    repeats = q.shape[1] // kv.shape[1]
    return kv if repeats == 1 else kv.repeat_interleave(repeats, 1)


def _over_shared_heads(gradient: T, heads: int) -> T:
    batches, several, *rest = gradient.shape
    return gradient if several == heads else gradient.view(batches, heads, several // heads, *rest).sum(2)


#: sparseMode, by CANN's numbers. The first two use the given mask; the others are made here, and the mask that is
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


def _drawn(q: T, k: T, keep_prob: float, seed: int | None, offset: int) -> Optional:
    """Return dropout's mask as an Ascend 950 draws it itself: torch_npu passes it a seed and an offset, and no mask.

    Source: op-plugin, FlashAttentionKernelNpuOpApi.cpp: only earlier chips get a mask of aclnnDropoutGenMaskV2.
    """
    if keep_prob >= 1 or seed is None:
        return None
    return drop_mask(1 - keep_prob, -(-q.shape[:3].numel() * k.shape[2] // 8), seed, offset)


def _split(layout: str, heads: int, query: T, *others: T) -> tuple[T, ...]:
    depth = query.shape[-1] // (heads if layout.endswith("H") else 1)
    return tuple(to_bnsd(each, layout, depth) for each in (query, *others))


#: The ``pseType`` by which the position bias is added before the scores are scaled: see aclnnFlashAttentionScoreV2.
_ADD_AND_SCALE = 1


def _how(
    q: T, k: T, pse: Optional, drop: Optional, mask: Optional, prefix: L | None, scale: float, keep_prob: float,
    before: int, after: int, mode: int, pse_type: int = _ADD_AND_SCALE,
) -> Attention:  # fmt: skip
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    causal = mode == _LEFT_UP_CAUSAL and mask is not None
    left_out = None if causal else masked_out(queries, keys, mask, prefix, before, after, mode)
    keep = bits_of(drop, (batch, heads, queries, keys)) if drop is not None and keep_prob < 1 else None
    return Attention(scale, causal, left_out, pse, keep, keep_prob, scales_bias=pse_type == _ADD_AND_SCALE)


def _statistics(lse: T) -> tuple[T, T]:
    """Return maximum and sum, each eight times as CANN stores them; see :mod:`attention` for their content."""
    eight = lse.unsqueeze(-1).expand(*lse.shape, 8)
    return eight, torch.ones(()).expand(eight.shape)


def flash_attention_score(
    query: T, key: T, value: T, pseShift: Optional, dropMask: Optional, attenMask: Optional, prefix: L | None,
    scale: float, keepProb: float, preTokens: int, nextTokens: int, headNum: int, layout: str, sparseMode: int,
    pseType: int = _ADD_AND_SCALE, seed: int | None = None, offset: int = 0,
) -> tuple[T, T, None, T]:  # fmt: skip
    q, k, v = _split(layout, headNum, query, key, value)
    drop = _drawn(q, k, keepProb, seed, offset) if dropMask is None else dropMask
    how = _how(q, k, pseShift, drop, attenMask, prefix, scale, keepProb, preTokens, nextTokens, sparseMode, pseType)
    out, lse = attend(q, k, v, how)
    return (*_statistics(lse), None, from_bnsd(out, layout))


def flash_attention_score_grad(
    query: T, key: T, value: T, dy: T, pseShift: Optional, dropMask: Optional, attenMask: Optional,
    softmaxMax: T, softmaxSum: T, softmaxIn: Optional, attentionIn: T, prefix: L | None,
    scale: float, keepProb: float, preTokens: int, nextTokens: int, headNum: int, layout: str, sparseMode: int,
    pseType: int = _ADD_AND_SCALE, seed: int | None = None, offset: int = 0,
) -> tuple[T, T, T, Optional]:  # fmt: skip
    del softmaxIn  # the two statistics say it
    q, k, v, grad, out = _split(layout, headNum, query, key, value, dy, attentionIn)
    drop = _drawn(q, k, keepProb, seed, offset) if dropMask is None else dropMask
    how = _how(q, k, pseShift, drop, attenMask, prefix, scale, keepProb, preTokens, nextTokens, sparseMode, pseType)
    dq, dk, dv, dpse = attend_backward(grad, q, k, v, out, _log_sum_exp(softmaxMax, softmaxSum), how)
    return from_bnsd(dq, layout), from_bnsd(dk, layout), from_bnsd(dv, layout), dpse


@functools.wraps(flash_attention_score_grad)
def flash_attention_score_grad_v4(**given: Any) -> tuple[T, T, T, None, None, Optional]:
    dq, dk, dv, dpse = flash_attention_score_grad(**given)
    return dq, dk, dv, None, None, dpse


def _log_sum_exp(highest: T, total: T) -> T:
    return highest[..., 0] + total[..., 0].log()


def _packed(tensor: T, where: slice) -> T:
    """Return one sequence of (tokens, heads, depth) as (1, heads, sequence, depth)."""
    return tensor[where].transpose(0, 1).unsqueeze(0)


def _packed_how(
    q: T, k: T, pse: Optional, drop: Optional, mask: Optional, scale: float, keep_prob: float, before: int, after: int,
    heads: int, q_ends: L, kv_ends: L, mode: int,
) -> Iterator[tuple[slice, slice, Attention]]:  # fmt: skip
    """Yield where queries and keys of each sequence in a packed batch are, and how it attends; lengths are cumulative.

    The bits of dropout's mask follow one another, too: sequence after sequence, each (heads, queries, keys).
    """
    if pse is not None:
        raise NotImplementedError("a position bias is not implemented for the layout TND")
    bits = None if drop is None else bits_of(drop, (drop.numel() * 8,))
    q_start = kv_start = used = 0
    for q_end, kv_end in zip(q_ends, kv_ends, strict=True):
        q_span, kv_span = slice(q_start, q_end), slice(kv_start, kv_end)
        queries, keys = q_end - q_start, kv_end - kv_start
        small = mask[:queries, :keys] if mask is not None and mode <= _ALL_MASK else mask
        how = _how(_packed(q, q_span), _packed(k, kv_span), None, None, small, None, scale, 1.0, before, after, mode)
        size = heads * queries * keys
        keep = None if bits is None else bits[used : used + size].view(1, heads, queries, keys)
        yield q_span, kv_span, replace(how, keep=keep, keep_prob=keep_prob)
        q_start, kv_start, used = q_end, kv_end, used + size


def flash_attention_var_len_score(
    q: T, k: T, v: T, pse: Optional, drop: Optional, _padding: Optional, mask: Optional, _prefix: L | None,
    q_ends: L, kv_ends: L, scale: float, keep_prob: float, before: int, after: int, heads: int,
    _layout: str, _precise: int, mode: int,
) -> tuple[T, T, None, T]:  # fmt: skip
    out, lse = q.new_zeros(*q.shape[:2], v.shape[-1]), torch.zeros(q.shape[:2])
    hows = _packed_how(q, k, pse, drop, mask, scale, keep_prob, before, after, heads, q_ends, kv_ends, mode)
    for q_span, kv_span, how in hows:
        part, part_lse = attend(_packed(q, q_span), _packed(k, kv_span), _packed(v, kv_span), how)
        out[q_span], lse[q_span] = part[0].transpose(0, 1), part_lse[0].T
    return (*_statistics(lse), None, out)


def flash_attention_unpadding_score_grad(
    q: T, k: T, v: T, dy: T, pse: Optional, drop: Optional, _padding: Optional, mask: Optional, highest: T, total: T,
    _softmax: Optional, out: T, _prefix: L | None, q_ends: L, kv_ends: L, scale: float,
    keep_prob: float, before: int, after: int, heads: int, _layout: str, _precise: int, mode: int,
) -> tuple[T, T, T, None]:  # fmt: skip
    gradients = dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    lse = _log_sum_exp(highest, total)
    hows = _packed_how(q, k, pse, drop, mask, scale, keep_prob, before, after, heads, q_ends, kv_ends, mode)
    for q_span, kv_span, how in hows:
        part_dy, part_q, part_out = (_packed(each, q_span) for each in (dy, q, out))
        part_k, part_v = (_packed(each, kv_span) for each in (k, v))
        made = attend_backward(part_dy, part_q, part_k, part_v, part_out, lse[q_span].T.unsqueeze(0), how)
        for target, span, part in zip(gradients, (q_span, kv_span, kv_span), made[:3], strict=True):
            target[span] = part[0].transpose(0, 1)
    return dq, dk, dv, None
