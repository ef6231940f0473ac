"""Order: sorting, the largest, and where something stands."""

from __future__ import annotations

from functools import partial

import torch

from pytest_ascend.operators.operator import ALL, FLOATS, INTS, MOVE, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, call
from pytest_ascend.operators.values import distinct, few, given, uniform

from ..makers import exactly, in_family, numbers

_order = partial(Operator, exactness=MOVE)
_found = partial(Operator, exactness=MOVE, grad=False, nonfinite=False)
_sorted = exactly(
    call(distinct(5, 6, 7)),
    call(distinct(5, 6, 7), dim=0),
    call(distinct(5, 6, 7), dim=-2, descending=True),
    call(distinct(251), descending=True),
    call(few(257), stable=True, dim=0),
    call(few(3, 17), stable=True, dim=-1, descending=True),
    call(numbers(1, "nan", -1, "inf", "-inf", 0.5), group=SPECIAL),
    call(numbers(1, "nan", -1, "inf", "-inf", 0.5), descending=True, group=SPECIAL),
    call(distinct(0), group=SHAPES),
    call(distinct(1), group=SHAPES),
    call(distinct(3, 0), dim=0, group=SHAPES),
)
_largest = exactly(
    call(distinct(5, 6, 7), 3),
    call(distinct(5, 6, 7), 2, dim=0),
    call(distinct(5, 6, 7), 4, dim=1, largest=False),
    call(distinct(255), 16, largest=False),
    call(distinct(16, 15), 15, dim=-1),
    call(numbers(1, "nan", -1, "inf", "-inf", 0.5), 3, group=SPECIAL),
    call(numbers(1, "nan", -1, "inf", "-inf", 0.5), 6, largest=False, group=SPECIAL),
    call(distinct(7), 0, group=SHAPES),
    call(distinct(1), 1, group=SHAPES),
)
_kth = exactly(call(distinct(5, 6, 7), 3), call(distinct(5, 6, 7), 2, dim=0), call(distinct(251), 100, keepdim=True))
_edges = given(-1.5, -0.5, 0.0, 0.5, 1.5, 2.0)
_places = exactly(
    call(_edges, uniform(5, 51, low=-2, high=3)),
    call(_edges, uniform(257, low=-2, high=3), right=True),
    call(_edges, given(-1.5, 0.0, 0.5, 2.0, -1.5, 7.0), right=True),
    call(_edges, given(-1.5, 0.0, 0.5, 2.0, -1.5, 7.0)),
    call(_edges, uniform(17, low=-2, high=3), out_int32=True),
)
_buckets = exactly(
    call(uniform(5, 51, low=-2, high=3), _edges),
    call(uniform(257, low=-2, high=3), _edges, right=True),
    call(given(-1.5, 0.0, 0.5, 2.0, -1.5, 7.0), _edges, right=True),
    call(given(-1.5, 0.0, 0.5, 2.0, -1.5, 7.0), _edges),
)
_several = exactly(
    call(few(257, high=9)),
    call(few(257, high=9), return_inverse=True, return_counts=True),
    call(few(3, 17), return_counts=True),
    call(few(1), group=SHAPES),
    call(few(0), group=SHAPES),
)
_set = exactly(
    call(few(5, 7, high=1)), call(few(257, high=2)), call(few(0, 3), group=SHAPES), call(few(), group=SHAPES)
)

OPERATORS = in_family(
    "sorting",
    _order("sort", torch.sort, _sorted, FLOATS + INTS),
    _found("argsort", torch.argsort, _sorted, FLOATS + INTS[:2]),
    _order("topk", torch.topk, _largest, FLOATS + INTS),
    _order("kthvalue", torch.kthvalue, _kth, FLOATS + INTS[:2], nonfinite=False),
    _found("searchsorted", torch.searchsorted, _places),
    _found("bucketize", torch.bucketize, _buckets),
    _found("unique", torch.unique, _several, ("float32", *INTS)),
    _found("nonzero", torch.nonzero, _set, ALL),
)
