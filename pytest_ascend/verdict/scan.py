"""A summary scan: hundreds of runs are read for one page, so of each only what that page needs is kept.

What is believed is what :mod:`pytest_ascend.runlog.reading` believes, and a pass that its own record does not bear out
is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import NotRun
from pytest_ascend.runlog.contents import Run
from pytest_ascend.runlog.reading import LogReader, opened
from pytest_ascend.verdict.summary import ORDER, Summary, judged, verified

RANKS: Mapping[str, int] = {name: rank for rank, name in enumerate(ORDER)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunScan:
    """One run in outline. ``summary`` has no results.

    ``tallies`` counts, for each subject as (suite, family, subject), its cases by rank (see ``RANKS``);
    ``measurements`` gives figures by case id and name.
    """

    summary: Summary
    tallies: Mapping[tuple[str, str, str], list[int]]
    measurements: Mapping[tuple[str, str], float]


def scan(path: Path) -> RunScan:
    """Read the log ``path`` in outline. Raises RunLogError for a log that cannot be trusted, naming file and line."""
    with opened(path) as file:
        log = LogReader(path, file)
        header = msgspec.structs.replace(log.header, manifest=_shared(log.header.manifest))
        ranks: dict[str, int] = {}
        measurements: dict[tuple[str, str], float] = {}
        for record in log.records():
            ranks[record.case.id] = RANKS[verified(record, header.stack).outcome_name]
            for name, value in record.measurements.items():
                measurements[record.case.id, name] = float(value)
    run = Run(
        header=header,
        records=(),
        footer=log.footer,
        path=str(path),
        ended=log.footer is not None,
        events=tuple(log.events),
        broken=log.broken,
        head=log.head,
    )
    tallies = _tallies(header.manifest, ranks)
    counts = [sum(column) for column in zip(*tallies.values(), strict=True)] or [0] * len(ORDER)
    summary = judged(run, dict(zip(ORDER, counts, strict=True)))
    return RunScan(summary=summary, tallies=tallies, measurements=measurements)


def _tallies(cases: Iterable[Case], ranks: Mapping[str, int]) -> dict[tuple[str, str, str], list[int]]:
    missing, found = RANKS[NotRun.name], dict[tuple[str, str, str], list[int]]()
    for case in cases:
        tally = found.setdefault((case.suite, case.family, case.subject), [0] * len(ORDER))
        tally[ranks.get(case.id, missing)] += 1
    return found


@lru_cache(maxsize=8)
def _shared(manifest: tuple[Case, ...]) -> tuple[Case, ...]:
    """Keep a manifest once: most runs of a page had to execute the same cases."""
    return manifest
