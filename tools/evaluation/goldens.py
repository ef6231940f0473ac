"""CANN's goldens as a second oracle: each emulated kernel is compared with the result its makers define.

    python -m tools.evaluation goldens ops-math=CHECKOUT ops-nn=CHECKOUT ops-cv=CHECKOUT

Each CHECKOUT is a git repository of CANN's operators, read at its HEAD. Its goldens, input generators and case files
are extracted to a temporary folder and run in separate processes (``golden_cases.py``), which import neither
torch_npu nor this project; nothing of them is kept. A golden's cases are those of its files, large ones with reduced
sizes in the same ratios; if there are fewer than ``--calls``, also in other dtypes and with other seeds. CANN's
functions are called as from C programs, so that the same command can judge a real NPU.

``goldens.json`` has what names do not tell: ``calls``, how to call functions of CANN with the parameters of a golden
(``->`` selects the results in ``made``, and ``1/0`` marks a case that a function does not support); ``cases`` where
there are no usable files; ``notes``, which side is right where both differ, with the source.
"""

from __future__ import annotations

import ast
import csv
import ctypes
import inspect
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import torch
import torch_npu
from torch.utils._pytree import tree_map_only

from pytest_ascend.emulator.kernels import all_kernels, all_named
from pytest_ascend.emulator.signature import Signature
from pytest_ascend.emulator.tensors import DTYPES

from .support import git, show, table

DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
KERNELS = {kernel.name: kernel.signature for kernel in all_kernels()}
NAMED = {kernel.name.lower(): kernel for kernel in all_named()}
CODES = {dtype: code for code, dtype in DTYPES.items()}
#: Allowed rounding difference by dtype: a relative one, a 64th of it relative to the mean, and an absolute one.
ROOM = {torch.float32: (2**-14, 1e-7), torch.complex64: (2**-14, 1e-7), torch.float16: (2**-9, 2e-6)}
_T = torch.Tensor
_NULL = ctypes.c_void_p(None)
_ITEMS = {"IntArray": ctypes.c_int64, "BoolArray": ctypes.c_bool, "FloatArray": ctypes.c_float}
_SCALARS = ((bool, 12, ctypes.c_bool), (int, 9, ctypes.c_int64), (float, 11, ctypes.c_double))


class Cann:
    """CANN's functions, called as from a C program, on the emulated device or on an NPU."""

    def __init__(self) -> None:
        self.base, self.ops, self.runtime = map(ctypes.CDLL, ("libnnopbase.so", "libopapi.so", "libascendcl.so"))
        torch.ones(1, device="npu")
        self.stream = ctypes.c_void_p(torch_npu.npu.current_stream().npu_stream)
        self.runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.kept: list[Any] = []

    def _made(self, kind: str, *arguments: Any) -> ctypes.c_void_p:
        call = getattr(self.base, f"aclCreate{kind}")
        call.restype = ctypes.c_void_p
        return ctypes.c_void_p(call(*arguments))

    def _array(self, item: Any, values: Sequence[Any]) -> Any:
        self.kept.append((item * max(1, len(values)))(*values))
        return self.kept[-1]

    def argument(self, kind: str, value: Any) -> Any:  # noqa: PLR0911
        """Return a value as C passes it, in the type that a function declares."""
        if kind in ("TensorList", "ScalarList"):
            values = [value] if isinstance(value, _T) and kind == "TensorList" else [] if value is None else value
            items = [self.argument(kind.removesuffix("List"), each) for each in values]
            return self._made(kind, self._array(ctypes.c_void_p, items), ctypes.c_uint64(len(items)))
        if kind == "Tensor" and value is not None:
            self.kept.append(value)
            sizes, strides = (self._array(ctypes.c_int64, each) for each in (value.shape, value.stride()))
            rank, where = ctypes.c_uint64(value.dim()), ctypes.c_void_p(value.data_ptr())
            code = CODES[value.dtype]
            return self._made(kind, sizes, rank, code, strides, ctypes.c_int64(0), 2, sizes, rank, where)
        value = value.tolist() if hasattr(value, "tolist") else value
        if value is None and (kind in ("Tensor", "Scalar", "text") or kind in _ITEMS):
            return _NULL
        if kind == "Scalar":
            code, item = next((code, item) for of, code, item in _SCALARS if isinstance(value, of))
            return self._made(kind, self._array(item, [value]), code)
        if kind in _ITEMS:
            values = value if isinstance(value, list | tuple) else [value]
            return self._made(kind, self._array(_ITEMS[kind], values), ctypes.c_uint64(len(values)))
        if kind == "text":
            return ctypes.c_char_p(str(value).encode())
        return getattr(ctypes, f"c_{'int32' if kind == 'dtype' else kind}")(value or 0)

    def call(self, name: str, arguments: Sequence[tuple[str, Any]]) -> tuple[int, str]:
        """Call both phases of a function; return its error code (0 for none) and CANN's message."""
        self.kept = []
        given = [self.argument(kind, value) for kind, value in arguments]
        size, executor = ctypes.c_uint64(0), ctypes.c_void_p(None)
        code = getattr(self.ops, f"{name}GetWorkspaceSize")(*given, ctypes.byref(size), ctypes.byref(executor))
        room = torch.empty(max(1, size.value), dtype=torch.uint8, device="npu")
        code = code or getattr(self.ops, name)(ctypes.c_void_p(room.data_ptr()), size, executor, self.stream)
        torch_npu.npu.synchronize()
        return code, (self.runtime.aclGetRecentErrMsg() or b"").decode(errors="replace")


