"""Time of models, operators, copies, input pipelines and optimizers; batch sizes and memory of models."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
import torch

from pytest_ascend.device import Device, npu
from pytest_ascend.performance.benchmarking import AscendBenchmark, Work, leak, use_of
from pytest_ascend.performance.timing import Call
from pytest_ascend.performance.verdict import PLACES
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.system.dispatching import Watch

from ..models.computation import MODES
from ..runtime.rows import least_s
from . import AUGMENTATION, LAUNCH, PIPELINE, work
from .operators import rows
from .sizes import HOST, preparations, sizes_of
from .work import COPIES, OPTIMIZERS, PIPELINES, WORKS, inference, stepped

_torch: Any = torch  # with torch.npu, which torch_npu adds

#: Largest batch of a sweep, calls per batch size, and samples of an epoch.
LARGEST_BATCH, ROUNDS, SAMPLES = 1024, 3, 256


@pytest.mark.ascend_cases("benchmarks", *WORKS)
def test_model(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    sizes = sizes_of(_ascend_device)
    make = partial(WORKS[case.property], case.subject, MODES[case.dtype], sizes, sizes.batch)
    ascend_benchmark(make, Work(items=sizes.batch, dtype=case.dtype), budget_s=1.0 if sizes is HOST else 2.0)


@pytest.mark.ascend_cases("benchmarks", "batch-sizes")
def test_batch_sizes(case: Case, _ascend_device: Device, ascend_measure: Measure) -> None:
    found, ended_by_memory, batch, sizes = dict[int, float](), 0.0, 1, sizes_of(_ascend_device)
    while batch <= LARGEST_BATCH:
        try:
            call = inference(case.subject, MODES["float32"], sizes, batch, _ascend_device.torch_device())
            seconds = least_s(_ascend_device.synchronize, call, ROUNDS)
        except torch.OutOfMemoryError:
            ended_by_memory = 1.0
            break
        found[batch] = seconds
        if seconds * ROUNDS > sizes.patience_s:
            break
        batch *= 2
    assert found, "not even one sample fits"
    rates = [batch / seconds for batch, seconds in found.items()]
    ascend_measure("batch_size", [float(batch) for batch in found])
    ascend_measure("latency_by_batch_us", [seconds * 1e6 for seconds in found.values()])
    ascend_measure("throughput_by_batch_items_per_s", rates)
    ascend_measure("best_throughput_items_per_s", max(rates))
    ascend_measure("ended_by_memory", ended_by_memory)


@pytest.mark.ascend_cases("benchmarks", "memory")
def test_memory(case: Case, _ascend_device: Device, ascend_measure: Measure) -> None:
    """Check that a training step leaks no memory and allocates none on other devices."""
    if _ascend_device.kind == "cpu":
        raise NotImplementedError("torch does not tell how much memory tensors hold on the CPU")
    sizes = sizes_of(_ascend_device)
    step = work.training(case.subject, MODES["float32"], sizes, sizes.batch, _ascend_device.torch_device())
    use = use_of(step, _ascend_device, steps=sizes.steps)
    ascend_measure("items_per_call", sizes.batch)
    ascend_measure("peak_memory_bytes", use.peak_bytes)
    ascend_measure("steady_memory_bytes", use.by_step[-1])
    ascend_measure("memory_by_step_bytes", [float(each) for each in use.by_step])
    leaked = leak(use.by_step)
    assert not leaked, f"{leaked:.0f} bytes stay behind each step"
    assert not use.elsewhere, f"memory was taken on other devices: {use.elsewhere} (bytes by index)"


@pytest.mark.ascend_cases("benchmarks", "compiled")
def test_compiled(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    on_npu, sizes = _ascend_device.kind == "npu", sizes_of(_ascend_device)
    settings = {"backend": npu.compiler(emulated=_ascend_device.emulated)} if on_npu else {}
    compiled: Any = partial(torch.compile, **settings)
    prepared = partial(inference, case.subject, MODES["float32"], sizes, sizes.batch, prepare=compiled)
    ascend_benchmark(prepared, Work(items=sizes.batch), budget_s=2.0)


@pytest.mark.ascend_cases("benchmarks", "captured")
def test_captured(
    case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark, ascend_measure: Measure
) -> None:
    """Time replays of a captured inference, and measure the capture's time and memory and the time of eager calls."""
    if _ascend_device.kind != "npu":
        raise NotImplementedError("graphs are captured on NPUs only")
    sizes, on_npu = sizes_of(_ascend_device), _torch.npu

    def prepared(device: torch.device) -> Call:
        call = inference(case.subject, MODES["float32"], sizes, sizes.batch, device)
        if device.type == "cpu":  # the CPU, as a comparison for an emulated device
            return call
        eager_s = least_s(_ascend_device.synchronize, call, ROUNDS)
        on_npu.empty_cache()  # as the capture does, so that only its own memory is counted
        before, begin = on_npu.memory_reserved(device), time.perf_counter()
        graph = on_npu.NPUGraph()
        with on_npu.graph(graph):
            result = call()
        ascend_measure("capture_us", 1e6 * (time.perf_counter() - begin))
        ascend_measure("graph_memory_bytes", on_npu.memory_reserved(device) - before)
        ascend_measure("eager_us", 1e6 * eager_s)
        ascend_measure("eager_to_replay_ratio", eager_s / least_s(_ascend_device.synchronize, graph.replay, ROUNDS))
        launched: list[bool] = []  # without a graph, every operator that computes is launched
        with Watch(lambda func, _: launched.append(not getattr(func, "is_view", False))):
            call()
        ascend_measure("launches_saved", sum(launched) - 1)
        return lambda: (graph.replay(), result)

    ascend_benchmark(prepared, Work(items=sizes.batch), budget_s=1.0 if sizes is HOST else 2.0)


