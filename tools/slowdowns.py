"""Does the verdict on speed keep its promises? Runs of the benchmark suite against a baseline of the same machine.

    python tools/slowdowns.py [--short] [--load]

A/A: runs in which nothing is slower; how many benchmarks are called slower all the same. A/B: runs in which half of the
operators of the emulated device take 5, 10 or 30 % longer; how often those, and no others, are called slower.
``--load`` keeps a second process busy, on and off, all the while.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pytest_ascend.performance.baseline import write
from pytest_ascend.performance.commands import GOOD_RUNS, baseline_of
from pytest_ascend.performance.comparison import STANDARD
from pytest_ascend.performance.verdict import CANNOT_TELL, NOT_SLOWER, SLOWER
from pytest_ascend.runlog.contents import Run
from pytest_ascend.runlog.reading import read

ROOT = Path(__file__).resolve().parents[1]

#: Benchmark -> the operator that it spends its time in. Left out is what differs by 3 % from run to run beside another
#: process (relu-stem, which does nothing but pass through memory), or is so small that the way to the device counts.
KERNELS: Mapping[str, str] = {
    "matmul-1024": "Matmul",
    "bmm-scores": "BatchMatMul",
    "conv2d-patches": "Convolution",
    "gelu-mlp": "Gelu",
    "softmax-scores": "Softmax",
    "topk-vocabulary": "TopkV2",
    "log-softmax-vocabulary": "LogSoftmax",
    "layer-norm-vit": "LayerNorm",
    "max-pool-stem": "MaxPool2dWithMask",
    "batch-norm-stem": "BatchNorm",
    "add-residual": "Add",
}


@dataclass(slots=True)
class Score:
    """How often each answer was given: for what was slowed down, and for the rest."""

    slowed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((SLOWER, NOT_SLOWER, CANNOT_TELL), 0))
    rest: dict[str, int] = field(default_factory=lambda: dict.fromkeys((SLOWER, NOT_SLOWER, CANNOT_TELL), 0))


def measured(scratch: Path, number: str, *, baselines: Path, faults: Sequence[str] = ()) -> Run:
    """Run the benchmarks in a process of their own, and return the log."""
    report = scratch / number
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ascend", "--ascend-level=full"]
    command += [str(ROOT / "suites/benchmarks"), "-k", " or ".join(KERNELS), "--ascend-device=emulated"]
    command += [f"--ascend-report={report}", f"--ascend-baselines={baselines}"]
    command += [f"--ascend-fault={each}" for each in faults]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)  # noqa: S603
    return read(report / "run.jsonl")


def answers(run: Run) -> dict[str, str]:
    """Return what was said of each benchmark."""
    return {
        record.case.subject: verdict.headline.partition(":")[0]
        for record in run.records
        for verdict in record.verdicts
        if verdict.standard == STANDARD
    }


def compared(scratch: Path, baselines: Path, runs: int, share: float) -> Score:
    """Compare so many runs with the baseline, each with every other operator slowed down by ``share``."""
    score = Score()
    for number in range(runs):
        slowed = list(KERNELS)[number % 2 :: 2] if share else []
        faults = [f"slow:operator={KERNELS[name]}:share={share}" for name in slowed]
        for name, answer in answers(measured(scratch, f"{share}-{number}", baselines=baselines, faults=faults)).items():
            (score.slowed if name in slowed else score.rest)[answer] += 1
        print(".", end="", file=sys.stderr, flush=True)  # noqa: T201
    return score


def _disturb() -> None:
    """Want a processor for a while, then not, for ever."""
    while True:
        end = time.perf_counter() + random.uniform(0.1, 2)  # noqa: S311
        while time.perf_counter() < end:
            pass
        time.sleep(random.uniform(0.1, 2))  # noqa: S311


@contextmanager
def second_process(wanted: bool) -> Iterator[None]:
    """Keep a second process busy meanwhile."""
    process = multiprocessing.get_context("spawn").Process(target=_disturb, daemon=True)
    if wanted:
        process.start()
    try:
        yield
    finally:
        if wanted:
            process.terminate()
            process.join()


@click.command()
@click.option("--short", is_flag=True, help="A few runs, to see that it works.")
@click.option("--load", is_flag=True, help="Keep a second process busy.")
def main(short: bool, load: bool) -> None:
    """Print how often each answer was right."""
    recorded, rounds = (3, {0.0: 1, 0.3: 1}) if short else (GOOD_RUNS, {0.0: 12, 0.05: 3, 0.1: 8, 0.3: 4})
    table = Table("slowed down by", "slower", "not slower", "cannot tell", "others called slower", title="answers")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name, second_process(load):
        scratch = Path(name)
        baselines = scratch / "baselines"
        baselines.mkdir()
        runs: Sequence[Run] = [measured(scratch, f"b{each}", baselines=baselines) for each in range(recorded)]
        write(baseline_of(runs), baselines)
        for share, count in rounds.items():
            score = compared(scratch, baselines, count, share)
            counts = score.slowed if share else score.rest
            others = f"{score.rest[SLOWER]} of {sum(score.rest.values())}"
            table.add_row(f"{share:.0%}" if share else "nothing", *(str(each) for each in counts.values()), others)
    cases = (recorded + sum(rounds.values())) * len(KERNELS)
    console = Console()
    console.print(table)
    console.print(f"{(time.monotonic() - begin) / cases:.1f} s a benchmark, starting of pytest and of torch included")


if __name__ == "__main__":
    main()
