"""What freed memory holds: filled on purpose, so that whoever reads it unasked gives himself away."""

from __future__ import annotations

import torch

#: By name, 32 bits that are written all over: NaN in float32; large numbers in any format; NaN in 16 bits and -1 in
#: integers; zeros, with which many a mistake looks right.
PATTERNS = {"NaN": 0x7FC00000, "0x7F": 0x7F7F7F7F, "0xFF": -1, "zeros": 0}

#: Bytes of one tensor: the caching allocators of torch and torch_npu cut what has up to 1 MiB from segments of their
#: own, in steps of 512 bytes.
SIZES = tuple(2**exponent for exponent in range(20, 8, -1))
#: Gaps of any size that are filled between what is in use, piece by piece.
GAPS = 3


def poison(device: torch.device, pattern: int) -> None:
    """Fill the memory that the next small tensors are put into: what the allocator holds and nobody uses."""
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()
        held = [_filled(size, device, pattern) for size in SIZES for _ in range(GAPS)]
        held.clear()


def _filled(size_bytes: int, device: torch.device, pattern: int) -> torch.Tensor:
    # Allocators add some bytes to each tensor, which is to stay in its class all the same.
    return torch.full(((size_bytes - 64) // 4,), pattern, dtype=torch.int32, device=device)
