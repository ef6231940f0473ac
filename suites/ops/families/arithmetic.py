"""Arithmetic of two and three tensors, comparisons and logic."""

from __future__ import annotations

from functools import partial

import torch

from pytest_ascend.operators.operator import ALL, ARITHMETIC, BOOL, DENSE, FLOATS, INTS, MOVE, Operator
from pytest_ascend.operators.samples import (
    PROMOTION,
    SHAPES,
    SPECIAL,
    TEMPLATE,
    call,
    few,
    given,
    mask,
    normal,
    uniform,
)

from ..makers import IMAGE, PARTNERS, binary, by, exactly, in_family, numbers, over, together

_NUMBERS = FLOATS + INTS
_SCALARS = (2.5, -3)
#: Beyond 2**31 and beyond 2**24, to detect integers converted to 32 bits or to float.
_WIDE = (-(2.0**41), 2.0**40 + 2.0**33)
_modes = tuple({"rounding_mode": mode} for mode in ("trunc", "floor"))

_exact = partial(Operator, exactness=ARITHMETIC, out=True, in_place=True)
_ieee = partial(_exact, signed_zero=True)
_function = partial(Operator, out=True, in_place=True)
_bits = partial(Operator, exactness=MOVE, out=True, in_place=True, grad=False)
_step = partial(Operator, dtypes=_NUMBERS, grad=False, nonfinite=False)
_shift = partial(_bits, out=False, layouts=DENSE)
_choice = partial(Operator, exactness=ARITHMETIC, out=True)

_whole = binary(-100, 100, whole=_WIDE, special=(), scalars=(5,), partners=("int64", "int32", "uint8", "bool"))
_far = binary(-99, 99, whole=_WIDE)
_shifts = binary(-60, 60, second=(0, 3), special=(), scalars=(2,), partners=())
#: The gradient by the second is a whole number of times, which a rounded quotient may correctly miss by one.
_divided = binary(-90, 90, second=(1, 9), special=(), second_grad=False, scalars=(2.5, 4))
_divisors = (0.5, 6.0)
_no_bool = binary(whole=_WIDE, scalars=_SCALARS, arguments=({"alpha": 2},), partners=PARTNERS[:-1])
_pair = uniform(257, low=0, high=4), uniform(257, low=0, high=4)
_reversed = together(
    binary(whole=_WIDE, scalars=_SCALARS, partners=()),
    exactly(*(call(*_pair, alpha=each, group=TEMPLATE) for each in (2, 3))),
)
_quotients = binary(-90, 90, second=(1, 9), special=(), scalars=(4,))
_powers = binary(0.25, 3, second=(-2, 3), special=(), scalars=(2, 3, 0.5), partners=())
_image = uniform(*IMAGE)
_three = exactly(
    *over((_image, _image, uniform(*IMAGE, low=0.5, high=3)), by(), by(value=0.5)),
    call(uniform(5, 1), uniform(1, 7), uniform(7, low=0.5, high=3), value=-2, group=SHAPES),
    call(uniform(), uniform(3, 1), uniform(1, 4, low=0.5, high=3), group=SHAPES),
    call(uniform(0, 3), uniform(0, 1), uniform(3, low=0.5, high=3), group=SHAPES),
    call(numbers("nan", 1, 2, "inf"), numbers(1, "nan", "inf", 2), numbers(1, 2, 4, "-inf"), group=SPECIAL),
)
_weights = exactly(
    *over((_image, _image), by(uniform(*IMAGE, low=0, high=1)), by(0.25)),
    call(uniform(257), uniform(257), 0.75),
    call(uniform(3, 1), uniform(1, 4), uniform(4, low=0, high=1), group=SHAPES),
    call(numbers("nan", 1, 2), numbers(1, "nan", 4), 0.5, group=SPECIAL),
)
_chosen = exactly(
    *(call(mask(*IMAGE), normal(*IMAGE), normal(*IMAGE)), call(mask(5, 7), normal(*IMAGE), normal(7))),
    call(mask(1025), uniform(1025, low=-90, high=90, grad=False), uniform(1025, low=-90, high=90, grad=False)),
    *(call(mask(rows, 1), normal(1, 4), normal(), group=SHAPES) for rows in (3, 0)),
    call(mask(), normal(3), normal(), group=SHAPES),
    call(mask(5), numbers("nan", 1, "inf", -0.0, 0.0), numbers(1, "nan", -0.0, "-inf", 2), group=SPECIAL),
    *(
        call(mask(3, 4), uniform(3, 4, low=0, high=9), uniform(3, 4, low=0, high=9, dtype=each), group=PROMOTION)
        for each in ("float32", "float16", "int64", "bool")
    ),
    call(mask(3, 4), uniform(3, 4, low=0, high=9), 2.5, group=PROMOTION),
)

