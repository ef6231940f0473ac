"""Faults that no single kernel has, by class: how many are detected by the suites that could see them, by level.

A fault counts if a call outside the suites shows it (``tests/meta/shown_by_class.py``). Cases that fail without a fault
are left out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from pytest_ascend.coverage import manifest
from pytest_ascend.system.bundled import folder
from tests.meta.invented_by_class import more_of
from tests.meta.planted import complaints
from tests.meta.spoiled_by_class import CASES, cases_of, faults_of

from .support import show, table


@click.command(help=__doc__)
@click.option("--class", "chosen", multiple=True, type=click.Choice(list(CASES)), help="Plant faults of these only.")
@click.option("--write", "is_written", is_flag=True, help="Put the table into docs/evaluation/operators.md.")
def main(chosen: tuple[str, ...], *, is_written: bool) -> None:
    """Plant each fault in a forked process, run smoke's cases first, and print the share detected."""
    rows, every = [], list(manifest.load(folder("suites")))
    for name in chosen or CASES:
        faults, levels = faults_of(name) | more_of(name), cases_of(name, every)
        clean = [{"faults": [], "cases": [*levels]}, {"faults": [], "cases": [], "shows": [*faults]}]
        proofs = [{"faults": [fault], "cases": [], "shows": [each]} for each, fault in faults.items()]
        with tempfile.TemporaryDirectory() as where:
            right, void, *shown = complaints([*clean, *proofs], Path(where))
            counted = [n for n, said in zip(faults, shown, strict=True) if said.get(n) and not void.get(n)]
            asked = [each for each in levels if not right[each]]
            jobs = [{"faults": [faults[each]], "cases": asked, "until_first": True} for each in counted]
            found = complaints(jobs, Path(where))
        click.echo(f"{name}: left out {', '.join(faults.keys() - {*counted}) or 'no fault'}", err=True)
        for case in levels.keys() - {*asked}:
            click.echo(f"{case} fails without a fault: {right[case][:150]}", err=True)
        seen = [next(((levels[c], c, text) for c, text in each.items() if text), ("", "", "missed")) for each in found]
        for each, by in zip(counted, seen, strict=True):
            click.echo(f"{each}: {by[0]} {by[1]} {by[2][:100]!r}", err=True)
        at = [sum(by[0] in known for by in seen) for known in (("smoke",), ("smoke", "standard"))]
        rows.append((name, len(counted), *(f"{each} ({each / max(len(counted), 1):.0%})" for each in at)))
    lines = table(("class", "visible faults", "seen at smoke", "at standard"), rows)
    show(lines, "operators", "classes", is_written=is_written)
