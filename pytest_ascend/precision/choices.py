"""Functions with more than one correct result: what PyTorch determines of each, and what it leaves open.

The signs of singular vectors, or the order of equal elements, may differ from the CPU's. The comparison is of what all
correct choices share: the product of the factors, the values at the indices. Source: PyTorch's notes on each function.

At the jumps of a function, a device may be on either side: ``(x / 0.1).floor()`` has an error of 1 where x / 0.1 is
rounded across an integer, and none elsewhere. Such an element among the reference runs says nothing about others.
So the function is recomputed in float64 with every decision (of floor, a comparison, an argmax) moved by the possible
error of the number it depends on, and nothing else: elements that change are at a jump, and these are their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import sub, truediv
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pytest_ascend.precision.nested import mapped, tensors_in, widened
from pytest_ascend.system.dispatching import EagerDispatchMode, Watch

#: Operators with random results, which are not comparable.
RANDOM = frozenset((
    "native_dropout", "bernoulli", "bernoulli_", "rand", "randn", "randint", "rand_like", "randn_like",
    "randint_like", "multinomial", "normal", "normal_", "uniform_", "random_", "exponential_", "rrelu_with_noise",
    "randperm", "poisson",
))  # fmt: skip
#: Operators that draw on the CPU if no device is named: a function then gives the same on any device.
DRAWN_ON_CPU = frozenset(("rand", "randn", "randint", "randperm"))


class OperatorNames(Watch):
    """Records the names of the operators that run within its context."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        super().__init__(lambda func, _: self.names.add(func.overloadpacket.__name__))


#: Returns the determined parts by name, given a result and the arguments of the call; all in float64 or integers.
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
    if named.get("stable"):  # equal elements keep their order
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
    """Return the values at the indices; NaN for an invalid index."""
    if not a.dim():
        return a
    valid = (indices >= 0) & (indices < a.shape[dim])
    values = a.gather(dim, torch.where(valid, indices, 0))
    return torch.where(valid, values, torch.nan if a.is_floating_point() else torch.iinfo(a.dtype).min)


#: The functions and methods that leave something open, with what they leave open.
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
    """A call of a function that leaves something open."""

    promise: Promise
    #: Description of what is left open.
    free: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: tuple[Tensor, ...]

    def determined(self, result: Any) -> dict[str, Tensor]:
        """Return the determined parts of a result, computed in float64 and rounded to the result's own dtype.

        Raises what torch raises for a result of another structure or shape.
        """
        own = [each.dtype for each in tensors_in(result) if each.is_floating_point() or each.is_complex()]
        args, kwargs = mapped(((result, *self.args), dict(self.kwargs)), lambda each: widened(each.detach().cpu()))
        found = self.promise(*args, **kwargs)
        if not own:
            return found
        real = next((each for each in own if each.is_floating_point), own[0].to_real())
        wide = [name for name, each in found.items() if each.is_floating_point() or each.is_complex()]
        return found | {name: found[name].to(real.to_complex() if found[name].is_complex() else real) for name in wide}


class OpenCalls(TorchFunctionMode):
    """Records the calls of functions that leave something open."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[OpenCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function, and record the call if it leaves something open."""
        result = func(*args, **(kwargs or {}))
        if func in PROMISES:
            self._calls.append(OpenCall(*PROMISES[func], args, kwargs or {}, tuple(tensors_in(result))))
        return result

    def that_made(self, result: Any) -> OpenCall | None:
        """Return the call whose entire result this is."""
        parts = [id(each) for each in tensors_in(result)]
        return next((each for each in self._calls if parts and parts == [id(one) for one in each.made]), None)


#: All decisions moved up, all down, and each at random, twice: an element with a fourth value depends on several jumps.
BRANCHINGS = 4
#: A decision is moved by this multiple of the largest error of a reference run in the number it depends on.
REACH = 4.0


def _of_moved(func: Any, args: Any, kwargs: Any, _: Tensor, moved: Tensor) -> Any:
    place = 1 if func.overloadpacket.__name__ == "searchsorted" else 0
    return func(*args[:place], moved, *args[place + 1 :], **kwargs)


def _compared(func: Any, args: Any, kwargs: Any, number: Tensor, moved: Tensor) -> Any:
    other = getattr(torch, func.overloadpacket.__name__)(moved, 0.0)
    return torch.where(number.isfinite(), other, func(*args, **kwargs))


def _remainder(rounded: Callable[[Tensor], Tensor], func: Any, args: Any, kwargs: Any, _: Tensor, moved: Tensor) -> Any:
    usual = func(*args, **kwargs)
    steps = ((args[0] - usual) / args[1]).round() - rounded(moved)
    return usual + torch.where(steps == 0, 0, steps * args[1])


def _divided(func: Any, args: Any, kwargs: Any, number: Tensor, moved: Tensor) -> Any:
    rounded = torch.trunc if kwargs.get("rounding_mode") == "trunc" else torch.floor
    if func.overloadpacket.__name__ == "div" and not kwargs.get("rounding_mode"):
        return func(*args, **kwargs)
    return torch.where(number.isfinite(), rounded(moved), func(*args, **kwargs))


