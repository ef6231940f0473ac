"""Boxes in images, by plain arithmetic on one pair at a time: measures, forms of arguments, gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import all_kernels, all_named
from pytest_ascend.emulator.kernels.detection import batch_non_max_suppression, ps_roi_pooling

from .kernel import by_name

T = torch.Tensor
Box = list[float]

KERNELS: dict[str, Callable[..., Any]] = {each.name: each.body for each in (*all_named(), *all_kernels())}
#: Left, top, right and bottom: apart, overlapping, one inside the other, touching, long and flat.
BOXES = ((0, 0, 4, 3), (1, 2, 6, 4), (1, 1, 2, 3), (4, 0, 7, 9), (-3, -2, 5, 1), (10, 12, 11, 19))
TRUE = ((0, 1, 4, 5), (2, 2, 3, 4), (-1, -1, 9, 9), (5, 6, 8, 7), (1, 0, 2, 6), (-4, 3, 1, 5))


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlap(a: Box, b: Box) -> tuple[float, float]:
    """Return the areas of what both have in common, and of what either has."""
    common = max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    return common, _area(a) + _area(b) - common


def _share(a: Box, b: Box, mode: str) -> float:
    common, union = _overlap(a, b)
    return common / (union if mode == "iou" else _area(a))


def _around(a: Box, b: Box) -> Box:
    return [min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])]


def _giou(a: Box, b: Box, mode: str) -> float:
    whole = _area(_around(a, b))
    return _share(a, b, mode) - (whole - _overlap(a, b)[1]) / whole


def _diou(a: Box, b: Box, mode: str) -> float:
    (ax, ay), (bx, by) = (((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for box in (a, b))
    around = _around(a, b)
    return _share(a, b, mode) - math.dist((ax, ay), (bx, by)) ** 2 / math.dist(around[:2], around[2:]) ** 2


def _slants(a: Box, b: Box) -> float:
    one, other = (math.atan((box[2] - box[0]) / (box[3] - box[1])) for box in (a, b))
    return other - one


def _ciou(a: Box, b: Box, mode: str) -> float:
    v = 4 / math.pi**2 * _slants(a, b) ** 2
    return _diou(a, b, mode) - v * v / (1 - _share(a, b, mode) + v)


MEASURES = {"GIoU": _giou, "DIoU": _diou, "CIoU": _ciou}


def _given(boxes: Any, trans: bool) -> T:
    """Return boxes as columns; with ``trans``, as centre, width and height."""
    left, top, right, bottom = torch.tensor(boxes, dtype=torch.float32).T
    if not trans:
        return torch.stack([left, top, right, bottom])
    return torch.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top])


@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("crossed", [False, True], ids=["pairs", "each with each"])
@pytest.mark.parametrize("trans", [False, True], ids=["corners", "centres"])
@pytest.mark.parametrize("name", MEASURES)
def test_measures_of_overlap(name: str, trans: bool, crossed: bool, mode: str) -> None:
    # Each with each: a row per box, a column per true one.
    true = TRUE[:4] if crossed else TRUE
    found = KERNELS[name](_given(BOXES, trans), _given(true, trans), trans=trans, is_cross=crossed, mode=mode)
    measure, *differ = found if isinstance(found, tuple) else (found,)
    pairs = list(itertools.product(BOXES, true) if crossed else zip(BOXES, true, strict=True))
    shape = (6, 4) if crossed else (1, 6)
    wanted = torch.tensor([MEASURES[name](*map(list, pair), mode) for pair in pairs]).view(shape)
    torch.testing.assert_close(measure, wanted)
    if name == "CIoU":
        torch.testing.assert_close(differ[0], torch.tensor([_slants(*map(list, pair)) for pair in pairs]).view(shape))
        again = KERNELS["aclnnCIoU"](_given(BOXES, trans), _given(true, trans), trans, crossed, mode)
        assert all(map(torch.equal, again, found))
    else:
        assert not differ


@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("trans", [False, True], ids=["corners", "centres"])
@pytest.mark.parametrize("name", ["GIoU", "DIoU", "CIoU"])
def test_gradients_of_overlap(name: str, trans: bool, mode: str) -> None:
    """By differences; the weight of CIoU's aspect ratios counts as a constant there."""
    boxes, true = ([(0.0, 0, 4, 3), (1, 2, 6, 4.5)], [(0.5, 1, 4.5, 5), (2, 2.5, 3, 4)])
    grad = torch.tensor([1.0, -2.0])
    how = {"trans": trans, "is_cross": False, "mode": mode}
    given = [_given(boxes, trans), _given(true, trans)]
    found = KERNELS[f"{name}Grad"](grad, *given, **how)
    weight = [1.0, 1.0]
    if name == "CIoU":
        v = [4 / math.pi**2 * _slants(list(a), list(b)) ** 2 for a, b in zip(boxes, true, strict=True)]
        shares = [_share(list(a), list(b), mode) for a, b in zip(boxes, true, strict=True)]
        weight = [each / (1 - share + each) for each, share in zip(v, shares, strict=True)]

    def value(which: int, row: int, column: int, step: float) -> float:
        moved = [each.double() for each in given]
        moved[which][row, column] += step
        corners = []
        for each in moved:
            x, y, w, h = each[:, column].tolist()
            corners.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2] if trans else [x, y, w, h])
        if name != "CIoU":
            return MEASURES[name](*corners, mode)
        return _diou(*corners, mode) - weight[column] * 4 / math.pi**2 * _slants(*corners) ** 2

    for which, row, column in itertools.product(range(2), range(4), range(2)):
        slope = (value(which, row, column, 1e-5) - value(which, row, column, -1e-5)) / 2e-5
        assert found[which][row, column].item() == pytest.approx(slope * grad[column].item(), abs=2e-4)


