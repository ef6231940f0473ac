"""Kernels of images and regions that torch_npu calls by name: each by plain arithmetic, or by another of torch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from .kernel import T, by_name, close, floats, gradients

# --- deformable convolutions ---

HOW: dict[str, Any] = {"ksize": [3, 2], "strides": [1, 2, 1, 1], "pads": [1, 1, 2, 2], "dilations": [1, 1, 2, 1]}
LIKE_CONV: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
TAPS = 6


def _geometry(groups: int, modulated: bool) -> dict[str, Any]:
    return HOW | {"deformable_groups": groups, "modulated": modulated, "data_format": "NHWC"}


@pytest.mark.parametrize("modulated", [False, True])
def test_without_offsets_a_deformable_convolution_is_a_convolution(modulated: bool) -> None:
    x, weight = floats(2, 4, 7, 6), floats(5, 4, 3, 2, seed=1)
    wanted = F.conv2d(x, weight, **LIKE_CONV)
    offsets = torch.zeros(2, *wanted.shape[2:], (2 + modulated) * TAPS)
    offsets[..., 2 * TAPS :] = 0.5
    seen = by_name("DeformableOffsets")(x.permute(0, 2, 3, 1), offsets, **_geometry(1, modulated))
    found = F.conv2d(seen.permute(0, 3, 1, 2), weight, stride=(3, 2))
    close(found, wanted * (0.5 if modulated else 1))


def _sampled(x: T, offsets: T, groups: int) -> T:
    """Return what each tap sees, by torch's function that samples along a grid."""
    n, height, width = offsets.shape[:3]
    parts = offsets.view(n, height, width, 3, groups, 3, 2)
    rows = []
    for group, images in enumerate(x.permute(0, 3, 1, 2).chunk(groups, 1)):
        taps = []
        for tap in range(TAPS):
            row, column = divmod(tap, 2)
            moves = parts[:, :, :, :, group, row, column]
            y = (torch.arange(height) * 2 - 1 + row).view(-1, 1) + moves[..., 1]
            at = torch.arange(width) - 2 + 2 * column + moves[..., 0]
            grid = torch.stack([2 * at / (x.shape[2] - 1) - 1, 2 * y / (x.shape[1] - 1) - 1], -1)
            taps.append(F.grid_sample(images, grid, align_corners=True) * moves[..., 2].unsqueeze(1))
        seen = torch.stack(taps, -1).unflatten(-1, (3, 2))  # n, channels, height, width, 3, 2
        rows.append(seen.permute(0, 2, 4, 3, 5, 1).reshape(n, height * 3, width * 2, -1))
    return torch.cat(rows, -1)


@pytest.mark.parametrize("groups", [1, 2])
def test_offsets_move_what_a_tap_sees_and_have_gradients(groups: int) -> None:
    x, offsets = floats(2, 7, 6, 4), floats(2, 4, 8, 3 * groups * TAPS, seed=1) * 2
    found = by_name("DeformableOffsets")(x, offsets, **_geometry(groups, modulated=True))
    close(found, _sampled(x, offsets, groups), rtol=1e-3, atol=1e-4)
    grad = floats(*found.shape, seed=2)
    made = by_name("DeformableOffsetsGrad")(grad, x, offsets, **_geometry(groups, modulated=True))
    close(made, gradients(lambda x, offsets: _sampled(x, offsets, groups), grad, x, offsets), rtol=1e-2, atol=1e-3)


# --- regions ---

#: Image, left, top, right, bottom: inside, beyond the edges, without extent, far outside.
ROIS = torch.tensor(
    [[0, 1.0, 2.0, 9.0, 11.0], [1, -6, -4, 30, 25], [1, 5, 5, 5, 5], [0, 0, 1, 3, 30], [0, 70, 70, 80, 80]]
)


def _pixel(image: T, y: float, x: float) -> T:
    """Interpolate at a place by definition: zero beyond one pixel outside, the nearest pixel on the edge."""
    height, width = image.shape[-2:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(image))
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    low, right, a, b = min(top + 1, height - 1), min(left + 1, width - 1), y - top, x - left
    upper = image[:, top, left] * (1 - b) + image[:, top, right] * b
    return upper * (1 - a) + (image[:, low, left] * (1 - b) + image[:, low, right] * b) * a


