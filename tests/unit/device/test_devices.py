"""The devices that every machine has, or shows to lack."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from pytest_ascend.device import Cpu, Device, npu, open_cuda
from pytest_ascend.device.npu import Npu
from pytest_ascend.errors import DeviceUnavailable
from pytest_ascend.system.programs import MARK, Reply


def test_the_cpu_is_a_device() -> None:
    device: Device = Cpu()
    device.synchronize()
    device.reset_peak_memory()
    assert device.torch_device() == torch.device("cpu")
    assert device.peak_memory_bytes() == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(DeviceUnavailable, match="sees 0 CUDA devices"):
        open_cuda(0)


def test_another_process_names_the_gpus_and_nothing_rounds_to_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Reply(text=f'a warning\n{MARK}["one", "two"]\n')
    monkeypatch.setattr("pytest_ascend.device.run", lambda *_: names)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    device, name = open_cuda(1)
    assert (device.label, name) == ("cuda:1", "two")
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.cuda.is_initialized()  # or no process forked from this one could use it


@pytest.mark.parametrize(("emulated", "label"), [(False, "npu:1"), (True, "emulated npu:1")])
def test_an_emulated_npu_says_so_in_its_label(*, emulated: bool, label: str) -> None:
    device: Device = Npu(1, emulated=emulated)
    assert device.label == label


def test_what_torch_compile_goes_through_is_torchairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchair", SimpleNamespace(get_npu_backend=lambda: "its backend"))
    assert npu.compiler(emulated=False) == "its backend"


def test_without_torchair_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchair", None)
    with pytest.raises(NotImplementedError, match="torchair, which cannot be loaded"):
        npu.compiler(emulated=False)
    with pytest.raises(NotImplementedError, match="torchair is not emulated"):
        npu.compiler(emulated=True)
