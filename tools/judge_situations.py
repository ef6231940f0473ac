"""Correct situations: results that differ from the reference only as correct implementations may.

Each operator is computed in float64 (the reference), by PyTorch on the CPU in the judged dtype (the reference run), and
in that dtype in some other way: another order of summation, other blocks, fused multiply-add or not, fused or not,
another library's approximation. No judge that is fair rejects any of these.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from judge_ways import MATMULS, SUMS, Way, fma, in_float32, of_numpy, rounded
from torch import Tensor
from torch.nn import functional

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a device made of some inputs, what was expected, and what the CPU made of them in the same dtype."""

    name: str
    actual: Tensor
    expected: Tensor
    reference_runs: Tensor
    accumulation: int | None


# --- element by element ----------------------------------------------------------------------------------------------

#: Operator, its other approximations, and the largest magnitude of inputs for which it neither overflows nor vanishes.
ELEMENTWISE: dict[str, tuple[Way, dict[str, Way], float]] = {
    "exp": (torch.exp, {"numpy": of_numpy(np.exp)}, 8.0),
    "log": (lambda x: torch.log(x.abs() + 0.01), {}, 1e8),
    "sqrt": (lambda x: torch.sqrt(x.abs()), {"numpy": of_numpy(lambda x: np.sqrt(np.abs(x)))}, 1e8),
    "reciprocal": (torch.reciprocal, {"divide": lambda x: 1 / x}, 1e2),
    "tanh": (torch.tanh, {"numpy": of_numpy(np.tanh)}, 1e4),
    "sin": (torch.sin, {"numpy": of_numpy(np.sin)}, 10.0),
    "sigmoid": (torch.sigmoid, {"from exp": in_float32(lambda x: 1 / (1 + torch.exp(-x)))}, 10.0),
    "silu": (functional.silu, {"from exp": in_float32(lambda x: x / (1 + torch.exp(-x)))}, 10.0),
    "gelu": (functional.gelu, {"by erf": in_float32(lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))}, 3.0),
    "gelu-tanh": (lambda x: functional.gelu(x, approximate="tanh"), {}, 2.0),
    "softplus": (functional.softplus, {"log1p": in_float32(lambda x: torch.log1p(torch.exp(x)))}, 10.0),
    "relu": (torch.relu, {}, 1e8),
    "square": (lambda x: x * x, {"pow": lambda x: torch.pow(x, 2)}, 1e2),
    "affine": (
        lambda x: x * 1.25 + 0.1,
        {"fma": in_float32(lambda x: fma(x, torch.full_like(x, 1.25), torch.full_like(x, 0.1)))},
        1e8,
    ),
}


