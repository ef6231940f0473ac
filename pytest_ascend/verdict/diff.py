"""The comparison of two runs: what became worse, better, new or absent, and what drifts although it still passes."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median, quantiles

from pytest_ascend.records.case import Stack
from pytest_ascend.records.outcome import OUTCOMES, Disputed, NotEmulated, NotJudged, NotRun, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import FULL, Header
from pytest_ascend.system import figures
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, causes_of
from pytest_ascend.verdict.summary import Summary

#: Relative change of a time, throughput or size from which it is reported.
SPEED_SHARE = 0.1
#: Whether less is better, by the suffix of a measurement's name; other measurements have no direction.
_LESS_IS_BETTER = {"_per_s": False, "_us": True, "_ms": True, "_s": True, "_bytes": True}

REGRESSION, FIX, OTHER, NEW, VANISHED = "regression", "fix", "other", "new", "vanished"
ERROR_DRIFT, SLOWER, FASTER = "error-drift", "slower", "faster"
#: Executed in only one of the runs; and the same behaviour in both, with another known deviation.
NOT_RUN, NOT_EMULATED, KNOWN = NotRun.name, NotEmulated.name, "known"
#: Every kind of change, the most important first.
KINDS = (REGRESSION, VANISHED, ERROR_DRIFT, SLOWER, NEW, OTHER, FASTER, FIX, NOT_RUN, NOT_EMULATED, KNOWN)
#: Kinds for which the later stack may not replace the earlier one.
FAILS_ON = (REGRESSION, NEW, VANISHED)
#: Whether the later stack may replace the earlier one.
YES, NO, CANNOT_TELL = "yes", "no", "cannot-tell"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One changed case. ``before`` and ``after`` are outcomes, or values of ``name`` as text."""

    kind: str
    id: str
    before: str
    after: str
    finding: str = ""
    name: str = ""
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Diff:
    """All changes between two runs, by kind. ``components`` are the versions that differ: name -> (before, after)."""

    before: Summary
    after: Summary
    components: Mapping[str, tuple[str, str]]
    changes: Mapping[str, Sequence[Change]]
    unchanged: int

    @property
    def is_comparable(self) -> bool:
        """Return whether both runs covered everything at the same level, so that absence is significant."""
        one, other = self.before.run.header, self.after.run.header
        return one.level == other.level and one.selection.kind == other.selection.kind == FULL

    def failures(self, kinds: Sequence[str]) -> list[Change]:
        """Return the changes that fail a comparison: those of ``kinds``, but new cases only if they deviate."""
        unknown = (NOT_RUN, NOT_EMULATED, NotJudged.name)
        return [
            each
            for kind in kinds
            for each in self.changes[kind]
            if kind != NEW or (not OUTCOMES[each.after].conforms and each.after not in unknown)
        ]

    @property
    def unknown(self) -> int:
        """Return the number of cases that the earlier run executed and the later one did not."""
        changes = (each for kind in (NOT_RUN, NOT_EMULATED) for each in self.changes[kind])
        return sum(each.before not in (NOT_RUN, NOT_EMULATED) for each in changes)

    @property
    def answer(self) -> str:
        """Return whether the later stack may replace the earlier one: YES, NO or CANNOT_TELL."""
        if self.failures(FAILS_ON):
            return NO
        compared = self.unchanged + sum(map(len, self.changes.values())) - self.unknown
        return CANNOT_TELL if self.unknown or not compared else YES

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return the causes of the regressions, as on the later run's page, without regard to waivers."""
        ids = {each.id for each in self.changes[REGRESSION]}
        found = causes_of(
            each.but(outcome_name=evidence.below(each)) if each.case.id in ids else each for each in self.after.results
        )
        own = (replace(cause, cases=tuple(each for each in cause.cases if each.case.id in ids)) for cause in found)
        return tuple(cause for cause in own if cause.cases)


def compare(before: Summary, after: Summary, *, speed_share: float = SPEED_SHARE) -> Diff:
    """Compare two runs case by case, by ID. ``speed_share`` is the change of a speed that counts, such as 0.1."""
    old = {result.case.id: result for result in before.results}
    new = {result.case.id: result for result in after.results}
    header, found = after.run.header, {kind: list[Change]() for kind in KINDS}
    has_times = not (before.run.header.stack.emulated or header.stack.emulated)
    diff = Diff(
        before=before,
        after=after,
        components=components(before.run.header.stack, header.stack),
        changes=found,
        unchanged=0,
    )
    for case_id, result in new.items():
        for change in _changes(old.get(case_id), result, speed_share if has_times else math.inf, header):
            found[change.kind].append(change)
    for case_id in (each for each in old if each not in new):
        vanished = Change(kind=VANISHED, id=case_id, before=old[case_id].outcome_name, after="")
        found[VANISHED if diff.is_comparable else NOT_RUN].append(vanished)
    for kind in (ERROR_DRIFT, SLOWER, FASTER):
        found[kind].sort(key=lambda change: -change.factor)
    touched = {change.id for changes in found.values() for change in changes}
    return replace(diff, unchanged=len(new.keys() & old.keys() - touched))


