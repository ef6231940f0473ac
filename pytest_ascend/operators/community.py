"""Third-party operator cases from files in the user's own checkout: ATK's JSON and TTK's CSV.

Files are untrusted input: their size is bounded, they are parsed as data, and code beside them is never imported. A
case that is not a plain call of torch is kept with the reason, never dropped.

Formats, as written by their tools: ATK's ``CaseConfig`` (``inputs`` of type tensor, tensors, scalar or attr, each with
``dtype``, ``shape`` and ``range_values``; ``api_type`` names an executor, and ``function`` is the plain call); TTK's
columns for the modes aclnn and e2e (``tensor_view_shapes``, ``tensor_dtypes``, ``attributes``, ``input_data_ranges``).
"""

from __future__ import annotations

import ast
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from pytest_ascend.operators.samples import Values
from pytest_ascend.records.case import Case
from pytest_ascend.run import allowed
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular, strict_json
from pytest_ascend.system.programs import memory_limited
from pytest_ascend.system.text import one_line

#: Limits on bytes and lines of a file, elements of a case, files, dimensions; what exceeds them is refused.
FILE_BYTES, ROWS, ELEMENTS, FILES, RANK = 64 * 2**20, 100_000, 2**26, 20_000, 64
FORWARD, NOT_RUN = "forward", "not-run"

#: Names of dtypes in both formats, other than torch's.
DTYPES = {
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp": "float32",
    "bf16": "bfloat16",
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "int": "int64",
    "uint1": "bool",
}
#: Executors that are a plain call of a torch function: ATK's own, and a family named after its function.
PLAIN, NAMED = "function", re.compile(r"(?:ascend_)?method_torch_(\w+)")
#: Operators whose aclnn name, in lower case, is not torch's.
RENAMED = {
    "reduce_sum": "sum",
    "zero": "Tensor.zero_",
    "cast": "Tensor.to",
    "clip_min": "clamp_min",
    "clamp_min_tensor": "clamp_min",
    "clamp_max_tensor": "clamp_max",
    "clamp_tensor": "clamp",
    "split_with_size": "split",
    "split_tensor": "split",
}
#: Attributes of the test tools themselves.
NOT_TORCHS = {"format", "cubeMathType", "cube_math_type"}
#: Functions with random results, which are not comparable.
RANDOM = re.compile(r"rand|dropout|bernoulli|multinomial|normal_|normal$|uniform|exponential|poisson|geometric|cauchy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One case of a file: the function names to try, and its arguments (:class:`Values` for tensors).

    Tensors are uniform from ``low`` to ``high``, or normal with this mean and deviation. ``why`` is the reason why the
    case cannot be run, "" if it can.
    """

    name: str
    functions: tuple[str, ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    dtype: str = ""
    why: str = ""


class _Refused(ValueError):
    """A case that is not a plain call; ``str()`` gives the reason."""


@cache
def read(folder: Path) -> dict[Case, Call]:
    """Return the cases of every JSON and CSV file below ``folder``, and one for each reason why others are not run.

    Raises UsageError if the folder does not exist or has no cases.
    """
    if not folder.is_dir():
        hint = "name a checkout with ATK or TTK cases"
        raise UsageError(f"--ascend-cases={folder}: there is no such folder", hint=hint)
    found: dict[Case, Call] = {}
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".json", ".csv"})
    for path in paths[:FILES]:
        subject = path.relative_to(folder).as_posix()
        reasons: Counter[str] = Counter()
        for call in _calls(path):
            if call.why:
                reasons[call.why] += 1
                continue
            name = f"{subject}/{call.name}"
            case = Case(suite="user", subject=name, property=FORWARD, dtype=call.dtype, family=subject)
            found.setdefault(case, call)
        for index, (why, count) in enumerate(reasons.items()):
            case = Case(suite="user", subject=subject, property=f"{NOT_RUN}-{index}", family=subject)
            found[case] = Call(name=subject, why=f"{count} cases of {path.name}: {why}")
    if not found:
        hint = "ATK's are JSON lists with inputs, TTK's CSV with api_name"
        raise UsageError(f"--ascend-cases={folder}: there are no cases", hint=hint)
    return found


def _calls(path: Path) -> Iterator[Call]:
    """Yield the cases of a file: one with the reason if it is damaged, none if it has another format."""
    try:
        data = read_regular(path, FILE_BYTES)
        rows = _atk_rows(data) if path.suffix == ".json" else _ttk_rows(data)
    except (ValueError, OSError, csv.Error) as error:
        yield Call(name=path.stem, why=f"the file cannot be read: {one_line(str(error))[:120]}")
        return
    convert: Callable[[Mapping[str, Any], int], Call] = _atk if path.suffix == ".json" else _ttk
    taken: Counter[str] = Counter()
    for index, row in enumerate(rows):
        try:
            call = convert(row, index)
            if _elements(call) > ELEMENTS:
                raise _Refused(f"its tensors have more than {ELEMENTS:,} elements")
        except Exception as error:  # noqa: BLE001 - a parser may raise anything for a malformed file
            reason = str(error) if isinstance(error, _Refused) else f"not as its format says: {type(error).__name__}"
            call = Call(name=str(index), why=one_line(reason)[:200])
        taken[call.name] += 1
        if taken[call.name] > 1:
            call = replace(call, name=f"{call.name}-{taken[call.name]}")
        yield call


def _atk_rows(data: bytes) -> list[Mapping[str, Any]]:
    """Return the cases of ATK's file; none for other JSON, such as kernel configurations."""
    if b'"inputs"' not in data or b'"name"' not in data:
        return []
    found = strict_json(data)
    rows = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, Mapping)]
    return [each for each in rows if isinstance(each.get("inputs"), list) and "name" in each]


