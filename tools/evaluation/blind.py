"""Cases that accept a wrong result made of the device's right one: zeros, an input, one element, a shuffled result.

Every selected case plants its canaries, whatever the level; ``-p tools.evaluation.blind`` does the same in any run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from pytest_ascend.precision import canaries
from pytest_ascend.runlog.reading import read

from .support import table

canaries.SHARES = dict.fromkeys(canaries.SHARES, 1.0)


@click.command(help=__doc__)
@click.option("--level", default="smoke", show_default=True, help="The level of the cases.")
@click.option("-k", "selected", default="", help="Select cases, as pytest does.")
def main(level: str, selected: str) -> None:
    """Run the cases, and count the blind ones."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "--ascend", "-q", "-p", "tools.evaluation.blind"]
        command += [f"--ascend-level={level}", f"--ascend-report={folder}", *(["-k", selected] if selected else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        log = Path(folder, "run.jsonl")
        if not log.exists():
            raise click.ClickException(f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
        records = [each for each in read(log).records if each.verdicts and each.outcome_name == "passed"]
    blind = [each for each in records if each.blind]
    for each in blind:
        click.echo(f"{each.case.id}: {', '.join(each.blind)}")
    suites = Counter(each.case.suite for each in records)
    rows = [
        (suite, f"{count:,}", *(f"{_count(records, suite, kind):,}" for kind in canaries.CANARIES))
        for suite, count in suites.items()
    ]
    click.echo("\n".join(table(("suite", "cases", *canaries.CANARIES), rows)))
    click.echo(f"{len(blind)} of {len(records):,} cases that compare are blind to a canary.")


def _count(records: list, suite: str, kind: str) -> int:  # type: ignore[type-arg]
    return sum(kind in each.blind for each in records if each.case.suite == suite)
