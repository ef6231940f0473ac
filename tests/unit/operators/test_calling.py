"""Calling operators, and their references: each step by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_ascend.operators import Operator, call, calling
from pytest_ascend.operators.calling import back, forward, preserve_layout, upstream, with_grad
from pytest_ascend.operators.operator import ALL_OUTPUTS
from pytest_ascend.operators.reference import Definition, Results, computed, numbers_in_float64
from pytest_ascend.operators.samples import Sample, uniform
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target, in_dtype, placed
from pytest_ascend.precision.formats import REAL_PARTS
from pytest_ascend.precision.nested import widened
from pytest_ascend.records.case import Case
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import Disagreement

T = torch.Tensor
CPU = torch.device("cpu")


def operator(function: Any = torch.square, calls: Any = None, **settings: Any) -> Operator:
    return Operator("tested", function, calls or (lambda make: [call(make.normal(3, 5))]), **settings)


def test_the_parts_of_a_complex_number_have_a_dtype_of_their_own() -> None:
    for dtype in (torch.complex32, torch.complex64, torch.complex128, torch.bfloat16, torch.float32):
        assert REAL_PARTS.get(dtype, dtype) is dtype.to_real()


def test_everything_is_computed_in_double() -> None:
    for dtype, wide in (
        (torch.float16, torch.float64),
        (torch.float64, torch.float64),
        (torch.complex64, torch.complex128),
        (torch.int8, torch.int8),
        (torch.bool, torch.bool),
    ):
        x = torch.ones(2, 3).to(dtype)
        assert widened(x).dtype == wide
        assert widened(x).equal(x.to(wide))


def test_only_outputs_that_are_compared_are_returned() -> None:
    x = torch.tensor([3.0, 1.0, 2.0])
    every = forward(operator(), torch.sort, (x,), {})
    assert [each.tolist() for each in every] == [[1, 2, 3], [1, 2, 0]]
    first = forward(operator(outputs=("float32",)), torch.sort, (x,), {})
    assert [each.tolist() for each in first] == [[1, 2, 3]]


def test_outputs_that_get_a_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    outputs = [x * 2, torch.arange(2), x * 3, torch.ones(2)]
    one, two, every = (
        calling.differentiated_outputs(operator(grad_outputs=count), outputs) for count in (1, 2, ALL_OUTPUTS)
    )
    assert [each is outputs[0] for each in one] == [True]
    assert [id(each) for each in two] == [id(outputs[0]), id(outputs[2])]
    assert [id(each) for each in every] == [id(outputs[0]), id(outputs[2])]
    assert calling.differentiated_outputs(operator(grad_outputs=1), outputs[1:2]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("all_bits", [False, True])
def test_gradients_of_outputs_of_recorded_operators_serve_all_dtypes(all_bits: bool, dtype: torch.dtype) -> None:
    """In a shape of its own each, from a stream of its own."""
    outputs = [torch.ones(2, 3, dtype=dtype, requires_grad=True), torch.ones(50, dtype=dtype, requires_grad=True)]
    sample = Sample(name="s", args=(), all_bits=all_bits)
    made = upstream(operator(one_set_of_inputs=True, grad_outputs=2), sample, outputs, dtype)
    assert [(each.shape, each.dtype) for each in made] == [(each.shape, each.dtype) for each in outputs]
    assert not made[0].flatten()[:6].equal(made[1][:6])
    long = torch.view_as_real(made[1]) if dtype.is_complex else made[1]
    key = "ops/tested/s/up/1"
    drawn = inputs.normal(key, (50, 2) if dtype.is_complex else (50,))
    rounded = drawn.to(dtype.to_real()) if all_bits else drawn.bfloat16().half()
    assert long.double().equal(rounded.double().to(long.dtype).double())
    plain = upstream(operator(grad_outputs=2), sample, outputs[1:], torch.float16)
    assert plain[0].equal(inputs.normal("ops/tested/s/up/0", (50,), dtype=torch.float16))


def test_gradients_are_those_of_the_leaves_that_want_one() -> None:
    tested = operator(lambda x, y: (x * y).sum(0))
    sample = Sample(name="s", args=(uniform(2, 3), uniform(2, 3, grad=False)))
    args, kwargs = sample.arguments("tested", torch.float32)
    leaves = with_grad(sample, (args, kwargs), torch.float32)
    assert [each.requires_grad for each in args] == [True, False]
    assert leaves[0] is args[0]
    outputs = forward(tested, tested.function, args, kwargs)
    found = back(tested, outputs, leaves, lambda _: [torch.tensor([1.0, 2, 3]).double()])
    assert found[0] is not None
    assert found[0].equal(args[1] * torch.tensor([1.0, 2, 3]))
    assert back(tested, [torch.ones(3)], leaves, None) == [None]
    unused = back(tested, [args[0].sum()], [args[0], args[0].clone()], lambda _: [torch.ones(())])
    assert unused[1] is None


def test_an_image_is_placed_with_its_channels_innermost() -> None:
    image, matrix = torch.arange(120.0).view(2, 3, 4, 5), torch.arange(6.0).view(2, 3)
    placed_ = calling.channels_last(image, CPU)
    assert placed_.equal(image)
    assert placed_.is_contiguous(memory_format=torch.channels_last)
    assert calling.channels_last(matrix, CPU).is_contiguous()
    assert calling.changes(calling.channels_last, image)
    assert not calling.changes(calling.channels_last, matrix)
    assert not calling.changes(calling.channels_last, image[:0])


@pytest.mark.parametrize("stride", [(1, 2), (7, 2), (0, 1), (5, 1)], ids=str)
def test_tensors_are_placed_with_their_own_gaps(stride: tuple[int, int]) -> None:
    x = torch.arange(40.0)[3:].as_strided((2, 3), stride)
    there = preserve_layout(x, CPU)
    assert there.equal(x)
    assert there.stride() == stride
    assert preserve_layout(x[:0], CPU).shape == (0, 3)


# --- targets ---


def target(tested: Operator, dtype: str = "float32", property_: str = "forward") -> Target:
    return Target(
        Case(suite="user", subject="tested", property=property_, dtype=dtype), tested, Definition(tested), CPU
    )


def test_devices_among_arguments_become_the_one_under_test() -> None:
    given = ([torch.ones(2), CPU, "cpu", "mean", 3], {"device": CPU, "like": (torch.zeros(1),)})
    (x, *rest), named_ = placed(given, preserve_layout, torch.device("meta"))
    assert x.device.type == "meta"
    assert rest == [torch.device("meta"), torch.device("meta"), "mean", 3]
    assert named_["device"] == torch.device("meta")
    assert named_["like"][0].device.type == "meta"


def test_comparisons_are_written_as_zero_and_one() -> None:
    found = Results([torch.tensor([True, False])], ([torch.tensor([True, False])], [torch.tensor([True, False])]))
    made = in_dtype(found, torch.float16)
    assert made.expected[0] is not None
    assert (made.expected[0].dtype, made.expected[0].tolist()) == (torch.float64, [1, 0])
    assert [run[0].dtype for run in made.reference_runs if run[0] is not None] == [torch.float16] * 2
    assert in_dtype(found, torch.bool) is found
    numbers = Results([torch.ones(1)], ([torch.ones(1)],))
    assert in_dtype(numbers, torch.float16) is numbers
    with pytest.raises(ValueError, match="first result is None"):
        _ = Results([None], ([None],)).first


def test_a_target_runs_changes_and_differentiates() -> None:
    tested = operator(torch.square, in_place=torch.Tensor.square_, definition=lambda x: x * x)
    made = target(tested)
    (sample,) = made.samples
    x = sample.arguments("tested", torch.float32)[0][0]
    assert made.execute(Call(sample))[0].equal(x * x)
    assert made.latest == Call(sample)
    assert made.execute(Call(sample, direction=IN_PLACE))[0].equal(x * x)
    (gradient,) = made.execute(Call(sample, direction=BACKWARD))
    up = inputs.normal(f"ops/tested/{sample.name}/up/0", (3, 5), dtype=torch.float32)
    assert gradient is not None
    torch.testing.assert_close(gradient, 2 * x * up)
    assert made.fetched([None]) == [None]
    with pytest.raises(Disagreement, match="a result is on meta instead of cpu"):
        made.fetched([torch.ones(2, device="meta")])
    assert set(made.layouts()) == set(calling.LAYOUTS)
    assert set(target(operator(layouts=("stepped",))).layouts()) == {"stepped"}
    assert made.shows(sample, "forward")
    assert not made.shows(sample, "special")


def test_another_reference_brings_its_own_samples() -> None:
    made, other = target(operator()), operator(calls=lambda make: [call(make.normal(7))])
    made._inputs["old"], made._grad_outputs["old"] = 1, []
    made.use(Definition(other))
    assert [each.name for each in made.samples] == ["7"]
    assert (made._inputs, made._grad_outputs) == ({}, {})


@pytest.mark.parametrize(("size", "is_long"), [(513, True), (512, False)])
def test_long_sums_are_those_over_more_than_512_elements(size: int, is_long: bool) -> None:
    made = target(operator(torch.sum, lambda make: [call(make.normal(size)), call(make.normal(3))]))
    assert made.is_long(f"{size}, stepped") is is_long
    assert not made.is_long("3")


# --- references ---


def test_integers_become_float64_where_results_are_exact() -> None:
    before = torch.get_default_dtype()
    with numbers_in_float64():
        assert (torch.tensor([1]) / torch.tensor([3])).dtype == torch.float64
    assert torch.get_default_dtype() == before
    with pytest.raises(RuntimeError), numbers_in_float64():
        raise RuntimeError
    assert torch.get_default_dtype() == before


def test_references_are_exact_and_have_a_run_per_layout() -> None:
    tested = operator(torch.exp)
    (sample,) = tested.samples("float16")
    x = sample.arguments("tested", torch.float16)[0][0]
    found = computed(tested, sample, "float16")
    assert found.expected[0] is not None
    assert found.expected[0].equal(x.double().exp())
    assert len(found.reference_runs) == 3
    assert all(run[0] is not None and run[0].equal(x.exp()) for run in found.reference_runs)
    of_definition = computed(operator(torch.exp, definition=torch.expm1), sample, "float16")
    assert of_definition.expected[0] is not None
    assert of_definition.expected[0].equal(x.double().expm1())
    assert found.first is found.reference_runs[0][0]
    gradient = computed(tested, sample, "float16", backward=True)
    up = inputs.normal(f"ops/tested/{sample.name}/up/0", (3, 5), dtype=torch.float16)
    assert gradient.expected[0] is not None
    torch.testing.assert_close(gradient.expected[0], x.double().exp() * up.double())
    assert [run[0].dtype for run in gradient.reference_runs if run[0] is not None] == [torch.float16] * 3


def test_a_layout_that_the_cpu_refuses_gives_no_reference_run() -> None:
    tested = operator(torch.view_as_complex, lambda make: [call(make.normal(3, 2))])
    (sample,) = tested.samples("float32")
    for backward in (False, True):
        assert len(computed(tested, sample, "float32", backward=backward).reference_runs) in (1, 2)
    with pytest.raises(RuntimeError, match="must have a last dimension of size 2"):
        computed(operator(torch.view_as_complex), operator().samples("float32")[0], "float32")


def test_a_definition_is_computed_once_in_several_precisions() -> None:
    calls: list[torch.dtype] = []

    def defined(x: T) -> T:
        calls.append(x.dtype)
        return x.exp()

    made = Definition(operator(torch.exp, definition=defined))
    (sample,) = made.samples("forward", "float16")
    found = made.expect(sample, "float16")
    assert calls == [torch.float64, torch.float32, *[torch.float16] * 3]
    assert [run[0].dtype for run in found.reference_runs if run[0] is not None] == [torch.float16] * 5
    assert made.expect(sample, "float16") is found
    whole = Definition(operator(torch.sort, outputs=("", "int64")))
    sorted_ = whole.expect(whole.samples("forward", "float16")[0], "float16")
    assert [each.dtype for each in sorted_.reference_runs[0] if each is not None] == [torch.float16, torch.int64]
