"""Attention in one operator.

``softmaxMax`` and ``softmaxSum`` hold the logarithm of the sum and 1: ``exp(score - max) / sum`` is the softmax all the
same, and torch's own kernel, which gives this logarithm, needs the same bits back in its backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pytest_ascend.emulator.registry import Absent, aten

T = torch.Tensor
Optional = T | None


#: Layout -> the order of its dimensions as batch, heads, sequence, depth, once H is split into heads and depth.
_ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3)}


@dataclass(frozen=True)
class Attention:
    """How scores become weights. ``mask`` says what is left out; ``keep`` are dropout's bits, None where it is off."""

    scale: float
    causal: bool = False
    mask: Optional = None
    bias: Optional = None
    keep: Optional = None
    keep_prob: float = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether torch's fused kernel can do it."""
        return self.keep is None

    def added(self, like: T) -> Optional:
        """Return what is added to the scores: the bias, and minus infinity where the mask leaves out."""
        added = None if self.bias is None else self.bias.to(like.dtype)
        if self.mask is None:
            return added
        start = added if added is not None else torch.zeros((), dtype=like.dtype)
        return torch.where(self.mask, torch.full((), float("-inf"), dtype=like.dtype), start)


#: torch 2.1 has no fused attention for the CPU: there it is computed by parts.
_HAS_FUSED = not isinstance(aten._scaled_dot_product_flash_attention_for_cpu, Absent)


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

    Gives the result, and log-sum-exps (batch, heads, sequence) in float32.
    """
    k, v = _for_all_heads(k, q), _for_all_heads(v, q)
    if _HAS_FUSED and how.is_plain and q.shape[-1] == v.shape[-1]:
        return _fused(_dense(q), _dense(k), _dense(v), how)
    scores = _scores(q, k, how)
    lse = scores.logsumexp(-1)
    weights = _dropped(_weights(scores, lse), how)
    return (weights @ v.float()).to(q.dtype), lse


def _dense(x: T) -> T:
    """torch's fused kernels for the CPU read the last dimension without a look at its stride."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _fused(q: T, k: T, v: T, how: Attention) -> tuple[T, T]:
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    result: tuple[T, T] = forward(q, k, v, 0.0, how.causal, attn_mask=_expanded(how, q, k), scale=how.scale)
    return result


def attend_backward(dy: T, q: T, k: T, v: T, out: T, lse: T, how: Attention) -> tuple[T, T, T, Optional]:
    """Return the gradients of query, key, value and bias (None without one)."""
    kv_heads = k.shape[1]
    k, v = _for_all_heads(k, q), _for_all_heads(v, q)
    dbias: Optional = None
    if _HAS_FUSED and how.is_plain and how.bias is None and q.shape[-1] == v.shape[-1]:
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        mask = _expanded(how, q, k)
        dy, q, k, v, out = (_dense(each) for each in (dy, q, k, v, out))
        dq, dk, dv = backward(dy, q, k, v, out, lse, 0.0, how.causal, attn_mask=mask, scale=how.scale)
    else:
        dq, dk, dv, dbias = _plain_backward(dy, q, k, v, lse, how)
    return dq, _over_shared_heads(dk, kv_heads), _over_shared_heads(dv, kv_heads), dbias


def _plain_backward(dy: T, q: T, k: T, v: T, lse: T, how: Attention) -> tuple[T, T, T, Optional]:
    weights = _weights(_scores(q, k, how), lse)
    dy = dy.float()
    dv = _dropped(weights, how).mT @ dy
    dweights = _dropped(dy @ v.float().mT, how)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdim=True))
    dbias = None if how.bias is None else dscores.sum_to_size(how.bias.shape)
    return dscores @ k.float() * how.scale, dscores.mT @ q.float() * how.scale, dv, dbias


def _scores(q: T, k: T, how: Attention) -> T:
    scores = q.float() @ k.float().mT * how.scale
    if how.bias is not None:
        scores = scores + how.bias.float()
    left_out = how.mask
    if how.causal:
        left_out = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores if left_out is None else scores.masked_fill(left_out, float("-inf"))


def _weights(scores: T, lse: T) -> T:
    """Return the softmax; a row in which everything is left out gets no weight at all."""
    return (scores - lse.unsqueeze(-1)).exp().nan_to_num(0.0)


def _dropped(weights: T, how: Attention) -> T:
    return weights if how.keep is None else weights * how.keep / how.keep_prob


def _expanded(how: Attention, q: T, k: T) -> Optional:
    added = how.added(q)
    return None if added is None else added.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def _for_all_heads(kv: T, q: T) -> T:
    repeats = q.shape[1] // kv.shape[1]
    return kv if repeats == 1 else kv.repeat_interleave(repeats, 1)


def _over_shared_heads(gradient: T, heads: int) -> T:
    return (
        gradient
        if gradient.shape[1] == heads
        else gradient.view(gradient.shape[0], heads, -1, *gradient.shape[2:]).sum(2)
    )