@pytest.mark.ascend_cases("benchmarks", "latency")
def test_operator(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    sizes, dtype = sizes_of(_ascend_device), getattr(torch, case.dtype)
    if case.subject == AUGMENTATION:
        ascend_benchmark(partial(work.augmentation, 4 * sizes.batch), Work(items=4 * sizes.batch))
        return
    row = next(each for each in rows(sizes) if each.name == case.subject)
    places = preparations(_ascend_device, row.held_bytes(dtype), PLACES)
    # If the device shares the host's processor, inputs at many addresses are used in rotation.
    ascend_benchmark(partial(row.make, dtype), row.work(dtype), budget_s=1.5, preparations=places)


@pytest.mark.ascend_case(LAUNCH)
def test_launch(ascend_benchmark: AscendBenchmark) -> None:
    """Time an operator on a tensor so small that only the launch takes time."""

    def prepared(device: torch.device) -> Call:
        x = torch.ones(4, 4, device=device)
        return lambda: torch.add(x, 1.0)

    ascend_benchmark(prepared, Work(items=1))


@pytest.mark.ascend_cases("benchmarks", "copy")
def test_copy(case: Case, ascend_benchmark: AscendBenchmark) -> None:
    row = COPIES[case.subject]
    ascend_benchmark(partial(work.copied, *row), Work(moved_bytes=row[0]), budget_s=0.5)


@pytest.mark.ascend_cases("benchmarks", "step")
def test_optimizer(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    kind, way = OPTIMIZERS[case.subject]
    if way == "fused" and _ascend_device.kind != "npu":
        raise NotImplementedError(f"torch_npu's fused optimizers need an NPU, and this is {_ascend_device.kind}")
    ascend_benchmark(partial(stepped, kind, way))


@pytest.mark.ascend_case(PIPELINE)
def test_input_pipeline(npu_device: torch.device, _ascend_device: Device, ascend_measure: Measure) -> None:
    """Time an epoch with each setting, and name the best one by its measurement."""
    rates = {}
    for workers, pinned, ahead, batch in PIPELINES:
        start, count = time.perf_counter(), 0
        for images in work.loaded(npu_device, SAMPLES, workers, pinned, ahead, batch):
            count += len(images)
        _ascend_device.synchronize()
        assert count == SAMPLES
        name = f"workers_{workers}_pinned_{pinned}_prefetch_{ahead}_batch_{batch}".lower()
        rates[name] = count / (time.perf_counter() - start)
        ascend_measure(f"{name}_samples_per_s", rates[name])
    ascend_measure(f"best_is_{max(rates, key=rates.__getitem__)}", 1.0)
