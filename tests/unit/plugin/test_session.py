"""The account of a run: written as it goes, and the same whoever ran the cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ascend.coverage.manifest import write
from pytest_ascend.coverage.selection import BUNDLED, CollectedCases
from pytest_ascend.device import Cpu
from pytest_ascend.doctor import Diagnosis, Finding
from pytest_ascend.doctor.findings import SEVERITIES
from pytest_ascend.emulator import EmulatorSettings
from pytest_ascend.errors import RunLogError
from pytest_ascend.plugin.options import Options
from pytest_ascend.plugin.preparation import Prepared
from pytest_ascend.plugin.session import RunRecorder, RunSetup, header_lines
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Failed, Outcome, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.writing import read

CASES = tuple(Case(suite="small", subject=name, property="p") for name in ("one", "two"))
COLLECTED = CollectedCases(
    cases={f"test_x.py::{case.subject}": case for case in CASES},
    places={f"test_x.py::{case.subject}": f"/suites/test_x.py::{case.subject}" for case in CASES},
)


@pytest.fixture
def setup(tmp_path: Path) -> RunSetup:
    write(tmp_path, CASES)
    options = Options(baselines=tmp_path, report=tmp_path / "report", emulator=EmulatorSettings(faults=("leak",)))
    prepared = Prepared(device=Cpu(), chip="x86_64", notice="Nothing else is here.")
    return RunSetup(options=options, scope=BUNDLED, suites=tmp_path, prepared=prepared)


@pytest.fixture
def recorder(setup: RunSetup) -> Iterator[RunRecorder]:
    recorder = RunRecorder(setup)
    recorder.begin(COLLECTED)
    yield recorder
    recorder.close(2)


def record(case: Case, outcome: Outcome) -> ResultRecord:
    return ResultRecord.of(case, f"it::{case.subject}", outcome, measurements={"latency_us": 1.0})


def test_a_run_in_which_everything_passes_ends_with_zero_and_a_page(recorder: RunRecorder) -> None:
    for case in CASES:
        recorder.take(record(case, Passed()))
    assert recorder.close(0) == 0
    assert recorder.page.exists()
    assert read(recorder.page.with_name("run.jsonl")).footer is not None


def test_a_failure_of_an_ordinary_test_keeps_pytests_exit_code(recorder: RunRecorder) -> None:
    for case in CASES:
        recorder.take(record(case, Passed()))
    assert recorder.close(1) == 1


def test_what_did_not_run_makes_the_exit_code(recorder: RunRecorder) -> None:
    recorder.take(record(CASES[0], Passed()))
    assert recorder.close(0) == 1


def test_an_interrupted_run_has_no_footer(recorder: RunRecorder) -> None:
    recorder.take(record(CASES[0], Passed()))
    assert recorder.close(2) == 2
    assert read(recorder.page.with_name("run.jsonl")).footer is None


def test_of_a_case_that_is_tried_again_the_first_try_counts(recorder: RunRecorder) -> None:
    recorder.take(record(CASES[0], Failed(reason="wrong")))
    recorder.take(record(CASES[0], Passed()))
    recorder.close(1)
    assert [each.outcome.name for each in read(recorder.page.with_name("run.jsonl")).records] == ["failed"]


def test_a_crash_is_an_error_of_its_case_at_its_place(recorder: RunRecorder) -> None:
    recorder.take_crash("test_x.py::one", "worker 'gw0' crashed")
    recorder.take_crash("test_x.py::ordinary", "worker 'gw0' crashed")
    recorder.close(1)
    (only,) = read(recorder.page.with_name("run.jsonl")).records
    assert only.outcome.name == "errored"
    assert only.node_id == "/suites/test_x.py::one"
    assert "gw0" in only.outcome.detail


def test_a_second_beginning_changes_nothing(recorder: RunRecorder) -> None:
    recorder.begin(CollectedCases(cases={}))
    assert recorder.close(0) == 5


def test_two_runs_in_one_folder_are_refused(recorder: RunRecorder, setup: RunSetup) -> None:
    with pytest.raises(RunLogError, match="another run"):
        RunRecorder(setup).begin(COLLECTED)


def test_nothing_is_written_before_the_plan_is_known(setup: RunSetup) -> None:
    assert RunRecorder(setup).close(3) == 3
    assert not setup.options.report.exists()


def test_the_top_of_the_terminal_says_what_is_tested_and_how(setup: RunSetup) -> None:
    text = "\n".join(header_lines(setup, replace(setup.stack(), triton_ascend="3.2.2")))
    for part in (
        "triton-ascend 3.2.2",
        "cpu (x86_64)",
        "level standard",
        "torch ",
        "Nothing else is here.",
        "FAULTS ARE PLANTED: leak",
    ):
        assert part in text


def test_the_top_of_the_terminal_says_what_the_doctor_warns_of(setup: RunSetup) -> None:
    found = [
        Finding(id=severity, severity=severity, what="x", evidence=(), why="", remedy="") for severity in SEVERITIES
    ]
    nothing = Diagnosis(machine="", components=(), findings=(), settings={}, devices=(), judged_by="")
    lines = list(header_lines(setup, setup.stack(), replace(nothing, findings=tuple(found))))
    assert [line for line in lines if "doctor" in line] == [
        "ascend doctor: error: x [error]",
        "ascend doctor: warning: x [warning]",
    ]
