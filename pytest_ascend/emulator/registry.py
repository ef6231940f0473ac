"""How operators are declared: a family, a signature, a body. The table of them is ``kernels/operators.txt``.

Kernels call torch's own operators, which differ between versions of torch. :data:`aten` has those of the installed
torch, and for any other one a placeholder that raises. A kernel that consists of a placeholder is left out, so that
torch_npu finds the operator missing, as on a CANN without it.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from pytest_ascend.emulator.signature import Signature, parse
from pytest_ascend.emulator.tensors import Refused, write
from pytest_ascend.system.bundled import table
from pytest_ascend.system.dispatching import HALF, in_float32, lacks_half, torch_is_before

Body = Callable[..., Any]

#: Type of the arguments and results of kernels.
T = torch.Tensor
Optional = T | None
L = list[int]


class _Operators:
    """``torch.ops.aten``, one of its operators, or a placeholder (``inner`` is None) for one that this torch lacks.

    Calling a placeholder raises NotImplementedError, for a kernel that could not be left out.
    """

    def __init__(self, inner: Any, name: str) -> None:
        self.inner, self._name = inner, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.inner is None:
            return self
        found = getattr(self.inner, name, None)
        if found is None or self.inner is torch.ops.aten:
            found = _Operators(found, f"{self._name}{name}.")
        setattr(self, name, found)
        return found

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.inner is None:
            raise NotImplementedError(f"torch {torch.__version__} has no {self._name.rstrip('.')}")
        return self.inner(*arguments, **options)


aten: Any = _Operators(torch.ops.aten, "aten::")


def is_missing(body: Any) -> TypeGuard[_Operators]:
    """Return whether this is an operator or overload that the installed torch lacks."""
    return isinstance(body, _Operators) and body.inner is None


def gap(when: object, what: str) -> None:
    """Raise NotImplementedError for arguments that CANN's operator supports and the kernel does not."""
    if when:
        raise NotImplementedError(what)


def refuse(when: object, why: str) -> None:
    """Raise Refused for arguments that CANN rejects."""
    if when:
        raise Refused(why)


def _lacks(body: Any, deepest: int = 4) -> bool:
    """Return whether a function is a missing operator, or calls one in partials and closures."""
    inner = [body.func] if isinstance(body, functools.partial) else []
    for cell in getattr(body, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            inner.append(cell.cell_contents)
    return is_missing(body) or (deepest > 0 and any(_lacks(each, deepest - 1) for each in inner if callable(each)))


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator and the function that computes it.

    ``body`` takes the inputs in order (``in`` and ``inout``) and returns the outputs in order; without outputs, it
    changes its ``inout`` arguments. With ``into``, the body also takes ``out=`` and writes there, which saves a copy.
    """

    signature: Signature
    body: Body
    into: bool
    family: str

    @property
    def name(self) -> str:
        """Return the operator's name in CANN."""
        return self.signature.name


#: The operators of each family that compute in float32, or true for all.
_WIDE: dict[str, Any] = table("emulator/kernels/wide.json")
if torch_is_before(2, 3):  # 2.1 rounds each row's sum if memory has gaps
    _WIDE["reduction"] = [*_WIDE["reduction"], "ReduceSum"]


class Family:
    """Related operators, declared in one section of the table.

    ``wide`` are those that compute in float32, as torch's CPU kernels would round intermediate results. Results of
    promoted families are rounded to the inputs' dtype, even if the output's is float32.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.wide = _WIDE.get(name, ())
        self.promoted = name in _WIDE["promoted"]
        self.kernels: list[Kernel] = []
        self.by_name: list[Kernel] = []
        self.left_out: list[str] = []

    def op(self, declaration: str, body: Body, *, into: bool = False) -> None:
        """Declare an operator: ``declaration`` as in :mod:`pytest_ascend.emulator.signature`."""
        if _lacks(body):
            self.left_out.append(parse(declaration).name)
            return
        signature = parse(declaration)
        if self.wide is True or (self.wide and signature.name.removeprefix("aclnn") in self.wide):
            body = _in_float32(signature, body, promoted=self.promoted)
        self.kernels.append(Kernel(signature, body, into, self.name))

    def named(self, name: str, body: Body, *, wide: bool = False) -> None:
        """Declare an operator that is called by name (older API); ``wide`` computes it in float32."""
        if _lacks(body):
            self.left_out.append(name)
            return
        computed = (lambda *given, **how: body(*map(_wide, given), **how)) if wide else body
        self.by_name.append(Kernel(Signature(name, ()), computed, into=False, family=self.name))


def _in_float32(signature: Signature, body: Body, *, promoted: bool = False) -> Body:
    """Return the body with half precision computed in float32, and rounded once when it is written.

    Chips do the same; some of torch's CPU kernels also round intermediate results.
    """
    changed = [i for i, each in enumerate(p for p in signature.parameters if p.is_input) if each.role == "inout"]

    def computed(*given: Any, **out: Any) -> Any:
        wide, wide_out = [_wide(each) for each in given], {name: _wide(each) for name, each in out.items()}
        if all(map(operator.is_, [*wide, *wide_out.values()], [*given, *out.values()])):
            return body(*given, **out)
        made = body(*wide, **wide_out)
        for target, value in [(given[i], wide[i]) for i in changed] + [(out[name], wide_out[name]) for name in out]:
            if target is not value:
                write(target, value)
            elif promoted:
                # Float32 is rounded if all floating-point inputs have the same half-precision dtype.
                dtypes = {each.dtype for each in given if isinstance(each, T) and each.is_floating_point()}
                is_float32 = isinstance(target, T) and target.dtype is torch.float32
                if is_float32 and len(dtypes) == 1 and dtypes <= set(HALF):
                    target.copy_(target.to(dtypes.pop()))
        return made

    return computed


def with_kernels_of_float32(signature: Signature, body: Body) -> Body:
    """Return the body, with half precision computed in float32 if torch's CPU kernels do not support it.

    Old versions of torch lack many such kernels, e.g. 2.3 lacks reflection padding in float16.
    """
    wide = _in_float32(signature, body)

    def computed(*given: Any, **out: Any) -> Any:
        try:
            return body(*given, **out)
        except RuntimeError as error:
            if not lacks_half(error):
                raise
        return wide(*given, **out)

    return computed


def _wide(value: Any) -> Any:
    """Return half-precision tensors in float32, other values unchanged; outputs too, as some are not written."""
    if isinstance(value, (list, tuple)):
        wide = type(value)(_wide(each) for each in value)
        return value if all(mine is theirs for mine, theirs in zip(wide, value, strict=True)) else wide
    return in_float32(value)


def gradients(
    function: Callable[..., Any], leaves: Sequence[torch.Tensor], *grad_outputs: Any, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    """Return torch's gradients of a function's first results by its arguments, computed in a wide dtype.

    ``grad_outputs`` are the gradients of these results, None for a result without one.
    """
    with torch.inference_mode(False), torch.enable_grad():
        given = [each.to(dtype).clone().requires_grad_() for each in leaves]
        made = function(*given)
        made = made if isinstance(made, tuple) else (made,)
        pairs = [
            (y, d.to(dtype).clone().view(y.shape)) for y, d in zip(made, grad_outputs, strict=False) if d is not None
        ]
        if not any(y.requires_grad for y, _ in pairs):  # no result depends on an argument
            return tuple(map(torch.zeros_like, leaves))
        return torch.autograd.grad([y for y, _ in pairs], given, [d for _, d in pairs])
