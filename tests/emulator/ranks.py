"""Ranks that are threads of this process, for kernels that need several of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import all_kernels, mc2
from pytest_ascend.emulator.kernels.mc2 import Group

from .both import floats

T = torch.Tensor
RANKS = 2

KERNELS = {each.name: each for each in all_kernels()}


class Threads(Group):
    """Ranks that are threads: each collective hands over what all have put on the table."""

    here = threading.local()
    table: list[Any] = [None] * RANKS
    meeting = threading.Barrier(RANKS, timeout=30)
    called: list[str] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        assert name == "the group"
        self.ranks, self.rank = RANKS, self.here.rank

    def _all(self, mine: Any) -> list[Any]:
        self.table[self.rank] = mine
        self.meeting.wait()
        found = list(self.table)
        self.meeting.wait()
        return found

    def all_reduce(self, x: T) -> T:
        self.called.append("all_reduce")
        return torch.stack(self._all(x)).sum(0)

    def reduce_scatter(self, x: T) -> T:
        self.called.append("reduce_scatter")
        return torch.stack(self._all(x)).sum(0).chunk(RANKS)[self.rank]

    def all_gather(self, x: T) -> T:
        self.called.append("all_gather")
        return torch.cat(self._all(x))

    def exchange(self, x: T, send: list[int], receive: list[int]) -> T:
        self.called.append("exchange")
        parts = [its[self.rank] for its in self._all(x.split(send))]
        assert [len(each) for each in parts] == receive
        return torch.cat(parts)

    def barrier(self) -> None:
        self.called.append("barrier")
        self._all(None)


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the ranks of kernels threads."""
    monkeypatch.setattr(mc2, "Group", Threads)
    Threads.called.clear()


def on_all(call: Callable[[int], Any]) -> list[Any]:
    """Return what each rank makes."""

    def one(rank: int) -> Any:
        Threads.here.rank = rank
        return call(rank)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(one, range(RANKS)))


def called(name: str, **given: Any) -> Any:
    """Call a kernel by the names in its declaration; what is not given is omitted, or zero."""
    kernel = KERNELS[f"aclnn{name}"]
    inputs = [each for each in kernel.signature.parameters if each.is_input]
    numbers = {"int64": 0, "bool": False, "double": 0.0, "float": 0.0}
    assert set(given) <= {*(each.name for each in inputs), "out"}
    out = {"out": given["out"]} if kernel.into else {}
    given.setdefault("group", "the group")
    return kernel.body(*(given.get(each.name, numbers.get(each.type)) for each in inputs), **out)


def drawn(*shape: int, of: int = 0) -> list[T]:
    """Return a tensor per rank."""
    return [floats(*shape, seed=100 * of + rank) for rank in range(RANKS)]
