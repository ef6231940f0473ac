"""Turns a kit, which may come from anybody, into the project's data on a chip."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pytest_ascend.contact.steps import SCHEMA
from pytest_ascend.coverage import expectations, manifest
from pytest_ascend.coverage.expectation_files import checked
from pytest_ascend.environment.codes import CODES, codes_in
from pytest_ascend.environment.measured import FOLDER, LARGEST_BYTES, is_chip
from pytest_ascend.environment.npu_smi import parse_common
from pytest_ascend.records.outcome import Disputed, Passed, Waived
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError, as_error, with_type
from pytest_ascend.system.files import VALUES_LIMIT, count_values, open_regular, read_regular, strict_json, write_file

#: A kit has a few hundred text files with a few MiB in total; anything larger is not a kit.
MOST_FILES, MOST_BYTES, MOST_LINES = 1000, 32 * 2**20, 200_000
_OPERATOR = re.compile(r"[A-Za-z_0-9.]{1,80}")


def read_kit(path: Path) -> dict[str, Any]:
    """Return the files of a kit: JSON decoded, text unchanged. Raises UsageError if it is not a kit."""
    hint = "give the file that `pytest-ascend collect -o contact.zip` wrote, as it is"
    with as_error(f"{path} is not a contact kit", hint, Exception, why=with_type):
        with open_regular(path, MOST_BYTES) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_FILES or sum(each.file_size for each in entries) > MOST_BYTES:
                raise UsageError(f"{path} is larger than any kit", hint=hint)
            if any(each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for each in entries):
                raise UsageError(f"{path} is compressed as no kit is", hint=hint)
            texts = {each.filename: archive.read(each).decode("utf-8", errors="replace") for each in entries}
        if sum(map(count_values, texts.values())) > VALUES_LIMIT:
            raise UsageError(f"{path} has more values than any kit", hint=hint)
        found: dict[str, Any] = {
            name: strict_json(text, constants=True) if name.endswith(".json") else text for name, text in texts.items()
        }
        about = found["about.json"]
        if about["schema"] != SCHEMA or not isinstance(about["emulated"], bool) or not isinstance(about["steps"], dict):
            newer = "use the version of pytest-ascend that made it, or a newer one"
            raise UsageError(f"{path} is a kit of another version", hint=newer)
    return found


def data_of(kit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data that the project keeps, by file name; docs/contact.md describes each file."""
    records = list(_records(kit))
    deviations = {}  # the cases with an expected deviation: the outcome, and why; a pass is better than expected
    for each in records:
        waiver, outcome = each.get("waiver"), _text(each.get("outcome"))
        if isinstance(waiver, dict) and outcome in (Waived.name, Disputed.name):
            came, cause = _text(waiver.get("outcome")), _text(waiver.get("cause"))
            deviations[each["case"]["id"]] = {"came": came, "cause": cause}
        elif outcome == Passed.name and str(each.get("reason", "")).startswith(expectations.BETTER):
            deviations[each["case"]["id"]] = {"came": outcome, "cause": ""}
    return {
        "chip": _chip(kit),
        "dtypes": _dtypes(_data(kit, "dtypes")),
        "deviations": deviations,
        "durations": {each["case"]["id"]: _number(each.get("duration_s")) for each in records},
        "codes": _codes(kit),
    }


def write(data: Mapping[str, Any], baselines: Path) -> Path:
    """Write the data to the folder of its chip below ``baselines``, each file atomically; return that folder."""
    name = data["chip"]["chip"]
    name = name if is_chip(name) else "unknown"
    target = baselines / FOLDER / f"{name}{'-emulated' if data['chip']['emulated'] else ''}"
    for each, value in data.items():
        write_file(target / f"{each}.json", _text_of(value))
    return target


