"""The hooks of a run with ``--ascend``: each a thin adapter. Loaded only where that is on."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend import options
from pytest_ascend.bundled import folder
from pytest_ascend.errors import AscendError, DeviceUnavailable, UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed, NotRun, Outcome
from pytest_ascend.report import terminal
from pytest_ascend.run import selection
from pytest_ascend.run.outcomes import classify
from pytest_ascend.run.preparation import prepare
from pytest_ascend.run.selection import Collected
from pytest_ascend.run.trial import Trial
from pytest_ascend.run.watching import lost, watching
from pytest_ascend.session import Ledger, Setup, header_lines

CASE: pytest.StashKey[Case] = pytest.StashKey()
TRIAL: pytest.StashKey[Trial] = pytest.StashKey()

#: Names under which outcomes travel with pytest's reports, from xdist's workers too.
OUTCOME_PROPERTY = "ascend_outcome"
RECORD_PROPERTY = "ascend"

#: A test that uses one of these is a case, even if nobody marked it as one.
CASE_FIXTURES = {"npu_device", "precision_compare", "ascend_measure"}

#: How the terminal calls what pytest has no word for: category, letter, word.
STATUS = {
    "not-emulated": ("not-emulated", "n", "NOT-EMULATED"),
    "unsupported": ("unsupported", "u", "UNSUPPORTED"),
    "fallback": ("fallback", "b", "FALLBACK"),
    "errored": ("error", "E", "ERROR"),
}


@contextlib.contextmanager
def one_clear_message() -> Iterator[None]:
    """Turn what the user can act on into pytest's own kind of error: a message, no traceback, the right exit code."""
    try:
        yield
    except DeviceUnavailable as error:
        # pytest knows no way to end with a code of one's own before it is configured.
        sys.stderr.write(f"ERROR: {error}\n")
        raise SystemExit(error.exit_code) from None
    except AscendError as error:
        raise pytest.UsageError(str(error)) from None


def set_up(config: pytest.Config, args: list[str]) -> Setup:
    """Read what was asked for and bring the device up; without a path in ``args``, put the bundled suites there."""
    namespace, here = config.known_args_namespace, config.invocation_params.dir
    with one_clear_message():
        settings, suites = options.read(namespace, here), folder("suites").resolve()
        chosen = options.chosen(namespace)
        scope = selection.scope(chosen.paths, suites, here)
        memory_bytes = settings.emulated_memory_bytes
        prepared = prepare(settings.device, faults=settings.faults, emulated_memory_bytes=memory_bytes)
        _refuse_unknown(settings.standard)
    if scope != selection.OWN:
        _keep_to(suites, config, args)
    return Setup(options=settings, chosen=chosen, scope=scope, suites=suites, prepared=prepared)


def register(config: pytest.Config, setup: Setup | None) -> None:
    """Let the run be tested. ``setup`` is None where pytest came to know this plugin too late to bring a device up."""
    if setup is None:
        message = "pytest-ascend was loaded after the conftests, too late for --ascend"
        raise pytest.UsageError(f"{message}\n  hint: load it on the command line: -p pytest_ascend.plugin")
    for line in _not_the_users_doing(setup):
        config.addinivalue_line("filterwarnings", line)
    config.pluginmanager.register(Conformance(config, setup), "ascend-conformance")
    if setup.scope != selection.OWN:
        # The ini-file is about other tests, and may call files and functions otherwise.
        config.addinivalue_line("python_files", "test_*.py")
        config.addinivalue_line("python_functions", "test")


def _not_the_users_doing(setup: Setup) -> list[str]:
    """Give filters for what torch's CPU warns of inside the emulated device."""
    if not setup.prepared.device.emulated:
        return []
    from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

    return [f"ignore:::{module}" for module in emulator.kernel_modules()]


def _refuse_unknown(standard: str) -> None:
    """Raise UsageError for a standard that does not exist. Loads torch, and so comes after the device."""
    if standard:
        from pytest_ascend import precision  # noqa: PLC0415  (loads torch)

        precision.standard_of(standard)


