"""Devices of a run and their child processes. Only one process on the machine uses a device at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ascend.isolation.process import Child, Deadline, Task
from pytest_ascend.system.errors import DeviceUnavailable

#: What a driver reports while a card is not free yet, or is being reset, after a process was killed.
#:  Source: EL0005 in CANN's table of error codes (hicann/runtime@681ef761, src/dfx/error_manager/error_code.json).
BUSY = re.compile(r"EL0005|resources? (?:is|are) busy", re.IGNORECASE)
#: Pause in seconds before a busy card is tried again; it doubles each time, up to the longest pause.
BUSY_FIRST_S, BUSY_LONGEST_S = 1.0, 30.0


@dataclass(kw_only=True, slots=True)
class Card:
    """A device: ``index`` among its kind, and its failures. ``quarantined`` is the reason why it is no longer used.

    A card that stays busy longer than ``busy_limit_s`` counts as failed to start.
    """

    label: str
    index: int
    busy_limit_s: float = 300.0
    failed_starts: int = 0
    busy_starts: int = 0
    busy_since: float = 0.0
    suspicions: set[int] = field(default_factory=set)
    quarantined: str = ""

    def started(self, failure: str) -> float:
        """Record the health check of a fresh process; return the seconds to wait before the next one.

        ``failure`` is "" if it passed.
        """
        if failure and BUSY.search(failure):
            now = time.monotonic()
            self.busy_starts += 1
            self.busy_since = self.busy_since or now
            waited_s = now - self.busy_since
            if waited_s >= self.busy_limit_s:
                self.quarantined = f"busy for {waited_s:.0f} s, in {self.busy_starts} fresh processes: {failure}"
            pause_s = min(BUSY_FIRST_S * 2.0 ** min(self.busy_starts - 1, 10), BUSY_LONGEST_S)
            return min(pause_s, max(0.0, self.busy_limit_s - waited_s))
        self.busy_starts, self.busy_since = 0, 0.0
        self.failed_starts = self.failed_starts + 1 if failure else 0
        if self.failed_starts >= 2:
            self.quarantined = f"in {self.failed_starts} fresh processes one after the other: {failure}"
        return 2.0 if failure else 0.0

    def suspect(self, task: int) -> None:
        """Record a case that failed here and passed on another card."""
        self.suspicions.add(task)
        if len(self.suspicions) >= 3:
            self.quarantined = f"{len(self.suspicions)} cases went wrong here and well on another card"


class Locks(contextlib.ExitStack):
    """Cards that this process holds, under names that mean the same card to every process that can reach it.

    A card may have several names, not all known to every process; two runs that share a name exclude each other. Each
    name is locked twice: by a file in ``folder``, for all users of the machine and for containers that mount it, and by
    an abstract socket, for all who share the network, such as containers on the host's. The kernel releases both
    however the process ends; :meth:`close`, or the end of a block, releases all.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.folder = folder or Path(tempfile.gettempdir(), "pytest-ascend-cards")
        self._named = folder is not None

    def take(self, cards: Sequence[Sequence[str]], wanted: int) -> tuple[int, ...]:
        """Lock up to ``wanted`` of the free cards, each given by its names; return their indices.

        Raises DeviceUnavailable if the folder cannot be used.
        """
        taken: list[int] = []
        try:
            # Every user may create files in the folder, but not remove those of others.
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(parents=True)
                self.folder.chmod(0o1777)
            for place, names in enumerate(cards):
                if len(taken) < wanted and self._hold(names):
                    taken.append(place)
        except OSError as error:
            self.close()
            raise DeviceUnavailable(
                f"cards cannot be locked in {self.folder}: {error.strerror}",
                hint="name a folder that every user of the cards may write to: PYTEST_ASCEND_CARD_LOCKS=FOLDER",
            ) from error
        return tuple(taken)

    def _hold(self, names: Sequence[str]) -> bool:
        with contextlib.ExitStack() as held:
            for name in names:
                file = _open_lock(self.folder / f"{name}.lock")
                held.callback(os.close, file)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                # An explicit folder defines who shares the cards: two tests' emulated cards are different ones.
                if self._named:
                    continue
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
                    try:
                        claim.bind(f"\0pytest-ascend-card-{name}")
                    except OSError:  # another process in this network namespace has the name
                        return False
                    held.callback(os.close, claim.detach())
            self.callback(held.pop_all().close)
        return True


