"""ResNet50 and ViT-B/16 give the same numbers outside of torch: as ONNX, and as CANN's offline models."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.golden import GoldenStore
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from ..models.computation import BATCH, MODES, make
from ..models.goldens import expected, honest
from ..models.weights import images
from . import CASES_OF_OFFLINE, CASES_OF_ONNX, offline
from .export import by_onnxruntime, check_installed, to_onnx

CLASSES = 1000


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards: models are large."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _each(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    found = [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in cases.items()]
    return pytest.mark.parametrize("model", found)


@_each(CASES_OF_ONNX)
def test_onnx(
    model: str, npu_device: torch.device, golden_store: GoldenStore, precision_compare: PrecisionCompare, folder: Path
) -> None:
    """What is traced on the device and run by onnxruntime is what torch promises."""
    check_installed()
    x = images(BATCH)
    path = to_onnx(make(model, MODES["float32"], npu_device), x.to(npu_device), folder / "model.onnx")
    _judge(by_onnxruntime(path, x), model, golden_store, precision_compare)


@_each(CASES_OF_OFFLINE)
def test_offline(
    model: str,
    npu_device: torch.device,
    ascend_device: Device,
    golden_store: GoldenStore,
    precision_compare: PrecisionCompare,
    folder: Path,
) -> None:
    """What ATC builds of the same file gives the same numbers on the NPU."""
    atc = offline.find_atc(ascend_device)
    check_installed()
    x = images(BATCH).to(npu_device)
    onnx = to_onnx(make(model, MODES["float32"], npu_device), x, folder / "model.onnx")
    om = offline.to_om(atc, onnx, x.shape, ascend_device.chip())
    ascend_device.synchronize()
    logits = offline.by_ascendcl(om, x, (BATCH, CLASSES), ctypes.CDLL(offline.LIBRARY))
    _judge(logits.cpu(), model, golden_store, precision_compare)


def _judge(logits: torch.Tensor, model: str, store: GoldenStore, compare: PrecisionCompare) -> None:
    allowed_by = honest(store, model, "float32", "forward")
    compare({"logits": logits}, expected(store, model, "forward"), honest=allowed_by, name=model)
