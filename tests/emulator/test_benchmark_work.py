"""What the benchmarks time is the same work in each of its ways, on the device and as a peer on the CPU."""

from __future__ import annotations

import pytest
import torch

from suites.benchmarks.host_work import OPTIMIZERS, OptimizerVariant

NPU = torch.device("npu")


def stepped(row: OptimizerVariant, device: torch.device) -> list[torch.Tensor]:
    step = row.make(device)
    for _ in range(3):
        step()
    optimizer = step.__self__  # type: ignore[attr-defined]
    return [each.detach().cpu() for group in optimizer.param_groups for each in group["params"]]


@pytest.mark.parametrize("row", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_does_the_same_on_the_device_as_its_peer(row: OptimizerVariant) -> None:
    actual, expected = stepped(row, NPU), stepped(row, torch.device("cpu"))
    assert len(actual) == 64
    assert not torch.equal(actual[0], torch.ones(128, 128))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_the_fused_ways_are_torch_npus() -> None:
    names = {type(row.make(NPU).__self__).__name__ for row in OPTIMIZERS.values() if row.fused}  # type: ignore[attr-defined]
    assert names == {"NpuFusedSGD", "NpuFusedAdamW"}
