"""Progress on the terminal: one live line on a screen, an occasional line in a CI log."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Any

import pytest

from pytest_ascend.coverage import selection, shards
from pytest_ascend.plugin.reports import record_of
from pytest_ascend.plugin.session import RunRecorder
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system import figures
from pytest_ascend.system.programs import for_now
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.summary import ORDER


class Progress:
    """Follows a run. ``weights_s`` maps the id of every case that must run to its expected time in seconds."""

    def __init__(self, weights_s: Mapping[str, float], started: float) -> None:
        self._left = dict(weights_s)
        self._total, self._total_s = len(weights_s), sum(weights_s.values())
        self._started = started
        self._counts: Counter[str] = Counter()
        self._worst: tuple[float, str] = (0.0, "")

    def take(self, record: ResultRecord) -> None:
        """Count a finished case."""
        self._left.pop(record.case.id, None)
        self._counts[record.outcome.name] += 1
        used = evidence.limit_used(record)
        # Deviations are listed anyway, and known ones would stay here for the whole run.
        if used is not None and used > self._worst[0] and record.outcome.name == Passed.name:
            self._worst = (used, record.case.id)

    def line(self, now: float) -> str:
        """Return the progress in one line; ``now`` is on the clock of the start, in seconds."""
        left_s, passed_s = sum(self._left.values()), now - self._started
        done_s, parts = self._total_s - left_s, [f"{self._total - len(self._left):,} of {self._total:,} cases"]
        # the first cases include one-time costs and do not predict the others
        if self._left and passed_s >= 10.0 and done_s >= 0.05 * self._total_s:
            parts.append(f"about {figures.duration(max(passed_s / done_s * left_s, 1.0))} left")
        shown = (name for name in ORDER if name not in {"passed", "waived", "not-emulated", "not-judged"})
        parts += [f"{self._counts[name]:,} {name}" for name in shown if self._counts[name]]
        share, case_id = self._worst
        if case_id:
            parts.append(f"worst {figures.used(share)} of its limit: {evidence.line(case_id)}")
        return ", ".join(parts)


#: Seconds between two lines of a log, and between two updates of a live line.
LOG_EVERY_S, LIVE_EVERY_S = 60.0, 0.1


class ProgressLine:
    """Shows the progress of the run that ``recorder`` records."""

    def __init__(self, config: pytest.Config, recorder: RunRecorder) -> None:
        self._config, self._recorder = config, recorder
        self._terminal: Any = None
        self._progress: Progress | None = None
        self._shown = time.monotonic()
        self._is_live = self._speaks_for_all = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take over the line that pytest would fill with dots, and which a live line would overwrite."""
        verbosity, is_bundled = self._config.get_verbosity(), self._recorder.setup.scope != selection.OWN
        self._terminal = self._config.pluginmanager.get_plugin("terminalreporter") if verbosity >= 0 else None
        self._is_live = bool(self._terminal and self._terminal.isatty and verbosity == 0)
        # One dot per case would fill a hundred lines; users' own tests keep theirs.
        self._speaks_for_all = bool(self._terminal and verbosity == 0 and (self._is_live or is_bundled))
        if self._speaks_for_all:
            self._terminal.showfspath = False
            self._terminal._show_progress_info = False  # noqa: SLF001 - its share of dots that are not shown

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, Any]:
        """Suppress the output of single cases while the live line covers all; they are counted as usual."""
        status = yield
        return (status[0], "", "") if status and self._speaks_for_all and hasattr(report, "when") else status

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished case, and update the line if it is due."""
        found, now = record_of(report), time.monotonic()
        if not self._terminal or not found:
            return
        if self._progress is None:
            known = self._recorder.durations
            weights = {case.id: known.get(case.id, shards.USUAL_S) for case in self._recorder.cases}
            self._progress = Progress(weights, self._shown)
        self._progress.take(found)
        # Our lines would break pytest's own.
        if not self._speaks_for_all or now - self._shown < (LIVE_EVERY_S if self._is_live else LOG_EVERY_S):
            return
        self._shown = now
        line = f"ascend: {self._progress.line(now)}"
        if not self._is_live:
            self._terminal.ensure_newline()
            self._terminal.write_line(line)
            return
        width = shutil.get_terminal_size().columns - 1
        line = f"{line}, at {evidence.line(found.case.id)}"
        self._terminal.rewrite(f"{line[: width - 1]}…" if len(line) > width else line, erase=True)

    def pytest_sessionfinish(self) -> None:
        """Print an empty line after the progress line."""
        if self._is_live and self._progress:
            self._terminal.rewrite("", erase=True)
        self._is_live = False


@contextlib.contextmanager
def folded(terminal: Any, bundled: Collection[str], *, all_warnings: bool) -> Iterator[int]:
    """Keep failures and warnings of these tests out of pytest's own summary; yield the number of warnings.

    They are in the run log, on the page and, by cause, on the terminal. pytest's last line still counts them.
    """
    # Categories of pytest's short summary, and our own.
    names = ("failed", "error", "warnings", "unsupported", "fallback", "flaky", "waived", "not-emulated")
    kept = {name: list(terminal.stats[name]) for name in names if name in terminal.stats}
    shown, warned = dict[str, list[Any]](), 0
    for name, reports in kept.items() if bundled else ():
        left = [each for each in reports if getattr(each, "nodeid", "") not in bundled]
        if name == "warnings":
            left = [] if all_warnings else left
            warned = len(reports) - len(left)
        shown[name] = left
    with for_now(terminal.stats.update, shown, kept):
        yield warned
