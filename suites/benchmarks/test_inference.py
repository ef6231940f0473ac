"""How long inference takes, from the call until the device is done; and that what it gave in that time is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.device import Device
from pytest_ascend.golden import GoldenStore
from pytest_ascend.run.comparing import PrecisionCompare

from ..models.computation import BATCH, MODES, make
from ..models.goldens import expected, honest
from ..models.weights import images
from .catalogue import RESNET50_INFERENCE

ROUNDS, WARM_UPS = 10, 3


@pytest.mark.ascend_case(RESNET50_INFERENCE)
def test_resnet50_inference(
    npu_device: torch.device,
    ascend_device: Device,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
    ascend_measure: Callable[[str, float], None],
    benchmark: Any,  # pytest-benchmark has no annotations
) -> None:
    model, x = make("resnet50", MODES["float32"], npu_device).eval(), images(BATCH).to(npu_device)

    def infer() -> Tensor:
        logits: Tensor = model(x)
        ascend_device.synchronize()
        return logits

    ascend_device.synchronize()
    with torch.no_grad():
        logits = benchmark.pedantic(infer, rounds=ROUNDS, warmup_rounds=WARM_UPS)
    if benchmark.stats is not None:  # pytest-benchmark is switched off under xdist, and by --benchmark-disable
        median_s = benchmark.stats.stats.median
        ascend_measure("latency_median_us", median_s * 1e6)
        ascend_measure("throughput_images_per_s", BATCH / median_s)
    right = expected(golden_store, "resnet50", "forward")
    allowed_by = honest(golden_store, "resnet50", "float32", "forward")
    precision_compare({"logits": logits.cpu()}, right, honest=allowed_by, name="forward")
