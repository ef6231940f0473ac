"""Attention of the emulated device."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.attention import attend


def test_a_mask_may_have_any_strides() -> None:
    made = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 8, 16, generator=made) for _ in range(3))
    mask = torch.rand(1, 1, 8, 8, generator=made) < 0.3
    columns = mask[..., :1]
    for dense, strided in ((mask, mask.mT.contiguous().mT), (columns.repeat(1, 1, 1, 8), columns.expand(1, 1, 8, 8))):
        expected, found = (attend(q, k, v, 0.25, mask=each)[0] for each in (dense, strided))
        torch.testing.assert_close(found, expected)
