"""Descriptions of inputs give the tensors that they promise, and layouts place them without changing a number."""

import math

import pytest
import torch
from hypothesis import given as given_
from hypothesis import strategies as st

from pytest_ascend.operators.calling import LAYOUTS, OFFSET, changes, contiguous, steps, surrounded
from pytest_ascend.operators.samples import (
    CHANGES,
    NAMED,
    StoredTensor,
    Values,
    Variant,
    call,
    distinct,
    few,
    given,
    integers,
    mask,
    normal,
    places,
    range_of,
    uniform,
)

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


@pytest.mark.parametrize(("shape", "dim"), [((7,), 0), ((7, 5), 0), ((5, 7), -1), ((3, 7, 5), 1), ((0, 5), 0)])
def test_places_are_named_once_along_their_dimension(shape: tuple[int, ...], dim: int) -> None:
    made = places(*shape, dim=dim).make("key", torch.float32)
    assert (made.dtype, made.shape) == (torch.int64, shape)
    ordered = made.sort(dim).values
    wanted = torch.arange(shape[dim]).reshape([-1 if place == dim % len(shape) else 1 for place in range(len(shape))])
    assert ordered.equal(wanted.expand(shape))
    assert made.numel() == 0 or not made.equal(ordered)


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


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 3), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_layout_places_otherwise_is_called_changed(layout: str, shape: tuple[int, ...]) -> None:
    tensor = torch.zeros(shape)
    placed = LAYOUTS[layout](tensor, CPU)
    assert changes(LAYOUTS[layout], tensor) or (placed.stride(), placed.storage_offset()) == (tensor.stride(), 0)


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


INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)