# Mapping the parameters of a golden to the inputs of a function.

_SAME = {**dict.fromkeys(("axis", "axes", "dims", "dimension"), "dim"), "keepdims": "keepdim", "eps": "epsilon"}
#: Additional parameters of CANN's functions, with the values at which they have no effect.
_NEUTRAL = {"alpha": 1, "cube": 0, "dtype": None, "rounding": 0}


def _one(value: Any) -> Any:
    if isinstance(value, _T) and value.numel() != 1:
        raise ZeroDivisionError
    return value.reshape(-1)[0].item() if isinstance(value, _T) else value[0] if isinstance(value, list) else value


def _ints(value: Any) -> Any:
    return value.reshape(-1).tolist() if isinstance(value, _T) else value


def _pairs(value: Any) -> Any:
    numbers = _ints(value)
    return numbers if isinstance(numbers[0], list) else [numbers[i : i + 2] for i in range(0, len(numbers), 2)]


#: Names that ``calls`` may use.
WORDS: dict[str, Any] = {
    "torch": torch,
    "one": _one,
    "ints": _ints,
    "pairs": _pairs,
    "code": lambda tensor: CODES[tensor.dtype],
    "dims": lambda *values: _one(next((each for each in values if each is not None), -1)),
    "sides": lambda value, last=99: [each for pair in reversed(_pairs(value)[-last:]) for each in pair],
    "adj": lambda tensor, is_turned: tensor.mT if is_turned else tensor,
    "kind": lambda dtype: dtype if isinstance(dtype, int) else {"torch.qint8": 2, "torch.quint8": 4}[dtype],
}


def _plain(name: str) -> str:
    name = name.lower().replace("_", "").removesuffix("optional")
    return _SAME.get(name, name)


