"""What a judge of operators is given, and what a correct device may return, by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_ascend.certificate import recomputed
from pytest_ascend.operators import Operator, call, judging
from pytest_ascend.operators.judging import alike, digest, matching_run, perturbed, signs, sizes_of_sums
from pytest_ascend.operators.operator import ARITHMETIC, FUNCTION, MOVE
from pytest_ascend.operators.reference import Results
from pytest_ascend.operators.samples import normal
from pytest_ascend.precision import Verdict, compare

T = torch.Tensor
CPU = torch.device("cpu")


def operator(function: Any = torch.square, calls: Any = None, **settings: Any) -> Operator:
    return Operator("tested", function, calls or (lambda make: [call(make.normal(3, 5))]), **settings)


def test_numbers_that_cancel_on_the_cpu_are_unsure() -> None:
    exact = torch.tensor([1.0, -2.0, float("nan")]).double()
    for off, is_unsure in ((0.01, False), (1.0, True)):
        own = (exact + off).to(torch.bfloat16)
        assert judging.is_unsure(Results([exact], ([own],))) == is_unsure
    assert judging.is_unsure(Results([torch.tensor([1.0]).double()], ([torch.tensor([math.inf])],)))


def test_a_run_that_is_matched_bit_for_bit() -> None:
    one, two = [torch.ones(2)], [torch.full((2,), 2.0)]
    results = Results([torch.ones(2).double()], (one, two))
    assert matching_run([torch.full((2,), 2.0)], results) is two
    assert matching_run([torch.ones(2)], results) is one
    assert matching_run([torch.zeros(2)], results) is None
    assert matching_run([torch.ones(2).double()], results) is None


@pytest.mark.parametrize(
    ("exactness", "dtype"), [(MOVE, torch.float16), (FUNCTION, torch.float64), (ARITHMETIC, torch.float64)]
)
def test_what_only_moves_is_expected_in_the_dtype(exactness: str, dtype: torch.dtype) -> None:
    results = Results([torch.ones(2).double(), None], ([torch.ones(2).half(), None],))
    first, second = judging.expected(operator(exactness=exactness), results)
    assert first is not None
    assert (first.dtype, second) == (dtype, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("ulps", [2.0, 8.0])
def test_a_device_may_be_off_by_so_many_ulp_either_way(dtype: torch.dtype, ulps: float) -> None:
    """In complex numbers each part is off by as much as the whole."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact = torch.full((400,), 1.5, dtype=torch.float64).to(wide)
    found = perturbed(exact, exact.to(dtype), ulps)
    assert found is not None
    assert found.dtype == dtype
    off = found.to(wide) - exact
    parts = torch.view_as_real(off) if dtype.is_complex else off
    size = ulps * torch.finfo(dtype).eps
    assert {round(each / size, 3) for each in parts.abs().flatten().tolist()} == {1.0}
    assert 100 < int((parts.view(400, -1)[:, 0] > 0).sum()) < 300


def test_errors_of_a_reference_run_are_propagated() -> None:
    exact = torch.full((50,), 1.5, dtype=torch.float64)
    run = (exact + 0.125).float()
    plain, more = perturbed(exact, run, 0.0, 0.0), perturbed(exact, run, 0.0, 3.0)
    assert plain is not None
    assert more is not None
    assert plain.equal(exact.float())
    assert (more.double() - exact).abs().eq(0.375).all()


def test_what_cannot_be_off_stays() -> None:
    whole = torch.tensor([1, 2])
    assert perturbed(whole, whole) is whole
    assert perturbed(None, whole) is whole
    assert perturbed(whole.double(), None) is None
    endless = torch.tensor([math.inf, math.nan, 65504.0], dtype=torch.float64)
    found = perturbed(endless, endless.half(), 2.0)
    assert found is not None
    assert found[0].isinf()
    assert found[1].isnan()
    assert found[2].isfinite()
    empty = torch.empty(0, dtype=torch.float64)
    assert perturbed(empty, empty.float(), together=True) is not None


def test_in_float64_the_error_goes_with_the_largest_as_nothing_more_exact_is_known() -> None:
    exact = torch.tensor([1024.0, 1.0], dtype=torch.float64)
    found = perturbed(exact, exact, 2.0)
    assert found is not None
    assert (found - exact).abs().tolist() == [16 * 1024 * 2.0**-52] * 2


def results_of(*runs: T) -> Results:
    return Results([runs[0].double()], tuple([each] for each in runs))


