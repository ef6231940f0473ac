"""A card, the child that uses it, and what that child was given."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.isolation.cards import Card
from pytest_ascend.isolation.process import Child, Task


@dataclass(frozen=True, slots=True)
class Assigned:
    """A task for a card. One that is ``alone`` gets a process of its own; ``avoid`` is the card that it was on."""

    task: Task
    alone: bool = False
    avoid: str = ""


@dataclass(kw_only=True, slots=True)
class Lane:
    """``assigned`` waits for a child that is ready, ``current`` is what the child is at, ``reserved`` comes next.

    ``last`` is what the child was given last: its fixtures are set up for ``reserved``, or for the same once more.
    ``met`` are the subjects that the child had tasks of; before ``not_before`` (of ``time.monotonic``) none is started.
    """

    card: Card
    child: Child | None = None
    ready: bool = False
    alone: bool = False
    runs: int = 0
    assigned: Assigned | None = None
    current: Assigned | None = None
    reserved: Task | None = None
    last: Task | None = None
    payloads: list[dict[str, Any]] = field(default_factory=list)
    deadline: float = 0.0
    limit_s: float = 0.0
    killed_starts: int = 0
    is_given_up: bool = False
    met: set[str] = field(default_factory=set)
    not_before: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether anything is not yet done here."""
        return bool(self.assigned or self.current or self.reserved)

    def is_unfit(self) -> bool:
        """Whether what is assigned needs another process than the one that is here."""
        alone = bool(self.assigned and self.assigned.alone)
        return alone != self.alone or (alone and self.runs > 0)

    def is_overdue(self) -> bool:
        """Whether the child had its time, for its start or its case; one that waits for work has all of it."""
        return bool(self.current or not self.ready) and time.monotonic() > self.deadline

    def began(self, child: Child, *, alone: bool, limit_s: float) -> None:
        """Take a fresh child."""
        self.child, self.alone, self.ready, self.runs, self.last = child, alone, False, 0, None
        self.met.clear()
        self._allow(limit_s)

    def give(self) -> None:
        """Tell the child to run what is assigned."""
        assert self.child is not None  # noqa: S101  (callers looked)
        assert self.assigned is not None  # noqa: S101
        self.current, self.assigned = self.assigned, None
        self.runs += 1
        self.last = self.current.task
        self.payloads = []
        task = self.current.task
        self._allow(task.limit_s + (0.0 if task.subject in self.met else task.first_s))
        self.met.add(task.subject)
        self.child.send(run=self.current.task.index, next=self.reserved.index if self.reserved else -1)

    def end(self, patience_s: float) -> None:
        """Let the child clean up for so long, and see that it is gone; a card whose driver holds it is given up."""
        child, self.child, self.ready = self.child, None, False
        if child is None:
            return
        if patience_s and child.code() is None:
            child.send(end=True)
            limit = time.monotonic() + patience_s
            while child.code() is None and time.monotonic() < limit:
                child.drain()
                time.sleep(0.005)
        if not child.kill():
            self.card.quarantined = f"process {child.pid} cannot be ended, as the driver holds it"
        child.close()

    def _allow(self, seconds: float) -> None:
        self.limit_s = seconds
        self.deadline = time.monotonic() + seconds
