"""Bounding boxes: their overlap, and encodings of one box relative to another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pytest_ascend.emulator.registry import L, T, gap, gradients

#: The minimum and the maximum corner of each box, both (2, ...).
Corners = tuple[T, T]


def _pairs(boxes: T, truth: T, trans: bool, crossed: bool) -> tuple[Corners, Corners]:
    """Return the corners of both, in float32: pairwise, or with ``crossed`` each box (rows) with each true one.

    Boxes are (4, ...): left, top, right, bottom; with ``trans`` centre, width and height.
    """
    one, other = boxes.float(), truth.float()
    if crossed:
        one, other = one.unsqueeze(2), other.unsqueeze(1)
    a, b, c, d = one[:2], one[2:4], other[:2], other[2:4]
    return ((a - b / 2, a + b / 2), (c - d / 2, c + d / 2)) if trans else ((a, b), (c, d))


def _area(box: Corners) -> T:
    return torch.mul(*(box[1] - box[0]))


def _common(a: Corners, b: Corners) -> T:
    return torch.mul(*(torch.minimum(a[1], b[1]) - torch.maximum(a[0], b[0])).clamp(min=0))


def _outer(a: Corners, b: Corners) -> T:
    """Return width and height of the box that encloses both."""
    return torch.maximum(a[1], b[1]) - torch.minimum(a[0], b[0])


def _share(a: Corners, b: Corners, mode: str) -> tuple[T, T]:
    """Return the overlap as a share of the union ("iou") or of the first ("iof"), and the area of the union."""
    common = _common(a, b)
    union = _area(a) + _area(b) - common
    return common / (union if mode == "iou" else _area(a)), union


def giou(a: Corners, b: Corners, mode: str) -> T:
    share, union = _share(a, b, mode)
    whole = torch.mul(*_outer(a, b))
    return share - (whole - union) / whole


def diou(a: Corners, b: Corners, mode: str) -> T:
    apart = ((b[0] + b[1] - a[0] - a[1]) / 2).square().sum(0)
    return _share(a, b, mode)[0] - apart / _outer(a, b).square().sum(0)


def ciou_and_slant(a: Corners, b: Corners, mode: str) -> tuple[T, T]:
    """Return CIoU, and the weighted difference of the aspect ratios, which its gradient needs."""
    mine, theirs = (torch.atan(torch.div(*(box[1] - box[0]))) for box in (a, b))
    differ = theirs - mine
    v = 4 / math.pi**2 * differ.square()
    alpha = v / (1 - _share(a, b, mode)[0] + v)
    return diou(a, b, mode) - alpha.detach() * v, differ


def measured(of: Callable[[Corners, Corners, str], T], boxes: T, truth: T, trans: bool, is_cross: bool, mode: str) -> T:
    made = of(*_pairs(boxes, truth, trans, is_cross), mode)
    return made if is_cross else made.unsqueeze(0)


def gradient(
    of: Callable[[Corners, Corners, str], T], grad: T, boxes: T, truth: T, *_: T, trans: bool, is_cross: bool, mode: str
) -> tuple[T, ...]:
    """Return the gradients of both boxes, from torch's autograd of the measure."""
    return gradients(lambda a, b: of(*_pairs(a, b, trans, is_cross), mode), (boxes, truth), grad)


def _centres(boxes: T, dim: int, beyond: int) -> tuple[T, ...]:
    """Return centre, width and height of left, top, right and bottom along a dimension, and the remaining rows.

    With pixel indices, the last pixel belongs to the box, which ends one ``beyond``.
    """
    left, top, right, bottom, *rest = boxes.float().unbind(dim)
    return (left + right) / 2, (top + bottom) / 2, right - left + beyond, bottom - top + beyond, *rest


def _kept(boxes: T, scores: T, most: int, limit: T | float, lowest: T | float) -> L:
    """Return the indices of boxes to keep, best first.

    A box is dropped if it overlaps a better one by more than ``limit``, or its score is not above ``lowest``.
    """
    share, _union = _share(*_pairs(boxes.T, boxes.T, trans=False, crossed=True), "iou")
    kept: L = []
    for place in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) < most and scores[place] > lowest and not (share[place, kept] > limit).any():
            kept.append(place)
    return kept


Point = tuple[float, float]


def _turned_corners(box: list[float], trans: bool) -> list[Point]:
    """Return corners from centre, width, height, degrees; with ``trans`` from left, top, right, bottom, degrees."""
    x, y, w, h, degrees = box
    if trans:
        x, y, w, h = (x + w) / 2, (y + h) / 2, w - x, h - y
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    halves = ((-w / 2, -h / 2), (w / 2, -h / 2), (w / 2, h / 2), (-w / 2, h / 2))
    return [(x + cos * a - sin * b, y + sin * a + cos * b) for a, b in halves]


def _sides(points: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(points, points[1:] + points[:1], strict=True)


def _clipped(points: list[Point], other: list[Point]) -> list[Point]:
    """Return a convex polygon clipped by another, one side after the other."""
    for a, b in _sides(other):
        marks = [(b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]) for x, y in points]
        rest: list[Point] = []
        for ((x, y), (u, v)), (mine, following) in zip(_sides(points), _sides(marks), strict=True):
            if mine >= 0:
                rest.append((x, y))
            if (mine >= 0) != (following >= 0):
                at = mine / (mine - following)
                rest.append((x + at * (u - x), y + at * (v - y)))
        points = rest
    return points


