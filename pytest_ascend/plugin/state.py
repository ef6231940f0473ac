"""The state of a run with ``--ascend`` in one process, shared by the groups of hooks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from pytest_ascend.coverage import selection
from pytest_ascend.coverage.selection import CollectedCases
from pytest_ascend.device import Device
from pytest_ascend.plugin.keys import CASE, NOT_BUILT, SETUP
from pytest_ascend.plugin.session import RunRecorder, RunSetup
from pytest_ascend.plugin.startup import one_clear_message
from pytest_ascend.records.case import Case
from pytest_ascend.runlog.reading import recorded


class RunState:
    """A run in one process: the device, the tests, and the recorder if this process writes the log."""

    def __init__(self, config: pytest.Config, setup: RunSetup) -> None:
        self.config = config
        self.setup = setup
        self.device = setup.prepared.device
        self.lost = ""
        self.deselected = 0
        self.opened_by = ""
        #: The cases of other shards, by node id.
        self.elsewhere: dict[str, Case] = {}
        #: The data that xdist passes to each worker; None in the process that pytest was started as.
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.recorder = None if self.worker else RunRecorder(setup)
        #: The tests of the bundled suites, by node id; and all whose tracebacks are not about the user's code.
        self.bundled: frozenset[str] = frozenset()
        self.folded: frozenset[str] = frozenset()
        self.messages = tempfile.TemporaryDirectory(prefix="pytest-ascend-", ignore_cleanup_errors=True)

    @cached_property
    def proved(self) -> frozenset[str]:
        """The ids of the cases that an earlier part of this run finished; the same for all workers of xdist."""
        return frozenset(recorded(self.setup.options.report)) if self.setup.options.resume else frozenset()

    def become_worker(self, index: int) -> Device:
        """Become the state of a worker, which tests the device with this index and leaves the log to the parent.

        It sees no other card, and therefore its own by another index.
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
        """Begin the log. Children test their judge themselves, the first of a run for all; else it is done here."""
        assert self.recorder is not None  # noqa: S101 - callers checked
        with one_clear_message():
            begins = self.recorder.begin(collected)
        if begins and not self.setup.prepared.isolated:
            from pytest_ascend.plugin.self_test import score  # noqa: PLC0415  (loads torch)

            self.recorder.note(score(self.setup.options.standard))

    @property
    def tells_little(self) -> bool:
        """Whether pytest's verbosity is the default."""
        return self.config.option.tbstyle == "auto" and self.config.get_verbosity() <= 0

    def collected(self, items: list[pytest.Item]) -> CollectedCases:
        """Return the cases of these tests, for the plan of the run."""
        found = [item for item in items if CASE in item.stash]
        return CollectedCases(
            cases={item.nodeid: item.stash[CASE] for item in found},
            places={item.nodeid: self.place(item) for item in found},
            deselected=self.deselected + self.config.stash.get(NOT_BUILT, 0),
            elsewhere=self.elsewhere,
        )

    def place(self, item: pytest.Item) -> str:
        """Return the argument with which pytest runs a test again."""
        return selection.place(item.path, item.nodeid, self.config.invocation_params.dir)

    def missing(self) -> tuple[str, ...]:
        """Return the operators that the emulated device lacked since the last call."""
        if not self.device.emulated:
            return ()
        from pytest_ascend import emulator  # noqa: PLC0415  (needed on the emulated device only)

        return emulator.missing()
