"""What a run log holds, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack

#: Form of the log, raised whenever an older reader would misread it.
#: 1: header with the manifest, one record a case, footer with the verdict; ``left_to_cpu`` in the header lists further
#: cases that did not run, which nothing is concluded of.
#: 2: every case is in the manifest; the outcome "disputed".
SCHEMA = 2
#: Forms that can be read.
SCHEMAS = (1, 2)

#: Kinds of event: an attempt that another one followed; cases of which nothing is known because the machine gave way;
#: the judge's score on planted faults; a card that is used no more; memory that a case left behind; a continuation;
#: the cards of the run in every numbering, and how they were before and after it.
ATTEMPT = "attempt"
LOST = "lost"
CANARIES = "canaries"
QUARANTINED = "quarantined"
LEFT_BEHIND = "left-behind"
RESUMED = "resumed"
CARDS = "cards"
EVENTS = (ATTEMPT, LOST, CANARIES, QUARANTINED, LEFT_BEHIND, RESUMED, CARDS)

FULL = "full"
SUBSET = "subset"


def digest(case_ids: Iterable[str]) -> str:
    """Return a hash of a set of cases, by which shards of the same whole know each other."""
    return sha256("\n".join(sorted(case_ids)).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether the manifest is everything that the level asks for. ``reason`` says what narrowed it ("-k relu")."""

    kind: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The first line: what computes, and every case that must run.

    ``started`` is a time in ISO 8601 with its offset; ``manifest`` has no case twice; ``options`` are builtins that
    a reader may want to see, and that nothing is decided by. ``doctor`` is what the doctor found before the run, its
    ``findings`` each with severity, what, evidence, why and remedy; empty where it was not asked. ``census`` counts
    operators by namespace ("aten", "npu") and kind (see :mod:`pytest_ascend.records.census`), empty without torch_npu.
    ``used`` has the SHA-256 of what the run was judged by: ``manifest``, ``goldens``, ``expectations`` and ``rules``.
    ``shard`` has, for a part of a run, its ``index`` and their ``count``, and of the whole the number of ``cases``, the
    ``digest`` of their ids and the ``selection``; empty for a run of its own.
    """

    run_id: str
    started: str
    stack: Stack
    level: str
    selection: Selection
    manifest: tuple[Case, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    doctor: Mapping[str, Any] = field(default_factory=dict)
    census: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    shard: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, as they stand in the log."""
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
            **({"doctor": dict(self.doctor)} if self.doctor else {}),
            **({"census": {name: dict(counts) for name, counts in self.census.items()}} if self.census else {}),
            **({"used": dict(self.used)} if self.used else {}),
            **({"shard": dict(self.shard)} if self.shard else {}),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Footer:
    """The last line. ``counts`` has the cases by outcome, ``verdict`` the keys kind, conforms and sentence."""

    finished: str
    records: int
    counts: Mapping[str, int]
    verdict: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, as they stand in the log."""
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
    ``path`` names the file, empty for none. ``events`` are what happened beside the records, each with its ``kind``.
    ``lines`` gives the line of each record in the file; without it, record ``i`` stands in line ``i + 2``.
    """

    header: Header
    records: tuple[ResultRecord, ...]
    footer: Footer | None = None
    problems: tuple[str, ...] = ()
    path: str = ""
    ended: bool = True
    events: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[int, ...] = ()

    def line(self, index: int) -> int:
        """Return the line of the file in which record ``index`` stands."""
        return self.lines[index] if index < len(self.lines) else index + 2

    @property
    def lost(self) -> Mapping[str, str]:
        """Return by case id why the machine, not the case, is the reason that there is no record."""
        known = {record.case.id for record in self.records}
        found = (event for event in self.events if event["kind"] == LOST)
        return {case: str(event["reason"]) for event in found for case in event["cases"] if case not in known}

    @property
    def missed_canaries(self) -> tuple[str, ...]:
        """Name the planted faults that the judge of this run did not see."""
        found = [event.get("missed", []) for event in self.events if event["kind"] == CANARIES]
        return tuple(str(each) for missed in found for each in missed)
