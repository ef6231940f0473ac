"""Networks: activations, convolution, pooling, normalization, resizing; losses with every reduction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

from pytest_ascend.operators import Operator, Sample, call
from pytest_ascend.operators.operator import ARITHMETIC, DENSE, FLOATS, INTS
from pytest_ascend.operators.samples import (
    EXACT,
    SHAPES,
    SPECIAL,
    TEMPLATE,
    Values,
    distinct,
    given,
    integers,
    normal,
    rising,
    uniform,
    whole,
)

from ..makers import along, by, exactly, in_family, numbers, over, together, unary, with_loss_shapes

_convolution = partial(Operator, exactness=ARITHMETIC, terms=256, exact_sums=True)
_IMAGE = (2, 4, 6, 7)


def _image_by(*kernel: int, **named: Any) -> Sample:
    return call(normal(*_IMAGE), normal(*kernel), normal(kernel[0]), **named)


_in_two = exactly(
    _image_by(5, 4, 3, 3),
    _image_by(5, 4, 3, 2, stride=2, padding=1),
    _image_by(6, 4, 2, 3, stride=(1, 2), padding=(0, 1), dilation=(2, 1)),
    _image_by(6, 2, 3, 3, groups=2, padding="same"),
    _image_by(4, 1, 3, 3, groups=4),
    _image_by(3, 4, 1, 1),
    call(normal(*_IMAGE), normal(3, 4, 3, 3), bias=None),
    call(uniform(1, 64, 5, 5, low=0, high=1, grad=False), uniform(2, 64, 3, 3, low=0, high=1, grad=False)),
    call(whole(1, 1823, 3, 3), rising(2, 1823, 3, 3, dim=1, high=2), group=EXACT),
    call(normal(0, 4, 5, 5), normal(3, 4, 3, 3), group=SHAPES),
)
_in_one = exactly(
    call(normal(2, 4, 17), normal(5, 4, 3), normal(5)),
    call(normal(2, 4, 17), normal(6, 2, 3), normal(6), stride=2, padding=2, dilation=2, groups=2),
    call(whole(1, 5461, 3), rising(2, 5461, 3, dim=1, high=2), group=EXACT),
    *over(normal(2, 4, 17), by(normal(5, 4, 1)), by(normal(5, 4, 3), stride=3, padding=1), group=TEMPLATE),
    call(normal(4, 17), normal(5, 4, 3), normal(5), group=TEMPLATE),
)
_five = normal(2, 4, 5, 6)
_transposed = exactly(
    call(_five, normal(4, 3, 3, 3), normal(3)),
    call(_five, normal(4, 3, 3, 2), normal(6), stride=2, padding=1, output_padding=1, groups=2),
    *over(_five, by(normal(4, 3, 1, 2), stride=(1, 2)), by(normal(4, 3, 3, 2), dilation=(1, 2)), group=TEMPLATE),
)
_plane: Values = distinct(1, 3, 7, 9)
_four: Values = normal(2, 3, 7, 9)
_maxima = exactly(
    *over(_plane, by(2), by(3, stride=2, padding=1), by(3, stride=2, ceil_mode=True)),
    *over(_plane, by((2, 3), stride=(1, 2)), by(2, dilation=2)),
    call(distinct(3, 7, 9), 2, group=TEMPLATE),
    call(distinct(2, 3, 7, 9), (3, 2), stride=(2, 1), padding=1, group=TEMPLATE),
    call(numbers(1, "nan", 2, 3, "-inf", "-inf", 0.5, "-inf", 1, shape=(1, 1, 3, 3)), 2, stride=1, group=SPECIAL),
)
_means = exactly(
    *over(_four, by(2), by(3, stride=2, padding=1), by(3, stride=2, padding=1, count_include_pad=False)),
    *over(_four, by(3, stride=2, ceil_mode=True), by((2, 3), divisor_override=5)),
    call(rising(2, 1, 128, 128, dim=-2, high=2), 128, group=EXACT),
    call(normal(3, 7, 9), 2, group=TEMPLATE),
    call(_four, (3, 2), stride=(1, 2), padding=(1, 0), group=TEMPLATE),
)
_to_size = exactly(
    call(_four, 1),
    call(rising(2, 1, 128, 128, dim=-2, high=2), 1, group=EXACT),
    call(rising(2, 1, 128, 256, dim=-2, high=2), (1, 2), group=EXACT),
    *(*over(_four, by((3, 4)), by((None, 5))), call(normal(2, 3, 8, 8), 4)),
    call(normal(3, 7, 9), (2, 6), group=TEMPLATE),
)
_maxima_to_size = exactly(call(_plane, 1), call(_plane, (3, 4)), call(distinct(2, 3, 7, 9), (None, 5), group=TEMPLATE))


def _weights(*shape: int) -> tuple[Values, Values]:
    return uniform(*shape, low=0.5, high=2), normal(*shape)


def _channels(*shape: int, **named: Any) -> Sample:
    running = normal(shape[1], grad=False), uniform(shape[1], low=0.5, high=2, grad=False)
    return call(normal(*shape), *running, *_weights(shape[1]), **named)


def _batch_norm(values: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Return the running statistics too, since training changes them in place."""
    mean, variance = mean.clone(), variance.clone()
    return F.batch_norm(values, mean, variance, *rest, **named), mean, variance


