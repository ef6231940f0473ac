"""Decoders as functions of weights that have transformers' names: one set of parts, and a table of architectures.

Sources: transformers 5.24 for names and order of operations (models qwen3, qwen3_moe, deepseek_v3, deepseek_v32,
qwen3_next, internvl); DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 2.2, for the head that drafts, with
the names of its checkpoint; B. Peng et al., "YaRN", 2023, for scaled positions; S. Yang et al., "Gated delta
networks", ICLR 2025.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from pytest_ascend.run import inputs

Weights: TypeAlias = Mapping[str, Tensor]
Shapes: TypeAlias = Iterator[tuple[str, tuple[int, ...]]]

EPS, BASE, KERNEL = 1e-6, 10000.0, 4
#: Token that an image's features replace, and patches along the side of a tile (448 / 14 has 32 of them).
IMAGE, SIDE, PATCH = 63, 4, 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One model: what mixes tokens and what follows it, layer by layer, and sizes. ``yarn`` scales positions."""

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
    #: Keys that an indexer of its own chooses for each token, where it has one.
    indexed: int = 0
    #: Whether a head drafts the token after the next one.
    drafts: bool = False

    @property
    def stem(self) -> str:
        """The name of the text model."""
        return "model.language_model." if self.vision else "model."


ARCHITECTURES = {
    "qwen3": Architecture(yarn=4.0),
    "qwen3-moe": Architecture(feeds=("experts", "experts")),
    "deepseek-v3": Architecture(mixers=("latent",) * 2, feeds=("mlp", "grouped"), kv_heads=4, rotated=8),
    "deepseek-v3.2": Architecture(mixers=("latent",) * 2, feeds=("mlp", "grouped"), kv_heads=4, rotated=8, indexed=4),
    "qwen3-next": Architecture(
        mixers=("delta", "attention"), feeds=("shared", "shared"), rotated=4, gated=True, offset=1.0
    ),
    "internvl3": Architecture(qk_norm=False, bias=True, vision=2),
}


@dataclass(slots=True)
class Run:
    """What a forward pass reads and writes: keys by layer, each layer's result, and which token sees which."""

    arch: Architecture
    weights: Weights
    positions: Tensor
    mask: Tensor
    valid: Tensor
    turn: tuple[Tensor, Tensor]
    cache: MutableMapping[str, Any]
    states: dict[str, Tensor] = field(default_factory=dict)
    at: str = ""
    #: Computes attention in the place of :func:`mix`, with a cache of its own.
    paged: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    def __call__(self, name: str, x: Tensor) -> Tensor:
        """Multiply by a weight of the current module, and add its bias if it has one."""
        made = F.linear(x, self.weights[f"{self.at}{name}.weight"], self.weights.get(f"{self.at}{name}.bias"))
        down = self.weights.get(f"{self.at}{name}.lora_A.weight")
        return made if down is None else made + (x @ down.t()) @ self.weights[f"{self.at}{name}.lora_B.weight"].t()

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Divide by the root mean square, which is computed in float32."""
        wide = x if x.dtype is torch.float64 else x.float()
        made = wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt()
        weight = self.weights[f"{self.at}{name}.weight"]
        if self.arch.offset and "linear_attn" not in self.at:
            return (made * (self.arch.offset + weight.to(made.dtype))).to(x.dtype)
        return weight * made.to(x.dtype)

    def kept(self, name: str, x: Tensor, dim: int) -> Tensor:
        """Append to the cache of the current module, and return all."""
        before = self.cache.get(f"{self.at}{name}")
        self.cache[f"{self.at}{name}"] = found = x if before is None else torch.cat([before, x], dim)
        return found


def angles(arch: Architecture, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (batch, tokens, rotated), by YaRN where positions are scaled."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
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
    """Turn the first part of each head (batch, heads, tokens, size) by its position, in halves."""
    cos, sin = (each[:, None] for each in run.turn)
    first, rest = x[..., : run.arch.rotated], x[..., run.arch.rotated :]
    left, right = first.chunk(2, -1)
    return torch.cat([first * cos + torch.cat([-right, left], -1) * sin, rest], -1)


def by_head(x: Tensor, heads: int) -> Tensor:
    """Return (batch, heads, tokens, size) of (batch, tokens, heads * size)."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def in_int8(x: Tensor) -> Tensor:
    """Return what a cache in int8 keeps of keys or values: each head of a token has a scale."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8).to(x.dtype) * scale


def attention(run: Run, x: Tensor) -> Tensor:
    """Attend with groups of query heads, norms of queries and keys, and a gate where there is one."""
    arch = run.arch
    query = by_head(run("q_proj", x), arch.heads)
    query, gate = query.chunk(2, -1) if arch.gated else (query, None)
    key, value = (by_head(run(name, x), arch.kv_heads) for name in ("k_proj", "v_proj"))
    if arch.qk_norm:
        query, key = run.norm("q_norm", query), run.norm("k_norm", key)
    query, key = rotated(run, query), rotated(run, key)
    if arch.quantized:
        key, value = in_int8(key), in_int8(value)
    if run.paged is None:
        mixed = mix(run, query, run.kept("key", key, 2), run.kept("value", value, 2))
    else:
        mixed = run.paged(query, key, value)
    return run("o_proj", mixed if gate is None else mixed * gate.transpose(1, 2).flatten(2).sigmoid())


def mix(run: Run, query: Tensor, key: Tensor, value: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Return the attention of all heads (batch, tokens, heads * size), among the keys that are ``chosen``."""
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    mask = run.mask if chosen is None else run.mask & chosen
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


