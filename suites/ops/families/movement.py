"""Operators that compute nothing: they place elements, and every bit is promised."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.operator import ALL, FLOATS, INTS, MOVE, Operator
from pytest_ascend.operators.samples import SHAPES, Sample, call
from pytest_ascend.operators.values import Values, normal, uniform

from ..makers import ENDS, exactly, in_family, unary

_move = partial(Operator, dtypes=ALL, exactness=MOVE)
_view = partial(_move, strides=True)
#: Large integers, so that one that went through 32 bits or a float shows.
_WIDE = 2.0**42


def _tensor(*shape: int) -> Values:
    return uniform(*shape, low=-_WIDE, high=_WIDE)


def _calls(*arguments: tuple[Any, ...], shape: tuple[int, ...] = (3, 5, 7), **named: Any) -> tuple[Sample, ...]:
    return tuple(call(normal(*shape), *each, **named) for each in arguments)


_joined = exactly(
    call([normal(2, 3, 5), normal(4, 3, 5)], dim=0),
    call([normal(2, 3, 5), normal(2, 1, 5), normal(2, 4, 5)], dim=-2),
    call([normal(2, 3, 5), normal(2, 3, 17)], dim=-1),
    call([normal(17), normal(0), normal(256)], dim=0, group=SHAPES),
    call([normal(1)], dim=0, group=SHAPES),
)
_grids = exactly(
    call([normal(17), normal(5)], indexing="ij"),
    call([normal(5), normal(17)], indexing="xy"),
    call([normal(3), normal(), normal(7)], indexing="ij"),
    call([normal(3), normal(2), normal(7)], indexing="xy"),
    call([normal(257)], indexing="ij"),
    call([normal(0), normal(5)], indexing="xy", group=SHAPES),
)
_stacked = exactly(
    call([normal(3, 5), normal(3, 5)], dim=0),
    call([normal(3, 5), normal(3, 5), normal(3, 5)], dim=-1),
    call([normal(3, 5), normal(3, 5)], dim=1),
    call([normal(), normal()], dim=0, group=SHAPES),
)
_flips = exactly(
    *_calls(([0],), ([-1],), ([0, 2],), ([1, -1],)), call(normal(257), [0]), call(normal(0, 3), [0], group=SHAPES)
)
_rolls = exactly(
    *_calls((2, 0), (-3, -1), ((1, -2), (0, 2)), (4,)), call(normal(17), 20, 0), call(normal(0), 1, group=SHAPES)
)
_triangles = exactly(*_calls((0,), (1,), (-2,)), call(normal(17, 15), 3), call(normal(0, 3), group=SHAPES))
_repeats = exactly(*_calls((2, 1, 3), (2, 3, 1, 2)), call(normal(17), 3), call(normal(3), 0, group=SHAPES))
_each = exactly(*_calls((2,)), call(normal(3, 5), 3, dim=0), call(normal(3, 5), 2, dim=-1))
_pads = exactly(
    call(normal(2, 3, 5, 7), (1, 2)),
    call(normal(2, 3, 5, 7), (1, 2, 3, 0), value=2),
    call(normal(2, 3, 5, 7), (0, -1, 2, -2), value=3),
    call(normal(17), (3, 0)),
    call(normal(0, 3), (1, 1), group=SHAPES),
)
_mirrors = exactly(
    call(normal(2, 3, 5, 7), (1, 2, 3, 0), mode="reflect"),
    call(normal(2, 3, 17), (2, 3), mode="reflect"),
)
_edges = exactly(
    call(normal(2, 3, 5, 7), (1, 2, 3, 0), mode="replicate"),
    call(normal(2, 3, 17), (2, 3), mode="replicate"),
)
_around = exactly(call(normal(2, 3, 5, 7), (1, 2, 3, 0), mode="circular"))
_diagonals = exactly(
    call(normal(5)), call(normal(5), 2), call(normal(5), -1), call(normal(4, 6)), call(normal(4, 6), 1)
)
_permuted = exactly(*_calls(((2, 0, 1),), ((-1, 1, 0),)))
_expanded = exactly(call(normal(3, 1), (2, 3, 4)), call(normal(1, 5), (-1, 5)), call(normal(), (3, 2), group=SHAPES))
_windows = exactly(call(normal(17), 0, 5, 3), call(normal(3, 17), -1, 4, 5))


def _slices(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensor[1:], tensor[..., ::2], tensor[:, -2:], tensor[..., None, 1], tensor[-1]


def _assigned(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Write into every other row and the last column of a copy."""
    copy = tensor.clone()
    copy[::2] = other[: copy[::2].shape[0]]
    copy[..., -1] = 3
    return copy


_put_in = (
    call(uniform(5, 6, 7), uniform(5, 2, 7), dim=1, start=2, end=6, step=2),
    call(uniform(8), uniform(3), start=-3),
    call(uniform(4, 3), uniform(4, 3)),
)

OPERATORS = in_family(
    "movement",
    _view("clone", torch.clone, unary(special=ENDS, whole=(-_WIDE, _WIDE))),
    _move("contiguous", torch.Tensor.contiguous, exactly(call(_tensor(3, 5, 7)))),
    _move("cat", torch.cat, _joined),
    _move("stack", torch.stack, _stacked),
    _move("meshgrid", torch.meshgrid, _grids),
    _move("flip", torch.flip, _flips),
    _move("roll", torch.roll, _rolls),
    _move("tril", torch.tril, _triangles, out=True),
    _move("triu", torch.triu, _triangles, out=True),
    _move("repeat", torch.Tensor.repeat, _repeats),
    _move("repeat_interleave", torch.repeat_interleave, _each),
    _move("pad.constant", F.pad, _pads),
    _move("pad.reflect", F.pad, _mirrors, dtypes=FLOATS),
    _move("pad.replicate", F.pad, _edges, dtypes=FLOATS),
    _move("pad.circular", F.pad, _around, dtypes=FLOATS),
    _move("slice_scatter", torch.slice_scatter, exactly(*_put_in)),
    _move("diag", torch.diag, _diagonals, dtypes=FLOATS + INTS),
    _view("transpose", torch.transpose, exactly(*_calls((0, 1), (-1, 0)))),
    _view("permute", torch.permute, _permuted),
    _view("expand", torch.Tensor.expand, _expanded),
    _view("unfold", torch.Tensor.unfold, _windows, dtypes=FLOATS),
    _view("split", torch.split, exactly(*_calls((2,), (3, -1), ([1, 4], 1)))),
    _view("chunk", torch.chunk, exactly(*_calls((2,), (3, -1)))),
    _view("getitem", _slices, exactly(*_calls(()))),
    _move("reshape", torch.reshape, exactly(*_calls(((5, 21),), ((-1,),)))),
    _move("setitem", _assigned, exactly(call(normal(5, 6, 7), normal(5, 6, 7)))),
)
