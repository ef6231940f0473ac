"""``pytest-ascend contact``: ask one machine everything, and turn the answers into data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from pytest_ascend.environment.signs import EMULATED_VARIABLE, signs
from pytest_ascend.errors import DeviceUnavailable, UsageError


@click.group(invoke_without_command=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("contact.zip"), show_default=True)
@click.option("--device", type=click.Choice(["auto", "npu", "emulated"]), default="auto", show_default=True)
@click.pass_context
def contact(context: click.Context, output: Path, device: str) -> None:
    """Ask this machine everything that the project wants to know of an NPU, and pack it for somebody to read.

    Takes ten minutes at most and no root; each step runs in a process of its own with a deadline, and one that fails is
    a finding. Names and addresses are struck out. Look at summary.html inside before you send the file.
    """
    if context.invoked_subcommand:
        return
    from pytest_ascend.contact.kit import Kit, gather, pack

    if not output.parent.is_dir():
        raise UsageError(
            f"the folder of {output} does not exist", hint="name a file in a folder that is there: -o contact.zip"
        )
    if device == "npu" and not signs():
        raise DeviceUnavailable(
            "this machine shows no sign of Ascend", hint="to see the kit at work: --device emulated"
        )
    is_active = os.environ.get(EMULATED_VARIABLE) == "1"
    emulated = device == "emulated" or (device == "auto" and (is_active or not signs()))
    kit = Kit(_environ(emulated=emulated), emulated, lambda line: click.echo(f"contact: {line}"))
    gather(kit)
    pack(kit, output)
    where = ", on the emulated device" if emulated else ""
    click.echo(f"{output}: {len(kit.answers)} steps{where}; look at summary.html inside")


def _environ(*, emulated: bool) -> Mapping[str, str]:
    """Return the variables for the steps. torch must not load torch_npu by itself, which would hide what fails."""
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if emulated:
        from pytest_ascend.emulator.activation import environment

        environ |= environment()
    return environ


@contact.command()
@click.argument("kit", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("baselines/contact"), show_default=True)
def apply(kit: Path, output: Path) -> None:
    """Turn a kit into data: dtypes, expectations seen, the chip's clock and memory, durations, error codes."""
    from pytest_ascend.contact.apply import data_of, read_kit, write

    data = data_of(read_kit(kit))
    folder = write(data, output)
    taken = sum(by == "npu" for row in data["dtypes"].values() for by in row.values())
    unknown = [code for code, known in data["codes"].items() if not known]
    click.echo(f"{folder}: {len(data['dtypes'])} operators, {taken} of their dtypes taken by the NPU")
    click.echo(f"{len(data['expectations']['cases'])} known deviations seen, {len(data['durations'])} durations")
    click.echo(f"{len(data['codes'])} error codes{', unknown: ' + ', '.join(unknown) if unknown else ', all known'}")
    if data["chip"]["emulated"]:
        click.echo("THE EMULATED DEVICE: nothing of this says anything about an NPU")
