"""Faults that no single kernel has, by class: how many of them the suites that could see each one notice, by level.

Four of the ten classes have built-in faults: streams and events, data movement, time and memory, autograd. State
between calls, optimizers, random numbers, long chains, models' parts and refusals have none, and are not measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from pytest_ascend.emulator.faults import RUNTIME_FAULTS

from .support import run_suite, table

LEVELS = ("smoke", "standard")
#: Class -> how the names of its faults begin, and the suites that could see them.
CLASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "streams and events": (("stream-", "event-"), ("suites/runtime",)),
    "data movement": (("copy-cut", "copy-repeats", "copy-loses", "copy-between", "copy-to"), ("suites/runtime",)),
    "time and memory": (("copy-is-slow", "memory-"), ("suites/runtime",)),
    "autograd": (("silu-gradient-halved",), ("suites/programs",)),
}


@click.command(help=__doc__)
@click.option("--class", "chosen", multiple=True, type=click.Choice(list(CLASSES)), help="Plant faults of these only.")
@click.option("--level", "levels", multiple=True, type=click.Choice(LEVELS), default=LEVELS, help="Levels to run.")
@click.option("--every", default=1, help="Plant every n-th fault of a class only.")
def main(chosen: tuple[str, ...], levels: tuple[str, ...], every: int) -> None:
    """Plant each fault in a run of its own, and print the share that was seen."""
    rows = []
    for name in chosen or CLASSES:
        begins, suites = CLASSES[name]
        faults = [each for each in (*RUNTIME_FAULTS, "silu-gradient-halved") if each.startswith(begins)][::every]
        seen = {level: [each for each in faults if _is_seen(each, level, suites)] for level in levels}
        for level, found in seen.items():
            missed = ", ".join(each for each in faults if each not in found)
            click.echo(f"{name}, {level}: missed {missed or 'none'}", err=True)
        rows.append((name, *(f"{len(found)} of {len(faults)}" for found in seen.values())))
    click.echo("\n".join(table(("class", *levels), rows)))


def _is_seen(fault: str, level: str, suites: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        found = run_suite(Path(folder), f"--ascend-level={level}", f"--ascend-emulate=fault={fault}", *suites)
    return any(each.outcome_name in ("failed", "errored", "flaky") for each in found.records)