def _changes(old: ResultRecord | None, new: ResultRecord, speed_share: float, header: Header) -> Iterator[Change]:
    case_id, finding = new.case.id, evidence.finding(new)
    if old is None:
        yield Change(kind=NEW, id=case_id, before="", after=new.outcome_name, finding=finding)
        return
    before, after = evidence.below(old), evidence.below(new)
    # Outcomes with their known causes.
    was, is_now = (
        f"{each.outcome_name} ({cause})" if (cause := each.waiver.get("cause")) else each.outcome_name
        for each in (old, new)
    )
    if kind := _kind(before, after) or (REGRESSION if _deviates_otherwise(old, new, header) else ""):
        yield Change(kind=kind, id=case_id, before=before, after=after, finding=finding)
    elif was != is_now:
        yield Change(kind=KNOWN, id=case_id, before=was, after=is_now, finding=finding)
    elif after == Passed.name:
        yield from _drifts(old, new, speed_share)


def components(before: Stack, after: Stack) -> dict[str, tuple[str, str]]:
    """Return every part of a stack that differs between the two."""
    pairs = {each.name: (str(getattr(before, each.name)), str(getattr(after, each.name))) for each in fields(Stack)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _deviates_otherwise(old: ResultRecord, new: ResultRecord, header: Header) -> bool:
    """Return whether a case is no longer excused, although the later run lists the same deviation for it.

    ``header`` is the later run's. If it lists others, the case may well behave as before.
    """
    if new.outcome.conforms or not isinstance(old.outcome, (Waived, Disputed)):
        return False
    expires = str(old.waiver.get("expires", ""))
    end = f": {old.waiver.get('outcome', '')} until {expires}"
    known = [str(each).removesuffix(end) for each in header.options.get("expectations", ()) if str(each).endswith(end)]
    return header.started[:10] <= expires and any(fnmatch.fnmatchcase(new.case.id, each) for each in known)


def _kind(before: str, after: str) -> str:
    """Return the kind of a change of outcome, without regard to waivers; "" for none."""
    if before == after:
        return ""
    if missing := [each for each in (after, before) if each in (NOT_RUN, NOT_EMULATED)]:
        return missing[0]
    if NotJudged.name in (before, after):
        return OTHER
    if before in (Waived.name, Disputed.name) and not OUTCOMES[after].conforms:
        return REGRESSION  # the log lacks the outcome below the waiver: that was accepted, and this one is not
    passing = (before == Passed.name, after == Passed.name)
    is_clear = OUTCOMES[before].conforms <= passing[0] and OUTCOMES[after].conforms <= passing[1]
    return {(True, False): REGRESSION, (False, True): FIX}.get(passing, OTHER) if is_clear else OTHER


def _drifts(old: ResultRecord, new: ResultRecord, speed_share: float) -> Iterator[Change]:
    def change(kind: str, name: str, before: float, after: float, factor: float) -> Change:
        was, is_now = (
            figures.used(each) if name == "limit_used" else figures.quantity(name, each) for each in (before, after)
        )
        return Change(kind=kind, id=new.case.id, before=was, after=is_now, name=name, factor=factor)

    before, after = evidence.limit_used(old), evidence.limit_used(new)
    one, other = ([each.standard for each in result.verdicts] for result in (old, new))
    # At least twice the earlier share of its limit, and a tenth of the limit: below, rounding alone changes it.
    least = max(2.0 * (before or 0.0), 0.1)
    if before is not None and after is not None and before < after and after >= least and one == other:
        yield change(ERROR_DRIFT, "limit_used", before, after, after / before if before else math.inf)
    before, after = (each.measurements.get("error_ulp") for each in (old, new))
    # A function whose largest error in ulp grew by more than a tenth and half an ulp.
    if before is not None and after is not None and after > 1.1 * before + 0.5:
        yield change(ERROR_DRIFT, "error_ulp", before, after, after / before if before else math.inf)
    for name, after in new.measurements.items():
        before = old.measurements.get(name, 0.0)
        less_is_better = next((less for ending, less in _LESS_IS_BETTER.items() if name.endswith(ending)), None)
        if less_is_better is None or not before > 0 or not after > 0 or not _is_beyond_spread(name, old, new):
            continue
        slowdown = after / before if less_is_better else before / after
        factor = max(slowdown, 1 / slowdown)
        if factor >= 1 + speed_share:
            yield change(SLOWER if slowdown > 1 else FASTER, name, before, after, factor)


def _is_beyond_spread(name: str, old: ResultRecord, new: ResultRecord) -> bool:
    """Return whether the samples of a measurement, if both runs have them, show a difference.

    They do if their notches, median ± 1.57 IQR / sqrt(n), do not overlap (R. McGill, J. W. Tukey, W. A. Larsen,
    "Variations of box plots", The American Statistician 32, 1978).
    """
    stem = next((ending for ending in ("_us", "_ms", "_s") if name.endswith(ending)), "")
    samples = [
        next((values for name, values in result.series.items() if name.endswith(stem)), ()) for result in (old, new)
    ]
    if not stem or any(len(each) < 5 for each in samples):
        return True
    reach = 0.0
    for values in samples:
        first, _, third = quantiles(values, n=4)
        reach += 1.57 * (third - first) / math.sqrt(len(values))
    return abs(median(samples[0]) - median(samples[1])) > reach