#: By operator: the number that decides (an argument's index, or a function of the first two arguments), and a function
#: of the operator, its arguments and keywords, that number, and that number moved, which computes it for the latter.
DECIDING: Mapping[str, tuple[int | Callable[[Any, Any], Any], Callable[..., Any]]] = {
    **dict.fromkeys(
        ("floor", "ceil", "round", "trunc", "sign", "sgn", "signbit", "heaviside", "bucketize", "argmax", "argmin"),
        (0, _of_moved),
    ),
    "searchsorted": (1, _of_moved),
    "frac": (0, lambda func, args, kwargs, number, moved: func(*args, **kwargs) + number.trunc() - moved.trunc()),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), (sub, _compared)),
    "remainder": (truediv, partial(_remainder, torch.floor)),
    "fmod": (truediv, partial(_remainder, torch.trunc)),
    **dict.fromkeys(("floor_divide", "div"), (truediv, _divided)),
    "_to_copy": (0, _of_moved),
}


def deciding(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the real number by which an operator decides between values; None if it makes no such decision."""
    name = func.overloadpacket.__name__
    name = name.removesuffix("_") if not name.startswith("_") else name
    if name not in DECIDING or (name == "div" and not kwargs.get("rounding_mode")):
        return None
    is_conversion = name == "_to_copy" and (kwargs.get("dtype") or torch.float32).is_floating_point
    if is_conversion or not any(isinstance(each, Tensor) and each.is_floating_point() for each in args[:2]):
        return None
    by = DECIDING[name][0]
    found = args[by] if isinstance(by, int) else by(*args[:2])
    return found if isinstance(found, Tensor) and found.is_floating_point() else None


class moved_decisions(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which operators decide by moved numbers, in one of :data:`BRANCHINGS`.

    ``seen`` are the numbers by which a reference run decided, in order of use, in ``dtype``. Exact ones are not moved.
    """

    def __init__(self, way: int, dtype: torch.dtype, seen: Sequence[Tensor]) -> None:
        super().__init__()
        self.way, self.dtype, self.seen = way, dtype, [*seen]

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator."""
        number = deciding(func, args, kwargs)
        own = self.seen.pop(0) if number is not None and self.seen else None
        if number is None or (own is not None and own.shape != number.shape):
            return func(*args, **kwargs)
        # The possible error of each number.
        finite = number.isfinite()
        usual = number.where(finite, 0).square().mean().sqrt() if number.numel() else 0.0
        size = number.abs().clamp_min(usual).where(finite, 0)
        share = torch.finfo(self.dtype).eps / 2
        if own is not None:
            error = torch.where(finite & own.isfinite(), (own.double() - number).abs(), 0)
            # Whether the dtype represents the constants of the call exactly, unlike 0.1.
            exactly = all(not isinstance(x, float) or x == float(torch.tensor(x, dtype=self.dtype)) for x in args[:2])
            if exactly and not error.any():  # all were exact in a reference run
                return func(*args, **kwargs)
            share = max(share, float((error / size.clamp_min(torch.finfo(number.dtype).tiny)).max()))
        name, is_inplace = func.overloadpacket.__name__, func._schema.is_mutable  # noqa: SLF001 - no public name
        if is_inplace:
            name = name.removesuffix("_")
            func = getattr(getattr(torch.ops.aten, name), func._overloadname)  # noqa: SLF001
        if self.way < 2 and not name.startswith("arg"):  # moving all alike would not change the largest
            signs: Any = 1 - 2 * self.way
        else:
            chance = torch.Generator().manual_seed(self.way)
            signs = torch.rand(number.shape, generator=chance, dtype=number.dtype, device="cpu").sub_(0.5).sign_()
        found = DECIDING[name][1](func, args, kwargs, number, number + REACH * share * size * signs)
        return args[0].copy_(found) if is_inplace else found


def without_jumps(
    actual: Tensor, expected: Tensor, runs: Sequence[Tensor], moved: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """Return the expected values on the side of each jump that ``actual`` took, and runs with errors of that side only.

    ``moved`` are the results of all :data:`BRANCHINGS`. None if no element is at a jump, or if some depend on several,
    as a sum of rounded numbers does: then only the reference runs tell how large a device's error may be.
    """
    if len(moved) != BRANCHINGS or not actual.is_floating_point():
        return None
    if any((each.isnan() & ~expected.isnan()).any() for each in moved):  # incompatible decisions
        return None
    wide = [_number(each) for each in (expected, *moved)]
    jumps = torch.stack([each != wide[0] for each in wide]).any(0)
    if not jumps.any():
        return None
    sides = torch.stack([each[jumps] for each in wide[:3]])
    if any((sides != each[jumps]).all(0).any() for each in wide[3:]):
        return None
    own, found = _side(_number(actual)[jumps], sides), expected.clone()
    found[jumps] = sides.gather(0, own[0].unsqueeze(0))[0].to(expected.dtype)
    apart = (sides - sides[0]).abs()
    gap = apart.where(apart > 0, torch.inf).min(0).values
    kept, ulp = [], torch.finfo(actual.dtype).eps * sides.abs().max()
    for each in runs:
        numbers = _number(each)
        side, error = _side(numbers[jumps], sides)
        elsewhere = (numbers - wide[0]).abs()[~jumps]
        usual = REACH * (ulp + (elsewhere.max() if elsewhere.numel() else 0.0))
        if (error > (gap / 4).clamp_min(usual)).any():
            return None
        run = each.clone()
        off = numbers[jumps] - sides.gather(0, side.unsqueeze(0))[0]
        run[jumps] = torch.where(side == own[0], each[jumps], (found[jumps] + off).to(each.dtype))
        kept.append(run)
    return found, tuple(kept)


def _number(values: Tensor) -> Tensor:
    """Return finite float64 numbers: infinity and NaN are judged elsewhere."""
    return values.detach().cpu().double().nan_to_num(0.0, 0.0, 0.0)


def _side(values: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest side for each value, and the distance from it."""
    error, side = (sides - values).abs().min(0)
    return side, error