def test_settings_of_a_judge() -> None:
    one, two = torch.ones(2), torch.full((2,), 3.0)
    results = {"a": results_of(one, two), "b": results_of(two)}
    moved = judging.settings(operator(exactness=MOVE), results)
    assert moved == {"standard": "binary", "reference_runs": {"a": [one], "b": [two]}}
    exact = judging.settings(operator(exactness=ARITHMETIC, terms=5), results)
    runs = list(exact["reference_runs"])
    assert (exact["accumulation"], len(runs)) == (5, 2)
    assert runs[1]["b"][0] is two, "the first one stands for those that it lacks"
    assert judging.settings(operator(exactness=ARITHMETIC, terms=5), results, terms=3)["accumulation"] == 3
    function = judging.settings(operator(exactness=FUNCTION), results)
    assert (function["accumulation"], len(list(function["reference_runs"]))) == (None, 3)
    assert judging.settings(operator(exactness=FUNCTION, terms=4), results)["accumulation"] == 4
    back = judging.settings(operator(exactness=ARITHMETIC), results, backward=True)
    assert (back["accumulation"], len(list(back["reference_runs"]))) == (None, 3)
    assert len(list(judging.settings(operator(exactness=MOVE), results, backward=True)["reference_runs"])) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(("off", "agrees"), [(0.0, True), (4.0, True), (8.0, False)])
def test_a_function_is_off_by_a_few_ulp_at_most(dtype: torch.dtype, off: float, agrees: bool) -> None:
    """Off by eight ulp at the upper edge of an octave, where the model of errors alone lets it pass."""
    exact = torch.linspace(1.5, 1.99, 200, dtype=torch.float64)
    result = Results([exact], ([exact.to(dtype)],))
    actual = exact.to(dtype)
    actual[7] += off * torch.finfo(dtype).eps
    settings = judging.settings(operator(exactness=FUNCTION), {"a": result})
    verdict = compare({"a": [actual]}, {"a": [exact]}, **settings)
    assert verdict.agrees
    final = judging.with_ulp_cap(verdict, backward=False)
    assert final.agrees is agrees
    assert agrees or "off by 8" in final.headline
    kept = final.in_full()
    assert [why for each in (kept, *kept.leaves) for why in recomputed.judged(each)] == [], "the log agrees with itself"


def test_each_tensor_of_a_list_is_judged_by_what_the_cpu_is_off_by_there() -> None:
    exact = torch.linspace(1.5, 1.99, 200, dtype=torch.float64)
    usual, actual = exact.float(), exact.float()
    usual[11] += 12 * torch.finfo(torch.float32).eps  # there the CPU is off by more, and the device by as much
    actual[7] += 8 * torch.finfo(torch.float32).eps
    result = Results([exact, exact], ([usual, exact.float()],))
    settings = judging.settings(operator(exactness=FUNCTION), {"a": result})
    verdict = compare({"a": [usual, actual]}, {"a": [exact, exact]}, **settings)
    final = judging.with_ulp_cap(verdict, backward=False)
    assert verdict.agrees
    assert not final.agrees
    assert [leaf.agrees for leaf in final.leaves] == [True, False]


def test_where_the_cpu_is_off_by_more_or_elements_are_few_the_judge_knows_better() -> None:
    verdict = Verdict(path="a", agrees=True, standard="error-model@1", headline="agrees")
    for metrics, agrees in (
        ({"ulp_max": 9.0, "reference_ulp_max": 2.5, "count": 64.0}, False),
        ({"ulp_max": 7.0, "reference_ulp_max": 2.5, "count": 64.0}, True),
        ({"ulp_max": 9.0, "reference_ulp_max": 2.7, "count": 64.0}, True),
        ({"ulp_max": 3.1, "reference_ulp_max": 0.5, "count": 64.0}, False),
        ({"ulp_max": 9.0, "reference_ulp_max": 2.5, "count": 63.0}, True),
        ({"max_rel": 9.0}, True),
    ):
        assert judging.with_ulp_cap(replace(verdict, metrics=metrics), backward=False).agrees is agrees
    of_gradient = {"reference_ulp_max": 4.0, "count": 64.0}
    for off, agrees in ((9.9, True), (10.1, False)):
        given = replace(verdict, metrics={"ulp_max": off, **of_gradient})
        assert judging.with_ulp_cap(given, backward=True).agrees is agrees


