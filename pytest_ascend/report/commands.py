"""The commands ``pytest-ascend report ...``: they work on run logs, without a device."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_ascend.errors import UsageError
from pytest_ascend.report import html, terminal
from pytest_ascend.report.runlog import read
from pytest_ascend.report.summary import Summary, summarise

LOG = "run.jsonl"
PAGE = "conformance.html"


@click.group()
def report() -> None:
    """Make pages from run logs."""


@report.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page; by default beside the log.")
def render(run: Path, output: Path | None) -> None:
    """Make the conformance page of RUN, a run log or the folder that holds one.

    Needs no device. Says what the run says, and exits with 0 whenever the page was made.
    """
    log = run / LOG if run.is_dir() else run
    page = output or log.with_name(_page_name(log))
    summary = summarise(read(log))
    _write(page, summary)
    for line in terminal.lines(summary, page=page):
        click.secho(line.text, fg=line.colour or None, bold=line.bold)


def _page_name(log: Path) -> str:
    """Give a name of its own to the page of a log that is not the latest."""
    return PAGE if log.name == LOG else f"{log.stem}.html"


def _write(page: Path, summary: Summary) -> None:
    try:
        html.write(page, html.render(summary))
    except OSError as error:
        raise UsageError(
            f"cannot write the page {page}: {error.strerror or error}", hint="choose another place: --output FILE"
        ) from error
