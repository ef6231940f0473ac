"""The hooks of a run with ``--ascend``: each a thin adapter. Loaded only where that is on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_ascend.coverage import selection
from pytest_ascend.coverage.selection import CollectedCases
from pytest_ascend.device import Device
from pytest_ascend.errors import DeviceUnavailable, RunLogError
from pytest_ascend.export import terminal
from pytest_ascend.plugin import options, parent, reporters
from pytest_ascend.plugin.collection import case_known, is_open, refuse_open, take_cases
from pytest_ascend.plugin.error_outcome import interrupt
from pytest_ascend.plugin.keys import CASE, CONTEXT, NOT_BUILT, SETUP
from pytest_ascend.plugin.progress import folded
from pytest_ascend.plugin.reports import OUTCOME_PROPERTY, RECORD_PROPERTY, STATUS, as_builtins, record_of, restate
from pytest_ascend.plugin.session import PYTEST_ONLY, RunRecorder, Setup, header_lines
from pytest_ascend.plugin.sharding import Sharding
from pytest_ascend.plugin.startup import one_clear_message, set_up
from pytest_ascend.plugin.worker import on_card
from pytest_ascend.records.outcome import Errored
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import CaseContext
from pytest_ascend.run.watching import lost, watching
from pytest_ascend.runlog.resuming import recorded

__all__ = ["Conformance", "register", "set_up"]

#: What a run ends with when its log cannot be written: the machine gave way, not the device.
CANNOT_WRITE = 7

#: A test that uses one of these is timed.
TIMED_FIXTURES = {"benchmark", "ascend_benchmark"}


def register(config: pytest.Config, setup: Setup | None) -> None:
    """Let the run be tested. ``setup`` is None where pytest came to know this plugin too late to bring a device up."""
    if setup is None:
        message = "pytest-ascend was loaded after the conftests, too late for --ascend"
        raise pytest.UsageError(f"{message}\n  hint: load it on the command line: -p pytest_ascend.plugin")
    for line in _not_the_users_doing(setup):
        config.addinivalue_line("filterwarnings", line)
    if setup.prepared.isolated:
        # The number of workers that pytest-xdist was asked for is the number of cards; the children are our own.
        config.option.dist, config.option.tx = "no", []
    conformance = Conformance(config, setup)
    if conformance.recorder:
        reporters.register(config, conformance.recorder)
    if conformance.sharding:
        config.pluginmanager.register(conformance.sharding, "ascend-sharding")
    # Last, so that it is told first of each result.
    config.pluginmanager.register(conformance, "ascend-conformance")
    if setup.scope != selection.OWN:
        # The ini-file is about other tests, and may call files and functions otherwise.
        config.addinivalue_line("python_files", "test_*.py")
        config.addinivalue_line("python_functions", "test")


def _not_the_users_doing(setup: Setup) -> list[str]:
    """Return filters for what torch's CPU warns of inside the emulated device."""
    if not setup.prepared.device.emulated:
        return []
    from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

    return [f"ignore:::{module}" for module in emulator.kernel_modules()]


def _case_id(item: pytest.Item) -> str:
    """Return the id of a test's case, "" for an ordinary test."""
    return item.stash[CASE].id if CASE in item.stash else ""


