"""A program of one call runs by itself and shows what the device makes of it, whatever the inputs look like."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from pytest_ascend.operators.snippet import LIMIT_CHARACTERS, Reproduction, snippet
from pytest_ascend.operators.sources import Unwritable

CPU = torch.device("cpu")
_OFFSET = 3


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return x + _OFFSET


def _shifted_twice(x: torch.Tensor, *, times: int = 2) -> Any:
    return functools.reduce(lambda found, _: _shifted(found), range(times), x)


def ran(program: str) -> tuple[dict[str, Any], int]:
    """Run a program; return what it defined, and its exit code."""
    held: dict[str, Any] = {}
    with pytest.raises(SystemExit) as left:
        exec(compile(program, "snippet", "exec"), held)  # noqa: S102  (it was written by us)
    return held, int(left.value.code or 0)


def shown(capsys: pytest.CaptureFixture[str], **named: Any) -> str:
    """Run a program, and give what it says."""
    ran(snippet(Reproduction(title="a test", **named), CPU))
    return capsys.readouterr().out


def test_a_wrong_element_stands_beside_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    decided = {"element": (0, (0,)), "rule": ("error of one element", 0.1)}
    said = shown(capsys, function=torch.exp, definition=torch.expm1, args=(torch.tensor([0.0, 1.0]),), **decided)
    first, judged = said.splitlines()
    assert first == "output 0, element (0,): 1.0 on cpu, 0.0 expected; largest difference 1"
    assert judged == "error of one element: 1, allowed 0.1: FAILED"


def test_the_element_that_the_judge_named_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 8.0]])
    said = shown(capsys, function=torch.exp, definition=torch.expm1, args=(x,), element=(0, (1, 0)))
    assert said.startswith("output 0, element (1, 0): 7.389")


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 0.1]),
        torch.tensor([0.1, -3.4e38], dtype=torch.bfloat16),
        torch.tensor([0.1, 65504.0, 6e-8], dtype=torch.float16),
        torch.tensor([complex(0.1, float("nan")), complex(-0.0, 2)], dtype=torch.complex64),
        torch.tensor([2**62 + 1, -5]),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, -1),
        torch.arange(24.0)[3::2],
        torch.arange(4.0).expand(3, 4),
    ],
    ids=str,
)
def test_inputs_arrive_bit_for_bit_in_their_strides(x: torch.Tensor) -> None:
    program = snippet(Reproduction(title="a test", function=torch.Tensor.clone, args=(x,)), CPU)
    assert ("laid(" in program) is (x.numel() > 0 and (not x.is_contiguous() or x.storage_offset() > 0))
    held, code = ran(program)
    assert code == 0
    found = held["on_device"](held["x0"])
    assert (found.dtype, found.stride(), found.storage_offset()) == (x.dtype, x.stride(), x.storage_offset())
    assert torch.equal(found.isnan(), x.isnan())
    if not x.is_complex():
        assert torch.equal(found.nan_to_num(7), x.nan_to_num(7))
        assert torch.equal(found.signbit() & ~x.isnan(), x.signbit() & ~x.isnan())


def test_gradients_are_compared_where_leaves_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    named = {"args": (torch.tensor([2.0]),), "leaves": (0,), "grad_outputs": (torch.tensor([10.0]),)}
    said = shown(capsys, function=torch.square, definition=torch.exp2, **named)
    assert said.startswith("output 0, element (0,): 40.0 on cpu, 27.7258")


def test_what_is_changed_in_place_is_the_same_at_first_on_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, function=torch.Tensor.add_, args=(torch.tensor([1.0]), 1))
    first, judged = said.splitlines()
    assert first == "output 0, element (0,): 2.0 on cpu, 2.0 expected; largest difference 0"
    assert judged.endswith("passed")


def test_a_function_of_a_module_brings_what_it_refers_to(capsys: pytest.CaptureFixture[str]) -> None:
    function = functools.partial(_shifted_twice, times=3)
    said = shown(capsys, function=function, definition=_shifted, args=(torch.tensor([1.0]),))
    assert said.startswith("output 0, element (0,): 10.0 on cpu, 4.0 expected")


def test_a_lambda_is_written_with_what_it_refers_to(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, function=lambda x, times=_OFFSET: _shifted(x) * times, args=(torch.tensor([1.0]),))
    assert said.startswith("output 0, element (0,): 12.0 on cpu, 12.0 expected")


def test_of_two_lambdas_that_look_alike_none_is_written() -> None:
    alike = (lambda x: x + 1, lambda x: x + 2)
    with pytest.raises(Unwritable, match="2 lambdas"):
        snippet(Reproduction(title="a test", function=alike[0], args=(torch.ones(1),)), CPU)


@pytest.mark.parametrize("value", [0.0, -0.0, float("nan"), float("inf"), 77, True])
def test_a_large_input_of_one_number_is_written(value: float) -> None:
    x = torch.full((5_000,), value)
    held, code = ran(snippet(Reproduction(title="a test", function=torch.isnan, args=(x,)), CPU))
    assert code == 0
    assert held["x0"].dtype == x.dtype
    assert repr(held["x0"]) == repr(x)


def test_of_several_outputs_gradients_come_from_those_that_something_comes_down_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"args": (torch.tensor([3.0, 4.0]), 1), "leaves": (0,), "grad_outputs": (torch.tensor([10.0]),)}
    said = shown(capsys, function=torch.split, definition=torch.split, **named)
    assert "largest difference 0" in said


def test_a_larger_input_is_made_where_somebody_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    large = torch.arange(5_000.0, requires_grad=True)
    expressions = {id(large): "torch.arange(5_000.)"}
    said = shown(capsys, function=torch.sum, args=(large,), large=lambda each: expressions[id(each)])
    assert "largest difference 0" in said
    with pytest.raises(Unwritable, match="5,000 elements"):
        snippet(Reproduction(title="a test", function=torch.sum, args=(large,)), CPU)


def test_a_program_that_would_be_too_long_is_not_written() -> None:
    many = [torch.rand(30) for _ in range(100)]
    with pytest.raises(Unwritable, match=f"more than {LIMIT_CHARACTERS:,}"):
        snippet(Reproduction(title="a test", function=torch.cat, args=(many,)), CPU)


def test_a_closure_is_refused_by_its_name() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(Unwritable, match="inner"):
        snippet(Reproduction(title="a test", function=inner, args=(torch.ones(1),)), CPU)


def test_a_title_stays_in_its_comment() -> None:
    program = snippet(Reproduction(title="x\nimport os", function=torch.neg, args=(torch.ones(1),)), CPU)
    assert program.startswith("# x\\nimport os\n")
