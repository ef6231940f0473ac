"""Write a run log: a header, one line a case, a footer, each on the disk before the next.

A crash of the process, the driver or the machine loses at most the case that was running.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.outcome import Errored
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.report import checks, codec
from pytest_ascend.report.contents import Footer, Header, Run
from pytest_ascend.report.reading import HEADER_LIMIT_BYTES, RECORD_LIMIT_BYTES, read

__all__ = ["RunLog", "read"]

#: Longest ``detail`` that is written; of a longer one both ends are kept.
DETAIL_LIMIT_CHARACTERS = 200_000


class RunLog:
    """A run log that is being written, by one process at a time."""

    def __init__(self, path: Path, header: Header, file: BinaryIO, lock: FileLock) -> None:
        self.path = path
        self.header = header
        self._file = file
        self._lock = lock
        self._waiting = {case.id for case in header.manifest}
        self._records: list[ResultRecord] = []

    @classmethod
    def create(cls, path: Path, header: Header) -> RunLog:
        """Begin the log ``path``; an earlier one is kept beside it as previous-NAME, and older ones by number.

        Raises RunLogError where another run is writing there, the folder cannot be written, or the header is
        malformed (a case twice in the manifest).
        """
        line = _header_line(header, path)
        lock = _lock(path)
        try:
            _set_aside(path)
            log = cls(path, header, path.open("xb"), lock)
            log._write(line)
            _sync_folder(path.parent)
        except OSError as error:
            lock.release()
            raise _cannot_write(path, error) from error
        return log

    def append(self, record: ResultRecord) -> ResultRecord:
        """Write what became of one case, and give the record as it was written.

        One that cannot be written (too long, not builtins) is written as ``errored`` and says why: a run goes on, and
        nothing is lost in silence. Raises RunLogError for a case that has a record or that the manifest lacks.
        """
        case_id = record.case.id
        if case_id not in self._waiting:
            raise RunLogError(
                f"the case {case_id!r} has a record already, or is not in the manifest of this run",
                path=str(self.path),
                hint="each case is recorded once; see 'manifest' in the first line of the log",
            )
        written, line = _writable(record, self.path)
        self._write(line)
        self._waiting.remove(case_id)
        self._records.append(written)
        return written

    def waiting(self) -> frozenset[str]:
        """Give the ids of the cases that have no record yet."""
        return frozenset(self._waiting)

    def contents(self, *, ended: bool = True) -> Run:
        """Give what was written so far, for a summary; ``ended`` says that nothing more will come."""
        return Run(header=self.header, records=tuple(self._records), path=str(self.path), ended=ended)

    def finish(self, footer: Footer) -> None:
        """Write the footer and close the log. Without it a log says that its run was stopped before its end."""
        try:
            self._write(_line(footer.to_dict(), RECORD_LIMIT_BYTES, self.path))
        finally:
            self.close()

    def close(self) -> None:
        """Close the log as it stands. Does nothing when called again."""
        self._file.close()
        self._lock.release()

    def _write(self, line: bytes) -> None:
        if self._file.closed:
            raise RunLogError(f"the run log {self.path} is closed", path=str(self.path), hint="begin a new run")
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _cannot_write(self.path, error) from error


def _writable(record: ResultRecord, path: Path) -> tuple[ResultRecord, bytes]:
    record = _clipped(record)
    try:
        data = {"type": "record", **record.to_dict()}
        checks.record(data)
        return record, _line(data, RECORD_LIMIT_BYTES, path)
    except (RunLogError, TypeError, ValueError, KeyError) as error:
        problem = error.message if isinstance(error, RunLogError) else str(error)
    outcome = Errored(reason=f"the record of this case cannot be written: {problem}"[:1000])
    instead = ResultRecord(case=record.case, node_id=str(record.node_id)[:1000], outcome=outcome)
    return instead, _line({"type": "record", **instead.to_dict()}, RECORD_LIMIT_BYTES, path)


def _clipped(record: ResultRecord) -> ResultRecord:
    detail, half = record.outcome.detail, DETAIL_LIMIT_CHARACTERS // 2
    if len(detail) <= DETAIL_LIMIT_CHARACTERS:
        return record
    cut = f"{detail[:half]}\n… {len(detail) - 2 * half} characters left out …\n{detail[-half:]}"
    return replace(record, outcome=replace(record.outcome, detail=cut))


def _line(data: Mapping[str, Any], limit_bytes: int, path: Path) -> bytes:
    line = codec.dumps(data).encode("ascii") + b"\n"
    if len(line) > limit_bytes:
        raise RunLogError(
            f"a line of {len(line)} bytes, over the limit of {limit_bytes}",
            path=str(path),
            hint="select fewer cases, or compare fewer tensors in one case",
        )
    return line


def _header_line(header: Header, path: Path) -> bytes:
    try:
        checks.header(header.to_dict())
        return _line(header.to_dict(), HEADER_LIMIT_BYTES, path)
    except (TypeError, ValueError) as error:
        hint = "give every case its own id, and options that are text, numbers or lists of them"
        raise RunLogError(str(error), path=str(path), hint=hint) from None


def _lock(path: Path) -> FileLock:
    """Take the folder for this run, at once or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        lock.acquire(timeout=0)
    except Timeout:
        raise RunLogError(
            f"another run is writing {path}",
            path=str(path),
            hint="wait for it, or give this run a folder of its own: --ascend-report=DIR",
        ) from None
    except OSError as error:
        raise _cannot_write(path, error) from error
    return lock


def _set_aside(path: Path) -> None:
    """Move an earlier log out of the way by renaming only, so that at no moment a log is lost."""
    if not path.exists():
        return
    previous = path.with_name(f"previous-{path.name}")
    if previous.exists():
        previous.replace(_free_name(previous))
    path.replace(previous)


def _free_name(path: Path) -> Path:
    number = 2
    while (candidate := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    return candidate


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file as durable as its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> RunLogError:
    return RunLogError(
        f"cannot write the run log {path}: {error.strerror or error}",
        path=str(path),
        hint="free space, or choose a folder that can be written: --ascend-report=DIR",
    )
