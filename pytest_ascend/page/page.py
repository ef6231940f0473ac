"""The page's content in order: counted, sorted, worded and cut before a template places it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import islice
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import quote

from pytest_ascend.page import View
from pytest_ascend.page.casedata import details_of, index_of
from pytest_ascend.page.changes import change_data, changes_of, name_of
from pytest_ascend.page.tables import charts, tables
from pytest_ascend.records.bounds import moment
from pytest_ascend.records.case import OPTIONAL, Stack
from pytest_ascend.records.census import KINDS
from pytest_ascend.records.outcome import Disputed, NotEmulated, NotRun, Passed, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import FULL, SUBSET
from pytest_ascend.system import figures
from pytest_ascend.system import suites as bundled
from pytest_ascend.system.groups import by_key
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, KnownCause, causes_of, known_causes, not_emulated
from pytest_ascend.verdict.columns import columns_of, link, tally
from pytest_ascend.verdict.diff import compare
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, in_both, say
from pytest_ascend.verdict.summary import Summary

#: Symbols of the outcomes, so that colour is not needed, in the order of the legend.
SYMBOLS = {
    "failed": "✗",
    "errored": "!",
    "flaky": "~",
    "fallback": "↩",
    "unsupported": "∅",
    "not-run": "–",
    "not-emulated": "○",
    "not-judged": "·",
    "waived": "≈",
    "disputed": "?",
    "passed": "✓",
}
#: Number of rows of a table, or causes, that are listed.
ROWS_LIMIT = 300
#: Number of causes that the first screen names.
FIRST_LIMIT = 5
#: Number of causes that their section shows unfolded.
SEEN_LIMIT = 50


#: A name and its value; an empty value is shown as unknown.
Fact: TypeAlias = tuple[Phrase | str, Phrase | str]


def page_of(summary: Summary, *, against: Summary | None = None) -> View:
    """Arrange a summary as a page, with the changes since the run ``against``.

    ``label`` marks every section if no NPU computed anything; ``looks`` has the CSS classes of the body.
    """
    header, verdict, results = summary.run.header, summary.verdict, summary.results
    loosened = [each for each in results if evidence.loosened(each)]
    label, counts = label_of(header.stack), summary.counts
    log = figures.one_line(PurePath(summary.run.path).name or "run.jsonl")
    causes, known, lacking = causes_of(results), known_causes(results), not_emulated(results)
    bad = [each for each in causes if each.outcome != NotRun.name]
    absent = [*(each for each in causes if each.outcome == NotRun.name), *lacking]
    cards = tuple(cause_card(each, summary) for each in sorted(bad, key=lambda each: -len(each.cases)))
    diff = compare(against, summary) if against else None
    shown = tuple(suites(results, emulated=header.stack.emulated))
    titled = [(each.id, each.title, each.cases) for each in (*causes, *lacking)]
    titled += [(f"known:{each.cause}", each.cause, each.cases) for each in known]
    waived = SILENCE
    if cases := sum(len(each.cases) for each in known):
        waived = say("cause.known", cases=counted("cases", cases), causes=counted("causes", len(known)))
    standards = Counter(each.standard for result in results for each in result.verdicts).most_common(50)
    used = ((evidence.limit_used(each), each.case.id) for each in results if each.outcome.name == Passed.name)
    nearest = heapq.nlargest(FIRST_LIMIT, ((share, name) for share, name in used if share))
    stages = {suite.stage for suite in shown}
    not_npu = " not-npu" if verdict.notice else ""
    passed = " well" if verdict.opening.key == "verdict.model.passed" else ""
    return View(
        title=f"{f'{label} · '.upper() if label else ''}{verdict.opening} · {name_of(header.stack)} · pytest-ascend",
        kind_of_page=say("page.conformance"),
        looks=(f"kind-{verdict.kind}{not_npu}{' faulty' if summary.deviations else passed}"),
        combined=name_of(header.stack),
        verdict=verdict,
        label=label,
        against=changes_of(diff) if diff else None,
        findings=tuple(_findings(header.doctor)),
        census=tuple(_census(header.census)),
        namespaces=tuple(evidence.line(name) for name in header.census),
        by_outcome=say("page.by-outcome", cases=counted("cases", len(results))),
        # Must not be overlooked: a footer with another claim, and planted faults.
        warnings=(
            *map(figures.one_line, summary.contradictions),
            *filter(None, [evidence.blind(results)]),
            *([say("page.faults", faults=_option(faults))] if (faults := header.options.get("faults")) else []),
        ),
        tiles=tuple(_tiles(summary)),
        combination=tuple(combination(header.stack)),
        run_facts=tuple(_run_facts(summary)),
        run_line=tuple(value for name, value in _run_facts(summary) if name != say("run.run")),
        causes=cards[:SEEN_LIMIT],
        small_causes=cards[SEEN_LIMIT:ROWS_LIMIT],
        first_causes=cards[:FIRST_LIMIT],
        more_causes=f"{len(cards) - FIRST_LIMIT:,}" if len(cards) > FIRST_LIMIT else "",
        by_cause=say("cause.n", cases=counted("cases", summary.deviations), causes=counted("causes", len(bad))),
        known=waived,
        suites=shown,
        stages=tuple(each for each in bundled.STAGES if header.selection.kind == FULL or each in stages),
        # Address, id and share of the limit of the passed cases closest to their limit.
        nearest=tuple((link(name), evidence.line(name), figures.used(share)) for share, name in nearest),
        absent=tuple(cause_card(each, summary) for each in absent[:ROWS_LIMIT]),
        absent_count=f"{counts[NotRun.name] + counts[NotEmulated.name]:,}",
        waivers=tuple(waiver(each, header.started) for each in known[:ROWS_LIMIT]),
        waived_count=f"{counts[Waived.name] + counts[Disputed.name]:,}",
        loosened=tuple((each.case.id, evidence.loosened(each)) for each in loosened[:ROWS_LIMIT]),
        columns=columns_of("page"),
        standards=tuple((evidence.line(name) or "–", say("run.comparisons", n=f"{n:,}")) for name, n in standards),
        options=tuple((evidence.line(key), _option(value)) for key, value in header.options.items()),
        log=log,
        data={
            **index_of(summary, {each.case.id: n for n, (_, _, those) in enumerate(titled) for each in those}),
            "causes": [[figures.one_line(each), figures.one_line(title)] for each, title, _ in titled],
            "arguments": evidence.again(summary.run.header, "").removesuffix("''").rstrip(),
            "log": log,
            "changes": change_data(diff) if diff else [],
        },
        details=details_of(summary),
    )


def combination(stack: Stack) -> Iterator[Fact]:
    """Yield every part of a stack with its version; optional parts only if installed."""
    for each in fields(stack):
        if each.name not in ("device", "emulated") and (each.name not in OPTIONAL or getattr(stack, each.name)):
            yield say(f"stack.{each.name}"), evidence.line(str(getattr(stack, each.name)))


def label_of(stack: Stack) -> Phrase:
    """Return the label of every section if no NPU computed anything."""
    if stack.emulated:
        return say("label.emulated")
    return SILENCE if stack.device == "npu" else say("label.other", device=evidence.line(stack.device))


def _findings(doctor: Mapping[str, Any]) -> Iterator[View]:
    """Yield the doctor's findings; ``looks`` is the severity if the page knows it."""
    for each in doctor.get("findings", ()):
        known = each["severity"] in ("error", "warning", "note", "unknown")
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
    started, reason = moment(header.started), evidence.line(header.selection.reason)
    part = say("run.subset-by", reason=in_both(reason, "findings")) if reason else say("run.subset")
    yield say("run.level"), header.level
    yield say("run.selection"), part if header.selection.kind == SUBSET else say("run.full")
    executed = say("run.executed-of", n=f"{summary.executed:,}", cases=counted("cases", summary.total))
    yield say("run.executed"), executed
    yield say("run.started"), figures.moment(started)
    if footer:
        took_s = (moment(footer.finished) - started).total_seconds()
        yield say("run.took"), in_both(figures.duration(took_s), "findings") if took_s >= 1 else "< 1 s"
    yield say("run.run"), evidence.line(header.run_id)


