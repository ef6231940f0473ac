"""The page of a kit: a summary of the machine, and below it every answer unchanged."""

from __future__ import annotations

import contextlib
import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1c2733}
h1{margin-bottom:.2em}h2{margin-top:1.6em}table{border-collapse:collapse}
td,th{padding:.25em 1em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid #dde3ea}
pre{background:#f4f6f8;padding:1em;overflow:auto;max-height:40em;font-size:13px}summary{cursor:pointer;padding:.3em 0}
.failed,.late{color:#a40000;font-weight:600}.emulated{background:#fff3cd;padding:.6em 1em}
"""
#: Characters of an answer in the table, and below it.
_BEGINNING, _SHOWN = 400, 400_000


def page(about: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], log: str = "") -> Iterator[str]:
    """Yield the page: ``about`` describes the kit, ``answers`` are its steps, ``log`` is that of the run."""
    yield "<!doctype html><html lang='en'><meta charset='utf-8'><title>One machine with an NPU</title>"
    yield f"<style>{_STYLE}</style><h1>One machine</h1>"
    version = _text(about["pytest_ascend"])
    yield f"<p>Made {_text(about['made'])} in {about['seconds']:.0f} s by pytest-ascend {version}. "
    yield "Names and addresses are removed; look through it before you send it.</p>"
    if about["emulated"]:
        yield "<p class='emulated'><b>THE EMULATED DEVICE:</b> says nothing about any NPU.</p>"
    yield "<h2>In short</h2><table><tr><th>step<th>status<th>seconds<th>answer, or what it printed</tr>"
    for each in answers:
        yield f"<tr class='{_text(each['status'])}'><td><a href='#{_text(each['name'])}'>{_text(each['name'])}</a>"
        # The beginning of an answer; what level smoke came to; without either, the last line that was printed.
        last = (line.strip() for line in reversed(each["output"].splitlines()))
        beginning = next(filter(None, last), "")[:_BEGINNING]
        if each["data"] is not None:
            data = json.dumps(each["data"], ensure_ascii=False).replace('"', "")[:_BEGINNING]
            beginning = _smoke(log) if each["name"] == "smoke" else data
        yield f"<td>{_text(each['status'])}<td>{each['seconds']:.1f}<td>{_text(beginning)}</tr>"
    yield "</table><h2>All answers</h2>"
    for each in answers:
        shown = json.dumps(each["data"], indent=1, ensure_ascii=False) if each["data"] is not None else ""
        printed = f"\n\n{each['output']}" if each["output"] else ""
        yield f"<details id='{_text(each['name'])}'><summary>{_text(each['name'])}</summary>"
        yield f"<pre>{_text(f'{shown}{printed}'[:_SHOWN])}</pre></details>"
    yield "</html>"


def _text(value: object) -> str:
    return html.escape(str(value))


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
