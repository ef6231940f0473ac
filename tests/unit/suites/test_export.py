"""Models are exported, built and run as they are; what is missing or wrong is said."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pytest_ascend.device import Cpu
from pytest_ascend.device.dispatcher import FallbackWatch
from pytest_ascend.device.npu import Npu
from pytest_ascend.precision import compare
from pytest_ascend.run.outcomes import classify
from suites.adaptation import conftest as at_start
from suites.adaptation import export
from suites.adaptation import test_adaptation as suite
from suites.models.computation import images
from suites.training import recipes


def exported(model: nn.Module, original: nn.Module, folder: Path) -> bool:
    """Say whether a model's file gives what ``original`` promises."""
    x = images(2, recipes.IMAGE, "training/export", 4)
    with FallbackWatch("cpu"):  # as in every case
        path = export.to_onnx(model, x, folder / "model.onnx")
    with torch.no_grad():
        reference_runs, expected = original.eval()(x), original.double()(x.double())
    return compare(export.by_onnxruntime(path, x), expected, reference_runs=reference_runs).agrees


@pytest.mark.parametrize("name", recipes.MODELS)
def test_a_file_gives_what_its_model_does(name: str, tmp_path: Path) -> None:
    assert exported(recipes.make(name), recipes.make(name), tmp_path)


def test_a_file_of_another_model_is_seen(tmp_path: Path) -> None:
    other = recipes.make("small-vit")
    other.get_submodule("encoder.layers.encoder_layer_1.mlp.1").approximate = "none"
    assert not exported(other, recipes.make("small-vit"), tmp_path)


def test_a_missing_package_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        export, "find_spec", lambda name: None if name == "onnxruntime" else importlib.util.find_spec(name)
    )
    said = r"needs onnxruntime, not installed here: .*pip install 'pytest-ascend\[onnx\]'"
    with pytest.raises(pytest.skip.Exception, match=said):  # not run, and no error of the device
        suite.exported("resnet50", torch.zeros(1), Path())
    items = [SimpleNamespace(name=f"test_onnx[{name}]") for name in "ab"] + [SimpleNamespace(name="test_other")]
    (line,) = at_start.pytest_report_collectionfinish(items)
    assert re.fullmatch(f"ascend: 2 cases will not run: .*{said}", line)
    assert at_start.pytest_report_collectionfinish(items[2:]) == []


def test_where_all_is_installed_nothing_is_said() -> None:
    assert at_start.pytest_report_collectionfinish([SimpleNamespace(name="test_onnx[a]")]) == []
    assert export.lacking() == ""


# --- offline models ---


