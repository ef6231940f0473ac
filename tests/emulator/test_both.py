"""The comparison behind the tests of kernels sees every difference that matters, and none that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .both import assert_identical, assert_refused, assert_same, floats, integers

ONES = torch.ones(3)
NAN = float("nan")

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "dtype": (ONES.half(), ONES),
    "shape": (ONES[None], ONES),
    "last bit": (torch.nextafter(ONES, ONES * 2), ONES),
    "sign of zero": (torch.tensor(-0.0), torch.tensor(0.0)),
    "NaN": (torch.tensor([1.0, NAN]), torch.tensor([1.0, 1.0])),
    "no NaN": (torch.tensor([1.0, 1.0]), torch.tensor([1.0, NAN])),
    "imaginary part": (torch.tensor(1 + 2j), torch.tensor(1 + 3j)),
    "flag": (torch.tensor(True), torch.tensor(False)),
    "number": (1, 2),
    "kind of number": (1, 1.0),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_seen(name: str) -> None:
    with pytest.raises(AssertionError):
        assert_identical(*DIFFERENT[name])


def test_nan_agrees_with_any_nan() -> None:
    payload = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert_identical(payload, torch.tensor([NAN]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + (x.device.type == "npu"),
        lambda x: [x] * (1 + (x.device.type == "npu")),
        lambda x: x.mul_(2 if x.device.type == "npu" else 1)[:0],
    ],
    ids=["result", "number of results", "input afterwards"],
)
def test_a_device_that_does_otherwise_is_seen(function: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(AssertionError):
        assert_same(function, floats(3))


def test_another_gradient_is_seen() -> None:
    with pytest.raises(AssertionError):
        assert_same(lambda x: x * 2 - (x.detach() if x.device.type == "npu" else x), floats(3), backward=True)


def test_what_the_cpu_computed_is_not_taken_for_the_device() -> None:
    with pytest.raises(AssertionError, match="no kernel of the device computed this"):
        assert_same(torch.special.bessel_j0, floats(3))
    with pytest.raises(AssertionError, match="no kernel of the device computed this"):
        assert_same(lambda x: x.cpu().exp().to(x.device), floats(3))
    with pytest.raises(AssertionError, match="the device has kernels for this by now"):
        assert_same(torch.exp, floats(3), by="cpu")


def test_a_refusal_counts_where_the_data_of_the_chip_have_it_alone() -> None:
    assert_same(torch.remainder, integers(3, low=1, dtype=torch.int8), integers(3, low=1, dtype=torch.int8))
    refusal = "error code is 161002 emulated CANN: aclnn{}: EZ1001: Tensor self not implemented for DT_{}, should"
    assert_refused(RuntimeError(refusal.format("Ceil", "INT8")))
    for other in (refusal.format("Ceil", "FLOAT"), refusal.format("Unknown", "INT8"), "error code is 161002", "other"):
        with pytest.raises(RuntimeError):
            assert_refused(RuntimeError(other))


def test_an_error_of_the_device_is_seen() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "npu":
            raise RuntimeError("error code is 561103")
        return x

    with pytest.raises(RuntimeError, match="561103"):
        assert_same(fails, floats(3))
