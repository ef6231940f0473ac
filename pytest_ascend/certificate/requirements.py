"""Why a run cannot be certified: one small function per reason, all evaluated to report every reason at once."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from msgspec import convert

from pytest_ascend.certificate import recomputed, timestamp
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.tiers import NEEDED, Tier
from pytest_ascend.certificate.words import of_cases
from pytest_ascend.coverage.expectations import LIMIT, Expectations, parse
from pytest_ascend.environment.chips import family
from pytest_ascend.environment.npu_smi import shared
from pytest_ascend.records import LEVELS
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Disputed, Fallback, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import FULL, Cards, Found, Quarantined, SelfTest
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.system.suites import describe
from pytest_ascend.verdict.summary import Summary

#: Planted errors and correct results by which the judge is tested in every run (``plugin/self_test.py``).
PLANTED, CORRECT = 15, 5
_MIXED = ("cann.mixed", "version.disagreement", "cann.other-operators", "cann.library-path", "chip.several")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is to be certified: a run, for a tier, by a release, on a day."""

    summary: Summary
    tier: Tier
    release: Release
    on: date

    @cached_property
    def results(self) -> tuple[ResultRecord, ...]:
        """Return the cases of the tier's suites, each with its outcome."""
        bundled = {case.suite for case in self.frozen}
        return tuple(
            each for each in self.summary.results if each.case.suite in bundled and self.tier.covers(each.case.suite)
        )

    @cached_property
    def frozen(self) -> tuple[Case, ...]:
        """Return the cases of the release's own manifest, whatever the log contains."""
        return tuple(convert(each, Case) for each in json.loads(self.release.parts["manifest"])["cases"])

    @cached_property
    def known(self) -> Expectations:
        """Return the release's known deviations of the run's stack."""
        return parse(self.release.parts["expectations"], self.summary.run.header.stack)

    @property
    def findings(self) -> list[Found]:
        """Return the doctor's findings before the run, except for cards that the run did not use."""
        found = self.summary.run.header.doctor.get("findings", [])
        used = {card["index"] for event in self.cards for card in event.cards}
        return [each for each in found if not used or each.get("card") is None or each["card"] in used]

    @property
    def cards(self) -> list[Cards]:
        """Return the log's data on the cards of the run, before and after it."""
        return [event for event in self.summary.run.events if isinstance(event, Cards)]

    def of(self, outcome: str) -> list[ResultRecord]:
        """Return the cases of the tier with this outcome."""
        return [each for each in self.results if each.outcome_name == outcome]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason: ``id`` is stable across releases, ``says`` is readable text."""

    id: str
    says: str


def refusals(candidate: Candidate) -> tuple[Refusal, ...]:
    """Return every reason why this candidate cannot be certified; an empty result means that it can."""
    skipped: set[Callable[[Candidate], Iterator[str]]] = set()
    if candidate.summary.run.header.stack.emulated:  # it has no machine, which is the reason for its rejection
        skipped |= {unhealthy, mixed, disturbed, *recomputed.OF_THE_MACHINE}
    if candidate.tier.sample:  # a sample certifies nothing, and may have few cases
        skipped |= {subset, missing}
    return tuple(
        Refusal(name, reason)
        for name, requirement in REQUIREMENTS.items()
        if requirement not in skipped
        for reason in _checked(requirement, candidate)
    )


def _checked(requirement: Callable[[Candidate], Iterator[str]], candidate: Candidate) -> Iterator[str]:
    try:
        yield from requirement(candidate)
    except timestamp.TimestampError as error:
        yield error.message
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        yield f"the log cannot be judged: {type(error).__name__}: {error}"


def device(candidate: Candidate) -> Iterator[str]:
    """Require an NPU."""
    stack = candidate.summary.run.header.stack
    if candidate.tier.sample:
        yield from [] if stack.emulated else ["a sample is of a run on the emulated device"]
    elif stack.emulated:
        yield "the run was on the emulated device, which says nothing about any NPU"
    elif stack.device != "npu":
        yield f"the run was on the device {stack.device!r}, which is no NPU"


def subset(candidate: Candidate) -> Iterator[str]:
    """Require that the run was not restricted to a selection of cases."""
    selection, level = candidate.summary.run.header.selection, candidate.summary.run.header.level
    if selection.kind != FULL:
        yield f"the run was a subset ({selection.reason})"
    if LEVELS.index(level) < LEVELS.index(candidate.tier.level):
        yield f"the run was at level {level}; the tier {candidate.tier.name} asks for {candidate.tier.level}"


def incomplete(candidate: Candidate) -> Iterator[str]:
    """Require a complete run and a consistent log."""
    if not candidate.summary.run.ended or candidate.summary.run.footer is None:
        yield "the run was stopped before its end"
    broken = broken_chain(candidate.summary.run.broken)  # which has a refusal of its own
    yield from (each for each in candidate.summary.contradictions if each != broken)


def missing(candidate: Candidate) -> Iterator[str]:
    """Require a result for every case of the release in the tier's suites, at the level of the run."""
    known, level = {each.case.id for each in candidate.results}, candidate.summary.run.header.level
    required = (case for case in candidate.frozen if candidate.tier.covers(case.suite) and case.is_in(level))
    absent = [case.id for case in required if case.id not in known]
    absent += [each.case.id for each in candidate.of("not-run")]
    yield from of_cases(absent, "did not run")


