"""Cases that accept a wrong result derived from the device's right one: zeros, an input, one element, a shuffle.

Every selected case plants its canaries, whatever the level; ``-p tools.evaluation.blind`` does the same in any run.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import click

from pytest_ascend.precision import canaries

from .support import run_suite, table

canaries.SHARES = dict.fromkeys(canaries.SHARES, 1.0)


@click.command(help=__doc__)
@click.option("--level", default="smoke", show_default=True, help="The level of the cases.")
@click.option("-k", "selected", default="", help="Select cases, as pytest does.")
def main(level: str, selected: str) -> None:
    """Run the cases, and count the blind ones."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = ("--ascend-device=auto", f"--ascend-level={level}", *(("-k", selected) if selected else ()))
        records = run_suite(Path(folder), "-p", "tools.evaluation.blind", *chosen).records
    records = [each for each in records if each.verdicts and each.outcome_name == "passed"]
    blind = [each for each in records if each.blind]
    for each in blind:
        click.echo(f"{each.case.id}: {', '.join(each.blind)}")
    suites = Counter(each.case.suite for each in records)
    seen = Counter((each.case.suite, kind) for each in blind for kind in each.blind)
    rows = [
        (suite, f"{count:,}", *(f"{seen[suite, kind]:,}" for kind in canaries.CANARIES))
        for suite, count in suites.items()
    ]
    click.echo("\n".join(table(("suite", "cases", *canaries.CANARIES), rows)))
    click.echo(f"{len(blind)} of {len(records):,} cases that compare are blind to a canary.")
