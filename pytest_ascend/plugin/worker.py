"""What a child process of an isolated run does: it uses one card, runs what it is told, and says what came of it."""

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

from pytest_ascend.device import Device
from pytest_ascend.isolation import Channel
from pytest_ascend.plugin.keys import RANKS, STATE
from pytest_ascend.plugin.reports import RECORD_PROPERTY
from pytest_ascend.plugin.session import RunSetup
from pytest_ascend.run import benchmarked
from pytest_ascend.run.case_context import lost

#: Has launches wait for their end, so that a device fails where the mistake is.
BLOCKING = {"ASCEND_LAUNCH_BLOCKING": "1", "CUDA_LAUNCH_BLOCKING": "1"}

#: Plugins that speak to people or write files: they hear of everything in the parent.
PARENTS = ("terminalreporter", "ascend-progress", "ascend-integrations")

#: Less than this that stays allocated after a case is taken for what devices and libraries keep by themselves.
LEFT_BEHIND_BYTES = 2**20

#: Of a line that C++ writes past all capturing, so much is told.
SAID_CHARACTERS = 200
#: Of what a faulty device says, its first line, and so much of that.
HEALTH_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a child needs to know. ``index`` is its device's; ``alone`` asks for blocking launches.

    ``deterministic`` asks for determinism before the first operator: CANN looks at the first setting of a thread only.
    """

    session: pytest.Session
    setup: RunSetup
    index: int
    alone: bool
    deterministic: bool
    runs_self_test: bool
    threads: int

    def live(self, channel: Channel) -> None:
        """Be the child: say how the device is, then run what the parent says."""
        if self.alone:
            os.environ.update(BLOCKING)
        self._prepare_ranks()
        beside = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process lives)
        with _away_from_the_terminal(self.session.config, beside):
            device = self._device()
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
        """Fork the host of the ranks where a case uses them, before this process touches its device."""
        config = self.session.config
        if not any("ascend_ranks" in getattr(item, "fixturenames", ()) for item in self.session.items):
            return
        from pytest_ascend.distributed.ranks import Ranks  # noqa: PLC0415  (needed by few runs)

        within = Path(config.stash[STATE].messages.name)
        config.stash[RANKS] = ranks = Ranks(self.setup.prepared.device.kind, within=within)
        ranks.prepare()

    def _device(self) -> Device:
        """Return this child's card, to whoever asks for the device under test."""
        return self.session.config.stash[STATE].become_worker(self.index, _seen_as(self.setup, self.index))

    def _self_test(self) -> Any:
        from pytest_ascend.run.self_test import score  # noqa: PLC0415  (loads torch)

        return to_builtins(score(self.setup.options.standard))

    def _obey(self, channel: Channel, reporter: WorkerReporter, device: Device, beside: BinaryIO) -> None:
        items = self.session.items
        while "run" in (message := channel.receive()):
            index, following = message["run"], message["next"]
            item, before = items[index], device.allocated_bytes()
            measured = benchmarked.count(item.config)
            reporter.answer = "passed"
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[following] if following >= 0 else None)
            if timed := benchmarked.told(item.config, measured):
                channel.send(benchmarks=timed, index=index)
            health = health_of(device)
            if not health and (left := _left_behind(device, before)):
                channel.send(left_bytes=left, index=index)
            if said := beside.read().decode(errors="replace").splitlines():
                channel.send(said=said[0][:SAID_CHARACTERS], lines=len(said))
            channel.send(finished=index, answer=reporter.answer, health=health)
        self.session._setupstate.teardown_exact(None)  # noqa: SLF001  (there is no other way to end early)


class WorkerReporter:
    """Passes on what pytest reports, and keeps what a case came to."""

    def __init__(self, channel: Channel, config: pytest.Config) -> None:
        self._channel = channel
        self._config = config
        self.answer = "passed"
        #: Registering plays all warnings since the start of the run once more, which the parent has already.
        self.listens = False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report to the parent."""
        record = dict(report.user_properties).get(RECORD_PROPERTY)  # still as builtins, on its way to the parent
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
    """Ask the device for a known answer: "" where it gives it, else what is wrong with it."""
    return lost(device).partition("\n")[0][:HEALTH_CHARACTERS]


def _come_up(device: Device, threads: int, *, deterministic: bool) -> str:
    """Use the device for the first time in this process; return what is wrong with it, "" for nothing."""
    import torch  # noqa: PLC0415  (loaded by the parent)

    torch.set_num_threads(threads)
    if deterministic:
        torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms imports torch's compiler: a second
        # A case leaves poison in memory to see who reads it: it is not to be filled.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        getattr(device, "pin_numerics", dict)()
        device.torch_device()
    except Exception as error:  # noqa: BLE001  (whatever a dead device raises is the finding)
        return f"{type(error).__name__}: {error}"
    return health_of(device)


def _left_behind(device: Device, before: int) -> int:
    """Return the bytes that a case left allocated, of those that nobody still refers to none."""
    if device.allocated_bytes() - before < LEFT_BEHIND_BYTES:
        return 0
    gc.collect()
    left = device.allocated_bytes() - before
    return left if left >= LEFT_BEHIND_BYTES else 0


@contextlib.contextmanager
def _away_from_the_terminal(config: pytest.Config, beside: BinaryIO) -> Iterator[None]:
    """The parent alone reports, and each process captures into files of its own; what is said here is dropped.

    What C++ writes past all capturing, between tests for instance, goes to ``beside``; with ``-s``, to the terminal.
    """
    manager = config.pluginmanager
    for name in PARENTS:
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


def _seen_as(setup: RunSetup, index: int) -> int:
    """Show this process its card alone, where there are cards; return the index that it has here."""
    if setup.prepared.device.kind != "npu":
        return index
    from pytest_ascend.device.npu import show_only  # noqa: PLC0415  (loads torch_npu)

    return show_only(index)


def on_card(setup: RunSetup, index: int, seen_as: int) -> RunSetup:
    """Return the settings of a process that uses the card with this index, which is ``seen_as`` another one there."""
    device: Any = setup.prepared.device
    named = {"called": index} if hasattr(device, "called") else {}
    moved = replace(device, index=seen_as, **named) if hasattr(device, "index") else device
    return replace(setup, prepared=replace(setup.prepared, device=moved))