def _atk(row: Mapping[str, Any], index: int) -> Call:
    executor, aclnn = str(row.get("api_type") or PLAIN), row.get("aclnn_name")
    name = f"{aclnn or row['name']}-{row.get('id', index)}"
    if row.get("expected_error_msg"):
        raise _Refused("expects an error of aclnn")
    named = NAMED.fullmatch(executor)
    if executor != PLAIN and not named:
        raise _Refused(f"the executor {executor} is a program of its own")
    functions = _functions(named[1]) if named else _functions(str(row["name"]), str(aclnn or ""))
    args, kwargs, dtype = list[Any](), list[tuple[str, Any]](), ""
    for given in row["inputs"]:
        value = [_atk_value(each) for each in given] if isinstance(given, list) else _atk_value(given)
        first, head = (each[0] if isinstance(each, list) and each else each for each in (value, given))
        dtype = dtype or (first.dtype if isinstance(first, Values) else "")
        if head["type"].startswith("attr"):
            name_of = str(head.get("name") or f"attribute{len(kwargs)}")
            if name_of not in NOT_TORCHS:
                kwargs.append((name_of, value))
        else:
            args.append(value)
    return Call(name=_plain(name), functions=functions, args=tuple(args), kwargs=tuple(kwargs), dtype=dtype)


def _atk_value(given: Mapping[str, Any]) -> Any:
    values = given.get("range_values")
    if values in ("null", ["null"], "default", ["default"]):
        return None
    is_tensor = str(given["type"]) in {"tensor", "tensors"}
    return _given(given["shape"], str(given["dtype"]), values) if is_tensor else values


def _ttk_rows(data: bytes) -> list[Mapping[str, Any]]:
    """Return the cases of TTK's file; none for other tables."""
    text = data.decode("utf-8-sig")
    if text.count("\n") > ROWS:
        raise ValueError(f"more than {ROWS:,} lines")
    rows: list[Mapping[str, Any]] = [*csv.DictReader(io.StringIO(text, newline=""))]
    return rows if rows and "testcase_name" in rows[0] else []


def _ttk(row: Mapping[str, str], index: int) -> Call:
    api = (row.get("api_name") or "").strip()
    if not api:
        raise _Refused("it is of a kernel, not of a function")
    if row.get("expected_error") or row.get("expected_error_msg"):
        raise _Refused("expects an error of aclnn")
    of_strides = ("tensor_storage_shapes", "tensor_view_strides", "tensor_view_offsets")
    if any(_literal(row.get(name), ()) for name in of_strides):
        raise _Refused("tensors with strides of their own are not made yet")
    shapes = list(_literal(row["tensor_view_shapes"], ()))
    dtypes = _stretched(_literal(row.get("tensor_dtypes"), ("float32",)), len(shapes))
    ranges = _stretched(_literal(row.get("input_data_ranges"), ((-1, 1),)), len(shapes))
    outputs = {position % len(shapes) for position in _literal(row.get("output_tensor_indexes"), ()) if shapes}
    given = enumerate(zip(shapes, dtypes, ranges, strict=True))
    # A tensor changed in place is an output as well as an argument.
    args = [_nested(*each) for position, each in given if api.endswith("_") or position not in outputs]
    attributes = _literal(row.get("attributes"), {})
    first = next((each for each in args if isinstance(each, Values)), None)
    return Call(
        name=_plain(row.get("testcase_name") or str(index)),
        functions=_functions(api),
        args=tuple(args),
        kwargs=tuple((str(key), value) for key, value in dict(attributes).items()),
        dtype=first.dtype if first else "",
    )


def _literal(text: str | None, default: Any) -> Any:
    """Parse a cell: a Python literal, or JSON's true, false and null."""
    if text is None or not text.strip():
        return default
    for word, value in (("true", "True"), ("false", "False"), ("null", "None"), ("-inf", "-1e999"), ("inf", "1e999")):
        text = re.sub(rf"(?<![\w'\"]){word}(?![\w'\"])", value, text)
    return ast.literal_eval(text)


def _stretched(values: Any, count: int) -> list[Any]:
    """Return one value per tensor, repeating the last one as needed."""
    found = list(values) if isinstance(values, list | tuple) else [values]
    if count and not found:
        raise _Refused("dtypes or ranges are missing")
    return (found + found[-1:] * count)[:count]


