"""Reductions and cumulative operators; order: sorting, top-k, and searching."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from pytest_ascend.operators import Operator, call
from pytest_ascend.operators.operator import ALL, ARITHMETIC, BOOL, FLOATS, INTS, MOVE
from pytest_ascend.operators.samples import EXACT, SHAPES, SPECIAL, TEMPLATE, distinct, few, given, rising, uniform

from ..makers import ONE_DIM, along, by, exactly, in_family, numbers, of_integers, over, reduction, together

_TERMS = 4099
_sums = partial(Operator, exactness=ARITHMETIC, terms=_TERMS)
_chosen = partial(Operator, exactness=ARITHMETIC)
_counts = partial(Operator, exactness=MOVE, grad=False)
_exactly = partial(call, group=EXACT)
#: More terms than any block holds; for means a power of two, whose reciprocal is exact.
_whole_sums, _whole_means = (
    exactly(
        *(_exactly(rising(*shape, dim=dim, high=2), dim=dim) for shape, dim in (((3, count), -1), ((count, 3), 0))),
        _exactly(rising(count, high=2)),
    )
    for count in (16_383, 16_384)
)
_running_sums = exactly(_exactly(rising(3, 16_383, high=2, grad=False), dim=-1))
_spread = ({"dim": 1, "correction": 0}, {"dim": (0, 2), "correction": 2, "keepdim": True})
_dtypes = ({"dim": 1, "dtype": torch.float32}, {"dim": 0, "dtype": torch.int64})
_orders = tuple({"ord": order, "dim": -1} for order in (1, 2, 3, float("inf"), 0))
_spreads = reduction(dims=(*ONE_DIM, *_spread), long=1025, empty=False)


def _variance_and_mean(x: torch.Tensor, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the mean separately: torch's own is NaN for a row with an infinity, where it should be an infinity."""
    over = {name: value for name, value in how.items() if name in ("dim", "keepdim")}
    return torch.var(x, **how), torch.mean(x, **over)


_running = along({"dim": 0}, {"dim": -1}, {"dim": 1}, source=uniform(3, 5, 17, low=-1.5, high=1.5), long=1025)
#: Sums beyond 2**31 and beyond 2**24.
_large = of_integers(call(uniform(17, 5, low=-(2.0**41), high=2.0**42), dim=0))
_products = along({"dim": 0}, {"dim": -1}, {"dim": 1}, source=uniform(3, 5, 7, low=0.5, high=1.5))
_flat = exactly(*(call(distinct(*shape), dim=dim, group=TEMPLATE) for shape, dim in (((251,), 0), ((16, 15), 1))))
_extremes = together(along({"dim": 0}, {"dim": -1}, {"dim": 1}, source=distinct(3, 5, 7)), _flat)
_cube = distinct(5, 6, 7)
_ROWS = (
    *over(_cube, by(dim=0), by(dim=-1), by(dim=-2, keepdim=True)),
    *(call(distinct(251), dim=0), call(distinct(16, 15), dim=1)),
    call(numbers(1, "nan", 2, "nan", 3, 1, shape=(2, 3)), dim=1, group=SPECIAL),
    *over(numbers(1, "inf", 2, "-inf", 3, 1, shape=(2, 3)), by(dim=1), by(dim=0), group=SPECIAL),
    *(call(distinct(1), dim=0, group=SHAPES), call(distinct(0, 3), dim=1, group=SHAPES)),
)
_rows = exactly(*_ROWS)
_positions = exactly(*_ROWS, call(distinct(15, 17)))
_norms = together(
    reduction(dims=ONE_DIM, empty=False),
    exactly(*(call(uniform(5, 6, 7, low=-2, high=2), p, dim=1, group=TEMPLATE) for p in (1, 3, float("inf")))),
)
_to_float32 = call(uniform(5, 6, 7, low=-2, high=2), dim=1, dtype=torch.float32, group=TEMPLATE)
_sums_of_numbers = together(reduction(), exactly(_to_float32))
_mixed = tuple(call(few(5, 6, 7, high=high), **named) for high in (1, 9) for named in ({}, *ONE_DIM))
_truths = together(reduction(-0.75, 0.75, dims=ONE_DIM, long=0), exactly(*_mixed))
_ends = reduction(-99, 99, empty=False)
_counted = reduction(-1, 1, dims=({"dim": 0}, {"dim": -1}, {"dim": (0, 2)}), long=0, special=False)

