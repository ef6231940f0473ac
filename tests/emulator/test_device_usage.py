"""What people do with a device, whatever they compute: print, move, save, choose devices, count memory."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pytest_ascend import emulator
from tests.forks import emulated

from .both import FLOATS, INTEGERS, assert_identical, floats, integers

safetensors = pytest.importorskip("safetensors.torch")

PRINTED = [
    floats(3, 4),
    floats(3, 4, dtype=torch.float16),
    floats(3, 4, dtype=torch.bfloat16),
    floats(3, 4) > 0,
    integers(3, 4),
    torch.tensor(2.5),
    torch.tensor([]),
    torch.tensor([float("nan"), float("inf"), 1e9, -1e-9]),
    torch.arange(5000),
    torch.complex(floats(3), floats(3)),
    floats(2, 3).requires_grad_(),
]


@pytest.mark.parametrize("tensor", PRINTED)
def test_printing(tensor: torch.Tensor) -> None:
    printed, expected = repr(tensor.npu()), repr(tensor.detach())
    assert "device='npu:0'" in printed
    assert printed.split("]")[0] == expected.split("]")[0].removesuffix(")") or tensor.dim() == 0


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.float64, torch.complex64])
def test_there_and_back(dtype: torch.dtype) -> None:
    values = integers(3, 4).to(dtype)
    assert_identical(values.npu(), values)
    assert_identical(values.to("npu:1"), values)
    assert_identical(values.npu().to("npu:1").to("npu:0"), values)
    assert_identical(values.npu().to("cpu"), values)
    assert values.npu().tolist() == values.tolist()
    assert values.npu()[1, 2].item() == values[1, 2].item()


def test_a_tensor_that_is_there_is_not_copied() -> None:
    values = floats(3).npu()
    assert values.npu() is values
    assert values.to("npu:0") is values
    assert values.is_npu
    assert floats(3).to(values).device == values.device


@pytest.mark.parametrize("offset", [0, 3])
def test_views_are_moved_as_they_look(offset: int) -> None:
    view = floats(6, 8).t()[1:5:2, offset:]
    assert_identical(view.npu(), view)
    assert_identical(floats(6, 8).npu().t()[1:5:2, offset:], view)
    assert_identical(floats(6, 8).npu().t()[1:5:2, offset:].contiguous(), view)
    target = torch.zeros(8, 6).npu()
    target[1:5:2, offset:] = view
    expected = torch.zeros(8, 6)
    expected[1:5:2, offset:] = view
    assert_identical(target, expected)
    assert_identical(torch.zeros(view.shape).copy_(view.npu()), view)


def test_channels_last_stays() -> None:
    image = floats(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_identical(image.npu(), image)
    assert image.npu().stride() == image.stride()


def test_pinned_memory_and_copies_that_do_not_block() -> None:
    pinned = floats(3, 4).pin_memory()
    assert pinned.is_pinned()
    assert not floats(3, 4).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    moved = pinned.to("npu", non_blocking=True)
    back = torch.empty(3, 4, pin_memory=True).copy_(moved, non_blocking=True)
    torch.npu.synchronize()
    assert_identical(back, floats(3, 4))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_pins(workers: int) -> None:
    loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=4, pin_memory=True, num_workers=workers)
    assert [batch.npu(non_blocking=True).sum().item() for (batch,) in loader] == [6, 22, 17]


def test_numpy() -> None:
    values = floats(3, 4)
    assert_identical(torch.from_numpy(values.numpy()).npu(), values)
    with pytest.raises(TypeError, match="copy the tensor to host memory"):
        values.npu().numpy()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")  # which torch_npu uses
def test_copies_of_objects() -> None:
    values = floats(3, 4).npu()
    assert_identical(pickle.loads(pickle.dumps(values)), floats(3, 4))  # noqa: S301  our own bytes
    assert_identical(copy.deepcopy(values), floats(3, 4))
    parameter = torch.nn.Parameter(values)
    assert copy.deepcopy(parameter).requires_grad


# --- checkpoints ---


def _trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    model(floats(5, 4).npu()).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_checkpoint_is_taken_up_again(tmp_path: Path) -> None:
    model, optimizer = _trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.npu.get_rng_state()}
    torch.save(state, tmp_path / "checkpoint.pt")
    loaded = torch.load(tmp_path / "checkpoint.pt")
    assert all(tensor.device.type == "npu" for tensor in loaded["model"].values())
    optimizer.load_state_dict(loaded["optimizer"])
    torch.npu.set_rng_state(loaded["random"])
    fresh = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    fresh.load_state_dict(loaded["model"])
    for name, tensor in fresh.state_dict().items():
        assert_identical(model.state_dict()[name], tensor, name)


@pytest.mark.parametrize(
    ("location", "device"), [("cpu", "cpu"), ("npu:1", "npu:1"), ({"npu:0": "npu:1"}, "npu:1"), (None, "npu:0")]
)
def test_where_a_checkpoint_is_loaded_to(tmp_path: Path, location: Any, device: str) -> None:
    torch.save(floats(3, 4).npu(), tmp_path / "tensor.pt")
    loaded = torch.load(tmp_path / "tensor.pt", map_location=location)
    assert loaded.device == torch.device(device)
    assert_identical(loaded, floats(3, 4))


def test_a_checkpoint_of_the_cpu_is_loaded_to_the_device(tmp_path: Path) -> None:
    torch.save({"x": floats(3, 4)}, tmp_path / "tensor.pt")
    assert_identical(torch.load(tmp_path / "tensor.pt", map_location="npu")["x"], floats(3, 4))


def test_safetensors(tmp_path: Path) -> None:
    safetensors.save_file({"x": floats(3, 4).npu()}, tmp_path / "x.safetensors")
    loaded = safetensors.load_file(tmp_path / "x.safetensors", device="npu:0")["x"]
    assert loaded.device == torch.device("npu:0")
    assert_identical(loaded, floats(3, 4))


# --- devices ---


def test_devices() -> None:
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 2
    assert torch.npu.get_device_name(0) == "Ascend910B1"
    assert torch.accelerator.current_accelerator() == torch.device("npu")


def test_the_current_device() -> None:
    with torch.npu.device(1):
        assert torch.npu.current_device() == 1
        assert torch.ones(2, device="npu").device == torch.device("npu:1")
    torch.npu.set_device(1)
    try:
        assert floats(2).npu().device == torch.device("npu:1")
        assert (floats(2, 3).npu() @ floats(3, 2).npu()).device == torch.device("npu:1")
    finally:
        torch.npu.set_device(0)
    assert torch.npu.current_device() == 0


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(RuntimeError):
        torch.ones(2, device="npu:7")


def test_a_model_on_two_devices() -> None:
    first, second = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)
    expected = second(first(floats(5, 4)))
    expected.sum().backward()
    gradient = first.weight.grad
    first.zero_grad()
    actual = second.to("npu:1")(first.to("npu:0")(floats(5, 4).to("npu:0")).to("npu:1"))
    actual.sum().backward()
    assert_identical(actual, expected)
    assert_identical(first.weight.grad, gradient)


def test_the_default_device() -> None:
    torch.set_default_device("npu")
    try:
        assert torch.ones(3).device.type == "npu"
        assert torch.randn(3, 3).matmul(torch.eye(3)).device.type == "npu"
    finally:
        torch.set_default_device(None)
    with torch.device("npu:1"):
        assert torch.nn.Linear(2, 2).weight.device == torch.device("npu:1")


def test_streams_and_events() -> None:
    stream, start, end = torch.npu.Stream(), torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    with torch.npu.stream(stream):
        total = floats(100, 100).npu().sum()
    torch.npu.current_stream().wait_stream(stream)
    end.record()
    torch.npu.synchronize()
    assert start.elapsed_time(end) >= 0
    assert end.query()
    assert_identical(total, floats(100, 100).sum())


def test_memory_is_counted() -> None:
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    block = torch.empty(1 << 20, device="npu")
    assert torch.npu.memory_allocated() - before >= 4 << 20
    del block
    assert torch.npu.memory_allocated() == before
    assert torch.npu.max_memory_allocated() >= before + (4 << 20)
    free, total = torch.npu.mem_get_info()
    assert torch.npu.get_device_properties().total_memory == total
    assert 0 < free <= total
    torch.npu.empty_cache()


def test_too_much_memory_is_the_error_that_users_know() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(1 << 40, device="npu")
    assert torch.ones(3, device="npu").sum().item() == 3


def test_the_cann_says_its_release() -> None:
    utils = torch.npu.utils
    assert utils.get_cann_version() == utils.get_cann_version("RUNTIME") == emulator.EmulatorSettings().resolved().cann


def test_with_a_new_cann_integers_are_clamped_to_fractions() -> None:
    x = torch.tensor([0, 1, 2, 3])
    assert_identical(torch.clamp(x.npu(), 0.5, 2.5), torch.clamp(x, 0.5, 2.5))


#: What is called once a backward is over is called with the streams of all devices whose context is active. The program
#: ends at once: torch's thread may still let go of the Python function, which ends a closing Python 3.11 (SIGABRT).
BACKWARD = """
import os, torch, torch_npu
engine = torch.autograd.Variable._execution_engine
class Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, grad):
        engine.queue_callback(lambda: print("over"))
        return grad
