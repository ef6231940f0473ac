"""Results of pytest-benchmark, with a run log's names and units, and their transport between processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytest_ascend.records.record import SERIES_POINTS_LIMIT
from pytest_ascend.run.case_context import CaseContext

_NAMES = {"latency_min_us": "min", "latency_median_us": "median", "latency_mean_us": "mean"}


def take(context: CaseContext, fixture: Any) -> None:
    """Record the metrics of the fixture ``benchmark`` and the time of each round in us, if it measured anything."""
    if metadata := getattr(fixture, "stats", None):
        stats = metadata.stats
        context.measurements |= {name: float(getattr(stats, figure)) * 1e6 for name, figure in _NAMES.items()}
        context.measurements["rounds"] = float(stats.rounds)
        context.series["latency_us"] = tuple(float(each) * 1e6 for each in stats.data[:SERIES_POINTS_LIMIT])


def taken(config: Any) -> list[dict[str, Any]]:
    """Take what this process's pytest-benchmark measured since the last call, as builtins."""
    session, names = getattr(config, "_benchmarksession", None), ("group", "extra_info", "iterations")
    if session is None:
        return []
    found, session.benchmarks[:] = list(session.benchmarks), []
    return [
        {**{name: getattr(metadata, name) for name in names}, "seconds": list(metadata.stats.data)}
        for metadata in found
    ]


def put_back(config: Any, item: Any, data: dict[str, Any]) -> None:
    """Make this process's pytest-benchmark show, store and compare what ``item`` measured in another process."""
    from pytest_benchmark.stats import Metadata

    session = getattr(config, "_benchmarksession", None)
    if session is None:
        return
    callspec, named = getattr(item, "callspec", None), {"name": item.name, "fullname": item.nodeid}
    called = {"param": callspec.id if callspec else None, "params": callspec.params if callspec else None}
    given = {name: data[name] for name in ("group", "extra_info")}
    fixture = SimpleNamespace(**named, **called, **given, cprofile_stats=None, has_error=False)
    metadata: Any = Metadata(fixture, data["iterations"], dict(session.options))  # type: ignore[no-untyped-call]
    for each in data["seconds"]:
        metadata.stats.update(float(each))
    # only the last attempt of a case counts
    session.benchmarks[:] = [*(each for each in session.benchmarks if each.fullname != item.nodeid), metadata]
