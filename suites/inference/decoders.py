"""Decoders as functions of weights that have transformers' names: one set of parts, and a table of architectures.

Sources: transformers 5.24 for names and order of operations (qwen3, qwen3_moe, deepseek_v3, deepseek_v32, qwen3_next,
internvl); DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 2.2, for the drafting head and its checkpoint's
names; B. Peng et al., "YaRN", 2023, for scaled positions; S. Yang et al., "Gated delta networks", ICLR 2025.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.run import inputs

Weights: TypeAlias = Mapping[str, Tensor]

EPS, BASE, KERNEL = 1e-6, 10000.0, 4
#: Token that an image's features replace, and patches along the side of a tile (448 / 14 has 32 of them).
IMAGE, SIDE, PATCH = 63, 4, 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One model: by layer, what mixes tokens and what follows; and sizes. ``yarn`` scales positions."""

    mixers: tuple[str, ...] = ("attention", "attention")
    feeds: tuple[str, ...] = ("mlp", "mlp")
    vocabulary: int = 64
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    rotated: int = 16
    inner: int = 96
    experts: int = 8
    chosen: int = 2
    of_expert: int = 32
    latent: int = 32
    capacity: int = 0
    yarn: float = 1.0
    qk_norm: bool = True
    bias: bool = False
    gated: bool = False
    offset: float = 0.0
    vision: int = 0
    quantized: bool = False
    #: Number of keys that the indexer, if any, chooses for each token.
    indexed: int = 0
    #: Whether a head drafts the token after the next one.
    drafts: bool = False

    @property
    def stem(self) -> str:
        return "model.language_model." if self.vision else "model."


_DEEPSEEK = Architecture(mixers=("latent",) * 2, feeds=("mlp", "grouped"), kv_heads=4, rotated=8)
ARCHITECTURES = {
    "qwen3": Architecture(yarn=4.0),
    "qwen3-moe": Architecture(feeds=("experts", "experts")),
    "deepseek-v3": _DEEPSEEK,
    "deepseek-v3.2": replace(_DEEPSEEK, indexed=4),
    "qwen3-next": Architecture(mixers=("delta", "attention"), feeds=("shared",) * 2, rotated=4, gated=True, offset=1.0),
    "internvl3": Architecture(qk_norm=False, bias=True, vision=2),
}


@dataclass(slots=True)
class Run:
    """Inputs and outputs of a forward pass: keys by layer, each layer's result, and which token sees which."""

    arch: Architecture
    weights: Weights
    mask: Tensor
    valid: Tensor
    turn: tuple[Tensor, Tensor]
    cache: MutableMapping[str, Any]
    states: dict[str, Tensor] = field(default_factory=dict)
    at: str = ""
    #: Computes attention instead of :func:`mix`, with a cache of its own.
    paged: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    def weight(self, name: str, *shape: int) -> Tensor:
        key = f"{self.at}{name}"
        return self.weights.drawn(key, shape) if isinstance(self.weights, Drawn) else self.weights[key]

    def __call__(self, name: str, x: Tensor, out: int, *, bias: bool = False) -> Tensor:
        """Multiply by a weight of the current module (out, features of x), and add its bias if it has one."""
        weight = self.weight(f"{name}.weight", out, x.shape[-1])
        made = F.linear(x, weight, self.weight(f"{name}.bias", out) if bias else None)
        down = self.weights.get(f"{self.at}{name}.lora_A.weight")
        return made if down is None else made + (x @ down.t()) @ self.weights[f"{self.at}{name}.lora_B.weight"].t()

    def norm(self, name: str, x: Tensor) -> Tensor:
        wide = x.to(wide_of(x))
        made = wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt()
        weight = self.weight(f"{name}.weight", x.shape[-1])
        if self.arch.offset and "linear_attn" not in self.at:
            return (made * (self.arch.offset + weight.to(made.dtype))).to(x.dtype)
        return weight * made.to(x.dtype)

    def kept(self, name: str, x: Tensor, dim: int) -> Tensor:
        before = self.cache.get(f"{self.at}{name}")
        self.cache[f"{self.at}{name}"] = found = x if before is None else torch.cat([before, x], dim)
        return found