def test_a_gradient_of_each_with_each_sums_over_the_others() -> None:
    boxes, true = _given(BOXES[:2], False), _given(TRUE[:3], False)
    grad = torch.arange(1.0, 7.0).view(2, 3)
    found = KERNELS["GIoUGrad"](grad, boxes, true, trans=False, is_cross=True, mode="iou")
    one_by_one = [torch.zeros_like(boxes), torch.zeros_like(true)]
    for row, column in itertools.product(range(2), range(3)):
        pair = boxes[:, row : row + 1], true[:, column : column + 1]
        made = KERNELS["GIoUGrad"](grad[row, column].view(1), *pair, trans=False, is_cross=False, mode="iou")
        one_by_one[0][:, row] += made[0][:, 0]
        one_by_one[1][:, column] += made[1][:, 0]
    torch.testing.assert_close(found, tuple(one_by_one))


@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlaps_have_a_row_per_true_box_and_are_relative_to_it(mode: str) -> None:
    boxes, true = (torch.tensor(each, dtype=torch.float32) for each in (BOXES, TRUE[:4]))
    wanted = torch.tensor([[_share(list(b), list(a), mode) for a in BOXES] for b in TRUE[:4]])
    torch.testing.assert_close(by_name("Iou")(boxes, true, mode, 0.0), wanted)
    torch.testing.assert_close(KERNELS["aclnnIou"](boxes, true, mode, 0.0, False), wanted.T)


def test_encoded_boxes_are_shifts_and_logarithms_relative_to_their_anchors() -> None:
    anchor, true = [10.0, 20.0, 19.0, 24.0], [12.0, 10.0, 31.0, 19.0]  # 10 x 5 and 20 x 10 pixels
    shifts = [(21.5 - 14.5) / 10, (14.5 - 22) / 5, math.log(2), math.log(2)]
    means, stds = [0.1, 0.2, 0.3, 0.4], [0.5, 0.25, 2.0, 4.0]
    wanted = [(each - mean) / std for each, mean, std in zip(shifts, means, stds, strict=True)]
    found = by_name("BoundingBoxEncode")(torch.tensor([anchor]), torch.tensor([true]), means, stds)
    torch.testing.assert_close(found, torch.tensor([wanted]))
    back = by_name("BoundingBoxDecode")(torch.tensor([anchor]), found, means, stds, [100, 200], 0.01)
    torch.testing.assert_close(back, torch.tensor([true]))


@pytest.mark.parametrize("clip", [0.25, 4.0])
def test_decoded_boxes_stay_in_the_image_and_in_proportion(clip: float) -> None:
    anchor = torch.tensor([[10.0, 20.0, 19.0, 24.0]]).repeat(3, 1)
    deltas = torch.tensor([[0.0, 0, 9, -9], [50, 50, 0, 0], [-50, -50, 0, 0]])
    found = by_name("BoundingBoxDecode")(anchor, deltas, [0.0] * 4, [1.0] * 4, [60, 90], clip)
    centre, half = (14.5, 22.0), ((40 - 1) / 2, (1.25 - 1) / 2)  # four times as wide, a quarter as high
    wanted = [max(centre[0] - half[0], 0), centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]]
    torch.testing.assert_close(found[0], torch.tensor(wanted))
    assert found[1].tolist() == [89, 59, 89, 59]
    assert found[2].tolist() == [0, 0, 0, 0]


#: 0 and 1 overlap by 90 %, 0 and 2 by a third, 3 is alone.
NEAR = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [0, 5, 10, 15], [50, 50, 60, 60]])


