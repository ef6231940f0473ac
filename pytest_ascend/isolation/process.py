"""One child process: a fork in which everything is imported and collected, and the device is still unused.

Forking a process that never used the device takes milliseconds. A new interpreter that imports torch and collects the
suites again would take ten seconds after every crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from pytest_ascend.system.files import open_regular
from pytest_ascend.system.programs import run


@dataclass(frozen=True, slots=True)
class Task:
    """A test by its ``index`` among those collected, and its time limit in seconds.

    ``is_case`` is false for an ordinary test, which never runs again. The first task of a ``subject`` in a process may
    take ``first_s`` longer: an operator is loaded, and maybe compiled, at its first call. ``deterministic`` needs a
    process that enabled determinism before its first operator. Tasks of one ``group`` run one after another, in one
    process if possible: they share the results of the first. A rerun may need a process of its own (``alone``), and
    another card than that of the last attempt (``avoid``).
    """

    index: int
    limit_s: float
    is_case: bool = True
    subject: str = ""
    first_s: float = 0.0
    deterministic: bool = False
    group: str = ""
    alone: bool = False
    avoid: str = ""


#: The answer after which a child starts the task sent ahead; after any other it drops that task.
GOES_ON = "passed"
#: The signal on which a child writes the Python stacks of its threads, from a C handler that needs no GIL.
STACKS_SIGNAL = signal.SIGRTMIN + 7
#: Longest message of a child: far above the longest line of a run log. A longer one means a broken process.
MESSAGE_LIMIT_BYTES = 64 * 2**20


class Channel:
    """The child's end of the connection. Messages are JSON objects, one per line."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = os.fdopen(reading, "rb")
        self._writing = os.fdopen(writing, "wb", buffering=0)

    def send(self, **message: Any) -> None:
        """Send a message to the parent. Values that JSON cannot hold are sent as text."""
        data = json.dumps(message, default=repr).encode() + b"\n"
        while data:
            data = data[self._writing.write(data) :]

    def receive(self) -> dict[str, Any]:
        """Wait for a message from the parent. Ends the process if the parent is gone."""
        line = self._reading.readline()
        if not line:
            os._exit(0)
        return json.loads(line)  # type: ignore[no-any-return]


class Child:
    """The parent's end of the connection; ``notes`` is an open file that the process writes to."""

    def __init__(self, pid: int, reading: int, writing: int, notes: int) -> None:
        self.pid = pid
        self.reading = reading
        self._writing = writing
        self._notes = notes
        self._started = time.time()
        self._buffer = b""
        self._code: int | None = None
        os.set_blocking(reading, False)

    def send(self, **message: Any) -> None:
        """Send a message to the child. A dead child is noticed by :meth:`code`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writing, json.dumps(message).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """Return the complete messages received so far. Raises ValueError for an invalid one."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reading, 1 << 20):
                self._buffer += data
                if len(self._buffer) > MESSAGE_LIMIT_BYTES:
                    raise ValueError(f"a message of more than {MESSAGE_LIMIT_BYTES} bytes")
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [_decoded(line) for line in lines]
        if not all(isinstance(each, dict) for each in messages):
            raise ValueError("a message that is not an object")
        return messages

    def is_gone(self, within_s: float) -> bool:
        """Wait this long for the process to end; discard its messages, so that it does not block on writing."""
        limit = time.monotonic() + within_s
        while self.code() is None and time.monotonic() < limit:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.reading, 1 << 20):
                    pass
            time.sleep(0.005)
        return self.code() is not None

    def wait(self, deadline: Deadline) -> list[dict[str, Any]]:
        """Wait for messages, and return them; none if the process ended without any, or exceeded its deadline."""
        while True:
            is_last = self.code() is not None or deadline.is_over()  # before reading: a dead one's pipe holds all
            if (found := self.read()) or is_last:
                return found
            time.sleep(0.001)

    def result(self, limit_s: float) -> dict[str, Any]:
        """Wait for the only message of a process and for its end; return {"failure": why} if there is none."""
        found = self.wait(Deadline(self.pid, limit_s))
        code, notes = self.code(), self.notes()
        why = f"its process gave no answer within {limit_s:g} s" if code is None else f"its process ended with {code}"
        self.end(0)
        return found[0] if found else {"failure": f"{why}\n{notes}".strip()}

    def code(self) -> int | None:
        """Return the exit code of the process (negative: the signal that ended it), None while it lives."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def output(self) -> str:
        """Return the stacks and messages that the process left behind."""
        return os.pread(self._notes, os.fstat(self._notes).st_size, 0).decode(errors="replace").strip()

    def notes(self) -> str:
        """Return the output of the process, and its CANN log."""
        return "\n\n".join(filter(None, (self.output(), *plogs(self.pid, self._started))))

    def ask_for_stacks(self, patience_s: float = 2.0) -> str:
        """Return the Python stacks of the process, "" if it does not write them in time."""
        before = os.fstat(self._notes).st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, STACKS_SIGNAL)
        end = time.monotonic() + patience_s
        while time.monotonic() < end and os.fstat(self._notes).st_size == before:
            time.sleep(0.02)
        time.sleep(0.05)
        return self.notes()

    def kill(self, limit_s: float = 10.0) -> bool:
        """End the process and its descendants; return whether it is gone within ``limit_s``.

        A process inside a driver call cannot be ended by any signal until that call returns.
        """
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        return self.is_gone(limit_s)

    def end(self, patience_s: float) -> bool:
        """Let the process clean up for this long, then end it; return whether it is gone."""
        if patience_s and self.code() is None:
            self.send(end=True)
            self.is_gone(patience_s)
        is_gone = self.kill()
        self.close()
        return is_gone

    def close(self) -> None:
        """Release the parent's resources of a child that is gone."""
        for each in (self.reading, self._writing, self._notes):
            os.close(each)


