"""For which arguments of an operator nothing is promised, so that no generated call has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.sweep import SweepReference
from pytest_ascend.operators.target import Call
from pytest_ascend.system.bundled import folder
from suites.ops.table import swept

STORE = GoldenStore(folder("baselines") / "golden")


def asks(name: str, dtype: str = "float32") -> Callable[..., bool]:
    found = swept(name, dtype, STORE).sweep
    assert callable(found)
    return found


@pytest.mark.parametrize(
    ("name", "promised", "not_promised"),
    [
        ("scaled_dot_product_attention.masked", [(1, 2, 3, 4)] * 3, [(1, 0, 3, 4)] * 3),
        ("linear", [(2, 3, 1), (5, 1)], [(2, 3, 0), (5, 0)]),
        ("matmul", [(3, 0), (0, 5)], [(2, 3, 0), (0,)]),
        ("batch_norm", [(2, 3)], [(1, 3)]),
        ("instance_norm", [(1, 2, 2)], [(1, 2, 1)]),
        ("triplet_margin_loss", [(2, 5)] * 3, [(100, 100)] * 3),
        ("corrcoef", [(2, 9)], [(1, 9)]),
        ("corrcoef", [(0, 9)], [(9,)]),
    ],
)
def test_sizes(name: str, promised: list[tuple[int, ...]], not_promised: list[tuple[int, ...]]) -> None:
    asked = asks(name)
    assert asked(*(torch.arange(math.prod(shape)).reshape(shape) for shape in promised))
    assert not asked(*(torch.arange(math.prod(shape)).reshape(shape) for shape in not_promised))


def test_labels_that_are_no_class() -> None:
    asked, chances = asks("ctc_loss"), torch.zeros(7, 2, 3)
    assert asked(chances, torch.tensor([[2, 1]]))
    assert not asked(chances, torch.tensor([[3, 1]]))


@pytest.mark.parametrize(
    ("indices", "offsets", "is_promised"),
    [(6, None, True), (6, [0, 0, 4], True), (6, [0, 4, 3], False), (6, [], False), (0, [], True)],
)
def test_bags_of_embeddings_that_overlap_or_are_none(indices: int, offsets: Any, is_promised: bool) -> None:
    """Of rows without a bag torch's CPU kernel reads beyond its memory, and the process ends."""
    given = {} if offsets is None else {"offsets": torch.tensor(offsets, dtype=torch.int64)}
    assert asks("embedding_bag")(torch.ones(5, 5), torch.zeros(indices, dtype=torch.int64), **given) is is_promised


def test_padding_that_goes_around_what_was_cut_off() -> None:
    asked, images = asks("pad"), torch.zeros(7, 2, 3)
    assert asked(images, (1, 2), "circular")
    assert asked(images, (-1, 2))
    assert not asked(images, (-1, 2), "circular")


@pytest.mark.parametrize(
    ("factors", "dim", "is_promised"),
    [
        ([[2.0] * 119, [0.5] * 119], 1, True),
        ([[2.0] * 121, [0.5] * 121], 1, False),
        ([[2.0] * 121, [0.5] * 121], 0, True),
        ([[2.0] * 121, [0.5] * 121], None, False),
        ([[0.0, math.nan, math.inf]], None, True),
        ([[]], None, True),
    ],
)
def test_products_whose_parts_leave_the_range(factors: Any, dim: int | None, is_promised: bool) -> None:
    given = {} if dim is None else {"dim": dim}
    assert asks("prod")(torch.tensor(factors), **given) is is_promised


@pytest.mark.parametrize(
    ("shape", "sizes", "is_promised"),
    [
        ((2, 3, 64, 64), (1, 1), True),
        ((2, 3, 64, 64), 7, True),
        ((2, 3, 64, 64), (None, 1), True),
        ((1, 2, 2, 2, 8193), (5, 8193, 2), False),
        ((1, 2, 4096), 4096, False),
    ],
)
def test_pooling_over_many_long_windows(shape: tuple[int, ...], sizes: Any, is_promised: bool) -> None:
    assert asks(f"adaptive_avg_pool{len(shape) - 2}d")(torch.zeros(shape), sizes) is is_promised
    assert asks("interpolate")(torch.zeros(shape), sizes, mode="area") is is_promised
    assert asks("interpolate")(torch.zeros(shape), sizes, mode="nearest")


def test_pixels_between_two_numbers_of_half_precision() -> None:
    asked, images = asks("grid_sampler_2d"), torch.zeros(1, 1, 2, 2000)
    assert asked(images)
    assert asked(images[..., :100].half())
    assert not asked(images.half())


def test_what_is_not_promised_is_not_even_computed() -> None:
    """Some of it ends the process."""
    operator = swept("pad", "float32", STORE)
    sweep, called = SweepReference.of(operator, "float32", range(3)), []
    object.__setattr__(operator, "function", lambda *_, **__: called.append(1))
    object.__setattr__(operator, "sweep", lambda *_, **__: False)
    each = sweep.calls[0].sample
    assert sweep.usual(Call(each), each.arguments("pad", torch.float32)) is None
    assert not called
