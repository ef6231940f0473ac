"""A model on its way to another runtime: exported from the device to ONNX, and run by onnxruntime on the CPU."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_ascend.dispatching import undisturbed

#: Operators of ONNX by their version: with LayerNormalization, and known to onnxruntime from 1.13 and to ATC.
OPSET = 17
INPUT, OUTPUT = "images", "logits"
NEEDED = ("onnx", "onnxruntime")


def lacking() -> str:
    """Say which package is missing that exporting and running takes, and how to get it; "" where none is."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    how = "python -m pip install 'pytest-ascend[onnx]'"
    return f"exporting a model to ONNX needs {' and '.join(missing)}, not installed here: {how}" if missing else ""


def check_installed() -> None:
    """Skip the test where a package is missing: that is no error of the device."""
    if said := lacking():
        pytest.skip(said)


def to_onnx(model: nn.Module, x: Tensor, path: Path) -> Path:
    """Export ``model`` as it computes ``x`` in evaluation mode, by tracing, and give the file."""
    # torch before 2.5 knows the exporter that traces alone; later ones want to be told.
    traced: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    with undisturbed(), _without_its_warnings():
        torch.onnx.export(
            model.eval(), (x,), str(path), input_names=[INPUT], output_names=[OUTPUT], opset_version=OPSET, **traced
        )
    return path


def by_onnxruntime(path: Path, x: Tensor) -> Tensor:
    """Run the model in a file on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run([OUTPUT], {INPUT: x.cpu().numpy()})
    return torch.tensor(found)


@contextlib.contextmanager
def _without_its_warnings() -> Iterator[None]:
    """Leave out that tracing is the older way, and that it takes sizes for constants: both are meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        yield