def bound(signature: Signature, given: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a function: tensors in order, others by name. Raise LookupError if they do not fit."""
    tensors = [name for name, each in given.items() if isinstance(each[0] if isinstance(each, list) and each else each, _T | None)]  # fmt: skip  # noqa: E501
    others = {_plain(name): each for name, each in given.items() if name not in tensors}
    values = []
    for each in (each for each in signature.parameters if each.is_input):
        is_tensor = each.type in ("Tensor", "TensorList")
        if not is_tensor and _plain(each.name) in others:
            values.append(others.pop(_plain(each.name)))
        elif not is_tensor and each.name in _NEUTRAL:
            values.append(_NEUTRAL[each.name])
        elif tensors:
            values.append(given[tensors.pop(0)])
        elif is_tensor:
            values.append(None)
        else:
            raise LookupError(f"{each.name} of {signature.name}")
        if each.type in ("int64", "int32") and isinstance(values[-1], list) and len(values[-1]) == 1:
            values[-1] = values[-1][0]
    if left := [name for name in tensors if given[name] is not None]:
        raise LookupError(f"{', '.join(left)} of the golden")
    return values


def difference(actual: _T, expected: _T) -> str:
    """Return how a result differs from a golden, beyond the rounding of its dtype; "" if it does not."""
    if actual.numel() != expected.numel():
        return f"shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    wide = torch.complex128 if actual.is_complex() else torch.float64
    one, other = actual.reshape(-1).to(wide), expected.reshape(-1).to(wide)
    is_rounded = actual.is_floating_point() or actual.is_complex()
    share, least = ROOM.get(actual.dtype, (2**-6, 2e-6)) if is_rounded else (0.0, 0.0)
    finite = other.abs()[other.isfinite()]
    mean = float(finite.mean()) if finite.numel() else 0.0
    wrong = ~torch.isclose(one, other, share, share / 64 * mean + least, equal_nan=True)
    if not (count := int(wrong.sum())):
        return ""
    place, kind = int(wrong.nonzero()[0]), str(actual.dtype).removeprefix("torch.")
    return f"{count} of {wrong.numel()} {kind}: {one[place]:.6g}, not {other[place]:.6g}"


def judged(
    cann: Cann, call: str, given: Mapping[str, Any], made: Sequence[Any], unset: Sequence[str]
) -> tuple[str, str]:
    """Return a function's outcome against a golden's results, and the reason: agrees, differs, refused, and so on."""
    expression, _, order = call.partition(" -> ")
    name = expression.split("(")[0]
    made = list(eval(order, {}, {"made": made})) if order else made  # noqa: S307
    if name not in KERNELS:  # called by its name: the emulated device's implementation
        if "(" in expression:
            space = {**WORDS, name: lambda *values, **named: (values, named, []), **given}
            tensors, others, left = eval(expression, space)  # noqa: S307
        else:
            tensors, others, left = _by_name(NAMED[name.lower()].body, given, unset)
        if left:
            return "not asked", f"{name} is emulated without {', '.join(left)}, which torch_npu does not pass"
        try:
            found = NAMED[name.lower()].body(*tensors, **others)
        except Exception as error:  # noqa: BLE001
            return "fails", f"{type(error).__name__}: {error}"
        return _compared(found if isinstance(found, list | tuple) else [found], made)
    on = tree_map_only(_T, lambda one: one.to("npu"), dict(given))
    space = {**WORDS, name: lambda *values: list(values), "made": made, **on}
    inputs = eval(expression, space) if "(" in expression else bound(KERNELS[name], on)  # noqa: S307
    if next((each.type for each in KERNELS[name].parameters if each.role != "in"), "") == "TensorList":
        made = made if isinstance(made[0], list) else [list(made)]
    results: list[Any] = []
    arguments = []
    for each in KERNELS[name].parameters:
        value = inputs.pop(0) if each.is_input else None
        if not each.is_input and len(results) < len(made):
            value = tree_map_only(_T, lambda one: torch.empty_like(one, device="npu"), made[len(results)])
        if each.role != "in" and (value is not None or not each.is_input):
            results.append(value)
        arguments.append((each.type, value))
    code, said = cann.call(name, arguments)
    if code:
        return ("refused" if code // 1000 == 161 else "fails"), said
    return _compared(tree_map_only(_T, _T.cpu, results), made)


def _by_name(body: Any, given: Mapping[str, Any], unset: Sequence[str]) -> tuple[list[_T], dict[str, Any], list[str]]:
    """Return the tensors and attributes that an operator accepts by name, and the names it does not accept."""
    try:
        takes = inspect.signature(body).parameters.values()
    except ValueError:  # torch's own functions
        takes = ()
    needed = {each.name for each in takes if each.default is each.empty}
    lists = {n: v if isinstance(v, list) else [v] for n, v in given.items() if v is not None}
    tensors = {n: v for n, v in lists.items() if v and isinstance(v[0], _T)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in takes)
    others = {n: given[n] for n in lists if n not in tensors and (n not in unset or n in needed)}
    known = set(others) if takes_any else {each.name for each in takes}
    return [each for of in tensors.values() for each in of], others, sorted(set(others) - known)


def _compared(actual: Sequence[Any], expected: Sequence[Any]) -> tuple[str, str]:
    for one, other in zip(actual, expected, strict=False):
        pairs = zip(one, other, strict=True) if isinstance(one, list | tuple) else [(one, other)]
        for a, e in pairs:
            if a is not None and e is not None and (why := difference(a.to(e.dtype), e)):
                return "differs", why
    return "agrees", ""


def _as_said(made: Any, shape: Any, dtype: Any) -> Any:
    """Return a golden's result in the shape and dtype that its case declares."""
    if not isinstance(made, _T):
        return made
    sizes = isinstance(shape, list | tuple) and len(shape) > 1 and all(isinstance(each, int) for each in shape)
    fits = sizes and made.numel() == math.prod(shape)
    return made.reshape(shape if fits else made.shape).to(getattr(torch, str(dtype), made.dtype))


# Collecting goldens, and the page.


def _declared(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the function of each golden that a file declares, without running it."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("__golden__", "__spec__"):
            pairs = zip(node.value.keys, node.value.values, strict=True) if isinstance(node.value, ast.Dict) else ()
            for key, value in pairs:
                if isinstance(value, ast.Dict):
                    yield from ast.literal_eval(value).items()
                else:
                    yield ast.literal_eval(key), ast.unparse(value).strip("'")


def _wanted(name: str) -> list[str]:
    """Return the calls of functions that a golden judges, and those of their in-place variants."""
    plain = name.replace("_", "").removeprefix("aclnn").lower()
    same = [each for each in KERNELS if each.lower() == f"aclnn{plain}"]
    calls = DATA["calls"].get(name, same)
    if plain in NAMED and not any(call.lower().startswith(f"{plain}(") for call in calls):
        calls = [*calls, NAMED[plain].name]
    made = []
    for call in calls:
        function = call.split("(")[0]
        inplace = function.replace("aclnn", "aclnnInplace", 1)
        made += [call] if function in KERNELS or function.lower() in NAMED else []
        if inplace in KERNELS and _inputs_of(inplace) == _inputs_of(function):
            made.append(call.replace(function, inplace, 1))
    return list(dict.fromkeys(made))


def _inputs_of(name: str) -> int:
    return sum(each.is_input for each in KERNELS[name].parameters)


def jobs_of(checkouts: Mapping[str, Path], folder: Path, calls: int) -> Iterator[dict[str, Any]]:
    """Extract the goldens, and yield each once, with its cases and the functions that it judges."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, checkout in checkouts.items():
        held = git(checkout, "archive", "HEAD", "--", ":(glob)**/tests/**/*.py", ":(glob)**/*.csv")
        with tarfile.open(fileobj=BytesIO(held)) as files:
            files.extractall(folder / name, filter="data")
        for path in sorted((folder / name).rglob("ttk*.csv")):
            with path.open(newline="", encoding="utf-8-sig") as file:
                for row in csv.DictReader(file):
                    rows[row.get("op_name") or row.get("api_name") or ""].append(row)
    seen: set[str] = set()
    chip = re.sub(r"(910B|910_93|310P|950).*", r"\1", torch_npu.npu.get_device_name())
    for path in sorted(each for name in checkouts for each in (folder / name).rglob("*golden*.py")):
        for name, function in () if "/experimental/" in str(path) else _declared(path.read_text(encoding="utf-8")):
            if name not in seen:
                seen.add(name)
                job = {"id": len(seen), "name": name, "function": function, "calls": calls, "chip": chip}
                job |= {"source": str(path.relative_to(folder).parents[2]), "file": str(path)}
                yield job | {"rows": DATA["cases"].get(name) or rows[name], "wanted": _wanted(name)}


def rows_of(cann: Cann, job: Mapping[str, Any], folder: Path) -> Iterator[list[str]]:
    """Yield the rows of a golden: its source, the function, outcomes of calls, and reasons for disagreement."""
    path = folder / f"{job['id']}.json"
    errors = json.loads(path.read_text()) if path.exists() else [["it ran past its time"]]
    ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[tuple[str, str], str] = {}
    for held in sorted(folder.glob(f"{job['id']}.*.pt")):
        said = torch.load(held, weights_only=True)
        shapes, dtypes = (x if isinstance(x, list) else [] for x in (said["shapes"], said["dtypes"]))
        results = itertools.zip_longest(said["made"], shapes, dtypes)
        made = [_as_said(*each) for each in itertools.islice(results, len(said["made"]))]
        for call in job["wanted"]:
            try:
                how, why = judged(cann, call, said["given"], made, said["defaults"])
            except ZeroDivisionError:
                continue
            except Exception as error:  # noqa: BLE001
                how, why = "not asked", f"{type(error).__name__}: {error}"
            ends[call][how] += 1
            reasons.setdefault((call, how), why)
    for call in job["wanted"]:
        why = [reasons[call, how] for how in ("differs", "fails", "refused", "not asked") if ends[call][how]]
        why = why or [each[0] for each in errors[:1] if not ends[call]]
        if note := DATA["notes"].get(job["name"]):
            why = [note]
        counts = ", ".join(f"{how} {count}" for how, count in ends[call].most_common())
        words = "; ".join(why).replace("\n", " ")
        yield [job["source"], call.split("(")[0].removeprefix("aclnn"), counts or "not asked", words[:400]]


KINDS = (
    ("agree in every call that they take", lambda how: "agrees" in how and not re.search("differs|fails", how)),
    ("differ, or fail, in some calls", lambda how: re.search("differs|fails", how)),
    ("were not asked", lambda how: not re.search("agrees|differs|fails", how)),
)


@click.command(help=__doc__)
@click.argument("checkouts", nargs=-1, required=True, metavar="NAME=CHECKOUT...")
@click.option("--calls", default=20, show_default=True, help="Calls of each golden.")
@click.option("--only", default="", help="Judge goldens whose name this pattern matches.")
@click.option("--python", default=sys.executable, help="What runs the goldens: with torch, ml_dtypes and tensorflow.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="Keep what goldens gave here, and run only the others."
)
@click.option("--write", is_flag=True, help="Write docs/evaluation/goldens.md.")
def main(checkouts: Sequence[str], calls: int, only: str, python: str, results: Path | None, *, write: bool) -> None:
    """Run the goldens, then CANN's functions, and print or write the table."""
    cann = Cann()
    where = {each.partition("=")[0]: Path(each.partition("=")[2]) for each in checkouts}
    with tempfile.TemporaryDirectory() as temporary:
        folder = results or Path(temporary)
        folder.mkdir(exist_ok=True)
        jobs = [job for job in jobs_of(where, folder, calls) if re.search(only, job["name"])]
        left = [job for job in jobs if job["wanted"] and not (folder / f"{job['id']}.json").exists()]
        (folder / "jobs.json").write_text(json.dumps(left), encoding="utf-8")
        ours = re.compile("ASCEND|^LD_|PYTHONPATH")
        variables = {name: each for name, each in os.environ.items() if not ours.search(name)}
        variables |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        command = [python, str(Path(__file__).with_name("golden_cases.py")), str(folder)]
        subprocess.run(command, env=variables, check=True)  # noqa: S603
        rows = [row for job in jobs for row in rows_of(cann, job, folder)]
    asked = {row[1] for row in rows if re.search("agrees|differs|fails", row[2])}
    rows = [row for row in rows if row[1] not in asked or re.search("agrees|differs|fails", row[2])]
    functions = {row[1] for row in rows}
    lines = [f"{len(functions)} of {len(KERNELS) + len(NAMED)} functions of the emulated device have a golden:", ""]
    parts = [(words, [row for row in rows if is_one(row[2])]) for words, is_one in KINDS]
    lines += [f"- {len({row[1] for row in of})} {words}" for words, of in parts]
    for words, of in parts:
        lines += ["", f"### Functions that {words}", ""]
        lines += table(["golden", "function", "calls", "why, who is right"], of)
    away = sorted({job["source"] for job in jobs if not job["wanted"]})
    lines += ["", f"### {len(away)} goldens of what is not emulated", "", ", ".join(f"`{each}`" for each in away)]
    without = sorted({each.removeprefix("aclnn") for each in KERNELS} - functions)
    lines += ["", f"### {len(without)} functions without a golden", "", ", ".join(f"`{each}`" for each in without)]
    show(lines, "goldens", "table", is_written=write)
