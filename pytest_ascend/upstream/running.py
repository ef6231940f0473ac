"""Run files of third-party tests, each in a process of its own, and write a run log and a page of the outcomes.

A process that dies, or spends too long on one test, is restarted for the remaining tests, so that each has an outcome.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ascend.environment.stack import collect
from pytest_ascend.isolation.process import fresh
from pytest_ascend.page import html
from pytest_ascend.records.bounds import now
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import SUBSET, Header, Selection
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import write_file
from pytest_ascend.upstream.lists import Listed, half
from pytest_ascend.verdict.summary import summarise

#: PyTorch's files whose tests are generic over devices.
GENERIC = (
    *("nn/test_*.py", "optim/test_*.py", "test_ops.py", "test_unary_ufuncs.py", "test_binary_ufuncs.py"),
    *("test_reductions.py", "test_torch.py", "test_nn.py", "test_modules.py", "test_foreach.py", "test_indexing.py"),
    *("test_type_promotion.py", "test_view_ops.py", "test_sort_and_select.py", "test_shape_ops.py"),
    *("test_tensor_creation_ops.py", "test_autograd.py"),
)


def sample_of(text: str) -> tuple[int, int] | None:
    """Return K and N of a sample "K/N", such as 1/20; None for any other text."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    few, of = (int(match[1]), int(match[2])) if match else (0, 0)
    return (few, of) if 0 < few <= of else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which tests run, where, and for how long.

    ``sample`` is (K, N): K of N tests, by the hash of ``seed`` and id. ``half`` is even or odd, by the hash of the id.
    ``match`` is searched for in CLASS::TEST. ``only`` is "listed" or "unlisted". With ``everything``, tests that
    torch_npu.testing skips by name also run.
    """

    device: str = "emulated"
    sample: tuple[int, int] = (1, 1)
    seed: int = 0
    half: str | None = None
    match: str = ""
    listed: Listed = field(default_factory=Listed)
    only: str | None = None
    everything: bool = False
    test_s: float = 60.0
    file_s: float = 1800.0

    def wants(self, file: str, name: str) -> bool:
        """Return whether a test is selected."""
        entry, id_ = self.listed.of(file, name), f"{file}::{name}"
        draw = int(hashlib.sha256(f"{self.seed} {id_}".encode()).hexdigest(), 16)
        return bool(
            draw % self.sample[1] < self.sample[0]
            and (not self.only or (self.only == "listed") == bool(entry))
            and (not self.half or half(entry.id if entry else id_) == self.half)
            and re.search(self.match, name)
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of a file: the names of all its tests, and the last event of each selected one."""

    path: Path
    end_s: float = 0.0
    all: list[str] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Return the name of the file in lists: test/nn/test_dropout.py."""
        *folders, name = self.path.parts
        below = folders[len(folders) - folders[::-1].index("test") :] if "test" in folders else folders[-1:]
        return "/".join(("test", *below, name))

    def records(self) -> Iterator[ResultRecord]:
        """Yield a record for each test that was executed."""
        for name, event in self.events.items():
            if event["outcome"] != "skipped":
                kept = () if event["outcome"] == "passed" else ("reason", "detail")
                outcome = OUTCOMES[event["outcome"]](**{each: event.get(each, "") for each in kept})
                yield record(self.file, name, outcome, float(event.get("seconds", 0)))


def record(file: str, name: str, outcome: Outcome, duration_s: float) -> ResultRecord:
    """Return the record of a third-party test, whose names become parts of a case's id."""
    subject, property_ = (re.sub(r"[^\w.\[\]-]+", ".", each) for each in (file.removesuffix(".py"), name))
    case = Case(suite="user", subject=subject, property=property_)
    return ResultRecord.of(case, f"{file}::{name}", outcome, duration_s=duration_s)


