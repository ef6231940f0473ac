"""Judges of operators: a correct device that is not the CPU is accused of nothing, a wrong one is."""

from pathlib import Path

import pytest
import torch

from pytest_ascend import precision
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.judging import alike, expected, perturbed, settings
from pytest_ascend.operators.operator import FLOATS, FUNCTION, MOVE, chosen
from pytest_ascend.operators.reference import Results, Tensors, stored_results
from pytest_ascend.system.bundled import folder
from suites.ops.table import OPERATORS

FUNCTIONS = sorted(name for name, each in OPERATORS.items() if each.exactness == FUNCTION and each.terms == 1)


@pytest.fixture(scope="module")
def store() -> GoldenStore:
    return GoldenStore(Path(folder("baselines")) / "golden")


def agrees(name: str, results: dict[str, Results], actual: dict[str, list[torch.Tensor | None]]) -> precision.Verdict:
    operator = OPERATORS[name]
    wanted = {sample: expected(operator, each) for sample, each in results.items()}
    return precision.compare(actual, wanted, name=name, **settings(operator, results))


def moved(results: Results, ulps: float, generator: torch.Generator) -> list[torch.Tensor | None]:
    """Move every number that is finite by up to so many ulp of its dtype."""
    return [
        reference_runs
        if value is None or reference_runs is None or not reference_runs.is_floating_point()
        else _moved(value, reference_runs, ulps, generator)
        for value, reference_runs in zip(results.expected, results.reference_runs[0], strict=True)
    ]


def _moved(value: torch.Tensor, reference_runs: torch.Tensor, ulps: float, generator: torch.Generator) -> torch.Tensor:
    info = torch.finfo(reference_runs.dtype)
    exponent = torch.frexp(value.abs().clamp(info.smallest_normal, info.max)).exponent.double() - 1
    share = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    other = (value + share * ulps * torch.exp2(exponent) * info.eps).to(reference_runs.dtype)
    return torch.where(reference_runs.isfinite() & other.isfinite() & (reference_runs != 0), other, reference_runs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_within_two_ulp_are_accused_of_nothing(dtype: str, store: GoldenStore) -> None:
    accused = {}
    generator = torch.Generator().manual_seed(0)
    for name in FUNCTIONS:
        if dtype in OPERATORS[name].dtypes:
            samples = chosen(OPERATORS[name], "forward", dtype)
            results = {each.name: stored_results(store, OPERATORS[name], dtype, "forward", each) for each in samples}
            verdict = agrees(name, results, {key: moved(each, 2, generator) for key, each in results.items()})
            if not verdict.agrees:
                accused[name] = verdict.headline
    assert accused == {}


@pytest.mark.parametrize("name", ["exp", "tanh", "div", "sqrt", "softplus"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_wrong_by_eight_ulp_are_caught(name: str, dtype: str, store: GoldenStore) -> None:
    samples = chosen(OPERATORS[name], "forward", dtype)
    results = {each.name: stored_results(store, OPERATORS[name], dtype, "forward", each) for each in samples}
    generator = torch.Generator().manual_seed(0)
    assert not agrees(name, results, {key: moved(each, 8, generator) for key, each in results.items()}).agrees


def test_where_each_result_is_a_sum_of_all_its_error_goes_with_the_largest() -> None:
    wanted = torch.tensor([1000.0, 0.0], dtype=torch.float64)
    alone, together = (perturbed(wanted, wanted.float(), together=each) for each in (False, True))
    assert alone is not None
    assert together is not None
    ulp = torch.finfo(torch.float32).eps * 512
    assert alone[1].abs() < ulp / 1000
    assert ulp < together[1].abs() < 4 * ulp


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_bit_of_what_is_only_moved_is_caught(dtype: str, store: GoldenStore) -> None:
    operator = OPERATORS["cat"]
    assert operator.exactness == MOVE
    samples = chosen(operator, "forward", dtype)
    results = {each.name: stored_results(store, operator, dtype, "forward", each) for each in samples}
    actual = {
        key: [each.clone() for each in found.reference_runs[0] if each is not None] for key, found in results.items()
    }
    assert agrees("cat", results, dict(actual)).agrees
    last = actual[samples[-1].name][0].view(-1)
    last[-1] = torch.nextafter(last[-1].float(), torch.tensor(9.0)).to(last.dtype) + torch.finfo(last.dtype).eps * 4
    assert not agrees("cat", results, dict(actual)).agrees


ONE, TWO, NAN = torch.ones(2), torch.full((2,), 2.0), torch.full((2,), torch.nan)


@pytest.mark.parametrize(
    ("actual", "wanted", "is_alike"),
    [
        ({"a": [ONE], "b": [TWO, None]}, {"b": [TWO, None], "a": [ONE]}, True),
        ({"a": [ONE], "b": [TWO]}, {"a": [TWO], "b": [ONE]}, False),
        ({"a": [ONE, TWO], "b": [ONE]}, {"a": [ONE], "b": [TWO, ONE]}, False),
        ({"a": [ONE]}, {"a": [ONE.reshape(2, 1)]}, False),
        ({"a": [ONE]}, {"a": [ONE.double()]}, False),
        ({"a": [ONE]}, {"a": [None]}, False),
        ({"a": [ONE]}, {}, False),
        ({"a": [torch.zeros(2)]}, {"a": [-torch.zeros(2)]}, False),
        ({"a": [NAN]}, {"a": [-NAN]}, True),
        ({"a": [NAN * 1j]}, {"a": [NAN * 1j]}, True),
        ({"a": [NAN]}, {"a": [ONE]}, False),
    ],
)
def test_results_are_alike_in_names_forms_and_bits(
    actual: dict[str, Tensors], wanted: dict[str, Tensors], *, is_alike: bool
) -> None:
    assert (alike(actual, wanted) is not None) == is_alike


@pytest.mark.parametrize("changed", range(5))
def test_one_bit_in_one_of_several_results_is_another_result(changed: int) -> None:
    wanted = [ONE, TWO.half(), TWO.long(), ONE.bool(), ONE * 1j]
    actual = [each.clone() for each in wanted]
    assert alike({"a": [*actual[:2]], "b": [*actual[2:]]}, {"a": [*wanted[:2]], "b": [*wanted[2:]]})
    actual[changed].view(torch.uint8)[-1] ^= 1
    assert alike({"a": [*actual[:2]], "b": [*actual[2:]]}, {"a": [*wanted[:2]], "b": [*wanted[2:]]}) is None


def test_what_is_alike_is_joined_in_one_order() -> None:
    found = alike({"a": [ONE, TWO.long()], "b": [TWO]}, {"b": [TWO], "a": [ONE, TWO.long()]})
    assert found is not None
    assert [{dtype: each.tolist() for dtype, each in side.items()} for side in found] == [
        {"torch.float32": [2.0, 2.0, 1.0, 1.0], "torch.int64": [2, 2]}
    ] * 2
