"""Forks a process for each fault or mistake on the command line, checks captured graphs in it, and prints what is seen.

A line is ``CHECK WHAT``; WHAT is a planted fault of the emulated device, the name of a server's mistake below, numerics
(``chip:1``), or ``right``. What is printed is the first disagreement, or ``agrees``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from pytest_ascend import emulator

emulator.activate()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

from suites.graphs.compiled import COMPILED  # noqa: E402
from suites.graphs.server import OF_REQUEST, PADDING_SLOT, Batch, Captured, Server, served  # noqa: E402
from suites.graphs.workloads import WORKLOADS  # noqa: E402


class StaleLengths(Server):
    """Attention keeps the lengths of the step before."""

    def update(self, made: Captured, batch: Batch) -> None:
        lengths, self.last = getattr(self, "last", batch.lengths), list(batch.lengths)
        batch.lengths = [*lengths, *[1] * len(batch.lengths)][: len(batch.lengths)]
        super().update(made, batch)


class PaddingIsComputed(Server):
    """Rows of padding keep the slots of the requests that were there before."""

    def write(self, batch: Batch) -> None:
        kept = self.buffers["slots"].tolist()
        batch.slots = [old if slot == PADDING_SLOT else slot for slot, old in zip(batch.slots, kept, strict=False)]
        super().write(batch)


class StaleTableOfPadding(Server):
    """Rows of padding write to, and read from, the first page of the cache."""

    def write(self, batch: Batch) -> None:
        batch.tables = [
            table if valid else [0] * OF_REQUEST for table, valid in zip(batch.tables, batch.valid, strict=True)
        ]
        batch.slots = [slot if valid else 5 for slot, valid in zip(batch.slots, batch.valid, strict=True)]
        super().write(batch)


class TableOnlyOnTheHost(Server):
    """When requests move up, the device keeps the old block table."""

    def write(self, batch: Batch) -> None:
        tables = self.buffers["tables"].clone()
        super().write(batch)
        if getattr(self, "seen", 0) > 2:
            self.buffers["tables"].copy_(tables)
        self.seen = getattr(self, "seen", 0) + 1


class LayersInAnotherOrder(Server):
    """Updates reach the attention of another layer."""

    def order(self, made: Captured) -> list[int]:
        return super().order(made)[::-1]


class PaddingNotZeroed(Server):
    """What rows of padding hold reaches the scale of the quantization."""

    def padding(self) -> Any:
        return float("nan")


class DecidedAtCapture(Server):
    """What is decided at each step is what was decided at the capture."""

    def reduced(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * float(self.scale) if not torch.npu.is_current_stream_capturing() else hidden * 1.0


class SlotsOneStepLate(Server):
    """Slots are computed from the position of the step before."""

    def write(self, batch: Batch) -> None:
        batch.slots = [slot - 1 if place else slot for slot, place in zip(batch.slots, batch.positions, strict=True)]
        super().write(batch)


class BuffersReassigned(Server):
    """A buffer is a new tensor in each step, which the graph does not know."""

    def write(self, batch: Batch) -> None:
        fresh = torch.tensor([*batch.slots, *[PADDING_SLOT] * 4][:4], device=self.device)
        self.buffers["slots"], kept = fresh, self.buffers["slots"]
        super().write(batch)
        del kept


SERVERS = {
    each.__name__: each
    for each in (
        *(StaleLengths, PaddingIsComputed, StaleTableOfPadding, TableOnlyOnTheHost, LayersInAnotherOrder),
        *(PaddingNotZeroed, DecidedAtCapture, SlotsOneStepLate, BuffersReassigned),
    )
}


def same(actual: torch.Tensor, expected: torch.Tensor, where: str, locate: Callable[[], str] | None = None) -> None:
    found, wanted = (each.detach().cpu().contiguous() for each in (actual, expected))
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        raise AssertionError(f"{where}: {found.dtype} {tuple(found.shape)}, not {wanted.dtype} {tuple(wanted.shape)}")
    if not torch.equal(found.view(-1).view(torch.uint8), wanted.view(-1).view(torch.uint8)):
        raise AssertionError(f"{where}: {locate()}" if locate else where)


def seen(check: str, what: str) -> str:
    if what.startswith("chip:"):
        os.environ["PYTEST_ASCEND_EMULATED_NUMERICS"] = what
    elif what not in SERVERS and what != "right":
        os.environ["PYTEST_ASCEND_FAULTS"] = what
    device = torch.device("npu", 0)
    try:
        if check == "server":
            served(device, same, SERVERS.get(what, Server))
        else:
            {**WORKLOADS, **COMPILED}[check](device, same)
    except AssertionError as error:
        return str(error)
    return "agrees"


for line in sys.argv[1:]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = seen(*line.split())
        except BaseException as error:  # noqa: BLE001 - is told
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.replace("\n", " ").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        sys.stdout.write(f"{line}\t{pipe.read()}\n")
    os.waitpid(child, 0)