def failures(candidate: Candidate) -> Iterator[str]:
    """Require a waiver for every deviation."""
    accepted = (Passed.name, Fallback.name, Waived.name, Disputed.name, "not-run")
    for outcome in (name for name in OUTCOMES if name not in accepted):
        yield from of_cases([each.case.id for each in candidate.of(outcome)], outcome)


def fallbacks(candidate: Candidate) -> Iterator[str]:
    """Require that the CPU computed no more than the tier allows."""
    yield from _shares(candidate, candidate.of(Fallback.name), "fallbacks", "computed by the CPU")


def waivers(candidate: Candidate) -> Iterator[str]:
    """Require no more waived or disputed defects than the tier allows, and that each waiver is in force.

    Another check compares each waiver with the release's list, word for word (``recomputed.known_deviations``).
    """
    waived, disputed = candidate.of(Waived.name), candidate.of(Disputed.name)
    defects = [*(each for each in waived if not is_limit(each)), *disputed]
    yield from _shares(candidate, defects, "waived", "waived")
    for each in (*waived, *disputed):
        until = str(each.waiver.get("expires", ""))
        if date.fromisoformat(until) < candidate.on:
            yield f"the waiver of {each.case.id}, or the dispute about it, expired on {until}"


def limits(candidate: Candidate) -> Iterator[str]:
    """Require no more cases unsupported by design than the tier allows."""
    found = [each for each in candidate.of(Waived.name) if is_limit(each)]
    chip = family(candidate.summary.run.header.stack.chip)
    lacking = [each for each in candidate.known.entries if each.kind == LIMIT]
    of_chip = {each.cause for each in lacking if each.chips or each.derived == "dtypes"}
    # No torch_npu can offer what the chip lacks, such as bfloat16 on a 310P, or what CANN's host code rejects.
    beyond = () if chip is None or chip.bfloat16 else ("bfloat16",)
    offered = (each for each in found if each.case.dtype not in beyond)
    of_torch_npu = [each for each in offered if each.waiver.get("cause") not in of_chip]
    yield from _shares(candidate, of_torch_npu, "limits", "lacking by design")


def is_limit(result: ResultRecord) -> bool:
    """Return whether a case is waived because torch_npu lacks something by design, not because of a defect."""
    return (result.waiver or {}).get("kind") == LIMIT


def release(candidate: Candidate) -> Iterator[str]:
    """Require that the run was judged by this release, complete and unaltered."""
    used, mine = candidate.summary.run.header.used, candidate.release.hashes()
    version = candidate.summary.run.header.stack.pytest_ascend
    if version != candidate.release.version:
        yield f"the run was judged by pytest-ascend {version}, and this is {candidate.release.version}"
    if not used:
        yield "the log does not say by what the run was judged"
        return
    for name, what in (
        ("manifest", "frozen cases"),
        ("goldens", "goldens"),
        ("expectations", "known deviations"),
        ("rules", "suites and judges"),
    ):
        if used.get(name) != mine[name]:
            yield f"the {what} of the run are not those of this release"


