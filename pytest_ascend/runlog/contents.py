"""The schema of a run log, defined once. msgspec checks what is read against these types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Literal, TypeAlias, TypedDict

from msgspec import Meta, Struct, field

from pytest_ascend.records.bounds import Count, Nested, Plain, Whole, empty, moment, one_of
from pytest_ascend.records.case import Case, Level, Stack
from pytest_ascend.records.record import ResultRecord

#: Schema number, raised whenever an older reader would misread the log.
#: 1: header with the manifest, one record a case, footer with the verdict; ``left_to_cpu`` in the header lists further
#: cases that did not run, and do not count.
#: 2: every case is in the manifest; the outcome "disputed".
#: 3: the event "canaries" is called "self-test".
#: 4: the self-test's ``honest`` is called ``correct``; the metrics ``honest_...`` are called ``reference_...``.
SCHEMA = 4
#: Schemas that can be read.
SCHEMAS = (1, 2, 3, 4)
#: How the lines of a log are chained: each contains the SHA-256 of the previous one.
CHAIN = "sha256"

FULL = "full"
SUBSET = "subset"


def digest(case_ids: Iterable[str]) -> str:
    """Return a hash of a set of cases, by which shards of one run are recognised."""
    return sha256("\n".join(sorted(case_ids)).encode("utf-8", "surrogatepass")).hexdigest()


class Selection(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the manifest has all cases of the level. ``reason`` says what restricted it ("-k relu")."""

    kind: Annotated[str, one_of(FULL, SUBSET)]
    reason: str = ""


class Shard(Struct, frozen=True, kw_only=True):
    """Which part this run is, ``index`` of ``count``; and ``cases``, ``digest`` and ``selection`` of the whole."""

    index: Count
    count: Count
    cases: Count
    digest: str
    selection: Selection

    def __post_init__(self) -> None:
        """Raise ValueError for an index beyond the count."""
        if not 1 <= self.index <= self.count:
            raise ValueError(f"expected a part of {self.count}, got {self.index}")


class _Found(TypedDict):
    severity: str
    what: str
    evidence: list[str]
    why: str
    remedy: str


class Found(_Found, total=False):
    """A finding of the doctor; ``evidence`` are sentences, each with its source."""

    id: str
    card: Whole | None


class DoctorReport(TypedDict, total=False):
    """The doctor's report before the run (see :class:`pytest_ascend.doctor.findings.Diagnosis`)."""

    machine: str
    components: list[dict[str, Nested]]
    findings: list[Found]
    settings: dict[str, str]
    devices: list[dict[str, Plain]]
    judged_by: str


class Part(Struct, frozen=True, kw_only=True):
    """A part of a merged log; ``finished`` is "" if it was stopped, ``head`` the hash of its last line."""

    run_id: str
    started: str
    finished: str
    host: str
    head: str


class _Dated(Struct, frozen=True):
    """A line with a time at which it was written."""

    def __post_init__(self) -> None:
        name = next(each for each in ("started", "finished", "at") if each in self.__struct_fields__)
        try:
            moment(getattr(self, name))
        except ValueError as error:
            raise ValueError(f".{name}: {error}") from None


class Header(_Dated, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="header"):
    """The first line: the stack under test, and every case that must run.

    ``started`` is a time in ISO 8601 with its offset; ``manifest`` has no case twice; ``options`` are all options of
    the run, as builtins. ``doctor`` is empty if it did not run. ``census`` counts operators by namespace
    ("aten", "npu") and kind (see :mod:`pytest_ascend.records.census`), empty without torch_npu. ``used`` has the
    SHA-256 of what the run was judged by: ``manifest``, ``goldens``, ``expectations`` and ``rules``. ``shard`` says
    which part of a run this is; None for a whole run. ``chain`` says how the following lines are chained, empty for
    logs of versions that did not; ``merged`` are the parts of a merged log.
    """

    schema: int = field(default_factory=lambda: SCHEMA)
    run_id: str
    started: str
    stack: Stack
    level: Level
    selection: Selection
    manifest: tuple[Case, ...]
    options: Mapping[str, Nested] = field(default_factory=empty)
    doctor: DoctorReport = field(default_factory=DoctorReport)
    census: Mapping[str, Mapping[str, Count]] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    shard: Shard | None = None
    chain: Annotated[str, one_of("", CHAIN)] = ""
    merged: Annotated[tuple[Part, ...], Meta(max_length=10_000)] = ()

    def each_case_once(self) -> Header:
        """Return the header. Raises ValueError if a case is in the manifest twice."""
        known: set[str] = set()
        for case in self.manifest:
            if case.id in known:
                raise ValueError(f"header.manifest: names the case {case.id!r} twice")
            known.add(case.id)
        return self