x = torch.ones(3, device="npu:0", requires_grad=True)
Last.apply(x).sum().backward()
active = [torch_npu._C._npu_hasPrimaryContext(index) for index in (0, 1)]
torch.ones(3, device="npu:1")
print(x.grad.tolist(), active, torch_npu._C._npu_hasPrimaryContext(1), flush=True)
os._exit(0)
"""


def test_a_backward_ends_where_a_device_was_never_set(tmp_path: Path) -> None:
    """Torch_npu ends the process where the stream of such a device is asked for."""
    assert emulated(BACKWARD, tmp_path, devices=2) == "over\n[1.0, 1.0, 1.0] [True, False] True\n"


def test_what_is_changed_in_place_must_have_room() -> None:
    with pytest.raises(RuntimeError, match="CheckShape failed") as caught:
        torch.ones(2, 1).npu().lerp_(torch.ones(2, 6).npu(), 1)
    assert "161002" in str(caught.value)


@pytest.mark.parametrize(("given", "said"), [("8.1.RC1", "8.1.RC1"), ("8.0.0", "")])
def test_a_program_may_run_on_another_cann(given: str, said: str, tmp_path: Path) -> None:
    program = (
        "import torch, torch_npu; print(repr(torch.npu.utils.get_cann_version()), torch.ones(2).npu().add(1).tolist())"
    )
    assert emulated(program, tmp_path, cann=given) == f"{said!r} [2.0, 2.0]\n"


def test_memory_of_the_host_is_registered_once_and_unregistered() -> None:
    npurt = getattr(torch.npu, "npurt", None)
    if npurt is None:
        pytest.skip("this torch_npu cannot register memory of the host")
    runtime, x, pinned, mapped = npurt(), torch.ones(4096), 0x10000000, 0x2
    for flag in (pinned, mapped, pinned | mapped):
        assert runtime.npuHostRegister(x.data_ptr(), x.nbytes, flag) == 0
        assert runtime.npuHostUnregister(x.data_ptr()) == 0
        assert runtime.npuHostUnregister(x.data_ptr()) != 0
    assert runtime.npuHostRegister(x.data_ptr(), 0, pinned) != 0
    assert runtime.npuHostRegister(x.data_ptr(), x.nbytes, 0) != 0


def test_memory_shared_by_processes_is_refused_by_its_name() -> None:
    storage: Any = torch.ones(2, device="npu").untyped_storage()
    with pytest.raises(RuntimeError, match="emulated CANN: the function aclrtIpcMemGetExportKey is not emulated"):
        storage._share_npu_()
