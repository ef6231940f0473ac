"""Read a run log, which may have been written, cut or altered by anybody."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import msgspec

from pytest_ascend.records.bounds import Number
from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import EVENTS, SCHEMA, SCHEMAS, Event, Footer, Header, Run, TimeStamped
from pytest_ascend.system.errors import RunLogError, as_error
from pytest_ascend.system.files import open_regular, read_regular
from pytest_ascend.system.programs import without_garbage_collection

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R", "ResultRecord", "ResultRecord | PlainPass")
LOG = "run.jsonl"
#: The manifest is in the first line: about 150 bytes per case.
HEADER_LIMIT_BYTES = 64 * 2**20
#: A record with 400 compared tensors needs about 200 KB.
RECORD_LIMIT_BYTES = 4 * 2**20
#: Records and events together: twenty times the expected size of the largest run.
RECORDS_LIMIT = 200_000
#: More than a log with this many records needs, at their usual size.
SIZE_LIMIT_BYTES = 2**31

_RERUN = "run the suite again; the page cannot be made from a log that cannot be trusted"


def log_of(run: Path) -> Path:
    """Return the log at a path: the file itself, or the latest one in a folder."""
    return run / LOG if run.is_dir() else run


def read(path: Path) -> Run:
    """Read the run log ``path``.

    A log without footer, with fewer records than its manifest, or with a broken chain of hashes is returned too. Raises
    RunLogError, naming file and line, for a log that is missing, damaged, cut within a line, of another schema, or in
    which a case occurs twice or is not in the manifest.
    """
    with opened(path) as file:
        return LogReader(path, file).run()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the run log ``path`` for :class:`LogReader`. Raises RunLogError if it cannot be read."""
    hint = "give the file run.jsonl, or the folder that holds it, of a run of pytest --ascend"
    refused = as_error(f"cannot read the run log {path}", hint, raises=partial(RunLogError, path=str(path)))
    with refused, open_regular(path, SIZE_LIMIT_BYTES) as file:
        yield file


def whole_part(path: Path) -> tuple[Run, int] | None:
    """Return the content of a log up to its last complete line, without footer, and its length in bytes.

    None if there is no log, or its header is incomplete. Raises RunLogError for one that is damaged before its end.
    """
    if not path.exists():
        return None
    data = read_regular(path, SIZE_LIMIT_BYTES)
    data = data[: data.rfind(b"\n") + 1]
    last = data.rfind(b"\n", 0, -1) + 1
    if data[last:].startswith(b'{"type":"footer"'):
        data = data[:last]
    return (LogReader(path, io.BytesIO(data)).run(), len(data)) if data else None


def recorded(folder: Path, stack: Stack | None = None) -> dict[str, float]:
    """Return the duration of each case in the last run of a report folder, in seconds; empty without one.

    With a ``stack``, a run of another stack is ignored: a case of a second there may need a minute of compilation here.
    """
    try:
        found = whole_part(folder / LOG)
    except (RunLogError, OSError):  # a damaged log, which is about to be replaced, must not stop the run
        return {}
    if not found or (stack is not None and found[0].header.stack != stack):
        return {}
    return {record.case.id: record.duration_s for record in found[0].records}


