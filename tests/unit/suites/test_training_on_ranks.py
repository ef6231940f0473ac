"""What is excused of a training on ranks: products of float32 in half precision, and nothing else."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.precision.kernel_fallbacks import products_in_halves
from suites.distributed import training
from suites.distributed.test_training import _worst

MODELS = ("perceptron", "decoder")


def trained(model: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return training.reference(model, dtype)


@pytest.mark.parametrize("model", MODELS)
def test_products_in_half_precision_are_seen_and_explained(model: str) -> None:
    exact, usual = trained(model, torch.float64), trained(model, torch.float32)
    with products_in_halves():
        found, rounded = ({name: x.clone() for name, x in trained(model, torch.float32).items()} for _ in range(2))
    assert _worst(found, exact, usual, torch.float32)[0] > 1
    assert _worst(found, exact, rounded, torch.float16)[0] <= 1


@pytest.mark.parametrize("model", MODELS)
def test_half_precision_excuses_no_rank_that_trains_alone(model: str) -> None:
    exact = trained(model, torch.float64)
    x, y = (each[: len(each) // 2] for each in training.inputs(model))
    with products_in_halves():
        alone = training.trained(training.make(model), x, y)
        rounded = trained(model, torch.float32)
    assert _worst(alone, exact, rounded, torch.float16)[0] > 1