def latent(run: Run, x: Tensor) -> Tensor:
    """Attend with keys and values from a latent vector, which is cached; positions turn neighbours, not halves."""
    arch = run.arch
    asked = run.norm("q_a_layernorm", run("q_a_proj", x))
    chosen = indexed(run, x, asked) if arch.indexed else None
    query = by_head(run("q_b_proj", asked), arch.heads)
    small, turned = torch.split(run("kv_a_proj_with_mqa", x), [arch.latent, arch.rotated], -1)
    plain, query = torch.split(query, [arch.size, arch.rotated], -1)
    turned = rotated(run, neighbours(turned[:, None]))
    small, turned = run.kept("latent", run.norm("kv_a_layernorm", small), 1), run.kept("turned", turned, 2)
    key, value = torch.split(by_head(run("kv_b_proj", small), arch.heads), [arch.size, arch.size], -1)
    query = torch.cat([plain, rotated(run, neighbours(query))], -1)
    key = torch.cat([key, turned.expand(-1, arch.heads, -1, -1)], -1)
    return run("o_proj", mix(run, query, key, value, chosen))


def indexed(run: Run, x: Tensor, asked: Tensor) -> Tensor:
    """Return which keys a token attends to (batch, 1, tokens, keys): those with the best scores of the indexer."""
    at, run.at, wide = run.at, f"{run.at}indexer.", wide_of(x)
    query = rotated(run, by_head(run("wq_b", asked), run.arch.heads)).to(wide)
    key = run.kept("key", rotated(run, layer_norm(run, "k_norm", run("wk", x))[:, None]), 2).to(wide)
    share = run("weights_proj", x).to(wide).transpose(1, 2)[..., None] * run.arch.heads**-0.5
    run.at = at
    scores = (share * ((query @ key.mT) * run.arch.size**-0.5).relu()).sum(1, keepdim=True)
    scores = scores.masked_fill(~run.mask, -torch.inf)
    best = scores.topk(min(run.arch.indexed, scores.shape[-1])).indices
    return torch.zeros_like(run.mask).scatter(-1, best, value=True)


def neighbours(x: Tensor) -> Tensor:
    """Bring pairs of neighbours to the halves that :func:`rotated` turns."""
    return torch.unflatten(x, -1, (-1, 2)).transpose(-1, -2).flatten(-2)


