"""Generated calls: what is too much to ask, how a wrong one is made smaller, and the file of a finding."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from pytest_ascend.operators import Operator, call
from pytest_ascend.operators.calling import TooMuchError, bounded, is_affordable
from pytest_ascend.operators.exploring import CALLS, Finding
from pytest_ascend.operators.generator import NUMBERS, Generated, generate, in_turn, kinds_of, resized, smaller
from pytest_ascend.operators.samples import StoredTensor, Variant, range_of, uniform
from pytest_ascend.operators.sweep import SPARE

T = torch.Tensor
CPU = torch.device("cpu")


def operator(function: Any = torch.square, calls: Any = None, **settings: Any) -> Operator:
    return Operator("tested", function, calls or (lambda make: [call(make.normal(3, 5))]), **settings)


def generated(*args: Any, **kwargs: Any) -> Generated:
    return Generated(call(*args, **kwargs), "", ("edge", "few", "contiguous"), 4, 7)


def test_a_call_is_made_smaller_in_every_kind_of_tensor() -> None:
    held = StoredTensor(tensor=torch.arange(12.0).view(4, 3))
    given = generated(uniform(4, 5), Variant(values=uniform(4), how="few"), held, 4, dim=4)
    made = resized(given, 4, 2)
    first, variant, kept, plain = made.sample.args
    assert (first.shape, variant.shape, variant.how, kept.shape) == ((2, 5), (2,), "few", (2, 3))
    assert kept.tensor.equal(held.tensor[:2])
    assert (plain, made.sample.kwargs) == (4, {"dim": 4}), "only tensors are"
    assert made.resized == ((4, 2),)
    assert resized(made, 2, 1).resized == ((4, 2), (2, 1))
    assert made.sample.name.startswith("call 7 of seed 4, made smaller: 2x5")


@pytest.mark.parametrize("family", ["arithmetic", "indexing", "linear algebra"])
def test_two_tensors_that_share_a_description_are_changed_apart(family: str) -> None:
    one = uniform(3, 5)
    shared, apart = (
        operator(torch.add, lambda _, pair=pair: [call(*pair)], family=family)
        for pair in ((one, one), (one, uniform(3, 5)))
    )
    assert [*generate(shared, "float32", 48)] == [*generate(apart, "float32", 48)]
    assert call(one, one).with_nonfinite(torch.float32) == call(*apart.inputs(None)[0].args).with_nonfinite(
        torch.float32
    )


def test_sizes_are_halved_before_they_lose_one() -> None:
    steps = [each.resized[0] for each in smaller(generated(uniform(6, 1, 3), uniform(3, 0)))]
    assert steps == [(6, 3), (3, 1), (6, 5), (3, 2)]


@pytest.mark.parametrize(("sizes", "fits"), [((2**12, 2**12), True), ((2**12, 2**12 + 1), False), ((2**25, 1), False)])
def test_products_that_take_long_are_too_much(sizes: tuple[int, int], fits: bool) -> None:
    """A convolution takes time in proportion to the product of the sizes of both tensors."""
    image, weight = (torch.empty(1, 1, size, device="meta") for size in sizes)
    given = ((image, weight), {}) if sizes[0] >= sizes[1] else ((weight, image), {})
    made = operator(torch.conv1d, family="network")
    assert is_affordable(made, given) is fits or max(sizes) > 2**19


@pytest.mark.parametrize(("count", "fits"), [(1 << 10, True), ((1 << 10) + 1, False)])
def test_many_results_are_too_much(count: int, fits: bool) -> None:
    made = operator(lambda x: x.split(1), family="movement")
    assert is_affordable(made, ((torch.ones(count),), {})) is fits


@pytest.mark.parametrize("family", ["arithmetic", "movement"])
@pytest.mark.parametrize(("size", "fits"), [(1 << 19, True), ((1 << 19) + 1, False)])
def test_large_results_are_too_much(family: str, size: int, fits: bool) -> None:
    made = operator(torch.neg, family=family)
    assert is_affordable(made, ((torch.ones(1).expand(size),), {})) is fits
    if family == "arithmetic":
        pairs = operator(torch.add, family=family)
        assert is_affordable(pairs, ((torch.ones(size // 2, 1), torch.ones(1, 2)), {}))
        assert not is_affordable(pairs, ((torch.ones(size // 2 + 1, 1), torch.ones(1, 2)), {}))
        assert is_affordable(pairs, ((torch.ones(1).expand(size), torch.ones(3)), {})) is fits, "do not broadcast"


@pytest.mark.parametrize(
    ("recorded", "count", "fits"), [(False, 1 << 14, True), (True, 1 << 14, False), (True, 1 << 13, True)]
)
def test_what_depends_on_data_is_affordable_by_its_inputs(recorded: bool, count: int, fits: bool) -> None:
    made = operator(lambda x: x[x > 0], family="indexing", one_set_of_inputs=recorded)
    assert is_affordable(made, ((torch.ones(count),), {})) is fits


@pytest.mark.parametrize(("size", "fits"), [(700, True), (800, False), (1 << 15, False)])
def test_the_cpu_is_stopped_where_all_pairs_are_too_many(size: int, fits: bool) -> None:
    """Some are found while it computes; the last would take 4 GB, and is not tried."""
    made, given = operator(torch.diag, family="movement"), ((torch.ones(size),), {})
    with contextlib.nullcontext() if fits else pytest.raises(TooMuchError), bounded(made, given):
        assert made.function(*given[0]).shape == (size, size)


def test_results_whose_size_depends_on_numbers_are_not_tried_for_many() -> None:
    made = operator(lambda x: x[x > 0], family="other", one_set_of_inputs=True)
    with bounded(made, ((torch.ones(9),), {})):
        assert made.function(torch.ones(9)).shape == (9,)
    with pytest.raises(TooMuchError), bounded(made, ((torch.ones(1 << 14),), {})):
        made.function(torch.ones(1 << 14))


def test_overloads_take_turns_however_many_calls_each_has() -> None:
    """Lists of numbers came eight times of eleven, and one number, which is another kernel's, hardly ever."""
    pairs, row = call(uniform(3, 4), uniform(3, 4)), call(uniform(3, 4), uniform(1, 4))
    calls = [pairs, *(call(uniform(3, 4), [n, 2.0]) for n in (1.0, 2.0, 3.0)), call(uniform(3, 4), 5.0), row]
    kinds = kinds_of([*enumerate(calls)])
    assert kinds == [[0], [1, 2, 3], [4], [5]], "a tensor that is broadcast is another kind"
    assert [in_turn(kinds, turn) for turn in range(9)] == [0, 1, 4, 5, 0, 2, 4, 5, 0]


