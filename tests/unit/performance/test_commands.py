"""A baseline is recorded from runs that are each a process of its own."""

from __future__ import annotations

import io
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from pytest_ascend.errors import UsageError
from pytest_ascend.performance import baseline as files
from pytest_ascend.performance import commands
from pytest_ascend.performance.verdict import ALARMS, ALONE, CONFIDENCE, PAIRED, estimate, quantile
from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Header, Selection
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.system.bundled import folder
from tests.unit.options import paths, placeholders, unexplained


def measured(
    into: Path, monkeypatch: pytest.MonkeyPatch, *, writes: bool, errors: str = ""
) -> tuple[list[Path], list[list[str]]]:
    """Measure three times by a program that only writes a log, or says why not."""
    asked: list[list[str]] = []

    def run(command: list[str], *, env: dict[str, str], capture_output: bool, text: bool, **_: Any) -> SimpleNamespace:
        assert capture_output, "what it says is read"
        assert text
        asked.append(command)
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in env
        (report,) = (each.partition("=")[2] for each in command if each.startswith("--ascend-report="))
        Path(report).mkdir(parents=True)
        if writes:
            Path(report, commands.LOG).touch()
        return SimpleNamespace(stderr=errors, stdout="a\nb\nc\nno device\n")

    monkeypatch.setattr(commands.subprocess, "run", run)
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    return list(commands._measure(into, 3, ["--ascend-level=smoke"], Console(file=io.StringIO()))), asked


def test_each_run_has_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, asked = measured(tmp_path, monkeypatch, writes=True)
    assert logs == [tmp_path / str(number) / commands.LOG for number in (1, 2, 3)]
    suite = str(folder("suites") / "benchmarks")
    for command, each in zip(asked, logs, strict=True):
        assert command[:3] == [sys.executable, "-m", "pytest"]
        assert set(command[3:-1]) == {"-q", "--ascend", suite, f"--ascend-report={each.parent}"}
        assert command[-1] == "--ascend-level=smoke"


def test_a_run_that_measured_nothing_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="run 1 measured nothing: b / c / no device"):
        measured(tmp_path, monkeypatch, writes=False)
    with pytest.raises(UsageError, match="run 1 measured nothing: lost"):
        measured(tmp_path / "again", monkeypatch, writes=False, errors="lost\n")


CASE = Case(suite="benchmarks", subject="gelu", property="latency", dtype="float32")
OTHER = Case(suite="user", subject="test_mine[/a]", property="latency")
STACK = Stack(device="npu", emulated=False, chip="Ascend910B3", cann="8.3.RC1", torch="2.7.1", host="h")
#: Three runs: the medians of the first benchmark are 10, 12 and 11 us.
MEDIANS = (10.0, 12.0, 11.0)


def timed(
    case: Case, middle: float, *, series: dict[str, Sequence[float]] | None = None, **more: float
) -> ResultRecord:
    measurements = {"latency_p50_us": middle, **more}
    return ResultRecord.of(
        case,
        "n",
        Passed(),
        measurements=measurements,
        series=series or {"latency_us": (middle - 1, middle, middle + 1)},
    )


def log(into: Path, *records: ResultRecord, stack: Stack = STACK, options: dict[str, Any] | None = None) -> Path:
    """Write the log of a run into a folder that it makes."""
    into.mkdir(parents=True)
    header = Header(
        run_id=into.name,
        started="2026-01-02T03:04:05+00:00",
        stack=stack,
        level="full",
        selection=Selection("full"),
        manifest=tuple(each.case for each in records),
        options=options or {},
    )
    written = RunLog.create(into / commands.LOG, header, durable=False)
    for each in records:
        written.append(each)
    written.close()
    return into / commands.LOG


