"""Operators that move elements without computing, so that every bit is promised; conversion, filling, ranges."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

from pytest_ascend.operators.operator import ALL, ARITHMETIC, FLOATS, INTS, MOVE, InputFactory, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, TEMPLATE, Number, Sample, Values, call, normal, uniform

from ..makers import ENDS, by, exactly, in_family, numbers, over, unary

_move = partial(Operator, dtypes=ALL, exactness=MOVE)
_view = partial(_move, strides=True)
#: Large integers, to detect a conversion to 32 bits or float.
_WIDE = 2.0**42


def _calls(*arguments: tuple[Any, ...]) -> tuple[Sample, ...]:
    return tuple(call(normal(3, 5, 7), *each) for each in arguments)


def _lists(*rows: tuple[Any, ...], **named: Any) -> Iterator[Sample]:
    """Yield calls with lists of tensors of these shapes; each row ends with the dimension, or the indexing mode."""
    for *shapes, how in rows:
        yield call([normal(*each) for each in shapes], **{"dim" if isinstance(how, int) else "indexing": how}, **named)


_joined = exactly(
    *_lists(((2, 3, 5), (4, 3, 5), 0), ((2, 3, 5), (2, 1, 5), (2, 4, 5), -2), ((2, 3, 5), (2, 3, 17), -1)),
    *_lists(((17,), (0,), (256,), 0), ((1,), 0), group=SHAPES),
    *_lists(((3, 5), (4, 5), 0), ((5, 3), (5, 4), (5, 2), 1), group=TEMPLATE),
    *_lists(((7,), (9,), (8,), (10,), (11,), 0), ((2, 3, 4, 5), (2, 6, 4, 5), 1), group=TEMPLATE),
)
_grids = exactly(
    *_lists(((17,), (5,), "ij"), ((5,), (17,), "xy"), ((3,), (), (7,), "ij"), ((3,), (2,), (7,), "xy"), ((257,), "ij")),
    *_lists(((0,), (5,), "xy"), group=SHAPES),
)
_stacked = exactly(
    *_lists(((3, 5), (3, 5), 0), ((3, 5), (3, 5), (3, 5), -1), ((3, 5), (3, 5), 1)),
    *_lists(((), (), 0), group=SHAPES),
    *_lists((*((7,),) * 5, 0), (*((3, 5, 4),) * 2, 2), group=TEMPLATE),
)
_rows, _none = normal(257), normal(0, 3)
_flips = exactly(*_calls(([0],), ([-1],), ([0, 2],), ([1, -1],)), call(_rows, [0]), call(_none, [0], group=SHAPES))
_rolled = call(normal(17), 20, 0), call(normal(0), 1, group=SHAPES)
_rolls = exactly(*_calls((2, 0), (-3, -1), ((1, -2), (0, 2)), (4,)), *_rolled)
_triangles = exactly(*_calls((0,), (1,), (-2,)), call(normal(17, 15), 3), call(normal(0, 3), group=SHAPES))
_repeats = exactly(*_calls((2, 1, 3), (2, 3, 1, 2)), call(normal(17), 3), call(normal(3), 0, group=SHAPES))
_counts = uniform(4, low=1, high=3, dtype="int64")
_each = exactly(
    *_calls((2,)),
    *over(normal(3, 5), by(3, dim=0), by(2, dim=-1)),
    *(call(normal(4, 2, 5), _counts, dim=0), call(normal(2, 4, 5), _counts, dim=1)),
)
_image = normal(2, 3, 5, 7)
_pads = exactly(
    *over(_image, by((1, 2)), by((1, 2, 3, 0), value=2), by((0, -1, 2, -2), value=3)),
    *(call(normal(17), (3, 0)), call(normal(0, 3), (1, 1), group=SHAPES)),
)
_line = (2, 3, 17), (2, 3)
#: Mode -> shapes and paddings other than those of an image: for calls, and for templates of generated ones.
_padded = {
    mode: exactly(
        *(call(normal(*shape), padding, mode=mode) for shape, padding in ((_image.shape, (1, 2, 3, 0)), *calls)),
        *(call(normal(*shape), padding, mode=mode, group=TEMPLATE) for shape, padding in starts),
    )
    for mode, calls, starts in (
        ("reflect", [_line], [((3, 9), (3, 1)), ((3, 5, 7), (0, 2, 1, 3)), ((2, 3, 4, 5, 6), (1, 0, 2, 1, 1, 2))]),
        ("replicate", [_line], [((3, 9), (3, 12)), ((3, 5, 7), (0, 9, 1, 3))]),
        ("circular", [], [((2, 3, 9), (2, 3))]),
    )
}
_diagonals = exactly(*over(normal(5), by(), by(2), by(-1)), *over(normal(4, 6), by(), by(1)))
_permuted = exactly(*_calls(((2, 0, 1),), ((-1, 1, 0),)), call(normal(3, 5, 7, 4), (3, 1, 0, 2), group=TEMPLATE))
_ends = (call(normal(*shape), 0, -1, group=TEMPLATE) for shape in ((5, 7), (3, 5, 7, 4)))
_swapped = exactly(*_calls((0, 1), (-1, 0)), *_ends)
_expanded = exactly(call(normal(3, 1), (2, 3, 4)), call(normal(1, 5), (-1, 5)), call(normal(), (3, 2), group=SHAPES))
_windows = exactly(call(normal(17), 0, 5, 3), call(normal(3, 17), -1, 4, 5))


def _assigned(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    copy = tensor.clone()
    copy[::2] = other[: copy[::2].shape[0]]
    copy[..., -1] = 3
    return copy


_put_in = (
    call(uniform(5, 6, 7), uniform(5, 2, 7), dim=1, start=2, end=6, step=2),
    *(call(uniform(8), uniform(3), start=-3), call(uniform(4, 3), uniform(4, 3))),
)

_MOVEMENT = in_family(
    "movement",
    _view("clone", torch.clone, unary(special=ENDS, whole=(-_WIDE, _WIDE))),
    _move("contiguous", torch.Tensor.contiguous, exactly(call(uniform(3, 5, 7, low=-_WIDE, high=_WIDE)))),
    _move("cat", torch.cat, _joined),
    _move("stack", torch.stack, _stacked),
    _move("meshgrid", torch.meshgrid, _grids),
    _move("flip", torch.flip, _flips),
    _move("roll", torch.roll, _rolls),
    _move("tril", torch.tril, _triangles, out=True, in_place=True),
    _move("triu", torch.triu, _triangles, out=True, in_place=True),
    _move("repeat", torch.Tensor.repeat, _repeats),
    _move("repeat_interleave", torch.repeat_interleave, _each),
    _move("pad.constant", F.pad, _pads),
    *(_move(f"pad.{mode}", F.pad, calls, dtypes=FLOATS) for mode, calls in _padded.items()),
    _move("slice_scatter", torch.slice_scatter, exactly(*_put_in)),
    _move("diag", torch.diag, _diagonals, dtypes=FLOATS + INTS),
    _view("transpose", torch.transpose, _swapped),
    _view("permute", torch.permute, _permuted),
    _view("expand", torch.Tensor.expand, _expanded),
    _view("unfold", torch.Tensor.unfold, _windows, dtypes=FLOATS),
    _view("split", torch.split, exactly(*_calls((2,), (3, -1), ([1, 4], 1)))),
    _view("chunk", torch.chunk, exactly(*_calls((2,), (3, -1)))),
    _view("getitem", lambda x: (x[1:], x[..., ::2], x[:, -2:], x[..., None, 1], x[-1]), exactly(*_calls(()))),
    _move("reshape", torch.reshape, exactly(*_calls(((5, 21),), ((-1,),)))),
    _move("setitem", _assigned, exactly(call(normal(5, 6, 7), normal(5, 6, 7)))),
)


_TO = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.bool)
#: Halfway between two float16 and two bfloat16 numbers, on both sides; float16's largest, and the first beyond it.
_BETWEEN: tuple[Number, ...] = (
    *(1 + odd * 2.0**-bits for bits in (8, 9, 11, 12) for odd in (1, 3)),
    65504.0, 65519.0, 65520.0, -65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25,
    "nan", "inf", "-inf", 0.0, -0.0,
)  # fmt: skip
_like: Values = normal(3, 5, grad=False)
_filled = exactly(call(_like), call(normal(grad=False), group=SHAPES), call(normal(0, 3), group=SHAPES))


def _conversions(make: InputFactory) -> Iterator[Sample]:
    """Yield conversions to each dtype, from values in its range: for others, integer results are undefined."""
    for target in _TO:
        wide = target in (torch.int64, torch.float32, torch.int32) and not make.dtype.is_floating_point
        end = 2.0**30 + 2.0**28 if wide else 90.0
        yield call(uniform(5, 51, low=-end, high=end), target)
        if make.dtype.is_floating_point and target.is_floating_point:
            yield call(numbers(*_BETWEEN), target, group=SPECIAL)
    yield call(normal(), torch.float16, group=SHAPES)
    yield call(normal(0, 3), torch.float16, group=SHAPES)


def _made(function: Any, like: torch.Tensor, *numbers: Any) -> Any:
    return function(*numbers, dtype=like.dtype, device=like.device)


_numbers = FLOATS + INTS
_fixed = partial(Operator, dtypes=ALL, exactness=MOVE, grad=False)
_ranges = exactly(call(_like, 17), call(_like, 3, 20, 2), call(_like, 9, -3, -1), call(_like, 5, 5, group=SHAPES))
_spaces = exactly(call(_like, 0, 4, 17), call(_like, -2, 3, 5), call(_like, 1, 1, 1, group=SHAPES))
_sources = exactly(
    *(call(_like, uniform(3, 5, low=-9, high=9, dtype=each)) for each in ("float32", "bfloat16", "int64")),
    call(normal(3, 5), normal(5)),
)

_CREATION = in_family(
    "creation",
    Operator("to", torch.Tensor.to, _conversions, ALL, exactness=MOVE),
    _fixed("zeros_like", torch.zeros_like, _filled),
    _fixed("ones_like", torch.ones_like, _filled),
    _fixed("full_like", torch.full_like, exactly(call(_like, 3), call(_like, 1, group=SHAPES, name="one"))),
    _fixed(
        "fill_",
        lambda x, number: x.clone().fill_(number),
        exactly(call(_like, 3), call(normal(3, 5, 7, grad=False), 1)),
    ),
    _fixed("copy_", lambda x, source: x.clone().copy_(source), _sources, dtypes=_numbers, grad=True),
    _fixed("arange", partial(_made, torch.arange), _ranges, dtypes=_numbers),
    Operator("linspace", partial(_made, torch.linspace), _spaces, grad=False, exactness=ARITHMETIC, terms=16),
    _fixed("eye", partial(_made, torch.eye), exactly(call(_like, 5), call(_like, 3, 4))),
)

OPERATORS = (*_MOVEMENT, *_CREATION)
