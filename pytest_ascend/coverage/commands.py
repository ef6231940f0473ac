"""The command ``pytest-ascend manifest``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pytest_ascend.coverage import shards
from pytest_ascend.coverage.manifest import NAME, collect, encode, write
from pytest_ascend.runlog.reading import log_of, read
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import write_if_new


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the manifest is not up to date.")
@click.option("--durations", type=click.Path(path_type=Path), help="Only record how long the cases of this run took.")
def manifest(check: bool, durations: Path | None) -> None:
    """Freeze the list of all cases that the bundled suites offer.

    A run must account for every case in it, so that none is lost silently. With --durations, record instead how long
    each case of a run took, which --ascend-shard uses to balance its parts.
    """
    if durations:
        path = folder("suites") / shards.NAME
        records = read(log_of(durations)).records
        write_if_new(path, shards.encode(records).encode())
        click.echo(
            f"{len(shards.load(path.parent))} of {len(records)} cases take longer than {shards.USUAL_S} s: {path}"
        )
        return
    # Catalogues may use torch. With torch_npu but without CANN, torch imports only if it does not load torch_npu.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    suites = folder("suites")
    with as_error("the suites make no manifest", "correct the CASES of the suite", ValueError):
        cases = collect(suites)
    if not check:
        click.echo(f"{len(cases)} cases in {write(suites, cases)}")
    elif (suites / NAME).read_text(encoding="utf-8") != encode(cases):
        raise SystemExit(f"{suites / NAME} is not up to date: run pytest-ascend manifest")
