"""What is read of torch_npu.profiler is what the installed one writes."""

from __future__ import annotations

import csv
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch_npu.profiler.analysis.prof_view._operator_view_parser import OperatorViewParser

from pytest_ascend.device.npu import Npu, profiler
from pytest_ascend.performance.benchmarking import NAME_COLUMN, OPERATOR_TABLE, TIME_COLUMN, profile_of


def test_the_table_and_its_columns_are_torch_npus() -> None:
    assert OperatorViewParser.OPERATOR_VIEW == OPERATOR_TABLE
    assert {NAME_COLUMN, TIME_COLUMN} <= set(OperatorViewParser.OPERATOR_HEADERS)


def test_what_is_called_of_the_profiler_is_there() -> None:
    module = profiler()
    assert module.ProfilerActivity.NPU != module.ProfilerActivity.CPU
    assert callable(module.profile)
    assert callable(module.tensorboard_trace_handler)


def test_on_the_emulated_device_the_hosts_profile_is_given_and_why() -> None:
    x = torch.ones(8, 8, device="npu")
    found = profile_of(lambda: x @ x, Npu(0, emulated=True))
    assert found.times_us["aten::mm"] > 0
    assert found.remarks == ("the profile is the host's: an emulated device's times are the CPU's",)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    (found,) = folder.rglob(name)
    with found.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_torch_npus_parser_finds_each_call_with_its_name_shape_memory_and_operator(tmp_path: Path) -> None:
    x, graph = torch.randn(4, 16, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x.tanh()
    module = profiler()
    with module.profile(
        activities=[module.ProfilerActivity.CPU, module.ProfilerActivity.NPU],
        on_trace_ready=module.tensorboard_trace_handler(str(tmp_path)),
        record_shapes=True,
        profile_memory=True,
    ):
        for _ in range(10):
            z = torch.exp(x) + 1
        for _ in range(3):
            graph.replay()
        z.copy_(y)
    kernels = rows(tmp_path, "kernel_details.csv")
    assert Counter(row["Name"] for row in kernels if row["Name"] != "aclnnInplaceCopy") == {
        "aclnnExp": 10,
        "aclnnAdds": 10,
        "aclnnTanh": 3,
    }
    assert {row["Input Shapes"].strip('"') for row in kernels if row["Name"] == "aclnnExp"} == {"4,16"}
    assert [row["Start Time(us)"] for row in kernels] == sorted(row["Start Time(us)"] for row in kernels)
    operators = rows(tmp_path, "operator_details.csv")
    assert sum(row["Name"] == "aten::exp" and float(row["Device Self Duration(us)"]) >= 0 for row in operators) >= 10
    assert sum(float(row["Device Total Duration(us)"]) > 0 for row in operators if row["Name"] == "aten::exp") == 10
    assert "aten::exp" in {row["Name"] for row in rows(tmp_path, "operator_memory.csv")}
    (step,) = rows(tmp_path, "step_trace_time.csv")
    computing = sum(float(row["Duration(us)"]) for row in kernels)
    assert float(step["Computing"]) == pytest.approx(computing, rel=1e-3)
    assert float(step["Free"]) > 0
    assert float(step["Communication"]) == 0


def test_torchs_profiler_has_the_devices_kernels() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    x = torch.randn(4, 16, device="npu")
    with torch.profiler.profile(activities=activities) as found:
        for _ in range(4):
            torch.exp(x)
    on_npu = [each.name for each in found.events() if str(each.device_type) == "DeviceType.NPU"]
    assert on_npu.count("aclnnExp") == 4


def test_what_the_emulated_msprof_cannot_do_is_one_line(tmp_path: Path) -> None:
    for arguments in (["--application=x"], ["--export=on", f"--output={tmp_path}"], ["--export=on", "--type=db"]):
        done = subprocess.run(["msprof", *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert done.stderr.startswith("emulated CANN: ")
