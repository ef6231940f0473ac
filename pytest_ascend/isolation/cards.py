"""The devices that a run uses, each by one process at a time, of whatever run on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

#: A card that fails its first known answer in so many fresh processes in a row is quarantined.
STARTS_LIMIT = 2
#: So is one on which so many cases went wrong that went well on another card.
SUSPICIONS_LIMIT = 3


@dataclass(kw_only=True, slots=True)
class Card:
    """A device: ``index`` among its kind, and what speaks against it. ``quarantined`` says why it is used no more."""

    label: str
    index: int
    failed_starts: int = 0
    suspicions: set[int] = field(default_factory=set)
    quarantined: str = ""

    def started(self, failure: str) -> None:
        """Note how a fresh process found the card; ``failure`` is "" where the known answer came."""
        self.failed_starts = self.failed_starts + 1 if failure else 0
        if self.failed_starts >= STARTS_LIMIT:
            self.quarantined = f"in {self.failed_starts} fresh processes one after the other: {failure}"

    def suspect(self, task: int) -> None:
        """Note a case that went wrong here, and well on another card."""
        self.suspicions.add(task)
        if len(self.suspicions) >= SUSPICIONS_LIMIT:
            self.quarantined = f"{len(self.suspicions)} cases went wrong here and well on another card"


class Locks:
    """Cards that this process holds. The kernel gives them back when it ends, in whatever way."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir(), f"pytest-ascend-cards-{os.getuid()}")
        self._held: list[FileLock] = []

    def take(self, kind: str, indices: Sequence[int], wanted: int) -> tuple[int, ...]:
        """Take up to ``wanted`` cards that no other run holds, and give their indices."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken: list[int] = []
        for index in indices:
            if len(taken) < wanted and self._hold(self._folder / f"{kind}-{index}.lock"):
                taken.append(index)
        return tuple(taken)

    def release(self) -> None:
        """Release all cards."""
        for lock in self._held:
            lock.release()
        self._held.clear()

    def _hold(self, path: Path) -> bool:
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        self._held.append(lock)
        return True