_batches = exactly(
    _channels(4, 3, 5, 7, training=True),
    _channels(4, 3, 5, 7, training=True, momentum=0.25, eps=0.5),
    _channels(4, 3, 5, 7),
    _channels(17, 5, training=True),
    _channels(3, 4, 9, eps=0.25),
    call(normal(4, 3, 5, 7), normal(3, grad=False), uniform(3, low=0.5, high=2, grad=False), training=True),
)
_layers = exactly(
    *over(normal(3, 5, 17), by((17,)), by((17,), *_weights(17)), by((5, 17), *_weights(5, 17), eps=0.25)),
    call(normal(2, 257), (257,), *_weights(257)),
    call(uniform(2, 1025, low=0, high=3, grad=False), (1025,)),
    call(numbers(1, "nan", 2, 1, 2, 4, shape=(2, 3)), (3,), group=SPECIAL),
)
_groups = exactly(
    *over(normal(2, 6, 5, 7), by(3), by(2, *_weights(6))),
    call(normal(3, 4, 9), 1, *_weights(4), eps=0.25),
    *(call(normal(*shape), n, *_weights(6), group=TEMPLATE) for shape, n in (((9, 6), 2), ((2, 6, 3, 4, 5), 3))),
)
_page = normal(5, 7)
_lengths = exactly(call(_page, p=2.0, dim=1), call(normal(3, 5, 7), p=1.0, dim=0), call(_page, dim=-1, eps=4.0))
_small, _corners = normal(2, 3, 5, 6), by(size=(7, 9), align_corners=True)
_nearest = exactly(
    *over(_small, by(scale_factor=2), by(size=(7, 9)), by(size=(3, 4))),
    *over(normal(2, 3, 7), by(size=(11,)), by(size=(4,)), by(scale_factor=2)),
    *over(normal(2, 3, 4, 5, 6), by(size=(5, 3, 8)), by(size=(3, 7, 4)), by(scale_factor=2)),
)
_bilinear = exactly(
    *over(_small, by(scale_factor=2), _corners, by(size=(7, 9), align_corners=False), by(size=(3, 4))),
)
_bicubic = exactly(
    *over(_small, _corners, by(size=(7, 9))), *over(_small, by(scale_factor=2), by(size=(3, 4)), group=TEMPLATE)
)