def _pooled(x: T, roi: list[float], scale: float, samples: int, mode: int) -> T:
    shift = 0.5 if mode >= 2 else 0.0
    left, top = roi[1] * scale - shift, roi[2] * scale - shift
    right, bottom = (each * scale - shift for each in (roi[3] + (mode == 1), roi[4] + (mode == 1)))
    least = 0.0 if mode >= 2 else 1.0  # a region that is not aligned has one pixel at least
    high, wide = max(bottom - top, least) / 3, max(right - left, least) / 2
    made = torch.zeros(x.shape[1], 3, 2)
    down, across = (samples or max(math.ceil(each), 1) for each in (high, wide))
    for row in range(3):
        for column in range(2):
            for i in range(down):
                for j in range(across):
                    y, at = top + (row + (i + 0.5) / down) * high, left + (column + (j + 0.5) / across) * wide
                    made[:, row, column] += _pixel(x[int(roi[0])], y, at) / (down * across)
    return made


@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_a_region_is_pooled_from_samples_between_pixels(mode: int, samples: int) -> None:
    x, scale = floats(2, 3, 6, 7), 0.4
    how = {"spatial_scale": scale, "pooled_height": 3, "pooled_width": 2, "sample_num": samples, "roi_end_mode": mode}
    found = by_name("ROIAlign")(x, ROIS, **how)
    close(found, torch.stack([_pooled(x, roi, scale, samples, mode) for roi in ROIS.tolist()]))
    grad = floats(*found.shape, seed=1)
    back = by_name("ROIAlignGrad")(grad, ROIS, xdiff_shape=list(x.shape), **how)
    assert (back * x).sum().item() == pytest.approx((grad * found).sum().item(), rel=1e-4)  # pooling is linear
    assert back.shape == x.shape
    assert by_name("ROIAlign")(x, ROIS[:0], **how).shape == (0, 3, 3, 2)


def test_an_end_of_a_region_that_is_not_known_is_refused() -> None:
    how = {"spatial_scale": 1.0, "pooled_height": 2, "pooled_width": 2, "sample_num": 2}
    with pytest.raises(NotImplementedError, match="roi_end_mode 4"):
        by_name("ROIAlign")(floats(1, 1, 4, 4), torch.zeros(1, 5), roi_end_mode=4, **how)


def test_the_mask_of_boxes_to_keep() -> None:
    rows = torch.tensor(
        [[0, 0, 4, 4, 0.9], [0, 1, 4, 5, 0.8], [9, 9, 12, 12, 0.7], [0, 2, 4, 6, 0.6], [9, 9, 12, 10, 0.5]]
    )
    boxes, order, mask = by_name("NMSWithMask")(rows, iou_threshold=0.5)
    assert (boxes.tolist(), order.tolist()) == (rows.tolist(), [0, 1, 2, 3, 4])
    assert mask.tolist() == [1, 0, 1, 1, 1]  # the second shares 12 of 20 with the first, the fourth 8 of 24
    turned = rows.flip(0)
    boxes, order, mask = by_name("NMSWithMask")(turned, iou_threshold=0.5)
    assert (boxes.tolist(), order.tolist(), mask.tolist()) == (rows.tolist(), [4, 3, 2, 1, 0], [1, 0, 1, 1, 1])


#: Centre, width, height and degrees; then the area that each has in common with a box of 4 by 2 around the origin.
TURNED = (
    ((0, 0, 4, 2, 0), 8.0),
    ((0, 0, 4, 2, 180), 8.0),
    ((0, 0, 4, 2, 90), 4.0),
    ((0, 0, 1, 1, 30), 1.0),
    ((0, 0, 9, 9, 45), 8.0),
    ((2, 1, 2, 2, 45), 1.0),  # a quarter of a square that stands on its corner
    ((3, 0, 2, 2, 0), 0.0),
    ((9, 9, 2, 2, 10), 0.0),
)


