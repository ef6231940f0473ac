"""Plant each cause in train.py and say what ``pytest-ascend diagnose distributed`` makes of it, as a table.

python tools/distributed/causes.py [RANKS] [NAME ...]; without an NPU, on the CPU, or on the emulated device where a
cause needs one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

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


def named(mistake: str, ranks: str, folder: Path) -> tuple[str, str]:
    """Return what the diagnosis named first, and its first line."""
    train = ["torchrun", "--nproc-per-node", ranks, str(Path(__file__).with_name("train.py"))]
    train += [mistake] if mistake not in ("emulated", "tail") else []
    command = [
        "pytest-ascend",
        "diagnose",
        "distributed",
        "--output",
        str(folder / (mistake or "correct")),
        "--",
        *train,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if mistake in EMULATED:
        command = ["pytest-ascend", "emulate", "--devices", ranks, *EMULATED[mistake], "--", *command]
    else:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    lines = done.stdout.splitlines()
    causes = [each.removeprefix("CAUSE: ").partition(" (")[0] for each in lines if each.startswith("CAUSE")]
    notes = [each.partition(" (")[0] for each in lines if each.startswith("note")]
    first = next(
        (each for each in lines if each.startswith("pytest-ascend:") and "recording" in each), done.stderr[-300:]
    )
    return next(iter([*causes, *notes]), ""), first


def main() -> None:
    """Print the table; exit with 1 where a cause is not named."""
    ranks, names = (sys.argv[1] if len(sys.argv) > 1 else "2"), sys.argv[2:] or list(CAUSES)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for mistake in names:
            found, first = named(mistake, ranks, Path(folder))
            missed += found != CAUSES[mistake]
            print(f"| {mistake or 'correct'} | {CAUSES[mistake] or '-'} | {found or '-'} | {first} |", flush=True)  # noqa: T201
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
