"""A child process of an isolated run: it uses one card, runs the tests that it is sent, and reports."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from msgspec import to_builtins

from pytest_ascend.coverage import selection
from pytest_ascend.device import Device
from pytest_ascend.isolation import Channel
from pytest_ascend.isolation.process import GOES_ON
from pytest_ascend.plugin.keys import RANKS, STATE
from pytest_ascend.plugin.reports import RECORD_PROPERTY
from pytest_ascend.plugin.session import RunSetup
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import lost
from pytest_ascend.system.memory import give_back, resident_bytes

#: Makes launches synchronous, so that an error is raised where it is caused.
BLOCKING = {"ASCEND_LAUNCH_BLOCKING": "1", "CUDA_LAUNCH_BLOCKING": "1"}

#: Plugins that write to the terminal or to files: they run in the parent.
PARENTS = ("terminalreporter", "ascend-progress", "ascend-integrations")
#: pytest's handler of messages: it visits all of torch's loggers six times a test, which no bundled case looks at.
LOGGING = "logging-plugin"

#: Bytes that may stay allocated after a case: devices and libraries keep some by themselves.
LEFT_BEHIND_BYTES = 2**20

#: Bytes by which a child grows before freed memory is given back: that takes a while.
TRIM_BYTES = 2**30

#: Characters that are passed on of a line that C++ wrote past pytest's capturing.
SAID_CHARACTERS = 200
#: Characters that are passed on of the first line of a faulty device's message.
HEALTH_CHARACTERS = 300


#: The fixture of tests that run on several cards.
RANKS_FIXTURE = "_ascend_ranks"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The settings of a child. ``index`` is its device's; ``alone`` makes launches blocking.

    ``deterministic`` is set before the first operator: CANN reads only the first setting of a thread.
    """

    session: pytest.Session
    setup: RunSetup
    index: int
    alone: bool
    deterministic: bool
    runs_self_test: bool
    threads: int

    def live(self, channel: Channel) -> None:
        """Run the child: report the device's health, then run what the parent sends."""
        if self.alone:
            os.environ.update(BLOCKING)
        self._prepare_ranks()
        beside = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        has_own_tests = self.setup.scope == selection.OWN
        with _away_from_the_terminal(self.session.config, beside, has_own_tests=has_own_tests):
            device = self.session.config.stash[STATE].become_worker(self.index, _seen_as(self.setup, self.index))
            failure = _come_up(device, self.threads, deterministic=self.deterministic)
            score = self._self_test() if not failure and self.runs_self_test else None
        channel.send(ready=failure, **({"self_test": score} if score else {}))
        reporter = WorkerReporter(channel, self.session.config)
        self.session.config.pluginmanager.register(reporter, "ascend-worker-reporter")
        reporter.listens = True
        try:
            self._obey(channel, reporter, device, beside)
        except pytest.exit.Exception as error:
            channel.send(stop=str(error))

    def _prepare_ranks(self) -> None:
        """Fork the host of the ranks if a case uses them, before this process uses its device."""
        config = self.session.config
        if not uses_ranks(self.session):
            return
        from pytest_ascend.distributed.ranks import Ranks  # noqa: PLC0415  (needed by few runs)

        within = Path(config.stash[STATE].messages.name)
        config.stash[RANKS] = ranks = Ranks(
            self.setup.prepared.device.kind, within=within, devices=self.setup.rank_devices
        )
        ranks.prepare()

    def _self_test(self) -> Any:
        from pytest_ascend.plugin.self_test import score  # noqa: PLC0415  (loads torch)

        return to_builtins(score(self.setup.options.standard))

    def _obey(self, channel: Channel, reporter: WorkerReporter, device: Device, beside: BinaryIO) -> None:
        items, trimmed, held, goes_on = self.session.items, 0, device.allocated_bytes(), True
        while "run" in (message := channel.receive()):
            if message["ahead"] and not goes_on:
                continue
            index, following = message["run"], message["next"]
            item = items[index]
            measured = benchmarked.count(item.config)
            reporter.answer = "passed"
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[following] if following >= 0 else None)
            if timed := benchmarked.told(item.config, measured):
                channel.send(benchmarks=timed, index=index)
            health = health_of(device)
            before, held = held, held if health else _held(device, held)
            if held - before >= LEFT_BEHIND_BYTES:
                channel.send(left_bytes=held - before, index=index)
            if said := beside.read().decode(errors="replace").splitlines():
                channel.send(said=said[0][:SAID_CHARACTERS], lines=len(said))
            channel.send(finished=index, answer=reporter.answer, health=health)
            goes_on = reporter.answer == GOES_ON and not health
            trimmed = _trimmed(trimmed)
        self.session._setupstate.teardown_exact(None)  # noqa: SLF001 - there is no other way to end early


