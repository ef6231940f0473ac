"""Losses, each with every reduction."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.samples import Sample, call
from pytest_ascend.operators.values import Values, given, integers, normal, uniform

from ..makers import exactly, in_family, with_loss_shapes

_loss = partial(Operator, terms=257)
_REDUCTIONS = ("mean", "sum", "none")


def _classes(scores: Values, targets: Values, **named: Any) -> tuple[Sample, ...]:
    return tuple(call(scores, targets, reduction=each, **named) for each in _REDUCTIONS)


_scores, _targets = normal(17, 5), integers(17, low=0, high=4)
_weight = uniform(5, low=0.25, high=2, grad=False)
_weighted = _classes(_scores, _targets, weight=_weight)
_entropies = exactly(
    *_classes(_scores, _targets),
    *_weighted,
    call(_scores, _targets, ignore_index=2),
    call(_scores, _targets, label_smoothing=0.25),
    call(normal(3, 5, 4, 2), integers(3, 4, 2, low=0, high=4)),
    call(_scores, uniform(17, 5, low=0, high=1, grad=False)),
)
_likelihoods = exactly(*_classes(_scores, _targets), *_weighted, call(_scores, _targets, ignore_index=2))
_chances = with_loss_shapes(0.0625, 0.9375, (0, 1))

_steps = (uniform(9, 2, 5, low=-4, high=-0.5), integers(2, 3, low=1, high=4))
_alignments = exactly(
    *(call(*_steps, given(9, 7, dtype="int64"), given(3, 2, dtype="int64"), reduction=each) for each in _REDUCTIONS),
    call(uniform(6, 4, low=-4, high=-0.5), given(1, 3, dtype="int64"), (6,), (2,), blank=2),
)

OPERATORS = in_family(
    "loss",
    _loss("mse_loss", F.mse_loss, with_loss_shapes()),
    _loss("l1_loss", F.l1_loss, with_loss_shapes()),
    _loss("smooth_l1_loss", F.smooth_l1_loss, with_loss_shapes()),
    _loss("smooth_l1_loss.beta", partial(F.smooth_l1_loss, beta=0.5), with_loss_shapes()),
    _loss("cross_entropy", F.cross_entropy, _entropies),
    _loss("nll_loss", F.nll_loss, _likelihoods),
    _loss("binary_cross_entropy", F.binary_cross_entropy, _chances, nonfinite=False),
    _loss("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, with_loss_shapes(-6, 6, (0, 1))),
    _loss("ctc_loss", F.ctc_loss, _alignments, dtypes=("float32",), nonfinite=False),
    _loss("kl_div", F.kl_div, with_loss_shapes(-4, 0, (0.0625, 1), ("batchmean", "sum", "none"))),
    _loss("soft_margin_loss", F.soft_margin_loss, with_loss_shapes(-3, 3, (1, 1))),
)
