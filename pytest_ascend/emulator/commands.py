"""``pytest-ascend emulate``: any program on the emulated device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pytest_ascend.emulator.activation import activate
from pytest_ascend.errors import UsageError
from pytest_ascend.system.sizes import parse_size


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--devices", type=click.IntRange(1, 16), default=2, show_default=True, help="How many emulated devices.")
@click.option("--memory", default="8G", show_default=True, help="Memory of each device: bytes, or with K, M, G, T.")
@click.option("--fault", "faults", multiple=True, help="Plant a fault: a built-in name or module:attribute.")
@click.option("--numerics", default="", help="exact (the CPU's, the default), chip or chip:SEED.")
@click.option("--cann", default="", help="The CANN to answer as, such as 8.1.RC1 (default: what fits torch_npu).")
@click.argument("command", nargs=-1, required=True)
def emulate(devices: int, memory: str, faults: tuple[str, ...], command: tuple[str, ...], **choices: str) -> None:
    """Run COMMAND, and the processes that it starts, on the emulated device.

    For example: pytest-ascend emulate -- python train.py

    Programs are looked for beside the Python that runs pytest-ascend first, so that "python" is the one that has it.
    """
    activate(devices=devices, memory_bytes=parse_size(memory), faults=faults, **choices)
    click.echo(f"pytest-ascend: EMULATED device ({devices} x {memory}); this says nothing about any NPU", err=True)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    try:
        os.execvp(command[0], command)  # noqa: S606  running what the user names is the purpose
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started: {error.strerror}",
            hint=f"give a program that is on the PATH; looked from {Path.cwd()}",
        ) from error
