"""CANN's goldens as a second oracle: what each emulated kernel gives beside what its makers say that it must compute.

    python -m tools.evaluation goldens ops-math=CHECKOUT ops-nn=CHECKOUT ops-cv=CHECKOUT

Each CHECKOUT is a git repository of CANN's operators, read at its HEAD. Their goldens, generators of inputs and files of
cases (CSV) are extracted to a temporary folder and run in processes of their own (``python goldens.py FOLDER``), which
see neither torch_npu nor this project; nothing of them is kept. A golden's cases are those of its CSV files, large ones
with smaller sizes of the same relations, in other dtypes and with other seeds where there are fewer than ``--calls``.
The functions of CANN are called as C programs call them, so that the same command judges a real NPU.

``goldens.json`` says what names alone do not: ``calls``, how to call a function of CANN with the parameters of a
golden; ``cases`` where there are no files of cases; ``notes``, who is right where both differ, with the source.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

DATA: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
#: The most elements of a case's tensors, above which its sizes are made smaller; seconds for all cases of a golden.
MOST, LIMIT_S = 20_000, 120
FLOATS = ("float32", "float16", "bfloat16")


# What runs in a process of its own: goldens and their cases.


def dtype_of(name: str) -> Any:
    """Return numpy's dtype, or that of ml_dtypes; raises AttributeError for one that neither has."""
    import ml_dtypes

    name = {"float": "float32", "double": "float64", "half": "float16", "bf16": "bfloat16"}.get(name, name)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _value(text: str | None) -> Any:
    names = {"inf": float("inf"), "nan": float("nan")}
    try:
        return eval(text or "None", {"__builtins__": {}}, names)  # noqa: S307  (this process runs foreign code anyway)
    except (NameError, SyntaxError):
        return text


def _tensor(rng: Any, shape: Any, dtype: Any, spread: Any) -> Any:
    """Return values of a range, with those that come after its two limits; a list of arrays for a list of shapes."""
    if shape is None or dtype is None:
        return None
    if shape and isinstance(shape[0], (list, tuple)):
        dtypes, spreads = (each if isinstance(each, (list, tuple)) else [each] for each in (dtype, spread))
        if spreads and not isinstance(spreads[0], (list, tuple)):
            spreads = [spreads]
        return [
            _tensor(rng, each, dtypes[min(i, len(dtypes) - 1)], spreads[min(i, len(spreads) - 1)] if spreads else None)
            for i, each in enumerate(shape)
        ]
    kind = dtype_of(dtype)
    low, high, *forced = spread if isinstance(spread, (list, tuple)) and len(spread) > 1 else (-2, 2)
    low, high = (-9.0 if low is None else low), (9.0 if high is None else high)
    most = float(np.finfo(kind).max if kind.kind == "f" else 1e38)
    low, high = max(low, -most), min(high, most)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        info = np.iinfo(kind)
        low, high = max(int(max(low, -(2**62))), info.min), min(int(min(high, 2**62)), info.max)
        return rng.integers(low, max(high, low), shape, endpoint=True).astype(kind)
    made = rng.random(shape) * (high / 2 - low / 2) * 2 + low
    if forced and made.size:
        made = np.where(rng.random(shape) < 0.05, rng.choice(np.array(forced, float), made.shape), made)
    return made.astype(kind)


