"""Goldens of operators: stored as computed, belonging to the catalogue, and admitted by two references that agree."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from pytest_ascend.errors import GoldenError
from pytest_ascend.golden import Golden, GoldenStore, Provenance
from pytest_ascend.operators import reference as stored
from pytest_ascend.operators import replay
from pytest_ascend.operators.operator import FAMILIES, FLOATS, Operator
from pytest_ascend.operators.reference import Results, computed, golden_id, golden_of, stored_results
from pytest_ascend.operators.samples import call, normal
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.makers import exactly, unary
from suites.ops.table import EXCEPTIONS, OPERATORS, RECORDED
from tools.ops.goldens import admit, goldens, make
from tools.ops.packing import named
from tools.ops.table import names

MADE = Provenance(how="a test", generator="ops@1", seed="", torch="", numpy="", machine="")


def store_of(root: Path, operator: Operator, meta: dict[str, object] | None = None) -> GoldenStore:
    described = {"inputs": {dtype: stored.inputs_hash(operator, dtype) for dtype in operator.dtypes}}
    store = GoldenStore(root)
    store.stage(Golden(golden_id(operator), make(operator), meta or described), MADE)
    store.flush()
    return store


@pytest.mark.parametrize("name", ["exp", "sort", "to", "add", "max.dim", "where"])
def test_what_is_read_is_what_was_computed(name: str, tmp_path: Path) -> None:
    operator = OPERATORS[name]
    store = store_of(tmp_path, operator)
    for dtype in ("float32", "bfloat16", "int64"):
        for sample in stored.stored_samples(operator, dtype) if dtype in operator.dtypes else ():
            expected = computed(operator, sample, dtype)
            found = stored_results(store, operator, dtype, "forward", sample)
            for ours, theirs in zip(found.reference_runs, expected.reference_runs, strict=True):
                assert all(same_bits(*pair) for pair in zip(ours, theirs, strict=True))
            assert all(same_numbers(*pair) for pair in zip(found.expected, expected.expected, strict=True))


def same_bits(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    assert one is not None
    assert other is not None
    return one.dtype == other.dtype and same_numbers(one, other)


def same_numbers(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    assert one is not None
    assert other is not None
    return torch.equal(one.double().nan_to_num(7.5), other.double().nan_to_num(7.5))


def test_a_gradient_that_does_not_exist_is_none() -> None:
    second_unused = Operator("first", lambda x, y: x * 2 + 0 * y.detach(), exactly(call(normal(3), normal(3))))
    sample = second_unused.samples("float32")[0]
    results = computed(second_unused, sample, "float32", backward=True)
    assert results.expected[1] is None
    assert [name for name, _ in named("float32", "backward", sample, results)] == ["float32/backward/3, 3/0"]


def test_an_operator_that_is_given_strides_has_reference_runs_in_one_layout() -> None:
    strided = Operator("as_strided_copy", torch.as_strided_copy, exactly(call(normal(5, 5), (2, 2), (1, 2))))
    results = computed(strided, strided.samples("float32")[0], "float32", backward=True)
    (expected,) = results.expected
    assert expected is not None
    assert all(each is not None and each.equal(expected.float()) for (each,) in results.reference_runs)


def test_half_a_result_is_refused() -> None:
    sample = call(normal(3))
    with pytest.raises(ValueError, match="only some of the results"):
        list(named("float32", "forward", sample, Results([torch.zeros(3).double()], ([None], [None], [None]))))


def test_a_golden_of_other_samples_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    operator = Operator("relu", torch.relu, unary())
    store = store_of(tmp_path, operator, {"inputs": dict.fromkeys(FLOATS, "others")})
    with pytest.raises(GoldenError, match="other samples") as caught:
        golden_of(store, operator)
    assert caught.value.path == str(tmp_path / "ops" / "relu.safetensors")


def test_a_wrong_result_is_not_admitted() -> None:
    operator = OPERATORS["exp"]
    sample = operator.samples("float32")[0]
    right = computed(operator, sample, "float32")
    admit(operator, sample, "float32", right)
    wrong = Results([each if each is None else each * (1 + 1e-9) for each in right.expected], right.reference_runs)
    with pytest.raises(AssertionError, match="exp, float32: 2x3x5x7"):
        admit(operator, sample, "float32", wrong)


def test_each_operator_offers_one_golden_that_says_who_admitted_it() -> None:
    offered = {recipe.id: recipe for recipe in goldens()}
    wanted = {replay.PREFIX + name for name in names()}
    assert offered.keys() == wanted | {golden_id(operator) for operator in OPERATORS.values()}
    made = offered["ops/exp"].make()
    assert isinstance(made, Golden)
    assert made.meta["admitted_by"] == "torch float64; numpy float64"


def test_the_bundled_goldens_belong_to_the_catalogue() -> None:
    store = GoldenStore(folder("baselines") / "golden")
    for operator in OPERATORS.values():
        golden_of(store, operator)


def test_every_family_is_in_the_table_of_families() -> None:
    named = {each.family for each in OPERATORS.values()} | {each.family for each in RECORDED.values()}
    assert named == FAMILIES.keys()


def test_the_catalogue_is_broad() -> None:
    assert len(OPERATORS) >= 200
    assert len({operator.family for operator in OPERATORS.values()}) >= 10
    assert {case.dtype for case in CASES} >= {"float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool"}


def test_what_is_special_is_special_about_operators_that_are_tested() -> None:
    assert EXCEPTIONS.keys() <= OPERATORS.keys() | RECORDED.keys()
    of_recorded = {name for name, each in EXCEPTIONS.items() if each.no_calls or each.at_smoke or each.not_repeated}
    assert of_recorded <= RECORDED.keys()
    known = {field.name for field in fields(Operator)}
    assert all(each.settings.keys() <= known for each in EXCEPTIONS.values())