def _option(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name}: {each}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value)
    return evidence.line(str(value)) or "–"


def cause_card(cause: Cause, summary: Summary) -> View:
    """Return cases with a common cause for the page: ``href`` links to it, ``all_href`` to all its cases.

    ``example`` is the id of its simplest case, and ``command`` reruns that case, "" if nothing does.
    """
    first, number, quoted = cause.representative, len(cause.cases), quote(cause.id, safe="/:")
    title = evidence.line(first.case.id) if cause.is_named_by_its_finding else cause.title
    is_part = cause.ran > number
    return View(
        id=cause.id,
        href=f"#cause={quoted}",
        all_href=f"#cases?cause={quoted}",
        outcome=cause.outcome,
        title=in_both(title, "findings") or say("absent.no-reason"),
        number=number,
        count=say("cause.of", n=f"{number:,}", total=f"{cause.ran:,}") if is_part else counted("cases", number),
        finding=in_both(cause.finding, "findings"),
        example=evidence.line(first.case.id),
        example_href=link(first.case.id),
        command=evidence.again(summary.run.header, first.node_id) if first.node_id else "",
    )


def suites(results: Iterable[ResultRecord], *, emulated: bool = False) -> Iterator[View]:
    """Yield a section, initially folded, for each suite with cases in the run; the script lays out its cases."""
    by_suite = by_key((result.case.suite, result) for result in results)
    known = (*bundled.suites(), "user")
    order = [*(suite for suite in known if suite in by_suite), *(suite for suite in by_suite if suite not in known)]
    for number, suite in enumerate(order):
        title = say(f"suite.{suite}") if suite in known else say("suite.other", name=evidence.line(suite))
        found = by_suite[suite]
        subjects = {each.case.subject for each in found}
        good = [each for each in found if each.outcome_name == Passed.name]
        families, well = (Counter(evidence.line(each.case.family) for each in those) for those in (found, good))
        yield View(
            id=suite if suite in known else f"suite-{number}",
            suite=figures.one_line(suite),
            title=title,
            tally=tally(found),
            stage=bundled.describe(suite).stage,
            covered=say("covered.of", subjects=counted("subjects", len(subjects)), cases=counted("cases", len(found))),
            share=figures.share(len(good), len(found)),
            by_dtype=say("grid.by-dtype", title=title),
            tables=tuple(tables(found, emulated=emulated)),
            charts=charts(found),
            has_grid=bundled.describe(suite).grid,
            families=tuple(by_family({name: (well[name], count) for name, count in families.items()})),
        )


def by_family(families: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """Yield each family with the share of its cases that passed, of (passed, all); the smallest share first."""
    for name, (passed, number) in sorted(families.items(), key=lambda each: (each[1][0] / each[1][1], each[0])):
        yield name, f"{figures.share(passed, number)} ({passed:,} / {number:,})"


def waiver(cause: KnownCause, started: str) -> View:
    """Return a known cause with its owner and expiry date; ``started`` is the start of the run.

    ``is_over`` says whether its entry had expired then.
    """
    known = {name: evidence.line(str(text)) for name, text in cause.waiver.items()}
    expires = known.get("expires", "")
    return View(
        cause=cause.cause,
        kind=say(f"waivers.{cause.kind}") if cause.kind in ("limit", "defect") else SILENCE,
        count=counted("cases", len(cause.cases)),
        href=f"#cases?cause={quote(f'known:{cause.cause}', safe='/:')}",
        reason=in_both(known.get("reason") or evidence.finding(cause.cases[0]), "findings"),
        issue=known.get("issue", ""),
        owner=known.get("owner", ""),
        expires=expires,
        is_over=bool(expires) and expires < started[: len("2026-01-01")],
    )