def _decoded(line: bytes) -> Any:
    """Decode a message. json is slower, but also reads what other tests' reports may have: NaN and lone surrogates."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return json.loads(line)


def start(main: Callable[[Channel], None]) -> Child:
    """Run ``main`` in a child that dies with this process, in its own process group."""
    notes = os.memfd_create("notes")  # a named file would be left behind if this process is killed
    to_parent, to_child = os.pipe(), os.pipe()
    parent = os.getpid()
    gc.freeze()  # a collection would copy every inherited page in the child, and visit torch's objects in both
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's threads handle a fork
        pid = os.fork()
    if not pid:
        os.close(to_parent[0])
        os.close(to_child[1])
        _live(main, Channel(to_child[0], to_parent[1]), parent, notes)
    for each in (to_parent[1], to_child[0]):
        os.close(each)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # in both processes, whichever is first
    return Child(pid, to_parent[0], to_child[1], notes)


def fresh(module: str, *arguments: str, environ: Mapping[str, str]) -> Child:
    """Run a module in a new interpreter, where a fork will not do; its last arguments are those of its channel."""
    to_child, to_parent = os.pipe(), os.pipe()
    notes = os.memfd_create("notes")
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", module, *arguments, str(to_child[0]), str(to_parent[1])],
        pass_fds=(to_child[0], to_parent[1]),
        stdin=subprocess.DEVNULL,
        stdout=notes,
        stderr=notes,
        env=environ,
        start_new_session=True,
    )
    for each in (to_child[0], to_parent[1]):
        os.close(each)
    process.returncode = 0  # the Child reaps it
    return Child(process.pid, to_parent[0], to_child[1], notes)


def _live(main: Callable[[Channel], None], channel: Channel, parent: int, notes: int) -> NoReturn:
    """Run the child to its end. The parent's clean-up must not run again here."""
    gc.set_threshold(7_000)  # with Python's 700, collections take 3 % of its time
    code = 70
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        control = ctypes.CDLL(None).prctl
        control(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
        # PR_SET_PTRACER, PR_SET_PTRACER_ANY: a debugger started by the parent is not an ancestor
        control(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
        faulthandler.enable(file=notes, all_threads=True)
        faulthandler.register(STACKS_SIGNAL, file=notes, all_threads=True)
        main(channel)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  (told to the parent, which says what became of the case)
        os.write(notes, traceback.format_exc().encode())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process, as a debugger or job control does."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] in (["T"], ["t"])


def cpu_waits(pid: int) -> dict[str, float]:
    """Return how long each thread of a process and of its descendants was runnable but had no CPU.

    Source: Linux, Documentation/scheduler/sched-stats.rst: the second number of schedstat is in nanoseconds.
    """
    found, processes = {}, [str(pid)]
    while processes:
        with contextlib.suppress(OSError):  # the process ended meanwhile
            for thread in Path(f"/proc/{processes.pop()}/task").iterdir():
                figures = _text(thread / "schedstat").split()
                if len(figures) == 3:
                    found[thread.name] = int(figures[1]) / 1e9
                processes += _text(thread / "children", None).split()
    return found


class Deadline:
    """The time by which a process must be done, ``at`` (of ``time.monotonic``).

    Time that it or a descendant spent runnable without a CPU does not count; of several threads, the longest wait is
    taken. A process that hangs, spinning or asleep, still exceeds its deadline.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid = pid
        self.at = self._noted = -math.inf
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Restart the limit from now."""
        self.limit_s = seconds
        self.at = (now := time.monotonic()) + seconds
        if now > self._noted + 10:  # takes a millisecond with hundreds of threads
            self._waits, self._noted = cpu_waits(self.pid), now

    def is_over(self) -> bool:
        """Return whether it has passed."""
        if time.monotonic() <= self.at:
            return False
        before, self._waits = self._waits, cpu_waits(self.pid)
        self.at += max((waited - before.get(thread, 0.0) for thread, waited in self._waits.items()), default=0.0)
        return time.monotonic() > self.at


#: Tools that print native stacks, the best first; {} is the process id.
TOOLS = (
    ("eu-stack", "-p", "{}"),
    ("py-spy", "dump", "--native", "--pid", "{}"),
    ("gdb", "-p", "{}", "-batch", "-nx", "-ex", "thread apply all backtrace 40"),
)


def native(pid: int) -> str:
    """Return the native stacks of a process or, without a tool, the kernel functions its threads wait in."""
    for name, *arguments in TOOLS:
        if program := shutil.which(name):
            said = run([program, *(each.format(pid) for each in arguments)], os.environ, 20.0)
            if not said.failure and said.text.strip():
                return f"{name}:\n{said.text.strip()[:40_000]}"
    found = ["no tool for native stacks is installed (eu-stack, gdb, py-spy); the kernel says of each thread:"]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"))[:64]:
        parts = (_text(task / name) for name in ("comm", "wchan", "syscall"))
        found.append(f"  {task.name}: {', '.join(filter(None, parts))}")
    return "\n".join(found)


def _text(path: Path, most: int | None = 200) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", "replace").strip()[:most]
    return ""


#: Length kept of each end of a process's CANN log: the cause and its consequences.
PLOG_END_BYTES = 10_000
#: A process's own file or, for a fork of a process with an open file, the lines with its pid.
_PLOG = re.compile(r"(?:plog|device)-(\d{1,9})_\d+\.log(\.\d+)?")


def plogs(pid: int, since: float, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield CANN's log of a process, by file name, from files changed after ``since`` (of ``time.time``).

    Source: CANN documentation, log reference: plog-PID_TIME.log in debug/plog, and the card's messages for the process,
    device-PID_TIME.log in debug/device-N, below ASCEND_PROCESS_LOG_PATH, else below ASCEND_WORK_PATH/log, else below
    ~/ascend/log; each line of the former begins with "[LEVEL] MODULE(PID,name)".
    """
    work = environ.get("ASCEND_WORK_PATH")
    usual = Path(work, "log") if work else Path(environ.get("HOME", "/"), "ascend", "log")
    debug = Path(environ.get("ASCEND_PROCESS_LOG_PATH") or usual) / "debug"
    try:
        folders = [debug / "plog", *sorted(debug.glob("device-[0-9]*"))]
        entries = [each for folder in folders for each in sorted(folder.iterdir(), key=lambda each: each.name)]
        named = [(each, match[1]) for each in entries if (match := _PLOG.fullmatch(each.name))]
        touched = [(each, of) for each, of in named if each.lstat().st_mtime >= since - 1]
    except OSError:
        return
    marks = {each: "" for each, of in touched if of == str(pid)}
    if not any(each.name.startswith("plog") for each in marks):
        marks |= {each: f"({pid}," for each, _ in touched if each.name.startswith("plog")}
    # CANN begins a new file when one is full; no process needs more than four.
    for each, mark in list(marks.items())[-4:]:
        with contextlib.suppress(OSError), open_regular(each, sys.maxsize, follow=False) as file:
            head = file.read(PLOG_END_BYTES)
            left_out = max(0, os.fstat(file.fileno()).st_size - 2 * PLOG_END_BYTES)
            file.seek(left_out, os.SEEK_CUR)
            between = f"\n... {left_out:,} bytes ...\n".encode() if left_out else b""
            text = (head + between + file.read(PLOG_END_BYTES)).decode("utf-8", errors="replace")
            kept = "\n".join(line for line in text.splitlines() if mark in line)
            if kept:  # strip terminal control sequences
                shown = "".join(c if c.isprintable() or c in "\t\n" else "?" for c in kept)
                yield f"CANN's log of the process, {each}:\n{shown}"
