"""Second references from NumPy and SciPy, which the database does not name: by torch's signatures, on arrays.

SciPy belongs to the extra ``corpus``: only building goldens imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.special

Function: TypeAlias = Callable[..., Any]


def _along(function: Function) -> Function:
    def call(x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        return function(x, n, dim, norm)

    return call


def _over(function: Function, axes: Any) -> Function:
    def call(x: Any, s: Any = None, dim: Any = axes, norm: Any = None) -> Any:
        return function(x, s, dim, norm)

    return call


def _herm(x: Any, uplo: str = "L") -> Any:
    """Return the matrix that one triangle stands for."""
    part = np.tril(x, -1) if uplo == "L" else np.triu(x, 1)
    return (
        part
        + np.conj(np.swapaxes(part, -1, -2))
        + np.real(np.einsum("...ii->...i", x))[..., None] * np.eye(x.shape[-1])
    )


def _qr(x: Any, mode: str = "reduced") -> Any:
    whole: Function = np.linalg.qr
    r = whole(x, "reduced" if mode == "r" else mode).R
    return (np.conj(np.swapaxes(r, -1, -2)) @ r if mode == "r" else x), np.abs(r)


def _cholesky(x: Any, upper: bool = False) -> Any:
    lower = np.linalg.cholesky(_herm(x, "U" if upper else "L"))
    return np.conj(np.swapaxes(lower, -1, -2)) if upper else lower


def _triangular(x: Any, other: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    kept = np.triu(x) if upper else np.tril(x)
    if unitriangular:
        kept = kept - np.einsum("...ii->...i", kept)[..., None] * np.eye(x.shape[-1]) + np.eye(x.shape[-1])
    return np.linalg.solve(kept, other) if left else other @ np.linalg.inv(kept)


def _solve(x: Any, other: Any, left: bool = True) -> Any:
    vector = other.ndim == 1 or (other.ndim == x.ndim - 1 and other.shape == x.shape[:-1])
    if not left:
        return other @ np.linalg.inv(x)
    return np.linalg.solve(x, other[..., None])[..., 0] if vector else np.linalg.solve(x, other)


def _eigvals(x: Any) -> Any:
    values = np.linalg.eigvals(x).astype(complex)
    return values.sum(-1), (values**2).sum(-1)


def _diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = {name: end for name, end in (("prepend", prepend), ("append", append)) if end is not None}
    return np.diff(x, n, dim, **ends)


def _cosine(x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    sizes = (np.maximum(np.sqrt((each**2).sum(dim)), eps) for each in (x, y))
    return (x * y).sum(dim) / np.multiply(*sizes)


def _polynomial(function: Function) -> Function:
    return lambda x, n: function(n, x)


_LINEAR: Mapping[str, Function] = {
    "linalg.det": np.linalg.det,
    "logdet": lambda x: np.log(np.linalg.det(x)),
    "linalg.slogdet": lambda x: tuple(np.linalg.slogdet(x)),
    "linalg.inv": np.linalg.inv,
    "linalg.eigvalsh": lambda x, UPLO="L": np.linalg.eigvalsh(x, UPLO),  # noqa: N803 - as torch calls it
    "linalg.eigvals": _eigvals,
    "linalg.eigh": lambda x, UPLO="L": (np.linalg.eigvalsh(x, UPLO), _herm(x, UPLO)),  # noqa: N803
    "linalg.eig": lambda x: x.astype(complex),
    "linalg.svdvals": lambda x: np.linalg.svd(x, compute_uv=False),
    "linalg.svd": lambda x, full_matrices=True: (np.linalg.svd(x, compute_uv=False), x),  # noqa: ARG005
    "svd": lambda x, some=True: (np.linalg.svd(x, compute_uv=False), x),  # noqa: ARG005
    "linalg.qr": _qr,
    "qr": lambda x, some=True: _qr(x, "reduced" if some else "complete"),
    "linalg.cholesky": _cholesky,
    "cholesky": _cholesky,
    "linalg.solve": _solve,
    "linalg.solve_triangular": _triangular,
    "linalg.matrix_power": np.linalg.matrix_power,
    "linalg.matrix_rank": np.linalg.matrix_rank,
    "linalg.multi_dot": np.linalg.multi_dot,
    "linalg.tensorinv": lambda x, ind=2: np.linalg.tensorinv(x, ind),
    "linalg.tensorsolve": lambda x, other, dims=None: np.linalg.tensorsolve(x, other, dims),
    "linalg.lstsq": lambda x, other, **_: np.linalg.pinv(x) @ other,
    "linalg.pinv": lambda x, **_: np.linalg.pinv(x),
    "pinverse": lambda x, **_: np.linalg.pinv(x),
    "matrix_exp": scipy.linalg.expm,
    "linalg.vecdot": lambda x, y, dim=-1: (np.conj(x) * y).sum(dim),
    "vdot": np.vdot,
    "linalg.diagonal": lambda x, offset=0, dim1=-2, dim2=-1: np.diagonal(x, offset, dim1, dim2),
    "trace": np.trace,
    "inner": np.inner,
    "tensordot": lambda x, y, dims=2: np.tensordot(x, y, dims),
    "einsum": lambda parts, equation: np.einsum(equation, *parts),
}
_FOURIER: Mapping[str, Function] = {
    **{f"fft.{name}": _along(getattr(scipy.fft, name)) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{
        f"fft.{name}{end}": _over(getattr(scipy.fft, name + end), axes)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for end, axes in (("2", (-2, -1)), ("n", None))
    },
    "fft.fftshift": lambda x, dim=None: np.fft.fftshift(x, dim),
    "fft.ifftshift": lambda x, dim=None: np.fft.ifftshift(x, dim),
}
_SPECIAL: Mapping[str, Function] = {
    "special.airy_ai": lambda x: scipy.special.airy(x)[0],
    "special.spherical_bessel_j0": lambda x: scipy.special.spherical_jn(0, x),
    **{f"special.bessel_{name}": getattr(scipy.special, name) for name in ("j0", "j1", "y0", "y1")},
    **{f"special.modified_bessel_{name}": getattr(scipy.special, name) for name in ("i0", "i1", "k0", "k1")},
    **{f"special.scaled_modified_bessel_{name}": getattr(scipy.special, f"{name}e") for name in ("k0", "k1")},
    **{
        f"special.{name}": getattr(scipy.special, name)
        for name in ("entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "zeta", "xlog1py")
    },
    **{
        f"special.{name}": _polynomial(getattr(scipy.special, function))
        for name, function in (
            ("chebyshev_polynomial_t", "eval_chebyt"),
            ("chebyshev_polynomial_u", "eval_chebyu"),
            ("shifted_chebyshev_polynomial_t", "eval_sh_chebyt"),
            ("shifted_chebyshev_polynomial_u", "eval_sh_chebyu"),
            ("hermite_polynomial_h", "eval_hermite"),
            ("hermite_polynomial_he", "eval_hermitenorm"),
            ("laguerre_polynomial_l", "eval_laguerre"),
            ("legendre_polynomial_p", "eval_legendre"),
        )
    },
    **dict.fromkeys(("polygamma", "special.polygamma"), lambda x, n: scipy.special.polygamma(n, x)),
    "digamma": scipy.special.digamma,
    "lgamma": scipy.special.gammaln,
    "igamma": scipy.special.gammainc,
    "igammac": scipy.special.gammaincc,
    "i0": scipy.special.i0,
    "xlogy": scipy.special.xlogy,
    "logaddexp2": np.logaddexp2,
}
_OTHER: Mapping[str, Function] = {
    "diff": _diff,
    "cosine_similarity": _cosine,
    "__getitem__": lambda x, *place: x[place[0] if len(place) == 1 else place],
    "__rmatmul__": lambda x, y: y @ x,
    "__radd__": lambda x, y: y + x,
    "__rmul__": lambda x, y: y * x,
    "__rsub__": lambda x, y: y - x,
    "__rdiv__": lambda x, y: y / x,
    "__rpow__": lambda x, y: np.power(np.asarray(y, dtype=x.dtype), x),
    "__rand__": lambda x, y: y & x,
    "__ror__": lambda x, y: y | x,
    "__rxor__": lambda x, y: y ^ x,
    "H": lambda x: np.conj(x.T),
    "mT": lambda x: np.swapaxes(x, -1, -2),
    "mH": lambda x: np.conj(np.swapaxes(x, -1, -2)),
    "complex": lambda real, imaginary: real + 1j * imaginary,
    "polar": lambda size, angle: size * np.exp(1j * angle),
}

#: By the name of the operator.
REFERENCES: Mapping[str, Function] = {**_LINEAR, **_FOURIER, **_SPECIAL, **_OTHER}