def _keep_to(suites: Path, config: pytest.Config, args: list[str]) -> None:
    """Collect the bundled suites as what they are, whatever folder pytest was started in.

    The conftests of that folder are about other tests, and its virtual environment, which pytest does not look into,
    may be where the suites are.
    """
    namespace = config.known_args_namespace
    if not namespace.file_or_dir:
        args.insert(0, str(suites))
        namespace.file_or_dir = [str(suites)]
    namespace.confcutdir = str(suites)


def case_of(item: pytest.Item) -> Case | None:
    """Give the case that a test decides: by its marker or parameter, or the test itself where it uses the fixtures."""
    marker = item.get_closest_marker("ascend_case")
    if marker is not None:
        return _marked(marker, item)
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    given = [value for value in parameters if isinstance(value, Case)]
    if given:
        return given[0]
    uses = CASE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    return Case(suite="user", subject=item.nodeid, property="test") if uses else None


def _marked(marker: pytest.Mark, item: pytest.Item) -> Case:
    if len(marker.args) != 1 or not isinstance(marker.args[0], Case):
        raise UsageError(
            f"{item.nodeid}: the marker ascend_case has {marker.args!r}",
            hint="give it one Case: @pytest.mark.ascend_case(Case(suite=..., subject=..., property=...))",
        )
    return marker.args[0]


