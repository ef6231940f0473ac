"""Asking an NPU whether it is well: whatever the one that asks meets, the answer is a sentence."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from pytest_ascend.device import probe
from pytest_ascend.device.probe import Answer, ask, known_answer
from pytest_ascend.system.programs import MARK
from tests import forks


def asked(code: str, *, limit_s: float = 30.0) -> Answer:
    return ask(0, limit_s=limit_s, command=[sys.executable, "-c", code])


def test_a_device_that_hangs_is_given_up() -> None:
    assert "no answer within 0.5 s" in asked("import time; time.sleep(60)", limit_s=0.5).failure


def test_a_process_that_cannot_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[subprocess.Popen[bytes]] = []
    kill = subprocess.Popen.kill

    def leave(process: subprocess.Popen[bytes]) -> None:
        left.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", leave)
    assert "no answer within 0.05 s" in ask(0, limit_s=0.05, command=["sleep", "60"]).failure
    (process,) = left
    assert process.poll() is None
    kill(process)
    process.wait()


def test_what_cannot_be_started_is_said() -> None:
    assert "cannot be started" in ask(0, command=["/nowhere/python"]).failure


def test_a_device_that_kills_who_asks_is_told_by_the_code_and_the_last_line() -> None:
    failure = asked("import os, sys; print('driver: boom', file=sys.stderr, flush=True); os.abort()").failure
    assert "code -6" in failure
    assert "driver: boom" in failure


def test_silence_is_no_health() -> None:
    assert "printed nothing" in asked("pass").failure


def test_an_answer_is_found_among_what_libraries_print() -> None:
    code = f"print('[W] noise'); print({MARK!r} + '{{\"chip\": \"Ascend910B3\", \"count\": 8}}'); print('bye')"
    assert asked(code) == Answer(chip="Ascend910B3", count=8)


def test_what_the_stack_raises_is_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    probe.main(["not a number"])
    assert "ValueError" in capsys.readouterr().out


def test_the_cpu_knows_the_answer() -> None:
    assert known_answer(torch.device("cpu")) == ""


def test_a_device_that_does_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "__add__", lambda self, other: torch.zeros_like(self))
    assert "came" in known_answer(torch.device("cpu"))


def test_the_process_that_asks_opens_no_other_card() -> None:
    code = "from pytest_ascend.device import probe; probe.main(['1']); import torch, os; "
    code += "print(torch.npu.device_count(), torch.npu.current_device(), os.environ['ASCEND_RT_VISIBLE_DEVICES'])"
    done = forks.run("pytest_ascend.cli", "emulate", "--physical=4,6", "--", sys.executable, "-c", code)
    found, seen = done.stdout.strip().splitlines()[-2:]
    assert json.loads(found.removeprefix(MARK))["physical"] == [4, 6], done.stderr
    assert seen == "1 0 1"