def _open_lock(path: Path) -> int:
    """Return an open file to lock, created if necessary: opened for reading, since a lock needs no write permission.

    Another user's file in a folder with the sticky bit must not be opened with O_CREAT (fs.protected_regular).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(made, 0o644)
            os.close(made)
    except PermissionError:
        if not path.exists():
            raise
    return os.open(path, flags)


@dataclass(kw_only=True, slots=True)
class CardQueue:
    """A card with its child: ``assigned`` waits for its start, ``current`` is running, ``following`` comes next.

    With ``ahead`` the child has already received the first of ``following``. It starts that as soon as the current task
    passes, without waiting, and otherwise drops it.

    ``last`` is the child's latest task; its fixtures are set up for the first of ``following``, or to run the same task
    again. ``met`` are the subjects of the child's tasks; no child starts before ``not_before`` (of ``time.monotonic``).
    The ``deadline`` is that of the child's start or case.
    """

    card: Card
    child: Child | None = None
    ready: bool = False
    alone: bool = False
    deterministic: bool = False
    runs: int = 0
    assigned: Task | None = None
    current: Task | None = None
    following: deque[Task] = field(default_factory=deque)
    ahead: bool = False
    last: Task | None = None
    deadline: Deadline = field(default_factory=lambda: Deadline(0, 0.0))
    killed_starts: int = 0
    is_given_up: bool = False
    met: set[str] = field(default_factory=set)
    not_before: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Return whether unfinished work is left here."""
        return bool(self.assigned or self.current or self.following)

    @property
    def group(self) -> str:
        """Return the group of the current tasks, "" for none."""
        task = self.following[-1] if self.following else self.assigned or self.current or self.last
        return task.group if task else ""

    def is_unfit(self) -> bool:
        """Return whether the assigned task needs a different process."""
        wanted = self.assigned
        if wanted is None:
            return False
        is_other = (wanted.alone, wanted.deterministic) != (self.alone, self.deterministic)
        return is_other or (wanted.alone and self.runs > 0)

    def is_overdue(self) -> bool:
        """Return whether the child exceeded the limit for its start or case. Waiting for work does not count."""
        return bool(self.current or not self.ready) and self.deadline.is_over()

    def began(self, child: Child, *, alone: bool, limit_s: float, deterministic: bool = False) -> None:
        """Take over a fresh child."""
        self.child, self.alone, self.ready, self.runs, self.last = child, alone, False, 0, None
        self.deterministic = deterministic
        self.met.clear()
        self.deadline = Deadline(child.pid, limit_s)

    def give(self, *, ahead: bool = False) -> None:
        """Send the child the assigned task or, with ``ahead``, the first that follows, to run after a pass."""
        begun, self.assigned, self.ahead = self.assigned, None, ahead
        first, second, *_ = [*([begun] if begun else []), *self.following, None]
        if self.child and first:
            self.child.send(run=first.index, next=second.index if second else -1, ahead=ahead)
        if begun:
            self.begin(begun)

    def begin(self, task: Task) -> None:
        """Note that the child has started this task."""
        self.current = self.last = task
        self.runs += 1
        self.deadline.allow(task.limit_s + (0.0 if task.subject in self.met else task.first_s))
        self.met.add(task.subject)

    def end(self, patience_s: float) -> None:
        """Let the child clean up for this long, then end it; give up a card whose driver does not release it."""
        child, self.child, self.ready = self.child, None, False
        if child and not child.end(patience_s):
            self.card.quarantined = f"process {child.pid} cannot be ended, as the driver holds it"
