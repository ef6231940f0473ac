"""Results of pytest-benchmark, in the names and units of a run log, and their way between processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytest_ascend.records.record import SERIES_POINTS_LIMIT

_NAMES = {"latency_min_us": "min", "latency_median_us": "median", "latency_mean_us": "mean"}


def figures(fixture: Any) -> dict[str, float]:
    """Return the figures of the fixture ``benchmark`` in us; none if it measured nothing or is None."""
    metadata = getattr(fixture, "stats", None)
    if metadata is None:
        return {}
    found = {name: float(getattr(metadata.stats, figure)) * 1e6 for name, figure in _NAMES.items()}
    return {**found, "rounds": float(metadata.stats.rounds)}


def samples(fixture: Any) -> dict[str, tuple[float, ...]]:
    """Return the time of each round in us, up to the run log's limit."""
    metadata = getattr(fixture, "stats", None)
    found = [float(each) * 1e6 for each in metadata.stats.data[:SERIES_POINTS_LIMIT]] if metadata else []
    return {"latency_us": tuple(found)} if found else {}


def told(config: Any, since: int) -> list[dict[str, Any]]:
    """Return what the tests of this process measured, from the ``since``-th benchmark on, as builtins."""
    session = getattr(config, "_benchmarksession", None)
    return [_told(metadata) for metadata in session.benchmarks[since:]] if session else []


def count(config: Any) -> int:
    """Return how many benchmarks this process has measured."""
    session = getattr(config, "_benchmarksession", None)
    return len(session.benchmarks) if session else 0


def _told(metadata: Any) -> dict[str, Any]:
    names = ("group", "extra_info", "iterations")
    return {**{name: getattr(metadata, name) for name in names}, "seconds": list(metadata.stats.data)}


def put_back(config: Any, item: Any, data: dict[str, Any]) -> None:
    """Have this process's pytest-benchmark show, store and compare what ``item`` measured in another process."""
    from pytest_benchmark.stats import Metadata

    session = getattr(config, "_benchmarksession", None)
    if session is None:
        return
    callspec = getattr(item, "callspec", None)
    fixture = SimpleNamespace(
        name=item.name,
        fullname=item.nodeid,
        group=data["group"],
        param=callspec.id if callspec else None,
        params=callspec.params if callspec else None,
        extra_info=data["extra_info"],
        cprofile_stats=None,
        has_error=False,
    )
    metadata: Any = Metadata(fixture, data["iterations"], dict(session.options))  # type: ignore[no-untyped-call]
    for each in data["seconds"]:
        metadata.stats.update(float(each))
    # the last attempt of a case counts
    session.benchmarks[:] = [each for each in session.benchmarks if each.fullname != item.nodeid]
    session.benchmarks.append(metadata)
