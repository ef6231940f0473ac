"""One case in full, for a page: the finding, where, how much, how much is allowed, how to repeat it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.runlog.contents import Header
from pytest_ascend.system import figures
from pytest_ascend.verdict.phrase import Phrase, counted, say

#: Longest texts on a page; the log has them in full.
LINE_LIMIT = 400
TEXT_LIMIT = 6_000
#: Most leaves shown: a model's gradients are a few hundred tensors.
LEAVES_LIMIT = 400


def finding(result: ResultRecord) -> str:
    """Return the finding of a case in one line; empty for an ordinary pass."""
    if result.reason:
        return line(result.reason)
    disagreeing = next((verdict for verdict in result.verdicts if not verdict.agrees), None)
    return line(disagreeing.headline) if disagreeing else ""


def blind(results: Sequence[ResultRecord]) -> Phrase | None:
    """Return the first cases that also accept a wrong result, with the kinds they accept; None if there are none."""
    found = [each for each in results if each.blind]
    # The log lists all of them.
    named = "; ".join(line(f"{each.case.id} ({', '.join(each.blind)})") for each in found[:8])
    return say("blind", cases=counted("cases", len(found)), named=named) if found else None


def decided(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the deciding limit as pairs of a key and a text: the rule, the value found, the value allowed."""
    limit, share = verdict.limit, verdict.metrics.get("limit_used")
    if limit:
        yield "by", figures.words(line(limit.name))
        # the headline has the value itself; for a pass, it follows from the share of the limit
        if told := re.search(r": ([^\s:,]+), allowed ", verdict.headline):
            yield "found", line(told[1])
        elif share is not None and limit.value:
            yield "found", figures.quantity(limit.name, share * limit.value)
        yield "allowed", figures.quantity(limit.name, limit.value)


def elements(verdict: Verdict) -> list[list[str]]:
    """Return the worst elements as index, actual and expected, the worst first; old logs have only one."""
    found = verdict.worst_elements or ((verdict.worst,) if verdict.worst else ())
    return [[str([*each.index]), line(each.actual), line(each.expected)] for each in found[:8]]


def where(verdict: Verdict) -> list[str]:
    """Return where errors lie: rows of cells, one digit per cell, from 0 for none to 9 for only wrong elements."""
    return [re.sub(r"[^0-9]", "0", row[:64]) for row in verdict.where[:64]]


def measures(result: ResultRecord) -> tuple[tuple[str, str], ...]:
    """Return the measurements of a case as text: names and values."""
    return tuple((figures.words(name), figures.quantity(name, value)) for name, value in result.measurements.items())


def below(result: ResultRecord) -> str:
    """Return the outcome of a case without its waiver: how the stack behaved."""
    outcome = result.outcome_name
    if outcome not in ("waived", "disputed"):
        return outcome
    # logs of schema 1 have it only at the beginning of the detail
    known = str((result.waiver or {}).get("outcome") or result.detail.partition(":")[0])
    return known if known in OUTCOMES else outcome


def limit_used(result: ResultRecord) -> float | None:
    """Return the largest share of a limit that any comparison of a case used, above 1 if it disagrees.

    None if the judge reported no share.
    """
    found = [verdict.metrics.get("limit_used") for verdict in result.verdicts]
    return max((each for each in found if each is not None), default=None)


def program(result: ResultRecord) -> str:
    """Return the program that reproduces a failure, with invisible characters escaped; "" if there is none."""
    # A longer one is not from this package.
    return figures.visible(result.snippet) if len(result.snippet) <= 20_000 else ""


def loosened(result: ResultRecord) -> str:
    """Return the reason for judging a case by a looser limit than the standard's; empty if none was loosened."""
    return next((line(verdict.waiver) for verdict in result.verdicts if verdict.waiver), "")


def again(header: Header, node_id: str) -> str:
    """Return the shell command that repeats a case, with its model, faults and device."""
    return figures.one_line(" ".join(["pytest --ascend", *map(shlex.quote, arguments(header)), shlex.quote(node_id)]))


def arguments(header: Header) -> list[str]:
    """Return the options that affect what a case computes, as given; old logs lack some."""
    options = header.options
    given = options.get("arguments")
    if isinstance(given, list):
        return [str(each) for each in given]
    found = ["--ascend-device=emulated"] if header.stack.emulated else []
    found += [f"--ascend-level={header.level}"] if header.level == "full" else []
    for name, option in _ARGUMENTS.items():
        values = options.get(name) or ()
        found += [f"{option}={each}" for each in ([values] if isinstance(values, str) else values) if each != "exact"]
    return found


#: Names in logs of the options that affect what a case computes.
_ARGUMENTS = {
    "standard": "--ascend-standard",
    "model": "--ascend-model",
    "model_input": "--ascend-model=input",
    "library": "--ascend-library",
    "emulated_numerics": "--ascend-emulate=numerics",
    "faults": "--ascend-emulate=fault",
}


def line(foreign: str) -> str:
    """Return foreign text as one line of bounded length."""
    short = figures.one_line(foreign[: LINE_LIMIT + 1])
    return f"{short[:LINE_LIMIT]}…" if len(short) > LINE_LIMIT else short


def text(foreign: str, limit: int = TEXT_LIMIT) -> str:
    """Return both ends of a long foreign text, with a note where it was cut."""
    if len(foreign) <= limit:
        return figures.visible(foreign)
    half = limit // 2
    cut = f"{foreign[:half]}\n… {len(foreign) - 2 * half:,} characters left out; the log has them …\n{foreign[-half:]}"
    return figures.visible(cut)
