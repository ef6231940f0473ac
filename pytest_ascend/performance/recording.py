"""From run logs to a baseline: several runs of the benchmark suite on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from pytest_ascend.errors import UsageError
from pytest_ascend.performance.baseline import Baseline, MeasuredRun
from pytest_ascend.performance.benchmarking import WORK
from pytest_ascend.performance.profiling import PREFIX
from pytest_ascend.performance.settings import FAULTS, NAME
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Run

#: With fewer runs nothing is known of how much they differ.
FEWEST_RUNS = 3
#: With so many a variance is known well enough to see a slow-down of ten per cent (docs/benchmarks.md).
GOOD_RUNS = 12


def baseline_of(runs: Sequence[Run]) -> Baseline:
    """Make a baseline of what was measured in several runs; a benchmark counts if each of them has it.

    Raises UsageError for too few runs, runs of different stacks or settings, and runs without benchmarks.
    """
    if len(runs) < FEWEST_RUNS:
        raise UsageError(f"{len(runs)} runs make no baseline", hint=f"at least {FEWEST_RUNS}, better {GOOD_RUNS}")
    first = runs[0].header
    for each in runs[1:]:
        _refuse_other(asdict(first.stack), asdict(each.header.stack))
        _refuse_other(_settings(runs[0]), _settings(each))
    measured = [dict(_measured(run)) for run in runs]
    works = [_works(run) for run in runs]
    common = set.intersection(*(set(each) for each in measured))
    if not common:
        raise UsageError("no benchmark was measured in all of the runs", hint="run the suite: suites/benchmarks")
    return Baseline(
        recorded=first.started,
        stack=first.stack,
        settings=_settings(runs[0]),
        benchmarks={name: tuple(each[name] for each in measured) for name in sorted(common)},
        profiles={record.case.id: _profile(record) for record in runs[0].records if record.case.id in common},
        work={name: _common_work(name, works) for name in sorted(common)},
    )


def _measured(run: Run) -> Iterator[tuple[str, MeasuredRun]]:
    for record in run.records:
        # Whoever keeps latencies and their median was timed by the fixture, in a bundled suite or in a user's own test.
        if "latency_p50_us" in record.measurements and len(record.series.get("latency_us", ())) > 1:
            yield record.case.id, _run_of(record)


def _run_of(record: ResultRecord) -> MeasuredRun:
    timed = record.series.get("device_us") or record.series["latency_us"]
    return MeasuredRun.of(timed, record.series.get("peer_us", ()))


def _works(run: Run) -> dict[str, dict[str, float]]:
    """Return what one call of each benchmark did."""
    return {
        record.case.id: {name: record.measurements[name] for name in WORK if name in record.measurements}
        for record in run.records
    }


def _common_work(name: str, works: Sequence[Mapping[str, Mapping[str, float]]]) -> Mapping[str, float]:
    first = works[0][name]
    if any(each[name] != first for each in works):
        raise UsageError(f"the runs do different work in {name}", hint="record all runs with one release")
    return first


def _profile(record: ResultRecord) -> dict[str, float]:
    named = record.measurements.items()
    return {name.removeprefix(PREFIX): value for name, value in named if name.startswith(PREFIX)}


def _settings(run: Run) -> dict[str, object]:
    options = run.header.options
    faults = {FAULTS: options[FAULTS]} if options.get(FAULTS) else {}
    return {**options.get(NAME, {}), **faults}


def _refuse_other(expected: dict[str, object], found: dict[str, object]) -> None:
    different = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    if different:
        said = ", ".join(f"{name} ({expected.get(name)!r} and {found.get(name)!r})" for name in different)
        raise UsageError(f"the runs differ in {said}", hint="record all runs on one machine with one stack")
