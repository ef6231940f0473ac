"""Small functions made of several operators, as people write them in tests, with the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def _classified(x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return F.cross_entropy(rows, torch.arange(len(rows), device=x.device) % rows.shape[-1])


_PAIRS = tuple((shape, shape) for shape in ((7,), (3, 5, 8), (40, 60)))
_ROWS = tuple((shape,) for shape in ((4, 16), (6, 3, 40), (32, 300)))
_HEADS = (((2, 4, 8),) * 3, ((2, 4, 20, 16),) * 3)
_LAYERS = (((4, 16), (8, 16), (8,)), ((2, 30, 64), (48, 64), (48,)), ((64, 300), (40, 300), (40,)))
_NORMS = (((4, 16), (16,), (16,)), ((2, 20, 64), (64,), (64,)), ((64, 300), (300,), (300,)))
_CHANNELS = (((2, 4, 5, 5), (4,), (4,)), ((3, 8, 12, 12), (8,), (8,)))

FUNCTIONS: Mapping[str, tuple[Callable[..., Any], tuple[Shapes, ...]]] = {
    "quotient": (lambda x, y: x / (y.abs() + 0.5), _PAIRS),
    "scaled sum": (lambda x, y: x + 0.3 * y, _PAIRS),
    "cancelled": (lambda x, y: (x + 100 * y) - 100 * y, _PAIRS),
    "gated": (lambda x, y: F.silu(x) * y, _PAIRS),
    "distance": (lambda x, y: (x - y).norm(dim=-1), _PAIRS),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, dim=-1), _PAIRS),
    "log of softmax": (lambda x: x.softmax(-1).log(), _ROWS),
    "centred": (lambda x: x - x.mean(-1, keepdim=True), _ROWS),
    "centred far off": (lambda x: (x + 50) - (x + 50).mean(-1, keepdim=True), _ROWS),
    "standardized": (lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), _ROWS),
    "entropy": (lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), _ROWS),
    "variance by squares": (lambda x: (x * x).mean(-1) - x.mean(-1) ** 2, _ROWS),
    "cross entropy": (_classified, _ROWS),
    "alternating": (lambda x: (x[..., ::2] - x[..., 1::2]).sum(-1), _ROWS),
    "outer": (lambda x, y: x[:, None] * y, (((9,), (5,)), ((60,), (40,)))),
    "linear": (F.linear, _LAYERS),
    "bilinear": (lambda x, w, y: (x @ w * y).sum(-1), (((5, 8), (8, 6), (5, 6)), ((40, 60), (60, 30), (40, 30)))),
    "perceptron": (
        lambda x, v, w: F.linear(F.gelu(F.linear(x, v)), w),
        (((4, 16), (32, 16), (8, 32)), ((30, 64), (128, 64), (64, 128))),
    ),
    "classified": (lambda x, w: _classified(F.linear(x, w)), (((6, 16), (10, 16)), ((40, 64), (100, 64)))),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), _HEADS),
    "attention by parts": (lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v, _HEADS),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), _NORMS),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), _CHANNELS),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), _CHANNELS),
    "conv1d": (F.conv1d, (((2, 3, 20), (4, 3, 3), (4,)), ((4, 16, 50), (8, 16, 5), (8,)))),
    "conv2d": (F.conv2d, (((2, 3, 8, 8), (4, 3, 3, 3), (4,)), ((2, 16, 14, 14), (8, 16, 3, 3), (8,)))),
    "embedded": (
        lambda w: F.embedding(torch.arange(60, device=w.device) * 7 % len(w), w).sum(0),
        (((10, 4),), ((50, 32),)),
    ),
}
