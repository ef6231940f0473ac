"""Factorizations, inverses and what comes from them."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.registry import Family

family = Family("linear_algebra")
op = family.op
T = torch.Tensor

#: The modes of QR, as CANN numbers them.
_QR_MODES = {0: "reduced", 1: "complete", 2: "r"}


def triangular_solve(right: T, left: T, upper: bool, transposed: bool, unitriangular: bool) -> tuple[T, T]:
    """Solve ``left @ x = right``; gives x and the left side as it was."""
    turned = left.mT if transposed else left
    x = torch.linalg.solve_triangular(turned, right, upper=upper != transposed, unitriangular=unitriangular)
    return x, left.expand(*x.shape[:-2], *left.shape[-2:])


def svd(x: T, full: bool, vectors: bool) -> tuple[T, T | None, T | None]:
    if not vectors:
        return torch.linalg.svdvals(x), None, None
    u, sigma, vh = torch.linalg.svd(x, full_matrices=full)
    return sigma, u, vh.mH


def qr(x: T, mode: int) -> tuple[T, T]:
    q, r = torch.linalg.qr(x, _QR_MODES[mode])
    return q, r


def slogdet(x: T) -> tuple[T, T]:
    sign, logarithm = torch.linalg.slogdet(x)
    return sign, logarithm


op(
    "aclnnLinalgCholesky(Tensor self, bool upper, out Tensor out)",
    lambda x, upper: torch.linalg.cholesky(x, upper=upper),
)
op(
    "aclnnLinalgCross(Tensor self, Tensor other, int64 dim, out Tensor out)",
    lambda x, other, dim: torch.linalg.cross(x, other, dim=dim),
)
op("aclnnLinalgQr(Tensor self, int64 mode, out Tensor q, out Tensor r)", qr)
op("aclnnSvd(Tensor self, bool full, bool vectors, out Tensor sigma, out Tensor u, out Tensor v)", svd)
op(
    "aclnnTriangularSolve(Tensor self, Tensor left, bool upper, bool transposed, bool unitriangular, out Tensor x,"
    " out Tensor m)",
    triangular_solve,
)
op("aclnnInverse(Tensor self, out Tensor out)", torch.linalg.inv)
op("aclnnSlogdet(Tensor self, out Tensor sign, out Tensor log)", slogdet)
