"""What one case says in the reports of others: JUnit XML and pytest-html."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.verdict import evidence, figures


def properties(record: ResultRecord) -> Iterator[tuple[str, str]]:
    """Yield names and values for JUnit XML: outcome, worst figure and standard, measurements in the units they name."""
    yield "ascend_case", evidence.line(record.case.id)
    yield "ascend_outcome", record.outcome.name
    if record.outcome.reason:
        yield "ascend_reason", evidence.line(record.outcome.reason)
    used = evidence.limit_used(record)
    if used is not None:
        yield "ascend_limit_used", f"{used:.6g}"
    if named := standard(record):
        yield "ascend_standard", named
    for name, value in record.measurements.items():
        yield evidence.line(f"ascend_{name}"), f"{value:.6g}"


def standard(record: ResultRecord) -> str:
    """Return the standards by which a case was judged."""
    return ", ".join(dict.fromkeys(evidence.line(verdict["standard"]) for verdict in record.verdicts))


def worst(record: ResultRecord) -> str:
    """Return the largest share of a limit that a case used, as people read it; empty where there is none."""
    used = evidence.limit_used(record)
    return "" if used is None else figures.used(used)


def attachment(record: ResultRecord) -> str:
    """Return all that was found of a case as text; empty for a pass, whose figures the columns have."""
    if record.outcome.name == "passed":
        return ""
    parts = [f"{record.case.id}: {record.outcome.name}", record.outcome.reason, record.outcome.detail]
    for each in map(evidence.comparison, record.verdicts):
        parts += [f"{each.path}: {each.headline}", each.pattern, each.message]
        parts += [f"{name}: {value}" for name, value in (*each.worst, *each.metrics)]
    return evidence.text("\n".join(part for part in parts if part), limit=20_000)
