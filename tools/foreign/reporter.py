"""A pytest plugin for processes that run foreign tests: one line of JSON when a test begins, and one when it is over.

What a test raised is classified here, where it still is an exception. The file is named by ``FOREIGN_EVENTS``.
``FOREIGN_DISABLED`` names a list of tests that are known to fail, in torch's form: "test_name (module.Class)", where a
class stands for all whose names begin with it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend import emulator
from pytest_ascend.run.outcomes import classify

sys.path.append(str(Path.cwd().parent))  # some files import what lies beside the folders of tests
_EVENTS = os.environ.get("FOREIGN_EVENTS", os.devnull)
_DETAIL_CHARACTERS = 6000
_DONE = os.environ.get("FOREIGN_DONE", os.devnull)
_DISABLED = os.environ.get("FOREIGN_DISABLED", "")
#: The end of a device-generic test's name: "_npu", or "_npu_float32".
_FOR_ONE = re.compile(r"_(cpu|npu|privateuse1)(_(bool|u?int\d+|b?float\d+|complex\d+))*$")
DISABLED = "on the list of disabled tests"


def _say(**event: Any) -> None:
    with open(_EVENTS, "a", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  as early as possible
        file.write(json.dumps(event) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is done, by whole names: pytest's own option leaves out all that begin with one."""
    done = Path(_DONE).read_text(encoding="utf-8").splitlines()
    items[:] = [each for each in items if each.nodeid not in done]
    if not _DISABLED:
        return
    known = json.loads(Path(_DISABLED).read_text(encoding="utf-8"))
    listed = disabled(name for name, (*_, chips) in known.items() if "910A" not in chips)
    left_out = {each.nodeid for each in items if is_listed(each.name, getattr(each.cls, "__name__", ""), listed)}
    for name in left_out:
        _say(test=name, outcome="skipped", reason=f"Skipped: {DISABLED}")
    items[:] = [each for each in items if each.nodeid not in left_out]


def disabled(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the classes of each test that is listed, as "test_name (module.Class)"."""
    found: dict[str, list[str]] = {}
    for each in names:
        test, _, place = each.partition(" (")
        if place:
            found.setdefault(test, []).append(place.rstrip(")").rpartition(".")[2])
    return found


def is_listed(test: str, of: str, listed: Mapping[str, list[str]]) -> bool:
    """Whether a test is listed, itself or without device and dtype; torch_npu calls its device by two names."""
    classes = (*listed.get(test, ()), *listed.get(_FOR_ONE.sub("", test), ()))
    forms = [(each, each.replace("PRIVATEUSE1", "NPU"), each.replace("NPU", "PRIVATEUSE1")) for each in classes]
    return any(map(of.startswith, forms))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say that a test begins, so that it is known whom a dead process was at."""
    _say(test=nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Say what became of a test: of its body, or of what has to be there before or after it."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.skipped:
        _say(test=item.nodeid, outcome="skipped", reason=str(report.longrepr)[-300:])
    elif call.excinfo is not None:
        missing = emulator.missing() if emulator.is_active() and "torch_npu" in sys.modules else ()
        found = classify(call.excinfo.value, emulated=emulator.is_active(), missing=missing)
        _say(test=item.nodeid, outcome=found.name, reason=found.reason, detail=found.detail[-_DETAIL_CHARACTERS:])
    elif call.when == "call":
        _say(test=item.nodeid, outcome="passed", seconds=call.duration)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Say why a file cannot be read."""
    if report.failed:
        _say(test=report.nodeid, outcome="errored", reason="cannot be collected", detail=report.longreprtext[-2000:])