class Conformance:
    """The hooks of a run with ``--ascend``."""

    def __init__(self, config: pytest.Config, setup: Setup) -> None:
        self.config = config
        self.setup = setup
        self.device = setup.prepared.device
        self.lost = ""
        self.deselected = 0
        #: What xdist gives to each worker; None in the process that pytest was started as.
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.ledger = None if self.worker else Ledger(setup)
        self.messages = tempfile.TemporaryDirectory(prefix="pytest-ascend-")

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind."""
        self.messages.cleanup()

    def pytest_report_header(self) -> list[str]:
        """Say what is going to be tested."""
        return list(header_lines(self.setup, self.setup.stack()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Look into every folder of the bundled suites, whatever is left out elsewhere."""
        is_cache = collection_path.name == "__pycache__"
        return False if collection_path.is_relative_to(self.setup.suites) and not is_cache else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the cases, and leave those of higher levels out."""
        with one_clear_message():
            _take_cases(items)
        level = self.setup.options.level
        above = [item for item in items if CASE in item.stash and not item.stash[CASE].is_in(level)]
        if above:
            left_out = set(above)
            items[:] = [item for item in items if item not in left_out]
            self.config.hook.pytest_deselected(items=above)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Keep what the configuration of some other folder does with warnings away from the bundled suites."""
        if item.path.is_relative_to(self.setup.suites):
            filters = ("default", *_not_the_users_doing(self.setup))
            item.add_marker(pytest.mark.filterwarnings(*filters), append=False)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what somebody else left out."""
        level = self.setup.options.level
        self.deselected += sum(1 for item in items if CASE in item.stash and item.stash[CASE].is_in(level))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the plan down, or tell the process that does."""
        items = [item for item in session.items if CASE in item.stash]
        collected = Collected(
            cases={item.nodeid: item.stash[CASE] for item in items},
            places={item.nodeid: self._place(item) for item in items},
            deselected=self.deselected,
        )
        if self.worker:
            path = Path(self.worker["ascend_messages"], f"{self.worker['workerid']}.json")
            path.write_text(json.dumps(collected.to_dict()), encoding="utf-8")
        elif self.ledger and not options.only_looks(self.config.option) and not session.testsfailed:
            with one_clear_message():
                self.ledger.begin(collected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist where to say what it collected."""
        node.workerinput["ascend_messages"] = self.messages.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Write the plan down when the first worker knows it; all of them collect the same."""
        path = Path(self.messages.name, f"{node.workerinput['workerid']}.json")
        collected = Collected.from_dict(json.loads(path.read_text(encoding="utf-8")))
        with one_clear_message():
            if self.ledger:
                self.ledger.begin(collected)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin with an empty trial, and not at all on a device that is lost."""
        if CASE in item.stash:
            item.stash[TRIAL] = Trial(case=item.stash[CASE], node_id=self._place(item))
            self._missing()
            if self.lost:
                raise DeviceUnavailable(f"the device is lost: {self.lost}", hint="start again when it is well")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the device while the test uses it."""
        trial = item.stash.get(TRIAL, None)
        if trial is None:
            return (yield)
        with watching(trial, self.device, timed="benchmark" in getattr(item, "fixturenames", ())):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say in pytest's report what became of the case."""
        report = yield
        if TRIAL in item.stash:
            self._conclude(item, item.stash[TRIAL], call, report)
        return report

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
        """Give outcomes that pytest has no word for a category of their own."""
        return STATUS.get(str(dict(getattr(report, "user_properties", ())).get(OUTCOME_PROPERTY)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the record of a case down as soon as it is known."""
        record = dict(report.user_properties).get(RECORD_PROPERTY)
        if self.ledger and isinstance(record, dict):
            self.ledger.take(record)
        elif self.ledger and report.when not in ("setup", "call", "teardown"):
            self.ledger.take_crash(report.nodeid, report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the log, write the report, and let the verdict decide the exit code."""
        if self.ledger:
            session.exitstatus = self.ledger.close(int(exitstatus))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what came out and where the report is."""
        if self.ledger and self.ledger.summary:
            terminalreporter.section("ascend conformance")
            for line in terminal.lines(self.ledger.summary, page=self.ledger.page):
                terminalreporter.write_line(line.text, **line.markup)

    def _conclude(
        self, item: pytest.Item, trial: Trial, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> None:
        if call.excinfo is not None and trial.interrupted is None:
            trial.interrupted = self._interpret(call.excinfo.value, report)
            self.lost = self.lost or self._health(trial)
        if report.when == "call":
            trial.duration_s = call.duration
            trial.measurements.update(_benchmarked(item))
        if report.when == "call" or (report.when == "setup" and trial.interrupted):
            _restate(report, trial.outcome())
        if report.when == "teardown":
            report.user_properties.append((RECORD_PROPERTY, trial.record().to_dict()))

    def _interpret(self, error: BaseException, report: pytest.TestReport) -> Outcome:

        if isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
            return NotRun(reason=f"skipped: {error}")
        if isinstance(error, pytest.fail.Exception):
            return Failed(reason=str(error), detail=report.longreprtext)
        outcome = classify(error, emulated=self.device.emulated, missing=self._missing())
        return Errored(reason=outcome.reason, detail=report.longreprtext) if outcome.name == Errored.name else outcome

    def _place(self, item: pytest.Item) -> str:
        return selection.place(item.path, item.nodeid, self.config.invocation_params.dir)

    def _missing(self) -> tuple[str, ...]:
        """Give the operators that the emulated device lacked since the last time."""
        if not self.device.emulated:
            return ()
        from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

        return emulator.missing()

    def _health(self, trial: Trial) -> str:
        """Say what is wrong with the device after a case that ended in an error of no known kind.

        An emulated one cannot be lost, but a planted fault may make its answers wrong.
        """
        is_suspect = isinstance(trial.interrupted, Errored) and not self.device.emulated
        wrong = lost(self.device) if is_suspect else ""
        return f"after {trial.case.id}: {wrong}" if wrong else ""


def _take_cases(items: list[pytest.Item]) -> None:
    """Attach each test's case to it. Raises UsageError where two tests claim the same one."""
    owners: dict[str, str] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            continue
        other = owners.setdefault(case.id, item.nodeid)
        if other != item.nodeid:
            raise UsageError(f"two tests decide the case {case.id}: {other} and {item.nodeid}", hint="rename one case")
        item.stash[CASE] = case


def _restate(report: pytest.TestReport, outcome: Outcome) -> None:
    """Make pytest's report agree with the outcome: nothing but a pass may look like one, and no pass is a skip."""
    report.user_properties.append((OUTCOME_PROPERTY, outcome.name))
    if outcome.name == "not-emulated":
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, outcome.reason)
    elif outcome.name != "passed" and report.passed and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{outcome.name}: {outcome.reason}\n{outcome.detail}".rstrip()


def _benchmarked(item: pytest.Item) -> dict[str, float]:
    """Give what pytest-benchmark measured in a test."""
    metadata = getattr(getattr(item, "funcargs", {}).get("benchmark"), "stats", None)
    if metadata is None:
        return {}
    names = {"latency_min_us": "min", "latency_median_us": "median", "latency_mean_us": "mean"}
    figures = {name: float(getattr(metadata.stats, figure)) * 1e6 for name, figure in names.items()}
    return {**figures, "rounds": float(metadata.stats.rounds)}
