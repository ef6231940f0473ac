"""What the emulated device costs, as ratios against the CPU in the same run.

    python tools/emulator.py

Prints what one small operator costs beside the same on CPU and where that time goes, then the cost of a training step
of ResNet50. Both sides are timed in turns, and the smallest of several rounds counts, so that other work on the machine
disturbs both alike.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from pytest_ascend import emulator

emulator.activate()

import torch  # noqa: E402  after the activation
import torch_npu  # noqa: E402, F401
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from pytest_ascend.emulator import dispatch  # noqa: E402
from suites.models.architectures import ResNet50  # noqa: E402

ROUNDS = 15
CALLS = 2000
STEPS = 5


def per_call_us(function: Callable[[], object]) -> float:
    """Return the microseconds of one call: the best of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return min(rounds)


class Stopwatch:
    """Adds up the time that kernels take, arguments and results included, as C sees it."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def around(self, call: Callable[[int], None]) -> Callable[[int], None]:
        """Return the call with the watch running."""

        def timed(words: int) -> None:
            start = time.perf_counter()
            call(words)
            self.seconds += time.perf_counter() - start
            self.calls += 1

        return timed


def small_operators() -> Table:
    """Compare element-wise operators on a tensor of 4x4 with the CPU."""
    table = Table("operator on 4x4 float32", "CPU us", "emulated us", "more us")
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    pairs: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
        "add": torch.add,
        "mul": torch.mul,
        "relu": lambda a, _: torch.relu(a),
        "add_": lambda a, b: a.add_(b),
    }
    a, b = x.npu(), y.npu()
    for name, function in pairs.items():
        cpu = per_call_us(functools.partial(function, x, y))
        npu = per_call_us(functools.partial(function, a, b))
        table.add_row(name, f"{cpu:.1f}", f"{npu:.1f}", f"{npu - cpu:.1f}")
    return table


def training_step(device: str) -> Callable[[], None]:
    """Return one SGD step of ResNet50, batch 4, on a device."""
    torch.manual_seed(0)
    model = ResNet50().to(device).train()
    images = torch.randn(4, 3, 224, 224, device="cpu").to(device)
    labels = torch.arange(4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if device != "cpu":
            torch.npu.synchronize()

    return step


def training() -> Table:
    """Compare training steps, alternating between the two devices."""
    steps = {device: training_step(device) for device in ("cpu", "npu")}
    seconds: dict[str, list[float]] = {device: [] for device in steps}
    for _ in range(STEPS):
        for device, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[device].append(time.perf_counter() - start)
    best = {device: min(each[1:]) for device, each in seconds.items()}
    table = Table("ResNet50 training step, batch 4", "seconds", "ratio to CPU")
    for device, value in best.items():
        table.add_row("emulated" if device == "npu" else device, f"{value:.2f}", f"{value / best['cpu']:.2f}")
    return table


def main() -> None:
    """Print the tables."""
    console = Console()
    watch = Stopwatch()
    call_of = dispatch.call_of
    dispatch.call_of = lambda kernel, memory: watch.around(call_of(kernel, memory))  # before the first operator
    console.print(small_operators())
    inside = watch.seconds / watch.calls * 1e6
    console.print(f"of which in Python, from the arguments' words to the written result: {inside:.1f} us a call")
    console.print(training())


if __name__ == "__main__":
    main()