def files_of(root: Path, wanted: Iterable[str]) -> list[Path]:
    """Return the test files of a checkout: those named, or by default the generic ones of PyTorch, or all."""
    tests = root / "test" if (root / "test").is_dir() else root
    every = [root] if root.is_file() else sorted(tests.rglob("test_*.py"))
    named = tuple(wanted) or (GENERIC if (tests / "test_torch.py").exists() else ())
    with as_error("--files", "give patterns below the folder of tests, as nn/*.py", ValueError, NotImplementedError):
        chosen = {each for one in named for each in (tests / one, *tests.glob(one))}
    found = [each for each in every if not named or each in chosen]
    if not found:
        raise UsageError(f"{root} has no file test_*.py that is wanted", hint="give a checkout, or other --files")
    return found


def run(file: Path, choice: Choice, variables: Mapping[str, str]) -> Seen:
    """Run the selected tests of a file."""
    seen = Seen(file, time.monotonic() + choice.file_s)
    for _ in range(12):  # restarted for the remaining tests
        if not _process(seen, choice, variables) or time.monotonic() >= seen.end_s:
            break
    return seen


def _process(seen: Seen, choice: Choice, variables: Mapping[str, str]) -> bool:
    """Run a process for the remaining tests, and record their outcomes; return whether some are still left."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environ = {**os.environ, **variables, "PATH": programs}
    how = ["everything"] * choice.everything
    child = fresh("pytest_ascend.upstream.child", str(seen.path), choice.device, *how, environ=environ)
    begun, why, code, since = "", "", None, math.inf  # collecting only counts towards the file's time
    while code is None and not why:
        time.sleep(0.1)
        code, now = child.code(), time.monotonic()  # before reading: the pipe holds all messages of a dead one
        for event in child.read():
            begun, since = event.get("test", ""), now
            if "all" in event:
                seen.all[:] = event["all"]
                left = [each for each in seen.all if each not in seen.events and choice.wants(seen.file, each)]
                child.send(wanted=left)
            if "outcome" in event:
                seen.events.setdefault(begun, event)
            if {"over", "lost"} & event.keys():
                child.end(choice.test_s)
                return "lost" in event
        if code is None and now > min(since + choice.test_s, seen.end_s):
            why = f"slow: no end within {choice.test_s:g} s" if now <= seen.end_s else "slow: the file's time was up"
    if code:
        why = f"the process died: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
    last = child.output()[-2000:]
    child.end(0)
    if begun and begun not in seen.events:
        seen.events[begun] = {"outcome": "errored", "reason": why or "the process ended amid the test"}
        return True
    if not seen.all:
        said = why or last.rpartition("\n")[2] or "it has no tests"
        seen.events["(file)"] = {"outcome": "errored", "reason": f"nothing ran: {said}", "detail": last}
    return False


def write(
    report: Path,
    choice: Choice,
    rows: Iterable[ResultRecord],
    skipped: Mapping[str, Mapping[str, int]],
    selection: str,
) -> Mapping[str, int]:
    """Write run log, page and, by file of tests, why some were skipped; return how often each outcome occurred."""
    # The comparisons in these tests are their authors': a pass only means that they ran to their end.
    unique = {row.case.id: row.but(measurements={"seconds": row.duration_s}) for row in rows}
    header = Header(
        run_id=uuid.uuid4().hex,
        started=now(),
        stack=collect("npu", emulated=choice.device == "emulated", chip=""),
        level="full",
        selection=Selection(SUBSET, selection),
        manifest=tuple(row.case for row in unique.values()),
    )
    report.mkdir(parents=True, exist_ok=True)
    log = RunLog.create(report / "run.jsonl", header, durable=False)
    for row in unique.values():
        log.append(row)
    summary = summarise(log.contents(ended=True))
    log.finish(summary.footer(now()))
    write_file(report / "conformance.html", html.render(summarise(read(report / "run.jsonl"))))
    write_file(report / "skipped.json", json.dumps(skipped, indent=1) + "\n")
    return summary.counts
