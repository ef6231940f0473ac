"""The record of a finished case: one line of the run log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pytest_ascend.records.bounds import Nested, Number, Seconds, empty, one_of
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Outcome
from pytest_ascend.records.verdict import Verdict

#: The kind of a diagnosis for an error that no table lists.
BUG = "bug"
#: Most points in one series, for a long training's curve; most series of one case.
SERIES_POINTS_LIMIT = 10_000
SERIES_LIMIT = 32
Series: TypeAlias = Annotated[Sequence[Number], Meta(max_length=SERIES_POINTS_LIMIT)]


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One of several attempts: its ``card``, how it ended (``end``), and its outcome ("" for none) with the reason.

    ``alone`` means that it ran in a process of its own, with blocking launches.
    """

    card: str
    end: str
    outcome: str
    reason: str
    alone: bool


class CallDigests(Struct, frozen=True):
    """Digests of a generated call's inputs and outputs; ``exact`` if every correct device gives the same bits."""

    inputs: str
    outputs: str
    exact: bool


class ResultRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="record"):
    """A case, its outcome, and the evidence for it.

    ``verdicts`` has one per comparison, also for passes. ``measurements`` are named numbers with their unit in the name
    (``latency_us``). ``fallbacks`` lists the aten operators that ran elsewhere than on the device. ``series`` are named
    lists of numbers: samples behind a measurement (``latency_us``), or a curve as the pair ``loss_actual`` and
    ``loss_expected``, one number per step. ``waiver`` has the reason, issue, owner and expires (a date) of the waiver
    that excused a deviation. ``diagnosis`` says what an error means (see :mod:`pytest_ascend.diagnosis`). ``attempts``
    lists each attempt if there was more than one. ``snippet`` is a Python program that demonstrates the fault, empty if
    there is no fault or no program could be written. ``digests`` has the digests of generated calls, by their names.
    ``blind`` are kinds of wrong results, derived from the device's correct one, that the case's own judgement accepts.
    """

    case: Case
    node_id: str
    outcome_name: Annotated[str, one_of(*OUTCOMES)] = field(name="outcome")
    reason: str
    detail: str
    # These are written even if they are empty: omit_defaults does not know the values of these functions.
    verdicts: tuple[Verdict, ...] = field(default_factory=lambda: ())
    measurements: Mapping[str, Number] = field(default_factory=empty)
    fallbacks: tuple[str, ...] = field(default_factory=lambda: ())
    duration_s: Seconds = field(default_factory=lambda: 0.0)
    waiver: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Mapping[str, Nested] = field(default_factory=dict)
    series: Annotated[Mapping[str, Series], Meta(max_length=SERIES_LIMIT)] = field(default_factory=dict)
    attempts: tuple[AttemptRecord, ...] = ()
    snippet: str = ""
    digests: Mapping[str, CallDigests] = field(default_factory=dict)
    blind: Annotated[tuple[Annotated[str, Meta(max_length=40)], ...], Meta(max_length=16)] = ()

    @classmethod
    def of(cls, case: Case, node_id: str, outcome: Outcome, **known: Any) -> ResultRecord:
        """Return the record of a case that ended with ``outcome``; ``known`` are the other fields."""
        name, reason, detail = outcome.name, outcome.reason, outcome.detail
        return cls(case=case, node_id=node_id, outcome_name=name, reason=reason, detail=detail, **known)

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the case."""
        return OUTCOMES[self.outcome_name](reason=self.reason, detail=self.detail)

    @property
    def conforms(self) -> bool:
        """Return whether the outcome of the case is what PyTorch promises."""
        return OUTCOMES[self.outcome_name].conforms

    def but(self, outcome: Outcome | None = None, **changes: Any) -> ResultRecord:
        """Return the record with another outcome, or with other fields changed."""
        if outcome is not None:
            changes |= {"outcome_name": outcome.name, "reason": outcome.reason, "detail": outcome.detail}
        return replace(self, **changes)
