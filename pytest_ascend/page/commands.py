"""The commands ``pytest-ascend report ...``, which read run logs, and ``baseline published``; no device is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import click

from pytest_ascend.export import formats, markdown, terminal
from pytest_ascend.page import changes, html, tables
from pytest_ascend.page import history as history_of
from pytest_ascend.page.matrix import render_matrix, scan
from pytest_ascend.page.page import SYMBOLS
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.reading import LOG, log_of, read
from pytest_ascend.system import figures
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import write_file
from pytest_ascend.verdict import merge as merging
from pytest_ascend.verdict.diff import CANNOT_TELL, ERROR_DRIFT, FAILS_ON, SLOWER, SPEED_SHARE, Diff, compare
from pytest_ascend.verdict.summary import Summary, exit_code, summarise

PATH = click.Path(path_type=Path)
_output = partial(click.option, "-o", "--output", type=PATH)
#: Format -> its writer of a comparison.
_WRITERS: Mapping[str, Callable[[Diff], str]] = {
    "terminal": lambda found: "".join(f"{line.text}\n" for line in changes.lines(found)),
    "markdown": changes.markdown,
    "json": lambda found: f"{codec.dumps(changes.to_dict(found))}\n",
    "html": html.render_diff,
}
_FORMS = click.Choice(list(_WRITERS))
#: The format implied by a file's extension.
_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "terminal"}


@click.group()
def report() -> None:
    """Make pages from run logs, compare runs, and merge them."""


@report.command()
@click.argument("run", type=PATH)
@_output(help="The file of the page; by default beside the log.")
@click.option("--against", type=PATH, help="An earlier run: the page shows what changed since.")
def render(run: Path, output: Path | None, against: Path | None) -> None:
    """Make the conformance page of RUN, a run log or its folder.

    Needs no device. Shows the run's own verdict, and exits with 0 whenever the page was written.
    """
    log = log_of(run)
    page = output or log.with_name(html.page_name(log))
    summary = summarise(read(log))
    _write(page, html.render(summary, against=summary_of(against) if against else None), log, against)
    _echo(terminal.lines(summary, page=page))


@report.command()
@click.argument("run", type=PATH)
def summary(run: Path) -> None:
    """Print a short summary of RUN as Markdown, for the page of a CI job.

    Exits with 0 whenever the log could be read.
    """
    click.echo(markdown.summary_of(summary_of(run)), nl=False)


@report.command()
@click.argument("run", type=PATH)
@click.option("--format", "form", type=click.Choice(sorted(formats.FORMATS)), required=True, help="The kind of file.")
@_output(help="Write there instead of to the terminal.")
@click.option("--gate/--no-gate", help="Exit as pytest --ascend would have, instead of with 0.")
def export(run: Path, form: str, output: Path | None, *, gate: bool) -> None:
    """Write RUN as JUnit XML, CSV, JSON, GitHub annotations, or for PyTorch's cross-repository CI relay (crcr)."""
    found = summary_of(run)
    text = formats.FORMATS[form](found)
    if output:
        _write(output, text, run)
        click.echo(f"{found.total:,} cases: {output}")
    else:
        click.echo(text, nl=False)
    sys.exit(exit_code(found) if gate else 0)


@report.command()
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
@click.option("--format", "form", type=_FORMS, help="Output format; by default what the name of the output ends with.")
@_output(help="Write there instead of to the terminal.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice((*FAILS_ON, ERROR_DRIFT, SLOWER)),
    default=FAILS_ON,
    show_default=True,
    help="A kind of change that makes the exit code 1; repeatable.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0, 1000),
    default=100 * SPEED_SHARE,
    show_default=True,
    metavar="PERCENT",
    help="The smallest change of a time, throughput or size to list.",
)
def diff(
    before: Path, after: Path, form: str | None, output: Path | None, fail_on: tuple[str, ...], speed: float
) -> None:
    """Show what changed from the run BEFORE to the run AFTER, case by case.

    The first line says whether AFTER may replace BEFORE. Exits with 1 on a change of a kind in --fail-on: by default a
    regression, a new case that deviates, or, if both runs had to execute everything of one level, a case that vanished.
    Exits with 5 if cases that BEFORE executed were not run, so that there is no answer. --speed is the smallest change
    of a time, throughput or size to list.
    """
    ending = output.suffix.lower() if output else ""
    implied = _ENDINGS.get(ending)
    if form is None and implied is None and ending:
        raise UsageError(f"no format has files named *{ending}", hint=f"end it with {', '.join(_ENDINGS)}, or --format")
    if form and implied and form != implied:
        raise UsageError(f"{output} is a name of {implied}, not of {form}", hint=f"--format {implied}, or another name")
    form = form or implied or "terminal"
    found = compare(summary_of(before), summary_of(after), speed_share=speed / 100)
    if form == "terminal" and not output:
        _echo(changes.lines(found))
    elif output:
        _write(output, _WRITERS[form](found), before, after)
        _echo(islice(changes.lines(found), 1))
        click.echo(f"{found.after.total:,} cases: {output}")
    else:
        click.echo(_WRITERS[form](found), nl=False)
    sys.exit(1 if found.failures(fail_on) else 5 if found.answer == CANNOT_TELL else 0)


