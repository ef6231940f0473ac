"""What the timing of benchmarks costs, and whether its medians are those of others, all in one run on the CPU.

python tools/timing.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.benchmark import Timer

from pytest_ascend.device.cpu_and_cuda import Cpu
from pytest_ascend.performance.timing import Rounds, plain, time_rounds

ROUNDS = 2000
TURNS = 5
BUDGET_S = 1.0
#: Side of the square matrices of a product that takes about 1 ms.
SIDE = 384

TEST = f"""
import torch
torch.set_num_threads(1)
def test_product(benchmark):
    x = torch.ones({SIDE}, {SIDE})
    benchmark(lambda: x @ x)
"""


def overhead_us() -> float:
    """Return what a round costs beside the call itself: the least of several turns, against calls timed bare."""
    rounds = Rounds(call=lambda: None, device=Cpu())
    ours, bare = [], []
    for _ in range(TURNS):
        ours.append(median(plain(rounds, rounds.run, ROUNDS)))
        bare.append(median(_bare(rounds.call)))
    return (min(ours) - min(bare)) * 1e6


def _bare(call: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def _product(device: torch.device) -> Callable[[], object]:
    x = torch.ones(SIDE, SIDE, device=device)
    return lambda: x @ x


def ours_us() -> float:
    """Return the median of this harness."""
    return median(time_rounds(_product, Cpu(), budget_s=BUDGET_S).latencies_us)


def torchs_us() -> float:
    """Return the median of torch.utils.benchmark."""
    call = _product(torch.device("cpu"))
    return float(
        Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=BUDGET_S).median * 1e6
    )


def pytest_benchmarks_us() -> float:
    """Return the median of pytest-benchmark alone, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        test, out = Path(name, "test_product.py"), Path(name, "out.json")
        test.write_text(TEST, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:ascend", str(test), f"--benchmark-json={out}"]
        subprocess.run(command, cwd=name, capture_output=True, check=True)  # noqa: S603
        return float(json.loads(out.read_text(encoding="utf-8"))["benchmarks"][0]["stats"]["median"] * 1e6)


def main() -> None:
    """Print both."""
    torch.set_num_threads(1)
    console = Console()
    console.print(f"a round costs {overhead_us():.2f} us beside the call")
    table = Table(f"product of {SIDE}x{SIDE} matrices, median of", *(f"turn {turn} us" for turn in range(1, TURNS + 1)))
    measures = {
        "ascend_benchmark": ours_us,
        "torch.utils.benchmark": torchs_us,
        "pytest-benchmark": pytest_benchmarks_us,
    }
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(TURNS):
        for name, measure in measures.items():
            found[name].append(measure())
    for name, times in found.items():
        table.add_row(name, *(f"{each:.0f}" for each in times))
    console.print(table)


if __name__ == "__main__":
    main()
