"""The command ``pytest-ascend accuracy``: the largest error of functions of one number, over all inputs of a format."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import click
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators.callables import resolve

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
    """Return the largest error of a function over all finite inputs, and the input; null if it does not run there.

    A result that is not finite, where the right one is, is an error of "inf".
    """
    function, kind = resolve(f"torch.{name}"), getattr(torch, dtype)
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(kind)
    try:
        actual = function(every.to(device)).cpu().double()
    except (RuntimeError, NotImplementedError) as refused:
        return {"ulp": None, "at": None, "says": str(refused).partition("\n")[0]}
    right, info = function(every.double()), torch.finfo(kind)
    exponent = torch.frexp(right.abs().clamp(info.smallest_normal)).exponent.double() - 1
    error = (actual - right).abs() / (torch.exp2(exponent) * info.eps)
    counts = every.isfinite() & right.isfinite() & right.to(kind).isfinite()
    error = torch.where(counts, error.nan_to_num(math.inf, math.inf), 0.0)
    place = int(error.argmax())
    largest = float(error[place])
    return {"ulp": round(largest, 3) if math.isfinite(largest) else "inf", "at": every[place].item()}


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
