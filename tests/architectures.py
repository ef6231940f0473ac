"""Small models of other kinds than the suites have, with factories and outputs as several libraries write them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class DecoderOutput(OrderedDict):  # type: ignore[type-arg]
    """An output that is a mapping and has attributes, as transformers' are."""

    loss: Tensor | None
    logits: Tensor
    past_key_values: list[tuple[Tensor, Tensor]]

    def __post_init__(self) -> None:
        super().__init__((name, value) for name, value in vars(self).items() if value is not None)


def rotated(x: Tensor, start: int) -> Tensor:
    half = x.shape[-1] // 2
    place = torch.arange(start, start + x.shape[-2], device=x.device, dtype=torch.float32)
    steps = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = (place[:, None] * steps).to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()], -1)


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 96), nn.Linear(width, 96), nn.Linear(96, width)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, width = x.shape
        normed = self.before(x)
        q, k, v = (
            each(normed).view(batch, length, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        start = past[0].shape[-2] if past else 0
        q, k = rotated(q, start), rotated(k, start)
        if past:
            k, v = torch.cat([past[0], k], -2), torch.cat([past[1], v], -2)
        mask = torch.ones(length, k.shape[-2], dtype=torch.bool, device=x.device).tril(start)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


class Decoder(nn.Module):
    """Rotary embedding, key-value cache, RMS norm and a gated MLP; called with keywords."""

    def __init__(self, vocabulary: int = 64, width: int = 32, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        past_key_values: list[tuple[Tensor, Tensor]] | None = None,
    ) -> DecoderOutput:
        x = self.embedding(input_ids)
        kept = []
        for place, layer in enumerate(self.layers):
            x, pair = layer(x, past_key_values[place] if past_key_values else None)
            kept.append(pair)
        logits = self.head(self.norm(x))
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return DecoderOutput(loss, logits, kept)


class Down(nn.Sequential):
    def __init__(self, into: int, out: int) -> None:
        super().__init__(nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(2, out), nn.SiLU())


class UNet(nn.Module):
    """Skips, pooling and upsampling; gives one tensor, as timm's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bottom = Down(3, 8), Down(8, 16), Down(16, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Sequential(Down(16, 8), nn.Conv2d(8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        high = self.first(x)
        low = self.bottom(self.second(F.max_pool2d(high, 2)))
        out: Tensor = self.last(torch.cat([high, self.up(low)], 1))
        return out


class Tagger(nn.Module):
    """An LSTM in both directions; gives a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=1, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        hidden, (last, _) = self.lstm(self.embedding(words))
        return self.head(hidden), last


class Experts(nn.Module):
    """Each token goes to the best two of four experts: its values decide what is computed."""

    def __init__(self, width: int = 16, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(0, 1)
        scores = self.router(flat).softmax(-1)
        weights, which = scores.topk(self.chosen, dim=-1)
        out = torch.zeros_like(flat)
        for place, expert in enumerate(self.experts):
            rows, column = (which == place).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, (expert(flat[rows]) * weights[rows, column, None]).to(out.dtype))
        return {"hidden": out.view_as(x), "balance": scores.mean(0)}


def seeded(make: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def decoder() -> nn.Module:
    return seeded(Decoder)


def decoder_inputs(batch: int = 2) -> dict[str, Tensor]:
    ids = torch.randint(64, (batch, 6), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids.roll(-1, 1)}


def unet() -> tuple[nn.Module, Tensor]:
    return seeded(UNet), torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))


def tagger() -> nn.Module:
    return seeded(Tagger)


def experts() -> nn.Module:
    return seeded(Experts)


def experts_inputs() -> Tensor:
    return torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(3))
