"""The command ``pytest-ascend manifest``."""

from __future__ import annotations

import os

import click

from pytest_ascend.bundled import folder
from pytest_ascend.errors import UsageError
from pytest_ascend.run.manifest import NAME, collect, encode, write


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 where the manifest is not up to date.")
def manifest(check: bool) -> None:
    """Freeze the list of all cases that the catalogues of the bundled suites offer.

    A run has to account for every case in it, so that none is lost in silence.
    """
    # Catalogues may use torch. With torch_npu installed and no CANN, torch imports only when told not to load it.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    suites = folder("suites")
    try:
        cases = collect(suites)
    except ValueError as error:
        raise UsageError(f"the catalogues make no manifest: {error}", hint="correct the catalogue") from error
    if not check:
        click.echo(f"{len(cases)} cases in {write(suites, cases)}")
    elif (suites / NAME).read_text(encoding="utf-8") != encode(cases):
        raise SystemExit(f"{suites / NAME} is not up to date: run pytest-ascend manifest")
