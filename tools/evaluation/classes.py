"""Faults that no single kernel has, by class: how many of them the suites that could see each one notice, by level."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from pytest_ascend.coverage import manifest
from pytest_ascend.system.bundled import folder
from tests.meta.planted import complaints
from tests.meta.spoiled_by_class import CASES, faults_of

from .support import table

LEVELS = ("smoke", "standard")


@click.command(help=__doc__)
@click.option("--class", "chosen", multiple=True, type=click.Choice(list(CASES)), help="Plant faults of these only.")
@click.option("--level", "levels", multiple=True, type=click.Choice(LEVELS), default=LEVELS, help="Levels to run.")
def main(chosen: tuple[str, ...], levels: tuple[str, ...]) -> None:
    """Plant each fault in a fork of its own, and print the share that was seen."""
    rows, cases = [], list(manifest.load(folder("suites")))
    for name in chosen or CASES:
        suites, properties = map(str.split, CASES[name])
        faults, counts = faults_of(name), []
        for level in levels:
            known = LEVELS[: LEVELS.index(level) + 1]
            asked = [each.id for each in cases if each.suite in suites and each.property in properties]
            asked = [each.id for each in cases if each.id in set(asked) and each.level in known]
            planted = [
                {"faults": [each], "cases": asked, "level": level, "until_first": True} for each in faults.values()
            ]
            with tempfile.TemporaryDirectory() as where:
                right, *found = complaints([{"faults": [], "cases": asked, "level": level}, *planted], Path(where))
            for case in (case for case, said in right.items() if said):
                click.echo(f"{case} fails without a fault: {right[case][:150]}", err=True)
            wrong = [{case for case, said in each.items() if said and not right[case]} for each in found]
            missed = [each for each, seen in zip(faults, wrong, strict=True) if not seen]
            counts.append(f"{len(faults) - len(missed)} of {len(faults)}")
            click.echo(f"{name}, {level}: missed {', '.join(missed) or 'none'}", err=True)
        rows.append((name, *counts))
    click.echo("\n".join(table(("class", *levels), rows)))
