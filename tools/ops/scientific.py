"""Second references from NumPy and SciPy: the rows of ``references.txt``, and those that need more than an expression.

SciPy belongs to the extra ``corpus``: it is only imported for building goldens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.special


def herm(x: Any, uplo: str = "L") -> Any:
    """Return the Hermitian matrix represented by one triangle."""
    part = np.tril(x, -1) if uplo == "L" else np.triu(x, 1)
    return (
        part
        + np.conj(np.swapaxes(part, -1, -2))
        + np.real(np.einsum("...ii->...i", x))[..., None] * np.eye(x.shape[-1])
    )


def qr(x: Any, mode: str = "reduced") -> Any:
    whole: Callable[..., Any] = np.linalg.qr
    r = whole(x, "reduced" if mode == "r" else mode).R
    return (np.conj(np.swapaxes(r, -1, -2)) @ r if mode == "r" else x), np.abs(r)


def cholesky(x: Any, upper: bool = False) -> Any:
    lower = np.linalg.cholesky(herm(x, "U" if upper else "L"))
    return np.conj(np.swapaxes(lower, -1, -2)) if upper else lower


def triangular(x: Any, other: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    kept = np.triu(x) if upper else np.tril(x)
    if unitriangular:
        kept = kept - np.einsum("...ii->...i", kept)[..., None] * np.eye(x.shape[-1]) + np.eye(x.shape[-1])
    return np.linalg.solve(kept, other) if left else other @ np.linalg.inv(kept)


def solve(x: Any, other: Any, left: bool = True) -> Any:
    vector = other.ndim == 1 or (other.ndim == x.ndim - 1 and other.shape == x.shape[:-1])
    if not left:
        return other @ np.linalg.inv(x)
    return np.linalg.solve(x, other[..., None])[..., 0] if vector else np.linalg.solve(x, other)


def eigvals(x: Any) -> Any:
    values = np.linalg.eigvals(x).astype(complex)
    return values.sum(-1), (values**2).sum(-1)


def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = {name: end for name, end in (("prepend", prepend), ("append", append)) if end is not None}
    return np.diff(x, n, dim, **ends)


def cosine(x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    sizes = (np.maximum(np.sqrt((each**2).sum(dim)), eps) for each in (x, y))
    return (x * y).sum(dim) / np.multiply(*sizes)


def softmax(x: Any, dim: int) -> Any:
    if not x.size:
        return x
    shifted = np.exp(x - x.max(axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)


def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False, scale: float = 0.0, enable_gqa: bool = False
) -> Any:
    """Attend; a fully masked row gives zeros."""
    if enable_gqa:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    seen = np.tri(*scores.shape[-2:], dtype=bool) if is_causal else np.True_
    if attn_mask is not None and attn_mask.dtype == bool:
        seen = seen & attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = np.where(seen, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0.0)
    sums = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(sums, sums, 1.0) @ v


def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    quotient = np.true_divide(x, y)
    return {"floor": np.floor, "trunc": np.trunc}.get(str(rounding_mode), lambda each: each)(quotient)


def axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def _read() -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the functions of references.txt, by section and the name of the operator."""
    found: dict[str, dict[str, Callable[..., Any]]] = {}
    words = {**globals(), "scipy": scipy, "linalg": scipy.linalg, "special": scipy.special}
    for line in Path(__file__).with_name("references.txt").read_text(encoding="utf-8").splitlines():
        head, equals, expression = line.partition(" = ")
        if line.startswith("["):
            found[line.strip("[]")] = section = {}
        elif equals and not line.startswith("#"):
            names, opened, parameters = head.partition("(")
            text = f"lambda {parameters.removesuffix(')')}: ({expression})" if opened else expression
            section |= dict.fromkeys(names.split(), eval(text, words))  # noqa: S307  (our own file)
    return found


#: Functions by operator name: for the catalogue, and for recorded operators.
_ROWS = _read()
CATALOGUE, RECORDED = _ROWS["catalogue"], _ROWS["recorded"]
