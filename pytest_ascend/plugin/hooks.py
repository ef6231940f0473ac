"""Hooks of a run with ``--ascend``, each a thin adapter. Loaded only with that option."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from pytest_ascend.coverage import manifest, selection, shards
from pytest_ascend.coverage.selection import CollectedCases
from pytest_ascend.device import Device
from pytest_ascend.environment.chips import has_own_formulas
from pytest_ascend.export import terminal
from pytest_ascend.plugin import options, parent, reports
from pytest_ascend.plugin.collection import take_cases
from pytest_ascend.plugin.keys import CASE, CONTEXT, NOT_BUILT, SETUP, STATE
from pytest_ascend.plugin.progress import ProgressLine, folded
from pytest_ascend.plugin.session import RunRecorder, RunSetup, header_lines
from pytest_ascend.plugin.startup import one_clear_message
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import CaseContext, lost, watching
from pytest_ascend.runlog.reading import recorded
from pytest_ascend.system.errors import DeviceUnavailable, RunLogError
from pytest_ascend.system.programs import for_now, without_garbage_collection
from pytest_ascend.system.text import one_line, visible


def register(config: pytest.Config, setup: RunSetup | None) -> None:
    """Register the hooks of the run. ``setup`` is None if pytest loaded this plugin too late to start a device."""
    if setup is None:
        message = "pytest-ascend was loaded after the conftests, too late for --ascend"
        raise pytest.UsageError(f"{message}\n  hint: load it on the command line: -p pytest_ascend.plugin")
    for line in _not_the_users_doing(setup):
        config.addinivalue_line("filterwarnings", line)
    if setup.prepared.isolated:
        # pytest-xdist's -n is the number of cards; this plugin starts its own workers.
        config.option.dist, config.option.tx = "no", []
    config.stash[STATE] = run = RunState(config, setup)
    # pytest calls the most recently registered plugin first.
    if run.recorder:  # in the process that collects the results
        config.pluginmanager.register(reports.Integrations(), "ascend-integrations")
        config.pluginmanager.register(ProgressLine(config, run.recorder), "ascend-progress")
    config.pluginmanager.register(run, "ascend-hooks")
    if setup.scope != selection.OWN:
        # The user's ini-file is meant for other tests, and may set other patterns for test files and functions.
        config.addinivalue_line("python_files", "test_*.py")
        config.addinivalue_line("python_functions", "test")


def _not_the_users_doing(setup: RunSetup) -> list[str]:
    """Return filters for warnings that torch's CPU code raises inside the emulated device."""
    return [r"ignore:::pytest_ascend\.emulator\.kernels\."] if setup.prepared.device.emulated else []


def _end_at_once(*_: object) -> None:
    os.write(2, b"\ninterrupted while it ended: ended at once; --ascend-resume continues\n")
    os._exit(int(pytest.ExitCode.INTERRUPTED))


