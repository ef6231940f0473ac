"""The page of a kit: a summary of the machine, and below it every answer unchanged."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

#: Characters of an answer in the table, and below it.
_BEGINNING, _SHOWN = 400, 400_000


def page(about: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], log: str = "") -> str:
    """Return the page: ``about`` describes the kit, ``answers`` are its steps, ``log`` is that of the run."""
    steps = []
    for each in answers:
        # The beginning of an answer; what level smoke came to; without either, the last line that was printed.
        last = (line.strip() for line in reversed(each["output"].splitlines()))
        beginning, whole = next(filter(None, last), "")[:_BEGINNING], ""
        if each["data"] is not None:
            data = json.dumps(each["data"], ensure_ascii=False).replace('"', "")[:_BEGINNING]
            beginning = _smoke(log) if each["name"] == "smoke" else data
            whole = json.dumps(each["data"], indent=1, ensure_ascii=False)
        whole += f"\n\n{each['output']}" if each["output"] else ""
        steps.append((each, beginning, whole[:_SHOWN]))
    loader = PackageLoader("pytest_ascend.contact", "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("summary.html").render(about=about, steps=steps)


def _smoke(log: str) -> str:
    outcomes: Counter[str] = Counter()
    planned = 0
    for line in log.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            kind = record.get("type") if isinstance(record, dict) else ""
            planned = len(record.get("manifest", ())) if kind == "header" else planned
            outcomes.update([str(record.get("outcome"))] if kind == "record" else [])
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    return f"{counts}, of {planned} cases" if counts else "did not run"
