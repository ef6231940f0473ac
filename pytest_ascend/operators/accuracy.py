"""The command ``pytest-ascend accuracy``: the largest error of unary functions over all inputs of a 16-bit format."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
import torch

from pytest_ascend.operators.callables import resolve
from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.system.dispatching import no_dispatch
from pytest_ascend.system.errors import as_error

#: Unary functions, by their public names.
FUNCTIONS = tuple(
    """
    abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac
    lgamma log log10 log1p log2 logit neg rad2deg reciprocal round rsqrt sigmoid sign sin sinc sinh special.i0
    special.ndtr sqrt square tan tanh trunc nn.functional.celu nn.functional.elu nn.functional.gelu
    nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh nn.functional.leaky_relu
    nn.functional.logsigmoid nn.functional.mish nn.functional.relu nn.functional.relu6 nn.functional.selu
    nn.functional.silu nn.functional.softplus nn.functional.softshrink nn.functional.softsign
    nn.functional.tanhshrink
    """.split()  # noqa: SIM905 - a table
)
#: Further unary functions: binary ones with one argument fixed, and GELU as CANN computes it.
FURTHER: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nn.functional.gelu-tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "pow-1.5": lambda x: x**1.5,
    "softmax-of-two": lambda x: torch.stack([x, torch.zeros_like(x)]).softmax(0)[0],
}
#: Formats for which all 65,536 numbers are inputs.
DTYPES = ("float16", "bfloat16")
#: Functions that are one IEEE operation or a selection: correctly rounded (IEEE 754-2019, sections 5.3 and 5.4).
ROUNDED_ONCE = frozenset((
    "abs", "ceil", "floor", "frac", "neg", "round", "sign", "square", "trunc", "nn.functional.hardtanh",
    "nn.functional.relu", "nn.functional.relu6",
))  # fmt: skip
#: Functions that CANN computes in float32 for 16-bit formats on a 950 and rounds to nearest (casts in each
#: ``*_dag.h`` of arch35, ops-math c4193324 and ops-nn e5c3fa93). Their error is little more than half an ulp. Nothing
#: is published about kernels of other chips; there the limit is that of all functions.
IN_FLOAT32_ON_950 = frozenset((
    "acos", "asin", "atan", "cos", "expm1", "reciprocal", "sin", "sqrt", "tanh", "nn.functional.mish",
))  # fmt: skip
#: Within this factor of the limits of bfloat16, which has float32's range, a step in float32 may overflow or underflow.
NEAR_THE_ENDS = 2.0**8


@click.command()
@click.option("--device", default="cpu", show_default=True, help="Where the functions run: cpu, npu[:N] or cuda[:N].")
@click.option(
    "--format", "form", type=click.Choice(["md", "json"]), default="md", show_default=True, help="A table, or JSON."
)
def accuracy(device: str, form: str) -> None:
    """Print the largest error of each unary function over all inputs in float16 and bfloat16, in ulp.

    Errors are distances to the float64 result, in units in the last place of the dtype there: at most 0.5 for a
    correctly rounded result. On the emulated device: pytest-ascend emulate -- pytest-ascend accuracy --device npu.
    """
    kinds = (RuntimeError, ImportError, AssertionError)
    with as_error(f"there is no device {device!r}", "give cpu, npu, npu:0, cuda ...", *kinds, why=_first_line):
        if device.startswith("npu"):
            importlib.import_module("torch_npu")
        there = torch.empty(1, device=device).device
    rows: list[dict[str, Any]] = [
        {"function": name, **{dtype: worst(name, dtype, there) for dtype in DTYPES}} for name in (*FUNCTIONS, *FURTHER)
    ]
    if form == "json":
        click.echo(json.dumps({"device": device, "torch": torch.__version__, "functions": rows}, indent=1))
        return
    click.echo(f"| function | {' | '.join(f'{each}, ulp | at' for each in DTYPES)} |")
    click.echo("|---|" + "---|---|" * len(DTYPES))
    for row in rows:
        found = [row[each] for each in DTYPES]
        cells = ("none |" if each["ulp"] is None else f"{each['ulp']} | {each['at']:.6g}" for each in found)
        click.echo(f"| {row['function']} | {' | '.join(cells)} |")


def worst(name: str, dtype: str, device: torch.device) -> dict[str, Any]:
    """Return the largest error of a function over all inputs, and the input there; None if the function does not run.

    The error is "inf" if exactly one of the result and the correct result is finite.
    """
    every = every_short(getattr(torch, dtype))
    try:
        error = errors(name, every, device)[1]
    except (RuntimeError, NotImplementedError) as refused:
        return {"ulp": None, "at": None, "says": _first_line(refused)}
    place = int(error.argmax())
    largest = float(error[place])
    return {"ulp": round(largest, 3) if math.isfinite(largest) else "inf", "at": every[place].item()}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def every_short(dtype: torch.dtype) -> torch.Tensor:
    """Return all 65,536 numbers of a 16-bit format, ordered by their bits."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