def elementwise(
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    seeds: int,
    names: Iterable[str] = tuple(ELEMENTWISE),
    every: int = 1,
) -> Iterator[Situation]:
    """Every operator, dtype, size and range of values."""
    for name, (way, others, largest) in ((name, ELEMENTWISE[name]) for name in names):
        for dtype in DTYPES:
            for size in sizes:
                for scale in (
                    each for each in scales if each <= largest and (dtype != torch.float16 or 1e-3 < each <= 1e4)
                ):
                    for seed in range(seeds):
                        inputs = Inputs(seed, partial(_normal, size, scale, dtype))
                        label = f"{name} {str(dtype)[6:]} {size} elements of {scale:g}, seed {seed}"
                        ways = others | {"rounded": rounded(way), "fused": in_float32(way)}
                        yield from _each(label, way, ways, inputs, every=every)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an operator is given: made when it is needed, from a seed."""

    seed: int
    make: Callable[[], tuple[Tensor, ...]]

    def __call__(self) -> tuple[Tensor, ...]:
        """Make them."""
        torch.manual_seed(self.seed)
        return self.make()


def _normal(size: int, scale: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return ((torch.randn(size) * scale).to(dtype),)


def _each(
    label: str, way: Way, others: dict[str, Way], inputs: Inputs, *, terms: int | None = None, every: int = 1
) -> Iterator[Situation]:
    """Compute in every other way; of a large set only one in ``every``, chosen by its name: always the same ones."""
    names = {other: f"{label}: {other}" for other in others}
    chosen = [other for other, name in names.items() if zlib.crc32(name.encode()) % every == 0]
    if not chosen:
        return
    given = inputs()
    expected, reference_runs = way(*(each.double() for each in given)), way(*given)
    for other in chosen:
        yield Situation(names[other], others[other](*given).to(reference_runs.dtype), expected, reference_runs, terms)


# --- sums ------------------------------------------------------------------------------------------------------------


def _with_sum(total: Way) -> dict[str, Way]:
    """Operators made of sums, each in float32 with the given order of summation."""

    def mean(x: Tensor) -> Tensor:
        return total(x) / x.shape[-1]

    def var(x: Tensor) -> Tensor:
        centred = x.float() - mean(x)[..., None]
        return total(centred * centred) / (x.shape[-1] - 1)

    def softmax(x: Tensor) -> Tensor:
        raised = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
        return raised / total(raised)[..., None]

    def layer_norm(x: Tensor) -> Tensor:
        centred = x.float() - mean(x)[..., None]
        return centred * torch.rsqrt(total(centred * centred) / x.shape[-1] + 1e-5)[..., None]

    return {
        "sum": total,
        "mean": mean,
        "var": var,
        "norm": lambda x: torch.sqrt(total(x.float() * x.float())),
        "logsumexp": lambda x: (
            torch.log(total(torch.exp(x.float() - x.float().amax(-1, keepdim=True)))) + x.float().amax(-1)
        ),
        "softmax": softmax,
        "layer_norm": layer_norm,
    }


REDUCTIONS: dict[str, Way] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
}


def reductions(
    shapes: tuple[tuple[int, int], ...], scales: tuple[float, ...], seeds: int, every: int = 1
) -> Iterator[Situation]:
    """Every operator made of sums, in every order."""
    for name, way in REDUCTIONS.items():
        others = {order: _with_sum(total)[name] for order, total in SUMS.items()}
        for dtype in DTYPES:
            for shape in shapes:
                for scale in (each for each in scales if dtype != torch.float16 or 1e-2 <= each <= 1):
                    for seed in range(seeds):
                        inputs = Inputs(seed, partial(_rows, shape, scale, dtype, scale if seed % 2 else 0.0))
                        label = f"{name} {str(dtype)[6:]} {shape} of {scale:g}, seed {seed}"
                        yield from _each(label, way, others, inputs, terms=shape[-1], every=every)


def _rows(shape: tuple[int, int], scale: float, dtype: torch.dtype, middle: float) -> tuple[Tensor, ...]:
    return ((torch.randn(shape) * scale + middle).to(dtype),)


# --- products --------------------------------------------------------------------------------------------------------


def matmuls(
    shapes: tuple[tuple[int, int, int], ...], scales: tuple[float, ...], seeds: int, every: int = 1
) -> Iterator[Situation]:
    """Products of (m, k) and (k, n), in every order of the k terms."""
    for dtype in DTYPES:
        for m, k, n in shapes:
            for scale in (each for each in scales if dtype != torch.float16 or 1e-2 <= each <= 1):
                for seed in range(seeds):
                    inputs = Inputs(seed, partial(_factors, (m, k, n), scale, dtype))
                    label = f"matmul {str(dtype)[6:]} {(m, k, n)} of {scale:g}, seed {seed}"
                    yield from _each(label, torch.matmul, MATMULS, inputs, terms=k, every=every)
                    relu = {f"relu {name}": _then_relu(way) for name, way in MATMULS.items()}
                    yield from _each(label, lambda a, b: torch.relu(a @ b), relu, inputs, terms=k, every=every)


def _factors(shape: tuple[int, int, int], scale: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    m, k, n = shape
    return (torch.randn(m, k) * scale).to(dtype), (torch.randn(k, n) / math.sqrt(k)).to(dtype)


def _then_relu(way: Way) -> Way:
    return lambda a, b: torch.relu(way(a, b))


def convolutions(seeds: int) -> Iterator[Situation]:
    """Convolutions as products of unfolded patches, in every order."""
    for dtype in DTYPES:
        for channels, size in ((3, 16), (64, 14)):
            for seed in range(seeds):
                inputs = Inputs(seed, partial(_image_and_kernel, channels, size, dtype))
                others = {name: _unfolded(way) for name, way in MATMULS.items()}
                label = f"conv2d {str(dtype)[6:]} {channels} channels, seed {seed}"
                yield from _each(
                    label, lambda x, w: functional.conv2d(x, w, padding=1), others, inputs, terms=9 * channels
                )


def _image_and_kernel(channels: int, size: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    kernel = torch.randn(32, channels, 3, 3) / math.sqrt(9 * channels)
    return torch.randn(2, channels, size, size).to(dtype), kernel.to(dtype)


def _unfolded(way: Way) -> Way:
    def compute(x: Tensor, w: Tensor) -> Tensor:
        patches = functional.unfold(x.float(), 3, padding=1).to(x.dtype).transpose(1, 2)
        rows = way(patches.reshape(-1, patches.shape[-1]), w.reshape(w.shape[0], -1).t())
        return rows.reshape(x.shape[0], -1, w.shape[0]).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:])

    return compute


#: Of the thorough set, one situation in so many is taken; of products, which take longest, one in twice as many.
SAMPLED = 8


def situations(thorough: bool = False) -> Iterator[Situation]:
    """A short set; or a thorough one: a sample of some 15,000 situations with up to 10 million elements each."""
    if thorough:
        yield from elementwise((1, 10, 1000, 100_000), (1e-8, 1e-3, 1.0, 1e2, 1e4, 1e8), 3, every=SAMPLED)
        yield from elementwise((10_000_000,), (1.0,), 1, ("exp", "gelu", "affine"))
        yield from reductions(((10, 100), (3, 5000), (2000, 300), (1, 4000)), (1e-8, 1e-2, 1.0, 1e8), 6, SAMPLED)
        yield from matmuls(
            ((2, 5, 3), (10, 64, 1), (64, 300, 50), (128, 4096, 40)), (1e-8, 1e-2, 1.0, 1e8), 4, 2 * SAMPLED
        )
        yield from convolutions(3)
    else:
        yield from elementwise((10, 5000), (1.0,), 1)
        yield from reductions(((10, 100), (300, 200)), (1.0,), 1)
        yield from matmuls(((10, 64, 1), (48, 300, 40)), (1e-8, 1.0), 1)
        yield from convolutions(1)
