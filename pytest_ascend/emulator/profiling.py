"""Profiles of the emulated device: the records of tasks, and the emulated ``msprof``, which tabulates them.

torch_npu's parser starts ``msprof --export=on --output=PROF_...`` and reads the files it writes. Times are the CPU's.
"""

from __future__ import annotations

import csv
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_ascend.system.groups import by_key

#: The program that torch_npu starts, below ASCEND_HOME_PATH, and the files that it expects beside it.
PROGRAM = Path("tools/profiler/bin/msprof")
BESIDE = Path("tools/profiler/profiler_tool/analysis/msprof/msprof.py")
SCRIPT = '#!/bin/sh\nexec "${PYTEST_ASCEND_EMULATED_PYTHON:-python3}" -m pytest_ascend.emulator.profiling "$@"\n'
#: CANN's dtype names, unless they are torch's in capitals.
_TYPES = {"float32": "FLOAT", "bfloat16": "DT_BF16", "float64": "DOUBLE"}


class Measured:
    """Executes tasks, and reports their times and shapes to the runtime while a profiler records."""

    def __init__(self, runtime: Any) -> None:
        self.profilers, self._ran = ctypes.c_int.in_dll(runtime, "emu_profilers"), runtime.emu_ran

    def __call__(self, name: str, stream: int, run: Callable[..., Any], *given: Any) -> None:
        """Execute a task: ``run(*given)``."""
        if not self.profilers.value:
            run(*given)
            return
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        run(*given)
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        details = {"inputs": _described(given[1]), "outputs": _described(given[2])} if len(given) > 2 else {}
        texts = name.encode(), json.dumps(details).encode()
        self._ran(*texts, ctypes.c_uint64(begin), ctypes.c_uint64(end), ctypes.c_int32(stream))


def _described(values: Iterable[Any]) -> list[tuple[list[int], str]]:
    from pytest_ascend.system.dispatching import tensors_in  # noqa: PLC0415  imports torch, which msprof needs not

    return [(list(each.shape), str(each.dtype).removeprefix("torch.")) for each in tensors_in(list(values))]


def _columns(name: str, values: list[tuple[list[int], str]]) -> dict[str, str]:
    return {
        f"{name} Shapes": f'"{";".join(",".join(map(str, shape)) for shape, _ in values)}"',
        f"{name} Data Types": ";".join(_TYPES.get(dtype, dtype.upper()) for _, dtype in values),
        f"{name} Formats": ";".join("ND" for _ in values),
    }


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _summary(operators: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of op_summary: operators in the order of execution."""
    before = 0
    for each in operators:
        yield {
            "Device_id": each["device"],
            "Op Name": each["name"],
            "OP Type": each["name"].removeprefix("aclnn"),
            "Task Type": "AI_CORE",
            "Task Start Time(us)": _us(each["start"]) + "\t",
            "Task Duration(us)": _us(each["end"] - each["start"]),
            "Task Wait Time(us)": _us(max(0, each["start"] - before) if before else 0),
            "Block Num": 1,
            **_columns("Input", each["details"]["inputs"]),
            **_columns("Output", each["details"]["outputs"]),
        }
        before = each["end"]


def _statistics(operators: list[dict[str, Any]], first: dict[str, str], prefix: str = "") -> list[dict[str, Any]]:
    """Return rows of op_statistic or api_statistic: count and times by name; ``first`` names the first columns."""
    found = by_key((each["name"].removeprefix(prefix), each["end"] - each["start"]) for each in operators)
    total = sum(map(sum, found.values())) or 1
    return [
        {
            **{column: value or key for column, value in first.items()},
            "Count": len(taken),
            "Total Time(us)": _us(sum(taken)),
            "Min Time(us)": _us(min(taken)),
            "Avg Time(us)": _us(sum(taken) // len(taken)),
            "Max Time(us)": _us(max(taken)),
            "Ratio(%)": f"{100 * sum(taken) / total:.3f}",
        }
        for key, taken in found.items()
    ]


def _timeline(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield events of a trace: each task on its stream, its call on the host, and the arrow between them."""
    host = 1 << 20
    for pid, name, label in (
        (host, "CANN", "CPU"),
        *((each, "Ascend Hardware", f"NPU {each}") for each in sorted({each["device"] for each in records})),
    ):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"{name} (emulated)"}}
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}
    for number, each in enumerate(records):
        device, stream, thread = each["device"], each["stream"], each["thread"]
        begin, taken = _us(each["start"]), (each["end"] - each["start"]) / 1000
        name = each["details"].get("mark", each["name"])
        kind = {"Task Type": "AI_CORE" if "inputs" in each["details"] else each["name"].upper(), "Stream Id": stream}
        yield {"ph": "X", "name": name, "pid": device, "tid": stream, "ts": begin, "dur": taken, "args": kind}
        if "mark" not in each["details"]:
            call = {"ph": "X", "name": f"AscendCL@{name}", "pid": host, "tid": thread}
            yield {**call, "ts": begin, "dur": taken, "args": {}}
            arrow = {"name": "HostToDevice", "cat": "HostToDevice", "id": str(number), "ts": begin}
            yield {**arrow, "ph": "s", "pid": host, "tid": thread}
            yield {**arrow, "ph": "f", "bp": "e", "pid": device, "tid": stream}


