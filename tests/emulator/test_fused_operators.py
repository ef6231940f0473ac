"""Operators that only torch_npu has agree with their definitions in suites/fused, to a few roundings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from pytest_ascend.operators import Operator
from suites.fused import OPERATORS

#: What torch_npu itself does otherwise than the definition says: a shape, the precision of numbers that it passes on.
_OF_TORCH_NPU = {"npu_apply_adam", "npu_apply_adam_w", "npu_cross_entropy_loss", "npu_giou", "npu_iou", "npu_ptiou"}
_TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}


def _placed(value: Any) -> Any:
    return value.detach().npu() if isinstance(value, torch.Tensor) else value


def _wide(value: Any) -> Any:
    is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().double() if is_floating else value


def _tensors(result: Any) -> list[torch.Tensor]:
    values = result if isinstance(result, (tuple, list)) else [result]
    return [each for each in values if isinstance(each, torch.Tensor) and each.numel()]


@pytest.mark.parametrize(
    "operator", [each for each in OPERATORS if each.name not in _OF_TORCH_NPU], ids=lambda o: o.name
)
def test_results_are_those_of_the_definition(operator: Operator) -> None:
    dtype = getattr(torch, operator.dtypes[0])
    assert operator.definition
    for sample in operator.samples(operator.dtypes[0]):
        args, kwargs = sample.arguments(operator.name, dtype)
        actual = _tensors(operator.function(*tree_map(_placed, args), **tree_map(_placed, kwargs)))
        expected = _tensors(operator.definition(*tree_map(_wide, args), **tree_map(_wide, kwargs)))
        for mine, reference in zip(actual, expected, strict=False):
            limit = 0.0 if operator.exact else _TOLERANCE.get(mine.dtype, 0.0)
            torch.testing.assert_close(mine.cpu().double(), reference.double(), rtol=limit, atol=limit, equal_nan=True)
