"""Stability: functions that are called repeatedly, one per line, also with accumulating gradients; and the cases.

The same call gives the same bits, whatever ran before or is computed at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Sample, call
from pytest_ascend.records.case import Case

T = torch.Tensor
Inputs: TypeAlias = Callable[[InputFactory], Sample]

#: Whether a row of the result depends only on its own row of the input, bit by bit: promised, reported without being
#: required, or meaningless since rows are mixed.
PROMISED, REPORTED, MIXED = "promised", "reported", "mixed"


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A function of tensors, the first by batch; where it ``adds`` in one place, PyTorch promises no order."""

    name: str
    function: Callable[..., Any]
    inputs: Inputs
    rows: str = MIXED
    adds: bool = False


def _way_back(function: Callable[..., T], x: T, *rest: Any) -> T:
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        result = function(leaf, *rest)
        return torch.autograd.grad(result, leaf, torch.ones_like(result))[0]


def _normal(*shapes: tuple[int, ...], **named: Any) -> Inputs:
    return lambda d: call(*(d.normal(*shape, grad=False) for shape in shapes), **named)


def _picked(*shape: int, count: int, dim: int = 0) -> Inputs:
    return lambda d: call(d.normal(*shape, grad=False), dim, d.integers(count, high=shape[dim]))


def _added(d: InputFactory, *index: int) -> Sample:
    return call(d.normal(17, 9, grad=False), 0, d.integers(257, *index, high=17), d.normal(257, 9, grad=False))


def _with_places(rows: int, columns: int, count: int, high: int) -> Inputs:
    return lambda d: call(d.normal(rows, columns, grad=False), d.integers(count, high=high))


_IMAGE = (3, 6, 19, 21)
_pooled = partial(F.max_pool2d, kernel_size=3, stride=1)
_interpolated = partial(F.interpolate, size=(31, 13), mode="bilinear", align_corners=False)
_looked_up, _labelled = _with_places(17, 33, 129, 17), _with_places(33, 17, 33, 17)
_row, _rows, _long, _image = (_normal(shape) for shape in ((33, 17), (33, 257), (33, 1025), _IMAGE))


def _of_rows(rows: str, *computations: tuple[str, Callable[..., Any], Inputs]) -> Iterable[Computation]:
    return (Computation(*each, rows) for each in computations)


COMPUTATIONS: tuple[Computation, ...] = (
    *_of_rows(
        PROMISED,
        ("add", torch.add, _normal((33, 257), (33, 257))),
        ("mul", torch.mul, _normal((33, 257), (257,))),
        ("div", torch.div, _normal((33, 257), (33, 257))),
        *((name, getattr(torch, name), _rows) for name in ("exp", "tanh", "erf", "sigmoid")),
        *((name, getattr(F, name), _rows) for name in ("gelu", "silu", "relu")),
        ("clamp", torch.clamp, _normal((33, 257), min=-0.5, max=0.5)),
        ("where", lambda x, y: torch.where(x > y, x, y), _normal((33, 257), (33, 257))),
        ("sort", torch.sort, _rows),
        ("topk", partial(torch.topk, k=9), _rows),
        *((name, partial(getattr(torch, name), dim=-1), _rows) for name in ("amax", "argmax")),
        ("max_pool2d", partial(F.max_pool2d, kernel_size=3), _image),
        ("flip", partial(torch.flip, dims=(-1,)), _rows),
        ("pad", partial(F.pad, pad=(3, 2)), _rows),
        ("tril", torch.tril, _normal((5, 33, 31))),
        ("interpolate.nearest", partial(F.interpolate, size=(31, 13)), _image),
        ("to.float16", lambda x: x.half(), _rows),
    ),
    *_of_rows(
        REPORTED,
        *((name, partial(getattr(torch, name), dim=-1), _long) for name in ("sum", "mean", "var")),
        *((name, partial(getattr(torch, name), dim=-1), _rows) for name in ("cumsum", "softmax", "log_softmax")),
        ("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), _rows),
        ("group_norm", lambda x: F.group_norm(x, 3), _image),
        ("linear", F.linear, _normal((33, 129), (65, 129))),
        ("mm", torch.mm, _normal((33, 129), (129, 65))),
        ("bmm", torch.matmul, _normal((5, 33, 65), (65, 17))),
        ("conv2d", F.conv2d, _normal(_IMAGE, (8, 6, 3, 3))),
        ("conv_transpose2d", F.conv_transpose2d, _normal(_IMAGE, (6, 8, 3, 3))),
        ("avg_pool2d", partial(F.avg_pool2d, kernel_size=3), _image),
        ("adaptive_avg_pool2d", partial(F.adaptive_avg_pool2d, output_size=(4, 5)), _image),
        ("interpolate.bilinear", _interpolated, _image),
        ("cross_entropy", partial(F.cross_entropy, reduction="none"), _labelled),
    ),
    Computation("scaled_dot_product_attention", F.scaled_dot_product_attention, _normal(*[(3, 2, 33, 16)] * 3)),
    Computation("sum.all", torch.sum, _long),
    Computation("norm", torch.linalg.vector_norm, _long),
    Computation("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), _image),
    Computation("cat", lambda x, y: torch.cat([x, y], 1), _normal((33, 17), (33, 31))),
    Computation("index_select", torch.index_select, _picked(33, 17, count=65)),
    Computation("embedding", lambda weight, index: F.embedding(index, weight), _looked_up),
    Computation("nonzero", lambda x: torch.nonzero(x > 0.5), _row),
    Computation("masked_select", lambda x: x[x > 0.5], _row),
    Computation("unique", lambda x: torch.unique(x.round()), _row),
    Computation("index_add", torch.index_add, _added, adds=True),
    Computation("scatter_add", torch.scatter_add, lambda d: _added(d, 9), adds=True),
    Computation("index_put.accumulate", lambda x, _, i, y: x.index_put((i,), y, accumulate=True), _added, adds=True),
    Computation("index_select.backward", partial(_way_back, torch.index_select), _picked(33, 17, count=257), adds=True),
    Computation("embedding.backward", lambda w, i: _way_back(lambda x: F.embedding(i, x), w), _looked_up, adds=True),
    Computation("max_pool2d.backward", partial(_way_back, _pooled), _image, adds=True),
    Computation("interpolate.bilinear.backward", partial(_way_back, _interpolated), _image, adds=True),
    Computation("conv2d.backward", partial(_way_back, F.conv2d), _normal(_IMAGE, (8, 6, 3, 3)), adds=True),
    Computation("layer_norm.backward", partial(_way_back, lambda x: F.layer_norm(x, x.shape[-1:])), _rows),
    Computation("softmax.backward", partial(_way_back, partial(torch.softmax, dim=-1)), _rows),
    Computation("cross_entropy.backward", partial(_way_back, F.cross_entropy), _labelled),
)


DETERMINISM, BATCH, STALE = "determinism", "batch-invariance", "stale-memory"

CASES: tuple[Case, ...] = tuple(
    Case(suite="stability", subject=computation.name, property=name, dtype=dtype, family=name, level=level)
    for computation in COMPUTATIONS
    for dtype, level in (("float32", "standard"), ("float16", "full"))
    for name in (DETERMINISM, STALE, *((BATCH,) if computation.rows != MIXED else ()))
)
