"""Functions that have more than one right result: what PyTorch promises of each, in place of what it leaves open.

The signs of singular vectors, the order among equal elements: a device may choose otherwise than the CPU. Compared is
what any right choice gives: the product of the factors, the values at the indices. Source: the notes of PyTorch's
documentation on each function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pytest_ascend.precision.nested import mapped, tensors_in, widened
from pytest_ascend.system.dispatching import EagerDispatchMode

#: Operators with random results, which cannot be compared.
RANDOM = frozenset((
    "native_dropout", "bernoulli", "bernoulli_", "rand", "randn", "randint", "rand_like", "randn_like",
    "randint_like", "multinomial", "normal", "normal_", "uniform_", "random_", "exponential_", "rrelu_with_noise",
    "randperm", "poisson",
))  # fmt: skip
#: Those that draw on the CPU if no device is named: a function gives the same on any device.
DRAWN_ON_CPU = frozenset(("rand", "randn", "randint", "randperm"))


class OperatorNames(EagerDispatchMode):
    """Records the names of the operators that run within its context."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Record an operator, and run it."""
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **kwargs)


#: Returns by name what is determined, given a result and the arguments of the call; all in float64 or integers.
Promise: TypeAlias = Callable[..., dict[str, Tensor]]


def _eigh(result: Any, a: Tensor, uplo: str = "L", **_: Any) -> dict[str, Tensor]:
    values, vectors = result
    half = a.tril(-1) if uplo == "L" else a.triu(1)
    symmetric = half + half.mH + torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real.to(a.dtype))
    return {
        "eigenvalues": values,
        "A V - V L": symmetric @ vectors - vectors * values.unsqueeze(-2),
        "V^H V": vectors.mH @ vectors,
    }


def _eig(result: Any, a: Tensor, **_: Any) -> dict[str, Tensor]:
    values, vectors = result
    return {
        "A V - V L": a.to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2),
        "norms of eigenvectors": vectors.norm(dim=-2),
        **_sums_of_eigenvalues(values),
    }


def _eigvals(values: Tensor, a: Tensor, **_: Any) -> dict[str, Tensor]:
    shifted = a.to(values.dtype).unsqueeze(-3) - values[..., None, None] * torch.eye(a.shape[-1], dtype=values.dtype)
    return {
        "smallest singular value of A - l I": torch.linalg.svdvals(shifted)[..., -1],
        **_sums_of_eigenvalues(values),
    }


def _sums_of_eigenvalues(values: Tensor) -> dict[str, Tensor]:
    return {"sum of eigenvalues": values.sum(-1), "sum of squared eigenvalues": values.square().sum(-1)}


def _svd(result: Any, *_: Any, is_old: bool = False, **__: Any) -> dict[str, Tensor]:
    u, s, vh = result
    vh, rank = vh.mH if is_old else vh, s.shape[-1]
    return {
        "singular values": s,
        "U S V^H": (u[..., :rank] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :rank, :],
        "U^H U": u.mH @ u,
        "V^H V": vh @ vh.mH,
    }


def _qr(result: Any, _a: Tensor, mode: str = "reduced", **_: Any) -> dict[str, Tensor]:
    q, r = result
    below = {"below R's diagonal": r.tril(-1), "R^H R": r.mH @ r}
    return below if mode == "r" else {**below, "Q R": q @ r, "Q^H Q": q.mH @ q}


def _sorted(result: Any, a: Tensor, dim: int = -1, *_: Any, **named: Any) -> dict[str, Tensor]:
    values, indices = result
    return {"values": values, **_argsort(indices, a, dim, **named)}


def _argsort(result: Tensor, a: Tensor, dim: int = -1, *_: Any, **named: Any) -> dict[str, Tensor]:
    if named.get("stable"):  # equal elements stay in their order
        return {"indices": result}
    return {"values at the indices": _at(a, result, dim), "indices, sorted": result.sort(dim).values}