def recorded(*arguments: object) -> str:
    """Run the command in this process and return what it printed."""
    found = CliRunner().invoke(commands.record, [*map(str, arguments)])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def test_logs_and_their_folders_become_a_baseline_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_measure", None)
    monkeypatch.setenv("COLUMNS", "200")
    logs = [log(tmp_path / str(us), timed(CASE, us), timed(OTHER, 2 * us)) for us in MEDIANS]
    (root := tmp_path / "baselines").mkdir()
    said = recorded("--baselines", root, logs[0], logs[1].parent, logs[2])
    [stored] = root.rglob("*.json")
    found = files.read(stored)
    assert sorted(found.benchmarks) == [CASE.id, OTHER.id]
    assert [run.percentiles_us[50] for run in found.benchmarks[CASE.id]] == list(MEDIANS)
    assert (found.stack, found.recorded) == (STACK, "2026-01-02T03:04:05+00:00")
    assert f"2 benchmarks in 3 runs: {stored}" in said
    assert f"│ {OTHER.id} " in said, "brackets are no markup"
    # The definition: the variance of the runs about their mean, and quantiles of Student's distribution.
    estimates = [estimate([us - 1, us, us + 1]).value for us in MEDIANS]
    noise, first = found.noise[CASE.id], estimates[0] - statistics.fmean(estimates)
    deviation = math.sqrt(noise.variance * (1 + 1 / 3))
    threshold = quantile(1 - ALARMS / 2, noise.degrees_of_freedom) * deviation
    seen = threshold + quantile(CONFIDENCE, noise.degrees_of_freedom) * deviation
    assert abs(first) < threshold
    shares = [math.sqrt(noise.variance), math.expm1(threshold), math.expm1(seen)]
    [row] = [line for line in said.splitlines() if CASE.id in line]
    assert row.replace("│", "").split()[1:] == [
        "11.0",
        *(part for each in shares for part in (f"{100 * each:.1f}", "%")),
    ]


def test_without_logs_the_suite_is_measured_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(scratch: Path, runs: int, chosen: Sequence[str], _: Console) -> list[Path]:
        asked.append((runs, chosen))
        return [log(scratch / str(number), timed(CASE, MEDIANS[number])) for number in range(3)]

    monkeypatch.setattr(commands, "_measure", measure)
    recorded("--baselines", tmp_path, "--runs", "5", "-k", "gelu", "--device", "npu:1", "--level", "smoke")
    recorded("--baselines", tmp_path)
    assert asked == [
        (5, ["--ascend-device=npu:1", "--ascend-level=smoke", "-k", "gelu"]),
        (12, ["--ascend-device=auto", "--ascend-level=full"]),
    ]
    assert len(list(tmp_path.rglob("*.json"))) == 1, "of one stack there is one baseline"


def test_the_bundled_folder_is_the_one_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "folder", lambda name: tmp_path / name)
    (tmp_path / "baselines").mkdir()
    recorded(*(log(tmp_path / str(us), timed(CASE, us)) for us in MEDIANS))
    assert len(list((tmp_path / "baselines").rglob("*.json"))) == 1


def test_a_folder_that_is_not_there_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_measure", None)
    with pytest.raises(UsageError, match="is not a folder"):
        recorded("--baselines", tmp_path / "none")


@pytest.mark.parametrize(("runs", "taken"), [(2, False), (3, True), (100, True), (101, False)])
def test_three_to_a_hundred_runs_can_be_asked_for(runs: int, taken: bool) -> None:
    [option] = [each for each in commands.record.params if each.name == "runs"]
    if taken:
        assert option.type.convert(str(runs), option, None) == runs
    else:
        with pytest.raises(click.BadParameter):
            option.type.convert(str(runs), option, None)


def runs_of(into: Path, *each: Sequence[ResultRecord], **more: Any) -> list[Any]:
    return [commands.read(log(into / str(number), *records, **more)) for number, records in enumerate(each)]


def test_fewer_than_three_runs_are_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 runs are too few"):
        commands.baseline_of(runs_of(tmp_path, [timed(CASE, 10)], [timed(CASE, 11)]))


def test_a_benchmark_counts_that_each_run_has(tmp_path: Path) -> None:
    both, one = [timed(CASE, 10), timed(OTHER, 20)], [timed(CASE, 11)]
    assert list(commands.baseline_of(runs_of(tmp_path, both, both, one)).benchmarks) == [CASE.id]
    with pytest.raises(UsageError, match="no benchmark was measured in all"):
        commands.baseline_of(runs_of(tmp_path / "without", one, one, [timed(OTHER, 10)]))


