"""What a program says of its inputs makes them again, whatever their description."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_ascend.operators import Operator, call, calling, values
from pytest_ascend.operators.calling import tensors
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.reproducing import _large, _named, _reproduction, _sampled, place_of, program
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import Target
from pytest_ascend.operators.values import (
    StoredTensor,
    Values,
    Variant,
    distinct,
    few,
    given,
    integers,
    mask,
    normal,
    uniform,
)
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs

T = torch.Tensor
CPU = torch.device("cpu")
HELD = {"inputs": inputs, "torch": torch, "values": values}


def target(function: Any, *args: Any, property_: str = "forward", dtype: str = "float32", **settings: Any) -> Target:
    tested = Operator("tested", function, lambda _: [call(*args)], **settings)
    return Target(
        Case(suite="user", subject="tested", property=property_, dtype=dtype), tested, Definition(tested), CPU
    )


DESCRIBED = (
    uniform(4, 5, low=-3, high=2),
    uniform(4, 5, dtype="float16"),
    uniform(4, 5, low=-(2.0**50), high=2.0**50, dtype="int64"),
    normal(4, 5, std=0.25),
    normal(4, 5).with_nonfinite(),
    normal(4, 5).expanded(),
    normal(1, 5).expanded(),
    uniform(4, 5).with_nonfinite(),
    few(4, 5),
    few(4, 5, high=200),
    integers(6, low=-2, high=9),
    mask(6),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("described", DESCRIBED, ids=lambda each: each.label)
def test_expressions_make_what_values_are(described: Values, dtype: torch.dtype) -> None:
    if described.sprinkled and not dtype.is_floating_point:
        return
    made, wanted = eval(_sampled(described, "key", dtype), dict(HELD)), described.make("key", dtype)  # noqa: S307
    assert (made.dtype, made.shape, made.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    assert made.isnan().equal(wanted.isnan())
    assert made.nan_to_num(7).equal(wanted.nan_to_num(7))


def test_what_is_small_by_nature_has_no_expression() -> None:
    assert _sampled(given(1, 2), "key", torch.float32) == _sampled(distinct(3, 4), "key", torch.float32) == ""


def test_each_input_has_the_expression_of_its_own_place() -> None:
    held = StoredTensor(tensor=torch.ones(3), expression="torch.ones(3)")
    sample = Sample(
        name="s",
        args=(
            *(uniform(3), Variant(values=normal(3), how="sorted"), Variant(values=held, how="far"), held),
            Variant(values=Variant(values=held, how="far"), how="stepped"),
            Variant(values=Variant(values=normal(3), how="far"), how="stepped"),
        ),
    )
    made = target(torch.add, sample.args[0])
    args, _ = sample.arguments("tested", torch.float32)
    up = torch.ones(3)
    expression = _large(made, sample, tensors(args), (up,))
    for place in (0, 1, 3, 5):
        assert eval(expression(args[place]), dict(HELD)).equal(args[place])  # noqa: S307  (our own words)
    assert expression(args[2]) == expression(args[4]) == "", "changed numbers of a stored tensor are written out"
    assert expression(torch.ones(3)) == "", "nobody knows this one"
    assert "ops/tested/s/up/0" in expression(up)


@pytest.mark.parametrize(
    ("path", "place"), [("sort['3x5'][1]", 1), ("sort['3x5'][12]", 12), ("sort['3x5']", 0), ("sort", 0), ("", 0)]
)
def test_the_number_of_an_output_is_the_last_of_a_path(path: str, place: int) -> None:
    assert place_of(path) == place


def test_every_name_in_a_verdict_leads_to_a_sample_and_its_layout() -> None:
    made = target(torch.square, normal(3, 4))
    (sample,) = made.samples
    named = {name: layout for name, each, layout in _named(made) if each is sample}
    assert len(named) == 1 + 2 + 3 * len(calling.LAYOUTS) + 2
    assert named["3x4"] is named["3x4, backward"] is named["3x4, in place"] is calling.as_it_is
    assert named["3x4, ready"] is named["3x4, to be resized"] is calling.as_it_is
    for label, layout in calling.LAYOUTS.items():
        assert {named[f"3x4, {label}{way}"] for way in ("", ", backward", ", in place")} == {layout}


def reproduced(made: Target, name: str, layout: Any = calling.as_it_is) -> Any:
    return _reproduction(made, name, made.samples[0], layout, None)


def test_a_call_is_reproduced_as_it_was_made() -> None:
    made = target(torch.square, normal(3, 4), definition=lambda x: x * x, in_place=torch.Tensor.square_)
    plain = reproduced(made, "3x4")
    assert (plain.function, plain.leaves, plain.grad_outputs, plain.repeats) == (torch.square, (), (), False)
    assert plain.definition is made.operator.definition
    assert plain.title == "user/tested/forward/float32: 3x4"
    assert (
        reproduced(made, "3x4, stepped", calling.stepped).args[0].stride()
        == calling.stepped(plain.args[0], CPU).stride()
    )
    back = reproduced(made, "3x4, backward")
    assert (back.leaves, [each.shape for each in back.grad_outputs]) == ((0,), [(3, 4)])
    changed = reproduced(made, "3x4, in place")
    assert (changed.function, changed.definition) == (torch.Tensor.square_, None)


@pytest.mark.parametrize("property_", ["backward", "backward-layout"])
def test_gradients_are_reproduced_in_the_layout_of_the_case(property_: str) -> None:
    made = target(torch.mul, normal(3, 4), uniform(3, 4, grad=False), property_="backward")
    made.case = Case(suite="user", subject="tested", property=property_, dtype="float32")
    found = reproduced(made, "3x4, 3x4, transposed", calling.transposed)
    assert found.leaves == (0,)
    assert [each.stride() for each in (*found.args, *found.grad_outputs)] == [(1, 3)] * 3


def test_a_repeated_call_is_compared_with_itself() -> None:
    assert reproduced(target(torch.square, normal(3, 4), property_="repeat"), "3x4").repeats


@pytest.mark.parametrize(
    ("name", "layout", "shape", "stride"),
    [
        ("3x4, ready", calling.as_it_is, (3, 4), (4, 1)),
        ("3x4, to be resized", calling.as_it_is, (0,), (1,)),
        ("3x4, stepped", calling.stepped, (3, 4), (11, 2)),
    ],
)
def test_the_target_of_a_result_is_reproduced(name: str, layout: Any, shape: tuple[int, ...], stride: Any) -> None:
    made = target(torch.square, normal(3, 4), property_="out", out=True)
    found = reproduced(made, name, layout)
    assert (found.kwargs["out"].shape, found.kwargs["out"].stride()) == (shape, stride)
    assert found.kwargs["out"].isnan().all()
    assert found.args[0].is_contiguous(), "the layout is the target's"


@pytest.mark.parametrize(("layout", "stride"), [(calling.as_it_is, (4, 1)), (calling.stepped, (11, 2))])
def test_a_tensor_that_is_changed_in_place_is_reproduced_where_it_lies(layout: Any, stride: tuple[int, int]) -> None:
    made = target(torch.add, normal(3, 4), 2, property_="in-place", in_place=torch.Tensor.add_)
    found = reproduced(made, "3x4, 2", layout)
    assert (found.function, found.args[0].stride(), found.args[1]) == (torch.Tensor.add_, stride, 2)


def test_without_a_verdict_the_call_made_last_is_shown() -> None:
    made = target(torch.square, normal(3, 4))
    assert "user/tested/forward/float32: 3x4" in program(made, None)
    made.run(made.samples[0], calling.stepped)
    assert "laid(" in program(made, None)
