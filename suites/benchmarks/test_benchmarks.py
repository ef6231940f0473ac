"""Time of models, operators, copies, input pipelines and optimizers; batch sizes and memory of models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from pytest_ascend.device import Device, npu
from pytest_ascend.performance.benchmarking import AscendBenchmark, Work, leak, use_of
from pytest_ascend.performance.timing import Call
from pytest_ascend.performance.verdict import PLACES
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.system.dispatching import EagerDispatchMode

from . import AUGMENTATION, LAUNCH, PIPELINE
from .host_work import COPIES, OPTIMIZERS, PIPELINES, augmentation, samples_to
from .models import MODES, WORKS, batch_of, inference, model_of, training
from .operators import BY_NAME
from .sizes import HOST, preparations, sizes_of

_torch: Any = torch  # with torch.npu, which torch_npu adds

#: Largest batch of a sweep, and calls of each batch.
LARGEST_BATCH, ROUNDS = 1024, 3


@pytest.mark.ascend_cases("benchmarks", *WORKS)
def test_model(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    sizes = sizes_of(_ascend_device)
    make = WORKS[case.property](case.subject, MODES[case.dtype], sizes, sizes.batch)
    ascend_benchmark(make, Work(items=sizes.batch, dtype=case.dtype), budget_s=1.0 if sizes is HOST else 2.0)


@pytest.mark.ascend_cases("benchmarks", "batch-sizes")
def test_batch_sizes(case: Case, _ascend_device: Device, ascend_measure: Measure) -> None:
    """Double the batch until memory or time runs out, and report the largest."""
    found: list[tuple[int, float]] = []
    ended_by_memory, batch, sizes = 0.0, 1, sizes_of(_ascend_device)
    while batch <= LARGEST_BATCH:
        try:
            make = inference(case.subject, MODES["float32"], sizes, batch)
            seconds = _quickest_call_s(make(_ascend_device.torch_device()), _ascend_device)
        except torch.OutOfMemoryError:
            ended_by_memory = 1.0
            break
        found.append((batch, seconds))
        if seconds * ROUNDS > sizes.patience_s:
            break
        batch *= 2
    ascend_measure("batch_size", [float(batch) for batch, _ in found])
    ascend_measure("latency_by_batch_us", [seconds * 1e6 for _, seconds in found])
    ascend_measure("throughput_by_batch_items_per_s", [batch / seconds for batch, seconds in found])
    ascend_measure("best_throughput_items_per_s", max(batch / seconds for batch, seconds in found))
    ascend_measure("ended_by_memory", ended_by_memory)
    assert found, "not even one sample fits"


def _quickest_call_s(call: Call, device: Device) -> float:
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        call()
        device.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


@pytest.mark.ascend_cases("benchmarks", "memory")
def test_memory(case: Case, _ascend_device: Device, ascend_measure: Measure) -> None:
    """A training step leaks no memory, and takes none from other devices."""
    if _ascend_device.kind == "cpu":
        raise NotImplementedError("torch does not tell how much memory tensors hold on the CPU")
    sizes = sizes_of(_ascend_device)
    step = training(case.subject, MODES["float32"], sizes, sizes.batch)(_ascend_device.torch_device())
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
    on_npu = _ascend_device.kind == "npu"
    settings = {"backend": npu.compiler(emulated=_ascend_device.emulated)} if on_npu else {}
    sizes = sizes_of(_ascend_device)

    def prepared(device: torch.device) -> Callable[[], object]:
        model = torch.compile(model_of(case.subject, sizes).eval().to(device), **settings)
        x = batch_of(case.subject, sizes, sizes.batch).to(device)

        def call() -> object:
            with torch.no_grad():
                return model(x)

        return call

    ascend_benchmark(prepared, Work(items=sizes.batch), budget_s=2.0)


class _Launches(EagerDispatchMode):
    """Counts the operators that compute, which are launched one by one without a graph."""

    calls = 0

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.calls += not getattr(func, "is_view", False)
        return func(*args, **kwargs)


@pytest.mark.ascend_cases("benchmarks", "captured")
def test_captured(
    case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark, ascend_measure: Measure
) -> None:
    """Replays of a captured inference; beside them the capture's time and memory, and what eager calls take."""
    if _ascend_device.kind != "npu":
        raise NotImplementedError("graphs are captured on NPUs only")
    sizes, on_npu = sizes_of(_ascend_device), _torch.npu
    work = inference(case.subject, MODES["float32"], sizes, sizes.batch)

    def prepared(device: torch.device) -> Call:
        call = work(device)
        if device.type == "cpu":  # beside an emulated device, to compare with
            return call
        eager_s = _quickest_call_s(call, _ascend_device)
        on_npu.empty_cache()  # as the capture does, whose own memory is asked for
        before, begin = on_npu.memory_reserved(device), time.perf_counter()
        graph = on_npu.NPUGraph()
        with on_npu.graph(graph):
            result = call()
        ascend_measure("capture_us", 1e6 * (time.perf_counter() - begin))
        ascend_measure("graph_memory_bytes", on_npu.memory_reserved(device) - before)
        ascend_measure("eager_us", 1e6 * eager_s)
        ascend_measure("eager_to_replay_ratio", eager_s / _quickest_call_s(graph.replay, _ascend_device))
        with _Launches() as counted:
            call()
        ascend_measure("launches_saved", counted.calls - 1)
        return lambda: (graph.replay(), result)

    ascend_benchmark(prepared, Work(items=sizes.batch), budget_s=1.0 if sizes is HOST else 2.0)


