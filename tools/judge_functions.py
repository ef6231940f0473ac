"""Small functions with their inputs: what people call in tests of their own. Each is judged with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Function(NamedTuple):
    """A function of tensors, and their shapes; ``scale`` is how large values are, ``lowest`` what they lie above."""

    name: str
    call: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    scale: float = 1.0
    lowest: float | None = None

    def inputs(self) -> tuple[Tensor, ...]:
        """Draw the inputs: the same each time."""
        generator = torch.Generator().manual_seed(sum(map(ord, self.name)))
        drawn = (torch.randn(shape, generator=generator) * self.scale for shape in self.shapes)
        return tuple(each if self.lowest is None else each.abs() + self.lowest for each in drawn)


SIZES = ((7,), (3, 5, 8), (40, 60))
ROWS = ((4, 16), (6, 3, 40), (32, 300))

#: One operand.
UNARY: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in (
        "abs",
        "neg",
        "square",
        "exp",
        "expm1",
        "sin",
        "cos",
        "tan",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "erf",
        "erfc",
        "sigmoid",
        "sign",
        "floor",
        "ceil",
    )
} | {
    name: getattr(functional, name)
    for name in (
        "relu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "relu6",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "logsigmoid",
        "softsign",
        "tanhshrink",
        "hardshrink",
        "softshrink",
    )
}
POSITIVE: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name) for name in ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "div": lambda x, y: x / (y.abs() + 0.5), "atan2": torch.atan2, "hypot": torch.hypot,
    "scaled sum": lambda x, y: x + 0.3 * y, "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "cancelled": lambda x, y: (x + 100 * y) - 100 * y,
    "mse": functional.mse_loss, "smooth l1": functional.smooth_l1_loss,
    "cosine": lambda x, y: functional.cosine_similarity(x, y, dim=-1), "gated": lambda x, y: functional.silu(x) * y,
    "distance": lambda x, y: (x - y).norm(dim=-1),
}  # fmt: skip


def _classified(x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return functional.cross_entropy(rows, torch.arange(len(rows), device=x.device) % rows.shape[-1])


#: Along rows.
ALONG: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(-1), "mean": lambda x: x.mean(-1), "sum over rows": lambda x: x.sum(0),
    "variance": lambda x: x.var(-1), "deviation": lambda x: x.std(-1), "norm": lambda x: x.norm(dim=-1),
    "softmax": lambda x: x.softmax(-1), "log of softmax": lambda x: x.softmax(-1).log(),
    "log_softmax": lambda x: x.log_softmax(-1), "logsumexp": lambda x: x.logsumexp(-1),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "centred far off": lambda x: (x + 50) - (x + 50).mean(-1, keepdim=True),
    "normalized": lambda x: functional.normalize(x, dim=-1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:]), "cumsum": lambda x: x.cumsum(-1),
    "maximum": lambda x: x.amax(-1), "glu": lambda x: functional.glu(x, -1),
    "softmin": lambda x: functional.softmin(x, -1),
    "standardized": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
    "entropy": lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
    "variance by squares": lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
    "cross entropy": _classified,
    "alternating": lambda x: (x[..., ::2] - x[..., 1::2]).sum(-1),
}  # fmt: skip
#: Of a matrix and weights.
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], ...], ...]]] = {
    "linear": (
        functional.linear,
        (((4, 16), (8, 16), (8,)), ((2, 30, 64), (48, 64), (48,)), ((64, 300), (40, 300), (40,))),
    ),
    "matmul": (torch.matmul, (((5, 12), (12, 7)), ((3, 20, 33), (3, 33, 21)), ((100, 200), (200, 50)))),
    "outer": (lambda x, y: x[:, None] * y, (((9,), (5,)), ((60,), (40,)))),
    "einsum": (lambda x, y: torch.einsum("bik,bjk->bij", x, y), (((2, 5, 16), (2, 6, 16)), ((3, 20, 40), (3, 25, 40)))),
    "bilinear": (lambda x, w, y: (x @ w * y).sum(-1), (((5, 8), (8, 6), (5, 6)), ((40, 60), (60, 30), (40, 30)))),
    "perceptron": (
        lambda x, v, w: functional.linear(functional.gelu(functional.linear(x, v)), w),
        (((4, 16), (32, 16), (8, 32)), ((30, 64), (128, 64), (64, 128))),
    ),
    "classified": (
        lambda x, w: functional.cross_entropy(functional.linear(x, w), torch.arange(len(x), device=x.device) % len(w)),
        (((6, 16), (10, 16)), ((40, 64), (100, 64))),
    ),
    "attention": (
        functional.scaled_dot_product_attention,
        (((2, 4, 8),) * 3, ((2, 4, 20, 16),) * 3, ((1, 2, 64, 32),) * 3),
    ),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (((2, 4, 8),) * 3, ((2, 4, 20, 16),) * 3),
    ),
    "attention by parts": (
        lambda q, k, v: (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v,
        (((2, 4, 8),) * 3, ((2, 4, 20, 16),) * 3),
    ),
    "layer_norm with weights": (
        lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
        (((4, 16), (16,), (16,)), ((2, 20, 64), (64,), (64,)), ((64, 300), (300,), (300,))),
    ),
    "group_norm": (
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        (((2, 4, 5, 5), (4,), (4,)), ((3, 8, 12, 12), (8,), (8,))),
    ),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        (((8, 4), (4,), (4,)), ((6, 8, 12, 12), (8,), (8,))),
    ),
    "conv1d": (functional.conv1d, (((2, 3, 20), (4, 3, 3), (4,)), ((4, 16, 50), (8, 16, 5), (8,)))),
    "conv2d": (functional.conv2d, (((2, 3, 8, 8), (4, 3, 3, 3), (4,)), ((2, 16, 14, 14), (8, 16, 3, 3), (8,)))),
    "embedded": (
        lambda w: functional.embedding(torch.arange(60, device=w.device) * 7 % len(w), w).sum(0),
        (((10, 4),), ((50, 32),)),
    ),
    "pooled": (lambda x: functional.avg_pool2d(x, 2), (((2, 3, 8, 8),), ((2, 8, 20, 20),))),
    "largest pooled": (lambda x: functional.max_pool2d(x, 2), (((2, 3, 8, 8),), ((2, 8, 20, 20),))),
    "interpolated": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), (((1, 2, 5, 5),), ((2, 3, 12, 12),)),
    ),
}  # fmt: skip


def functions() -> Iterator[Function]:
    """Yield every function with inputs of each size."""
    for name, call in {**UNARY, **POSITIVE}.items():
        for shape in SIZES:
            yield Function(f"{name} {shape}", call, (shape,), lowest=0.1 if name in POSITIVE else None)
    for name, call in BINARY.items():
        for shape in SIZES:
            yield Function(f"{name} {shape}", call, (shape, shape))
    for name, call in ALONG.items():
        for shape in ROWS:
            for scale in (1.0, 8.0):
                yield Function(f"{name} {shape} of {scale:g}", call, (shape,), scale)
    for name, (call, sizes) in PRODUCTS.items():
        for shapes in sizes:
            yield Function(f"{name} {shapes}", call, shapes)
