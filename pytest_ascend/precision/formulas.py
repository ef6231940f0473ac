"""Functions that CANN computes by another formula than PyTorch.

A result that disagrees with PyTorch's is judged again, by the references of CANN's formula. If it agrees with these,
the deviation is known; if not, the case fails. So nothing hides behind a known deviation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

P = ParamSpec("P")
R = TypeVar("R")

_GELUS = frozenset({"gelu", "gelu_", "gelu_backward"})


class cann_formulas(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU computes by CANN's formulas; ``used`` tells whether it computed any.

    Where results are compared with stored ones, which are PyTorch's, ``on_device`` has the device compute PyTorch's
    formula by other operators instead.
    """

    def __init__(self, *, on_device: bool = False) -> None:
        super().__init__()
        self.on_device, self.used, self._usual = on_device, False, functional.gelu

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


_active: list[cann_formulas] = []


def active() -> str:
    """Return what computes by another formula than usual, "reference" or "device"; "" for none."""
    return ("device" if _active[-1].on_device else "reference") if _active else ""


def once(function: Callable[P, R], *, of: str = "reference") -> Callable[P, R]:
    """Return a function that keeps its results, as functools.cache does, but not those by other formulas.

    ``of`` says whether it computes on the "device" or a "reference": the other's formulas change nothing. A kept
    result that another formula made counts as its use, as if it was computed again.
    """

    def computed(is_other: bool, *args: Any, **kwargs: Any) -> tuple[R, bool]:
        if not is_other:
            return function(*args, **kwargs), False
        before, _active[-1].used = _active[-1].used, False
        result = function(*args, **kwargs)
        used, _active[-1].used = _active[-1].used, before
        return result, used

    kept: Any = functools.cache(computed)

    @functools.wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> R:
        result, used = kept(active() == of, *args, **kwargs)
        if used:
            _active[-1].used = True
        return result  # type: ignore[no-any-return]

    return found
