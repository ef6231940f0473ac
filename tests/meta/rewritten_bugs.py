"""Models that are changed in one place, as rewriting them by hand may do: which changes a comparison of both sees.

``python -m tools.evaluation rewritten`` writes the table of docs/evaluation/judge.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import click
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_ascend.precision import LayerReport, models
from pytest_ascend.precision.capture import run
from pytest_ascend.precision.nested import widened
from tools.evaluation.support import show, table

WIDTH, HEADS, PATCHES = 64, 8, 16


class Attention(nn.Module):
    """Multi-head attention; its parts are replaced by changes."""

    is_causal = False
    scale: float | None = None
    order = (0, 1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        parts = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = self.mix(*(parts[place] for place in self.order))
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Mix values by the similarity of queries and keys."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal, scale=self.scale)


class Perceptron(nn.Module):
    """Two products and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    """A block of a transformer."""

    residual = True

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.attn, self.n2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), Perceptron()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        x = x + self.drop(self.attn(self.n1(x)))
        found = self.mlp(self.n2(x))
        return x + found if self.residual else found


class ViT(nn.Module):
    """A vision transformer of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.pos = nn.Conv2d(3, WIDTH, 4, 4), nn.Parameter(torch.randn(PATCHES, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Convolutional(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.bn = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.c2, self.gn = nn.Conv2d(16, 32, 3, 2, padding=1), nn.GroupNorm(4, 32)
        self.pool = nn.AvgPool2d(3, 2, padding=1)
        self.up, self.head = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Linear(32, 10)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 2)
            for norm in (self.bn, self.gn):
                norm.weight.normal_(1, 0.2)
                norm.bias.normal_(0, 0.2)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        x = F.relu(self.bn(self.c1(x)))
        x = self.pool(F.relu(self.gn(self.c2(x))))
        return self.head(self.up(x).mean((2, 3)))


# --- changes ---


def _setting(path: str, **values: Any) -> Callable[[Any], None]:
    """Set attributes of a module."""

    def change(model: nn.Module) -> None:
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)

    return change


def _forward(path: str, forward: Callable[..., Tensor], method: str = "forward") -> Callable[[Any], None]:
    """Give a module another method."""

    def change(model: nn.Module) -> None:
        module = model.get_submodule(path)
        setattr(module, method, MethodType(forward, module))

    return change


def _parameter(path: str, to: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    """Replace a parameter by a function of itself."""

    def change(model: nn.Module) -> None:
        parameter = model.get_parameter(path)
        with torch.no_grad():
            parameter.copy_(to(parameter.clone()))

    return change


def _softmax_along_queries(_: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-2) @ v


def _one_rounded(weight: Tensor) -> Tensor:
    weight[3, 5] = weight[3, 5].half() if weight.dtype is torch.float32 else weight[3, 5] * (1 + 2**-8)
    return weight


def _queries_and_keys_exchanged(weight: Tensor) -> Tensor:
    q, k, v = weight.chunk(3)
    return torch.cat((k, q, v))


def _by_deviation(self: nn.BatchNorm2d, x: Tensor) -> Tensor:
    assert self.running_mean is not None
    assert self.running_var is not None
    return F.batch_norm(x, self.running_mean, self.running_var**2, self.weight, self.bias)


@dataclass(frozen=True)
class Change:
    """A change of a model; the module that it makes another function ("" for the model itself); others not compared."""

    model: type[nn.Module]
    where: str
    do: Callable[[Any], Any]
    apart: tuple[str, ...] = ()


CHANGES: Mapping[str, Change] = {
    "wrong eps of a norm (1e-6 for 1e-5)": Change(ViT, "blocks.1.n1", _setting("blocks.1.n1", eps=1e-6)),
    "softmax along the wrong axis": Change(
        ViT, "blocks.1.attn", _forward("blocks.1.attn", _softmax_along_queries, "mix")
    ),
    "scale of attention forgotten": Change(ViT, "blocks.1.attn", _setting("blocks.1.attn", scale=1.0)),
    "causal mask left in": Change(ViT, "blocks.1.attn", _setting("blocks.1.attn", is_causal=True)),
    "keys and values exchanged": Change(ViT, "blocks.1.attn", _setting("blocks.1.attn", order=(0, 2, 1))),
    "weight transposed": Change(ViT, "blocks.1.attn.proj", _parameter("blocks.1.attn.proj.weight", torch.t)),
    "dropout active": Change(ViT, "blocks.1.drop", lambda model: model.blocks[1].drop.train()),
    "GELU by tanh": Change(ViT, "blocks.1.mlp.act", _setting("blocks.1.mlp.act", approximate="tanh")),
    "GELU by sigmoid": Change(
        ViT, "blocks.1.mlp.act", _forward("blocks.1.mlp.act", lambda _, x: x * torch.sigmoid(1.702 * x))
    ),
    "ReLU for GELU": Change(ViT, "blocks.1.mlp.act", _forward("blocks.1.mlp.act", lambda _, x: F.relu(x))),
    "bias forgotten": Change(ViT, "blocks.1.mlp.down", _parameter("blocks.1.mlp.down.bias", torch.zeros_like)),
    "residual forgotten": Change(ViT, "blocks.1", _setting("blocks.1", residual=False)),
    "position embedding in the wrong order": Change(ViT, "", _parameter("pos", lambda pos: pos.flip(0))),
    "queries and keys exchanged": Change(
        ViT, "blocks.1.attn.qkv", _parameter("blocks.1.attn.qkv.weight", _queries_and_keys_exchanged)
    ),
    "weights of the head 1 % larger": Change(ViT, "head", _parameter("head.weight", lambda weight: weight * 1.01)),
    "one weight off by a rounding (float32: to half)": Change(
        ViT, "blocks.1.mlp.up", _parameter("blocks.1.mlp.up.weight", _one_rounded)
    ),
    "stride 1 for 2": Change(Convolutional, "c2", _setting("c2", stride=(1, 1))),
    "padding mode reflect for zeros": Change(
        Convolutional,
        "c1",
        _forward("c1", lambda self, x: F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), self.weight, self.bias)),
    ),
    "batch norm in training mode": Change(Convolutional, "bn", lambda model: model.bn.train()),
    "groups of a norm 8 for 4": Change(Convolutional, "gn", _setting("gn", num_groups=8)),
    "padding not counted in the mean": Change(Convolutional, "pool", _setting("pool", count_include_pad=False)),
    "corners aligned": Change(Convolutional, "up", _setting("up", align_corners=True)),
    "kernel flipped": Change(Convolutional, "c1", _parameter("c1.weight", lambda weight: weight.flip(-1, -2))),
    "running variance as a deviation": Change(Convolutional, "bn", _forward("bn", _by_deviation)),
}


# --- correct rewrites ---


def _attention_by_hand(_: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _attention_in_float32(_: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q.float() * q.shape[-1] ** -0.25) @ (k.float() * q.shape[-1] ** -0.25).transpose(-1, -2)
    return scores.softmax(-1).to(v.dtype) @ v


def _online(_: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend to a half of the keys at a time, as flash attention does."""
    scores = [(q @ half.transpose(-1, -2) / math.sqrt(q.shape[-1])).float() for half in k.chunk(2, -2)]
    top = torch.maximum(*(each.amax(-1, keepdim=True) for each in scores))
    weights = [(each - top).exp() for each in scores]
    total = sum(each.sum(-1, keepdim=True) for each in weights)
    return (sum(each.to(v.dtype) @ half for each, half in zip(weights, v.chunk(2, -2), strict=True)) / total).to(
        v.dtype
    )


