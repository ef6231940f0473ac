"""Honest situations: results that differ from the reference only as honest implementations may.

Each operator is computed in float64 (the reference), by PyTorch on the CPU in the judged dtype (the honest result), and
in that dtype in some other way: another order of summation, other blocks, fused multiply-add or not, fused or not,
another library's approximation. No judge that is fair rejects any of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Way: TypeAlias = Callable[..., Tensor]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a device made of some inputs, what was expected, and what the CPU made of them in the same dtype."""

    name: str
    actual: Tensor
    expected: Tensor
    honest: Tensor
    accumulation: int | None


# --- other ways to compute -------------------------------------------------------------------------------------------


def in_float32(way: Way) -> Way:
    """Compute in float32 and round once at the end: what a fused kernel does."""

    def compute(*inputs: Tensor) -> Tensor:
        return way(*(each.float() for each in inputs)).to(inputs[0].dtype)

    return compute


def rounded(way: Way) -> Way:
    """Compute in float64 and round once: the best that any device can do."""
    return lambda *inputs: way(*(each.double() for each in inputs)).to(inputs[0].dtype)


def of_numpy(function: Callable[[np.ndarray], np.ndarray]) -> Way:
    """Use the approximation of another library."""
    return lambda x: torch.from_numpy(np.asarray(function(x.float().numpy()))).to(x.dtype)


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c with one rounding (float32): the product of two float32 is exact in float64."""
    return (a.double() * b.double() + c.double()).float()


def sum_in_sequence(x: Tensor) -> Tensor:
    """Sum over the last dimension from left to right in float32."""
    total = torch.zeros(x.shape[:-1])
    for column in x.float().unbind(-1):
        total = total + column
    return total


def sum_backwards(x: Tensor) -> Tensor:
    """The same from right to left."""
    return sum_in_sequence(x.flip(-1))


def sum_in_lanes(x: Tensor, lanes: int) -> Tensor:
    """Every ``lanes``-th element into one lane, in sequence; then the lanes, in sequence."""
    length = x.shape[-1] // lanes * lanes
    body = x[..., :length].reshape(*x.shape[:-1], -1, lanes).transpose(-1, -2)
    return sum_in_sequence(torch.cat([sum_in_sequence(body), x[..., length:].float()], -1))


def sum_in_pairs(x: Tensor) -> Tensor:
    """Halve until one element is left."""
    x = x.float()
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = torch.cat([x[..., :half] + x[..., half : 2 * half], x[..., 2 * half :]], -1)
    return x[..., 0]


SUMS: dict[str, Way] = {
    "in sequence": sum_in_sequence,
    "backwards": sum_backwards,
    "in 16 lanes": lambda x: sum_in_lanes(x, 16),
    "in 64 lanes": lambda x: sum_in_lanes(x, 64),
    "in pairs": sum_in_pairs,
}


def matmul_by(block: int) -> Way:
    """Add up partial products of ``block`` terms each, in sequence (float32)."""

    def compute(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(a.shape[0], b.shape[1])
        for start in range(0, a.shape[1], block):
            total = total + a[:, start : start + block].float() @ b[start : start + block].float()
        return total.to(a.dtype)

    return compute


def matmul_by_fma(a: Tensor, b: Tensor) -> Tensor:
    """One fused multiply-add after the other."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = fma(a[:, k : k + 1].float(), b[k : k + 1].float(), total)
    return total.to(a.dtype)


