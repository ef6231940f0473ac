"""Counts, verdict and exit code derived from a run log. A run as a whole is judged only here.

The manifest is complete: every case in it has exactly one outcome, and a case without a record is ``not-run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from pytest_ascend.records import outcome as outcomes
from pytest_ascend.records.case import OWN_MODEL, Stack
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import SUBSET, Footer, FooterVerdict, Run, SelfTest
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.system.text import one_line
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, in_both, say


def verified(record: ResultRecord, stack: Stack) -> ResultRecord:
    """Return the record with the outcome that its own evidence supports."""
    name, true = record.outcome_name, outcomes.Outcome()
    if name == outcomes.NotEmulated.name and not stack.emulated:
        true = outcomes.Errored(reason="recorded as not-emulated, on a device that is not emulated")
    elif name in (outcomes.Waived.name, outcomes.Disputed.name) and not record.reason:
        true = outcomes.Errored(reason=f"{name} without a reason")
    elif name == outcomes.Passed.name:
        if any(not verdict.agrees for verdict in record.verdicts):
            true = outcomes.Failed(reason="recorded as passed, but a comparison disagrees")
        elif not record.measurements and not any(verdict.is_evidence for verdict in record.verdicts):
            true = outcomes.Errored(reason="passed without comparing or measuring anything")
        elif record.fallbacks:
            true = outcomes.Fallback(reason=f"computed on the CPU: {', '.join(record.fallbacks)}")
    return record.but(outcome_name=true.name, reason=true.reason) if true.reason else record


#: The four kinds of verdict on a run.
CONFORMS = "conforms"
DOES_NOT_CONFORM = "does-not-conform"
INCOMPLETE = "incomplete"
PARTIAL = "subset"
#: Outcomes in the order of reports: five deviations, those not executed or judged, and acceptable ones.
ORDER = (
    *("failed", "errored", "flaky", "fallback", "unsupported"),
    *("not-run", "not-emulated", "not-judged", "disputed", "waived", "passed"),
)
_DEVIATIONS = ORDER[:5]
NOT_EXECUTED = (outcomes.NotRun.name, outcomes.NotEmulated.name)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run: its ``kind``, whether the combination ``conforms``, and a sentence.

    The sentence consists of ``notice`` (nothing on an NPU), ``opening`` ("Conforms") and ``body`` ("all 60 cases ...").
    """

    kind: str
    conforms: bool
    notice: Phrase
    opening: Phrase
    body: Phrase

    @property
    def sentence(self) -> str:
        """Return the entire sentence in English, after the notice, if any."""
        return f"{self.notice} {self.opening}: {self.body}".strip()

    def in_footer(self) -> FooterVerdict:
        """Return the verdict in the form of the log's footer."""
        return FooterVerdict(self.kind, self.conforms, self.sentence)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of a finished run.

    ``results`` has one record for each case of the manifest, in its order.
    ``counts`` has every outcome, including zeros, in the order of ``ORDER``. ``contradictions`` are sentences on how
    the footer contradicts the records. ``lines`` maps case IDs to line numbers of the log.
    """

    run: Run
    results: tuple[ResultRecord, ...]
    counts: Mapping[str, int]
    contradictions: tuple[str, ...] = ()
    lines: Mapping[str, int]

    @cached_property
    def verdict(self) -> RunVerdict:
        """Return the verdict on the run as a whole."""
        said, cases = notice(self.run.header.stack), counted("cases", self.total)
        unjudged = self.counts[outcomes.NotJudged.name] if self.run.header.selection.kind != SUBSET else 0
        missing = [say("verdict.missing", n=f"{self.missing:,}", cases=cases)] if self.missing else []
        missing += [counted("verdict.not-judged", unjudged)] if unjudged else []
        missing += [] if self.run.ended else [say("verdict.stopped")]
        missing += [say("verdict.contradicted")] if self.contradictions else []
        gaps, found = tuple(missing), say("verdict.nothing", cases=cases)
        if self.deviations:
            bad = tuple(counted_outcome(name, self.counts[name]) for name in _DEVIATIONS if self.counts[name])
            found = say("verdict.bad", found=bad, cases=cases)
        elif self.executed:
            found = _well(self, cases)
        # Only a subset has users' tests: in the bundled suites, pytest alone decides nothing.
        is_whole = not _is_incomplete(self) and not self.counts[outcomes.NotJudged.name]
        if self.run.header.selection.kind == SUBSET:
            kind, opening, body = PARTIAL, *_of_subset(self, found)
        elif self.deviations:
            kind, opening, body = DOES_NOT_CONFORM, say("verdict.does-not-conform"), found
        elif not self.executed:
            kind, opening, body, gaps = INCOMPLETE, say("verdict.not-conformant"), found, ()
        elif is_whole:
            kind, opening = CONFORMS, say("verdict.conforms")
            body = say("verdict.at-level", said=found, level=self.run.header.level)
        else:
            kind, opening, body = INCOMPLETE, say("verdict.incomplete"), say("verdict.gaps", gaps=gaps)
        if kind in (PARTIAL, DOES_NOT_CONFORM) or not self.executed:
            body = say("verdict.with-gaps", said=body, gaps=gaps) if gaps else say("verdict.end", said=body)
        if said and kind != PARTIAL:  # in words that promise nothing about NPUs
            opening = say(f"{opening.key}.other")
        return RunVerdict(kind, kind == CONFORMS, said, opening, body)

    @property
    def executed(self) -> int:
        """Return the number of cases that the device really ran."""
        return sum(count for name, count in self.counts.items() if name not in NOT_EXECUTED)

    @property
    def total(self) -> int:
        """Return the number of cases that had to run."""
        return sum(self.counts.values())

    @property
    def deviations(self) -> int:
        """Return the number of cases that ran and do not conform."""
        return sum(self.counts[name] for name in _DEVIATIONS)

    @property
    def missing(self) -> int:
        """Return the number of cases that had to run and did not."""
        return self.counts[outcomes.NotRun.name]

    def footer(self, finished: str) -> Footer:
        """Return the last line of the log; ``finished`` is a time in ISO 8601 with its offset."""
        counts = {name: count for name, count in self.counts.items() if count}
        return Footer(finished=finished, records=len(self.run.records), counts=counts, verdict=self.verdict.in_footer())


def summarise(run: Run) -> Summary:
    """Judge a run by its records alone; the footer's claims are only compared with them."""
    results = tuple(results_of(run))
    lines = dict(zip((record.case.id for record in run.records), run.lines, strict=False))  # none for a run in memory
    return judged(run, Counter(result.outcome_name for result in results), results=results, lines=lines)