def delta(run: Run, x: Tensor) -> Tensor:
    """Update a state by the gated delta rule, token by token; two value heads for each key head."""
    heads, size, wide = run.arch.kv_heads, run.arch.size, wide_of(x)
    x = x * run.valid[..., None]
    mixed = torch.unflatten(run("in_proj_qkvz", x), -1, (heads, -1))
    query, key, value, z = torch.split(mixed, [size, size, 2 * size, 2 * size], -1)
    beta, decay = torch.split(torch.unflatten(run("in_proj_ba", x), -1, (heads, -1)), [2, 2], -1)
    beta, decay = beta.flatten(2).sigmoid().to(wide), decay.flatten(2).to(wide)
    decay = -run.weights[f"{run.at}A_log"].to(wide).exp() * F.softplus(decay + run.weights[f"{run.at}dt_bias"])
    wave = torch.cat([each.flatten(2) for each in (query, key, value)], -1).transpose(1, 2)
    before = run.cache.get(f"{run.at}wave", wave.new_zeros(*wave.shape[:2], KERNEL - 1))
    wave = torch.cat([before, wave], -1)
    run.cache[f"{run.at}wave"] = wave[..., 1 - KERNEL :]
    wave = F.silu(F.conv1d(wave, run.weights[f"{run.at}conv1d.weight"], groups=wave.shape[1])).transpose(1, 2)
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
    return run("out_proj", made.flatten(2))


def mlp(run: Run, x: Tensor, name: str = "") -> Tensor:
    """Multiply by the SiLU of a gate."""
    return run(f"{name}down_proj", F.silu(run(f"{name}gate_proj", x)) * run(f"{name}up_proj", x))


def experts(run: Run, x: Tensor) -> Tensor:
    """Send each token to the experts with the largest probabilities."""
    flat = x.flatten(0, -2)
    weight, index = run("gate", flat).softmax(-1, dtype=wide_of(x)).topk(run.arch.chosen)
    return sent(run, flat, weight / weight.sum(-1, keepdim=True), index).view_as(x)


def wide_of(x: Tensor) -> torch.dtype:
    """Return the dtype of what routers compute."""
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def grouped(run: Run, x: Tensor) -> Tensor:
    """Choose among the experts of the better of two groups by biased scores; a shared expert sees each token."""
    flat, gate = x.flatten(0, -2), f"{run.at}gate."
    wide = wide_of(x)
    scores = F.linear(flat.to(wide), run.weights[f"{gate}weight"].to(wide)).sigmoid()
    biased = scores + run.weights[f"{gate}e_score_correction_bias"]
    groups = torch.unflatten(biased, -1, (2, -1))
    best = groups.topk(2).values.sum(-1, keepdim=True)
    index = groups.masked_fill(best < best.amax(-2, keepdim=True), 0.0).flatten(-2).topk(run.arch.chosen).indices
    weight = scores.gather(-1, index)
    found = sent(run, flat, weight / weight.sum(-1, keepdim=True) * 2.5, index).view_as(x)
    return found + mlp(run, x, "shared_experts.")


def shared(run: Run, x: Tensor) -> Tensor:
    """Add an expert that sees each token, through a gate of its own."""
    return experts(run, x) + run("shared_expert_gate", x).sigmoid() * mlp(run, x, "shared_expert.")


def sent(run: Run, x: Tensor, weight: Tensor, index: Tensor) -> Tensor:
    """Return the weighted sum of the experts' results; an expert of limited capacity drops later tokens."""
    chosen = F.one_hot(index, run.arch.experts)
    if run.arch.capacity:
        place = chosen.flatten(0, 1).cumsum(0).view_as(chosen)
        chosen = chosen * (place <= run.arch.capacity)
    share = (chosen * weight[..., None]).sum(1).to(x.dtype)  # (tokens, experts)
    both = torch.einsum("th,eih->eti", x, run.weights[f"{run.at}experts.gate_up_proj"])
    gate, up = both.chunk(2, -1)
    made = torch.einsum("eti,ehi->eth", F.silu(gate) * up, run.weights[f"{run.at}experts.down_proj"])
    return torch.einsum("eth,te->th", made, share)


