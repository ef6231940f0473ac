"""Logs of real runs on the emulated device, with its label taken away: what they say of cases is as it was written.

A certificate is for an NPU, and nobody who builds these has one. So the label is replaced by what a run on an NPU has
in its place: a driver, a device that npu-smi lists, no setting of the emulated device. Nothing else is changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from msgspec import to_builtins

from pytest_ascend.certificate import release
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.certificate.tiers import TIERS, Tier
from pytest_ascend.coverage.expectations import parse
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.records.bounds import moment
from pytest_ascend.records.case import Stack
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests import forks

Log = dict[str, Any]
DRIVER, FIRMWARE = "26.0.0", "7.8.0.5.216"


def run(report: Path, *arguments: str) -> Path:
    """Run the bundled suites on the emulated device, and return the log."""
    given = ("--ascend", "--ascend-device=emulated", "-q", "-p", "no:cacheprovider", f"--ascend-report={report}")
    done = forks.run("pytest", *given, *arguments)
    assert (report / "run.jsonl").exists(), done.stdout + done.stderr
    return report / "run.jsonl"


def parsed(content: bytes) -> Log:
    """Return a log as header, records, events and footer; ``order`` has the kinds of its lines."""
    lines = [json.loads(line) for line in content.splitlines()]
    kinds = {name: [each for each in lines if each["type"] == name] for name in ("record", "event")}
    return {"header": lines[0], "footer": lines[-1], "records": kinds["record"], "events": kinds["event"]}


def written(log: Log) -> bytes:
    """Return the lines of a log, with the counts and the chain that follow unless ``keeps_...`` says otherwise."""
    records = log["records"]
    if not log.get("keeps_footer"):
        counts: dict[str, int] = {}
        for each in records:
            counts[each["outcome"]] = counts.get(each["outcome"], 0) + 1
        log["footer"] |= {"records": len(records), "counts": counts}
    lines = [log["header"], *log["events"], *records, log["footer"]]
    return b"".join(map(_line, lines)) if log.get("keeps_chain") else chained(lines)


def finished(path: Path, log: Log) -> Path:
    """Write a log with the footer that its records give."""
    path.write_bytes(written(log))
    if not log.get("keeps_footer"):
        run = replace(read(path), footer=None, ended=True)
        found = summarise(run).footer(log["footer"]["finished"])
        log["footer"] |= to_builtins(found)
        path.write_bytes(written(log))
    return path


def chained(lines: list[dict[str, Any]]) -> bytes:
    """Return lines of JSON, each with the hash of the one before it where the first one says so."""
    made = [_line(lines[0])]
    for each in lines[1:]:
        named = {"previous": hashlib.sha256(made[-1][:-1]).hexdigest()} if lines[0].get("chain") else {}
        kept = {name: value for name, value in each.items() if name != "previous"}
        made.append(_line({**kept, **named}))
    return b"".join(made)


def _line(data: Log) -> bytes:
    return msgspec.json.encode(data) + b"\n"


_KINDS = ("header", "footer", "records", "events")


def copied(log: Log) -> Log:
    """Return a copy of a log."""
    return {name: json.loads(json.dumps(each)) for name, each in log.items() if name in _KINDS}


def as_npu(genuine: Log) -> Log:
    """Take the label of the emulated device away."""
    log = copied(genuine)
    header = log["header"]
    header["stack"] |= {"emulated": False, "driver": DRIVER, "firmware": FIRMWARE}
    header["stack"]["cann"] = header["stack"]["cann"].removeprefix("emulated ")
    stack = Stack(**header["stack"])
    options = header["options"]
    options |= {"device": "npu", **EmulatorSettings().to_dict()}
    options["arguments"] = ["--ascend-device=npu", *(
        each for each in options["arguments"] if not each.startswith(("--ascend-device", "--ascend-emulate"))
    )]  # fmt: skip
    options["timing"] = {name: value for name, value in options["timing"].items() if not name.startswith("emulated")}
    options["expectations"] = parse(release.installed().parts["expectations"], stack).summaries()
    chip = stack.chip.removeprefix("Ascend")
    cards = [card for event in log["events"] if event["kind"] == "cards" for card in event["cards"]]
    for card in cards:
        card |= {"npu": card["index"], "chip": 0}
    alike = {"name": chip, "health": "OK", "memory_total_mb": 65536, "memory_used_mb": 3000}
    found = {each["npu"]: {"npu": each["npu"], "chip": 0, "index": each["npu"], "bus": each["bus"]} for each in cards}
    doctor = header["doctor"]
    seen = {"chip": stack.chip, "driver": DRIVER, "firmware": FIRMWARE, "CANN toolkit": stack.cann}
    for each in doctor["components"]:
        if each["name"] in seen:
            value = seen[each["name"]]
            each |= {"version": value, "evidence": [{"value": value, "source": "npu-smi", "internal": False}]}
    doctor |= {"findings": [each for each in doctor["findings"] if each["id"] not in ("emulated", "ascend.absent")],
               "devices": [{**each, **alike} for each in found.values()]}  # fmt: skip
    return log


def release_of(log: Log) -> Release:
    """Return this release with the cases of a log alone, and note in the log that they judged it.

    So a short run is all of a release. In a checkout, sources may have changed since the run.
    """
    cases = json.dumps({"schema": 1, "cases": log["header"]["manifest"]}).encode()
    found = release.installed()
    found = replace(found, parts={**found.parts, "manifest": cases})
    log["header"]["used"] = found.hashes()
    log["header"]["selection"] = {"kind": "full", "reason": ""}
    log["header"]["options"].pop("suites", None)
    return found


def tiers(level: str) -> Mapping[str, Tier]:
    """Return the tiers as if they asked for a level; the shares that may be lacking are of all cases of a suite."""
    return {name: replace(tier, level=level) for name, tier in TIERS.items()}


def refused(
    path: Path, log: Log, change: Callable[[Log], object] = lambda _: None, tier: str = "performance"
) -> dict[str, str]:
    """Return the reasons for which a changed log is refused, by requirement; its cases are all of the release."""
    log = copied(log)
    judge, day = release_of(log), moment(log["footer"]["finished"]).date()
    change(log)
    summary = summarise(read(finished(path, log)))
    asked = tiers(log["header"]["level"])[tier]
    found: dict[str, str] = {}
    with mock.patch.dict(TIERS, tiers(log["header"]["level"])):  # type: ignore[arg-type]
        for each in refusals(Candidate(summary=summary, tier=asked, release=judge, on=day)):
            found[each.id] = f"{found.get(each.id, '')}{each.says}\n"
    return found