_REDUCTION = in_family(
    "reduction",
    _sums("sum", torch.sum, together(reduction(arguments=_dtypes[:1]), _large, _whole_sums), ALL, exact_sums=True),
    _sums("mean", torch.mean, together(reduction(arguments=_dtypes[:1], empty=True), _whole_means)),
    _sums("nansum", torch.nansum, together(_sums_of_numbers, _whole_sums), exact_sums=True),
    _sums("prod", torch.prod, reduction(0.75, 1.25, dims=ONE_DIM, long=0), FLOATS + INTS[:2]),
    *(_chosen(f"a{end}", getattr(torch, f"a{end}"), _ends, FLOATS + INTS, out=True) for end in ("max", "min")),
    *(_chosen(f"{end}.dim", getattr(torch, end), _rows, FLOATS + INTS) for end in ("max", "min")),
    _chosen("aminmax", torch.aminmax, _rows),
    *(_chosen(name, getattr(torch, name), _positions, FLOATS + INTS, grad=False) for name in ("argmax", "argmin")),
    _chosen("median.dim", torch.median, _rows, FLOATS + INTS[:2]),
    *(_counts(name, getattr(torch, name), _truths, FLOATS + INTS[:2] + BOOL) for name in ("all", "any")),
    _counts("count_nonzero", torch.count_nonzero, _counted, ALL),
    Operator("var", torch.var, _spreads, terms=_TERMS),
    Operator("std", torch.std, _spreads, terms=_TERMS),
    Operator("var_mean", torch.var_mean, _spreads, terms=_TERMS, definition=_variance_and_mean),
    Operator("logsumexp", torch.logsumexp, reduction(-9, 9, whole=False, long=1025), terms=_TERMS),
    Operator("vector_norm", torch.linalg.vector_norm, reduction(arguments=_orders, empty=False), terms=_TERMS),
    Operator("norm", torch.norm, _norms, terms=_TERMS),
    _sums("cumsum", torch.cumsum, together(_running, _large, _running_sums), FLOATS + INTS, out=True, exact_sums=True),
    _sums("cumprod", torch.cumprod, _products, FLOATS + INTS[:1]),
    *(_chosen(name, getattr(torch, name), _extremes, FLOATS + INTS[:2]) for name in ("cummax", "cummin")),
    Operator("logcumsumexp", torch.logcumsumexp, along({"dim": 0}, {"dim": -1}), terms=64),
)


_order = partial(Operator, exactness=MOVE)
_found = partial(Operator, exactness=MOVE, grad=False, nonfinite=False)
_nonfinite = numbers(1, "nan", -1, "inf", "-inf", 0.5)
_sorted = exactly(
    *over(_cube, by(), by(dim=0), by(dim=-2, descending=True)),
    *(call(distinct(251), descending=True), call(few(257), stable=True, dim=0)),
    call(few(3, 17), stable=True, dim=-1, descending=True),
    *over(_nonfinite, by(), by(descending=True), group=SPECIAL),
    *(call(distinct(size), group=SHAPES) for size in (0, 1)),
    call(distinct(3, 0), dim=0, group=SHAPES),
)
_largest = exactly(
    *over(_cube, by(3), by(2, dim=0), by(4, dim=1, largest=False)),
    *(call(distinct(255), 16, largest=False), call(distinct(16, 15), 15, dim=-1)),
    *over(_nonfinite, by(3), by(6, largest=False), group=SPECIAL),
    *(call(distinct(7), 0, group=SHAPES), call(distinct(1), 1, group=SHAPES)),
)
_kth = exactly(
    *over(_cube, by(3), by(2, dim=0)),
    call(distinct(251), 100, keepdim=True),
    call(distinct(16, 15), 4, dim=1, group=TEMPLATE),
)
_edges, _on_edges = given(-1.5, -0.5, 0.0, 0.5, 1.5, 2.0), given(-1.5, 0.0, 0.5, 2.0, -1.5, 7.0)
_between, _row = uniform(5, 51, low=-2, high=3), uniform(257, low=-2, high=3)
_places = exactly(
    *over(_edges, by(_between), by(_row, right=True), by(_on_edges, right=True), by(_on_edges)),
    call(_edges, uniform(17, low=-2, high=3), out_int32=True),
    call(_edges, _between, side="right", group=TEMPLATE),
)
_buckets = exactly(
    *(call(_between, _edges), call(_row, _edges, right=True)),
    call(_between, _edges, out_int32=True, group=TEMPLATE),
    *over((_on_edges, _edges), by(right=True), by()),
)
_several = exactly(
    *over(few(257, high=9), by(), by(return_inverse=True, return_counts=True)),
    call(few(3, 17), return_counts=True),
    *(call(few(size), group=SHAPES) for size in (1, 0)),
)
_set = exactly(
    call(few(5, 7, high=1)), call(few(257, high=2)), call(few(0, 3), group=SHAPES), call(few(), group=SHAPES)
)

_SORTING = in_family(
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

OPERATORS = (*_REDUCTION, *_SORTING)
