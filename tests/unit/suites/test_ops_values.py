"""Descriptions of inputs give the tensors that they promise, and layouts place them without changing a number."""

import pytest
import torch

from pytest_ascend.operators.calling import LAYOUTS, OFFSET, changes, contiguous, steps, surrounded
from pytest_ascend.operators.samples import call
from pytest_ascend.operators.values import Values, distinct, few, given, integers, mask, normal, uniform

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("values", [uniform(3, 5, low=-9, high=9), normal(17), few(2, 3)], ids=lambda v: v.kind)
def test_values_have_shape_and_dtype_and_come_again(values: Values, dtype: torch.dtype) -> None:
    made = values.make("key", dtype)
    assert (tuple(made.shape), made.dtype) == (values.shape, dtype)
    assert made.equal(values.make("key", dtype))


def test_a_dtype_of_its_own_counts_more_than_that_of_the_case() -> None:
    assert integers(4, low=0, high=3).make("key", torch.float16).dtype is torch.int64
    assert mask(4).make("key", torch.float16).dtype is torch.bool


def test_integers_reach_beyond_32_bits_and_stay_in_their_range() -> None:
    made = uniform(1000, low=-(2.0**40), high=2.0**41).make("key", torch.int64)
    assert made.max() > 2**40
    assert made.min() >= -(2**40)
    assert made.max() <= 2**41


def test_an_unsigned_integer_is_not_negative() -> None:
    assert uniform(1000, low=-9, high=9).make("key", torch.uint8).max() <= 9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64], ids=str)
def test_distinct_values_have_no_ties(dtype: torch.dtype) -> None:
    assert distinct(15, 17).make("key", dtype).unique().numel() == 15 * 17


def test_named_numbers_are_those_of_the_dtype() -> None:
    largest, denormal = given("max", "denormal").make("key", torch.float16).tolist()
    assert largest == 65504
    assert 0 < denormal < torch.finfo(torch.float16).smallest_normal


def test_an_expanded_tensor_repeats_its_first_row_with_stride_0() -> None:
    made = normal(3, 5).expanded().make("key", torch.float32)
    assert made.stride() == (0, 1)
    assert made[2].equal(normal(3, 5).make("key", torch.float32)[0])


def test_the_name_of_a_sample_says_shapes_and_arguments() -> None:
    assert call(normal(3, 5), integers(4, low=0, high=2), dim=-1).name == "3x5, 4 int64, dim=-1"


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 6), (17,), (), (0, 3)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_no_number(layout: str, shape: tuple[int, ...]) -> None:
    tensor = normal(*shape).make("key", torch.float32)
    assert LAYOUTS[layout](tensor, CPU).equal(tensor)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_another_one(layout: str) -> None:
    tensor = normal(2, 3, 5, 7).make("key", torch.float32)
    placed = LAYOUTS[layout](tensor, CPU)
    assert changes(LAYOUTS[layout], tensor)
    assert placed.storage_offset() == OFFSET or not placed.is_contiguous()


def test_what_is_expanded_is_placed_expanded() -> None:
    tensor = normal(3, 5).expanded().make("key", torch.float32)
    assert contiguous(tensor, CPU).stride() == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32], ids=str)
def test_poison_lies_between_the_elements(dtype: torch.dtype) -> None:
    whole = surrounded(normal(4).make("key", dtype))
    steps(whole).zero_()
    beside = whole[1::2] if dtype.is_floating_point else whole[0::2]
    assert whole[0].isnan() if dtype.is_floating_point else whole[0] == 77
    assert beside.numel()
