"""The frozen list of all cases of the bundled suites, so that a missing case is noticed."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec import to_builtins

from pytest_ascend.records import LEVELS
from pytest_ascend.records.case import SWEEP_GENERATION, SWEEP_SEED, Case
from pytest_ascend.runlog import codec
from pytest_ascend.system.bundled import module
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import read_regular, write_if_new

SCHEMA = 1
NAME = "manifest.json"


def load(suites: Path) -> tuple[Case, ...]:
    """Read the manifest in the folder ``suites``. Raises UsageError if it is missing or damaged."""
    path = suites / NAME
    return _loaded(path, path.stat().st_mtime_ns if path.exists() else 0)


@functools.cache  # each test function asks, and the manifest does not change during a run
def of_suite(suites: Path, suite: str) -> tuple[Case, ...]:
    """Return the cases of one suite in the manifest, none if it has no such suite. Raises as :func:`load`."""
    return tuple(case for case in load(suites) if case.suite == suite)


@functools.lru_cache(maxsize=4)
def _loaded(path: Path, _changed_ns: int) -> tuple[Case, ...]:
    message = f"the manifest of the bundled suites cannot be read: {path}"
    hint = "reinstall pytest-ascend; in a checkout: pytest-ascend manifest"
    with as_error(message, hint, OSError, ValueError, KeyError, TypeError, why=str):
        data = json.loads(read_regular(path, 64 << 20))
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA}")
        if data["sweep_seed"] != SWEEP_SEED:
            raise ValueError(f"its sweeps are of seed {data['sweep_seed']!r}, not {SWEEP_SEED}")
        if data["sweep_generation"] != SWEEP_GENERATION:
            raise ValueError(f"its sweeps are of generation {data['sweep_generation']!r}, not {SWEEP_GENERATION}")
        return _checked(codec.converted(data["cases"], tuple[Case, ...], "cases"))


def collect(suites: Path) -> tuple[Case, ...]:
    """Collect ``CASES`` from every suite, a package with tests. Raises ValueError for cases that clash or stray."""
    cases: list[Case] = []
    for suite in names(suites):
        own = module(f"{suites.name}.{suite}", suites.parent).CASES
        if stray := next((case for case in own if case.suite != suite), None):
            raise ValueError(f"the suite {suite} offers a case of another suite: {stray.id}")
        cases += own
    return _checked(cases)


def names(suites: Path) -> tuple[str, ...]:
    """Return the names of the suites in a folder: packages with tests."""
    return tuple(sorted({path.parent.name for path in suites.glob("*/test_*.py")}))


def encode(cases: Iterable[Case]) -> str:
    """Return the text of the manifest: one case per line, sorted, for readable diffs."""
    body = ",\n".join(sorted(json.dumps(to_builtins(case), sort_keys=True) for case in cases))
    head = f'"schema": {SCHEMA}, "sweep_seed": {SWEEP_SEED}, "sweep_generation": {SWEEP_GENERATION}'
    return f'{{{head}, "cases": [\n{body}\n]}}\n'


def write(suites: Path, cases: Iterable[Case]) -> Path:
    """Replace the manifest in the folder ``suites``, and return its path."""
    path = suites / NAME
    write_if_new(path, encode(cases).encode())
    return path


def _checked(cases: Iterable[Case]) -> tuple[Case, ...]:
    known = tuple(cases)
    twice = sorted(case_id for case_id, count in Counter(case.id for case in known).items() if count > 1)
    if twice:
        raise ValueError(f"cases with the same id: {', '.join(twice[:5])}")
    strays = [case.id for case in known if case.level not in LEVELS]
    if strays:
        raise ValueError(f"cases of no known level: {', '.join(strays[:5])}")
    return known
