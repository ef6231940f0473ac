"""Reading and writing by index. Indices repeat, are unordered, and count from both ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

from pytest_ascend.operators import Operator, call
from pytest_ascend.operators.operator import ALL, ARITHMETIC, FLOATS, INTS, MOVE
from pytest_ascend.operators.samples import (
    EXACT,
    SHAPES,
    SPECIAL,
    TEMPLATE,
    Values,
    addends,
    given,
    integers,
    mask,
    normal,
    places,
    whole,
)

from ..makers import by, exactly, in_family, numbers, over

_read = partial(Operator, dtypes=ALL, exactness=MOVE)
_written = partial(Operator, dtypes=FLOATS + INTS[:2], exactness=MOVE)
_added = partial(
    Operator, deterministic=False, dtypes=FLOATS + INTS[:2], exactness=ARITHMETIC, terms=64, exact_sums=True
)


def _rows(*numbers_: int) -> Values:
    return given(*numbers_, dtype="int64")


#: Many terms in each of few places; their sums are exact in bfloat16 in any order.
_PLACES, _TERMS = 256, 16_383
_placed = integers(_TERMS, low=0, high=_PLACES - 1)
#: Templates of generated calls: the given indices above have a fixed size.
_template = partial(call, group=TEMPLATE)
#: Shapes and the dimension to index, the longest of each: with another size, indices stay below all longer ones.
_BY_DIM = (((7, 5, 3), 0), ((3, 7, 5), 1), ((5, 3, 7), -1), ((5, 7), 1), ((7, 5), 0))
_OF_EMBEDDINGS: tuple[dict[str, Any], ...] = ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True})
_FACTORS: tuple[dict[str, Any], ...] = ({}, {"alpha": 3}, {}, {"alpha": -2}, {})


def _index(*shape: int) -> Values:
    return integers(*shape, low=0, high=6)


def _in_place_of(shape: tuple[int, ...], dim: int, count: int) -> tuple[int, ...]:
    return tuple(count if place == dim % len(shape) else size for place, size in enumerate(shape))


#: The same, each with the shape of eleven rows.
_ADDED = tuple((shape, dim, _in_place_of(shape, dim, 11)) for shape, dim in _BY_DIM)
_again, _once, _plane, _cube = _rows(4, 0, 4, 2, 1, 4), _rows(4, 0, 2), normal(5, 7), normal(5, 6, 7)
_selected = exactly(
    *(call(_cube, 0, _again), call(normal(6, 5, 7), 1, _once), call(normal(6, 7, 5), -1, _rows(3, 3, 0))),
    call(normal(257), 0, integers(33, low=0, high=256)),
    call(normal(5, 3), 0, given(dtype="int64"), group=SHAPES),
    *(_template(normal(*shape), dim, _index(11)) for shape, dim in _BY_DIM),
)
_gathered = exactly(
    *over(_cube, by(0, integers(3, 6, 7, low=0, high=4)), by(1, integers(5, 9, 7, low=0, high=5))),
    call(_cube, -1, integers(4, 5, 3, low=0, high=6)),
    call(normal(257), 0, integers(33, low=0, high=256)),
)
_taken = exactly(
    *over(_plane, by(integers(3, 4, low=0, high=34)), by(_rows(-1, 0, -35, 34))),
    *(_template(normal(*shape), _index(*index)) for shape, index in (((7,), (9, 4)), ((7, 9), (11,)), ((7,), (17,)))),
)
_along = exactly(
    *over(_plane, by(integers(1, 7, low=0, high=4), 0), by(integers(5, 2, low=0, high=6), 1)),
    *(_template(normal(*shape), _index(*_in_place_of(shape, dim, 4)), dim) for shape, dim in _BY_DIM),
)
_embedded = exactly(
    call(_rows(1, 4, 1, 0, 9), normal(10, 7)),
    *over((integers(3, 5, low=0, high=9), normal(10, 17)), by(), by(padding_idx=4)),
    call(_placed, whole(_PLACES, 3), group=EXACT),
    call(given(dtype="int64"), normal(10, 3), group=SHAPES),
    *(_template(_index(*shape), normal(7, 5), **named) for shape in ((11,), (2, 3, 4)) for named in _OF_EMBEDDINGS),
)
_image = normal(2, 3, 5, 7)
_filled = exactly(
    *over(_image, by(mask(*_image.shape), -2.5), by(mask(5, 1), 3.0)),
    *(call(normal(257), mask(257), float("-inf")), call(normal(), mask(), 1.5, group=SHAPES)),
    call(numbers("nan", "inf", -0.0, 1.0), mask(4), 0.0, group=SPECIAL),
)
_filled_with_numbers = exactly(*over(_image, by(mask(*_image.shape), 3), by(mask(5, 1), 1)))
_masked = exactly(
    *(call(_plane, mask(5, 7)), call(normal(3, 5, 7), mask(5, 1)), call(normal(0, 3), mask(0, 3), group=SHAPES)),
    *(_template(normal(*shape), mask(*shape)) for shape in ((17,), (3, 5, 7))),
    _template(normal(5, 7), mask(7)),
)
_dotted = exactly(
    *over(_plane, by(0, _once, 2.0), by(-1, _rows(6, 1), -3.0)),
    *(_template(normal(*shape), dim, _index(4), 2.0) for shape, dim in _BY_DIM),
)
_copied = exactly(
    *(call(_plane, 0, _once, normal(3, 7)), call(normal(4, 6), -1, _rows(5, 1), normal(4, 2))),
    *(_template(normal(*shape), dim, places(7), normal(*shape)) for shape, dim in _BY_DIM),
)
#: Many elements added in few places.
_many = (
    call(normal(17), 0, integers(64, low=0, high=16), normal(64)),
    call(whole(_PLACES), 0, _placed, addends(_TERMS), group=EXACT),
)
_added_rows = exactly(
    *over(_plane, by(0, _again, normal(6, 7)), by(-1, _rows(6, 1, 6), normal(5, 3), alpha=2)),
    *_many,
    *(
        _template(normal(*shape), dim, _index(11), normal(*added), **named)
        for (shape, dim, added), named in zip(_ADDED, _FACTORS, strict=True)
    ),
)
_scattered = exactly(
    call(_plane, 0, given(0, 1, 2, 3, 4, 0, 1, 4, 3, 1, 0, 2, 2, 0, shape=(2, 7), dtype="int64"), normal(2, 7)),
    call(_plane, -1, given(6, 0, 1, 2, 3, 4, 5, 6, 0, 1, shape=(5, 2), dtype="int64"), normal(5, 2)),
    *(_template(normal(*shape), dim, places(*shape, dim=dim), normal(*shape)) for shape, dim in _BY_DIM),
    _template(normal(7, 5), 0, places(7, 5), 3),
)
_scatter_added = exactly(
    call(_plane, 0, integers(6, 7, low=0, high=4), normal(6, 7)),
    call(_plane, 1, integers(5, 9, low=0, high=6), normal(5, 9)),
    *_many,
    *(_template(normal(*shape), dim, _index(*added), normal(*added)) for shape, dim, added in _ADDED),
)
_seven, _eleven = places(7), _index(11)
_put = exactly(
    *over(_plane, by((_once,), normal(3, 7)), by((_once, _rows(1, 6, 0)), normal(3))),
    call(_plane, (mask(5, 7),), given(2.0, shape=(), grad=True)),
    *(_template(normal(7, 5), (_seven,), normal(7, 5)), _template(normal(7, 5, 3), (_seven,), normal(5, 3))),
    *(_template(normal(7, 7, 3), (_seven,) * 2, normal(7, 3)), _template(normal(7), (_seven,), normal(7))),
)
_accumulated = exactly(
    call(_plane, (_again,), normal(6, 7), accumulate=True),
    call(whole(_PLACES), (_placed,), addends(_TERMS), accumulate=True, group=EXACT),
    *(
        _template(normal(*shape), (_eleven,) * count, normal(*added), accumulate=True)
        for shape, count, added in (
            ((7, 5), 1, (11, 5)),
            ((7, 5, 3), 1, (5, 3)),
            ((7, 8, 3), 2, (11, 3)),
            ((7,), 1, (11,)),
        )
    ),
)
_at = exactly(
    *over(_cube, by(_again), by(_once, _rows(-1, 0, 3)), by(mask(5, 6))),
    call(_cube, slice(1, 4), given(0, 3, -1, 0, shape=(2, 2), dtype="int64")),
    *(_template(normal(7, 5, 3), _eleven), _template(normal(7, 8, 3), _eleven, _eleven)),
    *(_template(normal(3, 7), slice(None), _index(4, 5)), _template(normal(17), mask(17))),
)
_hot = exactly(call(_rows(0, 3, 1), 5), call(_index(3, 4), 7), _template(_index(17), 7), _template(_index(2, 3, 4), 9))

OPERATORS = in_family(
    "indexing",
    _read("index_select", torch.index_select, _selected, terms=64),
    _read("gather", torch.gather, _gathered, terms=64),
    _read("take", torch.take, _taken),
    _read("take_along_dim", torch.take_along_dim, _along),
    _read("index", lambda x, *index: x[index], _at),
    _read("masked_select", torch.masked_select, _masked),
    Operator("embedding", F.embedding, _embedded, exactness=MOVE, terms=64),
    Operator("one_hot", F.one_hot, _hot, ("int64",), exactness=MOVE, grad=False),
    _read("masked_fill", torch.masked_fill, _filled, dtypes=FLOATS, in_place=True),
    _read("masked_fill.integers", torch.masked_fill, _filled_with_numbers, dtypes=INTS),
    _written("index_fill", torch.index_fill, _dotted, in_place=True),
    _written("index_copy", torch.index_copy, _copied, in_place=True),
    _added("index_add", torch.index_add, _added_rows, in_place=True),
    _written("index_put", torch.index_put, _put, in_place=True),
    _added("index_put.accumulate", torch.index_put, _accumulated, in_place=True),
    _written("scatter", torch.scatter, _scattered, in_place=True),
    _added("scatter_add", torch.scatter_add, _scatter_added, in_place=True),
)
