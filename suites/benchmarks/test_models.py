"""How long models take, for which batch sizes, in how much memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_ascend.device import Device, npu
from pytest_ascend.performance.benchmarking import AscendBenchmark, Work
from pytest_ascend.performance.memory import use_of
from pytest_ascend.records.case import Case

from . import COMPILED, MEMORY, MODEL_RUNS, SWEEPS
from .models import MODES, WORKS, batch_of, inference, model_of, training
from .sizes import HOST, sizes_of

Measure = Callable[[str, float | Sequence[float]], None]

#: Largest batch of a sweep, and how long one batch size may take before larger ones are left out.
LARGEST_BATCH, PATIENCE_S = 1024, 2.0
ROUNDS, STEPS = 3, 20


@pytest.mark.parametrize("case", MODEL_RUNS, ids=lambda case: case.id)
def test_model(case: Case, ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    model, work, dtype = MODEL_RUNS[case]
    sizes = sizes_of(ascend_device)
    make = WORKS[work](model, MODES[dtype], sizes, sizes.batch)
    ascend_benchmark(make, Work(items=sizes.batch, dtype=dtype), budget_s=1.0 if sizes is HOST else 2.0)


@pytest.mark.parametrize("case", SWEEPS, ids=lambda case: case.id)
def test_batch_sizes(case: Case, ascend_device: Device, ascend_measure: Measure) -> None:
    """Double the batch until memory or patience ends, and say which."""
    found: list[tuple[int, float]] = []
    ended_by_memory, batch = 0.0, 1
    while batch <= LARGEST_BATCH:
        try:
            seconds = _quickest_s(SWEEPS[case], batch, ascend_device)
        except torch.OutOfMemoryError:
            ended_by_memory = 1.0
            break
        found.append((batch, seconds))
        if seconds * ROUNDS > PATIENCE_S:
            break
        batch *= 2
    ascend_measure("batch_size", [float(batch) for batch, _ in found])
    ascend_measure("latency_by_batch_us", [seconds * 1e6 for _, seconds in found])
    ascend_measure("throughput_by_batch_items_per_s", [batch / seconds for batch, seconds in found])
    ascend_measure("best_throughput_items_per_s", max(batch / seconds for batch, seconds in found))
    ascend_measure("ended_by_memory", ended_by_memory)
    assert found, "not even one sample fits"


def _quickest_s(model: str, batch: int, device: Device) -> float:
    call = inference(model, MODES["float32"], sizes_of(device), batch)(device.torch_device())
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        call()
        device.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


@pytest.mark.parametrize("case", MEMORY, ids=lambda case: case.id)
def test_memory(case: Case, ascend_device: Device, ascend_measure: Measure) -> None:
    """A training step leaves nothing behind, and takes nothing from other devices."""
    if ascend_device.kind == "cpu":
        raise NotImplementedError("torch does not tell how much memory tensors hold on the CPU")
    sizes = sizes_of(ascend_device)
    step = training(MEMORY[case], MODES["float32"], sizes, sizes.batch)(ascend_device.torch_device())
    use = use_of(step, ascend_device, steps=STEPS)
    ascend_measure("items_per_call", sizes.batch)
    ascend_measure("peak_memory_bytes", use.peak_bytes)
    ascend_measure("steady_memory_bytes", use.steady_bytes)
    ascend_measure("memory_by_step_bytes", [float(each) for each in use.by_step])
    assert not use.leaked_bytes_per_step, f"{use.leaked_bytes_per_step:.0f} bytes stay behind each step"
    assert not use.elsewhere, f"memory was taken on other devices: {use.elsewhere} (bytes by index)"


@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.id)
def test_compiled(case: Case, ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    on_npu = ascend_device.kind == "npu"
    settings = {"backend": npu.compiler(emulated=ascend_device.emulated)} if on_npu else {}
    sizes = sizes_of(ascend_device)

    def prepared(device: torch.device) -> Callable[[], object]:
        model = torch.compile(model_of(COMPILED[case], sizes).eval().to(device), **settings)
        x = batch_of(COMPILED[case], sizes, sizes.batch).to(device)

        def call() -> object:
            with torch.no_grad():
                return model(x)

        return call

    ascend_benchmark(prepared, Work(items=sizes.batch), budget_s=2.0)
