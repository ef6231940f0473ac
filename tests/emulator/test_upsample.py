"""Sampling at other places gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, assert_same, floats
from .kernel import called

MODES = (
    *(("nearest", dimensions) for dimensions in (1, 2, 3)),
    *(("nearest-exact", dimensions) for dimensions in (1, 2, 3)),
    ("linear", 1),
    ("bilinear", 2),
    ("bicubic", 2),
    ("trilinear", 3),
)
SIZES = {"up": {"scale_factor": 1.7}, "down": {"scale_factor": 0.6}, "to a size": {"size": (9, 4, 7)}}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("target", SIZES)
@pytest.mark.parametrize(("mode", "dimensions"), MODES)
def test_resizing_and_its_gradient(mode: str, dimensions: int, target: str, dtype: torch.dtype) -> None:
    options = dict(SIZES[target])
    if isinstance(size := options.get("size"), tuple):
        options["size"] = size[:dimensions]
    assert_same(F.interpolate, floats(2, 3, *(5, 6, 7)[:dimensions], dtype=dtype), mode=mode, backward=True, **options)


@pytest.mark.parametrize(("mode", "dimensions"), [each for each in MODES if "nearest" not in each[0]])
def test_resizing_with_aligned_corners(mode: str, dimensions: int) -> None:
    assert_same(
        F.interpolate,
        floats(2, 3, *(5, 6, 7)[:dimensions]),
        scale_factor=2,
        mode=mode,
        align_corners=True,
        backward=True,
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode: str) -> None:
    assert_same(F.interpolate, floats(2, 3, 9, 9), size=(5, 4), mode=mode, antialias=True, backward=True)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_along_a_grid(mode: str, padding: str) -> None:
    image, grid = floats(2, 3, 6, 6), floats(2, 4, 5, 2, seed=1) * 0.5
    assert_same(F.grid_sample, image, grid, mode=mode, padding_mode=padding, align_corners=False, backward=True)


def test_sampling_along_a_grid_in_space() -> None:
    assert_same(
        F.grid_sample, floats(2, 3, 4, 4, 4), floats(2, 4, 4, 5, 3, seed=1) * 0.5, align_corners=True, backward=True
    )


def test_affine_grid() -> None:
    assert_same(F.affine_grid, floats(2, 2, 3), (2, 3, 4, 5), align_corners=False, backward=True)


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [(0.0, 4, [0, 0, 1, 1]), (1.0, 4, [0, 0, 1, 1]), (4.0, 4, [0, 0, 0, 0]), (1.0, 2, [0, 1])],
)
def test_a_scale_of_1_for_another_size_is_none(given: float, wanted: int, expected: list[int]) -> None:
    """torch_npu 2.5.1 gives 1 where a caller names sizes only."""
    found = called("UpsampleNearest1dV2", torch.arange(2.0).view(1, 1, 2), [wanted], given)
    assert found.flatten().tolist() == expected