def _topk(result: Any, a: Tensor, _k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:  # noqa: A002
    found, indices = result
    at, ordered = _at(a, indices, dim), indices.sort(dim).values
    if not sorted:
        found, at = (each.sort(dim, descending=largest).values for each in (found, at))
    return {"values": found, "values at the indices": at, "repeated indices": (ordered.diff(dim=dim) == 0).sum(dim)}


def _picked(result: Any, a: Tensor, *args: Any, dim: int | None = None, keepdim: bool = False, **__: Any) -> Any:
    if isinstance(result, Tensor):  # of all elements, without an index
        return {"value": result}
    values, indices = result
    numbers = [each for each in args if isinstance(each, int) and not isinstance(each, bool)]
    keeps = keepdim or any(each is True for each in args)
    dim = numbers[-1] if dim is None and numbers else -1 if dim is None else dim
    at = indices if keeps else indices.unsqueeze(dim)
    return {"values": values, "values at the indices": _at(a, at, dim).reshape(values.shape)}


def _kthvalue(result: Any, a: Tensor, _k: int, *args: Any, **named: Any) -> Any:
    return _picked(result, a, *args, **named)


def _mode(result: Any, a: Tensor, dim: int = -1, keepdim: bool = False) -> dict[str, Tensor]:
    values, indices = (each if keepdim or not a.dim() else each.unsqueeze(dim) for each in result)
    return {"how often it is there": (a == values).sum(dim), "value at the index": values == _at(a, indices, dim)}


def _unique(
    result: Any,
    _a: Tensor,
    sorted: bool = True,  # noqa: A002 - torch's name
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> dict[str, Tensor]:
    names = ("values", *(("inverse",) if return_inverse else ()), *(("counts",) if return_counts else ()))
    found = dict(zip(names, (result,) if isinstance(result, Tensor) else result, strict=True))
    if sorted or dim is not None:
        return found
    order = found["values"].argsort()
    if "inverse" in found:
        found["values at the inverse"] = _at(found["values"], found.pop("inverse").flatten(), 0)
    return {name: each if "inverse" in name else each[order] for name, each in found.items()}


def _at(a: Tensor, indices: Tensor, dim: int) -> Tensor:
    """Return the values at the indices; NaN for what is no index."""
    if not a.dim():
        return a
    valid = (indices >= 0) & (indices < a.shape[dim])
    values = a.gather(dim, torch.where(valid, indices, 0))
    return torch.where(valid, values, torch.nan if a.is_floating_point() else torch.iinfo(a.dtype).min)


#: The functions and methods that leave something open, and what they leave open.
PROMISES: Mapping[Any, tuple[Promise, str]] = {
    each: (promise, free)
    for functions, promise, free in (
        ((torch.linalg.eigh,), _eigh, "the signs of eigenvectors, and the basis of equal eigenvalues"),
        ((torch.linalg.eig,), _eig, "the order of eigenvalues and the phases of eigenvectors"),
        ((torch.linalg.eigvals,), _eigvals, "the order of eigenvalues"),
        ((torch.linalg.svd,), _svd, "the signs of singular vectors"),
        ((torch.svd, Tensor.svd), partial(_svd, is_old=True), "the signs of singular vectors"),
        ((torch.linalg.qr, torch.qr, Tensor.qr), _qr, "the signs of Q's columns"),
        ((torch.sort, Tensor.sort), _sorted, "the order of equal elements"),
        ((torch.argsort, Tensor.argsort), _argsort, "the order of equal elements"),
        ((torch.msort, Tensor.msort), lambda result, *_, **__: {"values": result}, "the order of equal elements"),
        ((torch.topk, Tensor.topk), _topk, "which of equal elements are taken, and without sorted=True the order"),
        ((torch.unique, Tensor.unique), _unique, "without sorted=True the order"),
        ((torch.kthvalue, Tensor.kthvalue), _kthvalue, "which of equal elements is named"),
        ((torch.median, Tensor.median, torch.nanmedian, torch.masked.median), _picked, "which of equals is named"),
        ((torch.mode, Tensor.mode), _mode, "which of equally frequent values is taken, and which of equals is named"),
    )
    for each in functions
}


@dataclass(frozen=True)
class OpenCall:
    """A call of such a function, with its arguments."""

    promise: Promise
    #: What is left open.
    free: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: tuple[Tensor, ...]

    def determined(self, result: Any) -> dict[str, Tensor]:
        """Return what is determined of a result, computed in float64 and rounded to the result's own dtype.

        Raises what torch raises for a result of another structure or shape.
        """
        own = [each.dtype for each in tensors_in(result) if _is_inexact(each)]
        args, kwargs = mapped(((result, *self.args), dict(self.kwargs)), lambda each: widened(each.detach().cpu()))
        found = self.promise(*args, **kwargs)
        return {name: _narrow(each, own) if own else each for name, each in found.items()}


class OpenCalls(TorchFunctionMode):
    """Records the calls of functions that leave something open."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[OpenCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function, and keep the call if it leaves something open."""
        result = func(*args, **(kwargs or {}))
        if func in PROMISES:
            self._calls.append(OpenCall(*PROMISES[func], args, kwargs or {}, tuple(tensors_in(result))))
        return result

    def that_made(self, result: Any) -> OpenCall | None:
        """Return the call whose whole result this is."""
        parts = [id(each) for each in tensors_in(result)]
        return next((each for each in self._calls if parts and parts == [id(one) for one in each.made]), None)


def _narrow(value: Tensor, own: list[torch.dtype]) -> Tensor:
    if not _is_inexact(value):
        return value
    real = next((each for each in own if each.is_floating_point), own[0].to_real())
    return value.to(real.to_complex() if value.is_complex() else real)


def _is_inexact(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