@report.command()
@click.argument("shards", type=PATH, nargs=-1, required=True)
@_output(required=True, help="The folder for run.jsonl and conformance.html.")
def merge(shards: tuple[Path, ...], output: Path) -> None:
    """Merge the logs of all SHARDS of a run into the log and the page of a full run.

    Rejects, and names, shards of different stacks, manifests or rules, shards more than 14 days apart, and duplicate,
    altered or missing ones. Reports which ran on different machines. Exits as pytest --ascend would have.
    """
    log = output / LOG
    merging.merge([read(log_of(each)) for each in shards], log)
    found = summary_of(log)
    write_file(output / html.PAGE, html.render(found))
    _echo(terminal.lines(found, page=output / html.PAGE))
    if len(machines := merging.machines(found.run.header)) > 1:
        names = "; ".join(figures.one_line(each) for each in machines)
        click.echo(f"The shards ran on {len(machines)} machines ({names}): no certificate can be earned with this log.")
    sys.exit(exit_code(found))


@report.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@_output(default=Path("matrix.html"), show_default=True, help="The page.")
def matrix(runs: tuple[Path, ...], output: Path) -> None:
    """Make one page on RUNS: which combinations conform, operators and models by combination, speed by version.

    Exits with 0 whenever the page was written.
    """
    _write(output, render_matrix((scan(log_of(run)) for run in runs), into=output.parent), *runs)
    click.echo(f"{len(runs):,} runs: {output}")


@report.command()
@click.argument("runs", type=PATH, nargs=-1, required=True)
@_output(default=Path("ascend-history"), show_default=True, help="The folder of the site.")
def history(runs: tuple[Path, ...], output: Path) -> None:
    """Make a site on RUNS, logs or folders of them: pass share, causes first and last seen, benchmarks over time.

    Writes index.html, which loads nothing, and history.json; any static host serves them. With index.msgpack, unchanged
    logs need not be read again. Exits with 0 whenever the site was written.
    """
    found = (log for run in runs for log in (sorted(run.rglob("run*.jsonl")) if run.is_dir() else [run]))
    logs = list({log.resolve(): log for log in found}.values())  # each once, however its path is written
    if not logs:
        raise UsageError(f"no run log in {', '.join(map(str, runs))}", hint="name runs, or a folder of report folders")
    known = zip(history_of.points_of(logs, output), logs, strict=True)
    points = [replace(point, page=html.page_beside(log, output)) for point, log in known]
    write_file(output / "index.html", history_of.render_history(points))
    write_file(output / "history.json", f"{codec.dumps(history_of.to_dict(points))}\n")
    for (name, level), group in history_of.grouped(points).items():
        for case, outcomes in list(history_of.cases_of(group))[: changes.LINES_LIMIT]:
            symbols = "".join(SYMBOLS[each] if each else " " for each in outcomes)
            click.echo(f"{symbols:>{history_of.LATEST}}  {case} ({name}, {level})")
    click.echo(f"{len(points):,} runs: {output / 'index.html'}")


def _write(path: Path, text: str, *runs: Path | None) -> None:
    """Write a file; refuse to overwrite one of the logs it was made from."""
    if path.is_file() and any(run and path.samefile(log_of(run)) for run in runs):
        raise UsageError(f"{path} is the run log itself", hint="choose another name: a log cannot be made again")
    write_file(path, text)


def summary_of(run: Path) -> Summary:
    """Read and judge one run. Raises RunLogError."""
    return summarise(read(log_of(run)))


def _echo(lines: Iterable[terminal.Line]) -> None:
    for line in lines:
        click.secho(line.text, fg=line.colour or None, bold=line.bold)


@click.command()
def published() -> None:
    """Show published figures with their sources. A page lists them beside a run's own; they decide nothing."""
    for each in tables.published():
        value = f"{figures.words(each.measurement)} {figures.quantity(each.measurement, each.value)}"
        click.echo(f"{each.subject}/{each.property}: {value} ({each.work}; {each.stack})\n  source: {each.source}")