@pytest.mark.parametrize(
    ("family", "compares", "all_change"),
    [("comparison", False, True), ("arithmetic", True, True), ("arithmetic", False, False)],
)
def test_numbers_meet_in_comparisons(family: str, compares: bool, all_change: bool) -> None:
    made = operator(torch.add, lambda _: [call(uniform(5, 7), uniform(5, 7))], family=family, compares=compares)
    changed = [
        {isinstance(value, Variant) and bool({*value.changes} & {*NUMBERS}) for value in each.sample.values()}
        for each in generate(made, "float32", 60)
    ]
    assert all(len(each) == 1 for each in changed) is all_change


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 2**31 - 1, (0, 1, 2**31)),
        (0, 2**31, (0, 2, 2**30 + 1)),
        (-(2**31), 2**31 - 1, (-(2**31), 2, 2**31)),
        (5, 5, (5, 1, 1)),
        (0.5, 3.5, (1, 1, 3)),
        (-3.5, -0.5, (-3, 1, 3)),
    ],
)
def test_integers_are_drawn_at_one_distance(low: float, high: float, found: tuple[int, int, int]) -> None:
    assert range_of(uniform(1, low=low, high=high), torch.int64) == found


# --- findings ---

FOUND: dict[str, Any] = {
    "operator": "add", "dtype": "int8", "seed": 1, "call": 2, "resized": [[8, 4]], "backward": False, "says": "wrong",
}  # fmt: skip


def test_a_finding_is_what_its_file_says() -> None:
    made = Finding.from_dict(FOUND)
    assert made == Finding(operator="add", dtype="int8", seed=1, call=2, resized=((8, 4),), says="wrong")
    assert made.name == "add-int8-1-2.json"
    assert Finding.from_dict(FOUND | {"call": CALLS - 1, "seed": (1 << 62) - 1, "resized": []}).call == CALLS - 1


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"more": 1}, "has the keys"),
        ({"seed": -1}, "`int` >= 0 - at `[$].seed`"),
        ({"seed": 1 << 62}, f"`int` <= {(1 << 62) - 1} - at `[$].seed`"),
        ({"call": True}, "`int`, got `bool` - at `[$].call`"),
        ({"call": 1.0}, "`int`, got `float` - at `[$].call`"),
        ({"call": -1}, "`int` >= 0 - at `[$].call`"),
        ({"resized": [[8, -4]]}, "`int` >= 0 - at `[$].resized"),
        ({"resized": [[8, "4"]]}, "`int`, got `str` - at `[$].resized"),
        ({"call": CALLS + SPARE}, f"`int` <= {CALLS + SPARE - 1} - at `[$].call`"),
        ({"resized": [[8]]}, "of length 2, got 1 - at `[$].resized"),
        ({"resized": [[8, 4], [8, 4, 2]]}, "of length 2, got 3 - at `[$].resized"),
        ({"backward": 1}, "`bool`, got `int` - at `[$].backward`"),
        ({"backward": None, "resized": []}, "`bool`, got `null` - at `[$].backward`"),
        ({"operator": 1}, "`str`, got `int` - at `[$].operator`"),
        ({"dtype": None}, "`str`, got `null` - at `[$].dtype`"),
        ({"says": []}, "`str`, got `array` - at `[$].says`"),
    ],
)
def test_what_is_no_finding_says_why(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Finding.from_dict(FOUND | changed)
