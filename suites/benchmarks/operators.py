"""The most expensive operators of ResNet50, ViT-B/16 and a decoder of 1024 channels, at their shapes: one row each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.operators.calling import tensors
from pytest_ascend.performance.benchmarking import Work
from pytest_ascend.performance.timing import Call
from pytest_ascend.precision.kernel_fallbacks import rotary_mul

from .sizes import HOST, Sizes

Shape: TypeAlias = tuple[int, ...]

#: Number of input sets, used in rotation so that a cache holding the last inputs does not speed up a call.
ROTATED = 4
#: Random numbers drawn per input, then repeated: drawing a whole embedding table takes longer than timing it.
DRAWN = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """An operator at one shape, its minimum FLOP, and the bounds of inputs that are ``integers``."""

    name: str
    family: str
    call: Callable[..., Any]
    shapes: Sequence[Shape]
    flop: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    integers: Mapping[int, int] = field(default_factory=dict)

    def make(self, dtype: torch.dtype, device: torch.device) -> Call:
        sets = itertools.cycle([self._inputs(dtype, device, seed) for seed in range(ROTATED)])
        return lambda: self.call(*next(sets), **self.settings)

    def work(self, dtype: torch.dtype) -> Work:
        """Return the work of one call. Inputs and outputs pass through memory at least once."""
        inputs = self._inputs(dtype, torch.device("meta"), 0)
        moved = sum(each.nbytes for each in (*inputs, *tensors(self.call(*inputs, **self.settings))))
        return Work(flop=self.flop, moved_bytes=float(moved), dtype=str(dtype).removeprefix("torch."))

    def held_bytes(self, dtype: torch.dtype) -> int:
        return ROTATED * sum(each.nbytes for each in self._inputs(dtype, torch.device("meta"), 0))

    def _inputs(self, dtype: torch.dtype, device: torch.device, seed: int) -> list[Tensor]:
        source, made = torch.Generator().manual_seed(seed), []
        for place, shape in enumerate(self.shapes):
            count = math.prod(shape)
            if place in self.integers:
                x = torch.randint(self.integers[place], shape, generator=source)
            else:
                drawn = torch.randn(min(count, DRAWN), generator=source).to(dtype)
                x = drawn.repeat(-(-count // len(drawn)))[:count].reshape(shape)
            made.append(x.to(device))
        return made


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


VOCABULARY = 32_000


def rows(sizes: Sizes) -> Iterator[Row]:
    batch, context = sizes.batch, sizes.context
    # Convolutions of square images, padded to keep the size at stride 1; the last is a ViT's patch embedding.
    for name, out, into, kernel, side, stride in (
        ("stem", 64, 3, 7, 224, 2),
        *((f"stage{1 + i}", 64 << i, 64 << i, 3, 56 >> i, 1) for i in range(4)),
        *(("widen1", 256, 64, 1, 56, 1), ("narrow1", 64, 256, 1, 56, 1), ("widen3", 1024, 256, 1, 14, 1)),
        ("downsample3", 1024, 512, 1, 28, 2),
    ):
        of_image = (batch, into, side, side), (out, into, kernel, kernel)
        flop = 2.0 * batch * (side // stride) ** 2 * math.prod(of_image[1])
        how = {"stride": stride, "padding": kernel // 2}
        yield Row(f"conv2d-{kernel}x{kernel}-{name}", "convolution", F.conv2d, of_image, flop, how)
    of_patches = (batch, 3, 224, 224), (768, 3, 16, 16)
    yield Row("conv2d-patches", "convolution", F.conv2d, of_patches, 2.0 * batch * 196 * 768 * 768, {"stride": 16})
    for name, into, out, rows_of_input in (
        ("classifier", 2048, 1000, (batch,)),
        *(("vit-qkv", 768, 2304, (batch, 197)), ("vit-mlp-up", 768, 3072, (batch, 197))),
        ("vit-mlp-down", 3072, 768, (batch, 197)),
        *(("decoder-up", 1024, 4096, (context,)), ("decoder-down", 4096, 1024, (context,))),
        ("decoder-logits", 1024, VOCABULARY, (16,)),
    ):
        of_linear = (*rows_of_input, into), (out, into), (out,)
        yield Row(f"linear-{name}", "matmul", F.linear, of_linear, 2.0 * math.prod(rows_of_input) * into * out)
    yield Row("matmul-1024", "matmul", torch.matmul, ((1024, 1024),) * 2, 2.0 * 1024**3)
    of_heads_of_vit = (12 * batch, 197, 64), (12 * batch, 64, 197)
    yield Row("bmm-scores", "matmul", torch.bmm, of_heads_of_vit, 2.0 * 12 * batch * 197 * 197 * 64)
    for name, heads, tokens, is_causal in (("vit", 12, 197, False), ("decoder-causal", 16, context, True)):
        flop, how = 4.0 * batch * heads * tokens**2 * 64, {"is_causal": True} if is_causal else {}
        attend, of_heads = F.scaled_dot_product_attention, ((batch, heads, tokens, 64),) * 3
        yield Row(f"attention-{name}", "attention", attend, of_heads, flop, how)
    for name, call, shapes, settings in _BY_ELEMENT:
        yield Row(name, "elementwise", call, [(batch * size, *rest) for size, *rest in shapes], settings=settings)
    yield Row("batch-norm-stem", "normalization", _batch_norm, ((batch, 64, 112, 112), (64,), (64,)))
    yield Row("rms-norm-decoder", "normalization", _rms_norm, ((context, 1024), (1024,)))
    yield Row("rotary-decoder", "elementwise", rotary_mul, ((16, context, 64), (context, 64), (context, 64)))
    of_table, of_scores = ((context,), (VOCABULARY, 1024)), ((16, VOCABULARY), (16,))
    yield Row("embedding-decoder", "indexing", F.embedding, of_table, integers={0: VOCABULARY})
    yield Row("cross-entropy-vocabulary", "loss", F.cross_entropy, of_scores, integers={1: VOCABULARY})


_POOL = {"kernel_size": 3, "stride": 2, "padding": 1}
#: Memory-bound operators; the first size of each shape is multiplied by the batch size.
_BY_ELEMENT: tuple[tuple[str, Callable[..., Any], tuple[Shape, ...], dict[str, Any]], ...] = (
    ("relu-stem", torch.relu, ((1, 64, 112, 112),), {}),
    ("add-residual", torch.add, ((1, 256, 56, 56),) * 2, {}),
    ("gelu-mlp", F.gelu, ((1, 197, 3072),), {}),
    ("silu-gated", lambda gate, up: F.silu(gate) * up, ((128, 4096),) * 2, {}),
    ("softmax-scores", torch.softmax, ((12, 197, 197),), {"dim": -1}),
    ("log-softmax-vocabulary", torch.log_softmax, ((16, VOCABULARY),), {"dim": -1}),
    ("max-pool-stem", F.max_pool2d, ((1, 64, 112, 112),), _POOL),
    ("mean-pool", F.adaptive_avg_pool2d, ((1, 2048, 7, 7),), {"output_size": 1}),
    ("layer-norm-vit", F.layer_norm, ((1, 197, 768),), {"normalized_shape": (768,)}),
    ("transpose-copy", lambda x: x.transpose(1, 2).contiguous(), ((1, 197, 12, 64),), {}),
    ("to-half", lambda x: x.to(torch.float16), ((1, 256, 56, 56),), {}),
    ("cat-context", lambda a, b: torch.cat((a, b), dim=1), ((16, 127, 64), (16, 1, 64)), {}),
    ("sum-rows", lambda x: x.sum(-1), ((1, 197, 3072),), {}),
    ("cumsum-vocabulary", torch.cumsum, ((1, VOCABULARY),), {"dim": -1}),
    ("argmax-vocabulary", torch.argmax, ((16, VOCABULARY),), {"dim": -1}),
    ("topk-vocabulary", torch.topk, ((1, VOCABULARY),), {"k": 50}),
)

#: Family of each row, by its name.
FAMILIES = {row.name: row.family for row in rows(HOST)}
