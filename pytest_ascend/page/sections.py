"""The parts of the page that list cases: entries, details, groups and whole suites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote as shell_quote

from pytest_ascend.page.chart import Chart
from pytest_ascend.page.chart_selection import charts
from pytest_ascend.page.tables import FigureTable, tables
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.causes import KnownCause
from pytest_ascend.verdict.grid import Grid, grid_of, link, tally
from pytest_ascend.verdict.phrase import SILENCE, Phrase, counted, say
from pytest_ascend.verdict.summary import Summary


@dataclass(frozen=True, slots=True)
class Appearance:
    """The sign of an outcome, which tells it apart without colour."""

    symbol: str


#: By outcome, in the order of the legend.
APPEARANCE = {
    "failed": Appearance("✗"),
    "errored": Appearance("!"),
    "flaky": Appearance("~"),
    "fallback": Appearance("↩"),
    "unsupported": Appearance("∅"),
    "not-run": Appearance("–"),
    "not-emulated": Appearance("○"),
    "waived": Appearance("≈"),
    "disputed": Appearance("?"),
    "passed": Appearance("✓"),
}


#: Cases that are written out in full; all others are a click away.
DETAILS_LIMIT = 60
#: Rows of a table, or names of a list, that are written out.
ROWS_LIMIT = 300
#: Columns of measurements in one table.
COLUMNS_LIMIT = 8
#: Measurements that say of one case where its time went: they stand with the case, and are no column.
_PROFILE = "profile_us_"
#: A grid with fewer rows is taken in at a glance and needs no tools.
TOOLS_ROWS = 8

#: The bundled suites in the order of the page: (suite, title). Others follow under their own names.
SUITES = (
    ("ops", say("suite.ops")),
    ("fused", say("suite.fused")),
    ("random", say("suite.random")),
    ("errors", say("suite.errors")),
    ("stability", say("suite.stability")),
    ("numerics", say("suite.numerics")),
    ("models", say("suite.models")),
    ("training", say("suite.training")),
    ("fusion", say("suite.fusion")),
    ("adaptation", say("suite.adaptation")),
    ("environment", say("suite.environment")),
    ("benchmarks", say("suite.benchmarks")),
    ("user", say("suite.user")),
)
#: Suites of many cases of a kind; the first ones of so many that a list would say nothing more.
_ONLY_GRID = ("ops", "fused", "random", "stability")
_WITH_GRID = (*_ONLY_GRID, "models")


#: Cases of one known cause that the table of causes names; the list of all cases has the others.
WAIVED_LIMIT = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One case as a row of a table: ``measures`` has a text for each measure column of the table."""

    id: str
    href: str
    outcome: str
    finding: str
    used: str
    duration: str
    measures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """One known cause with its cases; ``is_over`` says that its entry had expired when the run began."""

    cause: str
    kind: Phrase
    count: Phrase
    cases: tuple[tuple[str, str], ...]
    more: str
    reason: str
    issue: str
    owner: str
    expires: str
    is_over: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Detail:
    """One case in full."""

    entry: Entry
    comparisons: tuple[evidence.Comparison, ...]
    measures: tuple[evidence.Measure, ...]
    fallbacks: tuple[str, ...]
    text: str
    command: str
    program: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Cases of one outcome and, where they are grouped by it, one reason; ``more`` counts those not listed."""

    outcome: str
    title: Phrase | str
    count: Phrase
    details: tuple[Detail, ...] = ()
    entries: tuple[Entry, ...] = ()
    more: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteSection:
    """One suite: a grid where its cases are many of a kind, a table where each is looked at by itself.

    ``outcomes`` are those that occur; ``columns`` the names of the measurements; ``is_judged`` says whether any case
    has a share of its limit to show.
    """

    id: str
    title: Phrase
    tally: Phrase
    by_dtype: Phrase
    one_by_one: Phrase
    tables: tuple[FigureTable, ...]
    charts: tuple[Chart, ...]
    outcomes: tuple[str, ...]
    grid: Grid | None
    has_tools: bool
    columns: tuple[str, ...]
    is_judged: bool
    entries: tuple[Entry, ...]
    more: str


def deviations(summary: Summary) -> Iterator[Group]:
    """Yield what ran and is not conformant, by outcome; the first of them all in full."""
    left = DETAILS_LIMIT
    for name in ("failed", "errored", "flaky", "fallback", "unsupported"):
        results = [each for each in summary.results if each.outcome.name == name]
        details = tuple(detail(each, summary) for each in results[:left])
        left -= len(details)
        if results:
            yield Group(
                outcome=name,
                title=say(f"meaning.{name}"),
                count=counted("cases", len(results)),
                details=details,
                more=_more(results, len(details)),
            )


def absent(results: Iterable[ResultRecord]) -> Iterator[Group]:
    """Group what did not run by its reason, the most frequent first: one reason usually explains many cases."""
    groups: dict[tuple[str, str], list[ResultRecord]] = {}
    for result in results:
        if result.outcome.name in ("not-run", "not-emulated"):
            groups.setdefault((result.outcome.name, evidence.finding(result)), []).append(result)
    for (outcome, reason), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        entries = tuple(entry(each) for each in members[:ROWS_LIMIT])
        yield Group(
            outcome=outcome,
            title=reason or say("absent.no-reason"),
            count=counted("cases", len(members)),
            entries=entries,
            more=_more(members, len(entries)),
        )


def suites(results: Iterable[ResultRecord]) -> Iterator[SuiteSection]:
    """Yield a section for each suite that the run has cases of."""
    by_suite: dict[str, list[ResultRecord]] = {}
    for result in results:
        by_suite.setdefault(result.case.suite, []).append(result)
    known = dict(SUITES)
    order = [*(suite for suite in known if suite in by_suite), *(suite for suite in by_suite if suite not in known)]
    for number, suite in enumerate(order):
        title = known.get(suite) or say("suite.other", name=evidence.line(suite))
        yield _suite(suite if suite in known else f"suite-{number}", suite, title, by_suite[suite])


def _suite(section_id: str, suite: str, title: Phrase, results: list[ResultRecord]) -> SuiteSection:
    names = dict.fromkeys(name for result in results for name in result.measurements if not name.startswith(_PROFILE))
    columns = tuple(dict.fromkeys(figures.words(name) for name in names))
    columns = columns[:COLUMNS_LIMIT]
    shown = [] if suite in _ONLY_GRID else results[:ROWS_LIMIT]
    found = {result.outcome.name for result in results}
    return SuiteSection(
        id=section_id,
        title=title,
        tally=tally(results),
        by_dtype=say("grid.by-dtype", title=title),
        one_by_one=say("suite.one-by-one", title=title),
        tables=tuple(tables(results)),
        charts=charts(results),
        outcomes=tuple(name for name in reversed(APPEARANCE) if name in found),
        grid=grid_of(results) if suite in _WITH_GRID else None,
        has_tools=len({result.case.subject for result in results}) > TOOLS_ROWS,
        columns=columns,
        is_judged=any(evidence.limit_used(each) is not None for each in shown),
        entries=tuple(entry(each, columns) for each in shown),
        more=_more(results, len(shown)) if shown else "",
    )


def waiver(cause: KnownCause, started: str) -> Waiver:
    """Return a known cause with who answers for it until when; ``started`` is when its run began."""
    known = {name: evidence.line(str(text)) for name, text in cause.waiver.items()}
    expires = known.get("expires", "")
    shown = cause.cases[:WAIVED_LIMIT]
    return Waiver(
        cause=cause.cause,
        kind=say(f"waivers.{cause.kind}") if cause.kind in ("limit", "defect") else SILENCE,
        count=counted("cases", len(cause.cases)),
        cases=tuple((evidence.line(each.case.id), link(each.case.id)) for each in shown),
        more=_more(list(cause.cases), len(shown)),
        reason=known.get("reason") or evidence.finding(cause.cases[0]),
        issue=known.get("issue", ""),
        owner=known.get("owner", ""),
        expires=expires,
        is_over=bool(expires) and expires < started[: len("2026-01-01")],
    )


def entry(result: ResultRecord, columns: Iterable[str] = ()) -> Entry:
    """Return one case as a row."""
    used = evidence.limit_used(result)
    found = {each.name: each.value for each in evidence.measures(result)}
    return Entry(
        id=evidence.line(result.case.id),
        href=link(result.case.id),
        outcome=result.outcome.name,
        finding=evidence.loosened(result) or evidence.finding(result),
        used="" if used is None else figures.used(used),
        duration=figures.duration(result.duration_s) if result.node_id else "",
        measures=tuple(found.get(name, "") for name in columns),
    )


def detail(result: ResultRecord, summary: Summary) -> Detail:
    """Return one case in full."""
    line = summary.lines.get(result.case.id)
    return Detail(
        entry=entry(result),
        comparisons=tuple(evidence.comparison(verdict) for verdict in result.verdicts),
        measures=evidence.measures(result),
        fallbacks=tuple(evidence.line(name) for name in result.fallbacks),
        text=evidence.text(result.outcome.detail),
        command=f"{command(summary)} {figures.one_line(shell_quote(result.node_id))}" if result.node_id else "",
        program=evidence.program(result),
        line=f"{log_name(summary)}, line {line}" if line else "",
    )


def command(summary: Summary) -> str:
    """Return the command that runs a case again, but for its node id."""
    header = summary.run.header
    device = " --ascend-device=emulated" if header.stack.emulated else ""
    level = " --ascend-level=full" if header.level == "full" else ""  # any other level is in the default one
    return f"pytest --ascend{device}{level}"


def log_name(summary: Summary) -> str:
    """Return the name of the file that a summary was made from, without its folder."""
    return figures.one_line(PurePath(summary.run.path).name or "run.jsonl")


def _more(results: list[ResultRecord], shown: int) -> str:
    return f"{len(results) - shown:,}" if len(results) > shown else ""