def angles(arch: Architecture, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (batch, tokens, rotated), by YaRN if positions are scaled."""
    wide = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(0, arch.rotated, 2, device=positions.device, dtype=wide) / arch.rotated
    steps, grown = BASE**-pairs, 1.0
    if arch.yarn > 1:
        ends = [arch.rotated * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(BASE)) for turns in (32, 1)]
        low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), arch.rotated - 1)
        places = torch.arange(arch.rotated // 2, device=positions.device, dtype=wide)
        ramp = ((places - low) / max(high - low, 0.001)).clamp(0, 1)
        steps, grown = steps / arch.yarn * ramp + steps * (1 - ramp), 0.1 * math.log(arch.yarn) + 1
    turned = (positions[..., None].to(wide) * steps).repeat(1, 1, 2)
    return (turned.cos() * grown).to(dtype), (turned.sin() * grown).to(dtype)


def rotated(run: Run, x: Tensor) -> Tensor:
    """Rotate the first part of each head (batch, heads, tokens, size) by its position, in halves."""
    cos, sin = (each[:, None] for each in run.turn)
    first, rest = x[..., : run.arch.rotated], x[..., run.arch.rotated :]
    left, right = first.chunk(2, -1)
    return torch.cat([first * cos + torch.cat([-right, left], -1) * sin, rest], -1)


def by_head(x: Tensor, heads: int) -> Tensor:
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def in_int8(x: Tensor) -> Tensor:
    """Return keys or values as an int8 cache keeps them: each head of a token has a scale."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8).to(x.dtype) * scale


def attention(run: Run, x: Tensor) -> Tensor:
    """Attend with groups of query heads, norms of queries and keys, and a gate if there is one."""
    arch = run.arch
    query = by_head(run("q_proj", x, arch.heads * arch.size * (1 + arch.gated), bias=arch.bias), arch.heads)
    query, gate = query.chunk(2, -1) if arch.gated else (query, None)
    kept = arch.kv_heads * arch.size
    key, value = (by_head(run(f"{name}_proj", x, kept, bias=arch.bias), arch.kv_heads) for name in "kv")
    if arch.qk_norm:
        query, key = run.norm("q_norm", query), run.norm("k_norm", key)
    query, key = rotated(run, query), rotated(run, key)
    if arch.quantized:
        key, value = in_int8(key), in_int8(value)
    if run.paged:
        mixed = run.paged(query, key, value)
    else:
        mixed = mix(run, query, run.kept("key", key, 2), run.kept("value", value, 2))
    mixed = mixed if gate is None else mixed * gate.transpose(1, 2).flatten(2).sigmoid()
    return run("o_proj", mixed, arch.width)


def mix(run: Run, query: Tensor, key: Tensor, value: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Return the attention of all heads (batch, tokens, heads * size), among the ``chosen`` keys."""
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    mask = run.mask if chosen is None else run.mask & chosen
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


def latent(run: Run, x: Tensor) -> Tensor:
    """Attend with keys and values from a latent vector, which is cached; positions rotate neighbours, not halves."""
    arch = run.arch
    asked = run.norm("q_a_layernorm", run("q_a_proj", x, arch.latent))
    chosen = indexed(run, x, asked) if arch.indexed else None
    query = by_head(run("q_b_proj", asked, arch.heads * (arch.size + arch.rotated)), arch.heads)
    both = run("kv_a_proj_with_mqa", x, arch.latent + arch.rotated)
    small, turned = torch.split(both, [arch.latent, arch.rotated], -1)
    plain, query = torch.split(query, [arch.size, arch.rotated], -1)
    turned = rotated(run, neighbours(turned[:, None]))
    small, turned = run.kept("latent", run.norm("kv_a_layernorm", small), 1), run.kept("turned", turned, 2)
    key, value = by_head(run("kv_b_proj", small, arch.heads * 2 * arch.size), arch.heads).chunk(2, -1)
    query = torch.cat([plain, rotated(run, neighbours(query))], -1)
    key = torch.cat([key, turned.expand(-1, arch.heads, -1, -1)], -1)
    return run("o_proj", mix(run, query, key, value, chosen), arch.width)


def indexed(run: Run, x: Tensor, asked: Tensor) -> Tensor:
    """Return which keys a token attends to (batch, 1, tokens, keys): those with the best scores of the indexer."""
    at, run.at, wide, heads, size = run.at, f"{run.at}indexer.", wide_of(x), run.arch.heads, run.arch.size
    query = rotated(run, by_head(run("wq_b", asked, heads * size), heads)).to(wide)
    key = run.kept("key", rotated(run, layer_norm(run, "k_norm", run("wk", x, size))[:, None]), 2).to(wide)
    share = run("weights_proj", x, heads).to(wide).transpose(1, 2)[..., None] * heads**-0.5
    run.at = at
    scores = (share * ((query @ key.mT) * size**-0.5).relu()).sum(1, keepdim=True)
    scores = scores.masked_fill(~run.mask, -torch.inf)
    best = scores.topk(min(run.arch.indexed, scores.shape[-1])).indices
    return torch.zeros_like(run.mask).scatter(-1, best, value=True)


def neighbours(x: Tensor) -> Tensor:
    """Reorder pairs of neighbours to the halves that :func:`rotated` rotates."""
    return torch.unflatten(x, -1, (-1, 2)).transpose(-1, -2).flatten(-2)


def delta(run: Run, x: Tensor) -> Tensor:
    """Update a state by the gated delta rule, token by token; two value heads for each key head."""
    heads, size, wide = run.arch.kv_heads, run.arch.size, wide_of(x)
    x = x * run.valid[..., None]
    mixed = torch.unflatten(run("in_proj_qkvz", x, 6 * heads * size), -1, (heads, -1))
    query, key, value, z = torch.split(mixed, [size, size, 2 * size, 2 * size], -1)
    beta, decay = torch.unflatten(run("in_proj_ba", x, 4 * heads), -1, (heads, -1)).chunk(2, -1)
    beta, decay = beta.flatten(2).sigmoid().to(wide), decay.flatten(2).to(wide)
    decay = F.softplus(decay + run.weight("dt_bias", 2 * heads)) * -run.weight("A_log", 2 * heads).to(wide).exp()
    wave = torch.cat([each.flatten(2) for each in (query, key, value)], -1).transpose(1, 2)
    before = run.cache.get(f"{run.at}wave", wave.new_zeros(*wave.shape[:2], KERNEL - 1))
    wave = torch.cat([before, wave], -1)
    run.cache[f"{run.at}wave"] = wave[..., 1 - KERNEL :]
    kernel = run.weight("conv1d.weight", wave.shape[1], 1, KERNEL)
    wave = F.silu(F.conv1d(wave, kernel, groups=wave.shape[1])).transpose(1, 2)
    query, key, value = torch.split(wave, [heads * size, heads * size, 2 * heads * size], -1)
    query, key = (torch.unflatten(each, -1, (heads, -1)).repeat_interleave(2, 2).to(wide) for each in (query, key))
    query, key = (each * (each.square().sum(-1, keepdim=True) + EPS).rsqrt() for each in (query, key))
    value = torch.unflatten(value, -1, (2 * heads, -1)).to(wide)
    state = run.cache.get(f"{run.at}state", value.new_zeros(len(x), 2 * heads, size, size))
    found = []
    for q, k, v, b, d in zip(*(each.unbind(1) for each in (query * size**-0.5, key, value, beta, decay)), strict=True):
        state = state * d.exp()[..., None, None]
        change = (v - (state * k[..., None]).sum(-2)) * b[..., None]
        state = state + k[..., None] * change[..., None, :]
        found.append((state * q[..., None]).sum(-2))
    run.cache[f"{run.at}state"] = state
    made = torch.stack(found, 1).to(x.dtype)
    gate = F.silu(torch.unflatten(z, -1, (2, -1)).flatten(2, 3).to(wide))
    made = (run.norm("norm", made).to(wide) * gate).to(x.dtype)
    return run("out_proj", made.flatten(2), run.arch.width)


def mlp(run: Run, x: Tensor, name: str = "") -> Tensor:
    gate, up = (run(f"{name}{each}_proj", x, run.arch.of_expert if name else run.arch.inner) for each in ("gate", "up"))
    return run(f"{name}down_proj", F.silu(gate) * up, run.arch.width)


def experts(run: Run, x: Tensor) -> Tensor:
    flat = x.flatten(0, -2)
    weight, index = run("gate", flat, run.arch.experts).softmax(-1, dtype=wide_of(x)).topk(run.arch.chosen)
    return sent(run, flat, weight / weight.sum(-1, keepdim=True), index).view_as(x)


def wide_of(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def grouped(run: Run, x: Tensor) -> Tensor:
    """Choose among the experts of the better of two groups by biased scores; a shared expert sees each token."""
    flat, wide, count = x.flatten(0, -2), wide_of(x), run.arch.experts
    scores = F.linear(flat.to(wide), run.weight("gate.weight", count, run.arch.width).to(wide)).sigmoid()
    biased = scores + run.weight("gate.e_score_correction_bias", count)
    groups = torch.unflatten(biased, -1, (2, -1))
    best = groups.topk(2).values.sum(-1, keepdim=True)
    index = groups.masked_fill(best < best.amax(-2, keepdim=True), 0.0).flatten(-2).topk(run.arch.chosen).indices
    weight = scores.gather(-1, index)
    found = sent(run, flat, weight / weight.sum(-1, keepdim=True) * 2.5, index).view_as(x)
    return found + mlp(run, x, "shared_experts.")


def shared(run: Run, x: Tensor) -> Tensor:
    return experts(run, x) + run("shared_expert_gate", x, 1).sigmoid() * mlp(run, x, "shared_expert.")


def sent(run: Run, x: Tensor, weight: Tensor, index: Tensor) -> Tensor:
    """Return the weighted sum of the experts' results; an expert of limited capacity drops later tokens."""
    count, inner, width = run.arch.experts, run.arch.of_expert, run.arch.width
    chosen = F.one_hot(index, count)
    if run.arch.capacity:
        place = chosen.flatten(0, 1).cumsum(0).view_as(chosen)
        chosen = chosen * (place <= run.arch.capacity)
    share = (chosen * weight[..., None]).sum(1).to(x.dtype)  # (tokens, experts)
    both = torch.einsum("th,eih->eti", x, run.weight("experts.gate_up_proj", count, 2 * inner, width))
    gate, up = both.chunk(2, -1)
    made = torch.einsum("eti,ehi->eth", F.silu(gate) * up, run.weight("experts.down_proj", count, width, inner))
    return torch.einsum("eth,te->th", made, share)


#: Names of modules, and the functions that compute them.
MIXERS = {"attention": ("self_attn", attention), "latent": ("self_attn", latent), "delta": ("linear_attn", delta)}
FEEDS = {"mlp": mlp, "experts": experts, "grouped": grouped, "shared": shared}


def forward(
    arch: Architecture,
    weights: Weights,
    tokens: Tensor,
    *,
    segments: Tensor | None = None,
    cache: MutableMapping[str, Any] | None = None,
    tiles: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return each layer's result and the logits of tokens (batch, tokens), by name.

    Tokens see earlier ones of their segment; segment -1 is padding, and gets position 0. ``cache`` continues from
    earlier calls. The features of ``tiles`` (images, 3, side, side) replace the image tokens, in order.
    """
    run = begun(arch, weights, torch.zeros_like(tokens) if segments is None else segments, cache)
    x = F.embedding(tokens, run.weight(f"{arch.stem}embed_tokens.weight", arch.vocabulary, arch.width))
    if tiles is not None:
        features = seen(run, tiles)
        x = x.masked_scatter((tokens == IMAGE)[..., None].expand_as(x), features.to(x.dtype))
        run.states["model.multi_modal_projector"] = features
    return layers(run, x)


def begun(arch: Architecture, weights: Weights, segments: Tensor, cache: MutableMapping[str, Any] | None = None) -> Run:
    """Return a pass over tokens of these segments (batch, tokens), after those in the cache."""
    cache = {} if cache is None else cache
    known = torch.cat([cache["segments"], segments], 1) if cache else segments
    cache["segments"], start = known, known.shape[1] - segments.shape[1]
    same = known[:, :, None] == known[:, None, :]
    order = torch.ones_like(same).tril()
    positions = ((same & order).sum(-1) - 1).masked_fill(known < 0, 0)[:, start:]
    turn = angles(arch, positions, next((each.dtype for each in weights.values()), torch.float32))
    return Run(arch, weights, (same & order)[:, None, start:], segments >= 0, turn, cache)


def draft(arch: Architecture, weights: Weights, tokens: Tensor, hidden: Tensor) -> Tensor:
    """Return the logits of the token after ``tokens``; ``hidden`` is the last layer's result for the previous ones."""
    number = len(arch.mixers)
    run = begun(arch, weights, torch.zeros_like(tokens))
    run.at = f"{arch.stem}layers.{number}."
    rows = run.norm("enorm", F.embedding(tokens, weights[f"{arch.stem}embed_tokens.weight"]))
    x = run("eh_proj", torch.cat([rows, run.norm("hnorm", hidden)], -1), arch.width)
    x = layer(run, number, arch.mixers[-1], arch.feeds[-1], x)
    run.at = f"{arch.stem}layers.{number}."
    return F.linear(run.norm("shared_head.norm", x[:, -1]), weights["lm_head.weight"])


def layers(run: Run, x: Tensor) -> dict[str, Tensor]:
    """Return each layer's result and the logits of embedded tokens (batch, tokens, width)."""
    arch = run.arch
    for number, (mixer, feed) in enumerate(zip(arch.mixers, arch.feeds, strict=True)):
        x = layer(run, number, mixer, feed, x)
    run.at = ""
    return {**run.states, "logits": run("lm_head", run.norm(f"{arch.stem}norm", x), arch.vocabulary)}


def layer(run: Run, number: int, mixer: str, feed: str, x: Tensor) -> Tensor:
    for before, (name, compute) in (("input", MIXERS[mixer]), ("post_attention", ("mlp", FEEDS[feed]))):
        run.at = f"{run.arch.stem}layers.{number}."
        y = run.norm(f"{before}_layernorm", x)
        run.at += f"{name}."
        x = x + compute(run, y)
        run.states[run.at[:-1]] = x
    return x


def seen(run: Run, tiles: Tensor) -> Tensor:
    """Return the features of tiles (image tokens, width): an encoder, pixel shuffle, a projector."""
    arch, width, tower = run.arch, run.arch.width, "model.vision_tower."
    run.at = f"{tower}embeddings."
    kernel = run.weight("patch_embeddings.projection.weight", width, 3, PATCH, PATCH)
    bias = run.weight("patch_embeddings.projection.bias", width)
    x = F.conv2d(tiles, kernel, bias, stride=PATCH).flatten(2).transpose(1, 2)
    x = torch.cat([run.weight("cls_token", 1, 1, width).expand(len(x), -1, -1), x], 1)
    x = x + run.weight("position_embeddings", 1, SIDE * SIDE + 1, width)
    for number in range(arch.vision):
        run.at = f"{tower}encoder.layer.{number}."
        y = layer_norm(run, "layernorm_before", x)
        query, key, value = (by_head(run(f"attention.{name}_proj", y, width, bias=True), arch.heads) for name in "qkv")
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + run.weight("lambda_1", width) * run("attention.projection_layer", mixed, width, bias=True)
        y = run("mlp.fc1", layer_norm(run, "layernorm_after", x), 2 * width, bias=True)
        x = x + run.weight("lambda_2", width) * run("mlp.fc2", F.gelu(y, approximate="tanh"), width, bias=True)
        run.states[run.at[:-1]] = x
    side = SIDE // 2
    x = x[:, 1:].reshape(len(x), side, 2, side, 2, width).permute(0, 3, 1, 4, 2, 5)
    run.at = "model.multi_modal_projector."
    x = layer_norm(run, "layer_norm", x.permute(0, 2, 1, 4, 3, 5).reshape(len(x), side * side, 4 * width))
    x = F.gelu(run("linear_1", x, width, bias=True), approximate="tanh")
    return run("linear_2", x, width, bias=True).flatten(0, 1)


def layer_norm(run: Run, name: str, x: Tensor) -> Tensor:
    weight, bias = (run.weight(f"{name}.{each}", x.shape[-1]) for each in ("weight", "bias"))
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


# --- weights ---


class Drawn(dict[str, Tensor]):
    def __init__(self, name: str, arch: Architecture) -> None:
        super().__init__()
        self.name, self.offset = name, arch.offset

    def drawn(self, key: str, shape: tuple[int, ...]) -> Tensor:
        """Return a weight: matrices scaled by their fan-in, norms around one (zero if one is added)."""
        if key not in self:
            if len(shape) == 1:
                scales = "norm" in key and key.endswith("weight") and (not self.offset or "linear_attn" in key)
                made = inputs.uniform(f"inference/{self.name}/{key}", shape, low=scales - 0.25, high=scales + 0.25)
            else:
                terms = math.prod(shape[1:]) if "conv" in key or "projection.weight" in key else shape[-1]
                made = inputs.normal(f"inference/{self.name}/{key}", shape, std=terms**-0.5)
            self[key] = made.bfloat16().float()
        return self[key]


def weights(name: str, arch: Architecture) -> dict[str, Tensor]:
    """Return the float32 weights of a model, exact in bfloat16: those that a pass over a text reads."""
    return {key: each.clone() for key, each in _drawn(name, arch).items()}


@functools.cache
def _drawn(name: str, arch: Architecture) -> Drawn:
    found, tokens = Drawn(name, arch), torch.full((1, (SIDE // 2) ** 2), IMAGE)
    tiles = torch.zeros(1, 3, SIDE * PATCH, SIDE * PATCH) if arch.vision else None
    with torch.no_grad():
        forward(arch, found, tokens, tiles=tiles)
        if arch.drafts:
            draft(arch, found, tokens, torch.zeros(*tokens.shape, arch.width))
    return found
