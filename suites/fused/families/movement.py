"""Moving, padding, slicing and casting elements, bit for bit; boxes in images, and which of them to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Operator, Sample, call
from pytest_ascend.operators.operator import FLOATS, Inputs

from ..entry import fused, in_family

T = torch.Tensor
DTYPES = (*FLOATS, "int32")


def _values(make: InputFactory, *shape: int) -> T:
    if make.dtype.is_floating_point:
        return make.normal(*shape)
    return make.integers(*shape, low=-(2**31), high=2**31, dtype=make.dtype)


def of(shape: tuple[int, ...], *arguments: tuple[Any, ...]) -> Inputs:
    return lambda make: (call(_values(make, *shape), *rest) for rest in arguments)


def _slice(x: T, offsets: list[int], size: list[int]) -> T:
    return x[tuple(slice(start, start + count) for start, count in zip(offsets, size, strict=True))]


def _one_hot(x: T, depth: int, on_value: float = 1, off_value: float = 0) -> T:
    return torch.where(x.unsqueeze(-1) == torch.arange(depth), float(on_value), float(off_value))


def _one_hot_inputs(make: InputFactory) -> Iterator[Sample]:
    yield call(make.integers(17, high=5, dtype=torch.int32), depth=5)
    yield call(make.integers(2, 3, high=4, dtype=torch.int32), depth=4, on_value=2, off_value=-1)


def _scatter_inputs(make: InputFactory) -> Iterator[Sample]:
    yield call(_values(make, 7, 16).detach(), torch.tensor([[2], [0], [6]]), _values(make, 3, 16).detach())
    yield call(_values(make, 4, 5, 6).detach(), torch.tensor([[3, 4], [0, 0]]), _values(make, 2, 6).detach())


def _masked_fill_range(x: T, starts: T, ends: T, values: T) -> T:
    places = torch.arange(x.shape[-1])
    for start, end, value in zip(starts, ends, values, strict=True):
        x = torch.where((places >= start[:, None]) & (places < end[:, None]), value, x)
    return x


def _fill_inputs(make: InputFactory) -> Iterator[Sample]:
    edges = [torch.tensor([each], dtype=torch.int32) for each in ([1, 2, 0, 4], [3, 4, 5, 9])]
    yield call(_values(make, 4, 9).detach(), *edges, torch.tensor([1], dtype=make.dtype))


_exact: Callable[..., Operator] = partial(fused, dtypes=DTYPES, exact=True)
_moved: Callable[..., Operator] = partial(_exact, grad=False)

_MOVEMENT = in_family(
    "movement",
    # 2 is CANN's number of the plain format, ND.
    _exact("npu_format_cast", lambda x, _: x, of((5, 16, 17), (2,))),
    fused(
        "npu_dtype_cast",
        lambda x, dtype: x.to(dtype).double(),
        of((5, 33), (torch.float16,), (torch.float32,), (torch.bfloat16,)),
        through=lambda cast, x, dtype: cast(x, dtype).float(),
        outputs=("float32",),
        exact=True,
    ),
    _moved("npu_transpose", lambda x, perm: x.permute(perm), of((2, 3, 5, 7), ([0, 2, 3, 1],), ([3, 1, 2, 0],))),
    _exact(
        "npu_confusion_transpose",
        lambda x, perm, shape, first: x.permute(perm).reshape(shape) if first else x.reshape(shape).permute(perm),
        of((2, 3, 4, 6), ([0, 2, 1, 3], [2, 4, 18], True), ([1, 0, 2], [6, 4, 6], False)),
    ),
    _moved("npu_reshape", lambda x, shape: x.reshape(shape), of((2, 3, 4), ([6, 4],), ([24],))),
    _moved("npu_broadcast", lambda x, size: x.expand(size), of((3, 1, 5), ([3, 4, 5],), ([2, 3, 1, 5],))),
    _moved("npu_slice", _slice, of((5, 6, 7), ([1, 0, 2], [3, 6, 4]))),
    _moved("npu_pad", lambda x, paddings: F.pad(x, (*paddings[2:], *paddings[:2])), of((4, 5), ([1, 2, 0, 3],))),
    _moved("npu_one_hot", _one_hot, _one_hot_inputs, outputs=("float32",), dtypes=("int32",)),
    _moved("npu_scatter_nd_update", lambda x, i, to: x.index_put((*i.long().unbind(-1),), to), _scatter_inputs),
    _moved("npu_masked_fill_range", _masked_fill_range, _fill_inputs, dtypes=("float32", "float16", "int32")),
    _moved("npu_sort_v2", lambda x, *how: x.sort(*how).values, of((5, 33), (), (-1, True)), dtypes=("float16",)),
    _moved("npu_stride_copy", torch.as_strided, of((4, 6), ([3, 2], [6, 2], 1)), layouts=False),
    _moved(
        "npu_sign_bits_pack",
        lambda x, size: ((x.view(-1, 8) >= 0) << torch.arange(8)).sum(-1).to(torch.uint8).view(size, -1),
        lambda d: [call(d.normal(64), 1), call(d.normal(96), 2)],
        outputs=("uint8",),
        dtypes=("float32", "float16"),
    ),
    _moved(
        "npu_sign_bits_unpack",
        lambda x, size, dtype: (((x.unsqueeze(-1) >> torch.arange(8)) & 1) * 2.0 - 1).view(size, -1).to(dtype),
        lambda d: [call(d.integers(24, high=256, dtype=torch.uint8), 2, torch.float32)],
        outputs=("float32",),
        dtypes=("uint8",),
    ),
)


def _corners(boxes: T, trans: bool) -> tuple[T, T]:
    """Return the minimum and the maximum corner of each box, both (2, ...)."""
    first, second = boxes[:2], boxes[2:]
    return (first - second / 2, first + second / 2) if trans else (first, second)


def _overlap(one: T, other: T, trans: bool) -> tuple[T, T, T, T]:
    """Return intersection over union, union, the enclosing box's width and height, the centres' squared distance."""
    a, b = _corners(one, trans), _corners(other, trans)
    inside = (torch.minimum(a[1], b[1]) - torch.maximum(a[0], b[0])).clamp(min=0).prod(0)
    union = (a[1] - a[0]).prod(0) + (b[1] - b[0]).prod(0) - inside
    outer = torch.maximum(a[1], b[1]) - torch.minimum(a[0], b[0])
    return inside / union, union, outer, ((b[0] + b[1] - a[0] - a[1]) / 2).square().sum(0)


def _giou(one: T, other: T, trans: bool, **_: Any) -> T:
    iou, union, outer, _apart = _overlap(one, other, trans)
    return (iou - (outer.prod(0) - union) / outer.prod(0)).unsqueeze(1)


def _diou(one: T, other: T, trans: bool, **_: Any) -> T:
    iou, _union, outer, distance = _overlap(one, other, trans)
    return (iou - distance / outer.square().sum(0)).unsqueeze(0)


def _ciou(one: T, other: T, trans: bool, **_: Any) -> T:
    sizes = (far - near for near, far in (_corners(one, trans), _corners(other, trans)))
    ratios = [torch.atan(width / height) for width, height in sizes]
    v = (4 / math.pi**2) * (ratios[1] - ratios[0]).square()
    alpha = v / (1 - _overlap(one, other, trans)[0] + v)
    return _diou(one, other, trans) - (alpha * v).unsqueeze(0)


def _iou(boxes: T, truth: T, mode: int = 0) -> T:
    """Return the overlap of every true box (row) with every box, whose areas are those of boxes larger by 0.01.

    Source: op-plugin, IouKernelNpuOpApi.cpp (eps), and CANN's ops-cv, README of objdetect/iou_v2.
    """
    one, other = boxes.T.unsqueeze(1), truth.T.unsqueeze(2)
    iou, union, *_ = _overlap(one, other, trans=False)
    mine, theirs = ((box[2] - box[0] + 0.01) * (box[3] - box[1] + 0.01) for box in (one, other))
    inside = iou * union
    return inside / (theirs if mode else mine + theirs - inside)


def _pairs(make: InputFactory) -> Iterator[Sample]:
    for count in (16, 33):
        ends = (4, 6), (2, 4)
        boxes = [torch.cat([make.uniform(2, count, low=low, high=high) for low, high in ends]) for _ in range(2)]
        yield call(*(each.detach().requires_grad_() for each in boxes), trans=True, is_cross=False)


def _rows(make: InputFactory, count: int) -> T:
    corner = make.uniform(count, 2, low=0, high=4, grad=False)
    return torch.cat([corner, corner + make.uniform(count, 2, low=1, high=4, grad=False)], 1)


def _row_pairs(make: InputFactory) -> Iterator[Sample]:
    yield call(_rows(make, 16), _rows(make, 33))
    yield call(_rows(make, 16), _rows(make, 16), mode=1)


def _encode(anchors: T, truth: T, *moments: float) -> T:
    px, py, pw, ph = _centres(anchors)
    gx, gy, gw, gh = _centres(truth)
    deltas = torch.stack([(gx - px) / pw, (gy - py) / ph, (gw / pw).log(), (gh / ph).log()], -1)
    means, stds = deltas.new_tensor(moments[:4]), deltas.new_tensor(moments[4:])
    return (deltas - means) / stds


def _centres(boxes: T) -> tuple[T, T, T, T]:
    left, top, right, bottom = boxes.unbind(-1)
    return (left + right) / 2, (top + bottom) / 2, right - left + 1, bottom - top + 1


_boxes: Callable[..., Operator] = partial(fused, dtypes=("float32", "float16"), terms=4)

_DETECTION = in_family(
    "detection",
    _boxes("npu_giou", _giou, _pairs),
    _boxes("npu_diou", _diou, _pairs),
    _boxes("npu_ciou", _ciou, _pairs, grad=False),
    _boxes("npu_iou", _iou, _row_pairs, grad=False),
    _boxes("npu_ptiou", _iou, _row_pairs, grad=False),
    _boxes(
        "npu_bounding_box_encode",
        _encode,
        lambda d: [call(_rows(d, 16), _rows(d, 16), *[0.0] * 4, *[1.0] * 4)],
        grad=False,
    ),
)

OPERATORS = (*_MOVEMENT, *_DETECTION)