def _text_of(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _chip(kit: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, memory in bytes, clocks in MHz, start-up and recovery in seconds, versions, steps."""
    start, clock = _data(kit, "start-up"), _data(kit, "clock")
    said = (clock.get(name) for name in ("idle", "loaded"))
    idle, loaded = (parse_common(text) if isinstance(text, str) else {} for text in said)
    current, components = "Aicore curFreq(MHZ)", _data(kit, "doctor").get("components")
    listed = [each for each in components if isinstance(each, dict)] if isinstance(components, list) else []
    return {
        "emulated": kit["about.json"]["emulated"],
        "chip": _text(start.get("chip")),
        "torch": _text(start.get("torch")),
        "torch_npu": _text(start.get("torch_npu")),
        "cann": next((_text(each.get("version")) for each in listed if each.get("name") == "CANN toolkit"), ""),
        "memory_total_bytes": _number(start.get("memory_total_bytes")),
        "context_bytes": _number(start.get("memory_used_by_context_bytes")),
        "first_use_s": _number(start.get("first_use_s")),
        "recovery_s": _number(_data(kit, "recovery").get("usable_after_s")),
        "clock_mhz": {"idle": idle.get(current), "loaded": loaded.get(current), "rated": idle.get("Aicore Freq(MHZ)")},
        "steps": {_text(name): _text(status) for name, status in kit["about.json"]["steps"].items()},
    }


def _data(kit: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    found = kit.get(f"steps/{step}.json")
    data = found.get("data") if isinstance(found, dict) else None
    return data if isinstance(data, dict) else {}


def _text(value: Any, most: int = 80) -> str:
    return value[:most] if isinstance(value, str) and value.isprintable() else ""


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return value if is_number else None


def _dtypes(answers: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Return what computes each dtype ("npu", "cpu", "" for nothing), by ``operators`` of the suite and ``aten`` ones.

    The result of a suite's operator counts for a torch operator if it calls only that one; a rejection counts for the
    last one called. A call that succeeds takes precedence over one that does not.
    """
    by_name: dict[str, dict[str, str]] = {}
    aten: dict[str, dict[str, str]] = {}
    for name, row in answers.items():
        for dtype, answer in row.items() if _OPERATOR.fullmatch(name) and isinstance(row, dict) else ():
            by, called = (answer.get("by"), answer.get("of")) if isinstance(answer, dict) else (None, None)
            if by not in ("npu", "cpu", "") or not _OPERATOR.fullmatch(dtype):
                continue
            by_name.setdefault(name, {})[dtype] = by
            names = [each for each in called if isinstance(each, str)] if isinstance(called, list) else []
            if names and (len(names) == 1 or not by):
                its = aten.setdefault(names[-1].removeprefix("aten::")[:80], {})
                its[dtype] = max(by, its.get(dtype, ""))  # "npu" > "cpu" > ""
    return {"operators": by_name, "aten": aten}


def _records(kit: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    known = {each.id for each in manifest.load(folder("suites"))}
    for line in str(kit.get("smoke/run.jsonl", "")).splitlines()[:MOST_LINES]:
        try:
            record = strict_json(line)
        except (ValueError, RecursionError):
            continue
        case = record.get("case") if isinstance(record, dict) and record.get("type") == "record" else None
        identity = case.get("id") if isinstance(case, dict) else None
        if isinstance(identity, str) and identity in known:
            yield record


def _codes(kit: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all error codes found, whether the tables know each, and a line that contains it."""
    texts = (value if isinstance(value, str) else json.dumps(value, indent=1) for value in kit.values())
    lines = "\n".join(texts)[: 2**24].replace("\\n", "\n").splitlines()[:MOST_LINES]
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        for each in codes_in(line):
            is_known = each.code in CODES
            found.setdefault(each.code, {"known": is_known, "said": "" if is_known else _text(line.strip()[:200], 200)})
    return dict(sorted(found.items()))


def confirm(data: Mapping[str, Any], baselines: Path, today: date) -> tuple[int, list[str]]:
    """Mark in ``baselines/expectations.json`` what a chip confirmed; return the number of cases, and what to check.

    For each confirmed cause, an entry for the chip with its cases is added after the cause's. Cases that passed despite
    expected deviations are proposed for removal, which a person decides. Raises UsageError for an unreadable file.
    """
    path, chip = baselines / expectations.NAME, data["chip"]
    if chip["emulated"] or not is_chip(chip["chip"]):
        return 0, []
    with as_error(f"{path} cannot be read", "give the folder that has it: -o baselines", OSError, ValueError, why=str):
        document = strict_json(read_regular(path, LARGEST_BYTES))
        checked(document)
    source = f"contact kit of {chip['chip']}, torch_npu {chip['torch_npu'] or '?'}, CANN {chip['cann'] or '?'}, {today}"
    count = 0
    seen_of = data["deviations"]
    for cause in dict.fromkeys(seen["cause"] for seen in seen_of.values() if seen["cause"]):
        cases = [case for case, seen in seen_of.items() if seen["cause"] == cause]
        causes = document["causes"]
        places = [n for n, each in enumerate(causes) if each["cause"] == cause and each.get("confirmed") is False]
        if not places:
            continue
        mine: dict[str, Any] = next(
            (each for each in causes if each["cause"] == cause and each.get("chips") == [chip["chip"]]), {}
        )
        is_confirmed = bool(mine.get("confirmed"))
        seen = sorted({*cases, *(mine["cases"] if is_confirmed else ())})
        of_chip = {"cases": seen, "chips": [chip["chip"]], "devices": ["npu"], "source": source, "confirmed": True}
        entry = {**causes[places[-1]], **of_chip}
        if is_confirmed:
            mine.update(entry)
        else:  # after the cause's own
            causes.insert(places[-1] + 1, entry)
        count += len(seen)
    write_file(path, _text_of(document))
    return count, [case for case, seen in seen_of.items() if seen["came"] == Passed.name]