def rotated_overlaps(boxes: T, others: T, *, trans: bool) -> T:
    """Return the common area of each box (row) with each other box, both (n, 5, boxes)."""
    areas = torch.zeros(len(boxes), boxes.shape[2], others.shape[2])
    for image, (mine, theirs) in enumerate(zip(boxes.mT.tolist(), others.mT.tolist(), strict=True)):
        for (row, box), (column, other) in itertools.product(enumerate(mine), enumerate(theirs)):
            sides = _sides(_clipped(_turned_corners(box, trans), _turned_corners(other, trans)))
            areas[image, row, column] = abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in sides)) / 2
    return areas


def _interpolation(start: float, extent: float, parts: int, samples: int, size: int) -> T:
    """Return a matrix (parts, size) that averages each part's samples, interpolated between pixels.

    A sample more than one pixel outside of the image is zero; a nearer one is the pixel on the edge. Without a number
    of samples, there is one for each pixel.
    """
    count = samples if samples > 0 else max(math.ceil(extent / parts), 1)
    places = start + (torch.arange(parts * count) + 0.5) * (extent / (parts * count))
    weights = 1 - (places.clamp(0, size - 1)[:, None] - torch.arange(size)).abs()
    inside = (places >= -1) & (places <= size)
    return (weights.clamp(min=0) * inside[:, None]).view(parts, count, size).mean(1)


#: How image coordinates of a region are read: pixels added to its end, and the offset of a pixel's centre.
_END_MODES = {0: (0, 0.0), 1: (1, 0.0), 2: (0, 0.5), 3: (0, 0.5)}


def roi_align(
    x: T, rois: T, *, spatial_scale: float, pooled_height: int, pooled_width: int, sample_num: int,
    roi_end_mode: int = 1,
) -> T:  # fmt: skip
    """Pool images (n, channels, height, width) over regions: rows of image, left, top, right, bottom.

    Source: arXiv:1703.06870.
    """
    gap(roi_end_mode not in _END_MODES, f"roi_end_mode {roi_end_mode}")
    beyond, shift = _END_MODES[roi_end_mode]
    made = torch.zeros(len(rois), x.shape[1], pooled_height, pooled_width)
    for place, roi in enumerate(rois.tolist()):
        pools = []  # matrices for rows and columns
        for first, last, parts, size in ((2, 4, pooled_height, x.shape[-2]), (1, 3, pooled_width, x.shape[-1])):
            start, end = roi[first] * spatial_scale - shift, (roi[last] + beyond) * spatial_scale - shift
            pools.append(_interpolation(start, max(end - start, 0.0 if shift else 1.0), parts, sample_num, size))
        made[place] = pools[0] @ x[int(roi[0])].float() @ pools[1].T
    return made


def ps_roi_pooling(x: T, rois: T, *, spatial_scale: float, group_size: int, **_: Any) -> T:
    """Pool images over regions: each part is the mean over its pixels of its own channels, 0 if it has none.

    Regions are (m, 5, k): image, left, top, right, bottom. Source: R-FCN, arXiv:1605.06409, with its roundings.
    """
    mine = x.float().view(len(x), -1, group_size, group_size, *x.shape[-2:])
    made = torch.zeros(rois.shape[0] * rois.shape[2], mine.shape[1], group_size, group_size)
    for number, (image, left, top, right, bottom) in enumerate(rois.mT.flatten(0, 1).tolist()):
        x0, y0 = round(left) * spatial_scale, round(top) * spatial_scale
        step_x = max((round(right) + 1) * spatial_scale - x0, 0.1) / group_size
        step_y = max((round(bottom) + 1) * spatial_scale - y0, 0.1) / group_size
        for row, column in itertools.product(range(group_size), repeat=2):
            pixels = mine[int(image), :, row, column]
            rows, columns = (
                slice(max(math.floor(start), 0), max(math.ceil(start + step), 0))
                for start, step in ((y0 + row * step_y, step_y), (x0 + column * step_x, step_x))
            )
            if pixels[:, rows, columns].numel():
                made[number, :, row, column] = pixels[:, rows, columns].mean((-2, -1))
    return made


def batch_non_max_suppression(
    boxes: T, scores: T, *, score_threshold: float, iou_threshold: float, max_size_per_class: int, max_total_size: int,
    transpose_box: bool = False, **_: bool,
) -> tuple[T, T, T, T]:  # fmt: skip
    """Return for each image the best boxes of all classes, their scores and classes, padded with 0; and their number.

    ``boxes`` is (images, boxes, classes or 1, 4), transposed with 4 before boxes; ``scores`` has no last axis.
    """
    places = boxes.permute(0, 3, 1, 2) if transpose_box else boxes
    found = torch.zeros(len(places), max_total_size, 6)
    for image, (its_boxes, its_scores) in enumerate(zip(places.float(), scores.float(), strict=True)):
        rows = []
        for index, marks in enumerate(its_scores.T):
            its = its_boxes[:, min(index, its_boxes.shape[1] - 1)]
            kept = _kept(its, marks, max_size_per_class, iou_threshold, score_threshold)
            rows.append(torch.cat([its[kept], marks[kept, None], torch.full((len(kept), 1), float(index))], 1))
        merged = torch.cat(rows)
        best = merged[:, 4].argsort(descending=True, stable=True)[:max_total_size]
        found[image, : len(best)] = merged[best]
    return found[..., :4], found[..., 4], found[..., 5], (found[..., 4] > 0).sum(1)
