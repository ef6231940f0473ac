"""A plugin for pytest that records the outcomes of third-party tests as a run log and a page.

    pytest-ascend emulate -- torchcts run --device npu --level 2 -p pytest_ascend.upstream.plugin

The tests run as their authors start them, in one process. ``--upstream-sample K/N`` runs K of N, by hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.records.outcome import Outcome, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.run.outcomes import classify
from pytest_ascend.upstream import running

_ROWS, _SKIPPED = pytest.StashKey[list[ResultRecord]](), pytest.StashKey[dict[str, Counter[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("upstream", "others' tests, kept as a run log of pytest-ascend")
    group.addoption("--upstream-report", default="upstream-report", metavar="PATH", help="The folder for log and page.")
    group.addoption("--upstream-sample", default="1/1", metavar="K/N", help="K of N tests, by hash.")


def pytest_configure(config: pytest.Config) -> None:
    """Begin without any test. Raises UsageError for an invalid sample."""
    if running.sample_of(text := config.getoption("--upstream-sample")) is None:
        few, _, of = text.partition("/")
        raise pytest.UsageError(f"--upstream-sample: expected K/N such as 1/20, got {few}/{of}")
    config.stash[_ROWS], config.stash[_SKIPPED] = [], {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the sample of the tests left after the authors' own options."""
    choice = running.Choice(sample=running.sample_of(config.getoption("--upstream-sample")) or (1, 1))
    kept = [each for each in items if choice.wants(*_names(each))]
    config.hook.pytest_deselected(items=[each for each in items if each not in set(kept)])
    items[:] = kept


def _names(item: pytest.Item) -> tuple[str, str]:
    file, _, name = item.nodeid.partition("::")
    return "/".join(Path(file).parts[-2:]), name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome of a test, by the exception that it raised."""
    report = yield
    file, name = _names(item)
    outcome: Outcome | None = Passed() if report.when == "call" and report.passed else None
    if report.skipped:
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        item.config.stash[_SKIPPED].setdefault(file, Counter())[why[:120]] += 1
    elif report.failed and call.excinfo:
        from pytest_ascend import emulator

        is_emulated = emulator.is_active()
        error = call.excinfo.value
        if isinstance(error, AssertionError) and str(error).startswith("Device raised "):
            error = RuntimeError(str(error))  # an assertion of TorchCTS quotes the device's error
        outcome = classify(error, emulated=is_emulated, missing=emulator.missing() if is_emulated else ())
    if outcome:
        item.config.stash[_ROWS].append(running.record(file, name, outcome, call.duration))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the log, the page, and why tests were skipped."""
    from pytest_ascend import emulator

    config = session.config
    report, device = Path(config.getoption("--upstream-report")), "emulated" if emulator.is_active() else "npu"
    selection = f"others' tests, {config.getoption('--upstream-sample')}"
    rows, skipped = config.stash[_ROWS], config.stash[_SKIPPED]
    running.write(report, running.Choice(device=device), rows, skipped, selection)