_NETWORK = in_family(
    "network",
    _convolution("conv2d", F.conv2d, _in_two, terms=576),
    _convolution("conv1d", F.conv1d, _in_one),
    _convolution("conv_transpose2d", F.conv_transpose2d, _transposed),
    Operator("max_pool2d", F.max_pool2d, _maxima, exactness=ARITHMETIC, terms=16),
    Operator("avg_pool2d", F.avg_pool2d, _means, terms=16),
    Operator("adaptive_avg_pool2d", F.adaptive_avg_pool2d, _to_size, terms=64),
    Operator("adaptive_max_pool2d", F.adaptive_max_pool2d, _maxima_to_size, exactness=ARITHMETIC, terms=16),
    Operator("batch_norm", _batch_norm, _batches, terms=256),
    Operator("layer_norm", F.layer_norm, _layers, terms=1025),
    Operator("group_norm", F.group_norm, _groups, terms=256),
    Operator("normalize", F.normalize, _lengths, terms=16, nonfinite=False),
    *(
        Operator(f"interpolate.{each}", partial(F.interpolate, mode=each), _nearest, exactness=ARITHMETIC, terms=16)
        for each in ("nearest", "nearest-exact")
    ),
    Operator("interpolate.bilinear", partial(F.interpolate, mode="bilinear"), _bilinear, terms=16, nonfinite=False),
    Operator("interpolate.bicubic", partial(F.interpolate, mode="bicubic"), _bicubic, terms=64, nonfinite=False),
)


_loss = partial(Operator, terms=257)
_REDUCTIONS = tuple(by(reduction=each) for each in ("mean", "sum", "none"))
_scored = normal(17, 5), integers(17, low=0, high=4)
_weight = uniform(5, low=0.25, high=2, grad=False)
_usual = *over(_scored, *_REDUCTIONS), *over(_scored, *_REDUCTIONS, weight=_weight), call(*_scored, ignore_index=2)
_picture = normal(3, 5, 4, 2), integers(3, 4, 2, low=0, high=4)
_entropies = exactly(
    *_usual,
    call(*_scored, label_smoothing=0.25),
    call(*_picture),
    call(_scored[0], uniform(17, 5, low=0, high=1, grad=False)),
    call(normal(7, 6), uniform(7, 6, low=0, high=1)),
    call(*_picture, weight=_weight, reduction="none", group=TEMPLATE),
)
_pictures = by(reduction="none"), by(weight=_weight, reduction="none"), by(ignore_index=1)
_likelihoods = exactly(*_usual, *over(_picture, *_pictures, group=TEMPLATE))
_own_weight = uniform(5, 51, low=0.25, high=2, grad=False)


def _with_weights(low: float, high: float, **named: Any) -> tuple[Sample, ...]:
    """Return losses of probabilities with a weight for each element, and with more arguments."""
    pair = uniform(5, 51, low=low, high=high), uniform(5, 51, low=0, high=1, grad=False)
    return tuple(call(*pair, weight=_own_weight, reduction=each, group=TEMPLATE, **named) for each in ("none", "mean"))


_chances = together(with_loss_shapes(0.0625, 0.9375, (0, 1)), exactly(*_with_weights(0.0625, 0.9375)))
_logits = together(
    with_loss_shapes(-6, 6, (0, 1), of_both=False),
    exactly(*_with_weights(-6, 6), *_with_weights(-6, 6, pos_weight=uniform(51, low=0.25, high=2, grad=False))),
)
_logs = uniform(5, 51, low=-4, high=0), uniform(5, 51, low=-4, high=0)
_divergences = together(
    with_loss_shapes(-4, 0, (0.0625, 1), ("batchmean", "sum", "none")),
    exactly(*(call(*_logs, log_target=True, reduction=each, group=TEMPLATE) for each in ("none", "batchmean"))),
)

_steps = (uniform(9, 2, 5, low=-4, high=-0.5), integers(2, 3, low=1, high=4))
_alignments = exactly(
    *over((*_steps, given(9, 7, dtype="int64"), given(3, 2, dtype="int64")), *_REDUCTIONS),
    call(uniform(6, 4, low=-4, high=-0.5), given(1, 3, dtype="int64"), (6,), (2,), blank=2),
)

