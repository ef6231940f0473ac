"""Markdown for the summary of a CI job; untrusted text in it is inert."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from pytest_ascend.system.text import cell, table
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, causes_of
from pytest_ascend.verdict.phrase import say
from pytest_ascend.verdict.summary import ORDER, Summary

#: Maximum number of rows in the table of deviations.
ROWS_LIMIT = 30


def causes_table(causes: Iterable[Cause]) -> str:
    """Return a table with a row for each cause."""
    rows = (
        (each.outcome, each.title, f"{len(each.cases):,}", evidence.line(each.representative.case.id), each.finding)
        for each in causes
    )
    return table(("outcome", "cause", "cases", "for example", "finding"), rows)


def summary_of(summary: Summary, *, limit: int = ROWS_LIMIT) -> str:
    """Return a short Markdown summary of a run for a CI job: verdict, combination, counts, deviations."""
    verdict, stack = summary.verdict, summary.run.header.stack
    parts = [f"### pytest-ascend: {cell(str(verdict.opening))}"]
    if verdict.notice:
        parts.append(f"> **{cell(str(verdict.notice))}**")
    parts += [cell(str(each)) for each in (verdict.body, *summary.contradictions)]
    versions = {name: value for name, value in asdict(stack).items() if isinstance(value, str) and value}
    parts.append(table(("", "version"), [(str(say(f"stack.{name}")), value) for name, value in versions.items()]))
    counts = [(str(say(f"outcome.{name}")), f"{summary.counts[name]:,}") for name in ORDER if summary.counts[name]]
    parts.append(table(("outcome", "cases"), counts))
    # One row per cause, the worst outcome and the largest cause first.
    found = [cause for cause in causes_of(summary.results) if cause.representative.node_id]
    if found:
        parts.append(causes_table(found[:limit]))
    if len(found) > limit:
        parts.append(f"and {len(found) - limit:,} more causes, in the report")
    return "\n\n".join(parts) + "\n"