@pytest.mark.parametrize("trans", [False, True])
def test_what_turned_boxes_have_in_common(trans: bool) -> None:
    def given(x: float, y: float, w: float, h: float, degrees: float) -> list[float]:
        return [x - w / 2, y - h / 2, x + w / 2, y + h / 2, degrees] if trans else [x, y, w, h, degrees]

    fixed = torch.tensor([given(0, 0, 4, 2, 0)])
    boxes = torch.tensor([given(*each) for each, _ in TURNED])
    common = torch.tensor([each for _, each in TURNED])
    close(by_name("RotatedOverlaps")(boxes.T[None], fixed.T[None], trans=trans), common.view(1, -1, 1))
    areas = torch.tensor([each[2] * each[3] for each, _ in TURNED])
    for mode, whole in (("iou", areas + 8 - common), ("iof", areas)):
        found = by_name("RotatedIou")(boxes.T[None], fixed.T[None], trans=trans, mode=mode, is_cross=True, value=0.0)
        close(found, (common / whole).view(1, -1, 1))
    with pytest.raises(NotImplementedError, match="is_cross"):
        by_name("RotatedIou")(boxes.T[None], fixed.T[None], trans=trans, mode="iou", is_cross=False)


def test_boxes_turn_from_x_to_y() -> None:
    turned = torch.tensor([[[0.0], [0], [8], [1], [45]]])  # along x = y
    places = torch.tensor([[2.0, 2, 1, 1, 0], [2, -2, 1, 1, 0]]).T[None]
    found = by_name("RotatedOverlaps")(turned, places, trans=False)[0, 0]
    assert found[0] > 0.8
    assert found[1] == 0


def test_turned_boxes_relative_to_anchors_and_back() -> None:
    anchor, truth = (
        torch.tensor([[[a], [b], [c], [d], [e]]]) for a, b, c, d, e in ((0.0, 0, 4, 2, 45), (2.0, 1, 4, 5, 0))
    )
    weight = [1.0, 2.0, 1.0, 1.0, 0.5]
    deltas = by_name("RotatedBoxEncode")(anchor, truth, weight=weight)
    wanted = [(3 - 2) / 4, 2 * (3 - 1) / 2, math.log(2 / 4), math.log(4 / 2), 0.5 * (0 - 1)]
    close(deltas.flatten(), torch.tensor(wanted))
    close(by_name("RotatedBoxDecode")(anchor, deltas, weight=weight), truth)


# --- slices and choices ---

SLICES: dict[str, tuple[Any, dict[str, int], list[tuple[int, int, int]]]] = {
    "plain": (np.s_[1:3, 0:4:2], {}, [(1, 3, 1), (0, 4, 2)]),
    "backwards": (np.s_[3:0:-2, ::-1], {"begin_mask": 2, "end_mask": 2}, [(3, 0, -2), (0, 0, -1)]),
    "from the end": (np.s_[-2:, :-1], {"begin_mask": 2, "end_mask": 1}, [(-2, 0, 1), (0, -1, 1)]),
    "an index": (np.s_[2, 1:3], {"shrink_axis_mask": 1}, [(2, 3, 1), (1, 3, 1)]),
    "an ellipsis": (np.s_[..., 1], {"ellipsis_mask": 1, "shrink_axis_mask": 2}, [(0, 0, 1), (1, 2, 1)]),
    "a new dimension": (np.s_[None, 1:2], {"new_axis_mask": 1}, [(0, 0, 1), (1, 2, 1)]),
    "nothing": (np.s_[2:2], {}, [(2, 2, 1)]),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_strided_slice_is_an_index(name: str) -> None:
    index, masks, entries = SLICES[name]
    x = torch.arange(40).view(4, 5, 2)
    kinds = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    found = by_name("StridedSlice")(x, *torch.tensor(entries).T, **(dict.fromkeys(kinds, 0) | masks))
    assert found.tolist() == x.numpy()[index].tolist()


@pytest.mark.parametrize("count", [2, 6])
def test_some_true_elements_are_chosen(count: int) -> None:
    x = torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=torch.bool)
    places, real = by_name("RandomChoiceWithMask")(x, count=count, seed=3, seed2=4)
    kept = places[real].tolist()
    assert (places.shape, len(kept)) == ((count, 2), min(count, 4))
    assert kept == sorted(kept)
    assert all(x[tuple(each)] for each in kept)
    assert len({tuple(each) for each in kept}) == len(kept)
    assert not places[~real].any()


def test_which_are_chosen_depends_on_the_seed() -> None:
    x = torch.ones(50, dtype=torch.bool)
    chosen = [
        by_name("RandomChoiceWithMask")(x, count=5, seed=seed, seed2=0)[0].flatten().tolist() for seed in (1, 1, 2)
    ]
    assert chosen[0] == chosen[1] != chosen[2]
