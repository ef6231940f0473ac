"""Products of vectors and matrices, attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.operator import ARITHMETIC, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, Sample, call
from pytest_ascend.operators.values import Values, normal, uniform

from ..makers import exactly, in_family, numbers

_TERMS = 4097
_product = partial(Operator, exactness=ARITHMETIC, terms=_TERMS)


def _long(*shape: int) -> Values:
    """Of one sign, so that a sum that is kept in 16 bits stops to grow."""
    return uniform(*shape, low=0, high=1, grad=False)


_matrices = (
    call(normal(5, 17), normal(17, 7)),
    call(_long(7, _TERMS), _long(_TERMS, 5)),
    call(normal(33, 16), normal(16, 31)),
    call(normal(1, 1), normal(1, 1), group=SHAPES),
    call(normal(0, 3), normal(3, 5), group=SHAPES),
    call(normal(2, 0), normal(0, 3), group=SHAPES),
    call(numbers("nan", 1, 0, 2, shape=(2, 2)), numbers(1, 2, 3, "inf", shape=(2, 2)), group=SPECIAL),
)
_any = (
    *_matrices,
    call(normal(17), normal(17)),
    call(normal(5, 17), normal(17)),
    call(normal(17), normal(17, 5)),
    call(normal(2, 1, 5, 17), normal(3, 17, 4)),
    call(normal(3, 5, 7), normal(7, 4)),
    call(normal(3, 5, 7), normal(7)),
)
_batches = exactly(
    call(normal(3, 5, 17), normal(3, 17, 7)),
    call(_long(2, 5, _TERMS), _long(2, _TERMS, 3)),
    call(normal(0, 3, 5), normal(0, 5, 2), group=SHAPES),
)
_scaled: tuple[dict[str, Any], ...] = ({}, {"beta": 0.5, "alpha": 2}, {"beta": 0, "alpha": 1})
_added = exactly(
    *(call(normal(5, 7), normal(5, 17), normal(17, 7), **each) for each in _scaled),
    call(normal(7), normal(5, 17), normal(17, 7)),
    call(numbers("nan", "inf", shape=(1, 2)), normal(3, 4), normal(4, 2), beta=0, group=SPECIAL),
)
_batches_added = exactly(*(call(normal(3, 5, 7), normal(3, 5, 17), normal(3, 17, 7), **each) for each in _scaled))
_vectors_added = exactly(*(call(normal(5), normal(5, 17), normal(17), **each) for each in _scaled))
_linear = exactly(
    call(normal(5, 17), normal(7, 17)),
    call(normal(5, 17), normal(7, 17), normal(7)),
    call(normal(2, 3, 17), normal(5, 17), normal(5)),
    call(_long(5, _TERMS), _long(7, _TERMS), _long(7)),
    call(normal(0, 5), normal(3, 5), normal(3), group=SHAPES),
)
_heads = (2, 2, 9, 8)
_others = (2, 2, 11, 8)


def _attention(**named: Any) -> Sample:
    return call(normal(*_heads), normal(*_others), normal(*_others), **named)


_attended = exactly(
    _attention(),
    _attention(scale=0.25),
    _attention(attn_mask=normal(9, 11)),
    call(normal(*_heads), normal(*_heads), normal(*_heads), is_causal=True),
)

OPERATORS = in_family(
    "linear algebra",
    _product("mm", torch.mm, exactly(*_matrices), out=True),
    _product("matmul", torch.matmul, exactly(*_any)),
    _product("bmm", torch.bmm, _batches, out=True),
    _product("mv", torch.mv, exactly(call(normal(5, 17), normal(17)), call(_long(3, _TERMS), _long(_TERMS)))),
    _product("dot", torch.dot, exactly(call(normal(17), normal(17)), call(_long(_TERMS), _long(_TERMS)))),
    _product("outer", torch.outer, exactly(call(normal(5), normal(17)))),
    _product("addmm", torch.addmm, _added, out=True),
    _product("baddbmm", torch.baddbmm, _batches_added, out=True),
    _product("addmv", torch.addmv, _vectors_added),
    _product("linear", F.linear, _linear),
    Operator("scaled_dot_product_attention", F.scaled_dot_product_attention, _attended, terms=64, nonfinite=False),
)