_ARITHMETIC = in_family(
    "arithmetic",
    _ieee("add", torch.add, binary(whole=_WIDE, scalars=_SCALARS, arguments=({"alpha": 2}, {"alpha": -3})), _NUMBERS),
    _ieee("sub", torch.sub, _no_bool, _NUMBERS),
    _exact("rsub", torch.rsub, _reversed, _NUMBERS, out=False, in_place=False),
    _ieee("mul", torch.mul, binary(whole=_WIDE, scalars=_SCALARS), ALL),
    _function("div", torch.div, binary(second=_divisors, scalars=_SCALARS), ALL, signed_zero=True),
    _step("div.rounding_mode", torch.div, binary(-90, 90, second=(1, 9), special=(), arguments=_modes)),
    _step("floor_divide", torch.floor_divide, _quotients, out=True, in_place=True),
    *(_exact(name, getattr(torch, name), _divided, _NUMBERS, nonfinite=False) for name in ("remainder", "fmod")),
    _function("pow", torch.pow, _powers, nonfinite=False),
    _function("atan2", torch.atan2, binary(special=(0.0, -0.0, 1.0, -1.0, "nan", "inf"), partners=())),
    Operator("logaddexp", torch.logaddexp, binary(-30, 30, special=(1.0, "nan", "-inf", "inf", -2.0), partners=())),
    *(_choice(name, getattr(torch, name), _far, ALL, compares=True) for name in ("maximum", "minimum")),
    *(_bits(name, getattr(torch, name), _whole, INTS + BOOL) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    _shift("bitwise_left_shift", torch.bitwise_left_shift, _shifts, INTS[:2]),
    _shift("bitwise_right_shift", torch.bitwise_right_shift, _shifts, INTS[:2]),
    _exact("addcmul", torch.addcmul, _three, terms=2),
    _function("addcdiv", torch.addcdiv, _three),
    _function("lerp", torch.lerp, _weights),
    Operator("where", torch.where, _chosen, ALL, exactness=MOVE),
)


_LARGE = (2**24 + 1, 2**31 + 1, 2**53 + 1, -(2**40) - 1, 2**24 + 2, 2**62 + 2)
#: Many equal pairs, and integers that float cannot distinguish.
_odd, _even = given(*_LARGE, dtype="int64"), given(*(each - each % 2 for each in _LARGE), dtype="int64")
_ties = exactly(
    *(call(few(1025), few(1025)), call(few(3, 5), 2)),
    *(call(*each, group=SHAPES) for each in ((few(17, 1), few(3)), (_odd, _even))),
)
_ordered = together(binary(-3, 3, scalars=(1, 0.5)), _ties)
_compare = partial(_bits, dtypes=ALL)
_row, _nonfinite = few(257, high=9), (numbers("nan", "inf", "-inf", 1.0), numbers("nan", "inf", "inf", 1.0))
_near = exactly(
    *over((_row, _row), by(atol=1.0, rtol=0.0), by(rtol=0.5)),
    call(_row, _row, equal_nan=True, group=TEMPLATE),
    call(few(5, 7, high=9), few(7, high=9), atol=2.0, equal_nan=True, group=TEMPLATE),
    *over(_nonfinite, by(equal_nan=True), by(), group=SPECIAL),
)

_COMPARISON = in_family(
    "comparison",
    *(_compare(name, getattr(torch, name), _ordered) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(_compare(name, getattr(torch, name), binary(-2, 2)) for name in ("logical_and", "logical_or", "logical_xor")),
    Operator("isclose", torch.isclose, _near, FLOATS, exactness=MOVE, grad=False),
)

OPERATORS = (*_ARITHMETIC, *_COMPARISON)