_LOSS = in_family(
    "loss",
    _loss("mse_loss", F.mse_loss, with_loss_shapes(), local_gradient=True),
    _loss("l1_loss", F.l1_loss, with_loss_shapes(), local_gradient=True),
    _loss("smooth_l1_loss", F.smooth_l1_loss, with_loss_shapes(), local_gradient=True),
    _loss("smooth_l1_loss.beta", partial(F.smooth_l1_loss, beta=0.5), with_loss_shapes()),
    _loss("cross_entropy", F.cross_entropy, _entropies),
    _loss("nll_loss", F.nll_loss, _likelihoods),
    _loss("binary_cross_entropy", F.binary_cross_entropy, _chances, nonfinite=False),
    _loss("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, _logits),
    _loss("ctc_loss", F.ctc_loss, _alignments, dtypes=("float32",), nonfinite=False),
    _loss("kl_div", F.kl_div, _divergences),
    _loss("soft_margin_loss", F.soft_margin_loss, with_loss_shapes(-3, 3, (1, 1), of_both=False)),
)


_piecewise = partial(Operator, exactness=ARITHMETIC)
_both_ways = partial(Operator, in_place=True, out=True)
_shrunk = unary(-2, 2, arguments=({"lambd": 1.0},))
_dims = ({"dim": -1}, {"dim": 0}, {"dim": 1}, {"dim": -2})
_slopes = tuple(
    call(normal(*shape), uniform(count, low=0, high=1))
    for shape, count in (((2, 3, 5, 7), 1), ((17, 3), 3), ((2, 3, 5), 3))
)
_thresholds = (call(uniform(2, 3, 5, 7, low=-2, high=2), 0.5, -7.0), call(uniform(257, low=-2, high=2), -0.5, 20.0))
_halves = (call(normal(3, 4, 10), dim=-1), call(normal(3, 4, 10), dim=1), call(normal(34, 3), dim=0))

_ACTIVATION = in_family(
    "activation",
    _piecewise("relu", torch.relu, unary(), FLOATS + INTS, in_place=True),
    _piecewise("relu6", F.relu6, unary(-9, 9)),
    Operator("leaky_relu", F.leaky_relu, unary(arguments=({"negative_slope": 0.25},))),
    *(Operator(name, getattr(F, name), unary(arguments=({"alpha": 0.5},))) for name in ("elu", "celu")),
    Operator("selu", F.selu, unary()),
    Operator("gelu", F.gelu, unary(-6, 6, arguments=({"approximate": "none"},)), layouts=DENSE),
    Operator("silu", F.silu, unary(-6, 6)),
    Operator("mish", F.mish, unary(-6, 6)),
    _piecewise("hardtanh", F.hardtanh, unary(arguments=({"min_val": -0.5, "max_val": 2.0},))),
    *(Operator(name, getattr(F, name), unary(-5, 5)) for name in ("hardswish", "hardsigmoid")),
    *(_piecewise(name, getattr(F, name), _shrunk) for name in ("hardshrink", "softshrink")),
    Operator("softplus", F.softplus, unary(arguments=({"beta": 2.0, "threshold": 3.0},))),
    Operator("softsign", F.softsign, unary()),
    _both_ways("sigmoid", torch.sigmoid, unary(-9, 9), gradient_of_result=True),
    Operator("logsigmoid", F.logsigmoid, unary(-9, 9)),
    _both_ways("tanh", torch.tanh, unary(), gradient_of_result=True),
    Operator("tanhshrink", F.tanhshrink, unary(), terms=2),
    _piecewise("threshold", F.threshold, exactly(*_thresholds, call(uniform(), 0.5, -7.0, group=SHAPES))),
    Operator("prelu", F.prelu, exactly(*_slopes), terms=256),
    Operator("glu", F.glu, exactly(*_halves)),
    *(Operator(name, getattr(F, name), along(*_dims, long=1025), terms=1025) for name in ("softmax", "log_softmax")),
    Operator("softmin", F.softmin, along({"dim": -1}, {"dim": 0}), terms=64),
)

#: In-place variants of activations, which have kernels of their own.
_IN_PLACE = {
    **{name: getattr(F, f"{name}_") for name in ("leaky_relu", "elu", "celu", "selu", "hardtanh", "threshold")},
    **{name: partial(getattr(F, name), inplace=True) for name in ("relu6", "silu", "mish", "hardswish", "hardsigmoid")},
}

OPERATORS = (
    *_NETWORK,
    *_LOSS,
    *(replace(each, in_place=_IN_PLACE.get(each.name, each.in_place)) for each in _ACTIVATION),
)
