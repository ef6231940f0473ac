"""Arithmetic gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

import torch

from .both import assert_same, floats


def test_add() -> None:
    assert_same(torch.add, floats(3, 4), floats(3, 4), alpha=2)
    assert_same(torch.add, floats(3, 4), floats(3, 4), alpha=2, strided=True, backward=True)
