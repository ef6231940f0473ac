"""The stack that a report names."""

from __future__ import annotations

import platform

from pytest_ascend import __version__
from pytest_ascend.environment import collect


def test_a_stack_on_the_cpu_names_torch_and_python_and_no_npu_software() -> None:
    stack = collect("cpu", emulated=False, chip="x86_64")
    assert stack.torch
    assert stack.python == platform.python_version()
    assert stack.pytest_ascend == __version__
    assert (stack.torch_npu, stack.cann, stack.driver) == ("", "", "")


def test_an_emulated_stack_says_so_in_place_of_a_version() -> None:
    stack = collect("npu", emulated=True, chip="Ascend910B1")
    assert stack.emulated
    assert stack.cann == "emulated"
    assert stack.driver == ""
