"""An analysis on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pytest_ascend.migration.analysis import STANDINGS, Analysis, Memory, Operator
from pytest_ascend.migration.blockers import SEVERITIES
from pytest_ascend.verdict.figures import quantity

#: Rows of a table; the JSON and the page have all.
ROWS = 12

HOW = {
    "npu": "fake NPU tensors: what torch_npu dispatches to",
    "meta": "meta tensors: what torch has on any device; torch_npu may take fused operators in their place",
    "cpu": "real tensors on the CPU, as the model looks at its values",
}


def show(analysis: Analysis) -> None:
    """Print tables of operators, memory and findings."""
    console = Console(highlight=False)
    for line in headlines(analysis):
        console.print(line, markup=False)
    if analysis.operators:
        console.print(_standings(analysis))
    if analysis.blocking:
        console.print(_operators("not on the NPU, the costliest first", analysis.blocking))
    if analysis.heaviest:
        console.print(_operators("most arithmetic", analysis.heaviest[:5]))
    if analysis.memory:
        console.print(_memory(analysis))
    if analysis.findings:
        console.print(_findings(analysis))
    for note in analysis.notes:
        console.print(f"note: {note}", markup=False)


def headlines(analysis: Analysis) -> Iterator[str]:
    """Yield what it comes to, in a few sentences."""
    if analysis.model:
        yield f"{analysis.model}, one step, {HOW[analysis.way]}"
        yield f"operators by {analysis.asked}" if analysis.asked else "no torch_npu here: name a census with --census"
        counts = ", ".join(f"{count} {standing}" for standing, count in analysis.counts.items())
        yield f"{len(analysis.operators)} operators: {counts}"
        yield _fits(analysis)
    if analysis.source:
        counts = ", ".join(f"{_count(analysis, each)} {each}" for each in SEVERITIES)
        yield f"{analysis.source}: {counts}"


def _fits(analysis: Analysis) -> str:
    chip, memory = analysis.chip, analysis.memory[-1]
    capacity = f"{chip.name} has {quantity('_bytes', chip.memory_bytes)}"
    peak = f"batch {memory.batch} takes {quantity('_bytes', memory.peak)}"
    if analysis.largest_batch is None:
        return f"{peak}; {capacity}"
    if not analysis.largest_batch:
        return f"{peak}; {capacity}: not even the parameters fit"
    return f"{peak}; {capacity}: up to batch {analysis.largest_batch:,} should fit"


def _count(analysis: Analysis, severity: str) -> int:
    return sum(each.severity == severity for each in analysis.findings)


def _table(*columns: str, title: str = "") -> Table:
    """Return a table whose cells fold, so that a narrow terminal shows all of them."""
    table = Table(title=escape(title) or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _standings(analysis: Analysis) -> Table:
    table = _table("standing", "operators", "calls", "what it means")
    for standing, count in analysis.counts.items():
        calls = sum(each.all_calls for each in analysis.operators if each.standing == standing)
        table.add_row(standing, f"{count:,}", f"{calls:,}", STANDINGS[standing])
    return table


def _operators(title: str, operators: tuple[Operator, ...]) -> Table:
    table = _table("operator", "standing", "calls", "data", "GFLOP", "most often on", title=title)
    for each in operators[:ROWS]:
        on = f"{each.signatures[0][0]} ({each.signatures[0][1]}x)" if each.signatures else ""
        data = quantity("_bytes", each.moved_bytes)
        table.add_row(
            escape(each.name), each.standing, f"{each.all_calls:,}", data, f"{each.flops / 1e9:,.2f}", escape(on)
        )
    if len(operators) > ROWS:
        table.add_row(f"and {len(operators) - ROWS} more", "", "", "", "", "--json or --html names all")
    return table


def _memory(analysis: Analysis) -> Table:
    columns = ("batch", "parameters", "gradients", "optimizer", "activations", "training", "inference")
    table = _table(*columns, title=f"memory, optimizer {analysis.optimizer}")
    for each in analysis.memory:
        table.add_row(f"{each.batch:,}", *(quantity("_bytes", value) for value in _parts(each)))
    return table


def _parts(memory: Memory) -> tuple[int, ...]:
    own = memory.parameters + memory.buffers
    return (
        own,
        memory.gradients,
        memory.optimizer,
        memory.activations,
        memory.training_peak,
        memory.inference_peak,
    )


def _findings(analysis: Analysis) -> Table:
    table = _table("where", "severity", "what", "use instead", title=analysis.source)
    for each in analysis.findings:
        what = escape(f"{each.what}: {each.says}")
        table.add_row(escape(f"{each.path}:{each.line}"), each.severity, what, escape(each.instead))
    return table
