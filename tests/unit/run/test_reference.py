"""References: float64, on the CPU, and nothing of the test's own is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_ascend.errors import GoldenError, UsageError
from pytest_ascend.golden import GoldenStore
from pytest_ascend.run.reference import CpuReference, cpu_reference


def test_a_module_is_computed_in_float64_and_left_as_it_is() -> None:
    module, x = torch.nn.BatchNorm1d(3), torch.randn(4, 3)
    module(x).sum().backward()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    grad = module.weight.grad
    expected = cpu_reference(module, x)
    assert expected.dtype == torch.float64
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert module.weight.dtype == torch.float32
    assert module.weight.grad is grad


def test_inputs_anywhere_in_the_arguments_are_converted() -> None:
    seen: list[torch.dtype] = []

    def function(pair: dict[str, torch.Tensor], *, index: torch.Tensor) -> torch.Tensor:
        seen.extend([pair["x"].dtype, pair["z"].dtype, index.dtype])
        return pair["x"]

    cpu_reference(
        function,
        {"x": torch.ones(2).half(), "z": torch.ones(2, dtype=torch.complex64)},
        index=torch.ones(1, dtype=torch.int32),
    )
    assert seen[:3] == [torch.float64, torch.complex128, torch.int32]
    assert seen[3:6] == [torch.float16, torch.complex64, torch.int32]  # the reference runs


def test_a_function_that_writes_into_its_input_does_not_write_into_the_tests() -> None:
    x = torch.zeros(2, dtype=torch.float64)
    cpu_reference(lambda x: x.add_(1), x)
    assert x.tolist() == [0.0, 0.0]


def test_gradients_can_be_taken_inside() -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor | None:
        (x * x).sum().backward()
        return x.grad

    x = torch.ones(2, requires_grad=True)
    assert cpu_reference(gradient, x).tolist() == [2.0, 2.0]
    assert x.grad is None


def test_an_autocast_around_it_does_not_lower_the_precision() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cpu_reference(torch.mm, torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float64


@pytest.mark.parametrize("form", [lambda x: x * 2, lambda x: (x, x + 1), lambda x: [x], lambda x: {"a": x, "b": x}])
def test_a_result_is_stored_and_read_by_its_name(tmp_path: Path, form: object) -> None:
    x = torch.arange(3.0)
    stored = CpuReference(GoldenStore(tmp_path), stores=True)(form, x, golden="mine/block")
    read = CpuReference(GoldenStore(tmp_path))(form, x, golden="mine/block")
    assert type(read) is type(stored)
    torch.testing.assert_close(read, stored, rtol=0, atol=0)


def test_without_storing_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="manifest"):
        CpuReference(GoldenStore(tmp_path))(torch.neg, torch.ones(1), golden="mine/block")
    assert not list(tmp_path.iterdir())


def test_a_golden_of_other_inputs_is_refused(tmp_path: Path) -> None:
    CpuReference(GoldenStore(tmp_path), stores=True)(torch.neg, torch.ones(1), golden="mine/block")
    with pytest.raises(GoldenError, match="other weights or inputs"):
        CpuReference(GoldenStore(tmp_path))(torch.neg, torch.zeros(1), golden="mine/block")


def test_a_golden_of_other_weights_is_refused(tmp_path: Path) -> None:
    x = torch.ones(1, 2)
    CpuReference(GoldenStore(tmp_path), stores=True)(torch.nn.Linear(2, 2), x, golden="mine/block")
    with pytest.raises(GoldenError, match="other weights or inputs"):
        CpuReference(GoldenStore(tmp_path))(torch.nn.Linear(2, 2), x, golden="mine/block")


def test_what_is_no_tensor_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        CpuReference(GoldenStore(tmp_path), stores=True)(lambda x: 3, torch.ones(1), golden="mine/block")


def test_what_is_stored_is_of_the_inputs_in_any_layout_and_of_their_shape(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    stored = CpuReference(GoldenStore(tmp_path), stores=True)(torch.neg, x.t().contiguous().t(), golden="mine/block")
    assert torch.equal(CpuReference(GoldenStore(tmp_path))(torch.neg, x, golden="mine/block"), stored)
    for other in (x.reshape(3, 2), x.double(), x[:, :2], x.view(torch.int32)):
        with pytest.raises(GoldenError, match="other weights or inputs"):
            CpuReference(GoldenStore(tmp_path))(torch.neg, other, golden="mine/block")


def test_a_missing_golden_says_how_to_store_it(tmp_path: Path) -> None:
    with pytest.raises(GoldenError) as raised:
        CpuReference(GoldenStore(tmp_path))(torch.neg, torch.ones(1), golden="mine/block")
    assert "--ascend-baselines=update=yes" in raised.value.hint