class RunState:
    """A run in one process: device, tests, pytest's hooks, and the recorder if this process writes the log."""

    def __init__(self, config: pytest.Config, setup: RunSetup) -> None:
        self.config = config
        self.setup = setup
        self.device = setup.prepared.device
        self.lost = ""
        self.deselected = 0
        self.opened_by = ""
        #: Cases of other shards, by node id.
        self.elsewhere: dict[str, Case] = {}
        #: Data that xdist passes to each worker; None in the main process.
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.recorder = None if self.worker else RunRecorder(setup)
        #: Ids of the cases that an earlier part of this run finished; they are passed to xdist workers.
        self.proved = frozenset(recorded(setup.options.report) if setup.options.resume and self.recorder else ())
        #: Tests of the bundled suites, by node id; and all tests whose tracebacks do not concern the user's code.
        self.bundled: frozenset[str] = frozenset()
        self.folded: frozenset[str] = frozenset()
        self.messages = tempfile.TemporaryDirectory(prefix="pytest-ascend-", ignore_cleanup_errors=True)

    def become_worker(self, index: int) -> Device:
        """Become the state of a worker, which tests the device with this index and leaves the log to the parent.

        A worker sees only its own card, which therefore has another index there.
        """
        device: Any = self.setup.prepared.device
        if device.kind == "npu":
            from pytest_ascend.device.npu import show_only  # noqa: PLC0415  (loads torch_npu)

            device = replace(device, called=index, index=show_only([index])[0])
        elif hasattr(device, "index"):
            device = replace(device, index=index)
        self.setup = replace(self.setup, prepared=replace(self.setup.prepared, device=device))
        self.config.stash[SETUP] = self.setup
        self.device, self.recorder = device, None
        return self.device

    def begin(self, collected: CollectedCases) -> None:
        """Begin the log. The judge's self-test runs once in the first worker, or here if there are no workers."""
        assert self.recorder is not None  # noqa: S101 - callers checked
        with one_clear_message():
            begins = self.recorder.begin(collected)
        if begins and not self.setup.prepared.isolated:
            from pytest_ascend.plugin.self_test import score  # noqa: PLC0415  (loads torch)

            self.recorder.note(score(self.setup.options.standard))

    @property
    def tells_little(self) -> bool:
        """Return whether pytest's verbosity is the default."""
        return self.config.option.tbstyle == "auto" and self.config.get_verbosity() <= 0

    def collected(self, items: list[pytest.Item]) -> CollectedCases:
        """Return the cases of these tests, to plan the run."""
        found = [item for item in items if CASE in item.stash]
        return CollectedCases(
            cases={item.nodeid: item.stash[CASE] for item in found},
            places={item.nodeid: self.place(item) for item in found},
            deselected=self.deselected + self.config.stash.get(NOT_BUILT, 0),
            elsewhere=self.elsewhere,
        )

    def place(self, item: pytest.Item) -> str:
        """Return the command-line argument with which pytest reruns a test."""
        return selection.place(item.path, item.nodeid, self.config.invocation_params.dir)

    def missing(self) -> tuple[str, ...]:
        """Return the operators found missing on the emulated device since the last call."""
        if not self.device.emulated:
            return ()
        from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

        return emulator.missing()

    # --- collecting, deselecting and planning ---

    def pytest_report_header(self) -> list[str]:
        """Report what will be tested."""
        setup, recorder = self.setup, self.recorder
        diagnosis = recorder.diagnosis if recorder else None
        lines = [*setup.options.former, *header_lines(setup, setup.stack(), diagnosis)]
        if setup.options.library:
            from pytest_ascend.operators import libraries  # noqa: PLC0415  (loads torch)

            lines += libraries.header()
        return lines

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Disable Python's garbage collection while collecting, to save time."""
        with without_garbage_collection():
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect every folder of the bundled suites, even where the configuration ignores it."""
        is_cache = collection_path.name == "__pycache__"
        return False if collection_path.is_relative_to(self.setup.suites) and not is_cache else None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Note each file that uses the device during its import: processes forked later cannot use the device."""
        report = yield
        if self.setup.prepared.isolated and not self.opened_by and self.device.kind == "npu":
            from pytest_ascend.device.npu import has_context  # noqa: PLC0415  (loads torch)

            self.opened_by = (collector.nodeid or "a conftest.py or plugin") if has_context() else ""
        return report

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Keep the warning filters of another folder's configuration away from the bundled suites."""
        has_mark = collector.config.pluginmanager.has_plugin("warnings")  # not with -p no:warnings
        if has_mark and isinstance(collector, pytest.Module) and collector.path.is_relative_to(self.setup.suites):
            filters = ("default", *_not_the_users_doing(self.setup))
            collector.add_marker(pytest.mark.filterwarnings(*filters), append=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the cases; deselect those of higher levels and other devices."""
        with one_clear_message():
            take_cases(items)
        concerned = {item: CASE not in item.stash or self.setup.concerns(item.stash[CASE]) for item in items}
        if above := [item for item, is_concerned in concerned.items() if not is_concerned]:
            items[:] = filter(concerned.get, items)
            self.config.hook.pytest_deselected(items=above)

    @pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
    def pytest_collection_shard(self, items: list[pytest.Item]) -> None:
        """Keep this shard's share of the tests left after all other selection."""
        setup, shard = self.setup, self.setup.options.shard
        if shard is None:
            return
        mine = shards.part(setup.whole(self.collected(items))[0], shards.load(setup.suites), shard)
        cases = {item: item.stash.get(CASE, None) for item in items}
        self.elsewhere = {item.nodeid: case for item, case in cases.items() if case and case.id not in mine}
        # Tests that are not cases are also divided, by name.
        others = {item for item in items if crc32(item.nodeid.encode()) % shard.count == shard.index - 1}
        items[:] = [item for item, case in cases.items() if (case.id in mine if case else item in others)]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count tests that other plugins deselected."""
        self.deselected += sum(CASE in item.stash and self.setup.concerns(item.stash[CASE]) for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the plan, or pass it to the process that does; then deselect cases that a resumed run has finished."""
        if sys.exc_info()[0] is not None:
            return  # also for a path that does not exist: nothing runs, and the last report stays
        suites = self.setup.suites
        self.bundled = frozenset(each.nodeid for each in session.items if each.path.is_relative_to(suites))
        modules = {each.nodeid: getattr(getattr(each, "function", None), "__module__", "") for each in session.items}
        # conformance_tests() makes these: none of the code is the user's
        written = (node_id for node_id, module in modules.items() if str(module).startswith("pytest_ascend."))
        self.folded = self.bundled.union(written)
        collected = self.collected(session.items)
        if self.worker:
            path = Path(self.worker["ascend_messages"], f"{self.worker['workerid']}.json")
            path.write_bytes(msgspec.json.encode(collected))
            done = frozenset(self.worker["ascend_done"])
        elif self.recorder and not options.only_looks(self.config.option) and not session.testsfailed:
            done = self.proved
            self.begin(collected)
        else:
            return
        session.items[:] = [each for each in session.items if CASE not in each.stash or each.stash[CASE].id not in done]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where to report its collection, and which cases an earlier part of this run finished."""
        node.workerinput["ascend_messages"] = self.messages.name
        node.workerinput["ascend_done"] = sorted(self.proved)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Record the plan of the first worker; all workers collect the same."""
        path = Path(self.messages.name, f"{node.workerinput['workerid']}.json")
        collected = msgspec.json.decode(path.read_bytes(), type=CollectedCases)
        if self.recorder:
            self.begin(collected)

    # --- running a test ---

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in child processes if the device may crash its process."""
        option = self.config.option
        has_errors = session.testsfailed and not option.continue_on_collection_errors
        is_mine = self.setup.prepared.isolated and self.recorder is not None
        if not is_mine or has_errors or options.only_looks(option):
            return None
        if self.opened_by:
            hint = "move what it computes into a test or a fixture; or run everything in one process"
            raise pytest.UsageError(
                f"{visible(self.opened_by)} uses the NPU while it is imported: the processes that run the tests "
                f"could not use it any more (CANN: 107002, or a hang)\n  hint: {hint}: --ascend-isolation=off"
            )
        with one_clear_message(), _able_to_go_on(self):
            return parent.run(self, session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Stop running tests after the deadline. (With child processes, the parent enforces it.)"""
        return True if time.monotonic() > self.setup.deadline(len(item.session.items)) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start with an empty context; do not run on a lost device."""
        if CASE in item.stash:
            case = item.stash[CASE]
            known = self.setup.expectations.known(case.id)
            is_own = not item.path.is_relative_to(self.setup.suites)
            item.stash[CONTEXT] = CaseContext(case=case, node_id=self.place(item), known=known, is_own=is_own)
            self.missing()
            if self.lost:
                raise DeviceUnavailable(f"the device is lost: {self.lost}", hint="start again when it works")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the device while the test uses it."""
        context = item.stash.get(CONTEXT, None)
        if context is None:
            return (yield)
        is_timed = not {"benchmark", "ascend_benchmark"}.isdisjoint(getattr(item, "fixturenames", ()))
        with watching(context, self.device, timed=is_timed):
            try:
                return (yield)
            except AssertionError as error:
                if context.has_wrong_numbers() and has_own_formulas(self.device.chip()):
                    error.args = (context.judge_again(item.runtest, str(error)),)
                raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the record of the case into pytest's report."""
        option, usual = item.config.option, item.config.option.tbstyle
        # Bundled cases get Python's short tracebacks: few are read, and for its own pytest parses whole files.
        is_short = item.nodeid in self.folded and self.tells_little
        with for_now(partial(setattr, option, "tbstyle"), "native" if is_short else usual, usual):
            report = yield
        if (context := item.stash.get(CONTEXT, None)) is None:
            return report
        if call.excinfo is not None and context.error_outcome is None:
            reports.note_error(context, call.excinfo.value, report, self.device, self.missing())
            # An emulated device cannot be lost, but a planted fault may make its results wrong.
            if isinstance(context.error_outcome, Errored) and not self.device.emulated and not self.lost:
                wrong = lost(self.device)
                self.lost = f"after {context.case.id}: {wrong}" if wrong else ""
        elif context.is_own and report.when == "call" and report.failed and context.error_outcome is None:
            context.error_outcome = Failed(reason=one_line(report.longreprtext))  # XPASS(strict)
        if report.when == "call":
            context.duration_s = call.duration
            if "latency_us" not in context.series:
                benchmarked.take(context, getattr(item, "funcargs", {}).get("benchmark"))
        if report.when == "call" or (report.when == "setup" and context.error_outcome):
            reports.restate(report, context.outcome(), is_short=is_short)
        if report.when == "teardown":
            report.user_properties.append((reports.RECORD_PROPERTY, reports.as_builtins(context.record())))
            del item.stash[CONTEXT]  # pytest keeps every item, and the context holds all tensors of its case
        return report

    # --- results: the log, the terminal, the exit code ---

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
        """Return a separate category for outcomes that pytest does not have.

        The teardown report repeats the outcome for JUnit XML and is not counted again.
        """
        if getattr(report, "when", "") == "teardown" and report.passed:
            return None
        return reports.STATUS.get(str(dict(getattr(report, "user_properties", ())).get(reports.OUTCOME_PROPERTY)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the record of a case as soon as it is available."""
        with _able_to_go_on(self):
            if self.recorder and (record := reports.record_of(report)):
                self.recorder.take(record)
            elif self.recorder and report.when not in ("setup", "call", "teardown"):
                self.recorder.take_crash(report.nodeid, report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the log, write the report, and derive the exit code from the verdict."""
        usual, is_main = signal.getsignal(signal.SIGINT), threading.current_thread() is threading.main_thread()
        if self.recorder and is_main and usual is not signal.SIG_IGN:  # ignored by a shell's background job
            # No traceback if the user interrupts the shutdown: the log is complete.
            signal.signal(signal.SIGINT, _end_at_once)
            self.config.add_cleanup(partial(signal.signal, signal.SIGINT, usual))  # type: ignore[arg-type]
        with _able_to_go_on(self):
            if self.recorder:
                session.exitstatus = self.recorder.close(int(exitstatus))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print results grouped by cause instead of a traceback for each case, and the path of the report."""
        recorder = self.recorder
        if not recorder or not (summary := recorder.summary):
            return (yield)
        hidden = self.folded if self.tells_little else frozenset()
        with folded(terminalreporter, hidden, all_warnings=self.setup.scope != selection.OWN) as warned:
            result = yield
        terminalreporter.section("ascend conformance")
        beside = terminal.beside(summary.run, recorder.stopped, warned=warned, output=recorder.output)
        page = None if recorder.no_page else recorder.page
        for line in (*beside, *terminal.lines(summary, page=page)):
            terminalreporter.write_line(line.text, **line.markup)
        if not summary.results:
            terminalreporter.write_line(self._why_nothing(terminalreporter))
        if page is None:
            terminalreporter.write_line(f"no page: {recorder.no_page}", red=True)
        return result

    def _why_nothing(self, terminalreporter: pytest.TerminalReporter) -> str:
        """Explain why a run has no cases, and what to do."""
        if passed := len(terminalreporter.stats.get("passed", ())):
            tests = f"{passed} test{'s'[: passed > 1]} passed without a fixture of pytest-ascend"
            return f"{tests}: nothing was judged. Use npu_device and precision_compare (docs/custom-operators.md)"
        keyword = self.config.option.keyword
        own = (each.name.removeprefix("test_") for each in terminalreporter.stats.get("deselected", ()))
        is_own = self.setup.scope == selection.OWN
        names = sorted(set(own if is_own else (each.subject for each in manifest.load(self.setup.suites))))
        near = difflib.get_close_matches(keyword, names, n=3) if keyword else []
        return f"no test matches: did you mean {' or '.join(near)}?" if near else "no test matches what was selected"

    def pytest_unconfigure(self) -> None:
        """Clean up."""
        self.messages.cleanup()


@contextlib.contextmanager
def _able_to_go_on(run: RunState) -> Generator[None, None, None]:
    """End the run if the log of a case or of an attempt cannot be written, or if other processes hold its cards."""
    try:
        yield
    except (RunLogError, DeviceUnavailable) as error:
        run.recorder = None  # the log so far is complete and can be continued
        # A log that cannot be written is a failure of the infrastructure, not of the device.
        code = error.exit_code if isinstance(error, DeviceUnavailable) else 7
        pytest.exit(f"{error}\n  then continue with --ascend-resume", returncode=code)
