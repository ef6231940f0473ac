"""Losses and optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators import InputFactory, Sample, call
from pytest_ascend.operators.operator import FLOATS

from ..entry import fused, in_family

T = torch.Tensor


def _softmax_cross_entropy(x: T, labels: T) -> T:
    return -(labels * x.log_softmax(-1)).sum(-1)


def _softmax_inputs(make: InputFactory) -> Iterator[Sample]:
    for rows, classes in ((5, 16), (17, 33)):
        x, labels = make.normal(rows, classes, std=2.0), make.normal(rows, classes, grad=False)
        yield call(x, labels.float().softmax(-1).to(make.dtype))


def _loss_inputs(make: InputFactory) -> Iterator[Sample]:
    for reduction in ("mean", "sum", "none"):
        yield call(make.normal(17, 33, std=2.0), make.integers(17, high=33), reduction=reduction)
    yield call(make.normal(9, 33, std=2.0), make.integers(9, high=33), label_smoothing=0.1)
    weight = make.uniform(33, low=0.25, high=2, dtype=torch.float32, grad=False)
    yield call(make.normal(9, 33, std=2.0), torch.arange(9) % 4, weight=weight, ignore_index=3)


def _cross_entropy(x: T, target: T, **how: Any) -> T:
    return F.cross_entropy(x, target, **how).reshape(-1)


#: All of them are exact in float32, so that rounding them does not matter.
BETAS, POWERS, RATE, DECAY = (0.875, 0.984375), (0.25, 0.875), 0.0078125, 0.125


def _state(decay: tuple[float, ...], make: InputFactory) -> Iterator[Sample]:
    moments = make.normal(33, 17, std=0.1, grad=False), make.uniform(33, 17, low=0.01, high=0.1, grad=False)
    ends = make.normal(33, 17, grad=False), make.normal(33, 17, grad=False)
    yield call(ends[0], *moments, ends[1], POWERS, RATE, *decay, BETAS, 1e-8)


def _moments(m: T, v: T, grad: T, betas: Any) -> tuple[T, T]:
    return betas[0] * m + (1 - betas[0]) * grad, betas[1] * v + (1 - betas[1]) * grad.square()


def _adam(var: T, m: T, v: T, grad: T, powers: Any, lr: float, betas: Any, eps: float) -> Any:
    m, v = _moments(m, v, grad, betas)
    rate = lr * (1 - powers[1]) ** 0.5 / (1 - powers[0])
    return var - rate * m / (v.sqrt() + eps), m, v


def _adam_w(var: T, m: T, v: T, grad: T, powers: Any, lr: float, decay: float, betas: Any, eps: float) -> Any:
    m, v = _moments(m, v, grad, betas)
    # A power is that of the last step: the operator multiplies by beta once more.
    first, second = (1 - power * beta for power, beta in zip(powers, betas, strict=True))
    step = (m / first) / ((v / second).sqrt() + eps)
    return var * (1 - lr * decay) - lr * step, m, v


def _call_adam(options: tuple[Any, ...], apply: Any, var: T, m: T, v: T, grad: T, powers: Any, *rest: Any) -> Any:
    *rates, betas, eps = rest
    return apply(*powers, *rates, *betas, eps, grad, *options, out=[each.clone() for each in (var, m, v)])


_adams = partial(fused, grad=False, terms=4)

OPERATORS = in_family(
    "training",
    fused("npu_softmax_cross_entropy_with_logits", _softmax_cross_entropy, _softmax_inputs, terms=33),
    fused("npu_cross_entropy_loss", _cross_entropy, _loss_inputs, outputs=("",), terms=561),
    _adams("npu_apply_adam", _adam, partial(_state, ()), through=partial(_call_adam, (False,) * 2), dtypes=FLOATS[:2]),
    _adams("npu_apply_adam_w", _adam_w, partial(_state, (DECAY,)), through=partial(_call_adam, (None, False, False))),
)
