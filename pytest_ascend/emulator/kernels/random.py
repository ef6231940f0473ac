"""Random numbers. The same seed and offset give the same numbers, which are neither an NPU's nor the CPU's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from pytest_ascend.emulator.registry import T, aten

_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


def generator(seed: int | T, offset: int | T, more: int = 0) -> torch.Generator:
    """Return a generator for one call: torch_npu advances the offset from call to call.

    A captured graph reads both from tensors at each execution, and adds a number to the offset. The CPU's generator
    uses 32 bits of a seed, so all bits are mixed first (the finalizer of SplitMix64).
    """
    mixed = (int(seed) + 0x9E37_79B9_7F4A_7C15 * (int(offset) + more + 1)) & _64_BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _64_BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _64_BITS
    return torch.Generator().manual_seed(mixed ^ (mixed >> 31))


def normal_(x: T, mean: float, std: float, seed: int | T, offset: int | T, more: int = 0) -> None:
    drawn = generator(seed, offset, more)
    if x.is_complex() or x.dtype in {torch.float32, torch.float64}:
        x.normal_(mean, std, generator=drawn)
    else:  # half precision is rounded once; CANN takes integers too, and truncates fractions
        x.copy_(torch.empty(x.shape).normal_(mean, std, generator=drawn))


def rrelu_with_noise(x: T, noise: T, low: float, high: float, training: bool, seed: int, offset: int) -> T:
    drawn = torch.empty(noise.shape)  # in float32, as the CPU has no kernel for float16
    result: T = aten.rrelu_with_noise(x.float(), drawn, low, high, training, generator(seed, offset))
    if training:
        noise.copy_(drawn)
    return result


# --- dropout: a mask with one bit per element, least significant first, in whole bytes of uint8 ---


def bits_of(mask: T, shape: Sequence[int]) -> T:
    """Return the first bits of a mask, each as a separate number."""
    bits = np.unpackbits(mask.to(torch.uint8).numpy(), count=math.prod(shape), bitorder="little")
    return torch.from_numpy(bits).view(tuple(shape))


def in_bits(mask: T) -> T:
    """Pack flat elements into bits, the first in the lowest bit of the first byte; the last byte is padded with 0."""
    return torch.from_numpy(np.packbits(mask.to(torch.uint8).numpy(), bitorder="little"))


def drop_mask(probability: float, bytes_: int, seed: int | T, offset: int | T, more: int = 0) -> T:
    """Return a mask of this many bytes, in which each element is dropped with a probability."""
    drawn = generator(seed, offset, more)
    return in_bits(torch.empty(bytes_ * 8, dtype=torch.uint8).bernoulli_(1 - probability, generator=drawn))


def dropout_by_bytes(x: T, kept: T, keep: T) -> T:
    return x.float() * kept / float(keep)


def dropout_do_mask(x: T, mask: T, probability: float) -> T:
    return x.mul(bits_of(mask, x.shape)).mul_(0 if probability == 1 else 1 / (1 - probability))
