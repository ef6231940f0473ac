"""What becomes of cases that were not asked: what the case that stands for them showed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pytest_ascend.records.left import Left
from pytest_ascend.records.outcome import LeftToCpu, NotRun, Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Header


def not_asked(header: Header, fallbacks: Mapping[str, Collection[str]]) -> Iterator[ResultRecord]:
    """Yield each case that was not asked with its outcome.

    ``fallbacks`` has, by the id of each case with a record, the operators that the CPU was seen to compute. Where the
    case that stands for others does not show one of theirs there, nobody knows anything of them: they are ``not-run``.
    """
    for group in header.left:
        outcome = _outcome(group, fallbacks.get(group.asked, ()))
        yield from (ResultRecord(case=case, node_id="", outcome=outcome) for case in group.cases)


def _outcome(group: Left, seen: Collection[str]) -> Outcome:
    if set(group.operators).isdisjoint(seen):
        return NotRun(reason=f"not asked, as {group.asked} stands for it; which did not show that the CPU computes it")
    return LeftToCpu(reason=f"{group.reason}; asked once: {group.asked}", detail="\n".join(group.operators))