@pytest.mark.parametrize(
    ("device", "outcome", "reason"),
    [
        (Npu(emulated=True), "not-emulated", "atc"),
        (Cpu(), "unsupported", "CANN's own"),
        (Npu(), "unsupported", "install the CANN toolkit"),
    ],
)
def test_where_there_is_no_atc_the_case_says_so(
    device: Any, outcome: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(NotImplementedError) as error:
        export.find_atc(device)
    found = classify(error.value, emulated=device.emulated)
    assert (found.name, reason in found.reason) == (outcome, True)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_atc_is_found_where_cann_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    atc = script(tmp_path / "bin" / "atc", "exit 0")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert export.find_atc(Npu()) == atc


def test_atc_is_told_all_that_it_needs(tmp_path: Path) -> None:
    out = tmp_path / "model.om"
    atc = script(tmp_path / "atc", f'printf "%s\\n" "$@" > {out}')
    assert export.to_om(atc, tmp_path / "model.onnx", (2, 3, 8, 8), "Ascend910B3") == out
    assert out.read_text(encoding="utf-8").splitlines() == [
        "--framework=5",
        f"--model={tmp_path}/model.onnx",
        f"--output={tmp_path}/model",
        "--soc_version=Ascend910B3",
        "--input_shape=images:2,3,8,8",
        "--precision_mode=must_keep_origin_dtype",
        "--allow_hf32=false",
    ]


@pytest.mark.parametrize("text", ["echo E10001: value of soc_version is invalid; exit 255", "echo nothing built"])
def test_what_atc_refuses_is_said_in_its_words(text: str, tmp_path: Path) -> None:
    said = "E10001: value of soc_version" if "E10001" in text else "nothing built"
    with pytest.raises(RuntimeError, match=said):
        export.to_om(script(tmp_path / "atc", text), tmp_path / "model.onnx", (1,), "Ascend")


#: An AscendCL whose models double their input: what is asked of it, in the order that CANN's manual has.
LIBRARY = """
#include <stdint.h>
#include <stddef.h>
typedef struct { float *data; size_t size; } Buffer;
typedef struct { Buffer *buffer; } Dataset;
static Buffer buffers[2]; static Dataset datasets[2]; static int made, held; static char description;
int loaded, fails;
int aclmdlLoadFromFile(const char *path, uint32_t *id) {
  (void)path; *id = 4000000000u; if (fails == 1) return 145002; loaded++; return 0; }
int aclmdlUnload(uint32_t id) { loaded--; return id != 4000000000u; }
void *aclmdlCreateDesc(void) { return &description; }
int aclmdlGetDesc(void *desc, uint32_t id) { return desc != &description || id != 4000000000u; }
int aclmdlDestroyDesc(void *desc) { return desc != &description; }
size_t aclmdlGetInputSizeByIndex(void *desc, size_t index) { (void)desc; return index ? 0 : 24; }
size_t aclmdlGetOutputSizeByIndex(void *desc, size_t index) { (void)desc; return index ? 0 : 24; }
void *aclmdlCreateDataset(void) { return &datasets[made++ % 2]; }
int aclmdlDestroyDataset(void *dataset) { (void)dataset; return 0; }
void *aclCreateDataBuffer(void *data, size_t size) {
  Buffer *found = &buffers[held++ % 2]; found->data = data; found->size = size; return found; }
int aclDestroyDataBuffer(void *buffer) { (void)buffer; return 0; }
int aclmdlAddDatasetBuffer(Dataset *dataset, Buffer *buffer) { dataset->buffer = buffer; return 0; }
int aclmdlExecute(uint32_t id, Dataset *in, Dataset *out) {
  if (id != 4000000000u || fails == 2) return 507011;
  for (size_t i = 0; i < in->buffer->size / 4; i++) out->buffer->data[i] = 2 * in->buffer->data[i];
  return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("acl")
    (folder / "acl.c").write_text(LIBRARY, encoding="utf-8")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", folder / "acl.so", folder / "acl.c"], check=True
    )
    return ctypes.CDLL(str(folder / "acl.so"))


def test_an_offline_model_is_run_and_unloaded(library: ctypes.CDLL) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    strided = torch.arange(12.0)[::2].reshape(2, 3)
    for each in (x, strided):
        assert torch.equal(export.by_ascendcl(Path("m.om"), each, (3, 2), library), 2 * each.reshape(3, 2))
    assert ctypes.c_int.in_dll(library, "loaded").value == 0


@pytest.mark.parametrize(
    ("x", "shape", "fails", "said"),
    [
        (torch.zeros(6), (6,), 1, "aclmdlLoadFromFile failed with 145002"),
        (torch.zeros(6), (6,), 2, "aclmdlExecute failed with 507011"),
        (torch.zeros(7), (6,), 0, "the input of m.om has 24 bytes, 28 expected"),
        (torch.zeros(6), (2, 2), 0, "the output of m.om has 24 bytes, 16 expected"),
    ],
)
def test_an_error_of_ascendcl_is_said(
    x: torch.Tensor, shape: tuple[int, ...], fails: int, said: str, library: ctypes.CDLL
) -> None:
    ctypes.c_int.in_dll(library, "fails").value = fails
    try:
        with pytest.raises(RuntimeError, match=said):
            export.by_ascendcl(Path("m.om"), x, shape, library)
    finally:
        ctypes.c_int.in_dll(library, "fails").value = 0
    assert ctypes.c_int.in_dll(library, "loaded").value == 0
