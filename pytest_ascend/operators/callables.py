"""Look up functions by name: torch's, or this module's where torch's results are not unique.

A decomposition is determined only up to signs, phases or order; the product of its factors is unique.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

Function: TypeAlias = Callable[..., Any]

#: The prefix of this module's own functions.
OWN = "own."


@functools.cache
def resolve(name: str) -> Function:
    """Return the function of a dotted name: "torch.linalg.det", "torch.Tensor.add_", "own.eigh".

    If this version of torch has none, return one that raises this when called.
    """
    try:
        where = sys.modules[__name__] if name.startswith(OWN) else torch
        found: Function = operator.attrgetter(name.partition(".")[2])(where)
    except AttributeError:
        return functools.partial(_missing, name)
    return found


def _missing(name: str, *_: Any, **__: Any) -> None:
    raise NotImplementedError(f"{name} is not implemented in torch {torch.__version__}")


# Functions that return a Python number.
def item(x: Tensor) -> Tensor:
    return torch.tensor(x.item(), dtype=x.dtype, device=x.device)


def equal(x: Tensor, other: Tensor) -> Tensor:
    return torch.tensor(torch.equal(x, other), device=x.device)


def allclose(x: Tensor, other: Tensor, **named: Any) -> Tensor:
    return torch.tensor(torch.allclose(x, other, **named), device=x.device)


# Attributes, and functions with their arguments in another order.
transposed, conjugate_transposed, matrix_transposed, matrix_conjugate_transposed = (
    operator.attrgetter(name) for name in ("T", "H", "mT", "mH")
)


def einsum(operands: Any, equation: str) -> Tensor:
    return torch.einsum(equation, operands)


def where(x: Tensor, condition: Tensor, other: Tensor, **named: Any) -> Tensor:
    return torch.where(condition, x, other, **named)


def polygamma(x: Tensor, n: int) -> Tensor:
    return torch.polygamma(n, x)


def special_polygamma(x: Tensor, n: int) -> Tensor:
    found: Tensor = torch.special.polygamma(n, x)
    return found


def embedding(weight: Tensor, index: Tensor, **named: Any) -> Tensor:
    return torch.nn.functional.embedding(index, weight, **named)


def embedding_bag(weight: Tensor, index: Tensor, *given: Any, **named: Any) -> Tensor:
    if named.get("max_norm") is not None:  # which scales rows in place
        weight = weight.clone()
    return torch.nn.functional.embedding_bag(index, weight, *given, **named)


# Conversions of floating-point numbers to integers; the results for NaN and numbers out of range are undefined.
def fits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask of the elements whose conversion is defined: C++ leaves the rest open; CPUs and chips differ."""
    info = torch.iinfo(dtype)
    return (x > float(info.min - 1)) & (x < 2.0 ** (info.bits - (info.min < 0)))


def _converted(name: str, x: Tensor, **named: Any) -> Tensor:
    found: Tensor = getattr(x, name)(**named)
    return torch.where(fits(x, found.dtype), found, 0) if x.is_floating_point() else found


byte, char, short, to_int, long = (
    functools.partial(_converted, name) for name in ("byte", "char", "short", "int", "long")
)


# Functions whose further results are read only by their own gradients.
def _first(name: str, *given: Any) -> Tensor:
    found: Tensor = operator.attrgetter(name)(torch)(*given)[0]
    return found


native_batch_norm, native_layer_norm, native_group_norm, native_batch_norm_legit, batch_norm_with_update = (
    functools.partial(_first, name)
    for name in (
        *("native_batch_norm", "native_layer_norm", "native_group_norm"),
        *("ops.aten._native_batch_norm_legit", "ops.aten._batch_norm_with_update"),
    )
)


# In-place variants that must leave the samples unchanged.
def zero_(x: Tensor) -> Tensor:
    return x.clone().zero_()


def resize_(x: Tensor, shape: Any) -> Tensor:
    """Return only the elements that both sizes have; the others are undefined."""
    return x.clone().resize_(shape).reshape(-1)[: x.numel()]


# Decompositions, multiplied without matmul, which CANN supports only for narrow floating-point dtypes.
def _product(one: Tensor, other: Tensor, scales: Tensor | None = None) -> Tensor:
    """Multiply two matrices, after multiplying the columns of the first by ``scales``."""
    one = one if scales is None else one * scales.to(one.dtype).unsqueeze(-2)
    return (one.unsqueeze(-1) * other.unsqueeze(-3)).sum(-2)


def eigh(x: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(x, *given, **named)
    return values, _product(vectors, vectors.mH, values)


def eig(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eig(x)
    return _product(vectors, torch.linalg.inv(vectors), values)


def eigvals(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums of powers of the eigenvalues, which do not depend on their order."""
    values = torch.linalg.eigvals(x)
    return values.sum(-1), values.square().sum(-1)


def svd(x: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor]:
    u, values, vh = torch.linalg.svd(x, full_matrices=full_matrices)
    count = values.shape[-1]
    return values, _product(u[..., :count], vh[..., :count, :], values)


def old_svd(x: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    u, values, v = torch.svd(x, some=some)
    count = values.shape[-1]
    return values, _product(u[..., :count], v[..., :count].mH, values)


def qr(x: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(x, mode=mode)
    return (_product(q, r) if q.numel() else _product(r.mH, r)), r.abs()


def old_qr(x: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    q, r = torch.qr(x, some=some)
    return _product(q, r), r.abs()


def lstsq(x: Tensor, other: Tensor, **named: Any) -> Tensor:
    found: Tensor = torch.linalg.lstsq(x, other, **named).solution
    return found


#: Decompositions with normwise error bounds: the bound of the largest element holds for each (LAPACK Users' Guide,
#: error bounds). Which elements have the largest error differs between LAPACK and GPUs.
NORMWISE = frozenset((eigh, eig, svd, old_svd, qr, old_qr, lstsq))
