"""Functions that CANN computes by another formula than PyTorch.

A result that disagrees with PyTorch's is judged again, by the references of CANN's formula. If it agrees with these,
the deviation is known; if not, the case fails. So nothing hides behind a known deviation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pytest_ascend.environment.chips import multiplies
from pytest_ascend.precision.nested import mapped
from pytest_ascend.system.dispatching import EagerDispatchMode

P = ParamSpec("P")
R = TypeVar("R")

_GELUS = frozenset({"gelu", "gelu_", "gelu_backward"})


class products_in_halves(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU rounds the factors of float32 products to half precision, as some chips do.

    ``used`` tells whether it rounded any. What errors of this size become within a network is seen only by computing
    it: a batch norm over few elements multiplies them.
    """

    way = "halves"

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __enter__(self) -> Any:
        """Begin."""
        _active.append(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: object) -> None:
        """End."""
        _active.remove(self)
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute one operator."""
        if multiplies(str(func).removeprefix("aten.")):
            args, kwargs = mapped((args, dict(kwargs)), self._rounded)
        return func(*args, **kwargs)

    def _rounded(self, factor: Tensor) -> Tensor:
        if factor.dtype is not torch.float32 or factor.device.type != "cpu":
            return factor
        self.used = True
        return factor.half().float()


class cann_formulas(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU computes by CANN's formulas; ``used`` tells whether it computed any.

    Where results are compared with stored ones, which are PyTorch's, ``on_device`` has the device compute PyTorch's
    formula by other operators instead.
    """

    def __init__(self, *, on_device: bool = False) -> None:
        super().__init__()
        self.on_device, self.used, self._usual = on_device, False, functional.gelu
        self.way = "device" if on_device else "reference"

    def __enter__(self) -> Any:
        """Begin."""
        _active.append(self)
        # torch forgets the mode where a reentrant checkpoint computes again, within a backward pass.
        functional.gelu = functools.partial(self._call, self._usual, "gelu")
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: object) -> None:
        """End."""
        _active.remove(self)
        functional.gelu = self._usual
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function by its other formula."""
        name = str(getattr(func, "__name__", "")).partition(".")[0]
        return self._call(func, name, *args, **(kwargs or {}))

    def _call(self, func: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in _GELUS or not args or not isinstance(args[0], Tensor) or kwargs.get("approximate") == "tanh":
            return func(*args, **kwargs)
        if (args[0].device.type != "cpu") is not self.on_device:
            return func(*args, **kwargs)
        self.used = True
        if self.on_device:
            if name == "gelu_backward":
                return func(*args)
            x = args[0]
            wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            made = (wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5))).to(x.dtype)
            return x.copy_(made) if name == "gelu_" else made
        return func(*args, **{**kwargs, "approximate": "tanh"})


_active: list[cann_formulas | products_in_halves] = []


def active() -> str:
    """Return what computes otherwise than usual: "reference", "device" or, for the reference, "halves"; "" for none."""
    return _active[-1].way if _active else ""


def once(function: Callable[P, R], *, of: str = "reference") -> Callable[P, R]:
    """Return a function that keeps its results, as functools.cache does, but not those by other formulas.

    ``of`` says whether it computes on the "device" or a "reference": the other's formulas change nothing. A kept
    result that another formula made counts as its use, as if it was computed again.
    """

    ways = (of, "halves") if of == "reference" else (of,)

    def computed(way: str, *args: Any, **kwargs: Any) -> tuple[R, bool]:
        if not way:
            return function(*args, **kwargs), False
        before, _active[-1].used = _active[-1].used, False
        result = function(*args, **kwargs)
        used, _active[-1].used = _active[-1].used, before
        return result, used

    kept: Any = functools.cache(computed)

    @functools.wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> R:
        result, used = kept(active() if active() in ways else "", *args, **kwargs)
        if used:
            _active[-1].used = True
        return result  # type: ignore[no-any-return]

    return found
