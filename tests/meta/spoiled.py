"""Faults beyond operators' usual values, one in each of many operators of CANN, to be planted all together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

T = torch.Tensor
Body = Callable[..., Any]


def _instead(wrong: Callable[..., Any]) -> Callable[[Body], Body]:
    return lambda correct: lambda *arguments: wrong(correct, *arguments)


def _halves_exchanged(correct: Body, x: T, dim: int) -> Any:
    return correct(torch.cat(x.chunk(2, dim)[::-1], dim), dim)


def _without_weight(correct: Body, x: T, gamma: T, eps: float) -> Any:
    return correct(x, torch.ones_like(gamma), eps)


def _never_tanh(correct: Body, x: T, dim: int, _approximate: int, left: bool) -> Any:
    return correct(x, dim, 0, left)


def _without_mask(correct: Body, *arguments: Any) -> Any:
    return correct(*arguments[:6], None, *arguments[7:])


def _without_what_was_dropped(correct: Body, *arguments: Any) -> Any:
    return correct(*arguments[:5], None, *arguments[6:])


def _densely(correct: Body, x: T, *rest: Any) -> Any:
    return correct(
        torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset()), *rest
    )


def _a_block_twice(correct: Body, x: T, *rest: Any) -> None:
    correct(x, *rest)
    if x.numel() > 8192:
        x.view(-1)[4096:8192] = x.view(-1)[:4096]


def _tail_unwritten(correct: Body, x: T, *rest: Any) -> None:
    left = x.clone().view(-1)[-3:]
    correct(x, *rest)
    x.view(-1)[-3:] = left


def _too_often(correct: Body, x: T, probability: Any, *rest: Any) -> None:
    correct(x, float(probability) * 1.05, *rest)


def _always_from_the_start(correct: Body, x: T, count: int, replacement: bool, seed: int, _offset: int) -> Any:
    return correct(x, count, replacement, seed, 0)


def _seed_ignored(correct: Body, n: int, _seed: int, offset: int) -> Any:
    return correct(n, 0, offset)


def _even_only(correct: Body, x: T, *rest: Any) -> None:
    correct(x, *rest)
    if x.dtype is torch.int64:
        x.bitwise_and_(~1)


def _keeps_all_on_the_way_back(correct: Body) -> Body:
    """In a forward and a backward pass, every second call is one on the way back."""
    calls: list[None] = []

    def body(x: T, mask: T, probability: float) -> Any:
        calls.append(None)
        return correct(x, mask, probability) if len(calls) % 2 else x / (1 - probability)

    return body


_calls: list[None] = []


def _noisy(correct: Body, *arguments: Any) -> Any:
    _calls.append(None)
    found = correct(*arguments)
    return torch.nextafter(found, torch.ones_like(found)) if len(_calls) % 3 == 0 else found


def _reads_past_the_end(correct: Body, x: T, *rest: Any) -> Any:
    beyond = torch.as_strided(x, (1,), (1,), x.storage_offset() + x.numel())
    return correct(x, *rest) + beyond * 0


def _otherwise_alone(correct: Body, x: T) -> Any:
    found = correct(x)
    return torch.nextafter(found, torch.zeros_like(found)) if x.shape[0] == 1 and x.dim() == 2 else found


def _clamped(correct: Body, x: T, dim: int, index: T) -> Any:
    return correct(x, dim, index.clamp(0, max(x.shape[dim] - 1, 0)))


def _as_coarse_as_bfloat16(correct: Body, left: T, right: T, cube_math_type: int) -> Any:
    if cube_math_type == 3 and left.dtype is torch.float32:
        return correct(left.bfloat16().float(), right.bfloat16().float(), 0)
    return correct(left, right, cube_math_type)


def _without_bias(correct: Body, x1: T, x2: T, bias: T, *rest: Any) -> Any:
    return correct(x1, x2, torch.zeros_like(bias), *rest)


SPOILED = {
    # torch_npu's own operators
    "aclnnSwiGlu": _instead(_halves_exchanged),
    "aclnnSwiGluGrad": _instead(lambda correct, *rest: correct(*rest) / 2),
    "aclnnRmsNorm": _instead(_without_weight),
    "aclnnGeGluV3": _instead(_never_tanh),
    "aclnnFlashAttentionScore": _instead(_without_mask),
    "aclnnFastGelu": _instead(_densely),
    # random numbers
    "aclnnInplaceUniform": _instead(_a_block_twice),
    "aclnnInplaceNormal": _instead(_tail_unwritten),
    "aclnnInplaceBernoulli": _instead(_too_often),
    "aclnnMultinomial": _instead(_always_from_the_start),
    "aclnnRandperm": _instead(_seed_ignored),
    "aclnnInplaceRandom": _instead(_even_only),
    "aclnnDropoutDoMask": _keeps_all_on_the_way_back,
    "aclnnFlashAttentionScoreGrad": _instead(_without_what_was_dropped),
    # refusals
    "aclnnGather": _instead(_clamped),
    # stability
    "aclnnSoftmax": _instead(_noisy),
    "aclnnReduceSum": _instead(_reads_past_the_end),
    "aclnnExp": _instead(_otherwise_alone),
    # numeric modes
    "aclnnMm": _instead(_as_coarse_as_bfloat16),
    "aclnnSqrt": _instead(lambda correct, x: correct(x).nan_to_num(0.0)),
    # fused forms, augmentation
    "aclnnFusedMatmul": _instead(_without_bias),
    "aclnnMinimum": _instead(lambda correct, left, _: correct(left, left)),
}
