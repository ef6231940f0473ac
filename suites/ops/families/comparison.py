"""Comparisons and logic."""

from __future__ import annotations

from functools import partial

import torch

from pytest_ascend.operators.operator import ALL, FLOATS, MOVE, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, call
from pytest_ascend.operators.values import few, given

from ..makers import binary, exactly, in_family, numbers, together

_LARGE = (2**24 + 1, 2**31 + 1, 2**53 + 1, -(2**40) - 1, 2**24 + 2, 2**62 + 2)
#: Many equal pairs, and integers that a float would not tell apart.
_odd, _even = given(*_LARGE, dtype="int64"), given(*(each - each % 2 for each in _LARGE), dtype="int64")
_ties = exactly(
    call(few(1025), few(1025)),
    call(few(3, 5), 2),
    call(few(17, 1), few(3), group=SHAPES),
    call(_odd, _even, group=SHAPES),
)
_ordered = together(binary(-3, 3, scalars=(1, 0.5)), _ties)
_truths = binary(-2, 2)
_compare = partial(Operator, inputs=_ordered, dtypes=ALL, exactness=MOVE, grad=False, out=True, in_place=True)
_logic = partial(Operator, inputs=_truths, dtypes=ALL, exactness=MOVE, grad=False, out=True, in_place=True)
_near = exactly(
    call(few(257, high=9), few(257, high=9), atol=1.0, rtol=0.0),
    call(few(257, high=9), few(257, high=9), rtol=0.5),
    call(numbers("nan", "inf", "-inf", 1.0), numbers("nan", "inf", "inf", 1.0), equal_nan=True, group=SPECIAL),
    call(numbers("nan", "inf", "-inf", 1.0), numbers("nan", "inf", "inf", 1.0), group=SPECIAL),
)

OPERATORS = in_family(
    "comparison",
    _compare("eq", torch.eq),
    _compare("ne", torch.ne),
    _compare("lt", torch.lt),
    _compare("le", torch.le),
    _compare("gt", torch.gt),
    _compare("ge", torch.ge),
    _logic("logical_and", torch.logical_and),
    _logic("logical_or", torch.logical_or),
    _logic("logical_xor", torch.logical_xor),
    Operator("isclose", torch.isclose, _near, FLOATS, exactness=MOVE, grad=False),
)
