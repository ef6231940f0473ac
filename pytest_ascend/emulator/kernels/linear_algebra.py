"""Factorizations, inverses and related operators."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import T, aten

#: The modes of QR, by CANN's numbers.
QR_MODES = {0: "reduced", 1: "complete", 2: "r"}


def triangular_solve(right: T, left: T, upper: bool, transposed: bool, unitriangular: bool) -> tuple[T, T]:
    """Solve ``left @ x = right``; return x and the unchanged left side."""
    turned = left.mT if transposed else left
    x = torch.linalg.solve_triangular(turned, right, upper=upper != transposed, unitriangular=unitriangular)
    return x, left.expand(*x.shape[:-2], *left.shape[-2:])


def svd(x: T, full: bool, vectors: bool) -> tuple[T, T | None, T | None]:
    if not vectors:
        return torch.linalg.svdvals(x), None, None
    u, sigma, vh = torch.linalg.svd(x, full_matrices=full)
    return sigma, u, vh.mH


# torch has no public names for these without a gradient.
def distances(x1: T, x2: T, p: float, mode: int | None) -> T:
    """Return the distances of all rows, summed in float64: torch's kernel adds one element after another.

    Over 16,385 elements it loses three digits of seven, and so does each gradient, which is divided by the distance.
    """
    found: T = aten._cdist_forward(x1.double(), x2.double(), p, mode)
    return found.to(x1.dtype)


def stft(
    x: T, window: T | None, n: int, hop: int, length: int, normalized: bool, onesided: bool, as_complex: bool
) -> T:
    made = torch.stft(
        x, n, hop, length, window, center=False, normalized=normalized, onesided=onesided, return_complex=True
    )
    return made if as_complex else torch.view_as_real(made)
