"""Stored results: only what does not follow from the rest is stored, and all of it comes back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.errors import GoldenError
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators import Operator, call
from pytest_ascend.operators import reference as stored
from pytest_ascend.operators.reference import Results, tensor_name
from pytest_ascend.operators.samples import Sample, Values
from tools.ops.packing import NO_ELEMENTS, named, same

T = torch.Tensor
CPU = torch.device("cpu")


def operator(function: Any = torch.square, calls: Any = None, **settings: Any) -> Operator:
    return Operator("tested", function, calls or (lambda make: [call(make.normal(3, 5))]), **settings)


def kept_and_read(results: Results, count: int = 0) -> tuple[dict[str, T], Results]:
    sample = Sample(name="s", args=())
    tensors = dict(named("float16", "forward", sample, results))
    return tensors, read_of(tensors, sample, count)


def read_of(tensors: dict[str, T], sample: Sample, count: int = 0) -> Results:
    store: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "golden_of", lambda *_: SimpleNamespace(tensors=tensors))
        return stored.stored_results(store, operator(), "float16", "forward", sample, count)


HALF = torch.tensor([1.0, -0.0, math.nan]).half()
THIRD = torch.tensor([1 / 3, -2 / 3, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("results", "suffixes"),
    [
        (Results([HALF.double()], ([HALF], [HALF], [HALF])), [""]),
        (Results([THIRD], ([THIRD.half()],) * 3), ["", "~"]),
        (Results([THIRD], ([HALF],) * 3), ["", "~"]),
        (Results([THIRD], ([THIRD.half()], [HALF], [THIRD.half()])), ["", "~", "~stepped"]),
        (Results([HALF.double()], ([HALF], [HALF], [-HALF])), ["", "~transposed"]),
        (Results([HALF.double()], ([HALF], [HALF.nan_to_num()], [HALF])), ["", "~stepped"]),
        (Results([torch.tensor([0.0]).double()], ([-torch.tensor([0.0])],) * 3), ["", "~"]),
    ],
)
def test_only_what_does_not_follow_is_stored_and_all_comes_back(results: Results, suffixes: list[str]) -> None:
    tensors, again = kept_and_read(results)
    assert list(tensors) == [f"float16/forward/s/0{each}" for each in suffixes]
    for one, other in zip(
        (results.expected, *results.reference_runs), (again.expected, *again.reference_runs), strict=True
    ):
        assert one[0] is not None
        assert other[0] is not None
        assert one[0].dtype == other[0].dtype
        assert same(one[0], other[0])


def test_a_run_that_is_what_is_expected_once_rounded_has_no_elements() -> None:
    tensors, _ = kept_and_read(Results([THIRD], ([THIRD.half()],) * 3))
    assert tensors["float16/forward/s/0~"].shape == NO_ELEMENTS
    assert tensors["float16/forward/s/0~"].dtype == torch.float16


def test_gradients_that_do_not_exist_are_not_stored_and_come_back_as_none() -> None:
    results = Results([None, HALF.double()], ([None, HALF],) * 3)
    tensors, again = kept_and_read(results, 2)
    assert list(tensors) == [tensor_name("float16", "forward", Sample(name="s", args=()), 1)]
    assert [each is None for each in again.expected] == [True, False]
    assert all(run[0] is None and run[1] is not None for run in again.reference_runs)
    empty = read_of({}, Sample(name="s", args=()))
    assert (empty.expected, len(empty.reference_runs)) == ([], 3)
    for broken in (
        Results([None], ([HALF],) * 3),
        Results([THIRD], ([HALF], [None], [HALF])),
    ):
        with pytest.raises(ValueError, match="only some of the results exist"):
            kept_and_read(broken)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (HALF, HALF.clone(), True),
        (HALF, HALF.float(), False),
        (HALF, HALF.nan_to_num(), False),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([1.0]), torch.tensor([2.0]), False),
        (torch.tensor([1.0]), torch.tensor([1.0, 1.0]), False),
    ],
)
def test_tensors_are_the_same_in_value_and_sign(one: T, other: T, is_same: bool) -> None:
    assert same(one, other) is is_same


def test_the_golden_of_other_inputs_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tested, store = operator(dtypes=("float32", "float16")), GoldenStore(tmp_path)
    said = {dtype: stored.inputs_hash(tested, dtype) for dtype in tested.dtypes}
    assert all(len(each) == 16 for each in said.values())
    golden = SimpleNamespace(id="ops/tested", meta={"inputs": said}, tensors={})
    asked: list[str] = []
    monkeypatch.setattr(GoldenStore, "read", lambda _, id_: asked.append(id_) or golden)
    assert stored.golden_of(store, tested) is golden
    assert asked == ["ops/tested"]
    stored.golden_of.cache_clear()
    golden.meta = {"inputs": said | {"float16": "of others"}}
    with pytest.raises(GoldenError, match=r"for float16\s"):
        stored.golden_of(store, tested)
    stored.golden_of.cache_clear()


@pytest.fixture(autouse=True)
def _goldens_are_read_anew() -> Iterator[None]:
    yield
    stored.golden_of.cache_clear()


def test_descriptions_are_equal_where_inputs_are() -> None:
    same_, other = (
        operator(calls=lambda make, size=size: [call(Values(shape=(size,), kind="few"))]) for size in (3, 4)
    )
    again = operator(calls=lambda make: [call(Values(shape=(3,), kind="few"))])
    assert stored.inputs_hash(same_, "float32") == stored.inputs_hash(again, "float32")
    assert stored.inputs_hash(same_, "float32") != stored.inputs_hash(other, "float32")
