"""A verdict in words."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.records.verdict import Verdict


def explain(verdict: Verdict) -> Iterator[str]:
    """Yield the lines that say what was found, where, and by which rule; for a verdict that agrees, its figures."""
    yield f"{verdict.path}: {verdict.headline}"
    if verdict.worst is not None:
        place = f"[{', '.join(map(str, verdict.worst.index))}]"
        yield f"  worst element: {place}  actual {verdict.worst.actual}  expected {verdict.worst.expected}"
    if verdict.limit is not None:
        yield f"  limit: {verdict.limit.name}: {verdict.limit.value:.4g}"
    yield f"  standard: {verdict.standard}" + (f", waived: {verdict.waiver}" if verdict.waiver else "")
    if verdict.pattern:
        yield f"  pattern: {verdict.pattern}"
    if verdict.metrics:
        yield f"  figures: {', '.join(f'{key} {value:.4g}' for key, value in verdict.metrics.items())}"
