"""Read a run log that anybody may have written, cut or altered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import checks, codec
from pytest_ascend.runlog.contents import SCHEMA, SCHEMAS, Footer, Header, Run
from pytest_ascend.system.untrusted import open_regular

T = TypeVar("T")

#: The manifest stands in the first line: about 150 bytes a case.
HEADER_LIMIT_BYTES = 64 * 2**20
#: A record with 400 compared tensors needs about 200 KB.
RECORD_LIMIT_BYTES = 4 * 2**20
#: Records and events together: twenty times what the largest run is expected to hold.
RECORDS_LIMIT = 200_000

#: More than a log of that many records needs, at their usual size.
SIZE_LIMIT_BYTES = 2**31

_RERUN = "run the suite again; the page cannot be made from a log that cannot be trusted"


def read(path: Path) -> Run:
    """Read the run log ``path``.

    A log without its footer, or with fewer records than its manifest, is given with ``problems``. Raises RunLogError,
    naming file and line, for one that is missing, damaged, cut within a line, of another schema, or that has a case
    twice or one that its manifest lacks.
    """
    with opened(path) as file:
        return _Reader(path, file).run()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the run log ``path`` for :func:`read_from`. Raises RunLogError where it cannot be read."""
    try:
        with open_regular(path, SIZE_LIMIT_BYTES) as file:
            yield file
    except OSError as error:
        raise RunLogError(
            f"cannot read the run log {path}: {error.strerror or error}",
            path=str(path),
            hint="give the file run.jsonl, or the folder that holds it, of a run of pytest --ascend",
        ) from error


def read_from(path: Path, file: BinaryIO) -> Run:
    """Read what stands in ``file``, which is a part of the log ``path``; raises as :func:`read` does."""
    return _Reader(path, file).run()


class _Reader:
    """Goes through the lines of one file once, and knows where it is for the sake of the messages."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.number = 0
        self.events: list[dict[str, Any]] = []
        self.lines: list[int] = []

    def run(self) -> Run:
        """Read all lines, in their order."""
        header = self._header()
        records, footer = self._records_and_footer({case.id for case in header.manifest})
        return Run(
            header=header,
            records=tuple(records),
            events=tuple(self.events),
            lines=tuple(self.lines),
            footer=footer,
            problems=tuple(_missing(header, len(records), footer)),
            path=str(self.path),
            ended=footer is not None,
        )

    def _header(self) -> Header:
        data = self._line(HEADER_LIMIT_BYTES)
        if data is None or data.get("type") != "header":
            raise self._error("expected the header of a run log", hint="is this the file run.jsonl of a run?")
        if data.get("schema") not in SCHEMAS:
            raise self._error(
                f"a log of schema {str(data.get('schema'))[:20]}; this version reads schemas up to {SCHEMA}",
                hint="use the version of pytest-ascend that wrote it (header: stack.pytest_ascend)",
            )
        return self._checked(checks.header, data)

    def _records_and_footer(self, expected: set[str]) -> tuple[list[ResultRecord], Footer | None]:
        records: list[ResultRecord] = []
        while (data := self._line(RECORD_LIMIT_BYTES)) is not None:
            if data.get("type") == "footer":
                return records, self._footer(data, len(records))
            if data.get("type") == "event":
                self.events.append(self._checked(checks.event, data))
                continue
            if data.get("type") != "record":
                raise self._error(f"a line of unknown type {str(data.get('type'))[:40]!r}")
            record = self._checked(checks.record, data)
            self._take(record.case.id, expected)
            records.append(record)
            self.lines.append(self.number)
        return records, None

    def _take(self, case_id: str, expected: set[str]) -> None:
        """Tick off one case of the manifest. ``expected`` loses it, so that what comes twice is found."""
        if case_id not in expected:
            raise self._error(f"the case {case_id!r} is not in the manifest, or has a record already")
        expected.remove(case_id)

    def _footer(self, data: Any, records: int) -> Footer:
        footer = self._checked(checks.footer, data)
        if footer.records != records:
            raise self._error(f"the footer counts {footer.records} records, the log holds {records}")
        if self.file.read(1):
            self.number += 1
            raise self._error("something follows the footer")
        return footer

    def _line(self, limit_bytes: int) -> Any | None:
        """Return the next line as an object, or None at the end of the file."""
        if self.number > RECORDS_LIMIT:
            raise self._error(f"more than {RECORDS_LIMIT} records and events")
        raw = self.file.readline(limit_bytes + 1)
        if not raw:
            return None
        self.number += 1
        if len(raw) > limit_bytes:
            raise self._error(f"longer than {limit_bytes} bytes")
        if not raw.endswith(b"\n"):
            raise self._error("cut short: the last line has no end", hint=self._cut_hint())
        data = self._checked(codec.loads, self._checked(bytes.decode, raw))
        if not isinstance(data, dict):
            raise self._error("expected an object")
        return data

    def _cut_hint(self) -> str:
        whole = self.number - 1
        keep = f"head -n {whole} keeps the {whole} whole lines, and their page will say that the run is incomplete"
        return keep if whole else _RERUN

    def _checked(self, check: Callable[[Any], T], data: Any) -> T:
        try:
            return check(data)
        except (ValueError, TypeError, KeyError) as error:
            raise self._error(f"damaged: {error}") from None

    def _error(self, message: str, *, hint: str = _RERUN) -> RunLogError:
        return RunLogError(f"{self.path}, line {max(self.number, 1)}: {message}", path=str(self.path), hint=hint)


def _missing(header: Header, records: int, footer: Footer | None) -> Iterator[str]:
    if footer is None:
        yield "The log has no footer: the run was stopped before its end."
    if records < len(header.manifest):
        yield f"{len(header.manifest) - records} of {len(header.manifest)} cases have no record."
