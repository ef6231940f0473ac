"""What people do to images on the device, and to programs that were written for CUDA."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_ascend.parity.ensemble import one_thread, reference
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES_OF_AUGMENTATION, CASES_OF_PIPELINE, MIGRATION, cuda_program
from .augmentation import AUGMENT
from .pipeline import WORKERS, Augmented, bits, epochs, expected

#: Runs a program unchanged, after torch_npu has put itself in CUDA's place. As everywhere in the suites, float32 is
#: to be computed as float32: by default a chip rounds the inputs of convolutions to HF32, and the curve is 1e-4 off.
MIGRATED = """
import runpy, sys, torch, torch_npu
from torch_npu.contrib import transfer_to_npu
torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False
runpy.run_path(sys.argv[1], run_name="__main__")
"""

#: Starting torch and an NPU takes up to a minute on a busy machine.
LIMIT_S = 300


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_AUGMENTATION],
)
def test_augmentation(name: str, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    images = inputs.uniform("adaptation/images", (2, 3, 32, 32), low=0.0, high=1.0)
    actual = AUGMENT[name](images.to(npu_device))
    precision_compare(actual, AUGMENT[name](images.double()), honest=AUGMENT[name](images), name=name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_PIPELINE],
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # more workers than the machine has cores
def test_input_pipeline(name: str, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    """Whoever makes the samples, they are the same bits, in the same order."""
    data = Augmented()
    actual = epochs(data, WORKERS[name], npu_device)
    precision_compare(bits(actual), bits(expected(data.__getitem__)), name=name)


@pytest.mark.ascend_case(MIGRATION)
def test_automatic_migration(
    npu_device: torch.device,
    precision_compare: PrecisionCompare,
    ascend_measure: Callable[[str, float | list[float]], None],
) -> None:
    if npu_device.type != "npu":
        raise NotImplementedError(f"automatic migration to {npu_device.type} is not supported: it is torch_npu's own")
    command = [sys.executable, "-c", MIGRATED, str(Path(cuda_program.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)  # noqa: S603
    lines = [line for line in done.stdout.splitlines() if line.startswith("losses: ")]
    if done.returncode or not lines:
        raise RuntimeError(f"the program ended with {done.returncode} under transfer_to_npu:\n{done.stderr[-4000:]}")
    losses = json.loads(lines[0].removeprefix("losses: "))
    with one_thread():
        right = reference(cuda_program.make_model(), _trained, _trained)
    ascend_measure("loss_actual", losses)
    ascend_measure("loss_expected", right.expected("curve")["losses"].tolist())
    for end, values in zip(("loss_low", "loss_high"), right.spread("curve", "losses"), strict=True):
        ascend_measure(end, values)
    actual = torch.tensor(losses, dtype=torch.float32)
    precision_compare({"losses": actual}, right.expected("curve"), honest=right.samples("curve"), name="curve")


def _trained(model: torch.nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    images, targets = cuda_program.make_batch()
    dtype = next(model.parameters()).dtype
    losses = cuda_program.train(model, images.to(dtype), targets)
    return {"curve": {"losses": torch.tensor(losses, dtype=dtype)}}