def _overlap(operators: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield when each device computed, and when it was idle in between: torch_npu adds this up by step."""
    ends: dict[int, int] = {}
    for each in operators:
        device, before = each["device"], ends.get(each["device"])
        event = {"ph": "X", "pid": (1 << 21) + device, "tid": 0, "args": {}}
        if before is None:
            yield {**event, "ph": "M", "name": "process_name", "args": {"name": "Overlap Analysis (emulated)"}}
            yield {**event, "ph": "M", "name": "process_labels", "args": {"labels": f"NPU {device}"}}
        elif each["start"] > before:
            yield {**event, "name": "Free", "ts": _us(before), "dur": (each["start"] - before) / 1000}
        begin = max(each["start"], before or 0)
        if each["end"] > begin:
            yield {**event, "name": "Computing", "ts": _us(begin), "dur": (each["end"] - begin) / 1000}
        ends[device] = max(each["end"], before or 0)


def export(folder: Path) -> None:
    """Write the tables of a profile. Raises OSError and ValueError if it is not a profile of the emulated device."""
    begin = json.loads((folder / "host/start_info").read_text(encoding="utf-8"))
    ahead = int(begin["collectionTimeBegin"]) * 1000 - int(begin["clockMonotonicRaw"])
    with (folder / "host/data/emulated.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    for each in records:
        each["start"], each["end"] = each["start"] + ahead, each["end"] + ahead
    records.sort(key=lambda each: each["start"])
    operators = [each for each in records if "inputs" in each["details"]]
    output, stamp = folder / "mindstudio_profiler_output", time.strftime("%Y%m%d%H%M%S")
    output.mkdir(exist_ok=True)
    (output / f"msprof_{stamp}.json").write_text(
        json.dumps([*_timeline(records), *_overlap(operators)]), encoding="utf-8"
    )
    tables = {
        "op_statistic": _statistics(operators, {"OP Type": "", "Core Type": "AI_CORE"}, "aclnn"),
        "api_statistic": _statistics(operators, {"Level": "acl", "API Name": ""}),
        "op_summary": list(_summary(operators)),
    }
    for name, rows in tables.items():
        with (output / f"{name}_{stamp}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["Op Name"])
            writer.writeheader()
            writer.writerows(rows)


def main(arguments: list[str]) -> int:
    """Execute the ``msprof`` command that torch_npu uses; other commands of msprof are not emulated."""
    given = dict(each.split("=", 1) for each in arguments if each.startswith("--") and "=" in each)
    if "--help" in arguments:
        sys.stdout.write("msprof of the emulated CANN: --export=on --output=DIR\n")
    elif given.get("--export") == "on" and "--type" not in given:
        try:
            export(Path(given.get("--output", ".")))
        except (OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"emulated CANN: no profile of the emulated device: {error}\n")
            return 1
    elif given.get("--analyze") != "on":
        sys.stderr.write("emulated CANN: the emulated device has no msprof but --export=on --output=DIR\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