class LogReader:
    """Reads the lines of one file once, which is a part of the log ``path``; raises as :func:`read` does.

    After :meth:`run` or :meth:`outlines`, ``events`` and ``lines`` (per record) are complete; ``footer`` may be None.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.number = 0
        self.events: list[Event] = []
        self.lines: list[int] = []
        self.footer: Footer | None = None
        self.head, self.broken = "", 0
        self._is_chained = False
        line = self._line(HEADER_LIMIT_BYTES)
        beginning = self._checked(_beginning, line) if line else _Beginning()
        if beginning.type != "header":
            raise self._error("expected the header of a run log", hint="is this the file run.jsonl of a run?")
        if beginning.schema not in SCHEMAS:
            raise self._error(
                f"a log of schema {str(beginning.schema)[:20]}; this version reads schemas up to {SCHEMA}",
                hint="use the version of pytest-ascend that wrote it (header: stack.pytest_ascend)",
            )
        self.header = self._checked(lambda text: _header(text, bytes(beginning.manifest)), line)
        self._is_chained = bool(self.header.chain)

    @without_garbage_collection()
    def run(self) -> Run:
        """Read all lines in order."""
        records = tuple(self._records(_after_header))  # first, since reading records fills the lines
        return self.run_of(records, tuple(self.lines))

    def run_of(self, records: tuple[ResultRecord, ...], lines: tuple[int, ...] = ()) -> Run:
        """Return the run that was read, with some of its records."""
        return Run(
            header=self.header,
            records=records,
            events=tuple(self.events),
            lines=lines,
            footer=self.footer,
            path=str(self.path),
            ended=self.footer is not None,
            broken=self.broken,
            head=self.head,
        )

    def outlines(self, measured: str = "") -> Iterator[ResultRecord | PlainPass]:
        """Read the lines after the header, without the figures of cases that passed by comparisons.

        Measurements are read for cases whose ids begin with ``measured``.
        """

        def outline(text: bytes) -> ResultRecord | PlainPass | Event | Footer:
            if text.startswith(_RECORD):
                with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                    found = _PLAIN_PASS.decode(text)
                    is_measured = found.measurements and found.case.id.startswith(measured)
                    if all(each.agrees for each in found.verdicts) and not is_measured:
                        return found
            return _after_header(text)

        return self._records(outline)

    def _records(self, check: Callable[[bytes], R | Event | Footer]) -> Iterator[R]:
        """Yield the records, each of another case of the manifest."""
        expected = {case.id for case in self.header.manifest}
        while self.footer is None and (line := self._line(RECORD_LIMIT_BYTES)):
            found = self._checked(check, line)
            if isinstance(found, Footer):
                if found.records != len(self.lines):
                    raise self._error(f"the footer counts {found.records} records, the log holds {len(self.lines)}")
                if self.file.read(1):
                    self.number += 1
                    raise self._error("something follows the footer")
                self.footer = found
            elif isinstance(found, Event):
                if isinstance(found, TimeStamped) and found.digest != codec.previous_of(line):
                    self.broken = self.broken or self.number
                self.events.append(found)
            else:
                if found.case.id not in expected:
                    raise self._error(f"the case {found.case.id!r} is not in the manifest, or has a record already")
                expected.remove(found.case.id)
                self.lines.append(self.number)
                yield found

    def _line(self, limit_bytes: int) -> bytes:
        """Return the next line without its end, or nothing at the end of the file."""
        if self.number > RECORDS_LIMIT:
            raise self._error(f"more than {RECORDS_LIMIT} records and events")
        raw = self.file.readline(limit_bytes + 1)
        if not raw:
            return b""
        self.number += 1
        if len(raw) > limit_bytes:
            raise self._error(f"longer than {limit_bytes} bytes")
        if not raw.endswith(b"\n"):
            whole = self.number - 1
            hint = f"head -n {whole} keeps the {whole} whole lines, and their page will say that the run is incomplete"
            raise self._error("cut short: the last line has no end", hint=hint if whole else _RERUN)
        line = raw[:-1] or b" "
        if self._is_chained and codec.previous_of(line) != self.head:
            self.broken = self.broken or self.number
        self.head = codec.digest_of(line)
        return line

    def _checked(self, check: Callable[[S], T], data: S) -> T:
        try:
            return check(data)
        except (ValueError, TypeError, KeyError) as error:
            raise self._error(f"damaged: {error}") from None

    def _error(self, message: str, *, hint: str = _RERUN) -> RunLogError:
        return RunLogError(f"{self.path}, line {max(self.number, 1)}: {message}", path=str(self.path), hint=hint)


class _Beginning(msgspec.Struct):
    type: Any = None
    schema: Any = None
    manifest: msgspec.Raw = msgspec.Raw()


def _beginning(line: bytes) -> _Beginning:
    try:
        return msgspec.json.decode(line, type=_Beginning)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # e.g. for a lone surrogate, which JSON may hold
        data = codec.loads(line.decode())
        return _Beginning(data.get("type"), data.get("schema")) if isinstance(data, dict) else _Beginning()


def _header(line: bytes, cases: bytes) -> Header:
    """Parse the first line; equal lists of ``cases``, as in most logs of a history, are parsed once."""
    if cases and line.count(cases) == 1:
        header = codec.parsed(line.replace(cases, b"[]"), Header, "header")
        return msgspec.structs.replace(header, manifest=_manifest(cases)).each_case_once()
    return codec.parsed(line, Header, "header").each_case_once()


_manifest = lru_cache(maxsize=8)(partial(codec.parsed, kind=tuple[Case, ...], name="header.manifest"))


class _Named(msgspec.Struct, frozen=True):
    id: str


class _Agrees(msgspec.Struct, frozen=True):
    agrees: bool


class PlainPass(msgspec.Struct, frozen=True, kw_only=True):
    """A record of which a page on many runs shows only that it passed."""

    case: _Named
    outcome: Literal["passed"]
    verdicts: Annotated[tuple[_Agrees, ...], msgspec.Meta(min_length=1)]
    measurements: dict[str, Number]
    fallbacks: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=0)]


_RECORD = b'{"type":"record"'
_PLAIN_PASS = msgspec.json.Decoder(PlainPass)


def _after_header(text: bytes) -> ResultRecord | Event | Footer:
    """Parse a line by its type. Raises ValueError if it is malformed."""
    if text.startswith(_RECORD):
        return codec.parsed(text, ResultRecord, "record")
    data = codec.loads(text.decode())
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    name = str(data.get("type"))[:40]
    if name == "event":
        if data.get("kind") not in list(EVENTS):
            raise ValueError(f"event.kind: expected one of {', '.join(EVENTS)}, got {str(data.get('kind'))[:40]!r}")
        if "honest" in data:  # schemas 1 to 3
            data["correct"] = data.pop("honest")
        return codec.converted(data, EVENTS[data["kind"]], name)
    if name == "record":
        return codec.converted(data, ResultRecord, name)
    if name != "footer":
        raise ValueError(f"a line of unknown type {name!r}")
    return codec.converted(data, Footer, name)


def broken_chain(line: int) -> str:
    """Return a message that says where the chain of a log is broken."""
    return f"Line {line} does not continue the chain of hashes: it, or a line before it, was altered, removed or moved."
