"""One case as a page shows it in full: what was found, where, how much, how much was allowed, how to see it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import figures
from pytest_ascend.verdict.phrase import Phrase, say

#: Longest texts that a page repeats; the log has them whole.
LINE_LIMIT = 400
TEXT_LIMIT = 6_000
#: A model's gradients are a few hundred tensors.
LEAVES_LIMIT = 400
#: A longer program is none that this package wrote.
PROGRAM_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison in words. ``metrics`` and ``worst`` are pairs of name and figure, ``by`` names the standard."""

    agrees: bool
    headline: str
    path: str
    pattern: str
    waiver: str
    message: str
    by: Phrase
    worst: tuple[tuple[Phrase, str], ...]
    metrics: tuple[tuple[str, str], ...]


class Measure(NamedTuple):
    """One measurement in words."""

    name: str
    value: str


def finding(result: ResultRecord) -> str:
    """Say in one line what there is to say of a case; empty for an unremarkable pass."""
    if result.outcome.reason:
        return line(result.outcome.reason)
    disagreeing = next((verdict for verdict in result.verdicts if not verdict["agrees"]), None)
    return line(disagreeing["headline"]) if disagreeing else ""


def comparison(verdict: Mapping[str, Any]) -> Comparison:
    """Put one verdict of the judge into words."""
    return Comparison(
        agrees=verdict["agrees"],
        headline=line(verdict["headline"]),
        path=line(verdict["path"]),
        pattern=line(verdict["pattern"]),
        waiver=line(verdict.get("waiver", "")),
        message=text(verdict["message"]),
        by=say("case.metrics", standard=line(verdict["standard"])),
        worst=tuple((say(f"worst.{name}"), figure) for name, figure in worst(verdict)),
        metrics=tuple(_metrics(verdict["metrics"])),
    )


def worst(verdict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the worst element and the limit that decided, as pairs of a key and a figure."""
    element, limit = verdict["worst"], verdict["limit"]
    if element:
        yield "element", _index(element["index"])
        yield "actual", line(element["actual"])
        yield "expected", line(element["expected"])
    if limit:
        found = verdict["metrics"].get(limit["name"])
        yield "by", figures.words(line(limit["name"]))
        if found is not None:
            yield "found", figures.quantity(limit["name"], found)
        yield "allowed", figures.quantity(limit["name"], limit["value"])


def _metrics(metrics: Mapping[str, float | None]) -> Iterator[tuple[str, str]]:
    for name, value in metrics.items():
        if value is not None:
            yield figures.words(name), figures.quantity(name, value)


def _index(position: list[int]) -> str:
    return f"[{', '.join(str(each) for each in position)}]"


def measures(result: ResultRecord) -> tuple[Measure, ...]:
    """Put the measurements of a case into words."""
    return tuple(
        Measure(figures.words(name), figures.quantity(name, value)) for name, value in result.measurements.items()
    )


def below(result: ResultRecord) -> str:
    """Return the outcome of a case below its waiver: what the stack did, whatever is known of it."""
    outcome = result.outcome.name
    if outcome not in ("waived", "disputed"):
        return outcome
    # Logs of schema 1 say it at the beginning of the detail only.
    known = str((result.waiver or {}).get("outcome") or result.outcome.detail.partition(":")[0])
    return known if known in OUTCOMES else outcome


def limit_used(result: ResultRecord) -> float | None:
    """Return the largest share of its limit that any comparison of a case used, above 1 where it disagrees.

    None where the judge gave no such figure.
    """
    found = [verdict["metrics"].get("limit_used") for verdict in result.verdicts]
    return max((each for each in found if each is not None), default=None)


def program(result: ResultRecord) -> str:
    """Return the program that shows what is wrong with a case, with nothing in it that cannot be seen; "" for none."""
    return figures.visible(result.snippet) if len(result.snippet) <= PROGRAM_LIMIT else ""


def loosened(result: ResultRecord) -> str:
    """Return the reason for judging a case by a looser limit than the standard's; empty where nothing was loosened."""
    return next((line(verdict["waiver"]) for verdict in result.verdicts if verdict.get("waiver")), "")


def line(foreign: str) -> str:
    """Return foreign text as one line of bounded length."""
    short = figures.one_line(foreign[: LINE_LIMIT + 1])
    return f"{short[:LINE_LIMIT]}…" if len(short) > LINE_LIMIT else short


def text(foreign: str, limit: int = TEXT_LIMIT) -> str:
    """Return foreign text of many lines with both of its ends, and say where it was cut."""
    if len(foreign) <= limit:
        return figures.visible(foreign)
    half = limit // 2
    cut = f"{foreign[:half]}\n… {len(foreign) - 2 * half:,} characters left out; the log has them …\n{foreign[-half:]}"
    return figures.visible(cut)
