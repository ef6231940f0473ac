"""Stability: the same call gives the same bits, regardless of earlier calls, stale memory and the rest of the batch.

The calls are those of the suite ``runtime``, and calls on batches whose rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.calling import tensors
from pytest_ascend.records.case import Case

from ..runtime.soaks import ALL
from ..runtime.state import CALLS

T = torch.Tensor
#: A function of a matrix with 64 columns and of a constant square matrix, the weights.
Call = Callable[[T, T], object]


def _image(x: T) -> T:
    return x.view(-1, 4, 4, 4)


def _kernel(weights: T) -> T:
    return weights[:4, :36].reshape(4, 4, 3, 3)


def _few(x: T) -> T:
    return (x[:, 0].abs() * 3).long()


#: Calls on a batch: each row of the result depends only on the same row of the first matrix.
_OF_ROWS: Mapping[str, Call] = {
    "linear": F.linear,
    "mm": torch.mm,
    "bmm": lambda x, w: x.view(-1, 4, 16) @ w[:16, :7],
    "conv2d": lambda x, w: F.conv2d(_image(x), _kernel(w), padding=1),
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(_image(x), _kernel(w), stride=2),
    "avg_pool2d": lambda x, _: F.avg_pool2d(_image(x), 3),
    "adaptive_avg_pool2d": lambda x, _: F.adaptive_avg_pool2d(_image(x), (3, 2)),
    "interpolate.bilinear": lambda x, _: F.interpolate(_image(x), (5, 3), mode="bilinear"),
    "interpolate.nearest": lambda x, _: F.interpolate(_image(x), (5, 3)),
    "max_pool2d": lambda x, _: F.max_pool2d(_image(x), 3, 1),
    "group_norm": lambda x, _: F.group_norm(_image(x), 2),
    "attention": lambda x, _: F.scaled_dot_product_attention(*(x.view(-1, 2, 4, 8),) * 3),
    "cross_entropy": lambda x, w: F.cross_entropy(x, w[0].argsort()[:1].expand(len(x)), reduction="none"),
    "log_softmax": lambda x, _: x.log_softmax(-1),
    "cumsum": lambda x, _: x.cumsum(-1),
    "pad": lambda x, _: F.pad(x, (3, 2)),
    "where": lambda x, w: torch.where(x > w[0], x, w[1]),
}
#: Calls which, or whose gradients, accumulate several rows in one place, in any order.
_ADDING: Mapping[str, Call] = {
    "index_add": lambda x, _: x.index_add(0, _few(x), x),
    "index_put_of_few": lambda x, _: x.index_put((_few(x),), x, accumulate=True),
    "embedding_of_few": lambda x, w: F.embedding(_few(x), w),
    "index_select_of_few": lambda x, w: w.index_select(0, _few(x)),
}
#: Calls whose rows PyTorch guarantees bit by bit, as each is computed separately; below, calls that are only reported.
_PROMISED = """add mul div exp gelu silu where argmax sort topk gather half sin cos tan atan sinh expm1 log1p erf log2
sqrt rsqrt sigmoid tanh round trunc isnan signbit abs neg relu log floor reciprocal sign pow interpolate.nearest pad
max_pool2d"""
PROMISED = frozenset(_PROMISED.split())
_REPORTED = frozenset(("sum", "var", "softmax", "layer_norm", "prod", *_OF_ROWS)) - PROMISED
#: Calls that draw random numbers, or return no tensor computed by the device.
_LEFT_OUT = ("dropout", "rand_like", "randn_like", "bernoulli", "randperm", "multinomial", "item", "cpu",
    "arange", "fill")  # fmt: skip


def _way_back(call: Call, x: T, weights: T) -> list[T]:
    leaves = [each.detach().requires_grad_() for each in (x, weights)]
    with torch.enable_grad():
        attached = [each for each in tensors(call(*leaves)) if each.requires_grad]
        ones = [torch.ones_like(each) for each in attached]
        return [each for each in torch.autograd.grad(attached, leaves, ones, allow_unused=True) if each is not None]


def _alone(call: Callable[[T], object], x: T, _: T) -> object:
    return call(x)


_FORWARD: Mapping[str, Call] = {
    **{name: partial(_alone, each) for name, each in ALL.items() if name.isidentifier() and name not in _LEFT_OUT},
    **_OF_ROWS,
    **_ADDING,
}
#: Computations by name, including the gradients of differentiable ones.
COMPUTATIONS: Mapping[str, Call] = {
    **_FORWARD,
    **{
        f"{name}.backward": partial(_way_back, _FORWARD[name])
        for name in (*CALLS, *_OF_ROWS, *_ADDING, "scatter_add")
        if name in _FORWARD and name not in ("argmax", "nonzero")
    },
}

DETERMINISM, BATCH, STALE = "determinism", "batch-invariance", "stale-memory"

CASES: tuple[Case, ...] = tuple(
    Case(suite="stability", subject=subject, property=name, dtype=dtype, family=name, level=level)
    for subject in COMPUTATIONS
    for dtype, level in (("float32", "standard"), ("float16", "full"))
    for name in (DETERMINISM, STALE, *((BATCH,) if subject in PROMISED | _REPORTED else ()))
    if dtype == "float32" or subject.partition(".")[0] in CALLS or subject.removesuffix(".backward") in _OF_ROWS
)
