"""Whether and where an unfinished run log can be continued."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_ascend.records.case import Stack
from pytest_ascend.runlog.contents import Header, Run
from pytest_ascend.runlog.reading import SIZE_LIMIT_BYTES, broken_chain, read_from
from pytest_ascend.system.errors import RunLogError
from pytest_ascend.system.files import read_regular

#: Options that affect results.
DECIDING_OPTIONS = (
    *("standard", "faults", "numerics", "expectations", "challenge"),
    *("emulated_memory_bytes", "emulated_numerics", "emulated_cann", "emulated_chip"),
)


def whole_part(path: Path) -> tuple[Run, int] | None:
    """Return the content of a log up to its last complete line, without footer, and its length in bytes.

    None if there is no log, or its header is incomplete. Raises RunLogError for one that is damaged before its end.
    """
    if not path.exists():
        return None
    data = read_regular(path, SIZE_LIMIT_BYTES)
    data = data[: data.rfind(b"\n") + 1]
    last = data.rfind(b"\n", 0, -1) + 1
    if data[last:].startswith(b'{"type":"footer"'):
        data = data[:last]
    return (read_from(path, io.BytesIO(data)), len(data)) if data else None


def recorded(folder: Path, stack: Stack | None = None) -> dict[str, float]:
    """Return the duration of each case in the last run of a report folder, in seconds; nothing without one.

    With a ``stack``, a run of another stack does not count: a case of a second there may be compiled for a minute here.
    """
    try:
        found = whole_part(folder / "run.jsonl")
    except (RunLogError, OSError):  # a damaged log, which is about to be replaced, must not stop the run
        return {}
    if not found or (stack is not None and found[0].header.stack != stack):
        return {}
    return {record.case.id: record.duration_s for record in found[0].records}


def refuse_another(path: Path, run: Run, wanted: Header) -> None:
    """Raise RunLogError, naming the difference, if this run may not continue another."""
    if run.broken:
        hint = "begin a new run without --ascend-resume: a log that was altered cannot be continued"
        raise RunLogError(
            f"the run in {path} cannot be continued: {broken_chain(run.broken)}", path=str(path), hint=hint
        )
    differences = list(_differences(run.header, wanted))
    if differences:
        raise RunLogError(
            f"the run in {path} cannot be continued by this one, as they differ in\n  " + "\n  ".join(differences[:8]),
            path=str(path),
            hint="start it as it was started then, or begin a new run without --ascend-resume",
        )


def _differences(found: Header, wanted: Header) -> Iterator[str]:
    compared: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        "stack": (asdict(found.stack), asdict(wanted.stack)),
        "used": ({**dict.fromkeys(wanted.used, ""), **found.used}, wanted.used),
        "options": (dict.fromkeys(DECIDING_OPTIONS) | dict(found.options), wanted.options),
        "run": ({"level": found.level}, {"level": wanted.level}),
    }
    for name, (there, here) in compared.items():
        for key in DECIDING_OPTIONS if name == "options" else there:
            if there[key] != here.get(key):
                yield f"{name}.{key}: {there[key]!r} in that run, {here.get(key)!r} in this one"
    before, after = {case.id for case in found.manifest}, {case.id for case in wanted.manifest}
    for case_id in sorted(before ^ after)[:3]:
        yield f"manifest: the case {case_id!r} is only in {'that' if case_id in before else 'this'} run"
