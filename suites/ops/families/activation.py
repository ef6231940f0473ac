"""Activations."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.operator import ARITHMETIC, DENSE, FLOATS, INTS, Operator
from pytest_ascend.operators.samples import SHAPES, call
from pytest_ascend.operators.values import normal, uniform

from ..makers import along, exactly, in_family, unary

_piecewise = partial(Operator, exactness=ARITHMETIC)
_both_ways = partial(Operator, in_place=True, out=True)
_dims = ({"dim": -1}, {"dim": 0}, {"dim": 1}, {"dim": -2})
_slopes = tuple(
    call(normal(*shape), uniform(count, low=0, high=1)) for shape, count in (((2, 3, 5, 7), 1), ((17, 3), 3))
)
_thresholds = (call(uniform(2, 3, 5, 7, low=-2, high=2), 0.5, -7.0), call(uniform(257, low=-2, high=2), -0.5, 20.0))
_halves = (call(normal(3, 4, 10), dim=-1), call(normal(3, 4, 10), dim=1), call(normal(34, 3), dim=0))

OPERATORS = in_family(
    "activation",
    _piecewise("relu", torch.relu, unary(), FLOATS + INTS, in_place=True),
    _piecewise("relu6", F.relu6, unary(-9, 9)),
    Operator("leaky_relu", F.leaky_relu, unary(arguments=({"negative_slope": 0.25},))),
    Operator("elu", F.elu, unary(arguments=({"alpha": 0.5},))),
    Operator("celu", F.celu, unary(arguments=({"alpha": 0.5},))),
    Operator("selu", F.selu, unary()),
    Operator("gelu", F.gelu, unary(-6, 6, arguments=({"approximate": "none"},)), layouts=DENSE),
    Operator("silu", F.silu, unary(-6, 6)),
    Operator("mish", F.mish, unary(-6, 6)),
    _piecewise("hardtanh", F.hardtanh, unary(arguments=({"min_val": -0.5, "max_val": 2.0},))),
    Operator("hardswish", F.hardswish, unary(-5, 5)),
    Operator("hardsigmoid", F.hardsigmoid, unary(-5, 5)),
    _piecewise("hardshrink", F.hardshrink, unary(-2, 2, arguments=({"lambd": 1.0},))),
    _piecewise("softshrink", F.softshrink, unary(-2, 2, arguments=({"lambd": 1.0},))),
    Operator("softplus", F.softplus, unary(arguments=({"beta": 2.0, "threshold": 3.0},))),
    Operator("softsign", F.softsign, unary()),
    _both_ways("sigmoid", torch.sigmoid, unary(-9, 9)),
    Operator("logsigmoid", F.logsigmoid, unary(-9, 9)),
    _both_ways("tanh", torch.tanh, unary()),
    Operator("tanhshrink", F.tanhshrink, unary()),
    _piecewise("threshold", F.threshold, exactly(*_thresholds, call(uniform(), 0.5, -7.0, group=SHAPES))),
    Operator("prelu", F.prelu, exactly(*_slopes, call(normal(2, 3, 5), uniform(3, low=0, high=1))), terms=256),
    Operator("glu", F.glu, exactly(*_halves)),
    Operator("softmax", F.softmax, along(*_dims, long=1025), terms=1025),
    Operator("log_softmax", F.log_softmax, along(*_dims, long=1025), terms=1025),
    Operator("softmin", F.softmin, along({"dim": -1}, {"dim": 0}), terms=64),
)
