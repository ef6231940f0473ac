"""From a run log to what it means: counts, the verdict, the exit code. All judging of a run as a whole is done here.

The closed world: every case of the manifest has exactly one outcome, and a case without a record is ``not-run``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import (
    Errored,
    Failed,
    Fallback,
    NotEmulated,
    NotRun,
    Passed,
    Unsupported,
    Waived,
)
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.stack import Stack
from pytest_ascend.report.audit import audited
from pytest_ascend.report.contents import SUBSET, Footer, Run

#: The four kinds of verdict on a run.
CONFORMS = "conforms"
DOES_NOT_CONFORM = "does-not-conform"
INCOMPLETE = "incomplete"
PARTIAL = "subset"

#: Outcomes in the order in which people want to hear of them: what is wrong, what is missing, what is well.
ORDER = tuple(kind.name for kind in (Failed, Errored, Fallback, Unsupported, NotRun, NotEmulated, Waived, Passed))
_DEVIATIONS = (Failed.name, Errored.name, Fallback.name, Unsupported.name)
_NOT_EXECUTED = (NotRun.name, NotEmulated.name)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What a run as a whole says: its ``kind``, whether the combination ``conforms``, and a sentence for people.

    The sentence is made of ``notice`` (empty on an NPU), ``opening`` ("Conforms") and ``body`` ("all 60 cases ...").
    """

    kind: str
    conforms: bool
    notice: str
    opening: str
    body: str

    @property
    def sentence(self) -> str:
        """Give the whole sentence, with the notice before it where there is one."""
        return f"{self.notice} {self.opening}: {self.body}".strip()

    def to_dict(self) -> dict[str, str | bool]:
        """Give builtins only, as they stand in the footer of a log."""
        return {"kind": self.kind, "conforms": self.conforms, "sentence": self.sentence}


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All that is known of a run when it is over.

    ``results`` has one record for each case of the manifest, in its order. ``counts`` has every outcome, zeros
    included, in the order of ``ORDER``. ``executed`` counts the cases that the device really ran. ``contradictions``
    are sentences on what the footer claims against the records. ``lines`` gives the line of the log by case id.
    """

    run: Run
    results: tuple[ResultRecord, ...]
    counts: Mapping[str, int]
    executed: int
    contradictions: tuple[str, ...]
    verdict: RunVerdict
    lines: Mapping[str, int]

    @property
    def deviations(self) -> int:
        """The number of cases that ran and are not conformant."""
        return sum(self.counts[name] for name in _DEVIATIONS)

    @property
    def missing(self) -> int:
        """The number of cases that had to run and did not."""
        return self.counts[NotRun.name]

    def footer(self, finished: str) -> Footer:
        """Give the last line of the log; ``finished`` is a time in ISO 8601 with its offset."""
        counts = {name: count for name, count in self.counts.items() if count}
        return Footer(finished=finished, records=len(self.run.records), counts=counts, verdict=self.verdict.to_dict())


def summarise(run: Run) -> Summary:
    """Judge a run by its records alone; what its footer claims is only compared with that."""
    results = tuple(_results(run))
    found = Counter(result.outcome.name for result in results)
    summary = Summary(
        run=run,
        results=results,
        counts={name: found[name] for name in ORDER},
        executed=sum(found[name] for name in ORDER if name not in _NOT_EXECUTED),
        contradictions=(),
        verdict=RunVerdict(INCOMPLETE, False, notice(run.header.stack), "", ""),
        lines={record.case.id: index + 2 for index, record in enumerate(run.records)},
    )
    summary = replace(summary, verdict=_verdict(summary))
    contradictions = tuple(_contradictions(summary))
    if not contradictions:
        return summary
    summary = replace(summary, contradictions=contradictions)
    return replace(summary, verdict=_verdict(summary))


def exit_code(summary: Summary) -> int:
    """Give 0 for a run that conforms or a subset without fault, 5 where nothing was executed, otherwise 1."""
    if not summary.executed:
        return 5
    faultless = not summary.deviations and not _is_incomplete(summary)
    return 0 if summary.verdict.conforms or (summary.verdict.kind == PARTIAL and faultless) else 1


def notice(stack: Stack) -> str:
    """Say loudly that no NPU computed anything; empty where one did."""
    if stack.emulated:
        return "Emulated device: says nothing about any NPU."
    if stack.device != "npu":
        return f"Device {stack.device}: says nothing about any NPU."
    return ""


def _results(run: Run) -> Iterator[ResultRecord]:
    records = {record.case.id: record for record in run.records}
    reason = "no record in the log" if run.ended else "the run was stopped before this case"
    for case in run.header.manifest:
        record = records.get(case.id)
        yield audited(record, run.header.stack) if record else _not_run(case, reason)


def _not_run(case: Case, reason: str) -> ResultRecord:
    return ResultRecord(case=case, node_id="", outcome=NotRun(reason=reason))


def _contradictions(summary: Summary) -> Iterator[str]:
    footer = summary.run.footer
    if footer is None:
        return
    if {**dict.fromkeys(ORDER, 0), **footer.counts} != dict(summary.counts):
        yield f"The footer counts {_listed(footer.counts)}; the records give {_listed(summary.counts)}."
    if footer.verdict["conforms"] != summary.verdict.conforms:
        yield "The footer's verdict is not the one that the records give."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"


def _verdict(summary: Summary) -> RunVerdict:
    kind, said = _kind(summary), notice(summary.run.header.stack)
    opening, body = _SENTENCES[kind](summary)
    if said:
        opening = _WITHOUT_NPU.get(opening, opening)
    return RunVerdict(kind, kind == CONFORMS, said, opening, body)


def _kind(summary: Summary) -> str:
    if summary.run.header.selection.kind == SUBSET:
        return PARTIAL
    if summary.deviations:
        return DOES_NOT_CONFORM
    return INCOMPLETE if _is_incomplete(summary) else CONFORMS


def _is_incomplete(summary: Summary) -> bool:
    return bool(summary.missing or summary.contradictions or not summary.run.ended or not summary.executed)


def _conforms(summary: Summary) -> tuple[str, str]:
    return "Conforms", f"{_well(summary)}, at level {summary.run.header.level}."


def _does_not_conform(summary: Summary) -> tuple[str, str]:
    return "Does not conform", f"{_bad(summary)} of {_cases(summary)}.{_incompleteness(summary, ' Incomplete: {}.')}"


def _incomplete(summary: Summary) -> tuple[str, str]:
    if not summary.executed:
        return "Not conformant", f"nothing was executed, of {_cases(summary)}."
    return "Not conformant: incomplete", _incompleteness(summary, "{}.")


def _subset(summary: Summary) -> tuple[str, str]:
    reason = summary.run.header.selection.reason
    selected = f" (selected: {reason})" if reason else ""
    if not summary.executed:
        return _SUBSET, f"nothing was executed, of {_cases(summary)}{selected}."
    body = f"{_bad(summary)} of {_cases(summary)}" if summary.deviations else _well(summary)
    return _SUBSET, f"{body}{selected}.{_incompleteness(summary, ' Incomplete: {}.')}"


_SUBSET = "A subset, not a full run"
_SENTENCES = {
    CONFORMS: _conforms,
    DOES_NOT_CONFORM: _does_not_conform,
    INCOMPLETE: _incomplete,
    PARTIAL: _subset,
}
#: Words that promise nothing of any NPU, for devices that are none.
_WITHOUT_NPU = {
    "Conforms": "Passes",
    "Does not conform": "Does not pass",
    "Not conformant": "Not passed",
    "Not conformant: incomplete": "Not passed: incomplete",
}


def _cases(summary: Summary) -> str:
    total = len(summary.results)
    return "1 case" if total == 1 else f"{total:,} cases"


def _bad(summary: Summary) -> str:
    return _joined(f"{summary.counts[name]:,} {name}" for name in _DEVIATIONS if summary.counts[name])


def _well(summary: Summary) -> str:
    passed, total = summary.counts[Passed.name], len(summary.results)
    if passed == total:
        return "the only case passed" if total == 1 else f"all {total:,} cases passed"
    waived, lacking = summary.counts[Waived.name], summary.counts[NotEmulated.name]
    said = f"{passed:,} of {_cases(summary)} passed"
    if waived:
        said += f", {waived:,} {'is' if waived == 1 else 'are'} waived"
    if lacking:
        said += f", {lacking:,} {'needs' if lacking == 1 else 'need'} what the emulated device lacks"
    return said


def _incompleteness(summary: Summary, form: str) -> str:
    parts = [f"{summary.missing:,} of {_cases(summary)} did not run"] if summary.missing else []
    if not summary.run.ended:
        parts.append("the run was stopped before its end")
    if summary.contradictions:
        parts.append("the footer contradicts the records")
    return form.format(_joined(parts)) if parts else ""


def _joined(parts: Iterator[str] | list[str]) -> str:
    *most, last = list(parts)
    return f"{', '.join(most)} and {last}" if most else last
