"""The operators that cost most in ResNet50, ViT-B/16 and a decoder of 1024 channels, at their shapes: one row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.operators.calling import tensors
from pytest_ascend.performance.benchmarking import Work
from pytest_ascend.performance.timing import Call

from .sizes import Sizes

Shape: TypeAlias = tuple[int, ...]

#: Inputs are made this often and used in turn: otherwise a cache that still holds the last ones would speed them up.
ROTATED = 4
#: So many numbers are drawn for an input, and repeated: to draw a table of embeddings takes longer than to time it.
DRAWN = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """An operator at one shape. ``shapes`` returns those of its inputs, ``flop`` the least arithmetic.

    Inputs named in ``integers`` (by position, with their upper bound) are int64.
    """

    name: str
    family: str
    call: Callable[..., Any]
    shapes: Callable[[Sizes], Sequence[Shape]]
    flop: Callable[[Sizes], float] = lambda _: 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    integers: Mapping[int, int] = field(default_factory=dict)

    def make(self, sizes: Sizes, dtype: torch.dtype) -> Callable[[torch.device], Call]:
        def prepared(device: torch.device) -> Call:
            sets = [self._inputs(sizes, dtype, device, seed) for seed in range(ROTATED)]
            count = 0

            def call() -> Any:
                nonlocal count
                count += 1
                return self.call(*sets[count % ROTATED], **self.settings)

            return call

        return prepared

    def work(self, sizes: Sizes, dtype: torch.dtype) -> Work:
        """Return the work of one call. Inputs and outputs pass through memory at least once."""
        inputs = self._inputs(sizes, dtype, torch.device("meta"), 0)
        outputs = self.call(*inputs, **self.settings)
        return Work(
            flop=self.flop(sizes),
            moved_bytes=float(sum(tensor.nbytes for tensor in (*inputs, *tensors(outputs)))),
            dtype=str(dtype).removeprefix("torch."),
        )

    def held_bytes(self, sizes: Sizes, dtype: torch.dtype) -> int:
        return ROTATED * sum(each.nbytes for each in self._inputs(sizes, dtype, torch.device("meta"), 0))

    def _inputs(self, sizes: Sizes, dtype: torch.dtype, device: torch.device, seed: int) -> list[Tensor]:
        source, made = torch.Generator().manual_seed(seed), []
        for place, shape in enumerate(self.shapes(sizes)):
            count = math.prod(shape)
            if place in self.integers:
                x = torch.randint(self.integers[place], shape, generator=source)
            else:
                drawn = torch.randn(min(count, DRAWN), generator=source).to(dtype)
                x = drawn.repeat(-(-count // len(drawn)))[:count].reshape(shape)
            made.append(x.to(device))
        return made


def _convolution(name: str, out: int, into: int, kernel: int, side: int, stride: int = 1) -> Row:
    """Return a convolution of square images, padded so that stride 1 keeps their side."""
    area = (side // stride) ** 2
    return Row(
        f"conv2d-{kernel}x{kernel}-{name}",
        "convolution",
        F.conv2d,
        lambda s: ((s.batch, into, side, side), (out, into, kernel, kernel)),
        lambda s: 2.0 * s.batch * area * out * into * kernel * kernel,
        {"stride": stride, "padding": kernel // 2},
    )


def _linear(name: str, into: int, out: int, rows: Callable[[Sizes], Shape]) -> Row:
    return Row(
        f"linear-{name}",
        "matmul",
        F.linear,
        lambda s: ((*rows(s), into), (out, into), (out,)),
        lambda s: 2.0 * math.prod(rows(s)) * into * out,
    )


def _attention(name: str, heads: int, tokens: Callable[[Sizes], int], **settings: Any) -> Row:
    return Row(
        f"attention-{name}",
        "attention",
        F.scaled_dot_product_attention,
        lambda s: ((s.batch, heads, tokens(s), 64),) * 3,
        lambda s: 4.0 * s.batch * heads * tokens(s) ** 2 * 64,
        settings,
    )


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def _elementwise(name: str, call: Callable[..., Any], *shapes: Shape, **settings: Any) -> Row:
    """Return a memory-bound operator; the first size of each shape is multiplied by the batch."""
    return Row(
        name, "elementwise", call, lambda s: [(s.batch * first, *rest) for first, *rest in shapes], settings=settings
    )


VOCABULARY = 32_000

ROWS: tuple[Row, ...] = (
    _convolution("stem", 64, 3, 7, 224, 2),
    _convolution("stage1", 64, 64, 3, 56),
    _convolution("stage2", 128, 128, 3, 28),
    _convolution("stage3", 256, 256, 3, 14),
    _convolution("stage4", 512, 512, 3, 7),
    _convolution("widen1", 256, 64, 1, 56),
    _convolution("narrow1", 64, 256, 1, 56),
    _convolution("widen3", 1024, 256, 1, 14),
    _convolution("downsample3", 1024, 512, 1, 28, 2),
    Row(
        "conv2d-patches",
        "convolution",
        F.conv2d,
        lambda s: ((s.batch, 3, 224, 224), (768, 3, 16, 16)),
        lambda s: 2.0 * s.batch * 196 * 768 * 768,
        {"stride": 16},
    ),
    _linear("classifier", 2048, 1000, lambda s: (s.batch,)),
    _linear("vit-qkv", 768, 2304, lambda s: (s.batch, 197)),
    _linear("vit-mlp-up", 768, 3072, lambda s: (s.batch, 197)),
    _linear("vit-mlp-down", 3072, 768, lambda s: (s.batch, 197)),
    _linear("decoder-up", 1024, 4096, lambda s: (s.context,)),
    _linear("decoder-down", 4096, 1024, lambda s: (s.context,)),
    _linear("decoder-logits", 1024, VOCABULARY, lambda _: (16,)),
    Row("matmul-1024", "matmul", torch.matmul, lambda _: ((1024, 1024), (1024, 1024)), lambda _: 2.0 * 1024**3),
    Row(
        "bmm-scores",
        "matmul",
        torch.bmm,
        lambda s: ((12 * s.batch, 197, 64), (12 * s.batch, 64, 197)),
        lambda s: 2.0 * 12 * s.batch * 197 * 197 * 64,
    ),
    _attention("vit", 12, lambda _: 197),
    _attention("decoder-causal", 16, lambda s: s.context, is_causal=True),
    _elementwise("relu-stem", torch.relu, (1, 64, 112, 112)),
    _elementwise("add-residual", torch.add, (1, 256, 56, 56), (1, 256, 56, 56)),
    _elementwise("gelu-mlp", F.gelu, (1, 197, 3072)),
    _elementwise("silu-gated", lambda gate, up: F.silu(gate) * up, (128, 4096), (128, 4096)),
    _elementwise("softmax-scores", torch.softmax, (12, 197, 197), dim=-1),
    _elementwise("log-softmax-vocabulary", torch.log_softmax, (16, VOCABULARY), dim=-1),
    _elementwise("max-pool-stem", F.max_pool2d, (1, 64, 112, 112), kernel_size=3, stride=2, padding=1),
    _elementwise("mean-pool", F.adaptive_avg_pool2d, (1, 2048, 7, 7), output_size=1),
    _elementwise("layer-norm-vit", F.layer_norm, (1, 197, 768), normalized_shape=(768,)),
    _elementwise("transpose-copy", lambda x: x.transpose(1, 2).contiguous(), (1, 197, 12, 64)),
    _elementwise("to-half", lambda x: x.to(torch.float16), (1, 256, 56, 56)),
    _elementwise("cat-context", lambda a, b: torch.cat((a, b), dim=1), (16, 127, 64), (16, 1, 64)),
    _elementwise("sum-rows", lambda x: x.sum(-1), (1, 197, 3072)),
    _elementwise("cumsum-vocabulary", torch.cumsum, (1, VOCABULARY), dim=-1),
    _elementwise("argmax-vocabulary", torch.argmax, (16, VOCABULARY), dim=-1),
    _elementwise("topk-vocabulary", torch.topk, (1, VOCABULARY), k=50),
    Row(
        "batch-norm-stem",
        "normalization",
        lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
        lambda s: ((s.batch, 64, 112, 112), (64,), (64,)),
    ),
    Row(
        "rms-norm-decoder",
        "normalization",
        lambda x, weight: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight,
        lambda s: ((s.context, 1024), (1024,)),
    ),
    Row("rotary-decoder", "elementwise", _rotary, lambda s: ((16, s.context, 64), (s.context, 64), (s.context, 64))),
    Row(
        "embedding-decoder",
        "indexing",
        F.embedding,
        lambda s: ((s.context,), (VOCABULARY, 1024)),
        integers={0: VOCABULARY},
    ),
    Row(
        "cross-entropy-vocabulary",
        "loss",
        F.cross_entropy,
        lambda _: ((16, VOCABULARY), (16,)),
        integers={1: VOCABULARY},
    ),
)

BY_NAME = {row.name: row for row in ROWS}
