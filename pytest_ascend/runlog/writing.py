"""Write a run log: a header, one line per case, a footer, each passed to the system before the next.

A crash of the process or driver loses at most the running case, one of the machine also lines written within SYNC_S.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from msgspec import structs

from pytest_ascend.records.bounds import now
from pytest_ascend.records.outcome import Errored
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import CHAIN, SCHEMA, Attempted, Event, Footer, Header, Line, Resumed, Run
from pytest_ascend.runlog.reading import HEADER_LIMIT_BYTES, RECORD_LIMIT_BYTES, broken_chain, read, whole_part
from pytest_ascend.system.errors import RunLogError, as_error

__all__ = ["RunLog", "read"]
#: Longest ``detail`` that is written in full; a longer one keeps both ends.
DETAIL_LIMIT_CHARACTERS = 200_000
#: Seconds after which lines are flushed to disk together: each flush takes as long as most cases, and cards wait.
SYNC_S = 0.2
#: Options that affect results.
DECIDING_OPTIONS = (
    *("standard", "faults", "numerics", "expectations", "challenge"),
    *("emulated_memory_bytes", "emulated_numerics", "emulated_cann", "emulated_chip"),
)


class RunLog:
    """A run log that is being written, by one process at a time."""

    def __init__(self, path: Path, run: Run, file: int, lock: FileLock, *, durable: bool = True) -> None:
        self.path = path
        self.header = run.header
        self._file = file
        self._lock = lock
        self._durable = durable
        self._synced_s = -math.inf
        #: The last line without its end, for time-stamps, and its digest.
        self.last_line, self.head = b"", run.head
        self._records = list(run.records)
        self._events = list(run.events)
        #: The ids of cases without a record.
        self.waiting = {case.id for case in run.header.manifest} - {record.case.id for record in run.records}

    @classmethod
    def create(cls, path: Path, header: Header, *, durable: bool = True) -> RunLog:
        """Begin the log ``path``; an earlier one is kept beside it as previous-NAME, and older ones by number.

        Raises RunLogError if another run is writing there, the folder cannot be written, or the header is malformed (a
        case twice in the manifest). A log that is not ``durable`` is not flushed to disk.
        """
        try:
            header = structs.replace(header.each_case_once(), chain=CHAIN, schema=SCHEMA)
            line = _line(header, HEADER_LIMIT_BYTES, path)
        except (TypeError, ValueError) as error:
            hint = "give every case its own id, and options that are text, numbers or lists of them"
            raise RunLogError(str(error), path=str(path), hint=hint) from None
        with _locked(path) as lock:
            _set_aside(path)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            log = cls(path, Run(header=header, records=()), file, lock, durable=durable)
            log._write(line)
            # Make the name of a new file as durable as its content
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return log

    @classmethod
    def resume(cls, path: Path, header: Header) -> RunLog:
        """Continue the log ``path`` without its footer and an incomplete last line; begin it if there is none.

        Raises RunLogError if ``header`` describes another run than the log, and as :meth:`create` and ``read`` do.
        """
        with _locked(path) as lock:
            if found := whole_part(path):
                refuse_another(path, found[0], header)
                log = cls(path, found[0], os.open(path, os.O_WRONLY | os.O_APPEND), lock)
                os.ftruncate(log._file, found[1])
                log.note(Resumed(at=now(), records=len(log._records)))
                return log
            lock.release()
        return cls.create(path, header)

    def append(self, record: ResultRecord) -> ResultRecord:
        """Write the record of one case, and return it as written.

        An unwritable record (too long, not builtins) becomes ``errored`` with the reason, so that the run continues and
        no case is lost silently. Raises RunLogError for a case that already has a record or is not in the manifest.
        """
        case_id, detail, half = record.case.id, record.detail, DETAIL_LIMIT_CHARACTERS // 2
        if case_id not in self.waiting:
            raise RunLogError(
                f"the case {case_id!r} has a record already, or is not in the manifest of this run",
                path=str(self.path),
                hint="each case is recorded once; see 'manifest' in the first line of the log",
            )
        if len(detail) > DETAIL_LIMIT_CHARACTERS:
            cut = f"\n… {len(detail) - 2 * half} characters left out …\n"
            record = record.but(detail=f"{detail[:half]}{cut}{detail[-half:]}")
        try:
            line = _line(record, RECORD_LIMIT_BYTES, self.path)
        except (RunLogError, TypeError, ValueError) as error:
            problem = error.message if isinstance(error, RunLogError) else str(error)
            outcome = Errored(reason=f"the record of this case cannot be written: {problem}"[:1000])
            record = ResultRecord.of(record.case, str(record.node_id)[:1000], outcome)
            line = _line(record, RECORD_LIMIT_BYTES, self.path)
        self._write(line)
        self.waiting.remove(case_id)
        self._records.append(record)
        return record

    def note(self, event: Event) -> None:
        """Write an event. Raises RunLogError if a reader would reject it."""
        if isinstance(event, Attempted):
            event = structs.replace(event, detail=event.detail[:DETAIL_LIMIT_CHARACTERS])
        try:
            line = _line(event, RECORD_LIMIT_BYTES, self.path)
        except (TypeError, ValueError) as error:
            raise RunLogError(str(error), path=str(self.path), hint="this is an error of pytest-ascend") from None
        self._write(line)
        self._events.append(event)

    def contents(self, *, ended: bool = True) -> Run:
        """Return the log so far, for a summary, without the lines; ``ended`` says that it is complete."""
        records, events = tuple(self._records), tuple(self._events)
        return Run(header=self.header, records=records, path=str(self.path), ended=ended, events=events)

    def finish(self, footer: Footer) -> None:
        """Write the footer and close the log. A log without one belongs to a run that was stopped before its end."""
        try:
            self._write(_line(footer, RECORD_LIMIT_BYTES, self.path))
        finally:
            self.close()

    def close(self) -> None:
        """Close the log. Does nothing when called again. Raises RunLogError if the disk does not accept its end."""
        file, self._file = self._file, -1
        with _as_run_log_error(self.path):
            try:
                if file >= 0 and self._durable:
                    os.fsync(file)
            finally:
                if file >= 0:
                    os.close(file)
                self._lock.release()

    def _write(self, line: bytes) -> None:
        """Write the whole line or none of it, as far as the disk allows, with the hash of the previous line."""
        if self._file < 0:
            raise RunLogError(f"the run log {self.path} is closed", path=str(self.path), hint="begin a new run")
        before, written = os.fstat(self._file).st_size, line[:-1]
        if self.head and self.header.chain:
            written = codec.chained(written, self.head)
        left = written + b"\n"
        with _as_run_log_error(self.path):
            try:
                while left:
                    left = left[os.write(self._file, left) :]
                if self._durable and time.monotonic() - self._synced_s > SYNC_S:
                    os.fsync(self._file)
                    self._synced_s = time.monotonic()
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, before)
                raise
        self.head, self.last_line = codec.digest_of(written), written


def _line(data: Line, limit_bytes: int, path: Path) -> bytes:
    line = codec.line(data) + b"\n"
    if len(line) > limit_bytes:
        raise RunLogError(
            f"a line of {len(line)} bytes, over the limit of {limit_bytes}",
            path=str(path),
            hint="select fewer cases, or compare fewer tensors in one case",
        )
    return line


def _as_run_log_error(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turn errors of the operating system into RunLogError."""
    hint = "free space, or choose a folder that can be written: --ascend-report=DIR"
    return as_error(f"cannot write the run log {path}", hint, raises=partial(RunLogError, path=str(path)))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[FileLock]:
    """Lock the folder for this run, without waiting; release it if its log cannot be opened."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with _as_run_log_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunLogError(
                f"another run is writing {path}",
                path=str(path),
                hint="wait for it, or give this run a folder of its own: --ascend-report=DIR",
            ) from None
        try:
            yield lock
        except (OSError, RunLogError):
            lock.release()
            raise


def _set_aside(path: Path) -> None:
    """Move an earlier log out of the way by renaming only, so that no log is ever lost."""
    if path.exists():
        previous = path.with_name(f"previous-{path.name}")
        if previous.exists():
            older = (previous.with_name(f"{previous.stem}-{number}{previous.suffix}") for number in count(2))
            previous.replace(next(each for each in older if not each.exists()))
        path.replace(previous)


def refuse_another(path: Path, run: Run, wanted: Header) -> None:
    """Raise RunLogError, naming the difference, if this run may not continue another."""
    if run.broken:
        hint = "begin a new run without --ascend-resume: a log that was altered cannot be continued"
        raise RunLogError(
            f"the run in {path} cannot be continued: {broken_chain(run.broken)}", path=str(path), hint=hint
        )
    differences = list(_differences(run.header, wanted))
    if differences:
        raise RunLogError(
            f"the run in {path} cannot be continued by this one, as they differ in\n  " + "\n  ".join(differences[:8]),
            path=str(path),
            hint="start it as it was started then, or begin a new run without --ascend-resume",
        )


def _differences(found: Header, wanted: Header) -> Iterator[str]:
    compared: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        "stack": (asdict(found.stack), asdict(wanted.stack)),
        "used": ({**dict.fromkeys(wanted.used, ""), **found.used}, wanted.used),
        "options": (dict.fromkeys(DECIDING_OPTIONS) | dict(found.options), wanted.options),
        "run": ({"level": found.level}, {"level": wanted.level}),
    }
    for name, (there, here) in compared.items():
        for key in DECIDING_OPTIONS if name == "options" else there:
            if there[key] != here.get(key):
                yield f"{name}.{key}: {there[key]!r} in that run, {here.get(key)!r} in this one"
    before, after = {case.id for case in found.manifest}, {case.id for case in wanted.manifest}
    for case_id in sorted(before ^ after)[:3]:
        yield f"manifest: the case {case_id!r} is only in {'that' if case_id in before else 'this'} run"
