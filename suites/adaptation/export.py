"""A model exported to another runtime: to ONNX and run by onnxruntime on the CPU, or by CANN on the NPU.

For CANN, ATC builds an ``.om`` file from the ONNX file, and AscendCL runs it.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.device import Device
from pytest_ascend.environment.stack import VARIABLES
from pytest_ascend.system.dispatching import without_modes

#: ONNX opset version: has LayerNormalization, and is known to onnxruntime from 1.13 and to ATC.
OPSET = 17
INPUT, OUTPUT = "images", "logits"


def lacking() -> str:
    """Return which package for exporting or running is missing and how to install it, or "" if none is."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    how = "python -m pip install 'pytest-ascend[onnx]'"
    return f"exporting a model to ONNX needs {' and '.join(missing)}, not installed here: {how}" if missing else ""


def to_onnx(model: nn.Module, x: Tensor, path: Path) -> Path:
    # torch before 2.5 has only the tracing exporter; later versions need a setting.
    traced: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    settings: dict[str, Any] = {"input_names": [INPUT], "output_names": [OUTPUT], "opset_version": OPSET, **traced}
    with without_modes(), warnings.catch_warnings():
        # Using the older tracing exporter, which turns sizes into constants, is intended.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        torch.onnx.export(model.eval(), (x,), str(path), **settings)
    return path


def by_onnxruntime(path: Path, x: Tensor) -> Tensor:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run([OUTPUT], {INPUT: x.cpu().numpy()})
    return torch.tensor(found)


#: Time limit in seconds; building a model takes minutes if a chip's kernels are compiled.
LIMIT_S = 1800
LIBRARY = "libascendcl.so"

_HANDLE, _SIZE, _CODE, _ID = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint32
#: Functions of AscendCL: result and argument types.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "aclmdlLoadFromFile": (_CODE, [ctypes.c_char_p, ctypes.POINTER(_ID)]),
    "aclmdlUnload": (_CODE, [_ID]),
    "aclmdlCreateDesc": (_HANDLE, []),
    "aclmdlGetDesc": (_CODE, [_HANDLE, _ID]),
    "aclmdlDestroyDesc": (_CODE, [_HANDLE]),
    "aclmdlGetInputSizeByIndex": (_SIZE, [_HANDLE, _SIZE]),
    "aclmdlGetOutputSizeByIndex": (_SIZE, [_HANDLE, _SIZE]),
    "aclmdlCreateDataset": (_HANDLE, []),
    "aclmdlDestroyDataset": (_CODE, [_HANDLE]),
    "aclCreateDataBuffer": (_HANDLE, [_HANDLE, _SIZE]),
    "aclDestroyDataBuffer": (_CODE, [_HANDLE]),
    "aclmdlAddDatasetBuffer": (_CODE, [_HANDLE, _HANDLE]),
    "aclmdlExecute": (_CODE, [_ID, _HANDLE, _HANDLE]),
}


def find_atc(device: Device) -> Path:
    """Return ATC's path. Raise NotImplementedError if it is missing, or if nothing can run its models."""
    if device.emulated:
        raise NotImplementedError("atc is not emulated: only CANN builds and runs .om files")
    if device.kind != "npu":
        raise NotImplementedError(f"an .om file is not supported on {device.label}: it is CANN's own")
    homes = [Path(os.environ[name], "bin") for name in VARIABLES if os.environ.get(name)]
    found = shutil.which("atc", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, homes)]))
    if found is None:
        raise NotImplementedError(
            "offline inference is not supported without ATC, which is neither on PATH nor in $ASCEND_HOME_PATH/bin: "
            "install the CANN toolkit, then source its set_env.sh"
        )
    return Path(found)


def to_om(atc: Path, onnx: Path, shape: Sequence[int], chip: str) -> Path:
    """Build an ``.om`` file beside an ONNX file, keeping float32. Raise RuntimeError with ATC's message."""
    target = onnx.with_suffix(".om")
    command = [str(atc), "--framework=5", f"--model={onnx}", f"--output={target.with_suffix('')}"]  # 5 is ONNX
    command += [f"--soc_version={chip}", f"--input_shape={INPUT}:{','.join(map(str, shape))}"]
    command += ["--precision_mode=must_keep_origin_dtype", "--allow_hf32=false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)  # noqa: S603
    if done.returncode or not target.is_file():
        output = (done.stdout + done.stderr)[-4000:]
        raise RuntimeError(f"atc ended with {done.returncode} and built no {target.name}:\n{output}")
    return target


def by_ascendcl(om: Path, x: Tensor, shape: Sequence[int], library: ctypes.CDLL) -> Tensor:
    """Run an ``.om`` file with one input and a float32 output in the device memory of ``x``, or raise RuntimeError."""
    acl = {name: getattr(library, name) for name in _FUNCTIONS}
    for name, function in acl.items():
        function.restype, function.argtypes = _FUNCTIONS[name]

    def check(name: str, *given: Any) -> None:
        if code := acl[name](*given):
            raise RuntimeError(f"{name} failed with {code}")

    x, out = x.contiguous(), torch.empty(tuple(shape), dtype=torch.float32, device=x.device)
    number = _ID()
    check("aclmdlLoadFromFile", os.fsencode(om), ctypes.byref(number))
    description = acl["aclmdlCreateDesc"]()
    datasets = [acl["aclmdlCreateDataset"]() for _ in range(2)]
    buffers = [acl["aclCreateDataBuffer"](each.data_ptr(), each.nbytes) for each in (x, out)]
    try:
        check("aclmdlGetDesc", description, number)
        for each, name in ((x, "Input"), (out, "Output")):
            size = acl[f"aclmdlGet{name}SizeByIndex"](description, 0)
            if size != each.nbytes:
                raise RuntimeError(f"the {name.lower()} of {om.name} has {size} bytes, {each.nbytes} expected")
        for dataset, buffer in zip(datasets, buffers, strict=True):
            check("aclmdlAddDatasetBuffer", dataset, buffer)
        check("aclmdlExecute", number, *datasets)
    finally:
        for buffer in buffers:
            acl["aclDestroyDataBuffer"](buffer)
        for dataset in datasets:
            acl["aclmdlDestroyDataset"](dataset)
        acl["aclmdlDestroyDesc"](description)
        acl["aclmdlUnload"](number)
    return out
