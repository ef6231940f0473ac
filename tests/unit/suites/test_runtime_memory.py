"""What calls keep of a device's memory is judged, and what is freed somewhat later is no fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.runtime import costs
from suites.runtime.rows import CPU, MIB, At

UNIT = 16 * MIB


class Memory:
    """A device's memory, whose figures are set by calls."""

    def __init__(self) -> None:
        self.taken, self.most, self.freed_at = 0, 0, 0.0

    def take(self, peak: float, keeps: float, late_s: float = 0.0) -> object:
        """Need ``peak`` and leave ``keeps`` times 16 MiB, which is free when so many seconds have passed."""
        self.most, self.taken = self.taken + round(peak * UNIT), self.taken + round(keeps * UNIT)
        self.freed_at = time.monotonic() + late_s
        return None

    def memory_allocated(self) -> int:
        if self.freed_at and time.monotonic() > self.freed_at:
            self.taken = 0
        return self.taken

    def max_memory_allocated(self) -> int:
        return max(self.most, self.taken)

    def reset_peak_memory_stats(self) -> None:
        self.most = self.taken


def asked(call: Callable[[Memory], object], needs: float, keeps: float) -> None:
    memory = Memory()
    at: Any = SimpleNamespace(device=CPU, backend=memory, holds=At(CPU, PrecisionCompare(lambda _: None)).holds)
    costs._needs(at, lambda _: {"a call": (lambda: call(memory), needs, keeps)})


def test_what_is_freed_somewhat_later_is_no_fault() -> None:
    asked(lambda memory: memory.take(1, 0.02, late_s=0.0001), 1, 0)


@pytest.mark.parametrize(
    ("peak", "keeps"), [(3, 0), (1, 1), (0.5, 0)], ids=["a second copy", "a leak", "a peak that is not told"]
)
def test_memory_that_is_wrong_is_seen(peak: float, keeps: float) -> None:
    with pytest.raises(Disagreement, match="a call takes"):
        asked(lambda memory: memory.take(peak, keeps, late_s=60), 1, 0)


def test_gradients_that_zero_grad_keeps_show_in_what_is_left() -> None:
    rows = costs._trained(torch.ones(UNIT // 4))
    assert {name: rows[name][2] for name in rows if name.startswith("zero_grad")} == {
        "zero_grad()": 1,
        "zero_grad() of a module": 1,
        "zero_grad(set_to_none=False)": 2,
    }
    parameter, _ = rows["zero_grad()"][0]()  # type: ignore[misc]
    assert parameter.grad is None
