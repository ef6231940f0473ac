"""From a run log to counts, verdict and exit code. A run as a whole is judged only here.

The closed world: every case of the manifest has exactly one outcome, and a case without a record is ``not-run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pytest_ascend.records.case import OWN_MODEL, Stack
from pytest_ascend.records.outcome import (
    Disputed,
    Errored,
    Failed,
    Fallback,
    Flaky,
    NotEmulated,
    NotJudged,
    NotRun,
    Outcome,
    Passed,
    Unsupported,
    Waived,
)
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import SUBSET, Footer, FooterVerdict, Run
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.system.text import one_line
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, in_both, say


def verified(record: ResultRecord, stack: Stack) -> ResultRecord:
    """Return the record with the outcome that its own evidence supports."""
    outcome = _contradicted(record, stack)
    return record.but(outcome_name=outcome.name, reason=outcome.reason) if outcome else record


def _contradicted(record: ResultRecord, stack: Stack) -> Outcome | None:
    name = record.outcome_name
    if name == NotEmulated.name and not stack.emulated:
        return Errored(reason="recorded as not-emulated, on a device that is not emulated")
    if name in (Waived.name, Disputed.name) and not record.reason:
        return Errored(reason=f"{name} without a reason")
    return _unearned(record) if name == Passed.name else None


def _unearned(record: ResultRecord) -> Outcome | None:
    """Return the true outcome of a recorded pass, None if it is justified."""
    if any(not verdict.agrees for verdict in record.verdicts):
        return Failed(reason="recorded as passed, but a comparison disagrees")
    if not record.verdicts and not record.measurements:
        return Errored(reason="passed without comparing or measuring anything")
    if record.fallbacks:
        return Fallback(reason=f"computed on the CPU: {', '.join(record.fallbacks)}")
    return None


#: The four kinds of verdict on a run.
CONFORMS = "conforms"
DOES_NOT_CONFORM = "does-not-conform"
INCOMPLETE = "incomplete"
PARTIAL = "subset"

#: Outcomes in the order of reports: wrong, missing, fine.
ORDER = tuple(
    kind.name
    for kind in (
        *(Failed, Errored, Flaky, Fallback, Unsupported, NotRun, NotEmulated, NotJudged, Disputed, Waived, Passed),
    )
)
_DEVIATIONS = (Failed.name, Errored.name, Flaky.name, Fallback.name, Unsupported.name)
_NOT_EXECUTED = (NotRun.name, NotEmulated.name)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run: its ``kind``, whether the combination ``conforms``, and a sentence.

    The sentence is made of ``notice`` (nothing on an NPU), ``opening`` ("Conforms") and ``body`` ("all 60 cases ...").
    """

    kind: str
    conforms: bool
    notice: Phrase
    opening: Phrase
    body: Phrase

    @property
    def sentence(self) -> str:
        """Return the whole sentence in English, after the notice, if any."""
        return f"{self.notice} {self.opening}: {self.body}".strip()

    def in_footer(self) -> FooterVerdict:
        """Return the verdict in the form of the log's footer."""
        return FooterVerdict(self.kind, self.conforms, self.sentence)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The result of a finished run.

    ``results`` has one record for each case of the manifest, in its order.
    ``counts`` has every outcome, zeros included, in the order of ``ORDER``. ``executed`` counts the cases that the
    device really ran. ``contradictions`` are sentences on what the footer claims against the records. ``lines`` gives
    the line of the log by case id.
    """

    run: Run
    results: tuple[ResultRecord, ...]
    counts: Mapping[str, int]
    executed: int
    contradictions: tuple[str, ...]
    verdict: RunVerdict
    lines: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of cases that had to run."""
        return sum(self.counts.values())

    @property
    def deviations(self) -> int:
        """The number of cases that ran and are not conformant."""
        return sum(self.counts[name] for name in _DEVIATIONS)

    @property
    def missing(self) -> int:
        """The number of cases that had to run and did not."""
        return self.counts[NotRun.name]

    def footer(self, finished: str) -> Footer:
        """Return the last line of the log; ``finished`` is a time in ISO 8601 with its offset."""
        counts = {name: count for name, count in self.counts.items() if count}
        return Footer(finished=finished, records=len(self.run.records), counts=counts, verdict=self.verdict.in_footer())


