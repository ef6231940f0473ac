"""Formats of eight and four bits: every number, and every rounding, as ml_dtypes has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suites.fused.families.short import E2M1, E4M3, E5M2, Format, packed, scales, unpacked

ml_dtypes = pytest.importorskip("ml_dtypes")
NAMES = {"float8_e4m3fn": E4M3, "float8_e5m2": E5M2, "float4_e2m1fn": E2M1}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_numbers_and_roundings_are_those_of_ml_dtypes(name: str, kind: Format) -> None:
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(len(kind.numbers)).astype(np.uint8)
    assert np.array_equal(codes.view(dtype).astype(np.float64), kind.numbers.numpy(), equal_nan=True)
    hard = kind.hard()
    inside = hard[hard.abs() <= kind.largest]
    theirs = inside.numpy().astype(dtype).view(np.uint8)
    assert np.array_equal(kind.nearest(inside).numpy(), theirs)
    assert kind.numbers[kind.nearest(hard).long()].abs().max() == kind.largest  # what is beyond saturates


def test_wrong_roundings_differ() -> None:
    """Half away from zero, and truncation, are other codes for some of the hard numbers of each format."""
    for kind in NAMES.values():
        hard = kind.hard()
        up = kind.nearest(hard * (1 + 2.0**-40))
        down = kind.nearest(hard * (1 - 2.0**-40))
        assert (up != kind.nearest(hard)).any()
        assert (down != kind.nearest(hard)).any()


def test_scales_and_pairs() -> None:
    codes = torch.arange(256).to(torch.uint8)
    theirs = codes.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert np.array_equal(scales(codes).numpy(), theirs, equal_nan=True)
    nibbles = torch.arange(16, dtype=torch.uint8)
    assert packed(nibbles)[:2].tolist() == [0x10, 0x32]
    assert torch.equal(unpacked(packed(nibbles)), nibbles)
