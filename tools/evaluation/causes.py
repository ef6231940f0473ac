"""Mistakes in a training on several ranks, and what ``pytest-ascend diagnose distributed`` names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

#: Mistake of train.py -> the cause that has to be named first; "" for a correct training. Of some, a fault is planted.
CAUSES = {
    "": "",
    "clip": "",
    "sync-batch-norm": "",
    "batch-norm": "note: BatchNorm local",
    "same-data": "data shards overlap",
    "overlap": "data shards overlap",
    "epoch": "sampler not told of the epoch",
    "not-wrapped": "gradients not reduced",
    "frozen": "gradients not reduced",
    "sum": "norm scaled by the number of ranks",
    "buffers": "buffers not broadcast",
    "half": "dtype of the reduction",
    "skipped": "a rank skipped a step alone",
    "emulated": "",
    "seeds": "seeds alike",
    "tail": "gradients not reduced: a part of a bucket",
}
EMULATED = {"emulated": (), "seeds": (), "tail": ("--fault", "hccl-tail-not-reduced:bytes=256"), "sync-batch-norm": ()}


def first_cause(mistake: str, count: int, folder: Path) -> tuple[str, str]:
    """Return what the diagnosis named first, and its first line."""
    train = ["torchrun", "--nproc-per-node", str(count), str(Path(__file__).with_name("train.py"))]
    train += [mistake] if mistake not in ("emulated", "tail") else []
    command = ["pytest-ascend", "diagnose", "distributed", "--output", str(folder / (mistake or "correct")), "--"]
    command += train
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if mistake in EMULATED:
        command = ["pytest-ascend", "emulate", "--devices", str(count), *EMULATED[mistake], "--", *command]
    else:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    lines = done.stdout.splitlines()
    causes = [each.removeprefix("CAUSE: ").partition(" (")[0] for each in lines if each.startswith("CAUSE")]
    notes = [each.partition(" (")[0] for each in lines if each.startswith("note")]
    said = (each for each in lines if each.startswith("pytest-ascend:") and "recording" in each)
    return next(iter([*causes, *notes]), ""), next(said, done.stderr[-300:])


@click.command()
@click.argument("mistakes", nargs=-1)
@click.option("--ranks", "count", default=2, show_default=True)
def main(mistakes: tuple[str, ...], count: int) -> None:
    """Plant each mistake in train.py: what ``pytest-ascend diagnose distributed`` names, as a table.

    On the CPU, or on the emulated device where a mistake needs one. Exits with 1 where a cause is not named.
    """
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for mistake in mistakes or CAUSES:
            found, first = first_cause(mistake, count, Path(folder))
            missed += found != CAUSES[mistake]
            click.echo(f"| {mistake or 'correct'} | {CAUSES[mistake] or '-'} | {found or '-'} | {first} |")
    sys.exit(missed > 0)