@pytest.mark.ascend_cases("benchmarks", "latency")
def test_operator(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    sizes, dtype = sizes_of(_ascend_device), getattr(torch, case.dtype)
    if case.subject == AUGMENTATION:
        ascend_benchmark(augmentation(4 * sizes.batch), Work(items=4 * sizes.batch))
        return
    row = BY_NAME[case.subject]
    places = preparations(_ascend_device, row.held_bytes(sizes, dtype), PLACES)
    # If the device shares the host's processor, inputs at many addresses are used in turn.
    ascend_benchmark(row.make(sizes, dtype), row.work(sizes, dtype), budget_s=1.5, preparations=places)


@pytest.mark.ascend_case(LAUNCH)
def test_launch(ascend_benchmark: AscendBenchmark) -> None:
    """A tensor so small that only the launch takes time."""

    def prepared(device: torch.device) -> Call:
        x = torch.ones(4, 4, device=device)
        return lambda: torch.add(x, 1.0)

    ascend_benchmark(prepared, Work(items=1))


SAMPLES = 256


@pytest.mark.ascend_cases("benchmarks", "copy")
def test_copy(case: Case, ascend_benchmark: AscendBenchmark) -> None:
    row = COPIES[case.subject]
    ascend_benchmark(row.make, Work(moved_bytes=row.size_bytes), budget_s=0.5)


@pytest.mark.ascend_cases("benchmarks", "step")
def test_optimizer(case: Case, _ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    row = OPTIMIZERS[case.subject]
    if row.fused and _ascend_device.kind != "npu":
        raise NotImplementedError(f"torch_npu's fused optimizers need an NPU, and this is {_ascend_device.kind}")
    ascend_benchmark(row.make)


@pytest.mark.ascend_case(PIPELINE)
def test_input_pipeline(npu_device: torch.device, _ascend_device: Device, ascend_measure: Measure) -> None:
    """Time an epoch under each setting, and name the best by its measurement."""
    rates = {}
    for workers, pinned, ahead, batch in PIPELINES:
        start, count = time.perf_counter(), 0
        for images in samples_to(npu_device, SAMPLES, workers=workers, pinned=pinned, ahead=ahead, batch=batch):
            count += len(images)
        _ascend_device.synchronize()
        assert count == SAMPLES
        name = f"workers_{workers}_pinned_{pinned}_prefetch_{ahead}_batch_{batch}".lower()
        rates[name] = count / (time.perf_counter() - start)
        ascend_measure(f"{name}_samples_per_s", rates[name])
    ascend_measure(f"best_is_{max(rates, key=rates.__getitem__)}", 1.0)
