"""A comparison of two runs for readers: on a page, a terminal, in Markdown and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from pytest_ascend.export.markdown import causes_table
from pytest_ascend.export.terminal import Line
from pytest_ascend.page import View
from pytest_ascend.records.case import Stack
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.system import figures
from pytest_ascend.system.text import cell, table
from pytest_ascend.verdict import diff as kinds
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause
from pytest_ascend.verdict.columns import link
from pytest_ascend.verdict.diff import CANNOT_TELL, FAILS_ON, KINDS, NEW, NO, REGRESSION, YES, Change, Diff
from pytest_ascend.verdict.phrase import Phrase, commas, counted, in_both, say
from pytest_ascend.verdict.summary import notice

#: Version of the JSON, raised whenever a reader of an older version would misread it.
SCHEMA = 1
#: Number of changes of one kind that a page can search, and that a terminal or Markdown lists.
PAGE_LIMIT, LINES_LIMIT = 20_000, 20
#: Number of causes of regressions that the first line names, and that a page lists.
CAUSES_LIMIT, CAUSES_PAGE_LIMIT = 4, 100
#: Kinds of change that need attention: a page unfolds them, in red or yellow.
_COLOURS = {
    kinds.REGRESSION: "red",
    kinds.VANISHED: "red",
    kinds.ERROR_DRIFT: "yellow",
    kinds.SLOWER: "yellow",
    kinds.FASTER: "green",
    kinds.FIX: "green",
}


def changes_of(diff: Diff, *, linked: bool = True) -> View:
    """Arrange a comparison for a page; with ``linked``, the page contains the cases of the later run.

    ``components`` are pairs of a name and both versions.
    """
    return View(
        answer=answer(diff),
        sentence=sentence(diff),
        notes=tuple(notes(diff)),
        components=tuple(
            (say(f"stack.{name}"), f"{figures.one_line(old) or '–'} → {figures.one_line(new) or '–'}")
            for name, (old, new) in diff.components.items()
        ),
        causes=tuple(
            View(
                id=cause.id,
                outcome=cause.outcome,
                title=in_both(cause.title, "findings"),
                count=counted("cases", len(cause.cases)),
                example=evidence.line(cause.representative.case.id),
                href=link(cause.representative.case.id) if linked else "",
                finding=in_both(cause.finding, "findings"),
            )
            for cause in by_size(diff)[:CAUSES_PAGE_LIMIT]
        ),
        groups=tuple(
            View(
                kind=kind,
                title=say(f"diff.{kind}"),
                count=f"{len(found):,}",
                is_open=_COLOURS.get(kind) in ("red", "yellow"),
                more=f"{len(found) - PAGE_LIMIT:,}" if len(found) > PAGE_LIMIT else "",
            )
            for kind in KINDS
            if (found := diff.changes[kind])
        ),
    )


def by_size(diff: Diff) -> list[Cause]:
    """Return the causes of the regressions, largest first."""
    return sorted(diff.causes, key=lambda each: (-len(each.cases), each.id))


def change_data(diff: Diff, *, linked: bool = True) -> dict[str, list[list[str]]]:
    """Return the rows of every kind of change for the page's script, each in the order of the fields of a row."""
    return {
        kind: [list(vars(_row(each, linked)).values()) for each in diff.changes[kind][:PAGE_LIMIT]]
        for kind in KINDS
        if diff.changes[kind]
    }


def answer(diff: Diff) -> Phrase:
    """Return whether the later stack may replace the earlier one, with the causes of objections."""
    if diff.answer == YES:
        return say("diff.answer.yes", cases=counted("cases", diff.unchanged))
    if diff.answer == CANNOT_TELL:
        return say("diff.answer.cannot-tell", cases=counted("cases", diff.unknown))
    found = Counter(each.kind for each in diff.failures(FAILS_ON))
    counts = commas([counted(f"diff.n.{kind}", found[kind]) for kind in FAILS_ON if found[kind]])
    by_cause = by_size(diff)
    causes = [f"{len(each.cases):,} × {each.title}" for each in by_cause[:CAUSES_LIMIT]]
    more = [f"… {len(by_cause) - CAUSES_LIMIT:,}"] if len(by_cause) > CAUSES_LIMIT else []
    if not causes:
        return say("diff.answer.no", found=counts)
    return say("diff.answer.no-by-cause", found=counts, causes="; ".join((*causes, *more)))


def sentence(diff: Diff) -> Phrase:
    """Return one sentence on what changed, worst first."""
    found = [counted(f"diff.n.{kind}", len(diff.changes[kind])) for kind in KINDS if diff.changes[kind]]
    since = name_of(diff.before.run.header.stack)
    if not found:
        return say("diff.nothing", since=since, cases=counted("cases", diff.unchanged))
    return say("diff.sentence", since=since, found=commas(found))


def name_of(stack: Stack) -> str:
    """Return a short name of a combination."""
    named = {"CANN": stack.cann, "torch_npu": stack.torch_npu}
    parts = [stack.chip or stack.device, *(f"{name} {version}" for name, version in named.items() if version)]
    return evidence.line(" · ".join(parts))