def _smaller(row: dict[str, Any]) -> dict[str, Any]:
    """Return a case whose large sizes are small ones, in shapes and attributes; a multiple stays a multiple."""

    def numbers(value: Any) -> Iterator[int]:
        if isinstance(value, (list, tuple)):
            for each in value:
                yield from numbers(each)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield value

    def sizes(shapes: Any) -> int:
        if not isinstance(shapes, (list, tuple)) or not shapes:
            return 1
        if isinstance(shapes[0], int):
            return int(np.prod(shapes))
        return sum(sizes(each) for each in shapes)

    if sizes(row["input_shapes"]) <= MOST:
        return row
    made: dict[int, int] = {}
    for size in sorted({*numbers(row["input_shapes"])}):
        base = next((each for each in made if each > 1 and size % each == 0 and size // each <= 4 and size > 16), None)
        made[size] = size if size <= 4 else size // base * made[base] if base else min(size, 4 + 2 * len(made))

    def mapped(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(mapped, value))
        return made.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value

    return {**row, **{name: mapped(row[name]) for name in ("input_shapes", "output_shapes", "attributes") if name in row}}


def _cases(rows: Sequence[Mapping[str, Any]], calls: int) -> list[dict[str, Any]]:
    """Return at least so many cases: of the rows, then of the rows in other dtypes, each with a seed of its own."""
    parsed = [{name: _value(text) if isinstance(text, str) else text for name, text in row.items()} for row in rows]
    shapes = ("input_shapes", "stc_inputs", "tensor_view_shapes", "input_ori_shapes")
    for row in parsed:
        row["input_shapes"] = next((row[name] for name in shapes if row.get(name) is not None), ())
        row["input_dtypes"] = row.get("input_dtypes") or row.get("stc_input_dtypes") or row.get("tensor_dtypes") or ()
        row["attributes"] = row.get("attributes") if isinstance(row.get("attributes"), dict) else {}
    step = max(1, len(parsed) // (2 * calls))
    chosen = [_smaller(row) for row in parsed[::step]]
    made = []
    for again in range(1 + 3 * calls // max(1, len(chosen)) if chosen else 0):
        for row in chosen:
            text = repr((row["input_dtypes"], row.get("output_dtypes")))
            if again and (old := [each for each in FLOATS if f"'{each}'" in text]):
                new = FLOATS[(FLOATS.index(old[-1]) + again) % 3]
                row = {**row, **dict(zip(("input_dtypes", "output_dtypes"), ast.literal_eval(text.replace(f"'{old[-1]}'", f"'{new}'")), strict=True))}  # fmt: skip  # noqa: E501
            made.append({**row, "seed": len(made)})
    return made[: 3 * calls]


def _inputs(golden: Any, generator: Any, row: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(row["seed"])
    np.random.seed(row["seed"])  # noqa: NPY002  (what their generators use)
    names = [each.name for each in inspect.signature(golden).parameters.values() if each.kind < 2]
    attributes, ranges = dict(row["attributes"]), row.get("input_data_ranges") or ()
    values = []
    for i, shape in enumerate(row["input_shapes"]):
        dtypes = row["input_dtypes"]
        dtype = dtypes[min(i, len(dtypes) - 1)] if dtypes else None
        spread = ranges[min(i, len(ranges) - 1)] if isinstance(ranges, (list, tuple)) and ranges else None
        if i < len(names) and names[i] in attributes and dtype:
            whole = np.array(attributes.pop(names[i]), dtype_of(dtype))
            values.append(whole.reshape(shape if whole.size == np.prod(shape) else -1))
        else:
            values.append(_tensor(rng, shape, dtype, spread))
    about = {name: row.get(name) for name in ("input_dtypes", "output_dtypes", "input_shapes", "output_shapes")}
    about |= {f"{end}_{what}": about.get(f"{end}_shapes") if "shape" in what else ["ND"] * 20
              for end in ("input", "output") for what in ("ori_shapes", "formats", "ori_formats")}  # fmt: skip
    about |= {"short_soc_version": "Ascend950", "full_soc_version": "Ascend950PR", "testcase_name": "case"}
    if generator:
        values = list(generator(*values, **attributes, **about, input_ranges=ranges))
    return values, attributes, about


def _torch(value: Any) -> Any:
    """Return arrays as tensors, which goldens of CANN's functions take."""
    import torch

    if isinstance(value, list):
        return [_torch(each) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "V" or value.dtype.name == "bfloat16":
        return torch.from_numpy(value.astype(np.float32)).to(getattr(torch, value.dtype.name))
    return torch.from_numpy(value)


def _kept(value: Any, arrays: dict[str, Any]) -> Any:
    """Put arrays under a name of their own; return what JSON can have."""
    value = value.detach().cpu() if type(value).__module__ == "torch" and hasattr(value, "detach") else value
    if type(value).__name__ == "Tensor":
        value = value.float().numpy().astype(dtype_of("bfloat16")) if "bfloat16" in str(value.dtype) else value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        name, whole = f"a{len(arrays)}", np.array(value, order="C")
        arrays[name] = whole.reshape(-1).view(np.uint8)
        return {"array": name, "dtype": whole.dtype.name, "shape": list(whole.shape)}
    if isinstance(value, (list, tuple)):
        return [_kept(each, arrays) for each in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _run(job: Mapping[str, Any], folder: Path) -> None:
    """Write the inputs and results of a golden's cases; what it raises counts against it, not against the kernel."""
    modules: list[dict[str, Any]] = []
    for path in [job["file"], *sorted(Path(job["file"]).parent.glob("input*.py"))]:
        sys.path.insert(0, str(Path(path).parent))
        space: dict[str, Any] = {"__file__": str(path), "__name__": "golden"}
        exec(compile(Path(path).read_text(encoding="utf-8"), str(path), "exec"), space)  # noqa: S102
        modules.append(space)
    golden = modules[0][job["function"].split(".")[0]]
    golden = golden if inspect.isfunction(golden) else golden.golden
    generators = {name: each for space in modules for names in (space.get("__input__") or {}).values()
                  if isinstance(names, dict) for name, made in names.items() if (each := space.get(made))}  # fmt: skip
    done, errors = 0, Counter[str]()
    parameters = inspect.signature(golden).parameters.values()
    names = [each.name for each in parameters if each.kind < 2]
    defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    for row in _cases(job["rows"], job["calls"]):
        arrays: dict[str, Any] = {}
        try:
            values, attributes, about = _inputs(golden, generators.get(job["name"]), row)
            written = {each % len(values) for each in row.get("output_tensor_indexes") or ()}
            free = [name for name in names if name not in attributes] if job["name"].startswith("aclnn") else names
            pairs = [pair for i, pair in enumerate(zip(free, values, strict=False)) if i not in written]
            kept = {name: _kept(each, arrays) for name, each in [*pairs, *attributes.items()]}
            kept |= {name: _kept(each, arrays) for name, each in defaults.items() if name not in kept}
            if job["name"].startswith("aclnn"):
                given = dict.fromkeys(free) | dict(zip(free, map(_torch, values), strict=False))
                made = golden(**given, **attributes, **about)
            else:
                made = golden(*values, **attributes, **about)
        except Exception as error:  # noqa: BLE001
            errors[f"{type(error).__name__}: {error}"[:160]] += 1
            continue
        made = made if isinstance(made, (list, tuple)) else [made]
        said = {"given": kept, "made": _kept(made, arrays), "dtypes": row.get("output_dtypes")}
        said |= {"shapes": row.get("output_shapes"), "defaults": [name for name in defaults if name not in row["attributes"]]}
        np.savez(folder / f"{job['id']}.{done}.npz", **arrays, said=np.frombuffer(json.dumps(said).encode(), np.uint8))
        done += 1
        if done >= job["calls"]:
            break
    (folder / f"{job['id']}.json").write_text(json.dumps(errors.most_common(3)), encoding="utf-8")


def serve(folder: Path) -> None:
    """Run the jobs of a folder one after another, each in a child with a deadline."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):  # once, for the many goldens that are TensorFlow's
        import tensorflow  # noqa: F401
    for job in json.loads((folder / "jobs.json").read_text(encoding="utf-8")):
        if not (child := os.fork()):
            signal.alarm(LIMIT_S)
            try:
                _run(job, folder)
            except BaseException as error:  # noqa: BLE001
                (folder / f"{job['id']}.json").write_text(json.dumps([[f"{type(error).__name__}: {error}"[:160], 1]]))
            os._exit(0)
        os.waitpid(child, 0)


# What runs here: the functions of CANN, beside what the goldens gave.


class Cann:
    """CANN's functions, called as a C program does: on the emulated device, or on an NPU."""

    def __init__(self) -> None:
        import torch
        import torch_npu

        from pytest_ascend.emulator.kernels import all_kernels, all_named
        from pytest_ascend.emulator.signature import C_TYPES
        from pytest_ascend.emulator.tensors import DTYPES

        self.torch, self.c_types = torch, C_TYPES
        self.kernels = {kernel.name: kernel.signature for kernel in all_kernels()}
        self.named = {kernel.name.lower(): kernel for kernel in all_named()}
        self.codes = {dtype: code for code, dtype in DTYPES.items()}
        self.base, self.ops, self.runtime = map(ctypes.CDLL, ("libnnopbase.so", "libopapi.so", "libascendcl.so"))
        torch.ones(1, device="npu")
        self.stream = ctypes.c_void_p(torch_npu.npu.current_stream().npu_stream)
        self.kept: list[Any] = []

    def _made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        call = getattr(self.base, function)
        call.restype = ctypes.c_void_p
        return ctypes.c_void_p(call(*arguments))

    def _array(self, item: Any, values: Sequence[Any]) -> Any:
        self.kept.append((item * max(1, len(values)))(*values))
        return self.kept[-1]

    def _tensor(self, tensor: Any) -> Any:
        if tensor is None:
            return ctypes.c_void_p(None)
        sizes, strides = (self._array(ctypes.c_int64, each) for each in (tensor.shape, tensor.stride()))
        rank, self.kept = ctypes.c_uint64(tensor.dim()), [*self.kept, tensor]
        where = ctypes.c_void_p(tensor.data_ptr())
        code = self.codes[tensor.dtype]
        return self._made("aclCreateTensor", sizes, rank, code, strides, ctypes.c_int64(0), 2, sizes, rank, where)

    def argument(self, kind: str, value: Any) -> Any:
        """Return a value as C passes it, in a type of the declaration of a function."""
        if kind.endswith("List"):
            one = self._tensor if kind == "TensorList" else lambda each: self.argument("Scalar", each)
            items = [one(each) for each in value or ()]
            return self._made(f"aclCreate{kind}", self._array(ctypes.c_void_p, items), ctypes.c_uint64(len(items)))
        if kind == "Tensor":
            return self._tensor(value)
        if value is None and kind in ("Scalar", "IntArray", "BoolArray", "FloatArray", "text"):
            return ctypes.c_void_p(None)
        if kind == "Scalar":
            value = value.item() if hasattr(value, "item") else value
            code, item = next((code, item) for of, code, item in (
                (bool, 12, ctypes.c_bool), (int, 9, ctypes.c_int64), (float, 11, ctypes.c_double)) if isinstance(value, of))  # fmt: skip  # noqa: E501
            return self._made("aclCreateScalar", self._array(item, [value]), code)
        if kind.endswith("Array"):
            value = value.tolist() if hasattr(value, "tolist") else value
            value = value if isinstance(value, (list, tuple)) else [value]
            item = {"IntArray": ctypes.c_int64, "BoolArray": ctypes.c_bool, "FloatArray": ctypes.c_float}[kind]
            return self._made(f"aclCreate{kind}", self._array(item, value), ctypes.c_uint64(len(value)))
        if kind == "text":
            return ctypes.c_char_p(str(value).encode())
        value = value.item() if hasattr(value, "item") else value
        name = {"dtype": "int32", "bool": "bool"}.get(kind, kind)
        return getattr(ctypes, f"c_{name}")(value or 0)

    def call(self, name: str, arguments: Sequence[tuple[str, Any]]) -> tuple[int, str]:
        """Call both phases of a function; returns the code of its error (0) and CANN's message."""
        self.kept = []
        given = [self.argument(kind, value) for kind, value in arguments]
        size, executor = ctypes.c_uint64(0), ctypes.c_void_p(None)
        code = getattr(self.ops, f"{name}GetWorkspaceSize")(*given, ctypes.byref(size), ctypes.byref(executor))
        room = self.torch.empty(max(1, size.value), dtype=self.torch.uint8, device="npu")
        code = code or getattr(self.ops, name)(ctypes.c_void_p(room.data_ptr()), size, executor, self.stream)
        self.torch.npu.synchronize()
        self.runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
        return code, (self.runtime.aclGetRecentErrMsg() or b"").decode(errors="replace")


_SAME = {"axis": "dim", "axes": "dim", "dims": "dim", "keepdims": "keepdim", "eps": "epsilon", "dsttype": "dtype", "dimension": "dim"}  # fmt: skip  # noqa: E501
#: What a function of CANN has more than a golden: the values at which it does nothing.
_NEUTRAL = {"alpha": 1, "cube": 0, "dtype": None, "rounding": 0}


def _plain(name: str) -> str:
    name = name.lower().replace("_", "").removesuffix("optional")
    return _SAME.get(name, name)


def bound(signature: Any, given: Mapping[str, Any]) -> list[Any] | None:
    """Return the inputs of a function by the parameters of a golden, by name and order; None if they do not fit."""
    tensors = [name for name, each in given.items() if hasattr(each, "dim") or each is None or isinstance(each, list)
               and each and hasattr(each[0], "dim")]  # fmt: skip
    others = {_plain(name): each for name, each in given.items() if name not in tensors}
    values = []
    for each in (each for each in signature.parameters if each.is_input):
        if each.type in ("Tensor", "TensorList"):
            values.append(given[tensors.pop(0)] if tensors else None)
        elif _plain(each.name) in others:
            values.append(others.pop(_plain(each.name)))
        elif each.name in _NEUTRAL:
            values.append(_NEUTRAL[each.name])
        elif tensors and each.type in ("Scalar", "IntArray", "int64", "double", "float"):
            values.append(given[tensors.pop(0)])
        else:
            return None
        if each.type in ("int64", "int32") and isinstance(values[-1], list) and len(values[-1]) == 1:
            values[-1] = values[-1][0]
    return None if any(given[name] is not None for name in tensors) else values


def difference(torch: Any, actual: Any, expected: Any) -> str:
    """Return how a result differs from a golden; nothing if it does not, beyond the rounding of its dtype."""
    if actual.numel() != expected.numel():
        return f"shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    one, other = (each.reshape(-1).to(torch.complex128 if each.is_complex() else torch.float64) for each in (actual, expected))  # fmt: skip  # noqa: E501
    if not (actual.is_floating_point() or actual.is_complex()):
        wrong = one != other
    else:
        ulp = {torch.float32: 2**-14, torch.float16: 2**-9, torch.complex64: 2**-14}.get(actual.dtype, 2**-6)
        finite = other.abs()[other.isfinite()]
        room = ulp * other.abs() + ulp / 64 * (finite.mean().item() if finite.numel() else 0) + (2e-6 if ulp > 2**-14 else 1e-7)
        wrong = ~((one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= room))
    if not (count := int(wrong.sum())):
        return ""
    place = int(wrong.nonzero()[0])
    return f"{count} of {wrong.numel()} {str(actual.dtype).removeprefix('torch.')}: {one[place]:.6g}, not {other[place]:.6g}"  # fmt: skip  # noqa: E501


def _words(cann: Cann) -> dict[str, Any]:
    """Return the functions that ``calls`` may use."""

    def one(value: Any) -> Any:
        if hasattr(value, "dim") and value.numel() != 1:
            raise ZeroDivisionError
        return value.reshape(-1)[0].item() if hasattr(value, "dim") else value[0] if isinstance(value, list) else value

    def ints(value: Any) -> Any:
        return value.reshape(-1).tolist() if hasattr(value, "dim") else value

    def dims(*values: Any) -> Any:
        return one(next((each for each in values if each is not None), -1))

    def pairs(value: Any) -> Any:
        numbers = ints(value)
        return numbers if isinstance(numbers[0], list) else [numbers[i : i + 2] for i in range(0, len(numbers), 2)]

    def sides(value: Any, last: int = 99) -> list[int]:


        return [each for pair in reversed(pairs(value)[-last:]) for each in pair]

    return {
        **{"one": one, "ints": ints, "dims": dims, "sides": sides, "pairs": pairs, "code": lambda tensor: cann.codes[tensor.dtype]},
        "adj": lambda tensor, is_turned: tensor.mT if is_turned else tensor,
        "kind": lambda dtype: dtype if isinstance(dtype, int) else {"torch.qint8": 2, "torch.quint8": 4}[dtype],
    }


def judged(cann: Cann, call: str, given: Mapping[str, Any], made: Sequence[Any], defaults: Sequence[str]) -> tuple[str, str]:
    """Return agrees, differs, refused or fails, and why, of one call of a function beside a golden's results."""
    torch, name = cann.torch, call.split("(")[0]
    on = {each: _moved(value, "npu") for each, value in given.items()}
    if name not in cann.kernels:
        kernel = cann.named[name.lower()]
        try:
            tensors = [each for each in given.values() if hasattr(each, "dim")]
            others = {n: v for n, v in given.items() if v is not None and not hasattr(v, "dim") and n not in defaults}
            found = kernel.body(*tensors, **others)
        except Exception as error:  # noqa: BLE001
            return "fails", f"{type(error).__name__}: {error}"[:160]
        pairs = zip(found if isinstance(found, (list, tuple)) else [found], made, strict=False)
        wrong = [difference(torch, a.to(e.dtype), e) for a, e in pairs if a is not None and e is not None]
        return ("differs", next(filter(None, wrong))) if any(wrong) else ("agrees", "")
    signature = cann.kernels[name]
    expression, _, order = call.partition(" -> ")
    try:
        space = {name: lambda *values: list(values), **_words(cann), **on}
        inputs = eval(expression, {"torch": torch}, space) if "(" in call else bound(signature, on)  # noqa: S307
    except ZeroDivisionError:  # a case that this function does not have
        return "other", ""
    if inputs is None:
        return "unbound", ", ".join(given)
    made = [made[int(each)] for each in order.split()] if order else made
    left, results, arguments = list(made), [], []
    for each in signature.parameters:
        if each.is_input:
            value = inputs.pop(0)
            if each.role == "inout" and value is not None:
                results.append(value)
        elif left[len(results) :]:
            like = left[len(results)]
            value = [torch.empty_like(one, device="npu") for one in like] if isinstance(like, list) else (
                None if like is None else torch.empty_like(like, device="npu"))  # fmt: skip
            results.append(value)
        else:
            value = None
        arguments.append((each.type, value))
    code, said = cann.call(name, arguments)
    if code:
        return ("refused" if code // 1000 == 161 else "fails"), said[:160]
    wrong = []
    for actual, expected in zip(results, made, strict=False):
        pairs = zip(actual, expected, strict=True) if isinstance(actual, list) else [(actual, expected)]
        wrong += [difference(torch, a.cpu(), e) for a, e in pairs if a is not None and e is not None]
    return ("differs", next(filter(None, wrong))) if any(wrong) else ("agrees", "")


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, list):
        return [_moved(each, device) for each in value]
    return value.to(device) if hasattr(value, "dim") else value


def _read(torch: Any, arrays: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_read(torch, arrays, each) for each in value]
    if not isinstance(value, dict):
        return value
    dtype = getattr(torch, value["dtype"].removesuffix("_"))
    whole = torch.from_numpy(np.array(arrays[value["array"]]))
    return (whole.view(dtype) if whole.numel() else torch.empty(0, dtype=dtype)).reshape(value["shape"])


def _assigned(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the level, the name and the function of each golden that a file declares, without running it."""
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or getattr(node.targets[0], "id", "") not in ("__golden__", "__spec__"):
            continue
        try:
            said = ast.literal_eval(node.value)
        except ValueError:
            continue
        for level, names in said.items():
            if isinstance(names, dict):
                yield from ((level, name, str(function)) for name, function in names.items())
            else:
                yield "spec", level, str(names)


def _inputs_of(signature: Any) -> int:
    return sum(each.is_input for each in signature.parameters)


def jobs_of(cann: Cann, checkouts: Mapping[str, Path], folder: Path, calls: int) -> Iterator[dict[str, Any]]:
    """Yield what to run: each golden once, with its cases and the functions of the emulated device that it judges."""
    import csv

    csv.field_size_limit(2**30)
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, checkout in checkouts.items():
        (folder / name).mkdir(exist_ok=True)
        held = subprocess.run(["git", "-C", checkout, "archive", "HEAD", "--", ":(glob)**/tests/**/*.py", ":(glob)**/*.csv"], capture_output=True, check=True)  # fmt: skip  # noqa: E501, S603, S607
        subprocess.run(["tar", "-x", "-C", folder / name], input=held.stdout, check=True)  # noqa: S603, S607
        for path in sorted((folder / name).rglob("ttk*.csv")):
            with path.open(newline="", encoding="utf-8-sig") as file:
                for row in csv.DictReader(file):
                    rows[row.get("op_name") or row.get("api_name") or ""].append(row)
    seen: set[str] = set()
    for path in sorted(each for name in checkouts for each in (folder / name).rglob("*golden*.py")):
        if "/experimental/" in str(path):
            continue
        for _, name, function in _assigned(path.read_text(encoding="utf-8")):
            plain = name.replace("_", "").removeprefix("aclnn").lower()
            own = [next((each for each in cann.kernels if each.lower() == f"aclnn{plain}"), "")]
            own += [cann.named[plain].name] if plain in cann.named else []
            wanted = [*DATA["calls"].get(name, own[:1]), *own[1:]]
            wanted = [each for each in dict.fromkeys(wanted) if each.split("(")[0] in cann.kernels or each.lower() in cann.named and each]
            for each in list(dict.fromkeys(wanted)):  # and the function that does the same in place
                plain = each.split("(")[0]
                inplace = cann.kernels.get(plain.replace("aclnn", "aclnnInplace", 1))
                if inplace and _inputs_of(inplace) == _inputs_of(cann.kernels[plain]):
                    wanted.append(each.replace("aclnn", "aclnnInplace", 1))
            own_rows = rows[name] or DATA["cases"].get(name, [])
            if name in seen:
                continue
            seen.add(name)
            yield {"id": len(seen), "name": name, "file": str(path), "function": function, "calls": calls,
                   "rows": own_rows, "csv": len(rows[name]), "wanted": wanted, "source": str(path.relative_to(folder))}  # fmt: skip  # noqa: E501


def outcome(cann: Cann, job: Mapping[str, Any], folder: Path) -> dict[str, tuple[Counter[str], dict[str, str]]]:
    """Return, for each function that a golden judges, how many of its calls ended how, and the first reason of each."""
    found: dict[str, tuple[Counter[str], dict[str, str]]] = {}
    for path in sorted(folder.glob(f"{job['id']}.*.npz"), key=lambda each: int(each.suffixes[0][1:])):
        with np.load(path, allow_pickle=False) as arrays:
            said = json.loads(bytes(arrays["said"]))
            try:
                made = _read(cann.torch, arrays, said["made"])
                given = {name: _read(cann.torch, arrays, each) for name, each in said["given"].items()}
            except (AttributeError, RuntimeError) as error:  # a dtype that torch does not have
                found.setdefault("", (Counter(), {}))[1].setdefault("skipped", str(error)[:160])
                continue
        dtypes = said["dtypes"] if isinstance(said["dtypes"], (list, tuple)) else []
        shapes = said["shapes"] if isinstance(said.get("shapes"), (list, tuple)) else []
        made = [each.reshape(shapes[i]) if hasattr(each, "dim") and i < len(shapes) and isinstance(shapes[i], (list, tuple)) and each.dim() != len(shapes[i]) and len(shapes[i]) > 1 and each.numel() == int(np.prod(shapes[i])) else each for i, each in enumerate(made)]  # fmt: skip  # noqa: E501
        made = [each.to(getattr(cann.torch, dtypes[i], each.dtype)) if hasattr(each, "dim") and i < len(dtypes) and isinstance(dtypes[i], str) else each for i, each in enumerate(made)]  # fmt: skip  # noqa: E501
        for call in job["wanted"]:
            counts, reasons = found.setdefault(call, (Counter(), {}))
            try:
                how, why = judged(cann, call, given, made, said.get("defaults", ()))
            except Exception as error:  # noqa: BLE001
                how, why = "unbound", f"{type(error).__name__}: {error}"[:160]
            counts[how] += 1
            reasons.setdefault(how, why)
    return found


@click.command(help=__doc__)
@click.argument("checkouts", nargs=-1, required=True, metavar="NAME=CHECKOUT...")
@click.option("--calls", default=20, show_default=True, help="Calls of each golden.")
@click.option("--only", default="", help="Judge goldens whose name this pattern matches.")
@click.option("--python", default=sys.executable, help="What runs the goldens: with torch, ml_dtypes and tensorflow.")
@click.option("--results", type=click.Path(path_type=Path), help="Keep what the goldens gave here, and run the others.")
@click.option("--write", is_flag=True, help="Write docs/evaluation/goldens.md.")
def main(checkouts: Sequence[str], calls: int, only: str, python: str, results: Path | None, *, write: bool) -> None:
    """Run the goldens, then the functions of CANN, and print or write the table."""
    from tools.evaluation.support import write as write_page

    where = {each.partition("=")[0]: Path(each.partition("=")[2]) for each in checkouts}
    cann = Cann()
    with tempfile.TemporaryDirectory() as temporary:
        folder = results or Path(temporary)
        folder.mkdir(exist_ok=True)
        jobs = [job for job in jobs_of(cann, where, folder, calls) if re.search(only, job["name"])]
        left = [job for job in jobs if job["wanted"] and not (folder / f"{job['id']}.json").exists()]
        (folder / "jobs.json").write_text(json.dumps(left), encoding="utf-8")
        ours = ("ASCEND", "LD_", "PYTHONPATH")
        variables = {name: each for name, each in os.environ.items() if not any(word in name for word in ours)}
        variables |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        subprocess.run([python, __file__, folder], env=variables, check=True)  # noqa: S603
        rows = [row for job in jobs for row in rows_of(cann, job, folder)]
    asked = {row[1] for row in rows if row[1]}
    without = sorted(set(cann.kernels) - asked)
    lines = summary(rows, len(cann.kernels) + len(cann.named), without)
    for line in lines:
        click.echo(line)
    if write:
        write_page("goldens", "table", lines)


_VERDICTS = ("agrees", "differs", "fails", "refused", "other", "unbound")


def rows_of(cann: Cann, job: Mapping[str, Any], folder: Path) -> Iterator[list[str]]:
    """Yield the rows of a golden: its source, the function, how calls ended, and why some did not agree."""
    name, note = job["source"].removesuffix("/golden.py").removesuffix("/tests/assets"), DATA["notes"].get(job["name"])
    if not job["wanted"]:
        yield [name, "", "not emulated", ""]
        return
    found = outcome(cann, job, folder)
    path = folder / f"{job['id']}.json"
    errors = json.loads(path.read_text()) if path.exists() else [["it ran past its time", 1]]
    for call in job["wanted"]:
        counts, reasons = found.get(call, (Counter(), {}))
        how = ", ".join(f"{each} {counts[each]}" for each in _VERDICTS if counts[each] and each not in ("other", "unbound"))
        why = [f"{reasons[each]}" for each in ("differs", "fails", "refused", "unbound") if counts[each]]
        why += [f"golden: {errors[0][0]}"] if errors and not counts else []
        words = (note or "; ".join(why)).replace("|", "\\|").replace("\n", " ")[:300]
        yield [name, call.split("(")[0], how or "not asked", words]


def summary(rows: Sequence[Sequence[str]], kernels: int, without: Sequence[str]) -> list[str]:
    """Return the page: figures, then the tables."""
    from tools.evaluation.support import table

    judged = [row for row in rows if row[1]]
    kinds = {
        "agree in every call that both take": [row for row in judged if "agrees" in row[2] and not re.search("differs|fails", row[2])],
        "differ or fail in some calls": [row for row in judged if re.search("differs|fails", row[2])],
        "could not be asked": [row for row in judged if not re.search("agrees|differs|fails", row[2])],
    }  # fmt: skip
    figures = [f"- {len({row[1] for row in of})} functions {kind}" for kind, of in kinds.items()]
    lines = [f"{len({row[1] for row in judged})} of {kernels} functions of the emulated device have a golden:", "", *figures]
    for kind, of in kinds.items():
        lines += ["", f"### {len(of)} goldens whose functions {kind}", ""]
        lines += table(["golden", "function", "calls", "why, who is right"], of)
    away = sorted({row[0] for row in rows if not row[1]})
    lines += ["", f"### {len(away)} goldens of what is not emulated", "", ", ".join(f"`{each}`" for each in away)]
    lines += ["", f"### {len(without)} functions without a golden", ""]
    return [*lines, ", ".join(f"`{each.removeprefix('aclnn')}`" for each in without)]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