def _norm_by_hand(self: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias


def _norm_in_float32(self: nn.LayerNorm, x: Tensor) -> Tensor:
    wide = x.float()
    over = (wide.var(-1, correction=0, keepdim=True) + self.eps).rsqrt()
    return ((wide - wide.mean(-1, keepdim=True)) * over).to(x.dtype) * self.weight + self.bias


def _qkv_apart(self: Attention, x: Tensor) -> Tensor:
    weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
    parts = [
        F.linear(x, *each).unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in zip(weights, biases, strict=True)
    ]
    return self.proj(self.mix(*parts).transpose(1, 2).flatten(2))


def _in_halves(self: Perceptron, x: Tensor) -> Tensor:
    up, biases, down = self.up.weight.chunk(2), self.up.bias.chunk(2), self.down.weight.chunk(2, -1)
    parts = [F.linear(self.act(F.linear(x, *each)), last) for *each, last in zip(up, biases, down, strict=True)]
    return sum(parts) + self.down.bias


def _as_product(self: nn.Conv2d, x: Tensor) -> Tensor:
    columns = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
    size = [
        (n + 2 * p - k) // s + 1
        for n, p, k, s in zip(x.shape[2:], self.padding, self.kernel_size, self.stride, strict=True)
    ]
    return F.linear(columns.mT, self.weight.flatten(1), self.bias).mT.unflatten(-1, size)


def _scaled_and_shifted(self: nn.BatchNorm2d, x: Tensor) -> Tensor:
    factor = self.weight / (self.running_var + self.eps).sqrt()
    return x * factor[:, None, None] + (self.bias - self.running_mean * factor)[:, None, None]


def _group_norm_by_hand(self: nn.GroupNorm, x: Tensor) -> Tensor:
    parts = x.unflatten(1, (self.num_groups, -1))
    mean = parts.mean((2, 3, 4), keepdim=True)
    var = (parts - mean).square().mean((2, 3, 4), keepdim=True)
    normal = ((parts - mean) / (var + self.eps).sqrt()).flatten(1, 2)
    return normal * self.weight[:, None, None] + self.bias[:, None, None]


def _folded(model: nn.Module) -> None:
    """Fold a batch norm into the convolution before it."""
    convolution, norm = model.get_submodule("c1"), model.get_submodule("bn")
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    with torch.no_grad():
        convolution.weight.mul_(factor[:, None, None, None])
        convolution.bias.copy_((convolution.bias - norm.running_mean) * factor + norm.bias)
    model.bn = nn.Identity()


def _scale_in_weights(model: nn.Module) -> None:
    """Scale the queries' weights instead of the scores."""
    for block in model.blocks:
        block.attn.scale = 1.0
        with torch.no_grad():
            for each in (block.attn.qkv.weight, block.attn.qkv.bias):
                each[:WIDTH] *= (WIDTH // HEADS) ** -0.5


def _everywhere(
    kind: type[nn.Module], forward: Callable[..., Tensor], method: str = "forward"
) -> Callable[[Any], None]:
    def change(model: nn.Module) -> None:
        for path, module in model.named_modules():
            if isinstance(module, kind):
                _forward(path, forward, method)(model)

    return change


#: Correct rewrites; the names of modules that are not called, or mean something else, are their last part.
REWRITES: Mapping[str, Change] = {
    "the same": Change(ViT, "", lambda _: None),
    "attention by hand": Change(ViT, "", _everywhere(Attention, _attention_by_hand, "mix")),
    "attention in float32": Change(ViT, "", _everywhere(Attention, _attention_in_float32, "mix")),
    "attention in blocks": Change(ViT, "", _everywhere(Attention, _online, "mix")),
    "queries, keys and values apart": Change(ViT, "", _everywhere(Attention, _qkv_apart)),
    "scale in the weights": Change(ViT, "", _scale_in_weights, apart=("qkv",)),
    "norms by hand": Change(ViT, "", _everywhere(nn.LayerNorm, _norm_by_hand)),
    "norms in float32": Change(ViT, "", _everywhere(nn.LayerNorm, _norm_in_float32)),
    "GELU by hand": Change(ViT, "", _everywhere(nn.GELU, lambda _, x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))))),
    "GELU by erfc": Change(ViT, "", _everywhere(nn.GELU, lambda _, x: 0.5 * x * torch.erfc(x * -(0.5**0.5)))),
    "hidden features in two halves": Change(ViT, "", _everywhere(Perceptron, _in_halves), apart=("act",)),
    "patches by a product": Change(ViT, "", _everywhere(nn.Conv2d, _as_product)),
    "convolutions by products": Change(Convolutional, "", _everywhere(nn.Conv2d, _as_product)),
    "channels last": Change(Convolutional, "", lambda model: model.to(memory_format=torch.channels_last)),
    "batch norm by hand": Change(Convolutional, "", _everywhere(nn.BatchNorm2d, _scaled_and_shifted)),
    "batch norm folded": Change(Convolutional, "", _folded, apart=("c1",)),
    "group norm by hand": Change(Convolutional, "", _everywhere(nn.GroupNorm, _group_norm_by_hand)),
}


