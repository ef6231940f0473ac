"""Whether two runs of the same stack agree: what must be equal is, and what is judged comes out alike."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.diff import ERROR_DRIFT, FIX, OTHER, REGRESSION, SLOWER, Change, compare
from pytest_ascend.verdict.summary import Summary

#: Share by which a speed may be less than what another run of the same stack said, beyond the spread of its samples.
SPEED_SHARE = 0.25
#: Kinds of change from what is claimed to what was found, with what is wrong then.
_WRONG = {
    REGRESSION: "says {before}, and is {after} here",
    FIX: "says {before}, and is {after} here",
    OTHER: "says {before}, and is {after} here",
    ERROR_DRIFT: "says that it used {before} of its limit, and used {after} here",
    SLOWER: "says {name} {before}, and it is {after} here",
}


def disagreements(claimed: Summary, found: Summary) -> list[str]:
    """Return in what the run ``found`` does not bear out what ``claimed`` says, a sentence for each case that differs.

    Only cases that both executed are compared. Outcomes are compared below any waiver. Outputs whose bits every right
    device must have are compared by their digests; all others were judged in both runs, and may use no more than twice
    the share of their limit.
    """
    changes = compare(claimed, found, speed_share=SPEED_SHARE).changes
    said = {each.id: _sentence(each) for kind in _WRONG for each in changes[kind]}
    theirs = {each.case.id: each for each in claimed.results}
    for each in found.results:
        differing = list(_other_bits(theirs[each.case.id], each)) if each.case.id in theirs else []
        if differing and each.case.id not in said:
            said[each.case.id] = f"{each.case.id}: {differing[0]}"
    return [figures.one_line(sentence) for sentence in said.values()]


def _sentence(change: Change) -> str:
    text = _WRONG[change.kind].format(before=change.before, after=change.after, name=figures.words(change.name))
    return f"{change.id}: {text}"


def _other_bits(claimed: ResultRecord, found: ResultRecord) -> Iterator[str]:
    """Yield the outputs that must be equal, and are not."""
    if evidence.below(found) == "not-run" or not found.digests:
        return
    if not claimed.digests:
        yield "has no digests of its outputs"
    for name, mine in found.digests.items():
        theirs = claimed.digests.get(name)
        if theirs is None or theirs.inputs != mine.inputs:
            yield f"{name} is of other inputs"
        elif mine.exact and theirs.outputs != mine.outputs:
            yield f"{name} has other bits than every right device gives"
