"""Elementwise operators: arithmetic of two and three tensors, comparisons, unary functions."""

from __future__ import annotations

from functools import partial

import torch

from pytest_ascend.operators import Operator, call
from pytest_ascend.operators.operator import ALL, ARITHMETIC, BOOL, DENSE, FLOATS, INTS, MOVE
from pytest_ascend.operators.samples import PROMOTION, SHAPES, SPECIAL, TEMPLATE, few, given, mask, normal, uniform

from .. import makers
from ..makers import ENDS, IMAGE, NONFINITE, PARTNERS, binary, by, exactly, in_family, numbers, over, together, unary

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
#: The gradient by the second operand contains an integer quotient, which correct rounding may miss by one.
_divided = binary(-90, 90, second=(1, 9), special=(), second_grad=False, scalars=(2.5, 4))
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
    _function("div", torch.div, binary(second=(0.5, 6.0), scalars=_SCALARS), ALL, signed_zero=True),
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


_to_decimals = partial(_exact, in_place=True, grad=False, nonfinite=False)
_is = partial(Operator, exactness=MOVE, grad=False)
_rounding = partial(_ieee, inputs=unary(-90, 90, special=(*ENDS, *makers.HALVES)), dtypes=_NUMBERS)
_between = partial(Operator, dtypes=FLOATS + INTS[:2], exactness=ARITHMETIC)
#: Integers and bool become float32.
_SOME = (*FLOATS, "int64", "bool")
#: Far from the poles, and from where short formats lose the period.
_angles: tuple[float | str, ...] = ("nan", "inf", "-inf", 0.0, -0.0, 1.0, -1.0, 3.0, -3.0)
_clamps = ({"min": -1, "max": 2}, {"min": 1}, {"max": -2}, {"min": 2, "max": -1})
_clamped = unary(-9, 9, special=ENDS, always=_clamps[0], arguments=_clamps[1:])
_beyond = numbers("nan", 1.0, 2.0, "inf"), numbers(0.0, "nan", 3.0, 0.0)
_matrix, _column = uniform(*IMAGE, low=-3, high=3), uniform(3, 1, low=-3, high=3)
_bounds = (
    call(_matrix, normal(5, 7), uniform(7, low=0, high=2)),
    call(_column, uniform(4, low=-2, high=0), uniform(low=0, high=2), group=SHAPES),
    call(*_beyond, numbers(1.0, 2.0, "nan", "inf"), group=SPECIAL),
)
_one_bound = (
    *(call(_matrix, normal(5, 7)), call(_column, uniform(4, low=-2, high=2), group=SHAPES)),
    call(*_beyond, group=SPECIAL),
)
_fills = ({"nan": 3.0}, {"nan": 1.0, "posinf": 2.0, "neginf": -2.0})
_KINDS = ("nan", "inf", "finite")
_decimals = ({"decimals": 1}, {"decimals": -1})

_ELEMENTWISE = in_family(
    "elementwise",
    *(_ieee(name, getattr(torch, name), unary(-90, 90, special=ENDS), _NUMBERS) for name in ("abs", "neg")),
    _ieee("square", torch.square, unary(-11, 11, special=NONFINITE), FLOATS + INTS[:2]),
    _function("exp", torch.exp, unary(-5, 5), _SOME),
    _function("exp2", torch.exp2, unary(-5, 5)),
    _function("expm1", torch.expm1, unary(-5, 5), gradient_of_result=True),
    _function("log", torch.log, unary(0.125, 20), _SOME),
    *(_function(name, getattr(torch, name), unary(0.125, 20)) for name in ("log2", "log10")),
    _function("log1p", torch.log1p, unary(-0.5, 20)),
    _function("sqrt", torch.sqrt, unary(0.125, 20, special=ENDS), _SOME, signed_zero=True),
    _function("rsqrt", torch.rsqrt, unary(0.125, 20)),
    _function("reciprocal", torch.reciprocal, unary(0.125, 20), signed_zero=True),
    _function("sin", torch.sin, unary(special=_angles), _SOME),
    _function("cos", torch.cos, unary(special=_angles)),
    _function("tan", torch.tan, unary(-1.25, 1.25, special=_angles)),
    *(_function(name, getattr(torch, name), unary(-0.9375, 0.9375)) for name in ("asin", "acos")),
    *(_function(name, getattr(torch, name), unary()) for name in ("atan", "sinh", "cosh", "asinh")),
    _function("acosh", torch.acosh, unary(1.5, 20)),
    _function("atanh", torch.atanh, unary(-0.9375, 0.9375)),
    _function("erf", torch.erf, unary(-3, 3)),
    _function("erfc", torch.erfc, unary(-2, 2)),
    _function("erfinv", torch.erfinv, unary(-0.9375, 0.9375)),
    *(_rounding(name, getattr(torch, name)) for name in ("floor", "ceil", "trunc", "round")),
    _to_decimals("round.decimals", torch.round, unary(-90, 90, special=(), arguments=_decimals)),
    _exact("frac", torch.frac, unary(-90, 90, special=makers.HALVES)),
    _exact("sign", torch.sign, unary(-90, 90, special=ENDS[1:]), ALL),
    _is("signbit", torch.signbit, unary(-90, 90, special=ENDS), _NUMBERS, out=True, layouts=DENSE),
    *(_is(f"is{of}", getattr(torch, f"is{of}"), unary(special=ENDS), FLOATS + INTS[:1]) for of in _KINDS),
    _bits("logical_not", torch.logical_not, unary(-2, 2, special=ENDS), ALL),
    _bits("bitwise_not", torch.bitwise_not, unary(-(2.0**41), 2.0**41), INTS + BOOL),
    _exact("nan_to_num", torch.nan_to_num, unary(special=ENDS, arguments=_fills)),
    _exact("clamp", torch.clamp, _clamped, FLOATS + INTS[:2]),
    _exact("clamp_min", torch.clamp_min, unary(-9, 9, special=ENDS, always={"min": 1}), FLOATS + INTS[:2]),
    _exact("clamp_max", torch.clamp_max, unary(-9, 9, special=ENDS, always={"max": 1}), FLOATS + INTS[:2]),
    _between("clamp_min.Tensor", torch.clamp_min, exactly(*_one_bound)),
    _between("clamp_max.Tensor", torch.clamp_max, exactly(*_one_bound)),
    _between("clamp.Tensor", torch.clamp, exactly(*_bounds)),
)

OPERATORS = (*_ARITHMETIC, *_COMPARISON, *_ELEMENTWISE)
