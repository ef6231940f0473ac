"""The parts of the page: causes, known deviations, suites, and the symbols of outcomes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from urllib.parse import quote

from pytest_ascend.page import View
from pytest_ascend.page.tables import charts, tables
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system import figures
from pytest_ascend.system import suites as bundled
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, KnownCause
from pytest_ascend.verdict.columns import link, tally
from pytest_ascend.verdict.phrase import SILENCE, counted, in_both, say
from pytest_ascend.verdict.summary import Summary

#: The symbol of each outcome, so that colour is not needed, in the order of the legend.
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


#: Rows of a table, or causes, that are listed.
ROWS_LIMIT = 300
#: Causes that the first screen names.
FIRST_LIMIT = 5
#: Causes that their section shows at once; the others are folded below them.
SEEN_LIMIT = 50


def anchor(cause: str) -> str:
    """Return the permanent link of a cause within its page."""
    return f"#cause={quote(cause, safe='/:')}"


def cause_card(cause: Cause, summary: Summary) -> View:
    """Return cases with a common cause as shown on the page: ``href`` links to it, ``all_href`` to all its cases.

    ``example`` is the id of its simplest case, and ``command`` runs that again, "" if nothing does.
    """
    first, number = cause.representative, len(cause.cases)
    count = counted("cases", number)
    many = say("cause.of", n=f"{number:,}", total=f"{cause.ran:,}") if cause.ran > number else count
    return View(
        id=cause.id,
        href=anchor(cause.id),
        all_href=f"#cases?cause={quote(cause.id, safe='/:')}",
        outcome=cause.outcome,
        title=in_both(evidence.line(first.case.id) if cause.is_named_by_its_finding else cause.title, "findings")
        or say("absent.no-reason"),
        number=number,
        count=many,
        finding=in_both(cause.finding, "findings"),
        example=evidence.line(first.case.id),
        example_href=link(first.case.id),
        command=evidence.again(summary.run.header, first.node_id) if first.node_id else "",
    )


def suites(results: Iterable[ResultRecord], *, emulated: bool = False) -> Iterator[View]:
    """Yield a section for each suite with cases in the run, folded at first; the script lays out its cases."""
    by_suite: dict[str, list[ResultRecord]] = {}
    for result in results:
        by_suite.setdefault(result.case.suite, []).append(result)
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


def nearest(results: Iterable[ResultRecord], most: int = FIRST_LIMIT) -> tuple[tuple[str, str, str], ...]:
    """Return the address, id and share of the limit of the passed cases that are nearest to their limit."""
    used = ((evidence.limit_used(each), each) for each in results if each.outcome.name == Passed.name)
    found = heapq.nlargest(most, ((share, each.case.id) for share, each in used if share))
    return tuple((link(name), evidence.line(name), figures.used(share)) for share, name in found)


def waiver(cause: KnownCause, started: str) -> View:
    """Return a known cause with its owner and expiry date; ``started`` is the start of the run.

    ``is_over`` says that its entry had expired then.
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


def log_name(summary: Summary) -> str:
    """Return the name of a summary's log file, without its folder."""
    return figures.one_line(PurePath(summary.run.path).name or "run.jsonl")
