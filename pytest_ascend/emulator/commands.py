"""``pytest-ascend emulate``: run any program on the emulated device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pytest_ascend.emulator.bootstrap import activate
from pytest_ascend.emulator.settings import OPTIONS, EmulatorSettings, read
from pytest_ascend.system.errors import as_error


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options in the table of settings to a command."""
    for each in reversed(OPTIONS):
        several, how = isinstance(each.default, tuple), each.metadata["declared"]
        text = f"{how['help'][:1].upper()}{how['help'][1:]}."
        option = click.option(each.metadata["emulate"], each.name, multiple=several, metavar=how["metavar"], help=text)
        command = option(command)
    return command


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--devices", type=click.IntRange(1, 16), help="How many emulated devices (default: 2).")
@_settings_options
@click.argument("command", nargs=-1, required=True)
def emulate(devices: int | None, command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND, and the processes that it starts, on the emulated device.

    For example: pytest-ascend emulate -- python train.py

    Programs beside the Python that runs pytest-ascend take precedence, so that "python" is the one that has it
    installed.
    """
    settings = EmulatorSettings(devices=devices or 0, **read(given)).resolved()
    activate(settings)
    size = f"{settings.devices} x {settings.chip}, {settings.memory_bytes / 2**30:g} GiB each"
    click.echo(f"pytest-ascend: EMULATED device ({size}); this says nothing about any NPU", err=True)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with as_error(f"{command[0]} cannot be started", f"give a program that is on the PATH; looked from {Path.cwd()}"):
        os.execvp(command[0], command)  # noqa: S606  running the user's command is the purpose
