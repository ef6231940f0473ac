"""Runs CANN's goldens: ``python golden_cases.py FOLDER`` runs FOLDER/jobs.json, each job in a child process.

A job names a golden and its cases. Inputs and results are written as ID.N.pt, exceptions of the golden as ID.json.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

#: Maximum elements of a case's tensors, above which its sizes are reduced; seconds for all cases of a golden.
MOST, LIMIT_S = 20_000, 120
FLOATS = ("float32", "float16", "bfloat16")
_SHORT = {"float": "float32", "fp32": "float32", "half": "float16", "fp16": "float16", "double": "float64"}
_SHAPES = ("input_shapes", "stc_inputs", "tensor_view_shapes", "input_ori_shapes")
_DTYPES = ("input_dtypes", "stc_input_dtypes", "tensor_dtypes")
_ATTRIBUTES = ("attributes", "other_runtime_params")
Row = Mapping[str, Any]


def _dtype(name: str) -> Any:
    name = _SHORT.get(name, name)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _value(text: Any) -> Any:
    try:
        names = {"inf": float("inf"), "nan": float("nan"), "__builtins__": {}}
        return eval(text, names) if isinstance(text, str) and text else text or None  # noqa: S307  (foreign code anyway)
    except (NameError, SyntaxError):
        return text


def _tensor(rng: Any, shape: Any, dtype: Any, spread: Any) -> Any:
    """Return values between two limits, sometimes one of those listed after them; a list for several shapes."""
    if shape is None or dtype is None:
        return None
    if shape and isinstance(shape[0], (list, tuple)):
        dtypes = dtype if isinstance(dtype, (list, tuple)) else [dtype]
        spreads = spread if spread and isinstance(spread[0], (list, tuple)) else [spread]
        return [_tensor(rng, each, _at(dtypes, i), _at(spreads, i)) for i, each in enumerate(shape)]
    kind = _dtype(dtype)
    low, high, *forced = spread if isinstance(spread, (list, tuple)) and len(spread) > 1 else (-2, 2)
    low, high = (-9 if low is None else low), (9 if high is None else high)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        low, high = (min(max(int(max(min(each, 2**62), -(2**62))), least), most) for each in (low, high))
        return rng.integers(low, max(low, high), shape, endpoint=True).astype(kind)
    most = float(np.finfo(kind).max) if kind.kind == "f" else 1e38
    low, high = max(low, -most), min(high, most)
    made = rng.random(shape) * (high / 2 - low / 2) * 2 + low
    return np.where(rng.random(shape) < 0.05 if forced else False, rng.choice([0.0, *forced], shape), made).astype(kind)


def _at(values: Any, place: int) -> Any:
    return values[min(place, len(values) - 1)] if isinstance(values, (list, tuple)) and values else values or None


def _count(shapes: Any) -> int:
    if isinstance(shapes, (list, tuple)) and shapes and not isinstance(shapes[0], int):
        return sum(map(_count, shapes))
    return int(np.prod(shapes or 1))


def _case(texts: Mapping[str, str]) -> Row:
    """Return a case with shapes, a dtype for each of them, and attributes, whatever the columns are called.

    Large sizes are reduced, in shapes and attributes; multiples remain multiples.
    """
    row = {name: _value(text) for name, text in texts.items()}
    shapes = next((row[each] for each in _SHAPES if row.get(each) is not None), ())
    dtypes = next((row[each] for each in _DTYPES if row.get(each)), ())
    shapes = (shapes,) if shapes and isinstance(shapes[0], int) else shapes
    attributes = next((row[each] for each in _ATTRIBUTES if isinstance(row.get(each), dict) and row[each]), {})
    row |= {"input_shapes": shapes, "input_dtypes": tuple(_at(dtypes, i) for i in range(len(shapes)))}
    row["attributes"] = attributes
    if _count(shapes) <= MOST:
        return row
    made: dict[int, int] = {}
    for size in sorted({each for each in tree_leaves(shapes) if type(each) is int}):
        base = next((each for each in made if each > 1 and size > 16 and not size % each and size <= 4 * each), None)
        made[size] = size if size <= 4 else size // base * made[base] if base else min(size, 4 + 2 * len(made))
    sized = {name: row.get(name) for name in ("input_shapes", "output_shapes", "attributes")}
    return row | tree_map(lambda each: made.get(each, each) if type(each) is int else each, sized)


def _cases(rows: Sequence[Row], calls: int) -> Iterator[Row]:
    """Yield cases with seeds: rows from all over the files, then the same with other floating dtypes."""
    chosen = [_case(row) for row in rows[:: max(1, len(rows) // (2 * calls))]]
    for again in range(1 + 3 * calls // max(1, len(chosen))):
        for place, row in enumerate(chosen):
            text = repr((row["input_dtypes"], row.get("output_dtypes")))
            old = [each for each in FLOATS if f"'{each}'" in text][-1:] or [""]
            new = FLOATS[(FLOATS.index(old[0]) + again) % 3] if old[0] else ""
            dtypes = _value(text.replace(f"'{old[0]}'", f"'{new}'"))
            yield {**row, "input_dtypes": dtypes[0], "output_dtypes": dtypes[1], "seed": again * len(chosen) + place}


def _inputs(names: Sequence[str], generator: Any, row: Row) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return the values of a case's tensors, its attributes, and further arguments of a golden."""
    rng = np.random.default_rng(row["seed"])
    np.random.seed(row["seed"])  # the generators use it
    attributes, values = dict(row["attributes"]), []
    for i, shape in enumerate(row["input_shapes"]):
        dtype = _at(row["input_dtypes"], i)
        if i < len(names) and names[i] in attributes and dtype:
            whole = np.array(attributes.pop(names[i]), _dtype(dtype))
            values.append(whole.reshape(shape if whole.size == np.prod(shape) else -1))
        else:
            values.append(_tensor(rng, shape, dtype, _at(row.get("input_data_ranges"), i)))
    about = {name: row.get(name) for name in ("input_dtypes", "output_dtypes", "input_shapes", "output_shapes")}
    for end in ("input", "output"):
        about |= {f"{end}_ori_shapes": about[f"{end}_shapes"], f"{end}_formats": ["ND"] * 20}
        about[f"{end}_ori_formats"] = about[f"{end}_formats"]
    about |= {"tensor_dtypes": row["input_dtypes"], "output_tensor_indexes": row.get("output_tensor_indexes") or [-1]}
    about |= {"short_soc_version": row["chip"], "full_soc_version": row["chip"], "testcase_name": "case"}
    if generator:
        given = {**attributes, **about, "input_ranges": row.get("input_data_ranges")}
        named = dict(zip(names, values, strict=False)) if row["by_name"] else {}
        values = list(generator(*(() if named else values), **named, **given))
    return values, attributes, about


