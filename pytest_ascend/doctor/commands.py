"""The command ``pytest-ascend doctor``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from pytest_ascend.doctor import terminal
from pytest_ascend.doctor.examination import examine
from pytest_ascend.environment.compatibility import BUNDLED, load
from pytest_ascend.environment.machine import NPU_SMI_LIMIT_S, Machine, copied_machine, this_machine
from pytest_ascend.errors import UsageError
from pytest_ascend.system.untrusted import read_regular

_LARGEST_BYTES = 1 << 20
_path = click.Path(path_type=Path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--root", type=_path, help="Look at the files below DIR: a mounted image, or a copy.", metavar="DIR")
@click.option("--environ", type=_path, help="With --root: its variables, as `env` prints them.", metavar="FILE")
@click.option("--npu-smi", type=_path, help="With --root: what `npu-smi info` printed there.", metavar="FILE")
@click.option("--compatibility", type=_path, default=BUNDLED, help="Newer compatibility data.", metavar="FILE")
@click.option(
    "--wait", "wait_s", type=float, default=NPU_SMI_LIMIT_S, help="Seconds to give npu-smi.", show_default=True
)
def doctor(
    *,
    as_json: bool,
    root: Path | None,
    environ: Path | None,
    npu_smi: Path | None,
    compatibility: Path,
    wait_s: float,
) -> None:
    """Tell what is installed here, whether it belongs together, and why an NPU does not come up.

    Takes less than two seconds, imports no torch and changes nothing. Exit code 1 where something keeps the NPU from
    working or its results from being trusted, 0 otherwise: warnings and notes alone are no failure.
    """
    diagnosis = examine(_machine(root, environ, npu_smi, wait_s), load(compatibility))
    if as_json:
        click.echo(json.dumps(diagnosis.to_dict(), indent=1))
    else:
        terminal.show(Console(highlight=False, soft_wrap=False), diagnosis)
    sys.exit(1 if diagnosis.errors else 0)


def _machine(root: Path | None, environ: Path | None, npu_smi: Path | None, wait_s: float) -> Machine:
    if root is None:
        if environ or npu_smi:
            name = "--environ" if environ else "--npu-smi"
            raise UsageError(f"{name} goes with --root", hint="without --root, the doctor looks at this machine itself")
        return this_machine(limit_s=max(0.0, wait_s))
    if not root.is_dir():
        raise UsageError(f"--root={root} is no folder", hint="give the folder that stands for / of the other machine")
    variables = dict(line.split("=", 1) for line in _text(environ).splitlines() if "=" in line) if environ else {}
    return copied_machine(root, variables, _text(npu_smi) if npu_smi else None)


def _text(path: Path) -> str:
    try:
        return read_regular(path, _LARGEST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", hint="give a text file") from error
