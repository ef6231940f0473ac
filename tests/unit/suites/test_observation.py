"""A few numbers stand for millions: a deviation anywhere shows in them."""

import pytest
import torch

from suites.models.computation import BUCKETS, KEPT, observe, positions, sketch

SIZES = [129, 1000, 4097, 2_359_296]


def test_a_small_tensor_is_kept_whole() -> None:
    tensor = torch.arange(128.0).reshape(2, 64)
    assert observe({"bias": tensor})["bias"].equal(tensor.flatten())


def test_a_large_tensor_is_kept_as_elements_and_sketch_of_its_dtype() -> None:
    tensor = torch.arange(2000.0).reshape(40, 50)
    seen = observe({"weight": tensor})["weight"]
    assert (seen.dtype, seen.numel()) == (torch.float32, KEPT + BUCKETS)
    assert seen[:KEPT].equal(tensor.flatten()[positions("weight", 2000)])
    assert seen[KEPT:].equal(sketch("weight", tensor.flatten()).float())


@pytest.mark.parametrize("size", SIZES)
def test_kept_elements_are_distinct_in_order_and_reach_both_ends(size: int) -> None:
    places = positions("weight", size)
    assert places[0] == 0
    assert places[-1] == size - 1
    assert (places.diff() > 0).all()


def test_another_name_keeps_other_elements() -> None:
    assert not positions("a", 10_000).equal(positions("b", 10_000))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [0, 64, -65, -1])
def test_one_element_changes_exactly_one_bucket_by_a_known_share(size: int, place: int) -> None:
    flat = torch.zeros(size, dtype=torch.float64)
    flat[place] = 1.0
    found = sketch("weight", flat)
    rows = -(-size // BUCKETS)
    assert int((found != 0).sum()) == 1
    assert 0.5 <= found.abs().max() * rows**0.5 <= 2


def test_an_error_that_changes_sign_does_not_average_out() -> None:
    size = 1 << 20
    error = torch.ones(size, dtype=torch.float64)
    error[1::2] = -1
    assert sketch("weight", error).square().mean().sqrt() > 0.3
    assert sketch("weight", error.abs()).square().mean().sqrt() > 0.3


@pytest.mark.parametrize("size", SIZES)
def test_the_size_of_a_sketch_is_the_size_of_the_elements(size: int) -> None:
    values = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert 0.3 < sketch("weight", values).square().mean().sqrt() < 3


def test_strides_do_not_matter() -> None:
    tensor = torch.arange(4 * 8 * 6 * 6.0).reshape(4, 8, 6, 6)
    plain = observe({"weight": tensor})
    strided = observe({"weight": tensor.to(memory_format=torch.channels_last)})
    assert all(plain[name].equal(strided[name]) for name in plain)
