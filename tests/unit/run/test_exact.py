"""``precision_compare.exact``: right functions pass in every dtype, and one lost term among many does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

T = torch.Tensor
COMPARE = PrecisionCompare(lambda _: None)
PRODUCT = ((5, 16_384), (16_384, 3))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, PRODUCT),
        (torch.mm, ((5, 16_383), (16_383, 3))),
        (lambda x: x.sum(-1), ((3, 16_383),)),
        (lambda x: x.mean(-1), ((3, 16_384),)),
        (torch.nn.functional.conv2d, ((1, 1024, 4, 4), (2, 1024, 4, 4))),
        (torch.addmm, ((5, 3), *PRODUCT)),
        (torch.sort, ((5, 17),)),
    ],
)
def test_what_is_right_passes(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    COMPARE.exact(function, *shapes)


def loses_a_term(x: T, y: T) -> T:
    kept = torch.ones(len(y), 1, dtype=y.dtype)
    kept[12_345] = 0
    return x @ (y * kept)


def without_tail(x: T, y: T) -> T:
    return x[:, :16_383] @ y[:16_383]


def in_parts(x: T, y: T) -> T:
    """Keep the sum in the dtype, 64 terms at a time."""
    found = torch.zeros(len(x), y.shape[1], dtype=x.dtype)
    for left, right in zip(x.split(64, 1), y.split(64, 0), strict=True):
        found = found + left @ right
    return found


@pytest.mark.parametrize(
    ("wrong", "dtype"),
    [
        *((each, dtype) for each in (loses_a_term, without_tail) for dtype in (torch.float32, torch.bfloat16)),
        *((in_parts, dtype) for dtype in (torch.float16, torch.bfloat16)),
    ],
)
def test_what_is_wrong_is_seen(wrong: Callable[..., Any], dtype: torch.dtype) -> None:
    with pytest.raises(Disagreement, match="not bitwise equal"):
        COMPARE.exact(wrong, *PRODUCT, dtypes=(dtype,), definition=torch.mm)


def test_a_wrong_gradient_is_seen() -> None:
    def wrong(x: T, y: T) -> T:
        return (x.detach() @ y) + (x - x.detach()) @ torch.cat((y[:-1], 0 * y[-1:]))

    with pytest.raises(Disagreement):
        COMPARE.exact(wrong, *PRODUCT, dtypes=(torch.float32,), definition=torch.mm)


@pytest.mark.parametrize(
    ("function", "shapes"), [(torch.exp, ((5,),)), (lambda x: x.mean(), ((7,),)), (torch.mm, ()), (torch.mm, (5, 3))]
)
def test_what_cannot_be_exact_is_refused(function: Callable[..., Any], shapes: Any) -> None:
    with pytest.raises(UsageError):
        COMPARE.exact(function, *shapes)


def test_tensors_anywhere_in_a_result_are_judged() -> None:
    COMPARE.exact(lambda x, y: {"found": [x @ y]}, *PRODUCT)
    with pytest.raises(Disagreement):
        COMPARE.exact(
            lambda x, y: {"found": [loses_a_term(x, y)]}, *PRODUCT, definition=lambda x, y: {"found": [x @ y]}
        )
    with pytest.raises(UsageError, match="returns no tensor"):
        COMPARE.exact(lambda _: None, (3,))
