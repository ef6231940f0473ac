"""Linear algebra gives the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .both import assert_same, floats

SQUARE = floats(2, 4, 4)
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(4)
WIDE = floats(3, 4, 6)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (torch.linalg.cholesky, (POSITIVE,)),
    "cholesky, upper": (lambda x: torch.linalg.cholesky(x, upper=True), (POSITIVE,)),
    "cross": (torch.linalg.cross, (floats(5, 3), floats(5, 3, seed=1))),
    "qr": (torch.linalg.qr, (WIDE,)),
    "qr, complete": (lambda x: torch.linalg.qr(x, "complete"), (WIDE.mT,)),
    "svd": (lambda x: torch.linalg.svd(x, full_matrices=False), (WIDE,)),
    "svd, full": (torch.linalg.svd, (WIDE,)),
    "svd, values": (torch.linalg.svdvals, (WIDE,)),
    "triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), (POSITIVE.triu(), SQUARE)),
    "triangular, lower": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), (POSITIVE.tril(), SQUARE)),
    "inverse": (torch.inverse, (POSITIVE,)),
    "slogdet": (torch.slogdet, (SQUARE,)),
}


@pytest.mark.parametrize("name", CASES)
def test_result(name: str) -> None:
    function, inputs = CASES[name]
    assert_same(function, *inputs)


def test_triangular_system_from_the_right() -> None:
    left, right = POSITIVE.triu(), SQUARE
    actual = torch.linalg.solve_triangular(left.npu(), right.npu(), upper=True, left=False)
    torch.testing.assert_close(actual.cpu(), torch.linalg.solve_triangular(left, right, upper=True, left=False))
