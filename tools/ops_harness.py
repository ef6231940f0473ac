"""What the operator suite costs a call beside the bare operator, and where that goes.

    python tools/ops_harness.py [--every 40] [--rounds 7]

Takes every 40th case of level standard, and notes each call that it makes of its operator. Bare is such a call on the
device and on the CPU, in the same dtypes and strides, with the copies to the device and back, from inputs that are
there already. The case is all that its test does, once its golden is read: inputs, stored results, the watch for
fallbacks, the judge. Both run in turns in this process, on one thread; the CPU time of the fastest of several rounds
counts, so that other work on the machine disturbs neither. Exits with 1 where a case takes more than three times as
long as its calls do bare.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_ascend import emulator

emulator.activate()

import torch  # noqa: E402  after the activation
from operator_cases import STANDARD, complaint, emulated  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from pytest_ascend.device.fallback import FallbackWatch  # noqa: E402
from pytest_ascend.operators.calling import on_tensors, tensors  # noqa: E402
from pytest_ascend.operators.target import Target  # noqa: E402
from pytest_ascend.records.case import Case  # noqa: E402

PROMISED = 3.0
#: Where the time of a case goes, by the first function on the way in that is one of these.
PARTS: Mapping[str, tuple[str, ...]] = {
    "drawing and reading inputs": ("on_cpu", "upstream"),
    "placing inputs on the device": ("placed", "_targets", "surrounded"),
    "the operator, forward and back": ("forward", "gradients"),
    "bringing results back": ("fetched", "_gaps"),
    "reading what is expected": ("expected", "expected_gradients"),
    "comparing bits with reference runs": ("alike",),
    "allowances for the judge": ("settings",),
    "judging": ("__call__",),
}
_FILES = ("pytest_ascend/operators/", "comparing.py")


@dataclass(frozen=True, slots=True)
class Call:
    """One call on the device: ``given`` are its arguments, with tensors on the CPU in the same strides."""

    function: Callable[..., Any]
    given: tuple[Any, Any]

    def ready(self, device: torch.device) -> Callable[[], None]:
        """Return the call without anything around it: copies, both sides, and the results brought back."""
        copied = [memory(each) for each in tensors(self.given)]
        there = on_tensors(lambda each: placed(each, device), self.given)

        def bare() -> None:
            for each in copied:
                each.to(device)
            for found in self._called(there):
                found.cpu()
            self._called(self.given)

        return bare

    def _called(self, given: tuple[Any, Any]) -> Sequence[torch.Tensor]:
        args, kwargs = given
        leaves = [each for each in tensors(given) if each.requires_grad]
        results = self.function(*args, **kwargs)
        outputs = [results] if isinstance(results, torch.Tensor) else tensors(results)
        attached = [each for each in outputs if each.requires_grad]
        if not leaves or not attached:
            return outputs
        found = torch.autograd.grad(attached, leaves, [each.detach() for each in attached], allow_unused=True)
        return [each for each in found if each is not None]


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory that a tensor lies in, which is what has to be copied."""
    return tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device in the strides that it has."""
    there = memory(tensor).to(device, copy=True).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return there.requires_grad_(tensor.requires_grad)


class Noted:
    """A function that notes its calls on a device."""

    def __init__(self, function: Callable[..., Any], calls: list[Call]) -> None:
        self.function, self.calls = function, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call, and note with what, unless it is refused."""
        is_on_device = any(each.device.type == "npu" for each in tensors((args, kwargs)))
        given = on_tensors(lambda each: placed(each, torch.device("cpu")), (args, kwargs)) if is_on_device else None
        found = self.function(*args, **kwargs)
        if given:
            self.calls.append(Call(self.function, given))
        return found


def calls_of(case: Case) -> tuple[Target, list[Call]]:
    """Return the calls that a case makes of its operator. Runs it once."""
    calls: list[Call] = []
    subject = emulated(case)
    operator = subject.operator
    in_place = Noted(operator.changes_first, calls) if operator.in_place else False
    subject.operator = replace(operator, function=Noted(operator.function, calls), in_place=in_place)
    complaint(case, subject)
    return subject, calls


def in_turns(case: Case, rounds: int) -> tuple[float, float, int]:
    """Return the seconds of CPU of a case's calls bare, those of the case, and the number of calls."""
    subject, calls = calls_of(case)
    ready = [each.ready(subject.device) for each in calls]
    bare, whole = [], []
    for _ in range(rounds):
        start = time.process_time()
        for each in ready:
            each()
        between = time.process_time()
        with FallbackWatch("npu"):
            complaint(case)
        whole.append(time.process_time() - between)
        bare.append(between - start)
    return min(bare), min(whole), len(ready)


def parts(cases: Sequence[Case]) -> Counter[str]:
    """Profile the cases; return the share of each part, and of the rest."""
    profile = cProfile.Profile()
    with FallbackWatch("npu"):
        profile.enable()
        for case in cases:
            complaint(case)
        profile.disable()
    stats: Any = pstats.Stats(profile)
    found: Counter[str] = Counter()
    whole = 0.0
    for (file, _, name), (_, _, _, cumulative, _) in stats.stats.items():
        if name == "complaint":
            whole = cumulative
        for part, names in PARTS.items():
            if name in names and any(each in file for each in _FILES):
                found[part] += cumulative
    found["the rest"] = whole - found.total()
    return Counter({part: spent / whole for part, spent in found.items()})


@click.command()
@click.option("--every", default=40, show_default=True, help="Take one of so many cases.")
@click.option("--rounds", default=7, show_default=True, help="Rounds, of which the fastest counts.")
def main(every: int, rounds: int) -> None:
    """Measure, and print what was found."""
    cases = STANDARD[::every]
    gc.freeze()  # as it is in the processes of a run: what was imported is not looked at again and again
    sums: dict[str, list[float]] = {}
    for case in cases:
        measured = in_turns(case, rounds)
        for key in (case.property, "all"):
            sums[key] = [one + other for one, other in zip(sums.get(key, [0.0] * 3), measured, strict=True)]
    table = Table("property", "calls", "bare, µs", "in the suite, µs", "ratio", title="one call")
    for key, (bare, whole, calls) in sorted(sums.items(), key=lambda each: each[1]):
        spent = [f"{each / calls * 1e6:.0f}" for each in (bare, whole)]
        table.add_row(key, f"{calls:,.0f}", *spent, f"{whole / bare:.2f}")
    shares = Table("of a case", "share", title="where it goes")
    for part, share in parts(cases).most_common():
        shares.add_row(part, f"{share:.0%}")
    Console().print(table, shares)
    bare, whole, _ = sums["all"]
    sys.exit(whole / bare > PROMISED)


if __name__ == "__main__":
    main()