def tampered(candidate: Candidate) -> Iterator[str]:
    """Require that no fault was planted and no standard loosened."""
    options = candidate.summary.run.header.options
    if options.get("faults"):
        yield f"faults were planted: {', '.join(map(str, options['faults']))}"
    if options.get("standard"):
        yield f"the run was judged by the standard {options['standard']}, and not by the release's own rule"


def unhealthy(candidate: Candidate) -> Iterator[str]:
    """Require that the doctor ran and found nothing that makes results doubtful."""
    if not candidate.summary.run.header.doctor:
        yield "the log does not have what the doctor found"
    elif not candidate.summary.run.header.doctor.get("devices"):
        yield "nobody asked the device for its health: npu-smi did not answer before the run"
    for each in candidate.findings:
        if each.get("severity") == "error" and each.get("id") not in _MIXED:
            yield f"the doctor found: {each['what']}"
        if each.get("id") == "settings.numbers":
            yield f"a setting changes numbers: {each['what']}"


def mixed(candidate: Candidate) -> Iterator[str]:
    """Require a single stack whose parts are known."""
    stack = candidate.summary.run.header.stack
    unknown = [name for name in NEEDED if not getattr(stack, name)]
    if unknown:
        yield f"it is not known which {', '.join(unknown)} was tested"
    for each in candidate.findings:
        if each.get("id") in _MIXED:
            yield f"the stack is mixed: {each['what']}"


def disturbed(candidate: Candidate) -> Iterator[str]:
    """Require benchmarks with figures, on a device without other processes."""
    if not candidate.tier.quiet:
        return
    for each in candidate.findings:
        if each.get("id") == "devices.occupied":
            yield f"the device was in use: {each['what']}"
    for event in candidate.cards:
        for card in event.cards:
            if card.get("in_use"):
                yield f"npu:{card['index']} was not ours alone {event.when} the run: {card['in_use']}"
    measured = {
        each.case.id: each.measurements for each in candidate.of(Passed.name) if each.case.suite == "benchmarks"
    }
    for name, figures in measured.items():
        if how := shared(figures):
            yield f"{name}: others used the card: {how}"
    empty = [name for name, those in measured.items() if not those or not all(map(math.isfinite, those.values()))]
    yield from of_cases(empty, "without a figure that is a number")


def blind(candidate: Candidate) -> Iterator[str]:
    """Require that the run's judge detected the planted errors, and that its devices stayed healthy."""
    events = candidate.summary.run.events
    scores = [each for each in events if isinstance(each, SelfTest)]
    if not scores:
        yield "this log has no self-test: it does not show that the judge of the run sees errors"
    for each in scores:
        if each.missed or each.detected < each.planted:
            yield f"the judge of the run did not see {', '.join(each.missed) or 'every planted error'}"
        elif (each.planted, each.correct) != (PLANTED, CORRECT):
            numbers = f"{each.planted} planted errors and {each.correct} correct results"
            yield f"the judge of the run was tried on {numbers}; this release has {PLANTED} and {CORRECT}"
    out = (each for each in events if isinstance(each, Quarantined))
    yield from (f"the device {each.card} was taken out: {each.reason}" for each in out)


#: The functions above and those that recompute the log, by name, in the order of reasons.
REQUIREMENTS: dict[str, Callable[[Candidate], Iterator[str]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(device, subset, incomplete, missing, failures, fallbacks, waivers, limits, release, tampered),
        *(unhealthy, mixed, disturbed, blind, *recomputed.OF_THE_LOG, *recomputed.OF_THE_MACHINE),
    )
}


def _shares(candidate: Candidate, results: Sequence[ResultRecord], share: str, how: str) -> Iterator[str]:
    totals = Counter(each.case.suite for each in candidate.results)
    of = [each.case for each in results]
    for suite, count in sorted(Counter(case.suite for case in of).items()):
        limit = int(getattr(describe(suite).allowed, share) * totals[suite])
        if count > limit:
            names = [case.id for case in of if case.suite == suite]
            yield from of_cases(names, f"of {suite} {how}, {limit} allowed")
