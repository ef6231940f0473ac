"""Boxes of objects in images: how much they overlap, and which to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pytest_ascend.operators import Draw, Sample, call

from ..entry import fused, in_family

T = torch.Tensor


def _corners(boxes: T, trans: bool) -> tuple[T, T, T, T]:
    """Return left, top, right, bottom of boxes (4, n): as they are, or from centre and size."""
    if not trans:
        return boxes[0], boxes[1], boxes[2], boxes[3]
    x, y, w, h = boxes[0], boxes[1], boxes[2], boxes[3]
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def _overlap(one: T, other: T, trans: bool) -> tuple[T, T, T, T, T]:
    """Return intersection over union, union, and width, height, and squared diagonal of what encloses both."""
    a, b = _corners(one, trans), _corners(other, trans)
    width = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    height = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    inside = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside
    outer_width = torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])
    outer_height = torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1])
    return inside / union, union, outer_width, outer_height, _distance(a, b)


def _distance(a: tuple[T, ...], b: tuple[T, ...]) -> T:
    """Return the squared distance of the centres."""
    return ((b[0] + b[2] - a[0] - a[2]) / 2).square() + ((b[1] + b[3] - a[1] - a[3]) / 2).square()


def _giou(one: T, other: T, trans: bool = False, **_settings: Any) -> T:
    iou, union, width, height, _apart = _overlap(one, other, trans)
    return (iou - (width * height - union) / (width * height)).unsqueeze(1)


def _diou(one: T, other: T, trans: bool = False, **_settings: Any) -> T:
    iou, _union, width, height, distance = _overlap(one, other, trans)
    return (iou - distance / (width.square() + height.square())).unsqueeze(0)


def _ciou(one: T, other: T, trans: bool = False, **_settings: Any) -> T:
    ratios = []
    for corners in (_corners(one, trans), _corners(other, trans)):
        left, top, right, bottom = corners
        ratios.append(torch.atan((right - left) / (bottom - top)))
    v = (4 / math.pi**2) * (ratios[1] - ratios[0]).square()
    alpha = v / (1 - _overlap(one, other, trans)[0] + v)
    return _diou(one, other, trans) - (alpha * v).unsqueeze(0)


def _iou(boxes: T, truth: T, mode: int = 0) -> T:
    """Return the overlap of every true box (row) with every box."""
    one, other = boxes.T.unsqueeze(1), truth.T.unsqueeze(2)
    iou, union, *_ = _overlap(one, other, trans=False)
    if not mode:
        return iou
    area = (other[2] - other[0]) * (other[3] - other[1])
    return iou * union / area


def _pairs(**named: Any) -> Callable[[Draw], Iterator[Sample]]:
    """Pairs of boxes as (4, n) with centres and sizes, near each other."""

    def inputs(draw: Draw) -> Iterator[Sample]:
        for count in (16, 33):
            centres, sizes = draw.uniform(2, count, low=4, high=6), draw.uniform(2, count, low=2, high=4)
            moved, grown = draw.uniform(2, count, low=4, high=6), draw.uniform(2, count, low=2, high=4)
            boxes = [torch.cat(parts).detach().requires_grad_() for parts in ((centres, sizes), (moved, grown))]
            yield call(*boxes, **named)

    return inputs


def _rows(draw: Draw, count: int) -> T:
    corner = draw.uniform(count, 2, low=0, high=4, grad=False)
    return torch.cat([corner, corner + draw.uniform(count, 2, low=1, high=4, grad=False)], 1)


def _row_pairs(draw: Draw) -> Iterator[Sample]:
    yield call(_rows(draw, 16), _rows(draw, 33))
    yield call(_rows(draw, 16), _rows(draw, 16), mode=1)


def _encode(anchors: T, truth: T, *moments: float) -> T:
    """Return how far centres are apart, in sizes of the anchor, and the logarithms of how much larger the sizes are."""
    px, py, pw, ph = _centres(anchors)
    gx, gy, gw, gh = _centres(truth)
    deltas = torch.stack([(gx - px) / pw, (gy - py) / ph, (gw / pw).log(), (gh / ph).log()], -1)
    means, stds = deltas.new_tensor(moments[:4]), deltas.new_tensor(moments[4:])
    return (deltas - means) / stds


def _centres(boxes: T) -> tuple[T, T, T, T]:
    left, top, right, bottom = boxes.unbind(-1)
    return (left + right) / 2, (top + bottom) / 2, right - left + 1, bottom - top + 1


OPERATORS = in_family(
    "detection",
    fused("npu_giou", _giou, _pairs(trans=True, is_cross=False), dtypes=("float32", "float16"), terms=4),
    fused("npu_diou", _diou, _pairs(trans=True, is_cross=False), dtypes=("float32", "float16"), terms=4),
    fused("npu_ciou", _ciou, _pairs(trans=True, is_cross=False), dtypes=("float32", "float16"), terms=4, grad=False),
    fused("npu_iou", _iou, _row_pairs, dtypes=("float32", "float16"), grad=False, terms=4),
    fused("npu_ptiou", _iou, _row_pairs, dtypes=("float32", "float16"), grad=False, terms=4),
    fused(
        "npu_bounding_box_encode",
        _encode,
        lambda d: [call(_rows(d, 16), _rows(d, 16), 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)],
        dtypes=("float32", "float16"),
        grad=False,
        terms=4,
    ),
)