class WorkerReporter:
    """Sends pytest's reports to the parent, and keeps the outcome of a case."""

    def __init__(self, channel: Channel, config: pytest.Config) -> None:
        self._channel = channel
        self._config = config
        self.answer = "passed"
        #: Registering replays all warnings since the start of the run, which the parent already has.
        self.listens = False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report to the parent."""
        record = dict(report.user_properties).get(RECORD_PROPERTY)  # still builtins, on its way to the parent
        if isinstance(record, Mapping):
            self.answer = str(record["outcome"])
        elif report.failed:
            self.answer = "failed"
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(report=data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning to the parent, which lists all of them."""
        if not self.listens:
            return
        told = {
            "text": str(warning_message.message),
            "category": warning_message.category.__name__,
            "filename": warning_message.filename,
            "lineno": warning_message.lineno,
        }
        self._channel.send(warning=told, when=when, nodeid=nodeid, location=location)


def health_of(device: Device) -> str:
    """Run a computation with a known result on the device; return what is wrong, "" for nothing."""
    return lost(device).partition("\n")[0][:HEALTH_CHARACTERS]


def _come_up(device: Device, threads: int, *, deterministic: bool) -> str:
    """Use the device for the first time in this process; return what is wrong with it, "" for nothing."""
    import torch  # noqa: PLC0415  (loaded by the parent)

    torch.set_num_threads(threads)
    if deterministic:
        torch.set_deterministic_debug_mode("warn")  # the usual function imports torch's compiler: a second
        # A case poisons memory to see who reads it, so it must not be filled.
        if fills := getattr(torch.utils, "deterministic", None):  # torch 2.1 never does
            fills.fill_uninitialized_memory = False
    try:
        getattr(device, "pin_numerics", dict)()
        device.torch_device()
    except Exception as error:  # noqa: BLE001  (whatever a dead device raises is the finding)
        return f"{type(error).__name__}: {error}"
    return health_of(device)


def _held(device: Device, before: int) -> int:
    """Return the bytes that are allocated, where they are many more than before without those nothing refers to."""
    now = device.allocated_bytes()
    if now - before < LEFT_BEHIND_BYTES:
        return now
    gc.collect()
    return device.allocated_bytes()


def _trimmed(before: int) -> int:
    """Return the size of the process when freed memory was last given back: where it had grown by TRIM_BYTES."""
    if resident_bytes() - before < TRIM_BYTES:
        return before
    give_back()
    return resident_bytes()


@contextlib.contextmanager
def _away_from_the_terminal(config: pytest.Config, beside: BinaryIO, *, has_own_tests: bool) -> Iterator[None]:
    """Keep this process off the terminal: the parent reports, and output is captured into separate files.

    What C++ writes past pytest's capturing, such as between tests, goes to ``beside``; with ``-s``, to the terminal.
    """
    manager = config.pluginmanager
    for name in PARENTS if has_own_tests else (*PARENTS, LOGGING):
        if manager.has_plugin(name):
            manager.unregister(name=name)
    capture = manager.getplugin("capturemanager")
    capture.stop_global_capturing()
    if config.option.capture != "no":
        with Path(f"/dev/fd/{beside.fileno()}").open("ab") as target:
            os.dup2(target.fileno(), 2)
    capture.start_global_capturing()
    yield
    capture.suspend_global_capture(in_=True)
    capture.read_global_capture()


def uses_ranks(session: pytest.Session) -> bool:
    """Whether a collected test runs on several cards."""
    return any(RANKS_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items)


def _seen_as(setup: RunSetup, index: int) -> int:
    """Hide other cards from this process, if there are any; return the index of its own."""
    if setup.prepared.device.kind != "npu":
        return index
    from pytest_ascend.device.npu import show_only  # noqa: PLC0415  (loads torch_npu)

    return show_only([index])[0]


def on_card(setup: RunSetup, index: int, seen_as: int) -> RunSetup:
    """Return the settings of a process that uses the card with this index, which it sees as ``seen_as``."""
    device: Any = setup.prepared.device
    named = {"called": index} if hasattr(device, "called") else {}
    moved = replace(device, index=seen_as, **named) if hasattr(device, "index") else device
    return replace(setup, prepared=replace(setup.prepared, device=moved))
