"""The page of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.page import html
from pytest_ascend.page.changes import Changes, changes_of, name_of
from pytest_ascend.page.page import Fact, combination, label_of
from pytest_ascend.verdict.diff import Diff
from pytest_ascend.verdict.phrase import SILENCE, Phrase, say
from pytest_ascend.verdict.summary import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two runs: its verdict and its combination."""

    title: Phrase
    opening: Phrase
    body: Phrase
    combination: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffPage:
    """All that the template places."""

    title: str
    kind_of_page: Phrase
    looks: str
    label: Phrase
    changes: Changes
    sides: tuple[Side, ...]


def render_diff(diff: Diff) -> str:
    """Return a comparison as a page that loads nothing."""
    before, after = diff.before.run.header.stack, diff.after.run.header.stack
    page = DiffPage(
        title=f"{name_of(before)} → {name_of(after)} · pytest-ascend",
        kind_of_page=say("page.diff"),
        looks=f"kind-{diff.after.verdict.kind}",
        label=label_of(after) or label_of(before) or SILENCE,
        changes=changes_of(diff, linked=False),
        sides=(_side("diff.before", diff.before), _side("diff.after", diff.after)),
    )
    return html.place("diff.html", ("common.js",), page, {})


def _side(key: str, summary: Summary) -> Side:
    return Side(
        title=say(key),
        opening=summary.verdict.opening,
        body=summary.verdict.body,
        combination=tuple(combination(summary.run.header.stack)),
    )