def judged(
    run: Run,
    found: Mapping[str, int],
    *,
    results: tuple[ResultRecord, ...] = (),
    lines: Mapping[str, int] = MappingProxyType({}),
) -> Summary:
    """Judge a run by the outcomes ``found`` for its cases, each of which is counted once."""
    summary = Summary(run=run, results=results, counts={name: found.get(name, 0) for name in ORDER}, lines=lines)
    return replace(summary, contradictions=tuple(_contradictions(summary)))


def exit_code(summary: Summary) -> int:
    """Return 0 for a run that conforms or a subset without faults, 1 for one that does not.

    Return 5 if nothing was executed; 7 if no executed case deviates and cases are missing because the machine failed.
    """
    if summary.run.lost and not summary.deviations:
        return 7
    if not summary.executed:
        return 5
    faultless = not summary.deviations and not _is_incomplete(summary)
    return 0 if summary.verdict.conforms or (summary.verdict.kind == PARTIAL and faultless) else 1


def notice(stack: Stack) -> Phrase:
    """Return a prominent notice if no NPU computed anything, else an empty phrase."""
    if stack.emulated:
        return say("notice.emulated")
    return say("notice.other", device=stack.device) if stack.device != "npu" else SILENCE


def counted_outcome(name: str, count: int) -> Phrase:
    """Return a count with its outcome, such as "3 failed"."""
    return say("count-of-outcome", n=f"{count:,}", outcome=say(f"outcome.{name}"))


def results_of(run: Run, left_out: Collection[str] = ()) -> Iterator[ResultRecord]:
    """Yield the result of each case of the manifest, except those whose records were ``left_out``."""
    records, lost = {record.case.id: record for record in run.records}, run.lost
    reason = "no record in the log" if run.ended else "the run was stopped before this case"
    for case in run.header.manifest:
        if record := records.get(case.id):
            yield verified(record, run.header.stack)
        elif case.id not in left_out:
            yield ResultRecord.of(case, "", outcomes.NotRun(reason=lost.get(case.id, reason)))


def _contradictions(summary: Summary) -> Iterator[str]:
    for event in summary.run.events:
        for missed in event.missed if isinstance(event, SelfTest) else ():
            yield f"The judge of this run did not see a planted fault: {missed}."
    if summary.run.broken:
        yield broken_chain(summary.run.broken)
    if footer := summary.run.footer:
        claimed, found = (
            ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"
            for counts in (footer.counts, summary.counts)
        )
        if {**dict.fromkeys(summary.counts, 0), **footer.counts} != summary.counts:
            yield f"The footer counts {claimed}; the records give {found}."
        if (footer.verdict.kind, footer.verdict.conforms) != (summary.verdict.kind, summary.verdict.conforms):
            yield "The footer's verdict is not the one that the records give."


def _is_incomplete(summary: Summary) -> bool:
    return bool(summary.missing or summary.contradictions or not summary.run.ended or not summary.executed)


def _of_subset(summary: Summary, body: Phrase) -> tuple[Phrase, Phrase]:
    model = str(summary.run.header.options.get("model") or "")
    reasons = summary.run.header.selection.reason.split("; ")
    # The heading already names the model.
    reason = "; ".join(each for each in reasons if each and not (model and each == OWN_MODEL))
    if reason:
        body = say("verdict.selected", said=body, reason=in_both(reason, "findings"))
    is_well = summary.executed and not summary.deviations and not _is_incomplete(summary)
    ending = "passed" if is_well else "failed"
    if is_well and summary.counts[outcomes.NotJudged.name] == summary.total:
        ending = "not-judged"  # by pytest alone: not a pass of the stack
    return say(f"verdict.model.{ending}", model=one_line(model)) if model else say(f"verdict.subset.{ending}"), body


def _well(summary: Summary, cases: Phrase) -> Phrase:
    passed, total = summary.counts[outcomes.Passed.name], summary.total
    if passed == total:
        return counted("verdict.all-passed", total)
    others = (outcomes.Waived.name, outcomes.Disputed.name, outcomes.NotEmulated.name, outcomes.NotJudged.name)
    more = tuple(counted(f"verdict.{name}", summary.counts[name]) for name in others if summary.counts[name])
    said = say("verdict.passed", n=f"{passed:,}", cases=cases)
    return say("verdict.and", said=said, more=more) if more else said