def matmul_by_cube(a: Tensor, b: Tensor) -> Tensor:
    """Sixteen products exactly, then rounded into a float32 accumulator: a matrix unit."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], 16):
        part = a[:, start : start + 16].double() @ b[start : start + 16].double()
        total = (total.double() + part).float()
    return total.to(a.dtype)


MATMULS: dict[str, Way] = {
    "term by term": matmul_by(1),
    "by 16": matmul_by(16),
    "by 256": matmul_by(256),
    "by fma": matmul_by_fma,
    "by cube": matmul_by_cube,
}

# --- element by element ----------------------------------------------------------------------------------------------

#: Operator, its other approximations, and the largest magnitude of inputs for which it neither overflows nor vanishes.
ELEMENTWISE: dict[str, tuple[Way, dict[str, Way], float]] = {
    "exp": (torch.exp, {"numpy": of_numpy(np.exp)}, 8.0),
    "log": (lambda x: torch.log(x.abs() + 0.01), {}, 1e4),
    "sqrt": (lambda x: torch.sqrt(x.abs()), {"numpy": of_numpy(lambda x: np.sqrt(np.abs(x)))}, 1e4),
    "reciprocal": (torch.reciprocal, {"divide": lambda x: 1 / x}, 1e2),
    "tanh": (torch.tanh, {"numpy": of_numpy(np.tanh)}, 1e4),
    "sin": (torch.sin, {"numpy": of_numpy(np.sin)}, 10.0),
    "sigmoid": (torch.sigmoid, {"from exp": in_float32(lambda x: 1 / (1 + torch.exp(-x)))}, 10.0),
    "silu": (functional.silu, {"from exp": in_float32(lambda x: x / (1 + torch.exp(-x)))}, 10.0),
    "gelu": (functional.gelu, {"by erf": in_float32(lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))}, 3.0),
    "gelu-tanh": (lambda x: functional.gelu(x, approximate="tanh"), {}, 2.0),
    "softplus": (functional.softplus, {"log1p": in_float32(lambda x: torch.log1p(torch.exp(x)))}, 10.0),
    "relu": (torch.relu, {}, 1e4),
    "square": (lambda x: x * x, {"pow": lambda x: torch.pow(x, 2)}, 1e2),
    "affine": (
        lambda x: x * 1.25 + 0.1,
        {"fma": in_float32(lambda x: fma(x, torch.full_like(x, 1.25), torch.full_like(x, 0.1)))},
        1e4,
    ),
}


def elementwise(
    sizes: tuple[int, ...], scales: tuple[float, ...], seeds: int, names: Iterable[str] = tuple(ELEMENTWISE)
) -> Iterator[Situation]:
    """Every operator, dtype, size and range of values."""
    for name, (way, others, largest) in ((name, ELEMENTWISE[name]) for name in names):
        for dtype in DTYPES:
            for size in sizes:
                for scale in (each for each in scales if each <= largest and (dtype != torch.float16 or each > 1e-3)):
                    for seed in range(seeds):
                        torch.manual_seed(seed)
                        x = (torch.randn(size) * scale).to(dtype)
                        label = f"{name} {str(dtype)[6:]} {size} elements of {scale:g}, seed {seed}"
                        yield from _each(label, way, others | {"rounded": rounded(way), "fused": in_float32(way)}, (x,))


def _each(
    label: str, way: Way, others: dict[str, Way], inputs: tuple[Tensor, ...], terms: int | None = None
) -> Iterator[Situation]:
    expected = way(*(each.double() for each in inputs))
    honest = way(*inputs)
    for other, compute in others.items():
        yield Situation(f"{label}: {other}", compute(*inputs).to(honest.dtype), expected, honest, terms)


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


def reductions(shapes: tuple[tuple[int, int], ...], scales: tuple[float, ...], seeds: int) -> Iterator[Situation]:
    """Every operator made of sums, in every order."""
    for name, way in REDUCTIONS.items():
        others = {order: _with_sum(total)[name] for order, total in SUMS.items()}
        for dtype in DTYPES:
            for shape in shapes:
                for scale in (each for each in scales if dtype != torch.float16 or 1e-2 <= each <= 1):
                    for seed in range(seeds):
                        torch.manual_seed(seed)
                        x = (torch.randn(shape) * scale + (scale if seed % 2 else 0)).to(dtype)
                        label = f"{name} {str(dtype)[6:]} {shape} of {scale:g}, seed {seed}"
                        yield from _each(label, way, others, (x,), shape[-1])


# --- products --------------------------------------------------------------------------------------------------------


def matmuls(shapes: tuple[tuple[int, int, int], ...], scales: tuple[float, ...], seeds: int) -> Iterator[Situation]:
    """Products of (m, k) and (k, n), in every order of the k terms."""
    for dtype in DTYPES:
        for m, k, n in shapes:
            for scale in (each for each in scales if dtype != torch.float16 or 1e-2 <= each <= 1):
                for seed in range(seeds):
                    torch.manual_seed(seed)
                    a, b = (torch.randn(m, k) * scale).to(dtype), (torch.randn(k, n) / math.sqrt(k)).to(dtype)
                    label = f"matmul {str(dtype)[6:]} {(m, k, n)} of {scale:g}, seed {seed}"
                    yield from _each(label, torch.matmul, MATMULS, (a, b), k)
                    relu = {f"relu {name}": _then_relu(way) for name, way in MATMULS.items()}
                    yield from _each(label, lambda a, b: torch.relu(a @ b), relu, (a, b), k)


def _then_relu(way: Way) -> Way:
    return lambda a, b: torch.relu(way(a, b))


def convolutions(seeds: int) -> Iterator[Situation]:
    """Convolutions as products of unfolded patches, in every order."""
    for dtype in DTYPES:
        for channels, size in ((3, 16), (64, 14)):
            for seed in range(seeds):
                torch.manual_seed(seed)
                x = torch.randn(2, channels, size, size).to(dtype)
                w = (torch.randn(32, channels, 3, 3) / math.sqrt(9 * channels)).to(dtype)
                others = {name: _unfolded(way) for name, way in MATMULS.items()}
                label = f"conv2d {str(dtype)[6:]} {channels} channels, seed {seed}"
                yield from _each(label, lambda x, w: functional.conv2d(x, w, padding=1), others, (x, w), 9 * channels)


def _unfolded(way: Way) -> Way:
    def compute(x: Tensor, w: Tensor) -> Tensor:
        patches = functional.unfold(x.float(), 3, padding=1).to(x.dtype).transpose(1, 2)
        rows = way(patches.reshape(-1, patches.shape[-1]), w.reshape(w.shape[0], -1).t())
        return rows.reshape(x.shape[0], -1, w.shape[0]).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:])

    return compute


def situations(thorough: bool = False) -> Iterator[Situation]:
    """All of them; a thorough set is larger and goes up to 10 million elements."""
    if thorough:
        yield from elementwise((1, 10, 1000, 100_000), (1e-8, 1e-3, 1.0, 1e2, 1e4), 2)
        yield from elementwise((10_000_000,), (1.0,), 1, ("exp", "gelu", "affine"))
        yield from reductions(((10, 100), (3, 5000), (2000, 300), (1, 4000)), (1e-8, 1e-2, 1.0, 1e8), 3)
        yield from matmuls(((2, 5, 3), (10, 64, 1), (64, 300, 50), (128, 4096, 40)), (1e-8, 1e-2, 1.0, 1e8), 2)
        yield from convolutions(3)
    else:
        yield from elementwise((10, 5000), (1.0,), 1)
        yield from reductions(((10, 100), (300, 200)), (1.0,), 1)
        yield from matmuls(((10, 64, 1), (48, 300, 40)), (1e-8, 1.0), 1)
        yield from convolutions(1)
