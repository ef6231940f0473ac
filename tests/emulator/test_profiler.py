"""What is read of torch_npu.profiler is what the installed one writes."""

from __future__ import annotations

import torch
from torch_npu.profiler.analysis.prof_view._operator_view_parser import OperatorViewParser

from pytest_ascend.device.npu import Npu, profiler
from pytest_ascend.performance.profiling import NAME, TABLE, TAKEN, profile_of


def test_the_table_and_its_columns_are_torch_npus() -> None:
    assert OperatorViewParser.OPERATOR_VIEW == TABLE
    assert {NAME, TAKEN} <= set(OperatorViewParser.OPERATOR_HEADERS)


def test_what_is_called_of_the_profiler_is_there() -> None:
    module = profiler()
    assert module.ProfilerActivity.NPU != module.ProfilerActivity.CPU
    assert callable(module.profile)
    assert callable(module.tensorboard_trace_handler)


def test_on_the_emulated_device_the_hosts_profile_is_given_and_why() -> None:
    x = torch.ones(8, 8, device="npu")
    found = profile_of(lambda: x @ x, Npu(0, emulated=True))
    assert found.times_us["aten::mm"] > 0
    assert found.remarks == ("the profile is the host's: the emulated CANN has no profiler",)
