"""The commands ``pytest-ascend baseline record`` and ``published``: measure and keep; show what others measured."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

from pytest_ascend.errors import UsageError
from pytest_ascend.page.tables import published as published_figures
from pytest_ascend.performance import baseline as files
from pytest_ascend.performance.baseline import Baseline
from pytest_ascend.performance.estimate import Estimate
from pytest_ascend.performance.recording import FEWEST_RUNS, GOOD_RUNS, baseline_of
from pytest_ascend.performance.verdict import Gate, judge
from pytest_ascend.runlog.reading import read
from pytest_ascend.system.bundled import folder
from pytest_ascend.verdict import figures

LOG = "run.jsonl"


@click.command()
@click.option(
    "--runs", type=click.IntRange(FEWEST_RUNS, 100), default=GOOD_RUNS, show_default=True, help="How often to measure."
)
@click.option("--device", default="auto", show_default=True, metavar="DEVICE", help="As --ascend-device.")
@click.option("-k", "only", default="", metavar="EXPRESSION", help="Measure only these benchmarks, as pytest's -k.")
@click.option("--level", default="full", show_default=True, help="As --ascend-level.")
@click.option(
    "--baselines",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of baselines; measurements are in its folder 'measured'. Default: the bundled one.",
)
@click.argument("logs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path))
def record(runs: int, device: str, only: str, level: str, baselines: Path | None, logs: tuple[Path, ...]) -> None:
    """Measure the benchmark suite several times, each in a process of its own, and store the distributions.

    With RUN (run logs, or folders that hold one), nothing is measured: these runs are taken.
    """
    root = baselines or folder("baselines")
    if not root.is_dir():
        raise UsageError(f"--baselines: {root} is no folder", hint="make it first, or leave the option out")
    console = Console(highlight=False, soft_wrap=True)
    if logs:
        made = baseline_of([read(_log(each)) for each in logs])
    else:
        with tempfile.TemporaryDirectory(prefix="pytest-ascend-") as scratch:
            chosen = [f"--ascend-device={device}", f"--ascend-level={level}", *(("-k", only) if only else ())]
            made = baseline_of([read(each) for each in _measure(Path(scratch), runs, chosen, console)])
    path = files.write(made, root)
    console.print(_table(made))
    console.print(f"{len(made.benchmarks)} benchmarks in {len(next(iter(made.benchmarks.values())))} runs: {path}")


@click.command()
def published() -> None:
    """Show figures from elsewhere with their source. They stand beside a run's own on its page, and decide nothing."""
    for each in published_figures():
        value = f"{figures.words(each.measurement)} {figures.quantity(each.measurement, each.value)}"
        click.echo(f"{each.subject}/{each.property}: {value} ({each.work}; {each.stack})\n  source: {each.source}")


def _log(path: Path) -> Path:
    return path / LOG if path.is_dir() else path


def _measure(scratch: Path, runs: int, chosen: Sequence[str], console: Console) -> Sequence[Path]:
    """Run the suite so often with the options ``chosen``, and give the logs."""
    logs = []
    for number in range(1, runs + 1):
        console.print(f"run {number} of {runs} ...")
        report = scratch / str(number)
        command = [sys.executable, "-m", "pytest", "-q", "--ascend", str(folder("suites") / "benchmarks")]
        command += [f"--ascend-report={report}", *chosen]
        ended = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)  # noqa: S603
        if not (report / LOG).is_file():
            said = " / ".join((ended.stderr or ended.stdout).strip().splitlines()[-3:])
            raise UsageError(f"run {number} measured nothing: {said}", hint="try it by hand: pytest --ascend")
        logs.append(report / LOG)
    return logs


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}


def _table(made: Baseline) -> Table:
    """Show each benchmark with what a run compared with this baseline could see.

    It calls slow-downs slower from the one on, and would see them with 95 % certainty from the other.
    """
    table = Table(Column("benchmark", overflow="fold"), "median us", "runs differ by", "slower from", "seen from")
    gate = Gate(benchmarks=len(made.noise))
    for name, runs in made.benchmarks.items():
        estimates: list[Estimate] = [run.estimate for run in runs]
        answer = judge(estimates[0], estimates, made.noise[name], gate)
        shares = (made.noise[name].variance ** 0.5, answer.threshold, answer.detectable)
        middle = sorted(run.percentiles_us[50] for run in runs)[len(runs) // 2]
        table.add_row(name, f"{middle:.1f}", *(f"{100 * share:.1f} %" for share in shares))
    return table
