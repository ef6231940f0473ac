"""Products of vectors and matrices, attention."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

from pytest_ascend.operators import Operator, Sample, call
from pytest_ascend.operators.callables import resolve
from pytest_ascend.operators.operator import ARITHMETIC, Inputs
from pytest_ascend.operators.samples import (
    EXACT,
    SHAPES,
    SPECIAL,
    TEMPLATE,
    Values,
    codes,
    mask,
    normal,
    rising,
    uniform,
    whole,
)
from pytest_ascend.system.dispatching import torch_is_before

from ..makers import by, exactly, in_family, numbers, over

_TERMS = 4097
_product = partial(Operator, exactness=ARITHMETIC, terms=_TERMS, exact_sums=True)
#: Number of terms in sums that are exact in any order: not a multiple of any block size.
_MANY = 16_383
_exactly = partial(call, group=EXACT)


def _long(*shape: int) -> Values:
    """Return values of one sign, so that a sum accumulated in 16 bits stops growing."""
    return uniform(*shape, low=0, high=1, grad=False)


_matrices = (
    call(normal(5, 17), normal(17, 7)),
    call(_long(7, _TERMS), _long(_TERMS, 5)),
    call(normal(33, 16), normal(16, 31)),
    _exactly(whole(5, _MANY), rising(_MANY, 3, dim=0, high=2)),
    call(normal(1, 1), normal(1, 1), group=SHAPES),
    call(normal(0, 3), normal(3, 5), group=SHAPES),
    call(normal(2, 0), normal(0, 3), group=SHAPES),
    call(numbers("nan", 1, 0, 2, shape=(2, 2)), numbers(1, 2, 3, "inf", shape=(2, 2)), group=SPECIAL),
)
_SHAPES = ((17,), (17,)), ((5, 17), (17,)), ((17,), (17, 5)), ((2, 1, 5, 17), (3, 17, 4)), ((3, 5, 7), (7, 4))
_any = (*_matrices, *(call(normal(*a), normal(*b)) for a, b in (*_SHAPES, ((3, 5, 7), (7,)))))


def _times_vector(*rows: int) -> Inputs:
    """Return products of vectors, or of matrices with these ``rows``, with a vector: of usual length, and long ones."""
    usual, other = call(normal(*rows[:1], 17), normal(17)), rows[1:]
    longer = call(_long(*other, _TERMS), _long(_TERMS)), _exactly(whole(*other, _MANY), rising(_MANY, high=2))
    return exactly(usual, *longer)


_batches = exactly(
    call(normal(3, 5, 17), normal(3, 17, 7)),
    call(_long(2, 5, _TERMS), _long(2, _TERMS, 3)),
    _exactly(whole(2, 3, _MANY), rising(2, _MANY, 3, dim=1, high=2)),
    call(normal(0, 3, 5), normal(0, 5, 2), group=SHAPES),
    call(normal(6, 7, 3), normal(6, 3, 9), group=TEMPLATE),
)
_scaled = by(), by(beta=0.5, alpha=2), by(beta=0, alpha=1)
_added = exactly(
    *over((normal(5, 7), normal(5, 17), normal(17, 7)), *_scaled),
    _exactly(whole(3, 5), whole(3, _MANY), rising(_MANY, 5, dim=0), beta=-2),
    call(normal(7), normal(5, 17), normal(17, 7), group=SHAPES),
    *(call(normal(*bias), normal(5, 9), normal(9, 7), beta=-1.5, group=TEMPLATE) for bias in ((5, 1), (1, 7), ())),
    call(numbers("nan", "inf", shape=(1, 2)), normal(1, 4), normal(4, 2), beta=0, group=SPECIAL),
)
_batches_added = exactly(
    *over((normal(3, 5, 7), normal(3, 5, 17), normal(3, 17, 7)), *_scaled),
    _exactly(whole(2, 3, 5), whole(2, 3, _MANY), rising(2, _MANY, 5, dim=1), beta=-2),
    *(call(normal(*bias), normal(3, 5, 9), normal(3, 9, 7), group=TEMPLATE) for bias in ((5, 1), (7,), (3, 1, 7))),
)
_many_added = _exactly(whole(5), whole(5, _MANY), rising(_MANY))
_vectors_added = exactly(*over((normal(5), normal(5, 17), normal(17)), *_scaled), _many_added)
_linear = exactly(
    *over((normal(5, 17), normal(7, 17)), by(), by(normal(7))),
    call(normal(2, 3, 17), normal(5, 17), normal(5)),
    call(_long(5, _TERMS), _long(7, _TERMS), _long(7)),
    _exactly(whole(5, _MANY), rising(3, _MANY), whole(3)),
    call(normal(0, 5), normal(3, 5), normal(3), group=SHAPES),
    call(normal(9), normal(7, 9), normal(7), group=TEMPLATE),
    call(normal(2, 3, 4, 9), normal(7, 9), group=TEMPLATE),
)
_heads, _others = normal(2, 2, 9, 8), normal(2, 2, 11, 8)
_attended = exactly(
    *over((_heads, _others, _others), by(), by(scale=0.25), by(attn_mask=normal(9, 11))),
    call(_heads, _heads, _heads, is_causal=True),
)


def _attend(queries: int, keys: int, depth: int, heads: tuple[int, ...] = (2, 3), **named: Any) -> Sample:
    """Attend with sizes that are all different, so that generated calls can change each separately.

    Gradients for many keys would take up most of the golden. Those of three-dimensional inputs are left out, since
    torch_npu has no gradient there for a head without elements.
    """
    others = [normal(*heads, keys, depth, grad=keys < 100 and len(heads) > 1) for _ in range(2)]
    return call(normal(*heads, queries, depth, grad=len(heads) > 1), *others, **named)


#: Masks for all, per batch, per head, for one row; additive masks of the same kinds.
_masked = exactly(
    *(_attend(9, 11, 8, attn_mask=mask(*shape)) for shape in ((9, 11), (2, 1, 9, 11), (2, 3, 9, 11), (1, 11))),
    *(_attend(9, 11, 8, attn_mask=normal(*shape, grad=False)) for shape in ((2, 1, 9, 11), (2, 3, 9, 11))),
    _attend(7, 7, 80, (1, 1), attn_mask=mask(7, 7)),
    _attend(5, 13, 80, (1,), attn_mask=mask(5, 13)),
)
#: Causal attention with more keys than queries, or fewer; one query; heads of 80.
_causal = exactly(
    *(_attend(*sizes, is_causal=True) for sizes in ((9, 11, 8), (11, 9, 8), (1, 11, 8))),
    _attend(7, 5, 80, (1, 1), is_causal=True),
    _attend(5, 7, 80, (1,), is_causal=True, scale=0.25),
)
_ones = partial(whole, low=1, high=1, grad=False)


def _select(queries: int, keys: int, depth: int) -> Sample:
    values = whole(1, 2, keys, depth, low=-127, high=127)
    return _exactly(codes(1, 2, queries, depth, high=64), codes(1, 2, keys, depth), values, scale=1.0)


#: Rows that exceed a block of any kernel.
_far = exactly(
    _attend(3, 1025, 8, (1, 2)),
    _attend(3, 1025, 8, (2, 1), attn_mask=mask(2, 1, 3, 1025)),
    _attend(3, 1025, 8, (1, 2), attn_mask=normal(3, 1025, grad=False)),
    _attend(601, 520, 4, (1, 1), is_causal=True),
    # Each query selects one key: the other weights are exp(-128), which is 0. Many queries, one key; equal weights.
    _select(1_027, 1_027, 16),
    _select(4_096, 16, 4),
    _exactly(_ones(1, 1, 3, 8), _ones(1, 1, 4_096, 8), rising(1, 1, 4_096, 8, dim=-2, high=2, grad=False)),
)
#: Fewer key heads than query heads, and fully masked rows.
_grouped = exactly(
    *(
        call(normal(2, 6, 9, 8), *(normal(2, few, 11, 8),) * 2, enable_gqa=True, **named)
        for few, named in ((1, {}), (3, {"is_causal": True}), (2, {"attn_mask": mask(9, 11)}))
    ),
    _attend(4, 5, 8, attn_mask=replace(numbers(*(0.0,) * 5, *(1.0,) * 5, *(0.0, 1.0) * 5, shape=(4, 5)), dtype="bool")),
)


def _has_terms(batch: torch.Tensor, other: torch.Tensor, *_: Any) -> bool:
    """Return whether a batch times one matrix or vector has terms: torch_npu cannot reshape its gradient otherwise."""
    return batch.dim() < 3 or other.dim() > 2 or batch.shape[-1] > 0


def _has_heads(query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Return whether attention has heads, or no such dimension: torch_npu divides by their number, and crashes on 0."""
    return query.dim() < 3 or 0 not in (query.shape[-3], key.shape[-3])


