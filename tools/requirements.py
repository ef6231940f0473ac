"""Write docs/requirements.md: every requirement of the suites, the cases that cover it, and results of a run.

    python tools/requirements.py          the cases of the manifest
    python tools/requirements.py RUN      also the outcomes of a run, and the largest fraction of a limit used

The requirements are in ``suites/requirements.json``: id, a sentence, and patterns of case ids. A case belongs to the
first requirement that matches. The meaning of an id never changes.
"""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_ascend.coverage import manifest
from pytest_ascend.records import LEVELS
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.summary import summarise
from tools.evaluation.support import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "requirements.md"
HEAD = """# Requirements

What the suites require of a stack. Each case covers one requirement; a certificate, a dispute and a report can name it
by its id, which keeps its meaning over releases. This page is written by `python tools/requirements.py` from
`suites/requirements.json` and the manifest; `python tools/requirements.py RUN` adds what a run measured.

"""


def requirements() -> list[dict[str, object]]:
    """Return the requirements, each with ``id``, ``says`` and ``cases``."""
    found: list[dict[str, object]] = json.loads((ROOT / "suites" / "requirements.json").read_text(encoding="utf-8"))
    return found


def covered(case_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the cases by the requirement they cover, with uncovered cases under ""."""
    patterns = [
        (str(each["id"]), re.compile("|".join(fnmatch.translate(one) for one in each["cases"])))  # type: ignore[attr-defined]
        for each in requirements()
    ]
    found: dict[str, list[str]] = {name: [] for name, _ in patterns}
    for case_id in case_ids:
        name = next((name for name, pattern in patterns if pattern.match(case_id)), "")
        found.setdefault(name, []).append(case_id)
    return found


def page(results: Mapping[str, ResultRecord] | None = None) -> str:
    """Return the page; ``results`` are the cases of a run by their id."""
    cases = {each.id: each for each in manifest.load(ROOT / "suites")}
    by_requirement = covered(cases)
    measured = ["outcomes", "largest share of a limit"] if results else []
    rows = []
    for each in requirements():
        mine = by_requirement[str(each["id"])]
        counts = [f"{sum(cases[name].is_in(level) for name in mine):,}" for level in LEVELS]
        found = [results[name] for name in mine if name in results] if results else []
        outcomes = Counter(one.outcome.name for one in found)
        used = max((evidence.limit_used(one) or 0.0 for one in found if one.outcome.name == "passed"), default=0.0)
        shown = [", ".join(f"{n:,} {name}" for name, n in outcomes.most_common()), f"{used:.0%}"] if results else []
        rows.append([each["id"], each["says"], *counts, *shown])
    heads = ["id", "requirement", *(f"cases at {level}" for level in LEVELS), *measured]
    return HEAD + "\n".join(table(heads, rows)) + "\n"


def main(arguments: list[str]) -> None:
    """Write the page."""
    run = Path(arguments[0]) if arguments else None
    log = run / "run.jsonl" if run and run.is_dir() else run
    results = {each.case.id: each for each in summarise(read(log)).results} if log else None
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
