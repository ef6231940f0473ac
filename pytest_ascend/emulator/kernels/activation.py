"""Activation functions and their gradients, and rotary position embeddings.

Those that only NPUs have as one operator are missing in PyTorch: computed in float32 and rounded once.
"""

from __future__ import annotations

import math

import torch

from pytest_ascend.emulator.registry import T, aten


def gelu(self: T, *, out: T) -> T:
    """Compute GELU by its tanh formula, the only one of aclnnGelu (CANN, golden of activation/gelu in ops-nn).

    In float16, torch's kernels give Inf or NaN for GELU of +Inf, depending on the processor: Inf is correct.
    """
    aten.gelu.out(self, approximate="tanh", out=out)
    return out.masked_fill_(self == torch.inf, torch.inf) if self.dtype == torch.float16 else out


def nan_to_num(self: T, nan: float, posinf: float, neginf: float, *, out: T) -> None:
    """Replace values; the default replacement of infinity, the largest float64, does not fit CANN's float."""
    is_default = self.dtype == torch.float64
    high, low = (None if is_default and math.isinf(value) else value for value in (posinf, neginf))
    torch.nan_to_num(self, nan, high, low, out=out)


#: CANN's numbers for which elements are rotated together: both halves of a head, or neighbours.
HALF, INTERLEAVE = 0, 1


def _turned(x: T, mode: int) -> T:
    if mode == HALF:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    if mode == INTERLEAVE:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    raise NotImplementedError(f"rotary mode {mode} is not implemented")


def rotary_position_embedding(x: T, cos: T, sin: T, mode: int) -> T:
    wide = x.float()
    return wide * cos.float() + _turned(wide, mode) * sin.float()


def apply_rotary_pos_emb(query: T, key: T, cos: T, sin: T, _layout: int, mode: str = "half") -> None:
    for x in (query, key):
        x.copy_(rotary_position_embedding(x, cos, sin, INTERLEAVE if mode == "interleave" else HALF))


def _of_sections(angles: T, sections: list[int], interleaved: bool) -> T:
    """Select for each frequency among positions (3, tokens, frequencies) of time, height and width."""
    made = angles[0].clone()
    if interleaved:
        for axis in (1, 2):
            made[:, axis : sections[axis] * 3 : 3] = angles[axis, :, axis : sections[axis] * 3 : 3]
        return made
    return torch.cat([part[axis] for axis, part in enumerate(torch.split(angles, sections, -1))], -1)


def rope_with_cache(
    positions: T, query: T, key: T, cache: T, sections: list[int] | None, head: int, is_neox: bool, cache_mode: int = 0
) -> tuple[T, T]:
    """Rotate the first dimensions of each head by cosines and sines of its position, for which the cache has a row."""
    cos, sin = cache.float()[positions.long()].chunk(2, -1)
    if positions.dim() == 2:
        cos, sin = (_of_sections(each, list(sections or ()), cache_mode == 1) for each in (cos, sin))
    mode = HALF if is_neox else INTERLEAVE
    cos, sin = (torch.cat((x, x), -1) if is_neox else x.repeat_interleave(2, -1) for x in (cos, sin))
    made = []
    for x in (query, key):
        heads = x.float().view(len(x), -1, head)
        front, rest = heads[..., : cos.shape[-1]], heads[..., cos.shape[-1] :]
        turned = rotary_position_embedding(front, cos.unsqueeze(1), sin.unsqueeze(1), mode)
        made.append(torch.cat((turned, rest), -1).view(x.shape))
    return made[0], made[1]
