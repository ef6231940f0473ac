"""The command ``pytest-ascend baseline record``: measure and store."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

from pytest_ascend.performance import baseline as files
from pytest_ascend.performance.baseline import Baseline, MeasuredRun
from pytest_ascend.performance.benchmarking import PREFIX, WORK
from pytest_ascend.performance.settings import FAULTS, NAME
from pytest_ascend.performance.verdict import Gate, judge
from pytest_ascend.runlog.contents import Run
from pytest_ascend.runlog.reading import LOG, log_of, read
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError

#: With fewer runs, their variation is unknown.
FEWEST_RUNS = 3
#: This many runs give the variance well enough to detect a slow-down of ten per cent (docs/benchmarks.md).
GOOD_RUNS = 12


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

    With RUN (run logs, or their folders), nothing is measured: these runs are used.
    """
    root = baselines or folder("baselines")
    if not root.is_dir():
        raise UsageError(f"--baselines: {root} is not a folder", hint="make it first, or leave the option out")
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if logs:
        made = baseline_of([read(log_of(each)) for each in logs])
    else:
        with tempfile.TemporaryDirectory(prefix="pytest-ascend-") as scratch:
            chosen = [f"--ascend-device={device}", f"--ascend-level={level}", *(("-k", only) if only else ())]
            made = baseline_of([read(each) for each in _measure(Path(scratch), runs, chosen, console)])
    path = files.write(made, root)
    # The slow-down that is reported, and the one that is detected at 95 %.
    table = Table(Column("benchmark", overflow="fold"), "median us", "runs differ by", "slower from", "seen from")
    gate = Gate(benchmarks=len(made.noise))
    for name, runs_of_it in made.benchmarks.items():
        estimates = [run.estimate for run in runs_of_it]
        answer = judge(estimates[0], estimates, made.noise[name], gate)
        shares = (made.noise[name].variance ** 0.5, answer.threshold, answer.detectable)
        middle = sorted(run.percentiles_us[50] for run in runs_of_it)[len(runs_of_it) // 2]
        table.add_row(name, f"{middle:.1f}", *(f"{100 * share:.1f} %" for share in shares))
    console.print(table)
    console.print(f"{len(made.benchmarks)} benchmarks in {len(next(iter(made.benchmarks.values())))} runs: {path}")


def _measure(scratch: Path, runs: int, chosen: Sequence[str], console: Console) -> Iterator[Path]:
    for number in range(1, runs + 1):
        console.print(f"run {number} of {runs} ...")
        report = scratch / str(number)
        command = [sys.executable, "-m", "pytest", "-q", "--ascend", str(folder("suites") / "benchmarks")]
        command += [f"--ascend-report={report}", *chosen]
        environ = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
        ended = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)  # noqa: S603
        if not (report / LOG).is_file():
            output = " / ".join((ended.stderr or ended.stdout).strip().splitlines()[-3:])
            raise UsageError(f"run {number} measured nothing: {output}", hint="try it by hand: pytest --ascend")
        yield report / LOG


def baseline_of(runs: Sequence[Run]) -> Baseline:
    """Return a baseline from the measurements of several runs; benchmarks that some run lacks are left out.

    Raises UsageError for too few runs, runs of different stacks or settings, and runs without benchmarks.
    """
    if len(runs) < FEWEST_RUNS:
        hint = f"record at least {FEWEST_RUNS} runs; {GOOD_RUNS} are recommended"
        raise UsageError(f"{len(runs)} runs are too few for a baseline", hint=hint)
    first = runs[0].header
    for each in runs[1:]:
        _refuse_other(asdict(first.stack), asdict(each.header.stack))
        _refuse_other(_settings(runs[0]), _settings(each))
    measured = [_measured(run) for run in runs]
    common = set.intersection(*map(set, measured))
    if not common:
        raise UsageError("no benchmark was measured in all of the runs", hint="run the suite: suites/benchmarks")
    profiles: dict[str, dict[str, float]] = {}
    work: dict[str, dict[str, float]] = {}
    for run in runs:
        for record in [each for each in run.records if each.case.id in common]:
            name, figures = record.case.id, record.measurements
            done = {each: figures[each] for each in WORK if each in figures}
            if work.setdefault(name, done) != done:
                raise UsageError(f"the runs do different work in {name}", hint="record all runs with one release")
            of_operators = {key.removeprefix(PREFIX): its for key, its in figures.items() if key.startswith(PREFIX)}
            profiles.setdefault(name, of_operators)
    return Baseline(
        recorded=first.started,
        stack=first.stack,
        settings=_settings(runs[0]),
        benchmarks={name: tuple(each[name] for each in measured) for name in sorted(common)},
        profiles=profiles,
        work={name: work[name] for name in sorted(common)},
    )


def _measured(run: Run) -> dict[str, MeasuredRun]:
    # Cases with latencies and their median were timed by the fixture, in a bundled suite or in a user's own test.
    timed = [(each.case.id, each.series) for each in run.records if "latency_p50_us" in each.measurements]
    return {
        name: MeasuredRun.of(series.get("device_us") or series["latency_us"], series.get("peer_us", ()))
        for name, series in timed
        if len(series.get("latency_us", ())) > 1
    }


def _settings(run: Run) -> dict[str, object]:
    options = run.header.options
    faults, timing = {FAULTS: options[FAULTS]} if options.get(FAULTS) else {}, options.get(NAME)
    return {**(timing if isinstance(timing, dict) else {}), **faults}


def _refuse_other(expected: dict[str, object], found: dict[str, object]) -> None:
    if different := [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]:
        fields = ", ".join(f"{name} ({expected.get(name)!r} and {found.get(name)!r})" for name in different)
        raise UsageError(f"the runs differ in {fields}", hint="record all runs on one machine with one stack")