#: Names of modules, and what computes them.
MIXERS = {"attention": ("self_attn", attention), "latent": ("self_attn", latent), "delta": ("linear_attn", delta)}
FEEDS = {"mlp": mlp, "experts": experts, "grouped": grouped, "shared": shared}
#: Norms of the head that drafts: of the token, of what the last layer gave before it, and of the result.
DRAFTING = ("enorm", "hnorm", "shared_head.norm")


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

    Tokens see earlier ones of their segment; segment -1 is padding, and gets position 0. ``cache`` goes on from what
    earlier calls left in it. The features of ``tiles`` (images, 3, side, side) replace the image tokens, in order.
    """
    run = begun(arch, weights, torch.zeros_like(tokens) if segments is None else segments, cache)
    stem = arch.stem
    x = F.embedding(tokens, weights[f"{stem}embed_tokens.weight"])
    if tiles is not None:
        features = seen(run, tiles)
        x = x.masked_scatter((tokens == IMAGE)[..., None].expand_as(x), features.to(x.dtype))
        run.states["model.multi_modal_projector"] = features
    return layers(run, x)


def begun(arch: Architecture, weights: Weights, segments: Tensor, cache: MutableMapping[str, Any] | None = None) -> Run:
    """Return a pass over tokens of these segments (batch, tokens), behind those in the cache."""
    cache = {} if cache is None else cache
    known = torch.cat([cache["segments"], segments], 1) if cache else segments
    cache["segments"], start = known, known.shape[1] - segments.shape[1]
    same = known[:, :, None] == known[:, None, :]
    order = torch.ones_like(same).tril()
    positions = ((same & order).sum(-1) - 1).masked_fill(known < 0, 0)[:, start:]
    turn, mask = angles(arch, positions, weights["lm_head.weight"].dtype), (same & order)[:, None, start:]
    return Run(arch, weights, positions, mask, segments >= 0, turn, cache)


def draft(arch: Architecture, weights: Weights, tokens: Tensor, hidden: Tensor) -> Tensor:
    """Return the logits (1, vocabulary) of the token behind ``tokens`` (1, n), all but the first of a text.

    ``hidden`` (1, n, width) is what the last layer gave for the token before each of them.
    """
    number = len(arch.mixers)
    run = begun(arch, weights, torch.zeros_like(tokens))
    run.at = f"{arch.stem}layers.{number}."
    rows = run.norm("enorm", F.embedding(tokens, weights[f"{arch.stem}embed_tokens.weight"]))
    x = run("eh_proj", torch.cat([rows, run.norm("hnorm", hidden)], -1))
    x = layer(run, number, arch.mixers[-1], arch.feeds[-1], x)
    run.at = f"{arch.stem}layers.{number}."
    return F.linear(run.norm("shared_head.norm", x[:, -1]), weights["lm_head.weight"])


def layers(run: Run, x: Tensor) -> dict[str, Tensor]:
    """Return each layer's result and the logits of embedded tokens (batch, tokens, width)."""
    arch, stem = run.arch, run.arch.stem
    for number, (mixer, feed) in enumerate(zip(arch.mixers, arch.feeds, strict=True)):
        x = layer(run, number, mixer, feed, x)
    run.at = ""
    return {**run.states, "logits": run("lm_head", run.norm(f"{stem}norm", x))}


def layer(run: Run, number: int, mixer: str, feed: str, x: Tensor) -> Tensor:
    """Return the result of a layer, whose parts are kept among the states."""
    for before, (name, compute) in (("input", MIXERS[mixer]), ("post_attention", ("mlp", FEEDS[feed]))):
        run.at = f"{run.arch.stem}layers.{number}."
        y = run.norm(f"{before}_layernorm", x)
        run.at += f"{name}."
        x = x + compute(run, y)
        run.states[run.at[:-1]] = x
    return x