class Conformance:
    """The hooks of a run with ``--ascend``."""

    def __init__(self, config: pytest.Config, setup: Setup) -> None:
        self.config = config
        self.setup = setup
        self.device = setup.prepared.device
        self.lost = ""
        self.deselected = 0
        self.opened_by = ""
        shard = setup.options.shard
        self.sharding = Sharding(setup, shard, self._collected, case_known) if shard else None
        #: What xdist gives to each worker; None in the process that pytest was started as.
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.recorder = None if self.worker else RunRecorder(setup)
        #: The tests of the bundled suites, by node id: their tracebacks and warnings are not of the user's code.
        self.bundled: frozenset[str] = frozenset()
        self.messages = tempfile.TemporaryDirectory(prefix="pytest-ascend-")

    @cached_property
    def proved(self) -> frozenset[str]:
        """The cases that need not run where this run continues another, by id; the same for all workers of xdist."""
        return frozenset(recorded(self.setup.options.report)) if self.setup.options.resume else frozenset()

    def become_child(self, index: int, seen_as: int) -> Device:
        """Be the plugin of a child process, which tests the device with this index and keeps no account."""
        self.setup = on_card(self.setup, index, seen_as)
        self.config.stash[SETUP] = self.setup
        self.device, self.recorder = self.setup.prepared.device, None
        return self.device

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind."""
        self.messages.cleanup()

    def pytest_report_header(self) -> list[str]:
        """Say what is going to be tested."""
        return list(header_lines(self.setup, self.setup.stack(), self.recorder.diagnosis if self.recorder else None))

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Look into every folder of the bundled suites, whatever is left out elsewhere."""
        is_cache = collection_path.name == "__pycache__"
        return False if collection_path.is_relative_to(self.setup.suites) and not is_cache else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the cases, and leave those of higher levels and of other devices out."""
        with one_clear_message():
            take_cases(items)
        above = [item for item in items if CASE in item.stash and not self.setup.concerns(item.stash[CASE])]
        if above:
            left_out = set(above)
            items[:] = [item for item in items if item not in left_out]
            self.config.hook.pytest_deselected(items=above)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """See which file uses the device while it is imported: no process that is forked after that can."""
        report = yield
        if self.setup.prepared.isolated and not self.opened_by and is_open(self.device):
            self.opened_by = collector.nodeid or "a conftest.py or plugin"
        return report

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Keep what the configuration of some other folder does with warnings away from the bundled suites."""
        if isinstance(collector, pytest.Module) and collector.path.is_relative_to(self.setup.suites):
            filters = ("default", *_not_the_users_doing(self.setup))
            collector.add_marker(pytest.mark.filterwarnings(*filters), append=False)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what somebody else left out."""
        self.deselected += sum(1 for item in items if CASE in item.stash and self.setup.concerns(item.stash[CASE]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the plan down, or tell the process that does; then leave out what a run that is resumed has proved."""
        suites = self.setup.suites
        self.bundled = frozenset(each.nodeid for each in session.items if each.path.is_relative_to(suites))
        collected = self._collected(session.items)
        if self.sharding:
            collected = self.sharding.completed(collected)
        if self.worker:
            path = Path(self.worker["ascend_messages"], f"{self.worker['workerid']}.json")
            path.write_bytes(msgspec.json.encode(collected))
            done = frozenset(self.worker["ascend_done"])
        elif self.recorder and not options.only_looks(self.config.option) and not session.testsfailed:
            self._begin(collected)
            done = self.recorder.settled()
        else:
            return
        session.items[:] = [each for each in session.items if _case_id(each) not in done]

    def _begin(self, collected: CollectedCases) -> None:
        """Begin the log. Children try their judge themselves, each run's first one for all; else it is done here."""
        assert self.recorder is not None  # noqa: S101  (callers looked)
        with one_clear_message():
            begins = self.recorder.begin(collected)
        if begins and not self.setup.prepared.isolated:
            from pytest_ascend.run.self_test import score  # noqa: PLC0415  (loads torch)

            self.recorder.note(score(self.setup.options.standard))

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in child processes, where the device may take the process that uses it down."""
        has_errors = session.testsfailed and not session.config.option.continue_on_collection_errors
        if (
            not self.setup.prepared.isolated
            or self.recorder is None
            or options.only_looks(self.config.option)
            or has_errors
        ):
            return None
        with one_clear_message():
            refuse_open(self.opened_by)
            return parent.run(self, session)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist where to say what it collected, and what an earlier part of this run has proved."""
        node.workerinput["ascend_messages"] = self.messages.name
        node.workerinput["ascend_done"] = sorted(self.proved)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Write the plan down when the first worker knows it; all of them collect the same."""
        path = Path(self.messages.name, f"{node.workerinput['workerid']}.json")
        collected = msgspec.json.decode(path.read_bytes(), type=CollectedCases)
        if self.recorder:
            self._begin(collected)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Run nothing more when the time of the run is over; children have a parent who ends them in the middle."""
        return True if time.monotonic() > self.setup.deadline(len(item.session.items)) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin with an empty trial, and not at all on a device that is lost."""
        if CASE in item.stash:
            case = item.stash[CASE]
            known = self.setup.expectations.known(case.id)
            item.stash[CONTEXT] = CaseContext(case=case, node_id=self._place(item), known=known)
            self._missing()
            if self.lost:
                raise DeviceUnavailable(f"the device is lost: {self.lost}", hint="start again when it is well")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the device while the test uses it."""
        trial = item.stash.get(CONTEXT, None)
        if trial is None:
            return (yield)
        with watching(trial, self.device, timed=bool(TIMED_FIXTURES.intersection(getattr(item, "fixturenames", ())))):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say in pytest's report what became of the case."""
        report = yield
        if CONTEXT in item.stash:
            self._conclude(item, item.stash[CONTEXT], call, report)
        return report

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
        """Return outcomes that pytest has no word for a category of their own.

        The report of the teardown says the outcome once more, for JUnit XML, and is not another case.
        """
        if getattr(report, "when", "") == "teardown" and report.passed:
            return None
        return STATUS.get(str(dict(getattr(report, "user_properties", ())).get(OUTCOME_PROPERTY)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the record of a case down as soon as it is known."""
        try:
            if self.recorder and (record := record_of(report)):
                self.recorder.take(record)
            elif self.recorder and report.when not in ("setup", "call", "teardown"):
                self.recorder.take_crash(report.nodeid, report.longreprtext)
        except RunLogError as error:
            self.recorder = None  # what stands in the log is whole, and can be continued
            pytest.exit(f"{error}\n  then continue with --ascend-resume", returncode=CANNOT_WRITE)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the log, write the report, and let the verdict decide the exit code."""
        if self.recorder:
            if exitstatus not in PYTEST_ONLY:
                self.recorder.stop_late()
            session.exitstatus = self.recorder.close(int(exitstatus))

    @property
    def _tells_little(self) -> bool:
        """Whether nobody asked pytest for more than it says by itself."""
        return self.config.option.tbstyle == "auto" and self.config.get_verbosity() <= 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Say last what came out and where the report is, by cause in the place of a traceback for each case."""
        if not self.recorder or not self.recorder.summary:
            return (yield)
        bundled = self.bundled if self._tells_little else frozenset()
        with folded(terminalreporter, bundled, all_warnings=self.setup.scope != selection.OWN) as warned:
            result = yield
        terminalreporter.section("ascend conformance")
        beside = terminal.beside(
            self.recorder.summary.run, self.recorder.stopped, warned=warned, said=self.recorder.said
        )
        for line in (*beside, *terminal.lines(self.recorder.summary, page=self.recorder.page)):
            terminalreporter.write_line(line.text, **line.markup)
        return result

    def _conclude(
        self, item: pytest.Item, trial: CaseContext, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> None:
        if call.excinfo is not None and trial.interrupted is None:
            interrupt(trial, call.excinfo.value, report, self.device, self._missing())
            self.lost = self.lost or self._health(trial)
        if report.when == "call":
            trial.duration_s = call.duration
            fixture = getattr(item, "funcargs", {}).get("benchmark")
            if "latency_us" not in trial.series:
                trial.measurements.update(benchmarked.figures(fixture))
                trial.series.update(benchmarked.samples(fixture))
        if report.when == "call" or (report.when == "setup" and trial.interrupted):
            restate(report, trial.outcome(), is_short=item.nodeid in self.bundled and self._tells_little)
        if report.when == "teardown":
            report.user_properties.append((RECORD_PROPERTY, as_builtins(trial.record())))

    def _collected(self, items: list[pytest.Item]) -> CollectedCases:
        found = [item for item in items if CASE in item.stash]
        return CollectedCases(
            cases={item.nodeid: item.stash[CASE] for item in found},
            places={item.nodeid: self._place(item) for item in found},
            deselected=self.deselected + self.config.stash.get(NOT_BUILT, 0),
        )

    def _place(self, item: pytest.Item) -> str:
        return selection.place(item.path, item.nodeid, self.config.invocation_params.dir)

    def _missing(self) -> tuple[str, ...]:
        """Return the operators that the emulated device lacked since the last time."""
        if not self.device.emulated:
            return ()
        from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

        return emulator.missing()

    def _health(self, trial: CaseContext) -> str:
        """Say what is wrong with the device after a case that ended in an error of no known kind.

        An emulated one cannot be lost, but a planted fault may make its answers wrong.
        """
        is_suspect = isinstance(trial.interrupted, Errored) and not self.device.emulated
        wrong = lost(self.device) if is_suspect else ""
        return f"after {trial.case.id}: {wrong}" if wrong else ""
