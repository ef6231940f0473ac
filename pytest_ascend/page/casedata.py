"""All cases of a run in a compact form that the page's script expands: 20,000 cases must open in half a second.

``index`` has the data of the list, the grids and the search, and is read when the page opens. ``details`` has the rest
of each case; it is compressed, and read when a case is first opened. In both, texts are stored once, in ``texts``, and
referred to by number. Metrics are stored without names, which are in a ``shape``.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.runlog import codec
from pytest_ascend.system import figures
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.suites import describe
from pytest_ascend.system.translation import CHINESE, translated
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.columns import abbreviations, columns_of, dtype_key
from pytest_ascend.verdict.summary import ORDER, Summary

#: The cells before the columns in a row of the index: texts by number, the outcome by its rank.
INDEX_FIELDS = ("suite", "subject", "property", "dtype", "family", "outcome", "cause")
DETAIL_FIELDS = ("file", "parameters", "line", "verdicts", "measures", "fallbacks", "detail", "snippet")
VERDICT_FIELDS = (
    *("agrees", "path", "standard", "headline", "pattern", "message", "waiver"),
    *("worst", "elements", "where", "shape", "values", "leaves"),
)
#: Bytes of long texts (messages, tracebacks) on one page. Later ones are only in the log.
TEXT_BUDGET_BYTES = 2_000_000
#: Likewise for programs of non-conformant cases, and of conformant ones.
SNIPPETS_BUDGET_BYTES = {False: 1_000_000, True: 300_000}
#: A line of a diagnosis: the CANN code that it explains, its meaning, and the source.
_LINE = re.compile(r"( *(?:[A-Z]*\d+: )?)(.*?)((?: \((?:CANN|hicann/|torch_npu/).*\))?)")
_LEFT_OUT = "(left out to keep this page small; the log has it)"


class _Texts:
    """Texts, each stored once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.budget_bytes = TEXT_BUDGET_BYTES

    def __call__(self, text: str) -> int:
        """Return the number of a text, adding it if it is new."""
        if len(text) > 200 and text not in self.known:
            self.budget_bytes -= len(codec.for_script(text).encode())
            if self.budget_bytes < 0:
                text = _LEFT_OUT
        return self.known.setdefault(text, len(self.known))


def index_of(summary: Summary, causes: Mapping[str, int]) -> dict[str, Any]:
    """Return builtins for :func:`pytest_ascend.runlog.codec.for_script`; ``causes`` has a case's cause by id."""
    text, columns = _Texts(), [each for each in columns_of("page") if each.name not in ("outcome", "case")]
    rows, by_suite = [], by_key((figures.one_line(each.case.suite), each.case) for each in summary.results)
    for result in summary.results:
        case = result.case
        parts = (case.suite, case.subject, case.property, case.dtype, case.family)
        row = [*(text(figures.one_line(part)) for part in parts), ORDER.index(result.outcome_name)]
        row.append(causes.get(case.id, -1))
        for column in columns:
            value = column.value(result, "")
            row.append(text(column.shown(result, "")))
            if column.is_number:
                row.append(figures.rounded(value) if isinstance(value, int | float) else value)  # type: ignore[arg-type]
        rows.append(row)
    return {
        "fields": INDEX_FIELDS,
        "columns": [{"name": each.name, "number": each.is_number} for each in columns],
        "outcomes": list(ORDER),
        # The layout of each suite's cases: letters for its properties, its dtypes in order.
        "suites": {
            suite: {
                "grid": describe(suite).grid,
                "letters": abbreviations(list(dict.fromkeys(figures.one_line(each.property) for each in cases))),
                "dtypes": [figures.one_line(each) for each in sorted({each.dtype for each in cases}, key=dtype_key)],
            }
            for suite, cases in by_suite.items()
        },
        "cases": rows,
        "texts": list(text.known),
    }