def seen(run: Run, tiles: Tensor) -> Tensor:
    """Return the features of tiles (image tokens, width): an encoder, pixel shuffle, a projector."""
    arch, tower = run.arch, "model.vision_tower."
    weights = run.weights
    kernel, bias = (weights[f"{tower}embeddings.patch_embeddings.projection.{each}"] for each in ("weight", "bias"))
    x = F.conv2d(tiles, kernel, bias, stride=PATCH).flatten(2).transpose(1, 2)
    x = torch.cat([weights[f"{tower}embeddings.cls_token"].expand(len(x), -1, -1), x], 1)
    x = x + weights[f"{tower}embeddings.position_embeddings"]
    for number in range(arch.vision):
        run.at = f"{tower}encoder.layer.{number}."
        y = layer_norm(run, "layernorm_before", x)
        query, key, value = (by_head(run(f"attention.{name}_proj", y), arch.heads) for name in "qkv")
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + weights[f"{run.at}lambda_1"] * run("attention.projection_layer", mixed)
        y = run("mlp.fc2", F.gelu(run("mlp.fc1", layer_norm(run, "layernorm_after", x)), approximate="tanh"))
        x = x + weights[f"{run.at}lambda_2"] * y
        run.states[run.at[:-1]] = x
    side = SIDE // 2
    x = x[:, 1:].reshape(len(x), side, 2, side, 2, arch.width).permute(0, 3, 1, 4, 2, 5)
    run.at = "model.multi_modal_projector."
    x = layer_norm(run, "layer_norm", x.permute(0, 2, 1, 4, 3, 5).reshape(len(x), side * side, 4 * arch.width))
    return run("linear_2", F.gelu(run("linear_1", x), approximate="tanh")).flatten(0, 1)


def layer_norm(run: Run, name: str, x: Tensor) -> Tensor:
    """Normalise with mean and variance."""
    weight, bias = (run.weights[f"{run.at}{name}.{each}"] for each in ("weight", "bias"))
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


# --- weights ---


def shapes(arch: Architecture) -> Shapes:
    """Yield the name and shape of each weight, as transformers has them."""
    stem, width, last = arch.stem, arch.width, len(arch.mixers)
    yield f"{stem}embed_tokens.weight", (arch.vocabulary, width)
    of_layers = list(zip(arch.mixers, arch.feeds, strict=True))
    for number, (mixer, feed) in enumerate(of_layers + of_layers[-1:] * arch.drafts):
        at = f"{stem}layers.{number}."
        yield from ((f"{at}{MIXERS[mixer][0]}.{name}", shape) for name, shape in _parts(arch, mixer))
        yield from ((f"{at}mlp.{name}", shape) for name, shape in _feed(arch, feed))
        for name in ("input_layernorm", "post_attention_layernorm", *DRAFTING * (number == last)):
            yield f"{at}{name}.weight", (width,)
    if arch.drafts:
        yield f"{stem}layers.{last}.eh_proj.weight", (width, 2 * width)
    yield f"{stem}norm.weight", (width,)
    yield "lm_head.weight", (arch.vocabulary, width)
    if arch.vision:
        yield from _vision(arch)


def _linear(names: str, out: int, into: int, *, bias: bool = False, at: str = "") -> Shapes:
    for name in names.split():
        yield f"{at}{name}.weight", (out, into)
        if bias:
            yield f"{at}{name}.bias", (out,)


def _vectors(names: str, size: int, at: str = "") -> Shapes:
    return ((f"{at}{name}", (size,)) for name in names.split())


