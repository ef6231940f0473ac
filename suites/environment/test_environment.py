"""The first things to check: there is a device, tensors can be copied, and a matrix product is right."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.run.reference import CpuReference

from . import FOUND


@pytest.mark.ascend_case(FOUND)
def test_device_found(npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    actual = torch.zeros(3, device=npu_device)
    assert actual.device == npu_device
    precision_compare(actual.cpu(), torch.zeros(3, dtype=torch.float64))


@pytest.mark.ascend_cases("environment", "round-trip")
def test_tensor_round_trip(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    dtype = getattr(torch, case.dtype)
    # What no other dtype can hold exactly: fractions, or the limits of the integer range.
    if dtype.is_floating_point:
        expected = inputs.normal(case.id, (64, 33), dtype=dtype)
    elif dtype is torch.bool:
        expected = inputs.normal(case.id, (64, 33)) > 0
    else:
        limits = torch.iinfo(dtype)
        expected = torch.tensor([limits.min, limits.max, 0, 1], dtype=dtype).repeat(16)
    precision_compare(expected.to(npu_device).cpu(), expected)


@pytest.mark.ascend_cases("environment", "forward")
def test_matmul_1000x1000(
    case: Case,
    npu_device: torch.device,
    _ascend_device: Device,
    cpu_reference: CpuReference,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
) -> None:
    dtype = getattr(torch, case.dtype)
    left, right = (inputs.normal(f"{case.id}/{side}", (1000, 1000), dtype=dtype) for side in ("left", "right"))
    on_device = left.to(npu_device), right.to(npu_device)
    expected = cpu_reference(torch.matmul, left, right)
    actual = torch.matmul(*on_device).cpu()
    ascend_measure("max_abs_error", float((actual.double() - expected).abs().max()))
    seconds = []
    for _ in range(3):  # the product above loaded or compiled its kernel
        start = time.perf_counter()
        torch.matmul(*on_device)
        _ascend_device.synchronize()
        seconds.append(time.perf_counter() - start)
    ascend_measure("latency_median_us", statistics.median(seconds) * 1e6)
    precision_compare(actual, expected, accumulation=1000)