@pytest.mark.parametrize(
    ("scores", "most", "limit", "lowest", "kept"),
    [
        ([0.9, 0.8, 0.7, 0.6], 4, 0.5, 0.0, [0, 2, 3]),
        ([0.9, 0.8, 0.7, 0.6], 4, 0.3, 0.0, [0, 3]),
        ([0.8, 0.9, 0.7, 0.6], 4, 0.5, 0.0, [1, 2, 3]),
        ([0.9, 0.8, 0.7, 0.6], 4, 0.9, 0.0, [0, 1, 2, 3]),
        ([0.9, 0.8, 0.7, 0.6], 2, 0.9, 0.0, [0, 1]),
        ([0.9, 0.8, 0.7, 0.5], 4, 0.5, 0.5, [0, 2]),
        ([0.1, 0.1, 0.1, 0.1], 4, 0.5, 0.5, []),
        ([0.5, 0.5, 0.5, 0.5], 4, 0.5, 0.0, [0, 2, 3]),
    ],
)
def test_worse_boxes_that_overlap_are_dropped(
    scores: list[float], most: int, limit: float, lowest: float, kept: list[int]
) -> None:
    chosen, count = by_name("NonMaxSuppressionV4")(
        NEAR, torch.tensor(scores), *map(torch.tensor, (most, limit, lowest))
    )
    assert (chosen.tolist(), int(count)) == ([*kept, *[0] * (most - len(kept))], len(kept))
    assert (chosen.dtype, count.dtype) == (torch.int32, torch.int32)


@pytest.mark.parametrize("shared", [True, False], ids=["a box for all classes", "a box per class"])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_best_of_every_class_and_image(shared: bool, transposed: bool) -> None:
    of_class = [NEAR, NEAR if shared else NEAR.flip(0)]
    boxes = NEAR[:, None] if shared else torch.stack(of_class, 1)
    boxes = torch.stack([boxes, boxes + 100])
    scores = torch.tensor([[[0.9, 0.1], [0.8, 0.95], [0.7, 0.3], [0.0, 0.2]], [[0.2, 0.0]] * 4])
    found, marks, classes, count = batch_non_max_suppression(
        boxes.permute(0, 2, 3, 1) if transposed else boxes,
        scores,
        score_threshold=0.15,
        iou_threshold=0.5,
        max_size_per_class=2,
        max_total_size=5,
        transpose_box=transposed,
    )
    wanted: list[list[tuple[float, int, Box]]] = []
    for image in range(2):
        rows = []
        for of, its in enumerate(of_class):
            kept: list[int] = []
            for place in sorted(range(4), key=lambda each: -scores[image, each, of].item()):
                is_free = all(_share(its[place].tolist(), its[other].tolist(), "iou") <= 0.5 for other in kept)
                if is_free and scores[image, place, of] > 0.15 and len(kept) < 2:
                    kept.append(place)
            rows += [(scores[image, each, of].item(), of, (its[each] + 100 * image).tolist()) for each in kept]
        wanted.append(sorted(rows, key=lambda each: -each[0])[:5])
    assert count.tolist() == [len(each) for each in wanted]
    for image, rows in enumerate(wanted):
        missing = 5 - len(rows)
        assert found[image].tolist() == [*(box for _, _, box in rows), *[[0.0] * 4] * missing]
        assert marks[image].tolist() == pytest.approx([*(mark for mark, _, _ in rows), *[0.0] * missing])
        assert classes[image].tolist() == [*(of for _, of, _ in rows), *[0.0] * missing]


def test_a_region_without_pixels_is_zero_and_has_no_gradient() -> None:
    rois = torch.tensor([[0.0], [50.0], [50.0], [51.0], [51.0]])[None]
    how = {"spatial_scale": 1.0, "group_size": 2}
    assert not ps_roi_pooling(torch.ones(1, 8, 4, 4), rois, **how).any()
    grad = KERNELS["PSROIPoolingGradV2D"](torch.ones(1, 2, 2, 2), rois, output_dim=2, input_size=[4, 4], **how)
    assert (grad.shape, bool(grad.any())) == ((1, 8, 4, 4), False)


def test_a_region_of_one_pixel_is_that_pixel_and_a_tiny_one_has_a_tenth_of_it() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    for left, top, right, bottom in ((2, 1, 2, 1), (2, 1, 1, 0), (2, 1, -3, -3)):  # the others have no extent
        rois = torch.tensor([0.0, left, top, right, bottom])[None, :, None]
        assert ps_roi_pooling(x, rois, spatial_scale=1.0, group_size=1).flatten().tolist() == [6.0]


def test_the_gradient_of_pooling_by_differences() -> None:
    rois = torch.tensor([[0.0, 1, 0, 3, 2], [1, 0, 1, 2, 3]]).T[None].repeat(2, 1, 1)
    how = {"spatial_scale": 0.75, "group_size": 2}
    x, grad = torch.randn(2, 8, 4, 5, generator=torch.Generator().manual_seed(1)), torch.arange(32.0).view(4, 2, 2, 2)
    found = KERNELS["PSROIPoolingGradV2D"](grad, rois, output_dim=2, input_size=[4, 5], **how)
    assert found.shape == x.shape
    moved = torch.randn(2, 8, 4, 5, generator=torch.Generator().manual_seed(2))
    by_hand = ((ps_roi_pooling(x + moved, rois, **how) - ps_roi_pooling(x, rois, **how)) * grad).sum()
    assert (found * moved).sum().item() == pytest.approx(by_hand.item(), rel=1e-4)  # pooling is linear
