"""Progress on the terminal: one live line on a screen, an occasional line in the log of a CI job."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Any

import pytest

from pytest_ascend.coverage import shards
from pytest_ascend.plugin.reports import record_of
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system import figures
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.summary import ORDER

#: Seconds, and share of the expected time, after which the remaining time is shown.
LEAST_S, LEAST_SHARE = 10.0, 0.05
#: Outcomes that are not reported at once.
_EXPECTED = ("passed", "waived", "not-emulated", "not-judged")


class Progress:
    """Follows a run. ``weights_s`` has every case that must run, by id, with its expected time in seconds."""

    def __init__(self, weights_s: Mapping[str, float], started: float) -> None:
        self._left = dict(weights_s)
        self._total, self._total_s = len(weights_s), sum(weights_s.values())
        self._started = started
        self._counts: Counter[str] = Counter()
        self._now = ""
        self._worst: tuple[float, str] = (0.0, "")

    def take(self, record: ResultRecord) -> None:
        """Count a finished case."""
        self._left.pop(record.case.id, None)
        self._counts[record.outcome.name] += 1
        self._now = record.case.id
        used = evidence.limit_used(record)
        # Deviations are listed anyway, and known ones would stay here throughout.
        if used is not None and used > self._worst[0] and record.outcome.name == Passed.name:
            self._worst = (used, record.case.id)

    def line(self, now: float) -> str:
        """Return the progress in one line; ``now`` is on the clock of the start, in seconds."""
        done = self._total - len(self._left)
        parts = [
            f"{done:,} of {self._total:,} cases",
            *self._rest(now),
            *[f"{self._counts[name]:,} {name}" for name in ORDER if self._counts[name] and name not in _EXPECTED],
        ]
        share, case_id = self._worst
        if case_id:
            parts.append(f"worst {figures.used(share)} of its limit: {evidence.line(case_id)}")
        return ", ".join(parts)

    def at(self) -> str:
        """Return the case that finished last."""
        return evidence.line(self._now)

    def _rest(self, now: float) -> list[str]:
        done_s, passed_s = self._total_s - sum(self._left.values()), now - self._started
        if not self._left or passed_s < LEAST_S or done_s < LEAST_SHARE * self._total_s:
            return []  # the first cases include common costs, and do not predict the others
        rest_s = (now - self._started) / done_s * (self._total_s - done_s)
        return [f"about {figures.duration(max(rest_s, 1.0))} left"]


#: Seconds between two lines of a log, and between two updates of a live line.
LOG_EVERY_S, LIVE_EVERY_S = 60.0, 0.1


class ProgressLine:
    """Shows the progress. ``cases`` returns what has to run, ``durations_s`` the expected times, when called.

    ``is_bundled``: only bundled suites run.
    """

    def __init__(
        self,
        config: pytest.Config,
        cases: Callable[[], Iterable[Case]],
        durations_s: Callable[[], Mapping[str, float]],
        *,
        is_bundled: bool = False,
    ) -> None:
        self._config = config
        self._cases, self._durations_s = cases, durations_s
        self._terminal: Any = None
        self._progress: Progress | None = None
        self._shown = time.monotonic()
        self._is_live = self._speaks_for_all = False
        self._is_bundled = is_bundled

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take over the line that pytest would fill with dots, which a live line would overwrite."""
        self._terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        verbosity = self._config.get_verbosity()
        if verbosity < 0:
            self._terminal = None
        self._is_live = bool(self._terminal and self._terminal.isatty and verbosity == 0)
        # One dot per case would fill a hundred lines; users' own tests keep theirs.
        self._speaks_for_all = bool(self._terminal and verbosity == 0 and (self._is_live or self._is_bundled))
        if self._speaks_for_all:
            self._terminal.showfspath = False
            self._terminal._show_progress_info = False  # noqa: SLF001 - its share of dots that are not shown

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, Any]:
        """Suppress the output for single cases while the live line shows all; they are counted as usual."""
        status = yield
        return (status[0], "", "") if status and self._speaks_for_all and hasattr(report, "when") else status

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished case, and update the line if it is due."""
        found = record_of(report)
        if self._terminal and found:
            self._begun().take(found)
            self._show()

    def pytest_sessionfinish(self) -> None:
        """Print an empty line before what follows."""
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
        if not self._speaks_for_all:
            return  # our line would break those of pytest
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


@contextlib.contextmanager
def folded(terminal: Any, bundled: Collection[str], *, all_warnings: bool) -> Iterator[int]:
    """Keep failures and warnings of these tests out of pytest's own summary; yield the number of warnings.

    They are in the run log and on the page, and on the terminal by cause. pytest's last line still counts them.
    """
    kept = {name: list(terminal.stats[name]) for name in ("failed", "error", "warnings") if name in terminal.stats}
    odd = [name for name in terminal.stats if name in _ODD]
    kept |= {name: list(terminal.stats[name]) for name in odd}
    warned = 0
    for name, reports in kept.items() if bundled else ():
        left = [each for each in reports if getattr(each, "nodeid", "") not in bundled]
        if name == "warnings":
            left = [] if all_warnings else left
            warned = len(reports) - len(left)
        terminal.stats[name] = left
    try:
        yield warned
    finally:
        terminal.stats.update(kept)


#: Our categories in pytest's short summary.
_ODD = ("unsupported", "fallback", "flaky", "waived", "not-emulated")
