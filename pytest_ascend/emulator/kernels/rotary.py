"""Rotary position embedding."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

family = Family("rotary")
op = family.op
T = torch.Tensor
Optional = T | None

#: How CANN counts what is turned together: both halves of a head, or neighbours.
_HALF, _INTERLEAVE = 0, 1


def _turned(x: T, mode: int) -> T:
    if mode == _HALF:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if mode == _INTERLEAVE:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    raise NotImplementedError(f"rotary mode {mode} is not implemented")


def _turned_back(x: T, mode: int) -> T:
    return -_turned(x, mode)  # a quarter turn the other way


@family.kernel("aclnnRotaryPositionEmbedding(Tensor x, Tensor cos, Tensor sin, int64 mode, out Tensor out)")
def rotary_position_embedding(x: T, cos: T, sin: T, mode: int) -> T:
    wide = x.float()
    return wide * cos.float() + _turned(wide, mode) * sin.float()


@family.kernel(
    "aclnnRotaryPositionEmbeddingGrad(Tensor dy, Tensor cos, Tensor sin, Tensor x, int64 mode, out Tensor dx,"
    " out Tensor dcos, out Tensor dsin)"
)
def rotary_position_embedding_grad(dy: T, cos: T, sin: T, x: Optional, mode: int) -> tuple[T, Optional, Optional]:
    grad = dy.float()
    dx = grad * cos.float() + _turned_back(grad * sin.float(), mode)
    if x is None:
        return dx, None, None
    wide = x.float()
    return dx, (grad * wide).sum_to_size(cos.shape), (grad * _turned(wide, mode)).sum_to_size(sin.shape)


op(
    "aclnnRotaryPositionEmbeddingV2(Tensor x, Tensor cos, Tensor sin, int64 mode, Tensor rotate, out Tensor out)",
    lambda x, cos, sin, mode, _rotate: rotary_position_embedding(x, cos, sin, mode),
)


@family.kernel("aclnnApplyRotaryPosEmb(inout Tensor query, inout Tensor key, Tensor cos, Tensor sin, int64 layout)")
def apply_rotary_pos_emb(query: T, key: T, cos: T, sin: T, _layout: int) -> None:
    for x in (query, key):
        x.copy_(rotary_position_embedding(x, cos, sin, _HALF))


@family.kernel(
    "aclnnApplyRotaryPosEmbV2(inout Tensor query, inout Tensor key, Tensor cos, Tensor sin, int64 layout, text mode)"
)
def apply_rotary_pos_emb_v2(query: T, key: T, cos: T, sin: T, _layout: int, mode: str) -> None:
    for x in (query, key):
        x.copy_(rotary_position_embedding(x, cos, sin, _INTERLEAVE if mode == "interleave" else _HALF))
