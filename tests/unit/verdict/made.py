"""A record and a verdict for tests of what is said of them: each with the fields that a test gives."""

from __future__ import annotations

from typing import Any

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict

CASE = Case(suite="ops", subject="relu", property="forward", dtype="float32")


def record(outcome: str = "failed", case: Case = CASE, **fields: Any) -> ResultRecord:
    reason = fields.pop("reason", "" if outcome == "passed" else "differs")
    detail = fields.pop("detail", "")
    node_id = fields.pop("node_id", case.id)
    return ResultRecord.of(case, node_id, OUTCOMES[outcome](reason=reason, detail=detail), **fields)


def verdict(agrees: bool = True, **fields: Any) -> Verdict:
    return Verdict(
        path="output",
        agrees=agrees,
        standard=fields.pop("standard", "s@1"),
        headline=fields.pop("headline", ""),
        **fields,
    ).as_whole()
