"""An analysis as a page: one file that loads nothing and runs no script."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_ascend import __version__
from pytest_ascend.migration.analysis import STANDINGS, Analysis, Memory
from pytest_ascend.migration.blockers import SEVERITIES
from pytest_ascend.migration.terminal import headlines
from pytest_ascend.page import html
from pytest_ascend.verdict.figures import quantity, visible

#: Parts of a bar, in the order in which they are drawn, with the words beside them.
PARTS = {
    "parameters": "parameters and buffers",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "rest": "activations and temporaries",
}


def write(path: Path, analysis: Analysis) -> None:
    """Write the page beside ``path`` and put it there."""
    html.write(path, render(analysis))


def render(analysis: Analysis) -> str:
    """Return the page of an analysis; every text on it is escaped."""
    style = (files("pytest_ascend.migration") / "templates" / "analysis.css").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("analysis.html")
        .render(
            analysis=analysis,
            headlines=list(headlines(analysis)),
            standings=STANDINGS,
            severities=SEVERITIES,
            bars=[_bar(each, analysis) for each in analysis.memory],
            parts=PARTS,
            version=__version__,
            style=Markup(style),  # noqa: S704 - a file of the package
            style_hash=f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'",
        )
    )


def _bar(memory: Memory, analysis: Analysis) -> dict[str, Any]:
    """Return the parts of the peak with their place on a scale that ends at the chip's memory, or the largest peak."""
    scale = max(analysis.chip.memory_bytes, *(each.peak for each in analysis.memory))
    trains = bool(memory.training_peak)
    sizes = {
        "parameters": memory.parameters + memory.buffers,
        "gradients": memory.gradients if trains else 0,
        "optimizer": memory.optimizer if trains else 0,
    }
    sizes["rest"] = max(0, memory.peak - sum(sizes.values()))
    placed, start = [], 0.0
    for name, size in sizes.items():
        placed.append({"name": name, "x": 1000 * start / scale, "width": 1000 * size / scale, "bytes": size})
        start += size
    return {"memory": memory, "parts": placed, "limit": 1000 * analysis.chip.memory_bytes / scale}


def _environment() -> Environment:
    """Return an environment that escapes whatever the name of the template, and where a typo is an error."""
    environment = Environment(
        loader=PackageLoader("pytest_ascend.migration"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = lambda value: quantity("_bytes", value)
    return environment
