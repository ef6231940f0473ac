"""A child process of an isolated run: it uses one card, runs the tests that the parent sends, and reports."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from msgspec import to_builtins

from pytest_ascend.coverage import selection
from pytest_ascend.device import Device
from pytest_ascend.isolation.process import GOES_ON, Channel
from pytest_ascend.plugin.keys import RANKS, STATE
from pytest_ascend.plugin.reports import RECORD_PROPERTY
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import lost
from pytest_ascend.system.programs import give_back, resident_bytes

#: Bytes that may stay allocated after a case: devices and libraries keep some themselves.
LEFT_BEHIND_BYTES = 2**20
#: Growth of a child, in bytes, after which freed memory is returned to the system, which takes a while.
TRIM_BYTES = 2**30


@dataclass(eq=False)
class Work:
    """A child, and the plugin that sends pytest's reports to the parent. ``index`` is the index of its device.

    ``alone`` makes launches block. ``deterministic`` is set before operators: CANN reads only a thread's first setting.
    """

    session: pytest.Session
    index: int
    alone: bool
    deterministic: bool
    self_test: bool
    threads: int
    #: Outcome of the current case, and pytest's reports of it, sent to the parent in one message.
    answer: str = "passed"
    reports: list[Any] = field(default_factory=list)
    #: Registration replays all warnings since the start of the run, which the parent already has.
    listens: bool = False
    channel: Channel = field(init=False)

    def live(self, channel: Channel) -> None:
        """Run the child: report the device's health, then run what the parent sends."""
        self.channel, config = channel, self.session.config
        state = config.stash[STATE]
        if self.alone:  # with synchronous launches, an error is raised where it is caused
            os.environ.update(ASCEND_LAUNCH_BLOCKING="1", CUDA_LAUNCH_BLOCKING="1")
        if uses_ranks(self.session):  # the process that hosts the ranks is forked before this one uses its device
            from pytest_ascend.distributed.ranks import Ranks  # noqa: PLC0415  (needed by few runs)

            kind, setup, within = state.device.kind, state.setup, Path(state.messages.name)
            config.stash[RANKS] = ranks = Ranks(kind, setup.ranks, within, setup.rank_devices)
            ranks.prepare()
        beside = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        with _away_from_the_terminal(config, beside, has_own_tests=state.setup.scope == selection.OWN):
            device = state.become_worker(self.index)
            failure, score = _come_up(device, self.threads, deterministic=self.deterministic), {}
            if not failure and self.self_test:
                from pytest_ascend.plugin import self_test  # noqa: PLC0415  (loads torch)

                score["self_test"] = to_builtins(self_test.score(state.setup.options.standard))
        channel.send(ready=failure, **score)
        config.pluginmanager.register(self, "ascend-worker-reporter")
        self.listens = True
        try:
            self._obey(device, beside)
        except pytest.exit.Exception as error:
            channel.send(stop=str(error), code=error.returncode)

    def _obey(self, device: Device, beside: BinaryIO) -> None:
        channel, items = self.channel, self.session.items
        trimmed, held, goes_on = 0, device.allocated_bytes(), True
        benchmarked.taken(self.session.config)  # discard what other processes measured: the parent has it
        while "run" in (message := channel.receive()):
            if message["ahead"] and not goes_on:
                continue
            index, following = message["run"], message["next"]
            item = items[index]
            self.answer, self.reports = "passed", []
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[following] if following >= 0 else None)
            if timed := benchmarked.taken(item.config):
                channel.send(benchmarks=timed, index=index)
            health = _health_of(device)
            if not health:
                before, held = held, device.allocated_bytes()
                if held - before >= LEFT_BEHIND_BYTES:
                    for name in ("last_exc", "last_value", "last_traceback"):  # a failed test's frames, kept for pdb
                        setattr(sys, name, None)
                    gc.collect()  # free what nothing refers to any more
                    held = device.allocated_bytes()
                if held - before >= LEFT_BEHIND_BYTES:
                    channel.send(left_bytes=held - before, index=index)
            if said := beside.read().decode(errors="replace").splitlines():
                channel.send(said=said[0][:200], lines=len(said))
            channel.send(finished=index, answer=self.answer, health=health, reports=self.reports)
            goes_on = self.answer == GOES_ON and not health
            trimmed = _trimmed(trimmed)
        self.session._setupstate.teardown_exact(None)  # noqa: SLF001 - there is no other way to end early

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report for the parent."""
        record = dict(report.user_properties).get(RECORD_PROPERTY)  # still builtins, on the way to the parent
        if isinstance(record, Mapping):
            self.answer = str(record["outcome"])
        elif report.failed:
            self.answer = "failed"
        config = self.session.config
        self.reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning to the parent, which lists all of them."""
        if self.listens:
            told = {name: getattr(warning_message, name) for name in ("filename", "lineno")}
            told |= {"text": str(warning_message.message), "category": warning_message.category.__name__}
            self.channel.send(warning=told, when=when, nodeid=nodeid, location=location)


def _come_up(device: Device, threads: int, *, deterministic: bool) -> str:
    """Use the device for the first time in this process; return an error message, "" if it works."""
    import torch  # noqa: PLC0415  (loaded by the parent)

    torch.set_num_threads(threads)
    if deterministic:
        torch.set_deterministic_debug_mode("warn")  # the usual function imports torch's compiler, which takes a second
        # Some cases poison memory to detect reads of it, so deterministic mode must not fill it.
        if fills := getattr(torch.utils, "deterministic", None):  # torch 2.1 never fills
            fills.fill_uninitialized_memory = False
    try:
        getattr(device, "pin_numerics", dict)()
        device.torch_device()
    except Exception as error:  # noqa: BLE001  (whatever a dead device raises is the finding)
        return f"{type(error).__name__}: {error}"
    return _health_of(device)


def _health_of(device: Device) -> str:
    """Run a computation with a known result on the device; return an error message, "" if it is right."""
    return lost(device).partition("\n")[0][:300]


def _trimmed(before: int) -> int:
    """Return memory to the system if the process grew by TRIM_BYTES; return its size when that was last done."""
    if resident_bytes() - before < TRIM_BYTES:
        return before
    give_back()
    return resident_bytes()


@contextlib.contextmanager
def _away_from_the_terminal(config: pytest.Config, beside: BinaryIO, *, has_own_tests: bool) -> Iterator[None]:
    """Keep this process off the terminal: the parent reports, and output is captured into separate files.

    What C++ writes around pytest's capturing, such as between tests, goes to ``beside``; with ``-s``, to the terminal.
    """
    manager = config.pluginmanager
    # These plugins write to the terminal or to files, in the parent; pytest's logging handler visits all of torch's
    # loggers six times a test, and no bundled case reads it.
    for name in ("terminalreporter", "ascend-progress", "ascend-integrations", "logging-plugin"):
        if manager.has_plugin(name) and not (has_own_tests and name == "logging-plugin"):
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
    """Return whether a collected test runs on several cards."""
    return any("_ascend_ranks" in getattr(item, "fixturenames", ()) for item in session.items)
