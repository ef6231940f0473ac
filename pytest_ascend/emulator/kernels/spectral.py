"""Fourier transforms of windows."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

family = Family("spectral")
T = torch.Tensor


@family.kernel(
    "aclStft(Tensor self, Tensor window, out Tensor out, int64 nFft, int64 hopLength, int32 winLength, bool normalized,"
    " bool onesided, bool returnComplex)"
)
def stft(
    x: T, window: T | None, n: int, hop: int, length: int, normalized: bool, onesided: bool, as_complex: bool
) -> T:
    made = torch.stft(
        x, n, hop, length, window, center=False, normalized=normalized, onesided=onesided, return_complex=True
    )
    return made if as_complex else torch.view_as_real(made)