def details_of(summary: Summary) -> str:
    """Return the details of all cases as JSON, compressed by zlib, in base64, which cannot close an element."""
    packing = _Packing()
    cases = [packing.case(result, summary.lines.get(result.case.id)) for result in summary.results]
    units = {name: figures.unit(name) for shape in packing.shapes for name in shape}
    labels = {name: f"{figures.words(name)} ({unit})" if unit else figures.words(name) for name, unit in units.items()}
    details = {
        "fields": DETAIL_FIELDS,
        "verdictFields": VERDICT_FIELDS,
        "cases": cases,
        "shapes": [list(map(labels.get, shape)) for shape in packing.shapes],
        "texts": list(packing.text.known),
        "chinese": packing.chinese,
    }
    return b64encode(zlib.compress(codec.for_script(details).encode("utf-8", "backslashreplace"), 6)).decode()


class _Packing:
    """Collects the texts and shapes that the details of cases share."""

    def __init__(self) -> None:
        self.text = _Texts()
        self.shapes: dict[tuple[str, ...], int] = {}
        self.snippets_budget_bytes = dict(SNIPPETS_BUDGET_BYTES)
        #: Returns the number of a line of foreign text; most lines repeat.
        self.line = cache(lambda foreign: self.text(evidence.line(foreign)))
        #: Findings in Chinese, by the number of their text.
        self.chinese: dict[int, str] = {}

    def case(self, result: ResultRecord, line: int | None) -> list[Any]:
        """Pack one case, in the order of DETAIL_FIELDS."""
        file, bracket, parameters = result.node_id.partition("[")
        # A model's tensors are all kept, as they are its layers; an operator's only if they are wrong.
        whole = result.case.suite == "models" or not result.conforms
        # A program is included whole or not at all, since half a program would not run.
        if program := evidence.program(result):
            self.snippets_budget_bytes[result.conforms] -= len(codec.for_script(program).encode())
            program = program if self.snippets_budget_bytes[result.conforms] >= 0 else f"# {_LEFT_OUT}"
        return [
            self.text(figures.one_line(file)),
            self.text(figures.one_line(bracket + parameters)),
            line,
            [self.verdict(verdict, whole=whole) for verdict in result.verdicts],
            [[self.text(name), self.text(value)] for name, value in evidence.measures(result)],
            [self.line(name) for name in result.fallbacks],
            self.detail(result),
            self.text.known.setdefault(program, len(self.text.known)),
        ]

    def detail(self, result: ResultRecord) -> int:
        """Return the number of a case's detail; known explanations of errors are also kept in Chinese."""
        said = evidence.text(result.detail)
        number = self.text(said)
        if result.diagnosis and self.text.known.get(said) == number:
            lines = filter(None, map(_LINE.fullmatch, said.splitlines()))
            told = (each[1] + translated(each[2], CHINESE, "findings") + each[3] for each in lines)
            self.chinese[number] = "\n".join(told)
        return number

    def finding(self, text: str) -> int:
        """Return the number of a finding, and keep its translation."""
        number = self.line(text)
        if number not in self.chinese and (found := translated(evidence.line(text), CHINESE, "findings")) != text:
            self.chinese[number] = found
        return number

    def verdict(self, verdict: Verdict, *, whole: bool) -> list[Any]:
        """Pack one comparison, in the order of VERDICT_FIELDS; its leaves are comparisons, too."""
        metrics = {name: value for name, value in verdict.metrics.items() if value is not None}
        leaves = verdict.leaves if whole else ()
        if len(leaves) > evidence.LEAVES_LIMIT:
            leaves = tuple(sorted(leaves, key=lambda leaf: leaf.agrees)[: evidence.LEAVES_LIMIT])
        return [
            int(verdict.agrees),
            self.line(verdict.path),
            self.line(verdict.standard),
            self.finding(verdict.headline),
            self.finding(verdict.pattern),
            self.text(evidence.text(verdict.message)),
            self.line(verdict.waiver),
            [[self.text(name), figure] for name, figure in evidence.decided(verdict)],
            evidence.elements(verdict),
            evidence.where(verdict),
            self.shapes.setdefault(tuple(metrics), len(self.shapes)),
            [figures.rounded(value) for value in metrics.values()],
            [self.verdict(leaf, whole=False) for leaf in leaves] if len(leaves) > 1 else 0,
        ]
