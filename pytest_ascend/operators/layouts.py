"""Putting a tensor onto a device in other layouts than the usual one: the same numbers, elsewhere in memory.

What lies between and before the elements is poison, so that a kernel which reads there, or writes, shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

#: What stands where no element is: a NaN would hide in integers, a large number in floats.
_POISON: Mapping[bool, float] = {True: float("nan"), False: 77}
#: Elements before the first one, and between two.
OFFSET, STEP = 3, 2

Placing: TypeAlias = Callable[[torch.Tensor, torch.device], torch.Tensor]


def contiguous(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place as usual; what is expanded here is expanded there, with stride 0."""
    if tensor.ndim > 1 and tensor.stride(0) == 0:
        return tensor[:1].to(device).expand(tensor.shape)
    return tensor.to(device)


def as_it_is(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place with the strides that the tensor has: what lies between the elements comes along."""
    if tensor.is_contiguous() or not tensor.numel():
        return tensor.to(device)
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    whole = tensor.as_strided((span,), (1,)).to(device)
    return whole.as_strided(tensor.shape, tensor.stride(), 0)


def transposed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place with the first and the last dimension exchanged in memory."""
    return tensor.transpose(0, -1).contiguous().to(device).transpose(0, -1) if tensor.ndim > 1 else tensor.to(device)


def stepped(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place every other element of a larger tensor, from an offset on."""
    if not tensor.ndim:
        return shifted(tensor, device)
    return steps(surrounded(tensor).to(device))


def surrounded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a larger tensor that holds ``tensor`` in steps along its last dimension, and poison elsewhere."""
    whole = poisoned((*tensor.shape[:-1], OFFSET + STEP * tensor.shape[-1]), tensor.dtype)
    steps(whole).copy_(tensor)
    return whole


def steps(whole: torch.Tensor) -> torch.Tensor:
    """Return the part of a surrounding tensor that holds the elements."""
    return whole[..., OFFSET::STEP]


def shifted(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place without gaps, but not at the start of the memory."""
    whole = poisoned((OFFSET + tensor.numel(),), tensor.dtype)
    whole[OFFSET:] = tensor.reshape(-1)
    return whole.to(device)[OFFSET:].view(tensor.shape)


def channels_last(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place an image with its channels beside one another."""
    if tensor.ndim != 4:
        return tensor.to(device)
    return tensor.permute(0, 2, 3, 1).contiguous().to(device).permute(0, 3, 1, 2)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor full of what no result has."""
    return torch.full(shape, _POISON[dtype.is_floating_point], dtype=dtype)


#: By the name that a verdict shows.
LAYOUTS: Mapping[str, Placing] = {
    "transposed": transposed,
    "stepped": stepped,
    "shifted": shifted,
    "channels-last": channels_last,
}


def onto(device: torch.device, placing: Placing = contiguous) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function that places a tensor there, in that layout."""
    return lambda tensor: placing(tensor, device)


def changes(placing: Placing, tensor: torch.Tensor) -> bool:
    """Whether a layout places this tensor otherwise than usual."""
    if placing is channels_last:
        return tensor.ndim == 4 and tensor.numel() > 0
    return tensor.numel() > 0 and (tensor.ndim > 1 if placing is transposed else tensor.ndim > 0)