def test_signs_of_numbers() -> None:
    found = signs([torch.tensor([-1.0, -0.0, 0.0, -math.nan, -math.inf]), None, torch.tensor([-1])])
    assert [each.tolist() for each in found] == [[True, True, False, False, True]]


def test_a_digest_is_of_dtype_shape_and_every_bit() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert len(digest([x])) == 32
    same_ = [x.clone(), x.T.contiguous().T, torch.stack([x, x], -1)[..., 0]]
    assert {digest([each]) for each in same_} == {digest([x])}
    others = [x.view(3, 2), x.int(), x.double(), -x, x.T, torch.nextafter(x, torch.ones(()))]
    digests = [digest([x]), *(digest([each]) for each in others), digest([None]), digest([]), digest([x, x])]
    assert len(set(digests)) == len(digests)
    assert digest([torch.tensor([math.nan])]) == digest([-torch.tensor([math.nan])])
    z = torch.tensor([1 + 2j])
    assert digest([z.conj()]) == digest([torch.tensor([1 - 2j])])
    assert alike({"": [z.conj()]}, {"": [torch.tensor([1 - 2j])]}) is not None


@pytest.mark.parametrize(("reduce", "size"), [(torch.sum, 32.0), (torch.mean, 1 / 32)])
def test_sums_of_terms_that_cancel_are_as_large_as_a_random_walk(reduce: Any, size: float) -> None:
    """Of 1,024 ones of either sign: the root of their number, whatever is left of them."""
    numbers = torch.tensor([1.0, -1.0]).repeat(512)
    made, wanted = operator(reduce, terms=1024), [reduce(numbers).double()]
    assert sizes_of_sums(made, call(numbers), torch.float32, wanted) == pytest.approx([size])
    assert sizes_of_sums(made, call(numbers), torch.float32, [torch.tensor(99.0)]) == pytest.approx([99.0])


def test_a_number_that_is_broadcast_has_a_gradient_with_as_many_terms_as_results() -> None:
    """Of 1,024 normal gradients from above, times one: about the root of their number, whatever is left of them."""
    made = replace(operator(torch.mul), family="arithmetic")
    wanted: list[T | None] = [torch.ones(1024), torch.tensor(1e-6)]
    found = sizes_of_sums(made, call(normal(1024), normal()), torch.float32, wanted, backward=True)
    assert found[0] is None, "so many show how large they are"
    assert found[1] == pytest.approx(24, rel=0.3)
    assert sizes_of_sums(operator(torch.mul), call(normal(1024), normal()), torch.float32, wanted, backward=True) == []


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=2), 2 * 9),
        (lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 4), 2 * 16),
        (lambda x: torch.nn.functional.layer_norm(x, (16,)), 2 * 16),
        (lambda x: torch.nn.functional.max_pool2d(x, 2), 2),
        (lambda x: x.detach(), 1 << 62),
        (lambda x: x[:0], 1 << 62),
    ],
)
@pytest.mark.parametrize("special", [False, True])
def test_of_a_window_only_its_elements_count(function: Any, count: int, special: bool) -> None:
    sample = call(normal(1, 3, 16, 16))
    sample = sample.with_nonfinite(torch.float32) if special else sample.expanded()
    assert judging.reached(operator(function), sample, torch.float32) == count


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=2), 2 * 4),
        (lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1), 2 * 9),
        (lambda x: torch.nn.functional.max_pool2d(x, 2), 2),
        (lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"), 2 * 4),
        (lambda x: torch.nn.functional.layer_norm(x, (16,)), 1 << 62),
        (lambda x: x.detach(), 1 << 62),
    ],
)
def test_to_a_gradient_of_a_window_only_results_contribute_that_contain_the_element(function: Any, count: int) -> None:
    found = judging.reached(operator(function), call(normal(1, 3, 16, 16)), torch.float32, backward=True)
    assert min(found, 1 << 62) == count


def test_nothing_is_known_of_sums_of_no_numbers_or_of_magnitudes_that_the_operator_refuses() -> None:
    def only_below_zero(x: T) -> T:
        if bool((x >= 0).any()):
            raise ValueError("not below zero")
        return x.sum()

    empty, below = torch.ones(0), -torch.ones(3)
    assert sizes_of_sums(operator(torch.abs, terms=3), call(empty), torch.float32, [empty]) == []
    assert sizes_of_sums(operator(only_below_zero, terms=3), call(below), torch.float32, [below.sum()]) == []
