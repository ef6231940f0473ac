"""Settings that change how long work takes are noticed, and what is not comparable decides nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_ascend.device import Cpu
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.errors import UsageError
from pytest_ascend.performance import baseline as files
from pytest_ascend.performance.baseline import Choice, Comparison
from pytest_ascend.performance.commands import baseline_of
from pytest_ascend.performance.settings import VARIABLES, differences
from pytest_ascend.performance.verdict import estimate
from pytest_ascend.plugin.options import Options
from pytest_ascend.plugin.preparation import Prepared
from pytest_ascend.plugin.session import RunSetup
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Header, Run, Selection

from .test_baseline import NAME, STACK, made

SETTINGS = {"torch_threads": 8, "matmul.allow_hf32": False, "TASK_QUEUE_ENABLE": "1"}
SLOW = estimate([200.0] * 10)


def settings_of(prepared: Prepared, *, cards: int, environ: Mapping[str, str]) -> Mapping[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", environ)
        return RunSetup(options=Options(cards=cards), scope="", suites=Path(), prepared=prepared).timing()


def test_what_is_in_force_is_found() -> None:
    prepared = Prepared(device=Cpu(), numerics={"matmul.allow_hf32": True})
    found = settings_of(prepared, cards=1, environ={"TASK_QUEUE_ENABLE": "2", "HOME": "/"})
    assert found["TASK_QUEUE_ENABLE"] == "2"
    assert found["matmul.allow_hf32"] is True
    assert found["torch_threads"] == 1
    assert int(str(found["cpus"])) >= 1
    assert "HOME" not in found


@pytest.mark.parametrize(("isolated", "threads"), [(True, 7), (False, 3)])
def test_a_device_of_its_own_has_the_threads_of_the_process_that_uses_it(
    isolated: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    prepared = Prepared(device=Cpu(kind="npu"), isolated=isolated, threads=7)
    assert settings_of(prepared, cards=2, environ={}) == {
        "cards": 2,
        "cpus": len(os.sched_getaffinity(0)),
        "torch_threads": threads,
    }


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_that_changes_times_is_a_setting(name: str) -> None:
    prepared = Prepared(device=Cpu())
    assert settings_of(prepared, cards=1, environ={name: ""})[name] == ""
    assert name not in settings_of(prepared, cards=1, environ={})


def test_numerics_and_memory_are_settings_of_an_emulated_device() -> None:
    emulator = EmulatorSettings(memory_bytes=123)
    emulated = settings_of(Prepared(device=Cpu(emulated=True), emulator=emulator), cards=1, environ={})
    assert (emulated["emulated_numerics"], emulated["emulated_memory_bytes"]) == (emulator.numerics, 123)
    bare = settings_of(Prepared(device=Cpu(emulated=True)), cards=1, environ={})
    assert (bare["emulated_numerics"], bare["emulated_memory_bytes"]) == ("", 0)
    assert "emulated_numerics" not in settings_of(Prepared(device=Cpu(), emulator=emulator), cards=1, environ={})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"torch_threads": 4}, "torch_threads 8 then, 4 now"),
        ({"matmul.allow_hf32": True}, "matmul.allow_hf32 False then, True now"),
        ({"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS not set then, 2 now"),
        ({}, ""),
    ],
)
def test_each_difference_is_said(now: dict[str, object], said: str) -> None:
    assert "; ".join(differences(SETTINGS, {**SETTINGS, **now})) == said


def test_a_variable_that_is_no_longer_set_is_a_difference() -> None:
    assert list(differences(SETTINGS, {"torch_threads": 8, "matmul.allow_hf32": False})) == [
        "TASK_QUEUE_ENABLE 1 then, not set now"
    ]


def test_a_setting_that_is_none_is_not_one_that_is_not_set() -> None:
    assert list(differences({"a": None}, {})) == ["a None then, not set now"]
    assert list(differences({"b": 1, "a": 1}, {"b": 2, "a": 2})) == ["a 1 then, 2 now", "b 1 then, 2 now"]


def test_faults_of_a_run_are_to_be_found_and_those_of_a_baseline_are_a_difference() -> None:
    assert list(differences({}, {"faults": ["slow"]})) == []
    assert list(differences({"faults": ["slow"]}, {})) == ["faults ['slow'] then, not set now"]


def test_a_baseline_of_other_settings_is_shown_and_decides_nothing(tmp_path: Path) -> None:
    files.write(replace(made(), settings=SETTINGS), tmp_path)
    choice = files.choose(tmp_path, STACK, {**SETTINGS, "TASK_QUEUE_ENABLE": "2"})
    assert choice is not None
    assert "shown only: it was recorded with other settings: TASK_QUEUE_ENABLE 1 then, 2 now" in choice.description
    verdict = Comparison(choice=choice, tolerance=0.05).verdict(NAME, SLOW, lambda: SLOW)
    assert verdict is not None
    assert verdict.agrees
    assert "TASK_QUEUE_ENABLE 1 then, 2 now" in verdict.message
    same = files.choose(tmp_path, STACK, SETTINGS)
    assert same is not None
    found = Comparison(choice=same, tolerance=0.05).verdict(NAME, SLOW, lambda: SLOW)
    assert found is not None
    assert not found.agrees


def test_an_older_baseline_of_the_same_settings_decides_before_one_of_others(tmp_path: Path) -> None:
    files.write(replace(made(), settings={}), tmp_path)
    files.write(replace(made(replace(STACK, cann="8.2.RC1")), settings=SETTINGS), tmp_path)
    choice = files.choose(tmp_path, STACK, SETTINGS)
    assert choice is not None
    assert not choice.shown_only
    assert choice.baseline.stack.cann == "8.2.RC1"


def test_a_newer_baseline_of_the_same_host_is_none_of_another_host(tmp_path: Path) -> None:
    files.write(made(replace(STACK, cann="9.0.0")), tmp_path)
    assert files.choose(tmp_path, STACK, {}) is None


def test_times_of_other_work_are_shown_and_decide_nothing() -> None:
    choice = Choice(baseline=replace(made(), work={NAME: {"items_per_call": 32.0}}), description="a baseline")
    comparison = Comparison(choice=choice, tolerance=0.05)
    other = comparison.of_same_work(NAME, {"items_per_call": 1.0}).verdict(NAME, SLOW, lambda: SLOW)
    same = comparison.of_same_work(NAME, {"items_per_call": 32.0}).verdict(NAME, SLOW, lambda: SLOW)
    assert other is not None
    assert same is not None
    assert (other.agrees, same.agrees) == (True, False)
    assert "one call did other work: items_per_call 32.0 then, 1.0 now" in other.message


def run(settings: dict[str, object], items: float = 32.0) -> Run:
    case = Case(suite="benchmarks", subject="gelu", property="latency", dtype="float32")
    header = Header(
        run_id="1",
        started="2026-01-02T03:04:05+00:00",
        stack=STACK,
        level="full",
        selection=Selection("full"),
        manifest=(case,),
        options={"timing": settings},
    )
    record = ResultRecord.of(
        case,
        "n",
        Passed(),
        measurements={"items_per_call": items, "latency_p50_us": 2.0},
        series={"latency_us": (1.0, 2.0, 3.0)},
    )
    return Run(header=header, records=(record,))


def test_a_baseline_keeps_settings_and_work_of_its_runs() -> None:
    found = baseline_of([run(SETTINGS)] * 3)
    assert found.settings == SETTINGS
    assert found.work == {"benchmarks/gelu/latency/float32": {"items_per_call": 32.0}}


@pytest.mark.parametrize("other", [run({**SETTINGS, "torch_threads": 4}), run(SETTINGS, items=1.0)])
def test_runs_of_different_settings_or_work_make_no_baseline(other: Run) -> None:
    with pytest.raises(UsageError, match=r"torch_threads|different work"):
        baseline_of([run(SETTINGS), run(SETTINGS), other])
