"""Progress on the terminal: one live line where somebody looks on, a line now and then in the log of a CI job."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import pytest

from pytest_ascend.coverage import shards
from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict.progress import Progress

#: Seconds between two lines of a log, and between two states of a live line.
LOG_EVERY_S, LIVE_EVERY_S = 60.0, 0.1


class ProgressLine:
    """Shows how far the run is. ``cases`` gives what has to run, ``durations_s`` what that may take, when asked."""

    def __init__(
        self,
        config: pytest.Config,
        record_property: str,
        cases: Callable[[], Iterable[Case]],
        durations_s: Callable[[], Mapping[str, float]],
    ) -> None:
        self._config, self._record_property = config, record_property
        self._cases, self._durations_s = cases, durations_s
        self._terminal: Any = None
        self._progress: Progress | None = None
        self._shown = time.monotonic()
        self._is_live = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take the line that pytest would fill with dots: they do not go together with one that is written over."""
        self._terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        verbosity = self._config.get_verbosity()
        if verbosity < 0:
            self._terminal = None
        self._is_live = bool(self._terminal and self._terminal.isatty and verbosity == 0)
        if self._is_live:
            self._terminal.showfspath = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, Any]:
        """Say nothing of a single case while the live line speaks for all; it is counted all the same."""
        status = yield
        return (status[0], "", "") if status and self._is_live and hasattr(report, "when") else status

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a case, and show it when it is time to."""
        found = dict(report.user_properties).get(self._record_property)
        if self._terminal and isinstance(found, dict):
            self._begun().take(ResultRecord.from_dict(found))
            self._show()

    def pytest_sessionfinish(self) -> None:
        """Leave an empty line to what comes."""
        if self._is_live and self._progress:
            self._terminal.rewrite("", erase=True)
        self._is_live = False

    def _begun(self) -> Progress:
        if self._progress is None:
            known = self._durations_s()
            weights = {case.id: known.get(case.id, shards.USUAL_S) for case in self._cases()}
            self._progress = Progress(weights, self._shown)
        return self._progress

    def _show(self) -> None:
        now, progress = time.monotonic(), self._begun()
        if now - self._shown < (LIVE_EVERY_S if self._is_live else LOG_EVERY_S):
            return
        self._shown = now
        text = progress.line(now)
        if not self._is_live:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"ascend: {text}")
            return
        width = shutil.get_terminal_size().columns - 1
        line = f"ascend: {text}, at {progress.at()}"
        self._terminal.rewrite(f"{line[: width - 1]}…" if len(line) > width else line, erase=True)
