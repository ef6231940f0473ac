"""What the benchmarks time is the same work in each of its ways, on the device and as a peer on the CPU."""

from __future__ import annotations

import pytest
import torch

from suites.benchmarks.work import OPTIMIZERS, stepped

NPU = torch.device("npu")


def after_steps(name: str, device: torch.device) -> list[torch.Tensor]:
    step = stepped(*OPTIMIZERS[name], device)
    for _ in range(3):
        step()
    optimizer = step.__self__  # type: ignore[attr-defined]
    return [each.detach().cpu() for group in optimizer.param_groups for each in group["params"]]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_does_the_same_on_the_device_as_its_peer(name: str) -> None:
    actual, expected = after_steps(name, NPU), after_steps(name, torch.device("cpu"))
    assert len(actual) == 64
    assert not torch.equal(actual[0], torch.ones(128, 128))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_the_fused_ways_are_torch_npus() -> None:
    made = {name: type(stepped(*row, NPU).__self__).__name__ for name, row in OPTIMIZERS.items()}  # type: ignore[attr-defined]
    assert {name: each for name, each in made.items() if each.startswith("Npu")} == {
        "sgd-fused": "NpuFusedSGD",
        "adamw-fused": "NpuFusedAdamW",
    }
