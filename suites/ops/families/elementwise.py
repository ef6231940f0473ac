"""Functions of one number."""

from __future__ import annotations

from functools import partial

import torch

from pytest_ascend.operators.operator import ALL, ARITHMETIC, BOOL, DENSE, FLOATS, INTS, MOVE, Operator
from pytest_ascend.operators.samples import SHAPES, SPECIAL, call, normal, uniform

from ..makers import ENDS, HALVES, IMAGE, NONFINITE, exactly, in_family, numbers, unary

_function = partial(Operator, in_place=True, out=True)
_exact = partial(Operator, in_place=True, out=True, exactness=ARITHMETIC)
_to_decimals = partial(_exact, in_place=True, grad=False, nonfinite=False)
_ieee = partial(_exact, signed_zero=True)
_bits = partial(Operator, exactness=MOVE, grad=False)
_rounding = partial(_ieee, inputs=unary(-90, 90, special=(*ENDS, *HALVES)), dtypes=FLOATS + INTS)
_between = partial(Operator, dtypes=FLOATS + INTS[:2], exactness=ARITHMETIC)
#: Integers and bool become float32.
_SOME = (*FLOATS, "int64", "bool")
#: Far from the poles, and from where short formats lose the period.
_angles: tuple[float | str, ...] = ("nan", "inf", "-inf", 0.0, -0.0, 1.0, -1.0, 3.0, -3.0)
_clamps = ({"min": -1, "max": 2}, {"min": 1}, {"max": -2}, {"min": 2, "max": -1})
_clamped = unary(-9, 9, special=ENDS, always=_clamps[0], arguments=_clamps[1:])
_beyond = numbers("nan", 1.0, 2.0, "inf"), numbers(0.0, "nan", 3.0, 0.0)
_image, _column = uniform(*IMAGE, low=-3, high=3), uniform(3, 1, low=-3, high=3)
_bounds = (
    call(_image, normal(5, 7), uniform(7, low=0, high=2)),
    call(_column, uniform(4, low=-2, high=0), uniform(low=0, high=2), group=SHAPES),
    call(*_beyond, numbers(1.0, 2.0, "nan", "inf"), group=SPECIAL),
)
_one_bound = (
    *(call(_image, normal(5, 7)), call(_column, uniform(4, low=-2, high=2), group=SHAPES)),
    call(*_beyond, group=SPECIAL),
)
_fills = ({"nan": 3.0}, {"nan": 1.0, "posinf": 2.0, "neginf": -2.0})
_KINDS = ("nan", "inf", "finite")
_decimals = ({"decimals": 1}, {"decimals": -1})

OPERATORS = in_family(
    "elementwise",
    *(_ieee(name, getattr(torch, name), unary(-90, 90, special=ENDS), FLOATS + INTS) for name in ("abs", "neg")),
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
    _exact("frac", torch.frac, unary(-90, 90, special=HALVES)),
    _exact("sign", torch.sign, unary(-90, 90, special=ENDS[1:]), ALL),
    _bits("signbit", torch.signbit, unary(-90, 90, special=ENDS), FLOATS + INTS, out=True, layouts=DENSE),
    *(_bits(f"is{of}", getattr(torch, f"is{of}"), unary(special=ENDS), FLOATS + INTS[:1]) for of in _KINDS),
    _bits("logical_not", torch.logical_not, unary(-2, 2, special=ENDS), ALL, out=True, in_place=True),
    _bits("bitwise_not", torch.bitwise_not, unary(-(2.0**41), 2.0**41), INTS + BOOL, out=True, in_place=True),
    _exact("nan_to_num", torch.nan_to_num, unary(special=ENDS, arguments=_fills)),
    _exact("clamp", torch.clamp, _clamped, FLOATS + INTS[:2]),
    _exact("clamp_min", torch.clamp_min, unary(-9, 9, special=ENDS, always={"min": 1}), FLOATS + INTS[:2]),
    _exact("clamp_max", torch.clamp_max, unary(-9, 9, special=ENDS, always={"max": 1}), FLOATS + INTS[:2]),
    _between("clamp_min.Tensor", torch.clamp_min, exactly(*_one_bound)),
    _between("clamp_max.Tensor", torch.clamp_max, exactly(*_one_bound)),
    _between("clamp.Tensor", torch.clamp, exactly(*_bounds)),
)
