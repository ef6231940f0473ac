"""The page's content in order: counted, sorted, worded and cut before a template places it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from pytest_ascend.page import View, sections
from pytest_ascend.page.casedata import details_of, index_of
from pytest_ascend.page.changes import change_data, changes_of, name_of
from pytest_ascend.page.sections import FIRST_LIMIT, ROWS_LIMIT, SEEN_LIMIT
from pytest_ascend.records.bounds import moment
from pytest_ascend.records.case import OPTIONAL, Stack
from pytest_ascend.records.census import KINDS
from pytest_ascend.records.outcome import Disputed, NotEmulated, NotRun, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import FULL, SUBSET
from pytest_ascend.system import figures
from pytest_ascend.system.suites import STAGES
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, KnownCause, causes_of, known_causes, not_emulated
from pytest_ascend.verdict.columns import columns_of
from pytest_ascend.verdict.diff import compare
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, in_both, say
from pytest_ascend.verdict.summary import Summary

#: Parts of a stack that are not versions, and are shown elsewhere.
_NO_VERSIONS = ("device", "emulated")
_SEVERITIES = ("error", "warning", "note", "unknown")


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and its value; an empty value is shown as unknown."""

    name: Phrase | str
    value: Phrase | str


def page_of(summary: Summary, *, against: Summary | None = None) -> View:
    """Arrange a summary as a page, with the changes since the run ``against``.

    ``label`` marks every section if no NPU computed anything; ``looks`` are the classes of the body.
    """
    header, verdict, results = summary.run.header, summary.verdict, summary.results
    loosened = [each for each in results if evidence.loosened(each)]
    log, label, counts = sections.log_name(summary), label_of(header.stack), summary.counts
    causes, known, lacking = causes_of(results), known_causes(results), not_emulated(results)
    bad = [each for each in causes if each.outcome != NotRun.name]
    absent = [*(each for each in causes if each.outcome == NotRun.name), *lacking]
    cards = tuple(sections.cause_card(each, summary) for each in sorted(bad, key=lambda each: -len(each.cases)))
    diff = compare(against, summary) if against else None
    shown = tuple(sections.suites(results, emulated=header.stack.emulated))
    titles, numbered = _numbered([*causes, *lacking], known)
    cases = sum(len(each.cases) for each in known)
    not_npu = " not-npu" if summary.verdict.notice else ""
    passed = " well" if summary.verdict.opening.key == "verdict.model.passed" else ""
    return View(
        title=f"{f'{label} · '.upper() if label else ''}{verdict.opening} · {name_of(header.stack)} · pytest-ascend",
        kind_of_page=say("page.conformance"),
        looks=(f"kind-{summary.verdict.kind}{not_npu}{' faulty' if summary.deviations else passed}"),
        combined=name_of(header.stack),
        notice=verdict.notice,
        opening=verdict.opening,
        body=verdict.body,
        label=label,
        against=changes_of(diff) if diff else None,
        findings=tuple(_findings(header.doctor)),
        census=tuple(_census(header.census)),
        namespaces=tuple(evidence.line(name) for name in header.census),
        by_outcome=say("page.by-outcome", cases=counted("cases", len(results))),
        warnings=tuple(_warnings(summary)),
        tiles=tuple(_tiles(summary)),
        combination=tuple(combination(header.stack)),
        run_facts=tuple(_run_facts(summary)),
        run_line=tuple(each.value for each in _run_facts(summary) if each.name != say("run.run")),
        causes=cards[:SEEN_LIMIT],
        small_causes=cards[SEEN_LIMIT:ROWS_LIMIT],
        first_causes=cards[:FIRST_LIMIT],
        more_causes=f"{len(cards) - FIRST_LIMIT:,}" if len(cards) > FIRST_LIMIT else "",
        by_cause=say("cause.n", cases=counted("cases", summary.deviations), causes=counted("causes", len(bad))),
        known=(
            say("cause.known", cases=counted("cases", cases), causes=counted("causes", len(known)))
            if cases
            else SILENCE
        ),
        suites=shown,
        stages=tuple(
            each for each in STAGES if header.selection.kind == FULL or any(suite.stage == each for suite in shown)
        ),
        nearest=sections.nearest(results),
        absent=tuple(sections.cause_card(each, summary) for each in absent[:ROWS_LIMIT]),
        absent_count=f"{counts[NotRun.name] + counts[NotEmulated.name]:,}",
        waivers=tuple(sections.waiver(each, header.started) for each in known[:ROWS_LIMIT]),
        waived_count=f"{counts[Waived.name] + counts[Disputed.name]:,}",
        loosened=tuple(Fact(each.case.id, evidence.loosened(each)) for each in loosened[:ROWS_LIMIT]),
        columns=columns_of("page"),
        standards=tuple(_standards(results)),
        options=tuple(Fact(evidence.line(key), _option(value)) for key, value in header.options.items()),
        log=log,
        data={
            **index_of(summary, numbered),
            "causes": [[figures.one_line(each), figures.one_line(title)] for each, title in titles],
            "arguments": evidence.again(summary.run.header, "").removesuffix("''").rstrip(),
            "log": log,
            "changes": change_data(diff) if diff else [],
        },
        details=details_of(summary),
    )


