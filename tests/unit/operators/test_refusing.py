"""What the CPU refuses is refused by the device, and leaves its inputs alone; tensors of the device are marked ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.operators import calling, refusing
from pytest_ascend.operators.operator import Operator
from pytest_ascend.run.comparing import Disagreement

T = torch.Tensor
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def marked(tensor: T) -> T:
        made = tensor.clone()
        made.is_there = True  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(refusing, "placed", lambda given, *_: calling.on_tensors(marked, given))


def _asked(device: Function, *given: Any, cpu: Function = torch.add) -> None:
    def function(*given: Any) -> Any:
        return (device if hasattr(given[0], "is_there") else cpu)(*given)

    for turn in range(6):
        refusing.check(Operator("add", function, lambda _: ()), (given, {}), torch.device("cpu"), turn)


def test_what_adds_as_the_cpu_does_passes() -> None:
    _asked(torch.add, torch.ones(3, 4), torch.ones(3, 4))
    _asked(torch.add, torch.ones(3, 4), 2)


def test_sizes_that_are_cut_off_are_an_error() -> None:
    def cut(x: T, y: T) -> T:
        return x[: len(y), : y.shape[-1]] + y[: len(x), : x.shape[-1]] if x.dim() == y.dim() else x + y

    with pytest.raises(Disagreement, match=r"add of float32\[3, 5\], float32\[3, 4\], .* nothing is raised; the CPU"):
        _asked(cut, torch.ones(3, 4), torch.ones(3, 4))


def test_an_input_that_is_changed_before_the_error_is_one() -> None:
    def spoils(x: T, y: T) -> T:
        if x.shape != y.shape:
            x.zero_()
        return x + y

    with pytest.raises(Disagreement, match="it is refused, but an input is not what it was"):
        _asked(spoils, torch.ones(3, 4), torch.ones(3, 4))


@pytest.mark.parametrize("said", ["add not implemented for 'Long'", "x INTERNAL ASSERT FAILED"])
def test_what_the_cpu_lacks_or_asserts_is_not_asked(said: str) -> None:
    def lacks(x: T, y: T) -> T:
        if x.shape != y.shape or x.dtype != y.dtype:
            raise RuntimeError(said)
        return x + y

    _asked(lambda x, _: x, torch.ones(3, 4), torch.ones(3, 4), cpu=lacks)