@pytest.mark.parametrize(
    ("measurements", "series", "counts"),
    [
        ({"latency_p50_us": 1.0}, {"latency_us": (1.0, 2.0)}, True),
        ({"latency_p50_us": 1.0}, {"latency_us": (1.0,)}, False),
        ({"latency_p50_us": 1.0}, {}, False),
        ({"latency_p95_us": 1.0}, {"latency_us": (1.0, 2.0)}, False),
    ],
)
def test_a_benchmark_is_what_has_two_rounds_and_their_median(
    tmp_path: Path, measurements: dict[str, float], series: dict[str, Sequence[float]], counts: bool
) -> None:
    record = ResultRecord.of(CASE, "n", Passed(), measurements=measurements, series=series)
    [run] = runs_of(tmp_path, [record])
    assert [*commands._measured(run)] == ([CASE.id] if counts else [])


def test_the_devices_clock_counts_before_the_hosts_and_a_peer_beside_either(tmp_path: Path) -> None:
    host, device, peer = (1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (4.0, 5.0, 6.0)
    of_each = {"latency_us": host}, {"latency_us": host, "device_us": device}, {"latency_us": host, "peer_us": peer}
    found = [runs_of(tmp_path / str(number), [timed(CASE, 2, series=each)]) for number, each in enumerate(of_each)]
    by_host, by_device, beside = (commands._measured(run)[CASE.id] for [run] in found)
    assert [each.percentiles_us[100] for each in (by_host, by_device, beside)] == [3, 1.5, 3]
    assert [each.estimate.scale for each in (by_host, by_device, beside)] == [ALONE, ALONE, PAIRED]
    assert beside.estimate == estimate(host, peer)


def test_profile_and_work_are_kept_of_the_benchmarks_that_count(tmp_path: Path) -> None:
    work = {"items_per_call": 2.0, "gflop_per_call": 3.0, "moved_bytes_per_call": 4.0}
    known = timed(CASE, 10, **{"profile_us_aten::mm": 7.0}, **work)
    found = commands.baseline_of(runs_of(tmp_path, [known, timed(OTHER, 20)], [known], [known]))
    assert found.profiles == {CASE.id: {"aten::mm": 7.0}}
    assert found.work == {CASE.id: work}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"timing": {"cards": 1}}, {"cards": 1}),
        ({"timing": {"cards": 1}, "faults": []}, {"cards": 1}),
        ({"timing": {"cards": 1}, "faults": ["slow"]}, {"cards": 1, "faults": ["slow"]}),
    ],
)
def test_planted_faults_are_a_setting_of_a_run(
    tmp_path: Path, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    [run] = runs_of(tmp_path, [timed(CASE, 10)], options=options)
    assert commands._settings(run) == settings


def test_settings_that_are_none_count_as_none(tmp_path: Path) -> None:
    assert commands._settings(commands.read(log(tmp_path / "a", timed(CASE, 10), options={"timing": 5}))) == {}


def test_runs_of_two_stacks_are_refused_by_what_differs(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, [timed(CASE, 10)], [timed(CASE, 11)])
    other = Stack(device="npu", emulated=False, chip="Ascend910B3", cann="9.0.0", torch="2.7.1", host="h")
    runs += runs_of(tmp_path / "other", [timed(CASE, 12)], stack=other)
    with pytest.raises(UsageError, match=r"the runs differ in cann \('8.3.RC1' and '9.0.0'\)\n"):
        commands.baseline_of(runs)


@pytest.mark.parametrize(("here", "there"), [({"a": 1}, {"a": 2}), ({"a": 1}, {}), ({}, {"a": 1})])
def test_what_only_one_side_has_differs(here: dict[str, object], there: dict[str, object]) -> None:
    commands._refuse_other({"b": 1, **here}, {"b": 1, **here})
    with pytest.raises(UsageError, match=r"the runs differ in a \("):
        commands._refuse_other({"b": 1, **here}, {"b": 1, **there})


def test_options_are_explained_and_files_are_paths() -> None:
    assert unexplained(commands.record) == []
    assert paths(commands.record) == {"baselines", "logs"}
    assert placeholders(commands.record) == {"device": "DEVICE", "only": "EXPRESSION", "logs": "[RUN]..."}