def notes(diff: Diff) -> Iterator[Phrase]:
    """Yield the limits of the comparison."""
    before, after = diff.before.run.header, diff.after.run.header
    if before.stack.emulated != after.stack.emulated:
        yield say("diff.note.emulation")
    elif after.stack.emulated:
        yield say("diff.note.no-times")
    if before.stack.chip != after.stack.chip:
        yield say("diff.note.chips", before=before.stack.chip or "–", after=after.stack.chip or "–")
    if not diff.is_comparable:
        yield say("diff.note.extent")
    one, other = (set(map(str, each.run.header.options.get("expectations", ()))) for each in (diff.before, diff.after))
    gone, come = len(one - other), len(other - one)
    if gone or come:
        yield say("diff.note.table", gone=f"{gone:,}", come=f"{come:,}")


def _row(change: Change, linked: bool) -> View:
    """Return one change: ``was`` and ``is_now`` are outcomes, ``before`` and ``after`` figures."""
    is_figure = bool(change.name)
    factor = "" if math.isinf(change.factor) else f" × {change.factor:.3g}"
    return View(
        id=evidence.line(change.id),
        href=link(change.id) if linked and change.after else "",
        was="" if is_figure else change.before,
        is_now="" if is_figure else change.after,
        before=change.before or "–",
        after=change.after or "–",
        finding=evidence.line(f"{figures.words(change.name)}{factor}" if is_figure else change.finding),
    )


def lines(diff: Diff, limit: int = LINES_LIMIT) -> Iterator[Line]:
    """Yield the comparison as lines for a terminal, the answer first; control characters are made visible."""
    colour = {YES: "green", NO: "red", CANNOT_TELL: "yellow"}[diff.answer]
    yield Line(figures.one_line(str(answer(diff))), colour, bold=True)
    if text := notice(diff.after.run.header.stack):
        yield Line(str(text).upper(), "yellow", bold=True)
    for name, (old, new) in diff.components.items():
        yield Line(figures.one_line(f"{say(f'stack.{name}')}: {old or '–'} -> {new or '–'}"))
    for note in notes(diff):
        yield Line(str(note), "yellow")
    for kind in KINDS:
        if kind == REGRESSION:
            told, what = [], " causes"
            for cause in by_size(diff):
                example = evidence.line(cause.representative.case.id)
                many = f"{len(cause.cases):,} cases, such as {example}: " if len(cause.cases) > 1 else ""
                told.append(f"{cause.outcome:<12} {cause.title}: {many}{cause.finding}")
        else:
            rows, what = (_row(change, linked=False) for change in diff.changes[kind]), ""
            told = [f"{row.id}: {row.before} -> {row.after}  {row.finding}".rstrip() for row in rows]
        if told:
            yield Line(f"{say(f'diff.{kind}')} ({len(diff.changes[kind]):,})", _COLOURS.get(kind, ""), bold=True)
            yield from (Line(f"  {each}") for each in told[:limit])
            if len(told) > limit:
                yield Line(f"  ... and {len(told) - limit:,} more{what}")
    yield Line(str(sentence(diff)), colour, bold=True)


def markdown(diff: Diff, limit: int = LINES_LIMIT) -> str:
    """Return the comparison as Markdown, for the page of a CI job or a comment."""
    parts = [f"### {cell(str(answer(diff)))}", cell(str(sentence(diff)))]
    parts += [f"> {cell(str(each))}" for each in (notice(diff.after.run.header.stack), *notes(diff)) if each]
    if diff.components:
        versions = [(str(say(f"stack.{name}")), *pair) for name, pair in diff.components.items()]
        parts.append(table(("", "before", "after"), versions))
    if causes := by_size(diff):
        parts.append(f"**{say('diff.by-cause')}** ({len(causes):,})\n\n{causes_table(causes[:limit])}")
    for kind in KINDS:
        if (changes := diff.changes[kind]) and kind != REGRESSION:
            listed = (_row(each, linked=False) for each in changes[:limit])
            rows = [(row.id, row.before, row.after, row.finding) for row in listed]
            more = f"\n\nand {len(changes) - limit:,} more" if len(changes) > limit else ""
            shown = table(("case", "before", "after", "finding"), rows)
            parts.append(f"**{say(f'diff.{kind}')}** ({len(changes):,})\n\n{shown}{more}")
    return "\n\n".join(parts) + "\n"


def to_dict(diff: Diff) -> dict[str, Any]:
    """Return the whole comparison as builtins, for :func:`pytest_ascend.runlog.codec.dumps`."""
    return {
        "schema": SCHEMA,
        "answer": diff.answer,
        "says": str(answer(diff)),
        **{
            name: {
                "run_id": each.run.header.run_id,
                "stack": asdict(each.run.header.stack),
                "verdict": to_builtins(each.verdict.in_footer()),
            }
            for name, each in (("before", diff.before), ("after", diff.after))
        },
        "components": {name: list(pair) for name, pair in diff.components.items()},
        "notes": [str(each) for each in notes(diff)],
        "counts": {**{kind: len(diff.changes[kind]) for kind in KINDS}, "unchanged": diff.unchanged},
        "changes": [
            {
                "kind": each.kind,
                "case": each.id,
                "before": each.before,
                "after": each.after,
                "finding": each.finding,
                "name": each.name,
                "factor": each.factor,
                "deviates": kind == REGRESSION or (kind == NEW and not OUTCOMES[each.after].conforms),
            }
            for kind in KINDS
            for each in diff.changes[kind]
        ],
    }