def summarise(run: Run) -> Summary:
    """Judge a run by its records alone; what its footer claims is only compared with that."""
    results = tuple(results_of(run))
    lines = {record.case.id: run.line(index) for index, record in enumerate(run.records)}
    return judged(run, Counter(result.outcome_name for result in results), results=results, lines=lines)


def judged(
    run: Run,
    found: Mapping[str, int],
    *,
    results: tuple[ResultRecord, ...] = (),
    lines: Mapping[str, int] = MappingProxyType({}),
) -> Summary:
    """Judge a run by the outcomes ``found`` for its cases, each of which is counted once."""
    counts = {name: found.get(name, 0) for name in ORDER}
    summary = Summary(
        run=run,
        results=results,
        counts=counts,
        executed=sum(counts[name] for name in ORDER if name not in _NOT_EXECUTED),
        contradictions=(),
        verdict=RunVerdict(INCOMPLETE, False, notice(run.header.stack), SILENCE, SILENCE),
        lines=lines,
    )
    summary = replace(summary, verdict=_verdict(summary))
    contradictions = tuple(_contradictions(summary))
    if not contradictions:
        return summary
    summary = replace(summary, contradictions=contradictions)
    return replace(summary, verdict=_verdict(summary))


def exit_code(summary: Summary) -> int:
    """Return 0 for a run that conforms or a subset without fault, 1 for one that does not.

    5 where nothing was executed; 7 where nothing that was executed deviates, and cases are missing because the
    machine failed.
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
    """Return "3 failed"."""
    return say("count-of-outcome", n=f"{count:,}", outcome=say(f"outcome.{name}"))


def results_of(run: Run, left_out: Collection[str] = ()) -> Iterator[ResultRecord]:
    """Yield the result of each case of the manifest, but for those whose records were ``left_out``."""
    records = {record.case.id: record for record in run.records}
    lost = run.lost
    reason = "no record in the log" if run.ended else "the run was stopped before this case"
    for case in run.header.manifest:
        if case.id in left_out:
            continue
        record = records.get(case.id)
        yield (
            verified(record, run.header.stack)
            if record
            else ResultRecord.of(case, "", NotRun(reason=lost.get(case.id, reason)))
        )


def _contradictions(summary: Summary) -> Iterator[str]:
    for missed in summary.run.missed_faults:
        yield f"The judge of this run did not see a planted fault: {missed}."
    footer = summary.run.footer
    if summary.run.broken:
        yield broken_chain(summary.run.broken)
    if footer is None:
        return
    counts = summary.counts
    if {**dict.fromkeys(counts, 0), **footer.counts} != counts:
        yield f"The footer counts {_listed(footer.counts)}; the records give {_listed(counts)}."
    if (footer.verdict.kind, footer.verdict.conforms) != (summary.verdict.kind, summary.verdict.conforms):
        yield "The footer's verdict is not the one that the records give."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"


def _verdict(summary: Summary) -> RunVerdict:
    kind, said = _kind(summary), notice(summary.run.header.stack)
    opening, body = _SENTENCES[kind](summary)
    promises_less = said and opening.key in _WITHOUT_NPU
    return RunVerdict(kind, kind == CONFORMS, said, say(f"{opening.key}.other") if promises_less else opening, body)


def _kind(summary: Summary) -> str:
    if summary.run.header.selection.kind == SUBSET:
        return PARTIAL
    if summary.deviations:
        return DOES_NOT_CONFORM
    # Only a subset has tests of the user's: in the bundled suites pytest alone decides nothing.
    return INCOMPLETE if _is_incomplete(summary) or summary.counts[NotJudged.name] else CONFORMS


def _is_incomplete(summary: Summary) -> bool:
    return bool(summary.missing or summary.contradictions or not summary.run.ended or not summary.executed)


def _conforms(summary: Summary) -> tuple[Phrase, Phrase]:
    return say("verdict.conforms"), say("verdict.at-level", said=_well(summary), level=summary.run.header.level)


def _does_not_conform(summary: Summary) -> tuple[Phrase, Phrase]:
    return say("verdict.does-not-conform"), _with_gaps(summary, _bad(summary))


def _incomplete(summary: Summary) -> tuple[Phrase, Phrase]:
    if not summary.executed:
        return say("verdict.not-conformant"), say("verdict.end", said=say("verdict.nothing", cases=_cases(summary)))
    return say("verdict.incomplete"), say("verdict.gaps", gaps=_gaps(summary))


def _subset(summary: Summary) -> tuple[Phrase, Phrase]:
    model = str(summary.run.header.options.get("model") or "")
    reasons = summary.run.header.selection.reason.split("; ")
    # The heading names the model already.
    reason = "; ".join(each for each in reasons if each and not (model and each == OWN_MODEL))
    if not summary.executed:
        body = say("verdict.nothing", cases=_cases(summary))
    else:
        body = _bad(summary) if summary.deviations else _well(summary)
    if reason:
        body = say("verdict.selected", said=body, reason=in_both(reason, "findings"))
    is_well = summary.executed and not summary.deviations and not _is_incomplete(summary)
    ending = "passed" if is_well else "failed"
    if is_well and summary.counts[NotJudged.name] == summary.total:
        ending = "not-judged"  # by pytest alone: no pass of the stack
    opening = say(f"verdict.model.{ending}", model=one_line(model)) if model else say(f"verdict.subset.{ending}")
    return opening, _with_gaps(summary, body)


_SENTENCES = {
    CONFORMS: _conforms,
    DOES_NOT_CONFORM: _does_not_conform,
    INCOMPLETE: _incomplete,
    PARTIAL: _subset,
}
#: Openings that a device which is no NPU gets in words that promise nothing of any.
_WITHOUT_NPU = ("verdict.conforms", "verdict.does-not-conform", "verdict.not-conformant", "verdict.incomplete")


def _cases(summary: Summary) -> Phrase:
    return counted("cases", summary.total)


def _bad(summary: Summary) -> Phrase:
    found = tuple(counted_outcome(name, summary.counts[name]) for name in _DEVIATIONS if summary.counts[name])
    return say("verdict.bad", found=found, cases=_cases(summary))


def _well(summary: Summary) -> Phrase:
    passed, total = summary.counts[Passed.name], summary.total
    if passed == total:
        return counted("verdict.all-passed", total)
    parts = [say("verdict.passed", n=f"{passed:,}", cases=_cases(summary))]
    parts += [
        counted(f"verdict.{name}", summary.counts[name])
        for name in (Waived.name, Disputed.name, NotEmulated.name, NotJudged.name)
        if summary.counts[name]
    ]
    return say("verdict.and", said=parts[0], more=tuple(parts[1:])) if parts[1:] else parts[0]


def _with_gaps(summary: Summary, said: Phrase) -> Phrase:
    gaps = _gaps(summary)
    return say("verdict.with-gaps", said=said, gaps=gaps) if gaps else say("verdict.end", said=said)


def _gaps(summary: Summary) -> tuple[Phrase, ...]:
    missing = [say("verdict.missing", n=f"{summary.missing:,}", cases=_cases(summary))] if summary.missing else []
    if summary.counts[NotJudged.name] and summary.run.header.selection.kind != SUBSET:
        missing.append(counted("verdict.not-judged", summary.counts[NotJudged.name]))
    stopped = [] if summary.run.ended else [say("verdict.stopped")]
    contradicted = [say("verdict.contradicted")] if summary.contradictions else []
    return (*missing, *stopped, *contradicted)