@dataclass(frozen=True)
class Pair:
    """A changed model, its original, and an input."""

    model: nn.Module
    original: nn.Module
    x: Tensor
    apart: tuple[str, ...]

    @classmethod
    def of(cls, change: Change, dtype: torch.dtype, seed: int = 0) -> Pair:
        """Make both, the same for a seed."""
        torch.manual_seed(seed)
        original = change.model().eval().to(dtype)
        model, x = copy.deepcopy(original), torch.randn(4, 3, 16, 16).to(dtype)
        change.do(model)
        return cls(model, original, x, change.apart)

    def compared(self, device: str = "cpu") -> LayerReport:
        """Compare both."""
        names = {name: name for name, _ in self.model.named_modules() if name.rpartition(".")[2] not in self.apart}
        return models(self.model, self.original, self.x, names=names, device=device)

    def effect(self, where: str) -> float:
        """Return the effect at the output of a module, as a multiple of the noise there: both root mean squares."""
        exact, changed = (self._output(each, where, wide=True) for each in (self.original, self.model))
        noisy = self._output(self.original, where, wide=False)
        if exact.shape != changed.shape:
            return math.inf
        return float((changed - exact).square().mean().sqrt() / (noisy - exact).square().mean().sqrt())

    def _output(self, model: nn.Module, where: str, *, wide: bool) -> Tensor:
        model, x = (copy.deepcopy(model).double(), self.x.double()) if wide else (copy.deepcopy(model), self.x)
        return widened(next(call.output for call in run(model, (x,), {}, None, False)[1] if call.name == where))


def lines() -> Iterator[str]:
    """Yield the table."""
    rows, caught = [], {torch.float32: 0, torch.bfloat16: 0}
    for name, change in CHANGES.items():
        found = []
        for dtype in caught:
            first = Pair.of(change, dtype).compared().first
            caught[dtype] += first is not None
            found.append("none" if first is None else f"`{first.label}`")
        effect = Pair.of(change, torch.bfloat16).effect(change.where)
        rows.append((name, *found, f"{float(f'{effect:.2g}'):g}" if math.isfinite(effect) else "another shape"))
    yield from table(
        ("change", *(f"first wrong layer, {each}" for each in ("float32", "bfloat16")), "effect, times the noise"), rows
    )
    yield ""
    counted = ", ".join(f"{count} in {str(dtype).removeprefix('torch.')}" for dtype, count in caught.items())
    yield f"Of {len(CHANGES)} changes are caught: {counted}."


@click.command(help=__doc__)
@click.option("--write", "is_written", is_flag=True, help="Put the table into docs/evaluation/judge.md.")
def main(*, is_written: bool) -> None:
    """Measure, print, and write where asked to."""
    show([*lines(), "", "By `python -m tools.evaluation rewritten`."], "judge", "rewritten", is_written=is_written)
