"""All cases of a run in the compact form that the page's script unfolds: 10,000 cases have to fit in few megabytes.

Texts stand once, in ``texts``, and are named by their number. Metrics stand without their names, which are those of
a ``shape``. A case is a list; ``CASE_FIELDS`` names its places for people and for the script alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec
from pytest_ascend.verdict import evidence, figures
from pytest_ascend.verdict.summary import ORDER, Summary

CASE_FIELDS = (
    "suite",
    "subject",
    "property",
    "dtype",
    "family",
    "outcome",
    "finding",
    "file",
    "parameters",
    "line",
    "seconds",
    "time",
    "used",
    "used_text",
    "verdicts",
    "measures",
    "fallbacks",
    "detail",
    "snippet",
)
VERDICT_FIELDS = (
    "agrees",
    "path",
    "standard",
    "headline",
    "pattern",
    "message",
    "waiver",
    "worst",
    "shape",
    "values",
    "leaves",
)
#: Bytes of long texts (messages, tracebacks) on one page. What comes later is left to the log.
TEXT_BUDGET_BYTES = 2_000_000
#: The same for programs of cases that do not conform, and of those that do.
SNIPPETS_BUDGET_BYTES = {False: 1_000_000, True: 300_000}
_LONG = 200
_LEFT_OUT = "(left out to keep this page small; the log has it)"


class _Packing:
    """Collects the texts and shapes that cases share."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.shapes: dict[tuple[str, ...], int] = {}
        self.budget_bytes = TEXT_BUDGET_BYTES
        self.snippets_budget_bytes = dict(SNIPPETS_BUDGET_BYTES)

    def text(self, text: str) -> int:
        """Return the number of a text, which may be a new one."""
        if len(text) > _LONG and text not in self.texts:
            self.budget_bytes -= len(codec.for_script(text).encode())
            if self.budget_bytes < 0:
                text = _LEFT_OUT
        return self.texts.setdefault(text, len(self.texts))

    def snippet(self, result: ResultRecord) -> int:
        """Return the number of a case's program: it is shown whole or not at all, since half of it would not run."""
        program = evidence.program(result)
        if program:
            conforms = result.outcome.conforms
            self.snippets_budget_bytes[conforms] -= len(codec.for_script(program).encode())
            program = program if self.snippets_budget_bytes[conforms] >= 0 else f"# {_LEFT_OUT}"
        return self.texts.setdefault(program, len(self.texts))

    def case(self, result: ResultRecord, line: int | None) -> list[Any]:
        """Pack one case, in the order of CASE_FIELDS."""
        case, used = result.case, evidence.limit_used(result)
        file, bracket, parameters = result.node_id.partition("[")
        parts = (case.suite, case.subject, case.property, case.dtype, case.family)
        return [
            *(self.text(figures.one_line(part)) for part in parts),
            ORDER.index(result.outcome.name),
            self.text(evidence.finding(result)),
            self.text(figures.one_line(file)),
            self.text(figures.one_line(bracket + parameters)),
            line,
            figures.rounded(result.duration_s),
            self.text(figures.duration(result.duration_s) if result.node_id else ""),
            None if used is None else figures.rounded(used),
            self.text("" if used is None else figures.used(used)),
            [self.verdict(verdict, whole=self._is_wanted_whole(result)) for verdict in result.verdicts],
            [[self.text(each.name), self.text(each.value)] for each in evidence.measures(result)],
            [self.text(evidence.line(name)) for name in result.fallbacks],
            self.text(evidence.text(result.outcome.detail)),
            self.snippet(result),
        ]

    def _is_wanted_whole(self, result: ResultRecord) -> bool:
        """Whether every tensor of a comparison is of interest: in a model its layers are, in an operator its faults."""
        return result.case.suite == "models" or not result.outcome.conforms

    def verdict(self, verdict: Mapping[str, Any], *, whole: bool) -> list[Any]:
        """Pack one comparison, in the order of VERDICT_FIELDS; its leaves are comparisons of the same form."""
        metrics = verdict["metrics"]
        leaves = verdict.get("leaves", ()) if whole else ()
        if len(leaves) > evidence.LEAVES_LIMIT:
            leaves = sorted(leaves, key=lambda leaf: bool(leaf["agrees"]))[: evidence.LEAVES_LIMIT]
        return [
            int(verdict["agrees"]),
            self.text(evidence.line(verdict["path"])),
            self.text(evidence.line(verdict["standard"])),
            self.text(evidence.line(verdict["headline"])),
            self.text(evidence.line(verdict["pattern"])),
            self.text(evidence.text(verdict["message"])),
            self.text(evidence.line(verdict.get("waiver", ""))),
            [[self.text(name), figure] for name, figure in evidence.worst(verdict)],
            self.shape(metrics),
            [figures.rounded(value) for value in metrics.values() if value is not None],
            [self.verdict(leaf, whole=False) for leaf in leaves] if len(leaves) > 1 else 0,
        ]

    def shape(self, metrics: Mapping[str, float | None]) -> int:
        """Return the number of a list of metric names, which may be a new one."""
        names = tuple(name for name, value in metrics.items() if value is not None)
        return self.shapes.setdefault(names, len(self.shapes))


def case_data(summary: Summary) -> dict[str, Any]:
    """Return builtins for :func:`pytest_ascend.runlog.codec.for_script`."""
    packing = _Packing()
    cases = [packing.case(result, summary.lines.get(result.case.id)) for result in summary.results]
    return {
        "fields": CASE_FIELDS,
        "verdictFields": VERDICT_FIELDS,
        "outcomes": list(ORDER),
        "cases": cases,
        "shapes": [[_label(name) for name in shape] for shape in packing.shapes],
        "texts": list(packing.texts),
    }


def _label(name: str) -> str:
    """Write the name of a metric with its unit, since its figures come without."""
    label = figures.words(name)
    unit = figures.unit(name)
    return f"{label} ({unit})" if unit else label
