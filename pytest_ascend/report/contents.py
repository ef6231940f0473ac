"""What a run log holds, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack

#: Form of the log, raised whenever an older reader would misread it.
#: 1: header with the manifest, one record a case, footer with the verdict.
SCHEMA = 1

FULL = "full"
SUBSET = "subset"


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether the manifest is everything that the level asks for. ``reason`` says what narrowed it ("-k relu")."""

    kind: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The first line: what computes, and every case that must run.

    ``started`` is a time in ISO 8601 with its offset; ``manifest`` has no case twice; ``options`` are builtins that
    a reader may want to see, and that nothing is decided by.
    """

    run_id: str
    started: str
    stack: Stack
    level: str
    selection: Selection
    manifest: tuple[Case, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give builtins only, as they stand in the log."""
        return {
            "type": "header",
            "schema": SCHEMA,
            "run_id": self.run_id,
            "started": self.started,
            "stack": self.stack.to_dict(),
            "level": self.level,
            "selection": {"kind": self.selection.kind, "reason": self.selection.reason},
            "manifest": [case.to_dict() for case in self.manifest],
            "options": dict(self.options),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """The last line. ``counts`` has the cases by outcome, ``verdict`` the keys kind, conforms and sentence."""

    finished: str
    records: int
    counts: Mapping[str, int]
    verdict: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Give builtins only, as they stand in the log."""
        return {
            "type": "footer",
            "finished": self.finished,
            "records": self.records,
            "counts": dict(self.counts),
            "verdict": dict(self.verdict),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run log in memory: all that a page, a terminal summary or a comparison of versions is made from.

    ``ended`` says that the run came to its own end; ``problems`` are sentences on what is missing from the log;
    ``path`` names the file, empty for none. Record ``i`` stands in line ``i + 2`` of the file.
    """

    header: Header
    records: tuple[ResultRecord, ...]
    footer: Footer | None = None
    problems: tuple[str, ...] = ()
    path: str = ""
    ended: bool = True
