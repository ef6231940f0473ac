"""Copies, input pipelines, augmentation and optimizers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.performance.benchmarking import AscendBenchmark, Work
from pytest_ascend.records.case import Case

from . import AUGMENTATION, COPY_RUNS, OPTIMIZER_RUNS, PIPELINE
from .host_work import PIPELINES, Pipeline, augmentation
from .sizes import sizes_of

SAMPLES = 256


@pytest.mark.parametrize("case", COPY_RUNS, ids=lambda case: case.id)
def test_copy(case: Case, ascend_benchmark: AscendBenchmark) -> None:
    row = COPY_RUNS[case]
    ascend_benchmark(row.make, Work(moved_bytes=row.size_bytes), budget_s=0.5)


@pytest.mark.parametrize("case", OPTIMIZER_RUNS, ids=lambda case: case.id)
def test_optimizer(case: Case, ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    row = OPTIMIZER_RUNS[case]
    if row.fused and ascend_device.kind != "npu":
        raise NotImplementedError(f"torch_npu's fused optimizers need an NPU, and this is {ascend_device.kind}")
    ascend_benchmark(row.make)


@pytest.mark.ascend_case(AUGMENTATION)
def test_augmentation(ascend_device: Device, ascend_benchmark: AscendBenchmark) -> None:
    batch = 4 * sizes_of(ascend_device).batch
    ascend_benchmark(augmentation(batch), Work(items=batch))


@pytest.mark.ascend_case(PIPELINE)
def test_input_pipeline(
    npu_device: torch.device, ascend_device: Device, ascend_measure: Callable[[str, float | Sequence[float]], None]
) -> None:
    """Time an epoch under each setting, and name the best by its measurement."""
    rates = {each: _samples_per_s(each, npu_device, ascend_device) for each in PIPELINES}
    for pipeline, rate in rates.items():
        ascend_measure(f"{pipeline.name}_samples_per_s", rate)
    ascend_measure(f"best_is_{max(rates, key=rates.__getitem__).name}", 1.0)


def _samples_per_s(pipeline: Pipeline, device: torch.device, synchronized: Device) -> float:
    start, count = time.perf_counter(), 0
    for images in pipeline.samples_to(device, SAMPLES):
        count += len(images)
    synchronized.synchronize()
    assert count == SAMPLES
    return count / (time.perf_counter() - start)