def _nested(shape: Any, dtype: Any, bounds: Any) -> Any:
    """Return the description of a tensor, or a list of them if the shape is a list of shapes."""
    if shape and not isinstance(shape[0], int):
        return [_nested(*each, bounds) for each in zip(shape, _stretched(dtype, len(shape)), strict=True)]
    return _given(shape, str(dtype), bounds)


def _given(shape: Sequence[int], dtype: str, values: Any) -> Values:
    """Describe a tensor; ``values`` is a number, two bounds, or ATK's normal distribution with two ranges."""
    sizes = tuple(int(size) for size in shape or ())
    if min(sizes, default=0) < 0 or len(sizes) > RANK:
        raise _Refused(f"a shape has a negative size, or more than {RANK} dimensions")
    while isinstance(values, list | tuple) and len(values) == 1:
        values = values[0]
    dtype = DTYPES.get(dtype.lower(), dtype.lower())
    if isinstance(values, Mapping):
        mean, deviation = (sum(map(float, values[name])) / 2 for name in ("mean", "std"))
        return Values(shape=sizes, kind="normal", low=mean, high=deviation, dtype=dtype)
    bounds = values if isinstance(values, list | tuple) and len(values) == 2 else (values, values)
    low, high = (0.0 if each is None else float(each) for each in bounds)
    return Values(shape=sizes, kind="uniform", low=low, high=high, dtype=dtype)


def _elements(call: Call) -> int:
    given = tree_flatten((call.args, call.kwargs))[0]
    return sum(math.prod(each.shape) for each in given if isinstance(each, Values))


def _functions(*names: str) -> tuple[str, ...]:
    """Return the torch names to try, most likely first: as written, then from aclnn's name in lower case."""
    found: list[str] = []
    for name in filter(None, names):
        if name.startswith(("torch.", "torch_npu.")):
            found.append(name)
            continue
        small = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("aclnn")).lower()
        small = RENAMED.get(small, small)
        small = f"Tensor.{small.removeprefix('inplace_')}_" if small.startswith("inplace_") else small
        found += [f"torch.{small}", f"torch.nn.functional.{small}", f"torch.special.{small}", f"torch.Tensor.{small}"]
    if RANDOM.search(found[0].rpartition(".")[2]):
        raise _Refused("draws random numbers")
    if _found(tuple(found))[0] is None:
        raise _Refused(f"neither torch nor torch_npu has an operator {found[0]}")
    return tuple(found)


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name)[:100]


def compute(call: Call, device: torch.device, reference: Callable[..., Any], compare: Callable[..., Any]) -> None:
    """Run a case on the device and judge it against float64 on the CPU. Raises UsageError if torch refuses it."""
    function, name = _found(call.functions)
    assert function is not None  # noqa: S101 - a missing function has a reason not to run
    generator = torch.Generator().manual_seed(0)
    message, hint = f"torch on the CPU refuses it: {name}", "the case is for an interface that is not torch's"
    refused = as_error(message, hint, Exception, why=lambda exc: f"{type(exc).__name__}: {one_line(str(exc))[:200]}")
    with memory_limited(allowed.memory_bytes(8 * _elements(call))), refused:
        args = [_made(each, generator) for each in call.args]
        kwargs = {key: _made(value, generator) for key, value in call.kwargs if value is not None}
        while args and args[-1] is None:
            args.pop()
        try:
            expected = reference(function, *args, **kwargs)
        except TypeError:  # attributes have CANN's names, which are not always torch's
            args, kwargs = [*args, *kwargs.values()], {}
            expected = reference(function, *args)
    args, kwargs = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
    compare(function(*args, **kwargs), expected, name=name)


@cache
def _found(names: Sequence[str]) -> tuple[Callable[..., Any] | None, str]:
    """Return the first of these operators that is allowed and exists, and its name; None if there is none."""
    return next(((found, name) for name in names if (found := allowed.function(name))), (None, ""))


def _made(value: Any, generator: torch.Generator) -> Any:
    """Make a tensor, or a nested list of tensors, from its description; return anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_made(each, generator) for each in value]
    if not isinstance(value, Values):
        return value
    dtype = getattr(torch, value.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"torch has no dtype {value.dtype}", hint="deselect the case")
    if dtype == torch.bool:
        return torch.randint(0, 2, value.shape, generator=generator).bool()
    limits = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    if value.kind == "normal":
        sampled = torch.randn(value.shape, generator=generator, dtype=torch.float64) * value.high + value.low
    elif value.low == value.high:
        sampled = torch.full(value.shape, value.low, dtype=torch.float64)
    else:
        low, high = (max(min(each, float(limits.max)), float(limits.min)) for each in (value.low, value.high))
        share = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        sampled = low * (1 - share) + high * share
    if dtype.is_complex:
        return torch.complex(sampled, sampled.flip(0) if sampled.dim() else sampled).to(dtype)
    return (sampled if dtype.is_floating_point else sampled.round().clamp(limits.min, limits.max)).to(dtype)
