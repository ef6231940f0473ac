"""All tested ways of drawing random numbers, one per line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.operators.operator import FLOATS
from pytest_ascend.run import inputs

from . import statistics as of

T = torch.Tensor

#: Elements of a tensor: not a multiple of blocks or vectors. Fewer in 16 bits, whose rounding would become visible.
COUNT, COUNT_IN_16_BITS = 2**18 + 4099, 2**16 + 19


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """A random operator: ``draw`` returns as many numbers as a tensor has, and may write them into it."""

    name: str
    draw: Callable[[T], T]
    distribution: of.Distribution
    dtypes: tuple[str, ...] = ("float32",)


def _like(function: Callable[..., T]) -> Callable[[T], T]:
    return lambda x: function(x.shape, dtype=x.dtype, device=x.device)


def _in_channels(x: T, function: Callable[[T], T]) -> T:
    """Return one element of each 2 x 2 channel, after checking that its four elements are equal."""
    channels = function(torch.ones(x.numel() // 64, 64, 2, 2, dtype=x.dtype, device=x.device)).flatten(2)
    assert bool((channels == channels[..., :1]).all()), "the elements of a channel were not dropped together"
    return channels[..., 0].flatten()


def unwritten(shape: Sequence[int], dtype: str, device: torch.device) -> T:
    """Return a tensor of a value outside every distribution: elements that are not written keep it."""
    kind: torch.dtype = getattr(torch, dtype)
    return torch.full(tuple(shape), math.nan if kind.is_floating_point else -11).to(kind).to(device)


#: The factor and shift that alpha_dropout applies with p = 0.25 to keep mean and variance.
_ALPHA, _P = 1.7580993408473766, 0.25
_A = ((1 - _P) * (1 + _P * _ALPHA**2)) ** -0.5
_B = _A * _ALPHA * _P


def _alpha_dropped(x: T, function: Callable[..., T] = F.alpha_dropout) -> T:
    """Return 1 where alpha_dropout kept a one, 0 where it wrote the value of dropped elements, -1 elsewhere."""
    given = function(torch.ones_like(x), _P, training=True).double()
    kept, dropped = _A + _B, -_A * _ALPHA + _B
    is_kept, is_dropped = (torch.isclose(given, torch.full_like(given, each), rtol=1e-2) for each in (kept, dropped))
    return torch.where(is_kept, 1.0, torch.where(is_dropped, 0.0, -1.0))


def _without_replacement(x: T) -> T:
    """Return rows of 4 out of 8, after checking that no number repeats in a row."""
    rows = torch.multinomial(torch.ones(x.numel() // 64, 8, device=x.device), 4, replacement=False)
    ordered = rows.cpu().sort(-1).values
    assert bool((ordered[:, 1:] > ordered[:, :-1]).all()), "a row has a number twice"
    return rows[:, 0]


def _permuted(x: T) -> T:
    found = torch.randperm(x.numel(), device=x.device)
    assert torch.equal(found.cpu().sort().values, torch.arange(x.numel())), "not every number is there once"
    return found


#: Probabilities whose sums no dtype rounds.
_WEIGHTS = tuple(each / 32 for each in (1, 3, 2, 6, 10, 3, 5, 2))
_dropped = partial(F.dropout, p=0.2)
_features_dropped = partial(_alpha_dropped, function=F.feature_alpha_dropout)
_rrelu = partial(F.rrelu, lower=0.125, upper=0.375, training=True)


def _classes(x: T, weights: Sequence[float] = _WEIGHTS) -> T:
    return torch.multinomial(torch.tensor(weights, dtype=x.dtype, device=x.device), x.numel(), replacement=True)


def _by_gumbel(x: T) -> T:
    return F.gumbel_softmax(torch.tensor(_WEIGHTS, device=x.device).log().expand(x.numel(), -1), hard=True).argmax(-1)


def _shifted_normal(x: T) -> T:
    mean = torch.arange(x.numel(), device=x.device).remainder(5).to(x.dtype)
    return (torch.normal(mean, torch.full_like(mean, 0.5)) - mean) * 2


def _by_deviations(x: T) -> T:
    std = torch.arange(x.numel(), device=x.device).remainder(5).add(0.5).view_as(x)
    return torch.normal(0.0, std) / std


def _by_probabilities(x: T) -> T:
    """Draw events of probability 0.3 and 0.7 in turn, and return 1 for the less probable outcome."""
    turn = torch.arange(x.numel(), device=x.device).remainder(2).view_as(x)
    return (torch.bernoulli(0.3 + 0.4 * turn) != turn).to(x.dtype)


def _by_rows(x: T) -> T:
    """Draw from rows with weights in one order and the other in turn, and return classes of the first order."""
    weights = torch.tensor(_WEIGHTS, device=x.device)
    found = torch.stack([weights, weights.flip(0)]).repeat(x.numel() // 8, 1).multinomial(4, replacement=True)
    return (found - torch.tensor([[0], [7]], device=x.device).repeat(x.numel() // 8, 1)).abs().flatten()


def _in_short_permutations(x: T) -> T:
    return torch.cat([torch.randperm(97, device=x.device) for _ in range(x.numel() // 97 // 8)])


def _wide(x: T) -> T:
    return torch.randint(2**40, x.shape, device=x.device)


# --- attention with dropout: with the unit matrix as values, the result shows which weights were dropped ---

#: The probability that a weight is dropped.
DROPPED = 0.2
#: Number of keys and head size: the values are a unit matrix. A power of two, so that equal weights are exact.
_KEYS = 64
_HEADS, _QUERIES = 4, 70

#: Drawing -> whether it has a numeric mask. With one, torch_npu computes attention by products and a softmax;
#: without one, by a fused operator.
MASKED: Mapping[str, bool] = {"scaled_dot_product_attention": False, "scaled_dot_product_attention.masked": True}


def attend(query: T, key: T, value: T, *, is_masked: bool) -> T:
    """Return attention with dropout on (batch, heads, rows, ``_KEYS``); a mask, if any, does not affect the result."""
    mask = query.new_zeros(query.shape[-2], _KEYS) if is_masked else None
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=DROPPED)


def kept(x: T, *, is_masked: bool) -> T:
    """Return as many numbers as ``x`` has: 1 for a weight that was kept and scaled, 0 for a dropped one, else -1."""
    rows = -(-x.numel() // _KEYS)
    query = x.new_zeros(1, _HEADS, -(-rows // _HEADS), _KEYS)
    key = x.new_zeros(1, _HEADS, _KEYS, _KEYS)
    found = attend(query, key, _unit(key), is_masked=is_masked).double().flatten()[: x.numel()] * _KEYS
    is_kept = torch.isclose(found, torch.full_like(found, 1 / (1 - DROPPED)), rtol=1e-2)
    return torch.where(is_kept, 1.0, torch.where(found == 0, 0.0, -1.0))


def given(dtype: torch.dtype) -> tuple[T, T, T]:
    """Return queries, keys and values on the CPU; no attention weight underflows to zero in any dtype."""
    shapes = {"query": (2, _HEADS, _QUERIES, _KEYS), "key": (2, _HEADS, _KEYS, _KEYS)}
    query, key = (inputs.uniform(f"random/attention/{name}", shape) for name, shape in shapes.items())
    return query.to(dtype), key.to(dtype), _unit(key).to(dtype)


def composed(query: T, key: T, value: T, is_kept: T) -> T:
    """Return attention computed with the given dropout mask."""
    weights: T = (query @ key.mT * _KEYS**-0.5).softmax(-1) * is_kept
    return weights / (1 - DROPPED) @ value


def _unit(key: T) -> T:
    return torch.eye(_KEYS, dtype=key.dtype, device=key.device).expand_as(key).contiguous()


INTS = ("int64", "int32", "uint8")

_HALVES, _DROPPED = of.discrete((0.5, 0.5), step=2), of.discrete((DROPPED, 1 - DROPPED))
DRAWINGS: tuple[Drawing, ...] = (
    Drawing("rand", _like(torch.rand), of.below_one(), FLOATS),
    Drawing("rand.out", lambda x: torch.rand(x.shape, out=x), of.below_one(), FLOATS[:2]),
    Drawing("rand_like", torch.rand_like, of.below_one()),
    Drawing("uniform_", lambda x: x.uniform_(-2, 3), of.uniform(-2, 3), FLOATS),
    Drawing("uniform_.wide", lambda x: x.uniform_(-1e38, 2e38), of.uniform(-1e38, 2e38)),
    Drawing("randn", _like(torch.randn), of.normal(), FLOATS),
    Drawing("randn_like", torch.randn_like, of.normal()),
    Drawing("normal_", lambda x: x.normal_(1, 2), of.normal(1, 2), FLOATS),
    Drawing("normal_.narrow", lambda x: x.normal_(-3, 0.01), of.normal(-3, 0.01)),
    Drawing("normal", _shifted_normal, of.normal()),
    Drawing("normal.numbers", _like(partial(torch.normal, 1.0, 2.0)), of.normal(1, 2)),
    Drawing("normal.deviations", _by_deviations, of.normal()),
    Drawing("randint", _like(partial(torch.randint, 3, 13)), of.even(10, 3), (*INTS, "int16", "int8", "float16")),
    Drawing("randint.out", lambda x: torch.randint(3, 13, x.shape, out=x), of.even(10, 3), INTS),
    Drawing("randint_like", lambda x: torch.randint_like(x, 3, 13), of.even(10, 3), ("float32", "int32")),
    Drawing("randint.high", _wide, of.bits(2**40, low_bits=False), ("int64",)),
    Drawing("randint.low", _wide, of.bits(2**40, low_bits=True), ("int64",)),
    Drawing("random_", lambda x: x.random_(7), of.even(7), ("float32", *INTS)),
    Drawing("random_.whole", lambda x: x.random_(), of.bits(2**24, low_bits=False)),
    Drawing("random_.large", lambda x: x.random_(), of.bits(2**63 - 1, low_bits=False), ("int64",)),
    Drawing("random_.signed", lambda x: x.random_(-5, 3) + 5, of.even(8), ("float32", "int32")),
    Drawing("random_.from", lambda x: x.random_(-100, 28) + 100, of.even(128), ("float16", "int16")),
    Drawing("random_.byte", lambda x: x.random_(), of.even(256), ("uint8",)),
    Drawing("random_.bool", lambda x: x.random_(), of.even(2), ("bool",)),
    Drawing("randperm", _permuted, of.bits(COUNT, low_bits=False), ("int64",)),
    Drawing("randperm.few", _in_short_permutations, of.even(97)),
    Drawing("bernoulli", lambda x: torch.bernoulli(torch.full_like(x, 0.25)), of.discrete((0.75, 0.25)), FLOATS),
    Drawing("bernoulli.out", lambda x: torch.bernoulli(torch.full_like(x, 0.25), out=x), of.discrete((0.75, 0.25))),
    Drawing("bernoulli.probabilities", _by_probabilities, of.discrete((0.7, 0.3))),
    Drawing("bernoulli_", lambda x: x.bernoulli_(0.3), of.discrete((0.7, 0.3)), ("float32", "int32", "bool")),
    Drawing("bernoulli_.tensor", lambda x: x.bernoulli_(torch.tensor(0.3, device=x.device)), of.discrete((0.7, 0.3))),
    Drawing("multinomial", _classes, of.discrete(_WEIGHTS), FLOATS),
    Drawing("multinomial.rows", _by_rows, of.discrete(_WEIGHTS)),
    Drawing("multinomial.many", lambda x: _classes(x, [1.0] * 1000) // 125, of.even(8)),
    Drawing("gumbel_softmax", _by_gumbel, of.discrete(_WEIGHTS)),
    Drawing("multinomial.without_replacement", _without_replacement, of.even(8)),
    Drawing("exponential_", lambda x: x.exponential_(1.5), of.exponential(1.5), ("float32", "float16")),
    Drawing("exponential_.fast", lambda x: x.exponential_(50), of.exponential(50)),
    Drawing("geometric_", lambda x: x.geometric_(0.3), of.geometric(0.3), ("float32", "int32")),
    Drawing("cauchy_", lambda x: x.cauchy_(1, 2), of.cauchy(1, 2)),
    Drawing("log_normal_", lambda x: x.log_normal_(0.5, 0.75), of.log_normal(0.5, 0.75)),
    Drawing("gamma", lambda x: torch.distributions.Gamma(x.new_tensor(0.5), 2.0).sample(x.shape), of.half_gamma(2.0)),
    Drawing("poisson", lambda x: torch.poisson(torch.full_like(x, 3.5)), of.poisson(3.5)),
    Drawing("dropout", lambda x: _dropped(torch.ones_like(x)), of.discrete((0.2, 0.8), step=1.25), FLOATS),
    Drawing("dropout.in_place", lambda x: 0.8 * _dropped(torch.ones_like(x), inplace=True), _DROPPED),
    Drawing("dropout1d", lambda x: _in_channels(x, lambda y: F.dropout1d(y.flatten(2), 0.5)), _HALVES),
    Drawing("dropout2d", lambda x: _in_channels(x, lambda y: F.dropout2d(y, 0.5)), _HALVES),
    Drawing("dropout3d", lambda x: _in_channels(x, lambda y: F.dropout3d(y.unsqueeze(2), 0.5)), _HALVES),
    Drawing("alpha_dropout", _alpha_dropped, of.discrete((_P, 1 - _P))),
    Drawing("feature_alpha_dropout", lambda x: _in_channels(x, _features_dropped), of.discrete((_P, 1 - _P))),
    Drawing("rrelu", lambda x: -_rrelu(-torch.ones_like(x)), of.uniform(0.125, 0.375)),
    Drawing("rrelu.in_place", lambda x: -_rrelu(-torch.ones_like(x), inplace=True), of.uniform(0.125, 0.375)),
    *(Drawing(name, partial(kept, is_masked=masked), _DROPPED, FLOATS) for name, masked in MASKED.items()),
)

#: Drawings for which torch_npu has no kernel.
BY_THE_CPU = {"geometric_", "cauchy_", "log_normal_", "gamma", "poisson"}
