"""Does the verdict on speed keep its promises? Runs of the benchmark suite against a baseline of the same machine.

A/A: runs in which nothing is slower; how many benchmarks are called slower all the same. A/B: runs in which half of the
operators of the emulated device take 5, 10 or 30 % longer; how often those, and no others, are called slower. To
measure beside another process, start one, such as ``stress --cpu 1``.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from pytest_ascend.performance.baseline import write
from pytest_ascend.performance.commands import GOOD_RUNS, baseline_of
from pytest_ascend.performance.comparison import STANDARD
from pytest_ascend.performance.verdict import CANNOT_TELL, NOT_SLOWER, SLOWER
from pytest_ascend.runlog.contents import Run

from .support import run_suite, table

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
ANSWERS = (SLOWER, NOT_SLOWER, CANNOT_TELL)


def answers(run: Run) -> dict[str, str]:
    """Return what was said of each benchmark."""
    return {
        record.case.subject: verdict.headline.partition(":")[0]
        for record in run.records
        for verdict in record.verdicts
        if verdict.standard == STANDARD
    }


@click.command(help=__doc__)
@click.option("--short", is_flag=True, help="A few runs, to see that it works.")
def main(short: bool) -> None:
    """Print how often each answer was right."""
    recorded, rounds = (3, {0.0: 1, 0.3: 1}) if short else (GOOD_RUNS, {0.0: 12, 0.05: 3, 0.1: 8, 0.3: 4})
    rows = []
    with tempfile.TemporaryDirectory() as name:
        scratch, baselines = Path(name), Path(name, "baselines")
        baselines.mkdir()
        arguments = ["suites/benchmarks", "-k", " or ".join(KERNELS), "--ascend-level=full"]
        runs = [
            run_suite(scratch / f"{each}", *arguments, f"--ascend-baselines={baselines}") for each in range(recorded)
        ]
        write(baseline_of(runs), baselines)
        for share, count in rounds.items():
            slowed, rest = Counter[str](), Counter[str]()
            for number in range(count):
                names = list(KERNELS)[number % 2 :: 2] if share else []
                faults = [f"--ascend-emulate=fault=slow:operator={KERNELS[each]}:share={share}" for each in names]
                faults.append(f"--ascend-baselines={baselines}")
                for subject, answer in answers(run_suite(scratch / f"{share}-{number}", *arguments, *faults)).items():
                    (slowed if subject in names else rest)[answer] += 1
                click.echo(".", nl=False, err=True)
            counts = [(slowed if share else rest)[each] for each in ANSWERS]
            rows.append((f"{share:.0%}" if share else "nothing", *counts, f"{rest[SLOWER]} of {rest.total()}"))
    click.echo("\n".join(table(("slowed down by", *ANSWERS, "others called slower"), rows)))