def _kept(value: Any) -> Any:
    """Return arrays as tensors, bit for bit, and other values as far as a file of tensors can hold them.

    Raise AttributeError for a dtype that torch lacks.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        whole, dtype = np.array(value, order="C"), getattr(torch, value.dtype.name)
        held = torch.from_numpy(whole.reshape(-1).view(np.uint8))
        return (held.view(dtype) if whole.size else torch.empty(0, dtype=dtype)).reshape(whole.shape)
    if isinstance(value, (list, tuple)):
        return [_kept(each) for each in value]
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _run(job: Mapping[str, Any], folder: Path) -> None:
    spaces: list[dict[str, Any]] = []
    for path in map(str, [job["file"], *sorted(Path(job["file"]).parent.glob("input*.py"))]):
        sys.path.insert(0, str(Path(path).parent))
        spaces.append({"__file__": path, "__name__": "golden"})
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), spaces[-1])  # noqa: S102
    golden = spaces[0][job["function"].split(".")[0]]
    golden = golden if inspect.isfunction(golden) else golden.golden
    named = [(space, names) for space in spaces for names in (space.get("__input__") or {}).values()]
    generators = {
        name: space.get(made) for space, names in named if isinstance(names, dict) for name, made in names.items()
    }
    parameters = list(inspect.signature(golden).parameters.values())
    names = [each.name for each in parameters if each.kind < inspect.Parameter.VAR_POSITIONAL]
    names += [f"input{i}" for each in parameters if each.kind is each.VAR_POSITIONAL for i in range(20)]
    defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    takes_tensors, done, errors = job["name"].startswith("aclnn"), 0, Counter[str]()
    for row in _cases(job["rows"], job["calls"]):
        try:
            free = [name for name in names if name not in row["attributes"]] if takes_tensors else names
            about_it = {**row, "chip": job["chip"], "by_name": takes_tensors}
            values, attributes, about = _inputs(free, generators.get(job["name"]), about_it)
            written = {each % len(row["input_shapes"]) for each in row.get("output_tensor_indexes") or ()}
            inputs = {
                name: value for i, (name, value) in enumerate(zip(free, values, strict=False)) if i not in written
            }
            given = {name: _kept(each) for name, each in {**defaults, **inputs, **attributes}.items()}
            if takes_tensors:
                every = {name: defaults.get(name) for name in free}
                every |= zip(free, map(_kept, values), strict=False)
                made = golden(**every, **attributes, **about)
            else:
                made = golden(*values, **attributes, **about)
            said = {"made": _kept(made if isinstance(made, (list, tuple)) else [made])}
            said["given"] = {name: given[name] for name in dict.fromkeys([*inputs, *given])}
            said |= {"dtypes": _kept(row["output_dtypes"]), "shapes": _kept(row.get("output_shapes"))}
            said["defaults"] = [name for name in defaults if name not in row["attributes"]]
            torch.save(said, folder / "half")  # a process killed while saving leaves only this
        except Exception as error:  # noqa: BLE001  (counts against the golden; files have no int4)
            errors[f"{type(error).__name__}: {error}"[:160]] += 1
            continue
        (folder / "half").replace(folder / f"{job['id']}.{done}.pt")
        done += 1
        if done >= job["calls"]:
            break
    (folder / f"{job['id']}.json").write_text(json.dumps(errors.most_common(3)), encoding="utf-8")


def main(folder: Path) -> None:
    """Run the jobs one after another, each in a child process with a deadline."""
    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):  # once, for the many goldens that use TensorFlow
        import tensorflow as tf  # noqa: F401
    for job in json.loads((folder / "jobs.json").read_text(encoding="utf-8")):
        if not (child := os.fork()):
            signal.alarm(LIMIT_S)
            try:
                _run(job, folder)
            except BaseException as error:  # noqa: BLE001
                said = [[f"{type(error).__name__}: {error}"[:160], 1]]
                (folder / f"{job['id']}.json").write_text(json.dumps(said), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
