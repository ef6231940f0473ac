"""Convolutions, and im2col and col2im."""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.kernels.linear import ALLOW_LOWER, narrowed
from pytest_ascend.emulator.registry import L, T, aten
from pytest_ascend.system.dispatching import in_float32

# By name (older API), strides and dilations begin with two for images and channels; paddings have two per axis.


def _plane(strides: L, pads: L, dilations: L, groups: int = 1, **_: str) -> tuple[L, L, L, bool, L, int]:
    return strides[2:], pads[::2], dilations[2:], False, [0] * len(strides[2:]), groups


def gradient(grad: T, x: T, weight: T, place: int, **geometry: Any) -> T:
    mask = [place == each for each in range(3)]
    grad, x, weight = map(in_float32, narrowed(ALLOW_LOWER, grad, x, weight))
    made: tuple[T, ...] = aten.convolution_backward(grad, x, weight, None, *_plane(**geometry), mask)
    return made[place]


# --- deformable convolution: torch_npu samples with DeformableOffsets, and convolves what that returns ---


def _bilinear(image: T, y: T, x: T) -> T:
    """Sample (n, groups, height, width, channels) at positions (n, groups, ...); outside of an image it is zero."""
    n, groups, height, width, channels = image.shape
    flat = image.reshape(n, groups, height * width, channels)
    top, left = y.floor(), x.floor()
    made = torch.zeros(*y.shape, channels)
    for row, weight_y in ((top, top + 1 - y), (top + 1, y - top)):
        for column, weight_x in ((left, left + 1 - x), (left + 1, x - left)):
            is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = torch.where(is_inside, row * width + column, 0).long().reshape(n, groups, -1, 1)
            values = flat.gather(2, place.expand(-1, -1, -1, channels)).view(*y.shape, channels)
            made = made + (weight_y * weight_x * is_inside).unsqueeze(-1) * values
    return made


def deformable_offsets(
    x: T, offsets: T, *, ksize: L, strides: L, pads: L, dilations: L, deformable_groups: int, modulated: bool, **_: str
) -> T:
    """Return images (n, height * kernel, width * kernel, channels) of the samples that each convolution tap reads.

    Images are (n, height, width, channels). The offsets have channels for x, for y, and with ``modulated`` for a
    factor, each by groups of channels and then by taps. Source: Deformable ConvNets v2, arXiv:1811.11168.
    """
    (n, height, width, _channels), (rows, columns) = offsets.shape, ksize
    moves = offsets.float().view(n, height, width, 2 + modulated, deformable_groups, rows, columns).movedim(4, 1)
    y = (torch.arange(height) * strides[1] - pads[0]).view(-1, 1, 1, 1) + (torch.arange(rows) * dilations[1])[:, None]
    at = (torch.arange(width) * strides[2] - pads[2]).view(-1, 1, 1) + torch.arange(columns) * dilations[2]
    image = x.float().view(*x.shape[:3], deformable_groups, -1).movedim(-2, 1)
    seen = _bilinear(image, y + moves[:, :, :, :, 1], at + moves[:, :, :, :, 0])
    if modulated:
        seen = seen * moves[:, :, :, :, 2].unsqueeze(-1)
    return seen.permute(0, 2, 4, 3, 5, 1, 6).reshape(n, height * rows, width * columns, -1)