_attention_of = partial(Operator, function=F.scaled_dot_product_attention, terms=64, nonfinite=False, sweep=_has_heads)
#: Both were added in torch 2.5.
_GROUPED = "torch.nn.functional.scaled_dot_product_attention" + ("(enable_gqa=True)" if torch_is_before(2, 5) else "")

OPERATORS = in_family(
    "linear algebra",
    _product("mm", torch.mm, exactly(*_matrices), out=True),
    _product("matmul", torch.matmul, exactly(*_any), sweep=_has_terms),
    _product("bmm", torch.bmm, _batches, out=True),
    _product("mv", torch.mv, _times_vector(5, 3)),
    _product("dot", torch.dot, _times_vector()),
    _product("outer", torch.outer, exactly(call(normal(5), normal(17)))),
    _product("addmm", torch.addmm, _added, out=True, in_place=True),
    _product("baddbmm", torch.baddbmm, _batches_added, out=True),
    _product("addmv", torch.addmv, _vectors_added),
    _product("linear", F.linear, _linear, sweep=_has_terms),
    _attention_of("scaled_dot_product_attention", inputs=_attended),
    _attention_of("scaled_dot_product_attention.masked", inputs=_masked),
    _attention_of("scaled_dot_product_attention.causal", inputs=_causal),
    _attention_of("scaled_dot_product_attention.grouped", function=resolve(_GROUPED), inputs=_grouped),
    _attention_of("scaled_dot_product_attention.long", inputs=_far, terms=1025),
)
