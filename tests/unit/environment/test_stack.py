"""The stack that a report names."""

from __future__ import annotations

import platform

import pytest

from pytest_ascend import __version__
from pytest_ascend.environment.stack import collect


def test_a_stack_on_the_cpu_names_torch_and_python_and_no_npu_software() -> None:
    stack = collect("cpu", emulated=False, chip="x86_64")
    assert stack.torch
    assert stack.python == platform.python_version()
    assert stack.pytest_ascend == __version__
    assert (stack.torch_npu, stack.cann, stack.driver) == ("", "", "")


def test_an_emulated_stack_says_so_with_the_version_that_it_answers_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_CANN", "8.1.RC1")
    stack = collect("npu", emulated=True, chip="Ascend910B1")
    assert stack.emulated
    assert stack.cann == "emulated 8.1.RC1"
    assert stack.driver == ""