def ends(dtype: torch.dtype) -> tuple[int, int]:
    return (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given_(st.floats(-(2.0**62), 2.0**62), st.floats(0, 2.0**62))
def test_integers_cover_what_the_dtype_holds_of_a_range(dtype: torch.dtype, low: float, length: float) -> None:
    """All of them, or as many at one distance as 32 bits can number; the last is within a distance of the end."""
    least, most = max(math.ceil(low), ends(dtype)[0]), min(math.floor(low + length), ends(dtype)[1])
    if least > most:
        return
    first, step, count = range_of(uniform(1, low=low, high=low + length), dtype)
    last = first + (count - 1) * step
    assert (first, most - step < last <= most) == (least, True)
    assert count <= 2**32
    assert step == 1 or count > 2**30


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_normal_integers_are_a_quarter_of_what_the_dtype_holds(dtype: torch.dtype) -> None:
    first, step, count = range_of(normal(1), dtype)
    quarter = 1 if dtype is torch.bool else min(2**40, ends(dtype)[1] // 4)
    assert first == max(-quarter, ends(dtype)[0])
    assert quarter - step < first + (count - 1) * step <= quarter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_every_named_number_is_what_its_name_says(dtype: torch.dtype) -> None:
    info, named = torch.finfo(dtype), {name: given(name).make("key", dtype) for name in NAMED}
    zero, one, top = (torch.tensor([each], dtype=dtype) for each in (0.0, 1.0, info.max))
    endless = torch.tensor(torch.inf, dtype=dtype)
    assert named["max"].equal(top)
    assert named["max"].nextafter(endless).isinf().all()
    assert named["least"].equal(zero.nextafter(one))
    assert named["1+eps"].equal(one.nextafter(top))
    assert named["tiny"].equal(torch.tensor([info.smallest_normal], dtype=dtype))
    assert 0 < named["denormal"] * 2 < named["tiny"]
    assert all(named[f"-{name}"].equal(-named[name]) for name in ("max", "tiny", "denormal"))


@pytest.mark.parametrize(
    ("values", "label", "repeats", "differentiable"),
    [
        (uniform(3, 5), "3x5", True, True),
        (uniform(3, 5, grad=False), "3x5", True, False),
        (uniform(3, 5, dtype="float16"), "3x5 float16", True, False),
        (normal(), "0-d", False, True),
        (normal(1, 5), "1x5", False, True),
        (normal(5), "5", False, True),
        (integers(4, low=0, high=3), "4 int64", False, False),
        (mask(2, 2), "2x2 bool", True, False),
        (distinct(3, 5), "3x5 distinct", True, True),
        (distinct(3, 5, grad=False), "3x5 distinct", True, False),
        (few(2, 2), "2x2 few", True, False),
        (given(1, 2, 3), "3", False, False),
        (given(1, 2, shape=(2, 1), grad=True), "2x1", True, True),
        (StoredTensor(tensor=torch.ones(2, 3), grad=True), "2x3", True, True),
        (StoredTensor(tensor=torch.ones(2, 3)), "2x3", True, False),
        (StoredTensor(tensor=torch.ones(2, 3), grad=True, stride=(1, 2)), "2x3 strided", True, True),
        (StoredTensor(tensor=torch.ones(2, dtype=torch.int64), follows=False, grad=True), "2 int64", False, False),
        (StoredTensor(tensor=torch.ones(2, 2), follows=False), "2x2 float32", False, False),
        (StoredTensor(tensor=torch.ones(2, 2), follows=False, number=0), "2x2 float32", True, False),
        (StoredTensor(tensor=torch.ones(())), "0-d", False, False),
        (Variant(values=uniform(3, 5), how="sorted"), "3x5 (sorted)", False, True),
    ],
)
def test_what_a_description_says_of_itself(
    values: Values | StoredTensor | Variant, label: str, repeats: bool, differentiable: bool
) -> None:
    assert (values.label, values.can_repeat) == (label, repeats)
    assert values.wants_grad(torch.float32) is differentiable
    assert values.wants_grad(torch.int64) is False
    assert values.wants_grad(torch.complex64) is (differentiable and isinstance(values, StoredTensor))


@pytest.mark.parametrize("made_of", [uniform(2, 3, 4), StoredTensor(tensor=torch.arange(24.0).reshape(2, 3, 4))])
def test_nonfinite_numbers_are_first_in_the_middle_and_last(made_of: Values | StoredTensor) -> None:
    plain, made = (each.make("key", torch.float32).view(-1) for each in (made_of, made_of.with_nonfinite()))
    assert made[0].isnan()
    assert (made[12].item(), made[23].item()) == (torch.inf, -torch.inf)
    kept = [each for each in range(24) if each not in (0, 12, 23)]
    assert made[kept].equal(plain[kept])
    assert not plain.isinf().any()


def test_variants_change_the_numbers_as_they_are_called() -> None:
    plain = normal(4, 6).make("key", torch.float32)
    made = {how: Variant(values=normal(4, 6), how=how).make("key", torch.float32) for how in CHANGES if how != "edges"}
    assert {(each.shape, each.dtype) for each in made.values()} == {(plain.shape, torch.float32)}
    assert set(made["few"].view(-1).tolist()) == set(plain.view(-1)[:3].tolist())
    assert set(made["equal"].view(-1).tolist()) == {plain[0, 0].item()}
    assert made["sorted"].equal(plain.sort(-1).values)
    assert made["reversed"].equal(plain.sort(-1).values.flip(-1))
    assert made["far"].equal(plain * 4096)
    assert Variant(values=normal(4, 6), how="far").make("key", torch.float16).equal(plain.half() * 64)
    odd = {how: made[how].isfinite().logical_not().flatten().nonzero().view(-1).tolist() for how in made}
    assert {how: places for how, places in odd.items() if places} == {
        "special at the head": [0],
        "special within": [8, 12],
        "special in the tail": [23],
    }
    assert made["stepped"].equal(plain)
    assert made["stepped"].stride() == (12, 2)
    assert made["transposed"].equal(plain)
    assert made["transposed"].stride() == (1, 4)
    single = normal().make("key", torch.float32)
    assert Variant(values=normal(), how="far").make("key", torch.float32).equal(single * 4096)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_edges_are_where_a_float_or_32_bits_hold_no_more(dtype: torch.dtype) -> None:
    made = set(Variant(values=uniform(4000, low=0, high=1), how="edges").make("key", dtype).tolist())
    least, most = ends(dtype)
    steps = {s * 2**bits + by for bits in (7, 8, 15, 24, 31, 53) for s in (1, -1) for by in (-1, 0, 1, 3)}
    assert made == {each for each in (*steps, 0, 1, most, most - 1, least + 1) if least < each <= most}
