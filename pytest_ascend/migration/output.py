"""An analysis on the terminal, and as a page: one file without scripts that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import groupby

from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pytest_ascend.migration.analysis import STANDINGS, Analysis, Operator
from pytest_ascend.migration.sources import BLOCKER, CHANGE, SEVERITIES, TRANSFER
from pytest_ascend.records.census import MISSING
from pytest_ascend.system.figures import one_line, quantity
from pytest_ascend.system.templates import templates_of
from pytest_ascend.system.translation import ENGLISH, translated
from pytest_ascend.system.version import __version__

#: Parts of a bar in drawing order, with their labels.
PARTS = {
    "parameters": "parameters and buffers",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "rest": "activations and temporaries",
}


def render(analysis: Analysis, language: str = ENGLISH) -> str:
    """Return the page of an analysis; every text on it is escaped."""
    style = (files("pytest_ascend.migration") / "templates" / "analysis.css").read_text(encoding="utf-8")
    environment = templates_of("pytest_ascend.migration")
    environment.filters["size"] = lambda value: quantity("_bytes", value)
    environment.filters["say"] = partial(translated, language=language, of="analysis")
    # Each peak is drawn in parts, on a scale that ends at the chip's memory, or at the largest peak.
    capacity = analysis.chip.memory_bytes
    scale = max([capacity, *(each.peak for each in analysis.memory)])
    bars = []
    for memory in analysis.memory:
        state = (memory.gradients, memory.optimizer) if memory.training_peak else (0, 0)
        sizes = [memory.parameters + memory.buffers, *state]
        sizes.append(max(0, memory.peak - sum(sizes)))
        placed = [
            {"name": name, "x": 1000 * sum(sizes[:at]) / scale, "width": 1000 * sizes[at] / scale, "bytes": sizes[at]}
            for at, name in enumerate(PARTS)
        ]
        bars.append({"memory": memory, "parts": placed, "limit": 1000 * capacity / scale})
    return environment.get_template("analysis.html").render(
        analysis=analysis,
        answer=answer(analysis),
        headlines=list(headlines(analysis))[1:],
        standings=STANDINGS,
        severities=SEVERITIES,
        bars=bars,
        parts=PARTS,
        version=__version__,
        language=language,
        style=Markup(style),  # noqa: S704 - a file of the package
    )


#: Rows of a table; the JSON and the page have all rows.
ROWS = 12

HOW = {
    "npu": "fake NPU tensors: what torch_npu dispatches to",
    "meta": "meta tensors: what torch has on any device; torch_npu may take fused operators in their place",
    "cpu": "real tensors on the CPU: what only the CPU calls is in the list",
}


def show(analysis: Analysis, language: str = ENGLISH) -> None:
    """Print tables of operators, memory and findings."""
    console, say = Console(highlight=False), partial(translated, language=language, of="analysis")
    for line in headlines(analysis):
        console.print(one_line(say(line)), markup=False)
    if analysis.operators:
        table = _table("standing", "operators", "calls", "what it means", say=say)
        for standing, count in analysis.counts.items():
            calls = sum(each.all_calls for each in analysis.operators if each.standing == standing)
            table.add_row(standing, f"{count:,}", f"{calls:,}", say(STANDINGS[standing]))
        console.print(table)
    if analysis.blocking:
        console.print(_operators("not on the NPU, the costliest first", analysis.blocking, console.width, say))
    if heaviest := sorted((each for each in analysis.operators if each.flops), key=lambda each: -each.flops):
        console.print(_operators("most arithmetic", heaviest[:5], console.width, say))
    if analysis.memory:
        columns = ("batch", "weights", "gradients", "optimizer", "activations", "training", "inference")
        table = _table(*columns, title=f"memory, optimizer {analysis.optimizer}", say=say)
        for each in analysis.memory:
            parts = (each.parameters + each.buffers, each.gradients, each.optimizer, each.activations)
            sizes = (*parts, each.training_peak, each.inference_peak)
            table.add_row(f"{each.batch:,}", *(quantity("_bytes", value) for value in sizes))
        console.print(table)
    # The findings by remedy, then by purpose, then by place.
    for severity, instead in dict.fromkeys((each.severity, each.instead) for each in analysis.findings):
        console.print(Text(f"\n{say(severity)}: {say(instead)}"))
        own = [each for each in analysis.findings if (each.severity, each.instead) == (severity, instead)]
        for says, places in groupby(sorted(own, key=lambda each: each.says), key=lambda each: each.says):
            console.print(Padding(Text(say(says)), (0, 0, 0, 2)))
            for place in places:
                console.print(Padding(Text(one_line(f"{place.path}:{place.line}  {place.what}")), (0, 0, 0, 4)))
    for note in analysis.notes:
        console.print(one_line(say("note: ") + say(note)), markup=False)


def headlines(analysis: Analysis) -> Iterator[str]:
    """Yield the conclusions, in a few sentences, the answer first."""
    yield answer(analysis)
    if analysis.model:
        yield f"{analysis.model}, one step, {HOW[analysis.mode]}"
        source = analysis.standings_of
        yield f"operators by {source}" if source else "no torch_npu here: name a census with --census"
        counts = ", ".join(f"{count} {standing}" for standing, count in analysis.counts.items())
        yield f"{len(analysis.operators)} operators: {counts}"
        chip, memory = analysis.chip, analysis.memory[-1]
        peak = f"batch {memory.batch} takes {quantity('_bytes', memory.peak)}"
        # Two digits, which is the precision of the search.
        largest = int(float(f"{analysis.largest_batch or 0:.2g}"))
        fits = f": up to about batch {largest:,} should fit" if largest else ": not even the parameters fit"
        fits = "" if analysis.largest_batch is None else fits
        yield f"{peak}; {chip.name} has {quantity('_bytes', chip.memory_bytes)}{fits}"
        hindered = analysis.uncapturable
        yield ("captured graphs: these keep it out" if hindered else "captured graphs: nothing known keeps it out")
        yield from (f"captured graphs: {each}" for each in hindered)
        if analysis.graph_breaks is not None:
            yield f"torch.compile: {len(analysis.graph_breaks)} graph breaks"
            yield from (f"torch.compile: {each}" for each in analysis.graph_breaks)
    if analysis.source:
        blockers, changes, advice = (_count(analysis, each) for each in SEVERITIES)
        yield f"{analysis.source}: blockers {blockers}, changes {changes}, advice {advice}"
        solved = sum(each.source == TRANSFER for each in analysis.findings)
        if solved:
            yield f"import torch_npu.contrib.transfer_to_npu solves {solved} of {len(analysis.findings)}"


def answer(analysis: Analysis) -> str:
    """Return, in a sentence, whether the model runs on an NPU."""
    if analysis.is_blocked:
        missing = sum(each.standing == MISSING for each in analysis.operators)
        reasons = {"operators that NPUs do not have": missing, "blockers in the source": _count(analysis, BLOCKER)}
        return f"It does not run on an NPU unchanged: {', '.join(f'{n} {what}' for what, n in reasons.items() if n)}."
    if analysis.blocking:
        return f"It should run; {len(analysis.blocking)} operators are computed on the CPU."
    changes = _count(analysis, CHANGE)
    if changes == 1:
        return "It runs after one change."
    return f"It runs after {changes} changes." if changes else "Nothing known keeps it from running on an NPU."


def _count(analysis: Analysis, severity: str) -> int:
    return sum(each.severity == severity for each in analysis.findings)


def _table(*columns: str, say: Callable[[str], str], title: str = "") -> Table:
    """Return a table. Names and figures never wrap; sentences do."""
    table = Table(title=escape(say(title)) or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(say(column), no_wrap=column not in ("what it means", "most often on"), overflow="fold")
    return table


def _operators(title: str, operators: Sequence[Operator], width: int, say: Callable[[str], str]) -> Table:
    on_what = ("most often on",) if width >= 110 else ()  # shapes need a wide terminal
    table = _table("operator", "standing", "calls", "data", "GFLOP", *on_what, title=title, say=say)
    for each in operators[:ROWS]:
        on = f"{each.signatures[0][0]} ({each.signatures[0][1]}x)" if each.signatures else ""
        data = quantity("_bytes", each.moved_bytes)
        row = (escape(each.name), each.standing, f"{each.all_calls:,}", data, f"{each.flops / 1e9:,.2f}", escape(on))
        table.add_row(*row[: len(table.columns)])
    if len(operators) > ROWS:
        table.add_row(say(f"and {len(operators) - ROWS} more: --json or --html"))
    return table
