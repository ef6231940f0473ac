"""The command ``pytest-ascend analyze``."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pytest_ascend.environment.chips import DEFAULT, NPUS, npu_of
from pytest_ascend.migration import census, output
from pytest_ascend.migration.analysis import Analysis, Kind
from pytest_ascend.migration.sources import scan
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import canonical_json, write_file
from pytest_ascend.system.translation import language_option

#: Kinds of stand-in tensors, the most informative first; the first needs torch_npu.
MODES = ("npu", "meta", "cpu")

OPTIMIZER = click.Choice(("adamw", "adam", "momentum", "sgd", "none"))
DTYPES = ("float32", "bfloat16", "float16", "float64")

_path = click.Path(path_type=Path)


def _batches(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:  # noqa: ARG001
    if not value:
        return ()
    try:
        sizes = tuple(int(part) for part in value.split(","))
    except ValueError:
        sizes = (0,)
    if not 1 <= min(sizes) <= max(sizes) < 10**9:  # no training uses a larger batch
        raise UsageError(f"--batch {value[:80]}: no batch sizes", hint="give whole numbers with commas, as in 1,8,32")
    return tuple(sorted(set(sizes)))


@click.command()
@click.argument("model", required=False, default="")
@click.option("-i", "--input", "inputs", default="", help="Inputs of the model: package.module:function or shapes.")
@click.option(
    "-b", "--batch", "batches", default="", callback=_batches, help="Batch sizes to measure memory at, as in 1,8,32."
)
@click.option("--chip", default=DEFAULT, show_default=True, help=f"One of {', '.join(each.name for each in NPUS)}.")
@click.option("--census", "census_file", type=_path, help="Judge by this census instead of the installed torch_npu.")
@click.option("--optimizer", default="adamw", show_default=True, type=OPTIMIZER, help="The optimizer of the step.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Convert parameters and floating inputs first.")
@click.option("--autocast", type=click.Choice(("bfloat16", "float16")), help="Run the forward pass under autocast.")
@click.option("--no-training", is_flag=True, help="Leave the backward pass and the optimizer out.")
@click.option("--compile", "compiled", is_flag=True, help="Also list where torch.compile breaks the model's graph.")
@click.option("--source", type=_path, help="Also look for blockers in the Python files of a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--html", type=_path, help="Write a page.")
@language_option
def analyze(
    *,
    model: str,
    chip: str,
    census_file: Path | None,
    no_training: bool,
    source: Path | None,
    as_json: bool,
    html: Path | None,
    language: str,
    **step: Any,
) -> None:
    """Show what moving MODEL (package.module:factory) to an NPU takes, before any code is moved.

    Lists every operator that the model calls, forward and backward, with its standing on the installed torch_npu or in
    a census; the memory at each batch size, and the chip's; blockers in the source. Computes nothing and uses no
    device. Exit code 1 if an operator is missing or the source has a blocker.
    """
    if not model and not source:
        raise UsageError("nothing to analyze", hint="name a model as package.module:factory, or --source DIR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", module=r"torch(_npu)?\b")  # torch's warnings about itself, not the model
    analysis = Analysis(chip=npu_of(chip))
    if model:
        kind, standings_of, modes = _standings(census_file)
        from pytest_ascend.migration import traced  # noqa: PLC0415 - loads torch, and torch_npu has to come first

        empty = replace(analysis, model=model, standings_of=standings_of)
        analysis = traced.analyse(empty, kind, modes, training=not no_training, **step)
    if source:
        findings, notes = scan(source)
        analysis = replace(analysis, source=str(source), findings=tuple(findings), notes=(*analysis.notes, *notes))
    if as_json:
        click.echo(canonical_json(analysis.to_dict(), indent=1))
    else:
        output.show(analysis, language)
    if html:
        write_file(html, output.render(analysis, language))
        click.echo(f"page: {html}", err=as_json)
    sys.exit(1 if analysis.is_blocked else 0)


def _standings(census_file: Path | None) -> tuple[Kind, str, tuple[str, ...]]:
    """Return a lookup of standings, the name of its source, and the modes to trace."""
    if census_file:
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # torch_npu, which may not load here, is not needed
        taken = census.read(census_file)
        return lambda name: taken.operators.get(name, ""), f"torch_npu {taken.torch_npu} ({census_file})", MODES[1:]
    if importlib.util.find_spec("torch_npu") is None:
        return lambda _: "", "", MODES[1:]
    census.bring_up()
    from pytest_ascend.device import dispatcher  # noqa: PLC0415
    from pytest_ascend.environment.stack import collect  # noqa: PLC0415

    return dispatcher.kind, f"torch_npu {collect('npu', emulated=False, chip='').torch_npu}, installed here", MODES
