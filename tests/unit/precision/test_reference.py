"""A reference brings reference runs of its own: two orders of summation, in whatever dtype the device computed."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

from pytest_ascend.precision import compare
from pytest_ascend.precision.orders import other_order
from pytest_ascend.precision.reference import Reference, Source
from pytest_ascend.run.reference import cpu_reference


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(300, 40), nn.Linear(40, 7)

    def forward(self, x: torch.Tensor, *, extra: dict[str, torch.Tensor]) -> dict[str, object]:
        hidden = torch.tanh(self.first(x)) + extra["more"]
        return {"logits": self.second(hidden), "hidden": (hidden, "name", None)}


@pytest.fixture
def given():
    torch.manual_seed(0)
    return Several(), torch.randn(9, 300), {"more": torch.randn(9, 40)}


def test_the_reference_runs_of_every_part_come_by_themselves(given):
    model, x, extra = given
    expected, actual = cpu_reference(model, x, extra=extra), model(x, extra=extra)
    verdict = compare(actual, expected)
    assert verdict.agrees
    assert all("reference_rmse" in leaf.metrics for leaf in verdict.leaves[:2])
    for ours, theirs in (
        (actual["logits"], expected["logits"]),
        (actual["hidden"][0][3:5, ::2], expected["hidden"][0][3:5, ::2]),
        (actual["logits"].softmax(-1), expected["logits"].softmax(-1)),
    ):
        verdict = compare(ours.detach(), theirs)
        assert verdict.agrees
        assert "reference_rmse" in verdict.metrics
    spoilt = actual["logits"].detach().clone()
    spoilt[2, 3] += 1e-4
    verdict = compare(spoilt, expected["logits"])
    assert "compared with 8 CPU results in float32, in different orders of summation" in verdict.message


def test_two_orders_give_two_results(given):
    model, x, extra = given
    first, second = cpu_reference(model, x, extra=extra)["logits"].reference_runs(torch.float32)
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, second)


def kept(function):
    cached = functools.lru_cache(function)

    @functools.wraps(function)
    def of_outside(*args):
        return cached(*args)

    return of_outside


@pytest.mark.parametrize("cache", [functools.lru_cache, kept])
def test_what_a_method_keeps_of_a_run_is_computed_anew_in_the_next(cache) -> None:
    class Positions(nn.Module):
        @staticmethod
        @cache
        def positions(size: int, dtype: torch.dtype) -> torch.Tensor:
            return (torch.arange(size, dtype=dtype) * 0.37).sin()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.positions(x.numel(), x.dtype)

    runs = cpu_reference(Positions(), torch.zeros(999)).reference_runs(torch.float32, 4)
    assert len({tuple(each.tolist()) for each in runs}) == 4


def test_a_reference_is_a_tensor_like_any_other(given):
    model, x, extra = given
    expected = cpu_reference(model, x, extra=extra)["logits"]
    assert isinstance(expected, torch.Tensor)
    assert expected.dtype is torch.float64
    assert expected.shape == (9, 7)
    assert isinstance(expected.numpy().sum(), float)
    torch.testing.assert_close(expected.float(), model(x, extra=extra)["logits"])
    assert compare(expected.float(), copy.deepcopy(expected)).agrees
    assert float(expected.clone().zero_().abs().sum()) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reference_first", [True, False])
def test_autocast_on_the_device_is_seen(given, dtype, reference_first):
    model, x, extra = given
    expected = cpu_reference(model, x, extra=extra) if reference_first else None
    with torch.autocast("cpu", dtype=dtype):
        actual = model(x, extra=extra)
        expected = expected or cpu_reference(model, x, extra=extra)
    assert actual["logits"].dtype is dtype
    assert actual["hidden"][0].dtype is torch.float32  # which alone would not tell
    assert compare(actual, expected).agrees
    assert compare(actual["hidden"][0].detach(), expected["hidden"][0]).agrees
    assert not compare(actual["hidden"][0].detach() * 1.1, expected["hidden"][0]).agrees


def test_a_model_in_half_precision_is_judged_beside_the_cpu_in_half_precision(given):
    model, x, extra = given
    expected = cpu_reference(model, x, extra=extra)
    actual = model.bfloat16()(x.bfloat16(), extra={"more": extra["more"].bfloat16()})
    assert compare(actual, expected).agrees
    assert not compare(actual["logits"] * 1.1, expected["logits"]).agrees


def test_gradients_that_are_zero_but_for_cancellation_are_not_accused():
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(32, 4, batch_first=True), torch.randn(3, 12, 32)

    def gradient(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        named = dict(zip(dict(attention.named_parameters()), parameters, strict=True))
        output = torch.func.functional_call(attention, named, (x, x, x), {"need_weights": False})[0]
        return torch.autograd.grad(output.square().sum(), named["in_proj_bias"])[0]

    inputs = (x, *attention.parameters())
    expected = cpu_reference(gradient, *inputs)
    with other_order():
        actual = gradient(*inputs)
    assert float(expected[32:64].abs().max()) < 1e-12  # the key's bias
    assert compare(actual, expected).agrees
    assert compare(actual[32:64], expected[32:64]).agrees
    assert not compare(actual[32:64] + 1e-3, expected[32:64]).agrees


def test_a_value_of_the_users_own_says_by_what_it_is_judged_and_what_were_sharper():
    verdict = compare(torch.ones(40) * 1.01, torch.ones(40).double())
    assert "no reference runs, limits from the model of sums (1024 terms assumed)" in verdict.message
    assert "cpu_reference(function, *inputs)" in verdict.message
    given = compare(torch.ones(40) * 1.01, torch.ones(40).double(), reference_runs=torch.ones(40))
    assert "compared with 1 reference run" in given.message


def test_the_model_and_the_generators_are_left_as_they_are(given):
    model, x, extra = given
    before = torch.random.get_rng_state()
    expected = cpu_reference(model.train(), x, extra=extra)
    compare(model(x, extra=extra), expected)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not model._forward_pre_hooks
    assert isinstance(expected["logits"], Reference)


def test_random_numbers_are_the_same_in_each_way():
    expected = cpu_reference(lambda x: x + torch.rand(5), torch.zeros(5))
    first, second = expected.reference_runs(torch.float32)
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(4))
def test_a_device_that_computes_weight_norm_by_simple_operators_passes(dtype, seed):
    torch.manual_seed(seed)
    v, g, grad = torch.randn(32, 16, 5), torch.rand(32, 1, 1) + 0.5, torch.randn(32, 16, 5)

    def gradients(compute, v, g, grad):
        leaves = [each.detach().requires_grad_() for each in (v, g)]
        return torch.autograd.grad(compute(*leaves), leaves, grad)

    given = [each.to(dtype) for each in (v, g, grad)]
    expected = cpu_reference(lambda *given: gradients(torch._weight_norm, *given), *given)
    found = gradients(lambda v, g: v * (g / torch.norm_except_dim(v)), *given)
    assert compare(found, expected).agrees
    wrong = found[0].clone()
    wrong[3, 7, 2] += 0.1 * wrong.abs().max()
    assert not compare((wrong, found[1]), expected).agrees


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("units", "agrees"), [(2, True), (16, False)])
def test_reciprocal_roots_may_be_wrong_by_two_units_and_not_by_sixteen(units, agrees, seed):
    torch.manual_seed(seed)
    x, grad, weight = torch.randn(2, 32, 8, 8), torch.randn(2, 32, 8, 8), torch.rand(32) + 0.5

    def gradient(x, grad, weight):
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.group_norm(leaf, 8, weight), leaf, grad)[0]

    norm = torch.ops.aten
    _, mean, over = norm.native_group_norm(x, weight, None, 2, 32, 64, 8, 1e-5)
    over = over * (1 + units * (2 * torch.rand(over.shape) - 1) * 2.0**-23)
    found, *_ = norm.native_group_norm_backward(grad, x, mean, over, weight, 2, 32, 64, 8, (True, False, False))
    assert compare(found, cpu_reference(gradient, x, grad, weight)).agrees is agrees


def test_reference_runs_of_an_lstm_differ():
    lstm = torch.nn.LSTM(16, 16)
    with torch.no_grad():
        expected = cpu_reference(lstm, torch.randn(9, 1, 16))[0]
    runs = expected.reference_runs(torch.float32, 8)
    assert len({each.numpy().tobytes() for each in runs}) > 1


def test_before_a_narrow_rejection_float64_within_a_function_is_float32():
    def turned(x):
        return (x.double() / torch.arange(1, 8, dtype=torch.float64) * 3.3).sin().float()

    torch.manual_seed(0)
    expected = Source(turned, (torch.randn(50, 7),), {}, counts=(2, 8, 32)).exact()
    exact = expected.as_subclass(torch.Tensor)
    off = [(each.double() - exact).abs().max() for each in expected.reference_runs(torch.float32, 32)]
    assert max(off[:7]) < 2.0**-24 < max(off[7:])


def test_a_reference_run_of_another_shape_is_left_out_and_the_next_is_not():
    lengths = iter((9, 9, 9, 9, 7, *[9] * 20))  # as of speech, whose length follows from rounded numbers
    expected = Source(lambda x: (2 * x)[: next(lengths)], (torch.randn(9),), {}).exact()
    assert len(expected.reference_runs(torch.float32, 8)) == 7
