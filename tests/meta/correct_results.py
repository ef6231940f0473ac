"""Results that differ from the reference only as correct implementations may. No judge that is fair rejects any.

Each operator is computed in float64 (the reference), by PyTorch on the CPU in the judged dtype (the reference run), and
in that dtype in some other way: another order of summation, other blocks, fused multiply-add or not, fused or not,
another library's approximation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

#: A way to compute an operator.
Way: TypeAlias = Callable[..., Tensor]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a device made of some inputs, what was expected, and what the CPU made of them in the same dtype."""

    name: str
    actual: Tensor
    expected: Tensor
    reference_runs: Tensor
    accumulation: int | None


def in_float32(way: Way) -> Way:
    """Compute in float32 and round once at the end: what a fused kernel does."""
    return lambda *inputs: way(*(each.float() for each in inputs)).to(inputs[0].dtype)


def rounded(way: Way) -> Way:
    """Compute in float64 and round once: the best that any device can do."""
    return lambda *inputs: way(*(each.double() for each in inputs)).to(inputs[0].dtype)


def of_numpy(function: Callable[[np.ndarray], np.ndarray]) -> Way:
    """Use the approximation of another library."""
    return lambda x: torch.from_numpy(np.asarray(function(x.float().numpy()))).to(x.dtype)


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return a * b + c with one rounding (float32): the product of two float32 is exact in float64."""
    return (a.double() * b.double() + c.double()).float()


# --- element by element ---

#: Operator, its other approximations, and the largest magnitude of inputs for which it neither overflows nor vanishes.
ELEMENTWISE: Mapping[str, tuple[Way, Mapping[str, Way], float]] = {
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

# --- sums ---


def sum_in_sequence(x: Tensor) -> Tensor:
    """Sum over the last dimension from left to right in float32."""
    total = torch.zeros(x.shape[:-1])
    for column in x.float().unbind(-1):
        total = total + column
    return total


def sum_in_lanes(x: Tensor, lanes: int) -> Tensor:
    """Sum every ``lanes``-th element into one lane, in sequence; then the lanes, in sequence."""
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


SUMS: Mapping[str, Way] = {
    "in sequence": sum_in_sequence,
    "backwards": lambda x: sum_in_sequence(x.flip(-1)),
    "in 16 lanes": lambda x: sum_in_lanes(x, 16),
    "in 64 lanes": lambda x: sum_in_lanes(x, 64),
    "in pairs": sum_in_pairs,
}


def _centred(total: Way, x: Tensor) -> Tensor:
    return x.float() - (total(x) / x.shape[-1])[..., None]


def _raised(x: Tensor) -> Tensor:
    return torch.exp(x.float() - x.float().amax(-1, keepdim=True))


#: Operators made of sums, and the same with a given order of summation, in float32.
REDUCTIONS: Mapping[str, tuple[Way, Callable[[Way, Tensor], Tensor]]] = {
    "sum": (lambda x: x.sum(-1), lambda total, x: total(x)),
    "mean": (lambda x: x.mean(-1), lambda total, x: total(x) / x.shape[-1]),
    "var": (lambda x: x.var(-1), lambda total, x: total(_centred(total, x).square()) / (x.shape[-1] - 1)),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), lambda total, x: total(x.float().square()).sqrt()),
    "logsumexp": (
        lambda x: torch.logsumexp(x, -1),
        lambda total, x: torch.log(total(_raised(x))) + x.float().amax(-1),
    ),
    "softmax": (lambda x: torch.softmax(x, -1), lambda total, x: _raised(x) / total(_raised(x))[..., None]),
    "layer_norm": (
        lambda x: functional.layer_norm(x, x.shape[-1:]),
        lambda total, x: (
            _centred(total, x) * torch.rsqrt(total(_centred(total, x).square()) / x.shape[-1] + 1e-5)[..., None]
        ),
    ),
}

# --- products ---


def _by_blocks(step: Callable[[Tensor, Tensor, Tensor], Tensor], block: int) -> Way:
    """Add up partial products of ``block`` terms each, in sequence, in a float32 accumulator."""

    def compute(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(a.shape[0], b.shape[1])
        for start in range(0, a.shape[1], block):
            total = step(total, a[:, start : start + block], b[start : start + block])
        return total.to(a.dtype)

    return compute


def _in_float32(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return total + a.float() @ b.float()


MATMULS: Mapping[str, Way] = {
    "term by term": _by_blocks(_in_float32, 1),
    "by 16": _by_blocks(_in_float32, 16),
    "by 256": _by_blocks(_in_float32, 256),
    "by fma": _by_blocks(lambda total, a, b: fma(a.float(), b.float(), total), 1),
    # Sixteen products exactly, then rounded into the accumulator: a matrix unit.
    "by cube": _by_blocks(lambda total, a, b: (total.double() + a.double() @ b.double()).float(), 16),
}


def _then_relu(way: Way) -> Way:
    return lambda a, b: torch.relu(way(a, b))


def _unfolded(way: Way) -> Way:
    """Convolve by a product of unfolded patches."""

    def compute(x: Tensor, w: Tensor) -> Tensor:
        patches = functional.unfold(x.float(), 3, padding=1).to(x.dtype).transpose(1, 2)
        rows = way(patches.reshape(-1, patches.shape[-1]), w.reshape(w.shape[0], -1).t())
        return rows.reshape(x.shape[0], -1, w.shape[0]).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:])

    return compute


# --- situations ---


@dataclass(frozen=True, slots=True)
class Task:
    """An operator, other ways to compute it, and its inputs: made when they are needed, from a seed."""

    label: str
    way: Way
    others: Mapping[str, Way]
    inputs: Callable[[], tuple[Tensor, ...]]
    seed: int
    terms: int | None = None

    def situations(self, every: int = 1) -> Iterator[Situation]:
        """Compute in every other way; of a large set only one in ``every``, chosen by name: always the same ones."""
        names = {other: f"{self.label}, seed {self.seed}: {other}" for other in self.others}
        chosen = [other for other, name in names.items() if zlib.crc32(name.encode()) % every == 0]
        if not chosen:
            return
        torch.manual_seed(self.seed)
        given = self.inputs()
        expected, reference = self.way(*(each.double() for each in given)), self.way(*given)
        for other in chosen:
            actual = self.others[other](*given).to(reference.dtype)
            yield Situation(names[other], actual, expected, reference, self.terms)


def _random(shape: Iterable[int], scale: float, dtype: torch.dtype, middle: float = 0.0) -> Tensor:
    return (torch.randn(*shape) * scale + middle).to(dtype)


def elementwise(
    sizes: Iterable[int], scales: Iterable[float], seeds: int, names: Iterable[str] = ELEMENTWISE
) -> Iterator[Task]:
    """Yield every operator, dtype, size and range of values."""
    for name, dtype, size, scale, seed in product(names, DTYPES, sizes, scales, range(seeds)):
        way, others, largest = ELEMENTWISE[name]
        if scale <= largest and (dtype != torch.float16 or 1e-3 < scale <= 1e4):
            ways = {**others, "rounded": rounded(way), "fused": in_float32(way)}
            label = f"{name} {str(dtype)[6:]} {size} elements of {scale:g}"
            yield Task(label, way, ways, lambda a=size, b=scale, c=dtype: (_random((a,), b, c),), seed)


def reductions(shapes: Iterable[tuple[int, int]], scales: Iterable[float], seeds: int) -> Iterator[Task]:
    """Yield every operator made of sums, in every order."""
    for name, dtype, shape, scale, seed in product(REDUCTIONS, DTYPES, shapes, scales, range(seeds)):
        if dtype == torch.float16 and not 1e-2 <= scale <= 1:
            continue
        way, by = REDUCTIONS[name]
        others = {order: lambda x, by=by, total=total: by(total, x) for order, total in SUMS.items()}
        middle = scale if seed % 2 else 0.0
        made = lambda a=shape, b=scale, c=dtype, d=middle: (_random(a, b, c, d),)  # noqa: E731
        yield Task(f"{name} {str(dtype)[6:]} {shape} of {scale:g}", way, others, made, seed, shape[-1])


def matmuls(shapes: Iterable[tuple[int, int, int]], scales: Iterable[float], seeds: int) -> Iterator[Task]:
    """Yield products of (m, k) and (k, n), in every order of the k terms."""
    for dtype, (m, k, n), scale, seed in product(DTYPES, shapes, scales, range(seeds)):
        if dtype == torch.float16 and not 1e-2 <= scale <= 1:
            continue

        def made(a=(m, k), b=(k, n), scale=scale, dtype=dtype):
            return _random(a, scale, dtype), _random(b, 1 / math.sqrt(b[0]), dtype)

        label = f"matmul {str(dtype)[6:]} {(m, k, n)} of {scale:g}"
        yield Task(label, torch.matmul, MATMULS, made, seed, k)
        relu = {f"relu {name}": _then_relu(way) for name, way in MATMULS.items()}
        yield Task(label, _then_relu(torch.matmul), relu, made, seed, k)


def convolutions(seeds: int) -> Iterator[Task]:
    """Yield convolutions as products of unfolded patches, in every order."""
    for dtype, (channels, size), seed in product(DTYPES, ((3, 16), (64, 14)), range(seeds)):

        def made(c=channels, s=size, dtype=dtype):
            return _random((2, c, s, s), 1, dtype), _random((32, c, 3, 3), 1 / math.sqrt(9 * c), dtype)

        others = {name: _unfolded(way) for name, way in MATMULS.items()}
        label = f"conv2d {str(dtype)[6:]} {channels} channels"
        yield Task(label, lambda x, w: functional.conv2d(x, w, padding=1), others, made, seed, 9 * channels)


def situations(thorough: bool = False) -> Iterator[Situation]:
    """Yield a short set; or a thorough one: a sample of some 15,000 situations with up to 10 million elements each.

    Of the thorough set, one situation in 8 is taken; of products, which take longest, one in 16.
    """
    if not thorough:
        yield from (each for task in elementwise((10, 5000), (1.0,), 1) for each in task.situations())
        yield from (each for task in reductions(((10, 100), (300, 200)), (1.0,), 1) for each in task.situations())
        shapes = ((10, 64, 1), (48, 300, 40))
        yield from (each for task in matmuls(shapes, (1e-8, 1.0), 1) for each in task.situations())
        yield from (each for task in convolutions(1) for each in task.situations())
        return
    sets = (
        (8, elementwise((1, 10, 1000, 100_000), (1e-8, 1e-3, 1.0, 1e2, 1e4, 1e8), 3)),
        (1, elementwise((10_000_000,), (1.0,), 1, ("exp", "gelu", "affine"))),
        (8, reductions(((10, 100), (3, 5000), (2000, 300), (1, 4000)), (1e-8, 1e-2, 1.0, 1e8), 6)),
        (16, matmuls(((2, 5, 3), (10, 64, 1), (64, 300, 50), (128, 4096, 40)), (1e-8, 1e-2, 1.0, 1e8), 4)),
        (1, convolutions(3)),
    )
    yield from (each for every, tasks in sets for task in tasks for each in task.situations(every))
