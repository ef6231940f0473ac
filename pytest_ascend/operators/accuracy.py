"""The command ``pytest-ascend accuracy``: the largest error of functions of one number, over all inputs of a format."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import click
import torch

from pytest_ascend.dispatching import unseen
from pytest_ascend.errors import UsageError
from pytest_ascend.operators.callables import resolve
from pytest_ascend.precision.formats import ALLOWANCES

#: Functions of one number, by their public names.
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
#: Formats of which all 65,536 numbers are inputs.
DTYPES = ("float16", "bfloat16")
#: Functions of one IEEE operation, or a choice: each format rounds them once (IEEE 754-2019, sections 5.3 and 5.4).
ROUNDED_ONCE = frozenset((
    "abs", "ceil", "floor", "frac", "neg", "round", "sign", "square", "trunc", "nn.functional.hardtanh",
    "nn.functional.relu", "nn.functional.relu6",
))  # fmt: skip
#: Functions that CANN computes in float32 for 16-bit formats on a 950, and rounds to nearest: the casts in each
#: ``*_dag.h`` of arch35, ops-math c4193324 and ops-nn e5c3fa93. Their error is half an ulp and little more;
#: of kernels of other chips nothing is published, and the limit is that of all functions.
IN_FLOAT32_ON_950 = frozenset((
    "acos", "asin", "atan", "cos", "expm1", "reciprocal", "sin", "sqrt", "tanh", "nn.functional.mish",
))  # fmt: skip
#: So near to the ends of bfloat16, which are float32's, a step in float32 may overflow or underflow.
NEAR_THE_ENDS = 2.0**8


@click.command()
@click.option("--device", default="cpu", show_default=True, help="Where the functions run: cpu, npu[:N] or cuda[:N].")
@click.option(
    "--format", "form", type=click.Choice(["md", "json"]), default="md", show_default=True, help="A table, or JSON."
)
def accuracy(device: str, form: str) -> None:
    """Print the largest error of each function of one number over all inputs in float16 and bfloat16, in ulp.

    Errors are distances to the result in float64, in units in the last place of the dtype there; a correctly rounded
    result is off by 0.5 at most. On the emulated device: pytest-ascend emulate -- pytest-ascend accuracy --device npu.
    """
    there = _device(device)
    rows: list[dict[str, Any]] = [
        {"function": name, **{dtype: worst(name, dtype, there) for dtype in DTYPES}} for name in FUNCTIONS
    ]
    if form == "json":
        click.echo(json.dumps({"device": device, "torch": torch.__version__, "functions": rows}, indent=1))
        return
    click.echo(f"| function | {' | '.join(f'{each}, ulp | at' for each in DTYPES)} |")
    click.echo("|---|" + "---|---|" * len(DTYPES))
    for row in rows:
        click.echo(f"| {row['function']} | {' | '.join(_cell(row[each]) for each in DTYPES)} |")


def worst(name: str, dtype: str, device: torch.device) -> dict[str, Any]:
    """Return the largest error of a function over all inputs, and the input; null if it does not run there.

    A result that is not finite, where the right one is, or the other way round, is an error of "inf".
    """
    try:
        every, error, _ = errors(name, dtype, device)
    except (RuntimeError, NotImplementedError) as refused:
        return {"ulp": None, "at": None, "says": str(refused).partition("\n")[0]}
    place = int(error.argmax())
    largest = float(error[place])
    return {"ulp": round(largest, 3) if math.isfinite(largest) else "inf", "at": every[place].item()}


def errors(name: str, dtype: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return all 65,536 inputs of a dtype, the error of a function's result for each in ulp, and the right results.

    Where the right result, rounded to the dtype, is not finite, the error is 0; but infinite for a number in place of
    NaN, or of an infinity that is no overflow. Raises what torch raises.
    """
    function, kind = resolve(f"torch.{name}"), getattr(torch, dtype)
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(kind)
    actual = function(every.to(device)).cpu().double()
    right, info = function(every.double()), torch.finfo(kind)
    exponent = torch.frexp(right.abs().clamp(info.smallest_normal)).exponent.double() - 1
    error = (actual - right).abs() / (torch.exp2(exponent) * info.eps)
    error = torch.where(right.to(kind).isfinite(), error.nan_to_num(math.inf, math.inf), 0.0)
    is_same = torch.where(right.isnan(), actual.isnan(), actual == right)
    return every, torch.where(right.isfinite() | is_same, error, math.inf), right


def limit_of(name: str, chip: str) -> float:
    """Return the largest error in ulp of a function of 16-bit numbers that a correct chip has, as far as known."""
    if name in ROUNDED_ONCE:
        return 0.501
    return 1.0 if name in IN_FLOAT32_ON_950 and "950" in chip else ALLOWANCES.approximation_ulps


def too_far(
    name: str, dtype: str, device: torch.device, chip: str, *, has_infinities: bool = True
) -> tuple[float, float, str]:
    """Return the largest judged error in ulp, the input there, and what is wrong with it: "" if it is within its limit.

    The limit of each input is the function's, and twice what the CPU is off by there. Where float32 itself may overflow
    or underflow on the way, within 2^8 of the ends of bfloat16, nothing is judged; NaN and Inf only on a chip that
    ``has_infinities``.
    """
    every, error, right = errors(name, dtype, device)
    with unseen():
        own = errors(name, dtype, torch.device("cpu"))[1]
    info = torch.finfo(getattr(torch, dtype))
    if info.max > NEAR_THE_ENDS * 2**32:
        for each in (every.double().abs(), right.abs()):
            inside = (each > info.smallest_normal * NEAR_THE_ENDS) & (each < info.max / NEAR_THE_ENDS)
            error = torch.where(inside | (each == 0) | ~each.isfinite(), error, 0.0)
    is_judged = ~own.isinf() & (has_infinities | (every.isfinite() & right.isfinite()))
    error = torch.where(is_judged, error, 0.0)
    limit = limit_of(name, chip) + 2 * (own - 0.5).clamp_min(0)
    place = int((error / limit).argmax())
    found, at, allowed = float(error[place]), every[place].item(), float(limit[place])
    wrong = int((error > limit).sum())
    said = f"{wrong} of 65,536 results are too far off; at {at:.9g} {found:.4g} ulp, {allowed:.4g} allowed"
    return found, at, f"{name} in {dtype}: {said}" if wrong else ""


def _cell(found: dict[str, Any]) -> str:
    return "none |" if found["ulp"] is None else f"{found['ulp']} | {found['at']:.6g}"


def _device(name: str) -> torch.device:
    try:
        if name.startswith("npu"):
            importlib.import_module("torch_npu")
        return torch.empty(1, device=name).device
    except (RuntimeError, ImportError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"there is no device {name!r}: {reason}", hint="give cpu, npu, npu:0, cuda ...") from None
