"""Other ways to compute: orders of summation, blockings, fused multiply-add or not, fused operators or not.

Each is what some correct implementation does. :mod:`judge_situations` makes situations of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Way: TypeAlias = Callable[..., Tensor]


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