def part_of_float32(part: int, *, parts: int = 256) -> torch.Tensor:
    """Return one of ``parts`` parts of all float32 numbers, shape (2^32 / parts,): one of each ``parts`` neighbours."""
    first = torch.arange(-(2**31), 2**31, parts)
    return (first + (first * 2654435761 // 2**16 + part) % parts).to(torch.int32).view(torch.float32)


def errors(
    name: str, every: torch.Tensor, *devices: torch.device, is_gradient: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return the correct results of a function, or its gradient, and each device's error for each input in ulp.

    The error is 0 where the correct result, rounded to the dtype, is not finite; but infinite for a number in place of
    NaN, or in place of an infinity that is not an overflow. Raises what torch raises.
    """
    function, info = FURTHER.get(name) or resolve(f"torch.{name}"), torch.finfo(every.dtype)
    results = [_called(function, every.to(device), is_gradient=is_gradient).double() for device in devices]
    right = _called(function, every.double(), is_gradient=is_gradient)
    exponent = torch.frexp(right.abs().clamp(info.smallest_normal)).exponent.double() - 1
    ulp, is_finite, is_counted = torch.exp2(exponent) * info.eps, right.to(every.dtype).isfinite(), right.isfinite()
    found = []
    for actual in results:
        error = torch.where(is_finite, ((actual - right).abs() / ulp).nan_to_num(math.inf, math.inf), 0.0)
        is_same = torch.where(right.isnan(), actual.isnan(), actual == right)
        found.append(torch.where(is_counted | is_same, error, math.inf))
    return right, *found


def _called(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *, is_gradient: bool) -> torch.Tensor:
    with no_dispatch() if x.device.type == "cpu" else contextlib.nullcontext():
        if not is_gradient:
            return function(x).cpu()
        result = function(x.requires_grad_())
        return torch.autograd.grad(result, x, torch.ones_like(result))[0].cpu()


def limit_of(name: str, chip: str) -> float:
    """Return the largest error in ulp of a 16-bit function on a correct chip, as far as known."""
    if name in ROUNDED_ONCE:
        return 0.501
    return 1.0 if name in IN_FLOAT32_ON_950 and "950" in chip else ALLOWANCES.approximation_ulps


def largest_error(
    name: str,
    inputs: Iterable[torch.Tensor],
    device: torch.device,
    chip: str,
    *,
    has_infinities: bool = True,
    is_gradient: bool = False,
) -> tuple[float, float, str]:
    """Return the largest judged error in ulp, the input there, and a message: "" if every error is within its limit.

    ``inputs`` are tensors of one dtype, each ordered by its bits. The limit for an input is the function's limit plus
    twice the CPU's error there in excess of half an ulp. A gradient is computed from the rounded result; its limit is
    wider by the CPU's largest error at the surrounding inputs. Not judged: inputs or results within 2^8 of the limits
    of bfloat16 and float32, where float32 itself may overflow or underflow on the way, and NaN and Inf unless the chip
    ``has_infinities``. Without them, a square that overflows in torch's gradient formulas (derivatives.yaml) becomes
    the largest number, and its reciprocal or reciprocal root is not zero.
    """
    found, at, allowed, worst_share, wrong, count, dtype = 0.0, 0.0, math.inf, -1.0, 0, 0, ""
    for every in inputs:
        right, error, own = errors(name, every, device, torch.device("cpu"), is_gradient=is_gradient)
        info = torch.finfo(every.dtype)
        if info.max > NEAR_THE_ENDS * 2**32:
            for each in (every.double().abs(), right.abs()):
                inside = (each > info.smallest_normal * NEAR_THE_ENDS) & (each < info.max / NEAR_THE_ENDS)
                error = torch.where(inside | (each == 0) | ~each.isfinite(), error, 0.0)
        is_judged = ~own.isinf() & (has_infinities | (every.isfinite() & right.isfinite()))
        is_judged &= ~(every.isnan() & is_gradient)  # the CPU's gradients at NaN differ between dtypes
        error = torch.where(is_judged, error, 0.0)
        limit = limit_of(name, chip) + 2 * (own - 0.5).clamp_min(0)
        if is_gradient:
            # The CPU's largest error at each input and its 64 neighbours on each side.
            around = torch.nn.functional.max_pool1d(torch.where(is_judged, own, 0.0)[None], 129, stride=1, padding=64)
            limit = limit + 2 * ALLOWANCES.approximation_ulps * around[0]
            if not has_infinities:
                root = 2 * info.max**-0.5 / (right.abs().nan_to_num(1.0).clamp(info.smallest_normal) * info.eps)
                limit = limit + torch.where(every.double().square() > info.max, root, 0.0)
        share = error / limit
        place = int(share.argmax())
        if float(share[place]) > worst_share:
            worst_share, found = float(share[place]), float(error[place])
            at, allowed = every[place].item(), float(limit[place])
        wrong, count, dtype = wrong + int((error > limit).sum()), count + len(every), str(every.dtype)
    said = f"{wrong:,} of {count:,} results are too far off; at {at:.9g} {found:.4g} ulp, {allowed:.4g} allowed"
    return found, at, f"{name} in {dtype.removeprefix('torch.')}: {said}" if wrong else ""
