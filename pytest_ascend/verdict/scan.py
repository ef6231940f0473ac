"""A run log in outline: hundreds of runs are read for one page, so only what that page needs is decoded.

What is believed is what :mod:`pytest_ascend.runlog.reading` believes, with less said of what is damaged: each case of
the manifest counts once, and a pass that its own record does not bear out is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, NotRun, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack
from pytest_ascend.runlog import checks, codec
from pytest_ascend.runlog.contents import SCHEMA, SCHEMAS, Footer, Header, Run
from pytest_ascend.runlog.reading import HEADER_LIMIT_BYTES, RECORD_LIMIT_BYTES, RECORDS_LIMIT, SIZE_LIMIT_BYTES
from pytest_ascend.system.untrusted import open_regular
from pytest_ascend.verdict.summary import ORDER, Summary, audited, judged

#: Parts of a header that list cases: they are long, and the same in most runs. The second is one of schema 1.
_CASES = ("manifest", "left_to_cpu")

RANKS: Mapping[str, int] = {name: rank for rank, name in enumerate(ORDER)}


class _Case(msgspec.Struct):
    id: str


class _Verdict(msgspec.Struct):
    agrees: bool


class _Record(msgspec.Struct, tag_field="type", tag="record"):
    case: _Case
    outcome: str
    reason: str
    verdicts: list[_Verdict]
    measurements: dict[str, Any]
    fallbacks: list[str]


class _Event(msgspec.Struct, tag_field="type", tag="event"):
    kind: str


class _Footer(msgspec.Struct, tag_field="type", tag="footer"):
    finished: str
    records: int
    counts: dict[str, int]
    verdict: dict[str, Any]


#: Any line after the first.
_Line: TypeAlias = _Record | _Event | _Footer
_DECODER: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _decoded(line: bytes) -> _Line:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:
        return cast("_Line", msgspec.convert(codec.loads(line.decode()), _Line))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """One run in outline. ``summary`` has no results.

    ``tallies`` counts, for each subject as (suite, family, subject), its cases by rank (see ``RANKS``);
    ``measurements`` gives figures by case id and name.
    """

    summary: Summary
    tallies: Mapping[tuple[str, str, str], list[int]]
    measurements: Mapping[tuple[str, str], float]


def outline(path: Path) -> Outline:
    """Read the log ``path`` in outline. Raises RunLogError for a log that cannot be trusted, naming file and line."""
    try:
        with open_regular(path, SIZE_LIMIT_BYTES) as file:
            return _Outlining(path, file).outline()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise RunLogError(
            f"cannot take the run log {path} into account: {error}",
            path=str(path),
            hint="pytest-ascend report render says more of what is wrong with it; leave it out, or run the suite again",
        ) from error


class _Outlining:
    """Goes through the lines of one file once."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.header = self._header()
        self.cases = _by_id(self.header.manifest)
        self.ranks: dict[str, int] = {}
        self.measurements: dict[tuple[str, str], float] = {}
        self.events: list[dict[str, Any]] = []

    def outline(self) -> Outline:
        """Read what follows the header."""
        footer = self._records()
        if footer and footer.records != len(self.ranks):
            raise ValueError(f"the footer counts {footer.records} records, the log holds {len(self.ranks)}")
        run = Run(
            header=self.header,
            records=(),
            footer=footer,
            path=str(self.path),
            ended=footer is not None,
            events=tuple(self.events),
        )
        tallies = self._tallies()
        counts = [sum(column) for column in zip(*tallies.values(), strict=True)] or [0] * len(ORDER)
        summary = judged(run, dict(zip(ORDER, counts, strict=True)))
        return Outline(summary=summary, tallies=tallies, measurements=self.measurements)

    def _header(self) -> Header:
        line = self._line(HEADER_LIMIT_BYTES)
        try:
            parts = {name: bytes(part) for name, part in _PARTS.decode(line).items()}
        except msgspec.DecodeError:  # as of a lone surrogate, which JSON may hold and msgspec does not read
            parts = {name: codec.dumps(part).encode() for name, part in codec.loads(line.decode()).items()}
        data = {name: codec.loads(part.decode()) for name, part in parts.items() if name not in _CASES}
        if data.get("type") != "header" or data.get("schema") not in SCHEMAS:
            raise ValueError(f"no header of a run log of schema {SCHEMA}")
        return replace(checks.header({**data, "manifest": []}), manifest=_manifest(parts["manifest"]))

    def _records(self) -> Footer | None:
        while line := self._line(RECORD_LIMIT_BYTES):
            found = _decoded(line)
            if isinstance(found, _Footer):
                if self.file.read(1):
                    raise ValueError("something follows the footer")
                return checks.footer(codec.loads(line.decode()))
            if isinstance(found, _Event):
                self.events.append(checks.event(codec.loads(line.decode())))
            else:
                self._take(found)
        return None

    def _line(self, limit_bytes: int) -> bytes:
        line = self.file.readline(limit_bytes + 1)
        if line and not line.endswith(b"\n"):
            raise ValueError("a line is cut short, or too long")
        return line

    def _take(self, record: _Record) -> None:
        case_id = record.case.id
        if case_id in self.ranks or case_id not in self.cases:
            raise ValueError(f"the case {case_id!r} is not in the manifest, or has a record already")
        if len(self.ranks) >= RECORDS_LIMIT:
            raise ValueError(f"more than {RECORDS_LIMIT} records")
        self.ranks[case_id] = RANKS[_outcome(record, self.cases[case_id], self.header.stack)]
        for name, value in record.measurements.items():
            if isinstance(value, float | int):
                self.measurements[case_id, name] = float(value)

    def _tallies(self) -> dict[tuple[str, str, str], list[int]]:
        missing, found = RANKS[NotRun.name], dict[tuple[str, str, str], list[int]]()
        for case_id, case in self.cases.items():
            tally = found.setdefault((case.suite, case.family, case.subject), [0] * len(ORDER))
            tally[self.ranks.get(case_id, missing)] += 1
        return found


@lru_cache(maxsize=8)
def _manifest(text: bytes) -> tuple[Case, ...]:
    """Read a manifest once: most runs of a page had to execute the same cases."""
    data = codec.loads(text.decode())
    if not isinstance(data, list):
        raise TypeError("the manifest is no list")
    return checks.manifest(data)


@lru_cache(maxsize=8)
def _by_id(manifest: tuple[Case, ...]) -> Mapping[str, Case]:
    return {case.id: case for case in manifest}


def _outcome(record: _Record, case: Case, stack: Stack) -> str:
    """Return the outcome that the record bears out."""
    is_plain = record.outcome == Passed.name and record.verdicts and not record.fallbacks
    if is_plain and all(verdict.agrees for verdict in record.verdicts):
        return Passed.name
    outcome = OUTCOMES[record.outcome](reason=record.reason)
    return audited(_as_recorded(record, case, outcome), stack).outcome.name


def _as_recorded(record: _Record, case: Case, outcome: Any) -> ResultRecord:
    return ResultRecord(
        case=case,
        node_id="",
        outcome=outcome,
        verdicts=tuple({"agrees": verdict.agrees} for verdict in record.verdicts),
        measurements=record.measurements,
        fallbacks=tuple(record.fallbacks),
    )
