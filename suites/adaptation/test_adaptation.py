"""Images processed on the device, programs written for CUDA, and models rewritten or exported."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_ascend import precision
from pytest_ascend.device import Device
from pytest_ascend.golden import GoldenStore
from pytest_ascend.parity.ensemble import reference
from pytest_ascend.precision.kernel_fallbacks import cann_formulas
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.dispatching import one_thread

from ..models import goldens
from ..models.computation import BATCH, MODES, images, make
from . import CASES, cuda_program
from .export import LIBRARY, by_ascendcl, by_onnxruntime, find_atc, lacking, to_om, to_onnx
from .pipeline import AUGMENT, WORKERS, Augmented, bits, epochs, expected
from .rewritten import ORIGINALS, SLIPS, RewrittenViT, names

#: Runs a program unchanged, after torch_npu has replaced CUDA. As in all suites, HF32 is off: by default a chip
#: rounds the inputs of convolutions to HF32, and the curve differs by 1e-4.
MIGRATED = """
import runpy, sys, torch, torch_npu
from torch_npu.contrib import transfer_to_npu
torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False
runpy.run_path(sys.argv[1], run_name="__main__")
"""

#: Starting torch and an NPU takes up to a minute on a busy machine.
LIMIT_S = 300


@pytest.mark.ascend_cases("adaptation", *AUGMENT)
def test_augmentation(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    images = inputs.uniform("adaptation/images", (2, 3, 32, 32), low=0.0, high=1.0)
    augment = AUGMENT[case.property]
    actual = augment(images.to(npu_device))
    precision_compare(actual, augment(images.double()), reference_runs=augment(images), name=case.property)


@pytest.mark.ascend_cases("adaptation", *WORKERS)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # more workers than the machine has cores
def test_input_pipeline(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    """Check that samples have the same bits, in the same order, whatever the workers."""
    data = Augmented()
    actual = epochs(data, WORKERS[case.property], npu_device)
    precision_compare(bits(actual), bits(expected(data.__getitem__)), name=case.property)


@pytest.mark.ascend_case(CASES[-1])
def test_automatic_migration(
    npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
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
    actual = torch.tensor(losses, dtype=torch.float32)
    for name, values in right.losses(actual):
        ascend_measure(name, values)
    precision_compare({"losses": actual}, right.expected("curve"), reference_runs=right.samples("curve"), name="curve")


def _trained(model: torch.nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    images, targets = cuda_program.make_batch()
    dtype = next(model.parameters()).dtype
    losses = cuda_program.train(model, images.to(dtype), targets)
    return {"curve": {"losses": torch.tensor(losses, dtype=dtype)}}


@pytest.mark.ascend_cases("adaptation", "separate-projections")
def test_separate_projections(case: Case, precision_compare: PrecisionCompare) -> None:
    make_original, x = ORIGINALS[case.subject.removeprefix("rewritten-")]
    original = make_original().eval()
    precision_compare.models(RewrittenViT(original).eval(), original, x(), names=names(original))


@pytest.mark.ascend_cases("adaptation", *SLIPS)
def test_slip(case: Case, npu_device: torch.device, ascend_measure: Measure) -> None:
    """Check that a changed model is recognised, beginning with the module that was changed."""
    (make_original, x), (change, where) = ORIGINALS["small-vit"], SLIPS[case.property]
    original = make_original().eval()
    model, related = RewrittenViT(original).eval(), names(original)
    last = f"blocks.{len(model.blocks) - 1}"
    change(model.get_submodule(last))
    torch.manual_seed(0)  # for dropout
    with cann_formulas(on_device=True):  # CANN's tanh GELU would be reported before the slip
        report = precision.models(model, original, x(), names=related, device=npu_device)
    assert report.first is not None, f"a model with {case.property} was taken for its original"
    ascend_measure("output_error", report.layers[-1].output_error)
    ascend_measure("first_wrong_layer", [layer.label for layer in report.layers].index(report.first.label))
    begins = f"{last}.{where}".rstrip(".")
    expected = f"{begins} = {related[begins]}"
    assert report.first.label == expected, f"begins in {expected}, seen first in:\n" + "\n".join(report.explain())


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a temporary folder, removed afterwards because models are large."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def exported(model: str, x: torch.Tensor, folder: Path) -> Path:
    """Export a model, or skip the test if a package is missing, which is no fault of the device."""
    if missing := lacking():
        pytest.skip(missing)
    return to_onnx(make(model, MODES["float32"], x.device), x, folder / "model.onnx")


@pytest.mark.ascend_cases("adaptation", "onnx")
def test_onnx(
    case: Case, npu_device: torch.device, golden_store: GoldenStore, precision_compare: PrecisionCompare, folder: Path
) -> None:
    """Check that a model traced on the device and run by onnxruntime gives torch's results."""
    x = images(BATCH)
    path = exported(case.subject, x.to(npu_device), folder)
    _judge(by_onnxruntime(path, x), case.subject, golden_store, precision_compare)


@pytest.mark.ascend_cases("adaptation", "offline")
def test_offline(
    case: Case,
    npu_device: torch.device,
    _ascend_device: Device,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
    folder: Path,
) -> None:
    atc = find_atc(_ascend_device)
    x = images(BATCH).to(npu_device)
    om = to_om(atc, exported(case.subject, x, folder), x.shape, _ascend_device.chip())
    _ascend_device.synchronize()
    logits = by_ascendcl(om, x, (BATCH, 1000), ctypes.CDLL(LIBRARY))
    _judge(logits.cpu(), case.subject, golden_store, precision_compare)


def _judge(logits: torch.Tensor, model: str, store: GoldenStore, compare: PrecisionCompare) -> None:
    allowed_by = goldens.reference_runs(store, model, "float32", "forward")
    compare({"logits": logits}, goldens.expected(store, model, "forward"), reference_runs=allowed_by, name=model)
