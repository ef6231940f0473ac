"""Groups of ranks for tests: each rank is a process with its own device, started once and used by many cases.

A process that has used a device must not be forked. So the ranks are forked by a host: a process that was forked
before any device was used, and uses none. It supervises the ranks: if a rank dies, hangs or raises, the call fails with
its number, and the next call gets new processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ascend.distributed import rank
from pytest_ascend.isolation.process import Child, Deadline, start
from pytest_ascend.system.errors import FailedElsewhere

if TYPE_CHECKING:
    import torch

#: The default limit of a call in seconds: less than a case's shortest deadline.
LIMIT_S = 45.0


class RankFailed(FailedElsewhere):
    """A rank died, did not answer in time, or raised. ``rank`` is its number, ``detail`` the messages of all ranks."""

    def __init__(self, message: str, *, rank: int, detail: str) -> None:
        hint = "the ranks' own words are above; the next case gets new ones"
        super().__init__(f"{message}\n{detail}".strip(), hint=hint)
        self.rank = rank
        self.said = message
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank returned: its tensors by name, on the CPU, and other values."""

    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name] if name in self.tensors else self.values[name]


class Ranks:
    """Runs functions on groups of ranks. ``kind`` is the device type: npu, cuda or cpu; ``within`` a folder.

    ``devices`` are the indices of the ranks' devices, by rank; others have the first that are not among them.
    """

    def __init__(self, kind: str, within: Path | None = None, devices: Sequence[int] = ()) -> None:
        self.kind = kind
        self._devices = devices
        self._within = within
        self._environ = dict(os.environ)  # later, a worker with a card of its own sees no other
        self._host: Child | None = None
        self._folder: Path | None = None

    def prepare(self) -> None:
        """Fork the host. Call it before this process uses a device."""
        self._folder = folder = self._new_folder()
        self._host = start(lambda channel: rank.live(channel, folder))

    def run(
        self, count: int, function: Callable[..., Any], *, limit_s: float = LIMIT_S, **arguments: Any
    ) -> Sequence[Answer]:
        """Call ``function(place, **arguments)`` on each of ``count`` ranks, and return what they return, by rank.

        The function is found by its name, and has to return a mapping from names to tensors or JSON values. Arguments
        have to be JSON values, too. Raises RankFailed.
        """
        if self._host and self._host.code() is not None:
            self.close()
        if not self._host or not self._folder:
            self._folder = self._new_folder()
            self._host = _fresh(self._folder, self._environ)
        child, folder = self._host, self._folder
        name = f"{function.__module__}:{function.__qualname__}"
        devices = [*self._devices, *(each for each in range(count) if each not in self._devices)]
        call = {"count": count, "kind": self.kind, "devices": devices[:count]}
        child.send(**call, function=name, arguments=arguments, limit_s=limit_s, folder=str(folder))
        deadline, found = Deadline(child.pid, limit_s + rank.START_LIMIT_S), child.read()
        while not (found or deadline.is_over() or child.code() is not None):
            time.sleep(0.001)
            found = child.read()
        if not found:
            why = "gave no answer" if child.code() is None else f"ended with {child.code()}"
            said = child.notes()
            self.close()
            raise RankFailed(f"the host of the ranks {why}", rank=-1, detail=said)
        message = found[0]
        if "failure" in message:
            raise RankFailed(message["failure"], rank=message["rank"], detail=message["detail"])
        from safetensors.torch import load_file

        answers = []
        for each in message["answers"]:
            answers.append(Answer(load_file(each["path"]) if each["path"] else {}, each["values"]))
            if each["path"]:
                Path(each["path"]).unlink()
        return answers

    def close(self) -> None:
        """Stop the ranks and their host, and remove their files."""
        if self._host:
            self._host.end(5)
            self._host = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="pytest-ascend-ranks-", dir=self._within))


def _fresh(folder: Path, environ: Mapping[str, str]) -> Child:
    """Start the host as a new interpreter, if this process cannot be forked."""
    to_host, to_us = os.pipe(), os.pipe()
    notes = os.memfd_create("notes")
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", rank.__name__, str(folder), str(to_host[0]), str(to_us[1])],
        pass_fds=(to_host[0], to_us[1]),
        stdin=subprocess.DEVNULL,
        stdout=notes,
        stderr=notes,
        env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    for each in (to_host[0], to_us[1]):
        os.close(each)
    with contextlib.suppress(AttributeError):
        process.returncode = 0  # the Child waits for it
    return Child(process.pid, to_us[0], to_host[1], notes)
