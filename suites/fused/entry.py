"""One line of the table: an operator of torch_npu by name, with its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

import torch
from packaging.version import Version

from pytest_ascend.device import npu
from pytest_ascend.operators import Operator
from pytest_ascend.operators.calling import on_tensors
from pytest_ascend.operators.operator import Inputs
from pytest_ascend.precision.nested import widened

Function: TypeAlias = Callable[..., Any]


def fused(name: str, definition: Function, inputs: Inputs, part: str = "", through: Any = None, **how: Any) -> Operator:
    """Describe ``torch_npu.NAME``, or a ``part`` of it. ``through`` gets the operator before a call's arguments."""
    function, own = partial(called, name, through), f"{name}.{part}" if part else name
    return Operator(name=own, function=function, definition=definition, inputs=inputs, **how)


def given_as_made(name: str, definition: Function, inputs: Inputs, **settings: Any) -> Operator:
    """Describe an operator without gradients, whose inputs are used unchanged: in one layout, and finite."""
    settings |= {"grad": False, "nonfinite": False, "layouts": False}
    return fused(name, definition, lambda make: inputs(replace(make, grad=False)), **settings)


def by_name(names: str, *results: int, **constants: Any) -> Function:
    """Return a function that calls an operator with these names ("_" by position); ``results`` selects outputs."""

    def through(apply: Any, *given: Any, **named: Any) -> Any:
        pairs = list(zip(names.split(), given, strict=False))  # omitted arguments have the operator's default
        by_place = [each for name, each in pairs if name == "_"]
        made = apply(*by_place, **{name: each for name, each in pairs if name != "_"}, **constants, **named)
        return tuple(made[place] for place in results) if results else made

    return through


def on_copies(*places: int, **constants: Any) -> Function:
    """Return a function that calls an operator with copies of the tensors that it writes, and returns these."""

    def through(apply: Any, *given: Any) -> Any:
        args = [each.clone() if place in places else each for place, each in enumerate(given)]
        apply(*args, **constants)
        return tuple(args[place] for place in places)

    return through


#: The first torch_npu known to have an operator with its definition's signature; earlier ones take other arguments, or
#: return fewer results (schemas of torch_npu 2.7.1 against 2.13.0; the releases between are not examined).
REVISED = {"npu_scatter_pa_kv_cache": "2.8", "npu_attention_update": "2.8", "npu_add_rms_norm_dynamic_quant": "2.8"}


#: Operators that CANN's pages list only for an Ascend 950 (environment/chip_operators.json; the pages of op-plugin).
ON_950 = frozenset({
    *("npu_dynamic_mx_quant", "npu_anti_mx_quant", "npu_add_rms_norm_dynamic_mx_quant"),
    *("npu_transpose_quant_batchmatmul", "npu_fused_causal_conv1d"),
})  # fmt: skip


def only_on_950(name: str) -> None:
    chip = npu.chip()
    if chip and not chip.startswith("Ascend950"):
        raise NotImplementedError(f"CANN documents {name} for an Ascend 950 alone")


def called(name: str, through: Function | None, *args: Any, **kwargs: Any) -> Any:
    """Call ``torch_npu.NAME``. Raises NotImplementedError for an earlier signature, and on a chip that lacks it."""
    if name in ON_950:
        only_on_950(name)
    operator, since = npu.operator(name), REVISED.get(name)
    if since and Version(version("torch_npu")) < Version(since):
        raise NotImplementedError(f"torch_npu {version('torch_npu')} has an earlier form of {name}; since {since}")
    return through(operator, *args, **kwargs) if through else operator(*args, **kwargs)


def ties_forgiven(operator: Operator, within: float = 2e-3) -> Operator:
    """Accept either neighbour of a number that is halfway between two integers, to ``within`` of a step.

    The definition gives int8 results before rounding; the device rounds its less precise results. If the device's
    result is one of both neighbours, the nearer one of the exact number replaces it.
    """
    exact: Any = operator.definition
    function = partial(_rounded_alike, operator.function, exact, within)
    return replace(operator, definition=partial(_rounded, exact, operator.outputs), function=function)


def _in_int8(x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-128, 127).to(torch.int8)


def _rounded(exact: Function, dtypes: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    pairs = zip(exact(*args, **kwargs), dtypes, strict=True)
    return tuple(_in_int8(x) if dtype == "int8" else x for x, dtype in pairs)


def _rounded_alike(function: Function, exact: Function, within: float, *args: Any, **kwargs: Any) -> Any:
    given, named = on_tensors(lambda each: widened(each.detach().cpu()), (args, kwargs))
    made = list(function(*args, **kwargs))
    for place, (actual, right) in enumerate(zip(made, exact(*given, **named), strict=True)):
        if actual.dtype is torch.int8:
            found = actual.cpu()
            is_tie = ((right - right.floor() - 0.5).abs() < within) & ((found - right).abs() < 0.5 + within)
            made[place] = torch.where(is_tie, _in_int8(right), found).to(actual.device)
    return tuple(made)


def in_family(family: str, *operators: Operator) -> tuple[Operator, ...]:
    return tuple(replace(each, family=family) for each in operators)