class FooterVerdict(Struct, frozen=True):
    """The verdict on the run as a whole."""

    kind: str
    conforms: bool
    sentence: str


class Footer(_Dated, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """The last line. ``counts`` has the cases by outcome."""

    finished: str
    records: Count
    counts: Mapping[str, Count]
    verdict: FooterVerdict


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """An event between the records. Each kind has its own type."""

    type: Literal["event"] = field(default_factory=lambda: "event")


class Attempted(Event, frozen=True, kw_only=True, tag="attempt"):
    """An attempt that was followed by another (see :class:`pytest_ascend.records.record.AttemptRecord`)."""

    case: str
    card: str
    end: str
    outcome: str
    reason: str
    alone: bool
    detail: str = ""


class Lost(Event, frozen=True, kw_only=True, tag="lost"):
    """Cases without a record because of an infrastructure failure."""

    cases: tuple[str, ...]
    reason: str


class SelfTest(Event, frozen=True, kw_only=True, tag="self-test"):
    """The judge's score on planted faults, and the names of those that it ``missed``."""

    planted: Count
    detected: Count
    correct: Count
    missed: tuple[str, ...]


class FormerSelfTest(SelfTest, frozen=True, kw_only=True, tag="canaries"):
    """A self-test in logs of schemas 1 and 2."""


class Quarantined(Event, frozen=True, kw_only=True, tag="quarantined"):
    """A card that is no longer used."""

    card: str
    reason: str


class LeftBehind(Event, frozen=True, kw_only=True, tag="left-behind"):
    """Memory that a case left allocated."""

    case: str
    card: str
    bytes: Count


class Resumed(Event, _Dated, frozen=True, kw_only=True, tag="resumed"):
    """A continuation of the run, with the number of records at that time."""

    at: str
    records: Count


class _Numbered(TypedDict):
    index: Count
    npu: Whole
    chip: Whole


class CardStatus(_Numbered, total=False):
    """One card in every numbering, and its state in npu-smi (:func:`pytest_ascend.environment.identity.observed`)."""

    logical: Whole
    physical: Whole
    bus: str
    health: str
    memory_used_mb: Plain
    memory_total_mb: Plain
    in_use: str


class Cards(Event, frozen=True, kw_only=True, tag="cards"):
    """The cards of the run; ``when`` is "before" or "after"."""

    when: str
    cards: tuple[CardStatus, ...]


class TimeStamped(Event, frozen=True, kw_only=True, tag="time-stamp"):
    """The ``answer`` of a time-stamp authority (RFC 3161, base64) about the previous line, by its ``digest``.

    Without an answer it is "", and ``reason`` says why.
    """

    authority: str
    digest: str
    answer: str
    reason: str = ""


#: The kinds of event by their name in the log.
EVENTS: Mapping[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Attempted, Lost, SelfTest, FormerSelfTest, Quarantined, LeftBehind, Resumed, Cards, TimeStamped)
}

#: Any line of a log.
Line: TypeAlias = Header | ResultRecord | Event | Footer


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run log in memory, from which pages, terminal summaries and comparisons are made.

    ``ended`` says whether the run finished normally; ``path`` is the file, "" for none. ``lines`` has the line of each
    record in the file, if it was read. ``broken`` is the first line that does not continue the chain of hashes, 0 for
    none; ``head`` is the digest of the last line.
    """

    header: Header
    records: tuple[ResultRecord, ...]
    footer: Footer | None = None
    path: str = ""
    ended: bool = True
    events: tuple[Event, ...] = ()
    lines: tuple[int, ...] = ()
    broken: int = 0
    head: str = ""

    @property
    def lost(self) -> Mapping[str, str]:
        """Return, by case id, the infrastructure failures that left cases without a record."""
        known = {record.case.id for record in self.records}
        found = (event for event in self.events if isinstance(event, Lost))
        return {case: event.reason for event in found for case in event.cases if case not in known}