def _numbered(causes: Sequence[Cause], known: Sequence[KnownCause]) -> tuple[list[tuple[str, str]], Mapping[str, int]]:
    """Return id and title of every cause, and each case's cause as an index into that list, by case id."""
    found = [(each.id, each.title, each.cases) for each in causes]
    found += [(f"known:{each.cause}", each.cause, each.cases) for each in known]
    numbers = {record.case.id: number for number, (_, _, cases) in enumerate(found) for record in cases}
    return [(name, title) for name, title, _ in found], numbers


def combination(stack: Stack) -> Iterator[Fact]:
    """Yield every part of a stack with its version; optional ones where they are installed."""
    for each in fields(stack):
        if each.name not in _NO_VERSIONS and (each.name not in OPTIONAL or getattr(stack, each.name)):
            yield Fact(say(f"stack.{each.name}"), evidence.line(str(getattr(stack, each.name))))


def label_of(stack: Stack) -> Phrase:
    """Return the label of every section if no NPU computed anything."""
    if stack.emulated:
        return say("label.emulated")
    return SILENCE if stack.device == "npu" else say("label.other", device=evidence.line(stack.device))


def _findings(doctor: Mapping[str, Any]) -> Iterator[View]:
    """Yield the doctor's findings; ``looks`` is the severity if the page knows it."""
    for each in doctor.get("findings", ()):
        known = each["severity"] in _SEVERITIES
        yield View(
            severity=say(f"doctor.{each['severity']}") if known else evidence.line(each["severity"]),
            looks=each["severity"] if known else "note",
            what=in_both(evidence.line(each["what"])),
            evidence=tuple(evidence.line(one) for one in each["evidence"][:ROWS_LIMIT]),
            why=in_both(evidence.line(each["why"])),
            remedy=in_both(evidence.line(each["remedy"])),
            is_open=each["severity"] == "error",
        )


def _census(census: Mapping[str, Mapping[str, int]]) -> Iterator[View]:
    """Yield a row for each kind of operator, known ones first, with its count in each namespace."""
    kinds = dict.fromkeys([*KINDS, *(kind for counts in census.values() for kind in counts)])
    for kind in islice(kinds, ROWS_LIMIT):
        counts = [counts.get(kind, 0) for counts in census.values()]
        if any(counts):
            meaning = say(f"census.{kind}") if kind in KINDS else SILENCE
            shown = tuple(f"{count:,}" if count else "" for count in counts)
            yield View(kind=evidence.line(kind), meaning=meaning, counts=shown)


def _tiles(summary: Summary) -> Iterator[View]:
    """Yield the count of each outcome; ``x`` and ``width`` place it in the bar, in percent."""
    total, x = len(summary.results), 0.0
    for name, count in summary.counts.items():
        width = 100 * count / total if total else 0.0
        share = figures.share(count, total)
        yield View(outcome=name, count=f"{count:,}", share=share, x=f"{x:.3f}%", width=f"{width:.3f}%")
        x += width


def _run_facts(summary: Summary) -> Iterator[Fact]:
    header, footer = summary.run.header, summary.run.footer
    started = moment(header.started)
    yield Fact(say("run.level"), header.level)
    yield Fact(say("run.selection"), _selection(summary))
    executed = say("run.executed-of", n=f"{summary.executed:,}", cases=counted("cases", summary.total))
    yield Fact(say("run.executed"), executed)
    yield Fact(say("run.started"), figures.moment(started))
    if footer:
        took_s = (moment(footer.finished) - started).total_seconds()
        yield Fact(say("run.took"), in_both(figures.duration(took_s), "findings") if took_s >= 1 else "< 1 s")
    yield Fact(say("run.run"), evidence.line(header.run_id))


def _warnings(summary: Summary) -> Iterator[Phrase | str]:
    """Yield what must not be overlooked: a footer that claims something else, and planted faults."""
    yield from (figures.one_line(each) for each in summary.contradictions)
    if named := evidence.blind(summary.results):
        yield named
    if faults := summary.run.header.options.get("faults"):
        yield say("page.faults", faults=_option(faults))


def _option(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name}: {each}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value)
    return evidence.line(str(value)) or "–"


def _selection(summary: Summary) -> Phrase:
    selection = summary.run.header.selection
    if selection.kind != SUBSET:
        return say("run.full")
    reason = evidence.line(selection.reason)
    return say("run.subset-by", reason=in_both(reason, "findings")) if reason else say("run.subset")


def _standards(results: Iterable[ResultRecord]) -> Iterator[Fact]:
    found = Counter(verdict.standard for result in results for verdict in result.verdicts)
    for name, count in found.most_common(50):
        yield Fact(evidence.line(name) or "–", say("run.comparisons", n=f"{count:,}"))