def _parts(arch: Architecture, mixer: str) -> Shapes:
    heads, kept, size, width = arch.heads, arch.kv_heads, arch.size, arch.width
    if mixer == "attention":
        yield from _linear("q_proj", heads * size * (1 + arch.gated), width, bias=arch.bias)
        yield from _linear("k_proj v_proj", kept * size, width, bias=arch.bias)
        yield from _linear("o_proj", width, heads * size)
        if arch.qk_norm:
            yield from _vectors("q_norm.weight k_norm.weight", size)
    elif mixer == "latent":
        yield from _linear("q_a_proj", arch.latent, width)
        yield from _linear("q_b_proj", heads * (size + arch.rotated), arch.latent)
        yield from _linear("kv_a_proj_with_mqa", arch.latent + arch.rotated, width)
        yield from _linear("kv_b_proj", heads * 2 * size, arch.latent)
        yield from _linear("o_proj", width, heads * size)
        yield from _vectors("q_a_layernorm.weight kv_a_layernorm.weight", arch.latent)
        if arch.indexed:
            yield from _linear("indexer.wq_b", heads * size, arch.latent)
            yield from _linear("indexer.wk", size, width)
            yield from _linear("indexer.weights_proj", heads, width)
            yield from _vectors("indexer.k_norm.weight indexer.k_norm.bias", size)
    else:
        yield from _linear("in_proj_qkvz", 6 * kept * size, width)
        yield from _linear("in_proj_ba", 4 * kept, width)
        yield from (("conv1d.weight", (4 * kept * size, 1, KERNEL)), ("norm.weight", (size,)))
        yield from _vectors("A_log dt_bias", 2 * kept)
        yield from _linear("out_proj", width, 2 * kept * size)


def _gate(inner: int, width: int, at: str = "") -> Shapes:
    yield from _linear("gate_proj up_proj", inner, width, at=at)
    yield from _linear("down_proj", width, inner, at=at)


def _feed(arch: Architecture, feed: str) -> Shapes:
    if feed == "mlp":
        yield from _gate(arch.inner, arch.width)
        return
    yield "gate.weight", (arch.experts, arch.width)
    yield "experts.gate_up_proj", (arch.experts, 2 * arch.of_expert, arch.width)
    yield "experts.down_proj", (arch.experts, arch.width, arch.of_expert)
    if feed == "grouped":
        yield "gate.e_score_correction_bias", (arch.experts,)
        yield from _gate(arch.of_expert, arch.width, "shared_experts.")
    if feed == "shared":
        yield from _gate(arch.of_expert, arch.width, "shared_expert.")
        yield "shared_expert_gate.weight", (1, arch.width)


def _vision(arch: Architecture) -> Shapes:
    tower, width = "model.vision_tower.", arch.width
    yield f"{tower}embeddings.cls_token", (1, 1, width)
    yield f"{tower}embeddings.position_embeddings", (1, SIDE * SIDE + 1, width)
    yield f"{tower}embeddings.patch_embeddings.projection.weight", (width, 3, PATCH, PATCH)
    yield f"{tower}embeddings.patch_embeddings.projection.bias", (width,)
    for number in range(arch.vision):
        layer = f"{tower}encoder.layer.{number}."
        yield from _linear("q_proj k_proj v_proj projection_layer", width, width, bias=True, at=f"{layer}attention.")
        yield from _linear("fc1", 2 * width, width, bias=True, at=f"{layer}mlp.")
        yield from _linear("fc2", width, 2 * width, bias=True, at=f"{layer}mlp.")
        for name in ("layernorm_before", "layernorm_after"):
            yield from _vectors("weight bias", width, f"{layer}{name}.")
        yield from _vectors("lambda_1 lambda_2", width, layer)
    projector = "model.multi_modal_projector."
    yield from _vectors("layer_norm.weight layer_norm.bias", 4 * width, projector)
    yield from _linear("linear_1", width, 4 * width, bias=True, at=projector)
    yield from _linear("linear_2", width, width, bias=True, at=projector)


def weights(name: str, arch: Architecture) -> dict[str, Tensor]:
    """Return the float32 weights of a model, which bfloat16 holds exactly: matrices by what they multiply, norms
    around one (zero where one is added)."""
    found = {}
    for key, shape in shapes(arch):
        if len(shape) == 1:
            scales = "norm" in key and key.endswith("weight") and (not arch.offset or "linear_attn" in key)
            made = inputs.uniform(f"inference/{name}/{key}", shape, low=scales - 0.25, high=scales + 0.25)
        else:
            terms = math.prod(shape[1:]) if "conv" in key or "projection.weight" in key else shape[-1]
            made = inputs.normal(f"inference/{name}/{key}", shape, std=terms**-0.5)
        found[key] = made.bfloat16().float()
    return found
