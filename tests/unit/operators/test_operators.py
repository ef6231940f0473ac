"""Operators that are judged by their definition: what is right passes, what is wrong in any way is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.operators import Call, InputFactory, Operator, call, cases_of, conformance_tests
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.operator import chosen
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.target import Target
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare

Function = Callable[..., Any]


def gated(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    gate, value = x.chunk(2, -1)
    return torch.sigmoid(gate.clamp(max=limit)) * value


def usual(make: InputFactory) -> list[Call]:
    return [call(make.normal(3, 5, 34)), call(make.uniform(7, 64, low=-6, high=6), limit=1.0)]


def operator(function: Function = gated, **settings: Any) -> Operator:
    return Operator(name="gated", function=function, definition=gated, **{"inputs": usual, **settings})


def judged(tested: Operator, property_: str, dtype: str = "float32") -> None:
    case = next(each for each in cases_of(tested) if (each.property, each.dtype) == (property_, dtype))
    check(Target(case, tested, Definition(tested), torch.device("cpu")), PrecisionCompare(lambda _: None))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("property_", ["forward", "backward", "layout"])
def test_what_is_right_passes(property_: str, dtype: str) -> None:
    judged(operator(), property_, dtype)


def ignores_its_argument(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return gated(x)


def in_bfloat16(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return gated(x.bfloat16(), limit).to(x.dtype)


def of_another_dtype(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return gated(x, limit).double()


def of_another_shape(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return gated(x, limit).unsqueeze(0)


@pytest.mark.parametrize("wrong", [ignores_its_argument, in_bfloat16, of_another_dtype, of_another_shape])
def test_what_is_wrong_is_refused(wrong: Function) -> None:
    with pytest.raises(Disagreement):
        judged(operator(wrong), "forward")


def test_a_wrong_gradient_is_refused() -> None:
    def half(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
        found = gated(x, limit)
        return found / 2 + (found / 2).detach()

    judged(operator(half), "forward")
    with pytest.raises(Disagreement):
        judged(operator(half), "backward")


def test_reading_memory_in_order_is_refused() -> None:
    def densely(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
        strides = torch.empty(x.shape, device="meta").stride()
        return gated(torch.as_strided(x, x.shape, strides, x.storage_offset()), limit)

    judged(operator(densely), "forward")
    with pytest.raises((Disagreement, RuntimeError)):  # of an expanded tensor it reads beyond the end
        judged(operator(densely), "layout")


def test_changing_what_was_given_is_refused() -> None:
    def in_place(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
        found = gated(x, limit)
        x.detach().zero_()
        return found

    with pytest.raises(Disagreement):
        judged(operator(in_place), "repeat")


def test_what_is_exact_is_compared_bit_by_bit() -> None:
    def off_by_one_ulp(x: torch.Tensor) -> torch.Tensor:
        return torch.nextafter(x, torch.zeros_like(x))

    settings: Any = {"definition": lambda x: x, "inputs": lambda d: [call(d.normal(9))], "name": "same"}
    judged(Operator(function=lambda x: x.clone(), exact=True, **settings), "forward")
    with pytest.raises(Disagreement):
        judged(Operator(function=off_by_one_ulp, exact=True, **settings), "forward")


def test_draws_are_the_same_everywhere_and_differ_from_one_another() -> None:
    first, second = InputFactory("key", torch.float16), InputFactory("key", torch.float16)
    one, other = first.normal(5), first.normal(5)
    assert torch.equal(one, second.normal(5))
    assert not torch.equal(one, other)
    assert one.dtype is torch.float16
    assert one.requires_grad
    assert not first.normal(5, grad=False).requires_grad
    assert not first.uniform(5, dtype=torch.float32).requires_grad


def test_calls_of_one_name_are_numbered_and_an_operator_without_calls_is_refused() -> None:
    twice = operator(inputs=lambda d: [call(d.normal(4, 2)), call(d.normal(4, 2))])
    assert [each.name for each in twice.samples("float32")] == ["4x2", "4x2 #2"]
    with pytest.raises(UsageError, match="no calls"):
        cases_of(operator(inputs=lambda _: []))
    with pytest.raises(UsageError, match="is a Tensor"):
        cases_of(operator(inputs=lambda d: [d.normal(4)]))


def test_nan_and_infinities_go_where_there_are_elements() -> None:
    found = operator(inputs=lambda d: [call(d.normal(0, 4)), call(d.normal(4, 2))])
    assert [each.name for each in chosen(found, "special", "float32")] == ["4x2, not all finite"]


def spectrum(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return torch.fft.fft(x)


def third(x: torch.Tensor, limit: float = 3.0) -> torch.Tensor:
    return x / 3


@pytest.mark.parametrize(
    ("definition", "dtype"),
    [(spectrum, "float32"), (third, "complex64"), (torch.abs, "complex64"), (third, "int32")],
    ids=["complex", "of complex", "real", "of integers"],
)
def test_results_of_another_kind_than_the_inputs_have_their_precision(definition: Function, dtype: str) -> None:
    settings: Any = {
        "dtypes": (dtype,),
        "inputs": lambda d: [call(d.integers(4, 8, high=9).to(d.dtype))],
        "grad": False,
    }
    judged(Operator("kind", definition, **settings), "forward", dtype)
    with pytest.raises(Disagreement):
        judged(Operator("kind", lambda x: definition(x) * 1.01, definition=definition, **settings), "forward", dtype)


def test_dtypes_that_torch_lacks_and_names_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="dtypes"):
        cases_of(operator(dtypes=("float33",)))
    with pytest.raises(UsageError, match="one name"):
        conformance_tests(operator(), operator())


# --- what a user's operator is tested for ---


def properties(tested: Operator) -> set[str]:
    return {each.property for each in cases_of(tested) if each.dtype == "float32"}


def test_an_operator_has_every_property_that_applies() -> None:
    usually = {"forward", "special", "layout", "backward", "backward-layout", "repeat"}
    assert properties(operator()) == usually
    assert properties(operator(out=True, in_place=torch.Tensor.relu_)) == usually | {"out", "in-place"}
    assert properties(operator(grad=False, layouts=False, nonfinite=False, deterministic=False)) == {"forward"}


def test_a_call_can_be_put_under_a_property() -> None:
    more = operator(inputs=lambda d: [*usual(d), call(d.normal(0, 4), group="shapes")])
    assert "shapes" in properties(more)
    judged(more, "shapes")
    with pytest.raises(ValueError, match="no group"):
        call(1, group="shape")


def test_an_operator_of_torch_ops_is_tested_for_what_its_schema_says() -> None:
    found = Operator("softplus", torch.ops.aten.mul, lambda d: [call(d.normal(5, 7), d.normal(7))])
    assert {"out", "in-place"} <= properties(found)
    for property_ in ("forward", "special", "out", "in-place", "layout", "backward", "backward-layout", "repeat"):
        judged(found, property_)


@pytest.mark.parametrize("property_", ["special", "backward-layout"])
def test_what_is_right_passes_what_follows_from_it(property_: str) -> None:
    judged(operator(), property_)


def test_dropping_nan_is_refused() -> None:
    with pytest.raises(Disagreement):
        judged(operator(lambda x, limit=3.0: gated(x.nan_to_num(), limit)), "special")


def test_writing_beside_a_view_is_refused() -> None:
    def everywhere(x: torch.Tensor) -> torch.Tensor:
        x.untyped_storage().fill_(0)
        return x.zero_()

    zeros = {"inputs": lambda d: [call(d.normal(3, 5))], "dtypes": ("float32",)}
    wrong = Operator(name="zero", function=torch.zeros_like, in_place=everywhere, **zeros)
    with pytest.raises(Disagreement, match="beside the view"):
        judged(wrong, "in-place")


def test_one_operator_can_have_a_tolerance_of_its_own() -> None:
    def off(x: torch.Tensor) -> torch.Tensor:
        found = torch.exp(x)
        for _ in range(12):
            found = torch.nextafter(found, torch.tensor(float("inf")))
        return found

    inputs_ = {"inputs": lambda d: [call(d.normal(501))], "definition": torch.exp, "dtypes": ("float32",)}
    with pytest.raises(Disagreement):
        judged(Operator(name="exp", function=off, **inputs_), "forward")
    judged(Operator(name="exp", function=off, ulps=12, **inputs_), "forward")


def test_an_operator_without_a_backward_pass_is_unsupported_and_the_message_says_what_to_do() -> None:
    tested = operator(lambda x, limit=3.0: gated(x, limit).detach())
    case = next(each for each in cases_of(tested) if each.property == "backward")
    target = Target(case, tested, Definition(tested), torch.device("cpu"), ((), "mine.gated"))
    with pytest.raises(NotImplementedError, match=r"gated has no backward: .*register_autograd, or give grad=False"):
        check(target, PrecisionCompare(lambda _: None))
