"""Generated calls: the same everywhere, they reach what the table does not, and what is right passes."""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators import Operator, call, callables, judging, sweep
from pytest_ascend.operators.callables import resolve
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.generator import (
    EXPANDED,
    IN_PLACE_EVERY,
    LAYOUTS,
    SIZES,
    USUAL,
    generate,
    numbers_of,
    templates_of,
)
from pytest_ascend.operators.judging import digest, is_as_near, overflows
from pytest_ascend.operators.reference import Results, stored_samples
from pytest_ascend.operators.replay import recording
from pytest_ascend.operators.samples import TEMPLATE, Sample, Values, Variant, uniform
from pytest_ascend.operators.sweep import CALLS, SPARE, SweepReference
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target
from pytest_ascend.precision import Verdict
from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.records.case import SWEEP_GENERATION, SWEEP_SEED, Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from pytest_ascend.run.inputs import Chance
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.table import OPERATORS, RARE, RECORDED, SHARED, calls_of, swept

T = torch.Tensor
Function = Callable[..., Any]


def target(name: str, dtype: str, function: Function | None = None, calls: range = CALLS["sweep"]) -> Target:
    operator = OPERATORS[name]
    case = Case(suite="ops", subject=name, property="sweep", dtype=dtype)
    made = Target(case, operator, SweepReference.of(operator, dtype, calls), torch.device("cpu"))
    if function:
        execute, both = made.execute, made.both_ways
        run = lambda call: [function(*made.arguments(call)[0], **made.arguments(call)[1])]  # noqa: E731
        made.execute = lambda call: execute(call) if call.direction else run(call)
        made.both_ways = lambda call: (run(call), both(call)[1])
    return made


def judged(made: Target) -> None:
    check(made, PrecisionCompare(lambda _: None))


def test_what_becomes_of_a_generated_call_is_a_short_walk() -> None:
    """From its generation to its verdict, a reader comes by few functions in few files."""
    walked: set[tuple[str, int]] = set()

    def step(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "pytest_ascend" in frame.f_code.co_filename:
            walked.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(step)
    try:
        judged(target("exp", "float32", calls=range(3)))
    finally:
        sys.setprofile(None)
    assert len(walked) <= 300
    assert len({file for file, _ in walked}) <= 50


@pytest.mark.parametrize("name", ["add", "sum", "softmax", "matmul", "sort", "cat", "layer_norm"])
def test_what_is_right_passes(name: str) -> None:
    for dtype in OPERATORS[name].dtypes[:4:3]:
        judged(target(name, dtype))


def test_a_case_in_which_no_result_has_the_bits_of_the_cpu_keeps_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_alike", lambda _: None)
    noted: list[Verdict] = []
    check(target("sum", "float32", calls=range(3)), PrecisionCompare(noted.append))
    assert noted


def _sorted_otherwise(x: T, dim: int = -1, *, stable: bool = False, **named: Any) -> tuple[T, T]:
    """Sort with equal elements in the opposite order, as the sort of a GPU may unless it has to be stable."""
    if stable or not x.dim():
        return torch.sort(x, dim=dim, stable=stable, **named)
    values, places = x.flip(dim).sort(dim=dim, stable=True, **named)
    return values, x.shape[dim] - 1 - places


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_equal_elements_may_come_in_any_order(dtype: str) -> None:
    made = target("sort", dtype)
    made.execute = lambda call: list(_sorted_otherwise(*made.arguments(call)[0], **made.arguments(call)[1]))
    made.both_ways = lambda call: (made.execute(call), Target.both_ways(made, call)[1])
    judged(made)
    made.execute = lambda call: [each.flip(-1) if each.dim() else each for each in Target.execute(made, call)]
    with pytest.raises(Disagreement, match="sort"):
        judged(made)


@pytest.mark.parametrize("name", ["index_add", "scatter_add"])
def test_terms_of_16_bits_may_be_added_in_any_order(name: str) -> None:
    def reversed_terms(x: T, dim: int, index: T, source: T, **named: Any) -> T:
        turned = index.flip(dim if index.dim() == source.dim() else 0) if index.dim() else index
        return OPERATORS[name].function(x, dim, turned, source.flip(dim) if source.dim() else source, **named)

    judged(target(name, "bfloat16", reversed_terms))


def test_calls_that_are_not_legal_are_replaced_by_spare_ones() -> None:
    asked: list[int] = []

    def picky(x: T) -> T:
        asked.append(len(x))
        if len(x) % 2:
            raise RuntimeError("rows in pairs only")
        return x.abs()

    operator = Operator("picky", picky, lambda _: [call(uniform(3, 5)), call(uniform(4))], ("float32",))
    case = Case(suite="user", subject="picky", property="sweep", dtype="float32")
    made = Target(case, operator, SweepReference.of(operator, "float32", range(24)), torch.device("cpu"))
    judged(made)
    assert 24 - SPARE < made.varied["way forward"] <= 24
    assert any(each not in made.samples for each in (one.sample for one in made.reference.spare()))
    without = Target(case, operator, replace(made.reference, seed=None), torch.device("cpu"))
    judged(without)
    assert without.varied["way forward"] < made.varied["way forward"]


def test_a_seed_gives_the_same_calls_and_another_one_others() -> None:
    def made(seed: int) -> list[tuple[str, str]]:
        return [
            (each.sample.name.partition(": ")[2], each.layout)
            for each in generate(OPERATORS["add"], "float32", 24, seed)
        ]

    assert made(1) == made(1)
    assert made(1) != made(2)
    first = next(generate(OPERATORS["add"], "float32", 1, 1)).sample
    assert len({digest(first.arguments("add", torch.float32)[0]) for _ in range(2)}) == 1


#: The digest of calls of seed 7, by the generation that the manifest counts.
CALLS_OF_GENERATION = {15: "64fc1e16b6364c90"}


def test_calls_of_a_seed_are_those_of_their_generation() -> None:
    """A verifier makes the calls of a run anew from its seed: where they change, the generation does."""
    found, store = hashlib.sha256(), GoldenStore(folder("baselines") / "golden")
    names = ("add", "exp", "sum", "matmul", "sort", "cat", "conv2d", "layer_norm", "where", "kl_div")
    for operator in (
        *(OPERATORS[name] for name in names),
        swept("pdist", "float32", store),
        swept("diff", "int32", store),
    ):
        for dtype in sorted({"float32", "bfloat16", "int32"} & {*operator.dtypes}):
            for each in generate(operator, dtype, 30, 7):
                sources = [value if isinstance(value, Values) else value.label for value in each.sample.values()]
                asked = (each.sample.name, sources, each.layout, each.axes, each.number, each.template)
                found.update(repr(asked).encode())
    assert found.hexdigest()[:16] == CALLS_OF_GENERATION[SWEEP_GENERATION]


#: Every operator with sizes, numbers and layouts that are free; what is left out takes one size, or no tensor.
COMMON = {"edge", "one", "large", "empty"}


@pytest.mark.parametrize("family", sorted({each.family for each in OPERATORS.values()} - {"creation"}))
def test_common_axes_are_asked_at_standard_and_all_that_apply_at_full(family: str) -> None:
    chance = random.Random(f"axes of {family}")  # noqa: S311  (no secret)
    mine = [each for each in OPERATORS.values() if each.family == family and each.sweep]
    for operator in mine:
        calls = SweepReference.of(operator, operator.dtypes[0], CALLS["sweep"]).calls
        asked = {axis for each in calls for axis in each.axes}
        assert asked >= COMMON, operator.name
        assert "special in the tail" in asked or not operator.nonfinite or "float32" not in operator.dtypes, (
            operator.name
        )
        for each in calls:
            sizes = {size for source in each.sample.values() for size in source.shape}
            assert "empty" not in each.axes or 0 in sizes, each.sample.name
            assert "one" not in each.axes or 1 in sizes, each.sample.name
    for operator in chance.sample(mine, 2):
        for dtype in chance.sample(operator.dtypes, 1):
            asked = {
                axis for each in SweepReference.of(operator, dtype, CALLS["sweep-more"]).calls for axis in each.axes
            }
            assert asked >= {*SIZES, *filter(None, LAYOUTS), "contiguous"}, operator.name
            applies = {how for _, each in templates_of(operator, dtype) for how in numbers_of(operator, each, dtype)}
            assert asked >= applies, operator.name


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_results_of_an_operator_that_is_given_strides_are_not_accepted_for_another_layout(dtype: str) -> None:
    operator = swept("as_strided_copy", dtype, GoldenStore(folder("baselines") / "golden"))
    case, accepted = Case(suite="ops", subject="as_strided_copy", property="sweep", dtype=dtype), list[str]()
    made = Target(case, operator, SweepReference.of(operator, dtype, CALLS["sweep"]), torch.device("cpu"))
    check(made, PrecisionCompare(lambda _: None, canaries=Canaries(case.id, accepted)))
    assert not accepted


@pytest.mark.parametrize("name", ["pdist", "cdist", "avg_pool1d", "masked.softmax", "column_stack", "diff"])
def test_common_axes_are_asked_of_recorded_operators_too(name: str) -> None:
    operator = swept(name, RECORDED[name].first_dtype, GoldenStore(folder("baselines") / "golden"))
    calls = SweepReference.of(operator, RECORDED[name].first_dtype, CALLS["sweep"]).calls
    asked = {axis for each in calls for axis in each.axes}
    assert asked >= COMMON
    assert max(math.prod(source.shape) for each in calls for source in each.sample.values()) > USUAL // 2


def test_some_calls_follow_the_same_call_in_the_least_precise_other_dtype() -> None:
    called: list[torch.dtype] = []

    def recorded(x: T) -> T:
        called.append(x.dtype)
        return x.abs()

    usual = [call(uniform(3, 5)), call(uniform(17))]
    operator = Operator(
        "recorded", recorded, lambda _: usual, ("float32", "float16", "bfloat16", "int64"), refuses=False
    )
    case = Case(suite="user", subject="recorded", property="sweep", dtype="float32")
    judged(Target(case, operator, SweepReference.of(operator, "float32", range(18)), torch.device("cpu")))
    assert {*called} == {torch.float32, torch.float64, torch.bfloat16}
    assert called.count(torch.bfloat16) >= 4, "twice, on the CPU and on the device"


def test_a_gradient_that_is_only_moved_keeps_its_nan() -> None:
    made = target("roll", "float32", calls=CALLS["sweep-more"])
    right = made.both_ways
    made.both_ways = lambda call: (
        right(call)[0],
        [each if each is None else each.nan_to_num() for each in right(call)[1]],
    )
    with pytest.raises(Disagreement):
        judged(made)


@pytest.mark.parametrize("how", ["special at the head", "far", "sorted"])
def test_an_expanded_tensor_may_have_chosen_numbers(how: str) -> None:
    found = Variant(values=uniform(4, 5), how=how).expanded().make("key", torch.float32)
    assert (found.shape, found.stride(0)) == ((4, 5), 0)
    once = Variant(values=uniform(1, 5), how=how).make("key", torch.float32)
    assert bool(found[0].isnan()[0]) == (how == "special at the head")
    assert (found[0].nan_to_num(0).abs() > 1).any() == (once.nan_to_num(0).abs() > 1).any()


def test_a_kernel_that_takes_the_strides_of_the_first_tensor_for_all_is_noticed() -> None:
    """Where all tensors have the same layout, it is right."""

    def wrong(first: T, other: Any, **kwargs: Any) -> T:
        if isinstance(other, T) and other.shape == first.shape and other.is_contiguous() and not first.is_contiguous():
            span = 1 + sum((size - 1) * step for size, step in zip(first.shape, first.stride(), strict=True))
            if span <= other.numel():
                other = other.as_strided(first.shape, first.stride())
        return torch.mul(first, other, **kwargs)

    with pytest.raises(Disagreement):
        judged(target("mul", "float32", wrong))


def test_results_kept_for_strides_that_are_not_the_usual_ones_are_noticed() -> None:
    known: dict[Any, T] = {}

    def wrong(values: T, *args: Any, **kwargs: Any) -> T:
        key = (values.shape, len(known) if values.is_contiguous() else values.stride(), args, str(kwargs))
        return known.setdefault(key, torch.sum(values, *args, **kwargs))

    with pytest.raises(Disagreement):
        judged(target("sum", "float32", wrong))


@pytest.mark.parametrize("seed", range(20))
def test_one_integer_argument_is_another_one(seed: int) -> None:
    given = call(uniform(3, 4), 2, (3, 4), True, [1, 0], None, stride=(2, 5), dim=-1, other=0.5)
    made = given.with_another_integer(Chance(str(seed)))
    before, after = ([*each.args, *each.kwargs.values()] for each in (given, made))
    (pair,) = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert type(pair[0]) is type(pair[1])
    olds, news = ([each] if isinstance(each, int) else each for each in pair)
    assert sum(old != new for old, new in zip(olds, news, strict=True)) == 1
    assert all(abs(old - new) <= 2 and (old < 0) == (new < 0) for old, new in zip(olds, news, strict=True))
    assert pair[0] not in ((3, 4), True), "the sizes of the tensor, and what is no number"


def test_a_call_without_integers_stays_as_it_is() -> None:
    given = call(uniform(3, 4), (3, 4), True, 0.5)
    assert given.with_another_integer(Chance("any")) is given


def test_of_what_is_changed_in_place_the_other_tensor_may_be_expanded() -> None:
    calls = [each for each in generate(OPERATORS["sub"], "float32", 240) if each.layout == EXPANDED]
    changed = [each.sample.arguments("sub", torch.float32)[0] for each in calls if each.number % IN_PLACE_EVERY == 0]
    pairs = [args for args in changed if len(args) == 2 and isinstance(args[1], T) and all(x.numel() > 1 for x in args)]
    assert pairs
    assert not any(0 in first.stride() for first, _ in pairs)
    assert any(0 in other.stride() for _, other in pairs)


def test_one_of_several_tensors_may_have_no_dimensions() -> None:
    shapes = [[each.shape for each in made.sample.values()] for made in generate(OPERATORS["add"], "float32", 60)]
    assert any(() in each and {*each} != {()} for each in shapes)


@pytest.mark.parametrize(("name", "dtype"), [("softmax", "float32"), ("cummin", "int32")])
def test_the_only_tensor_may_have_no_dimensions(name: str, dtype: str) -> None:
    operator = swept(name, dtype, GoldenStore(folder("baselines") / "golden"))
    shapes = [each.shape for made in generate(operator, dtype, 60) for each in made.sample.values()]
    assert () in shapes


def test_lists_of_tensors_are_longer_and_shorter_all_in_the_same_way() -> None:
    operator = swept("_foreach_addcdiv", "float32", GoldenStore(folder("baselines") / "golden"))
    calls = [made.sample for made in generate(operator, "float32", 60)]
    lists = [
        [len(each) for each in (*sample.args, *sample.kwargs.values()) if isinstance(each, list)] for sample in calls
    ]
    assert {1, 9, 24} < {count for counts in lists for count in counts}
    assert all(len({*counts}) == 1 and len(counts) >= 3 for counts in lists)
    long = next(sample for sample in calls if len(sample.args[0]) == 24)
    made = [each for each in long.arguments("_foreach_addcdiv", torch.float32)[0][0] if each.numel() > 4]
    assert any(not one.equal(made[0]) for one in made[1:] if one.shape == made[0].shape), "numbers of their own"


def test_of_a_list_that_agrees_the_log_has_the_whole_alone() -> None:
    leaf = Verdict(path="a[0]", agrees=True, standard="error-model@1", headline="agrees")
    for count, agrees, left in ((4, True, 4), (5, True, 1), (5, False, 5)):
        noted: list[Verdict] = []
        judging.note_shortly(noted.append, replace(leaf, agrees=agrees, leaves=(leaf,) * count))
        assert len(noted[0].leaves) == left
        assert noted[0].agrees is agrees


def test_what_is_asked_at_standard_is_not_asked_again_at_full() -> None:
    first, more = (
        SweepReference.of(OPERATORS["exp"], "float32", CALLS[each]).calls for each in ("sweep", "sweep-more")
    )
    assert [each.number for each in (*first, *more)] == [*range(216)]
    assert [each.sample.name for each in more] == [
        each.sample.name for each in generate(OPERATORS["exp"], "float32", 216, SWEEP_SEED, start=24)
    ]


def test_results_that_are_not_reduced_take_every_second_turn() -> None:
    store = GoldenStore(folder("baselines") / "golden")
    for name in ("kl_div", "mse_loss", "huber_loss"):
        operator = swept(name, "float32", store)
        asked = [each.sample.kwargs.get("reduction") for each in generate(operator, "float32", 240)]
        assert 0.35 < asked.count("none") / len(asked) < 0.75, name
        assert len({*asked}) >= 3, name


def test_losses_of_two_equal_tensors_have_any_number_of_dimensions() -> None:
    dims = {
        name: {len(each.sample.values()[0].shape) for each in generate(OPERATORS[name], "float32", 120)}
        for name in ("mse_loss", "kl_div", "nll_loss")
    }
    assert dims == {"mse_loss": {1, 2, 3, 5}, "kl_div": {1, 2, 3, 5}, "nll_loss": {2, 4}}


def test_calls_that_are_templates_only_are_no_frozen_ones() -> None:
    operator = OPERATORS["index_add"]
    templates = [each for each in operator.samples("float32") if each.group == TEMPLATE]
    assert templates
    names = {each.name for each in templates}
    assert not names & {each.name for each in stored_samples(operator, "float32")}
    assert {len(each.sample.values()[0].shape) for each in generate(operator, "float32", 60)} == {1, 2, 3}


def test_gradients_of_few_elements_are_not_asked_where_they_follow_from_the_rounded_result() -> None:
    found = {True: set[int](), False: set[int]()}
    made = target("sigmoid", "float16")
    for each in made.reference.calls:
        (values,) = each.sample.values()
        found["backward" in sweep._directions(made, each)].add(math.prod(values.shape))
    assert min(found[True]) > 64
    assert min(found[False]) <= 1


def test_operators_of_rare_kernels_have_more_calls_and_those_of_shared_ones_fewer() -> None:
    def asked(case_id: str, level: str = "full") -> list[int]:
        return [number for part in calls_of(case_of(case_id), level) for number in part]

    def is_every(subject: str, dtype: str, count: int) -> bool:
        early, late = (asked(f"ops/{subject}/{property_}/{dtype}") for property_ in ("sweep", "sweep-more"))
        return sorted(early + late) == [*range(count)]

    assert asked("ops/add/sweep/int64") == [*range(3), *range(6, 12), *range(18, 24)]
    assert {*asked("ops/add/sweep/float32")} == {*asked("ops/add/sweep/int64"), 12, 13, 14}  # as at smoke
    assert len(asked("ops/pad/sweep/float32")) == 60
    first, second = (asked(f"ops/pad/sweep/{dtype}") for dtype in ("int32", "int64"))
    assert {*first} | {*second} == {*range(60)}
    assert {*first} & {*second} == {21, 22, 23}  # as at smoke
    assert len(asked("ops/squeeze/sweep/float32")) == 12
    assert is_every("add", "float32", 216)
    assert is_every("pad", "float32", 240)
    assert is_every("squeeze", "float32", 108)


def case_of(case_id: str) -> Case:
    return next(each for each in CASES if each.id == case_id)


@pytest.mark.parametrize("name", ["add", "interpolate", "squeeze"])
def test_calls_of_level_smoke_are_made_at_level_standard_too(name: str) -> None:
    for dtype in ("float32", "bfloat16"):
        case = case_of(f"ops/{name}/sweep/{dtype}")
        at_smoke, at_standard = ({n for part in calls_of(case, level) for n in part} for level in ("smoke", "standard"))
        assert at_smoke & {21, 22, 23}
        assert case.level == "standard" or at_smoke <= at_standard


def test_a_call_with_rows_has_many_long_ones_and_a_rest() -> None:
    for name in ("add", "exp", "softmax", "matmul"):
        calls = [each for each in generate(OPERATORS[name], "float32", 24, 1) if each.axes[0] == "rows"]
        shapes = [each.sample.values()[0].shape for each in calls]
        assert all(max(math.prod(shape), shape[-1]) > 4096 and shape[-1] % 8 for shape in shapes), name


def test_operators_with_more_or_fewer_calls_are_there() -> None:
    assert {*RARE, *SHARED} <= {case.subject for case in CASES if case.property == "sweep"}
    assert not RARE & SHARED


@pytest.mark.parametrize(
    ("name", "dtype", "has"),
    [
        ("pad", "float32", lambda each: each.args[2] == "replicate" and len(each.args[1]) == 6),
        ("grid_sampler_3d", "float16", lambda each: each.values()[1].shape[-1] == 3),
        ("_foreach_norm", "bfloat16", lambda each: "dtype" not in each.kwargs),
        ("_foreach_addcmul", "float32", lambda each: each.kwargs.get("value") == 2),
        ("interpolate", "float16", lambda each: each.kwargs["mode"] == "trilinear"),
        ("embedding_bag", "float32", lambda each: each.kwargs.get("max_norm")),
    ],
)
def test_recorded_operators_have_templates_for_kernels_that_no_recorded_call_has(
    name: str, dtype: str, has: Callable[[Sample], Any]
) -> None:
    operator = swept(name, dtype, GoldenStore(folder("baselines") / "golden"))
    assert any(has(each.sample) for each in generate(operator, dtype, 42))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ours", "cpus", "exact", "is_near"),
    [
        ([1.0, 2.0], [1.0, 2.5], [1.0, 2.1], True),
        ([1.0, 2.5], [1.0, 2.0], [1.0, 2.1], False),
        ([1.5, 2.0], [0.5, 2.0], [1.0, 2.0], True),  # as far, on the other side
        ([NAN, INF], [NAN, INF], [NAN, INF], True),
        ([NAN, 1.0], [2.0, 1.0], [2.0, 1.0], False),
        ([INF, 1.0], [2.0, 1.0], [INF, 1.0], False),  # infinities have no distance
        ([-0.0, 1.0], [0.0, 1.0], [0.0, 1.0], False),
        ([0.0, 1.0], [0.5, 1.0], [0.0, 1.0], True),
    ],
)
def test_no_error_model_is_asked_where_each_number_is_as_near_as_that_of_the_cpu(
    ours: list[float], cpus: list[float], exact: list[float], is_near: bool
) -> None:
    usual = torch.tensor(cpus)
    result = Results([torch.tensor(exact, dtype=torch.float64)], ([usual],))
    assert is_as_near([torch.tensor(ours)], result) is is_near
    assert not is_as_near([torch.tensor(ours).half()], result)
    assert not is_as_near([torch.tensor([*ours, 1.0])], result)
    assert not is_as_near([None], result)


def test_rows_that_are_scaled_in_place_leave_the_input_as_it_was() -> None:
    weight, before = torch.full((4, 3), 5.0), torch.full((4, 3), 5.0)
    found = callables.embedding_bag(weight, torch.tensor([[0, 1]]), max_norm=1.0, mode="sum")
    assert torch.linalg.vector_norm(found) < 2.01
    assert weight.equal(before)


def test_concatenated_tensors_stay_as_many_as_they_are() -> None:
    counts = {len(made.sample.args[0]) for made in generate(OPERATORS["cat"], "float32", 24)}
    assert counts <= {len(each.args[0]) for each in OPERATORS["cat"].samples("float32")}
    assert len(counts) > 2


def test_elements_in_between_are_asked_for_by_whole_factors_only() -> None:
    store = GoldenStore(folder("baselines") / "golden")
    for name in ("upsample_nearest", "upsample_bilinear"):
        recorded = recording(store, RECORDED[name].golden_id).samples("forward", "float32")
        assert any(each.kwargs.get("scale_factor") == 1.7 for each in recorded)
        assert all(each.kwargs.get("size") for each in swept(name, "float32", store).samples("float32"))


@pytest.mark.parametrize("count", [700, 8_192])
def test_a_call_is_not_asked_that_takes_much_memory_on_its_way(count: int) -> None:
    def spread(x: T) -> T:
        return (x.unsqueeze(-1) - x).abs().amax()

    operator = Operator("spread", spread, lambda make: [call(make.normal(count))], definition=spread, sweep=True)
    sample = operator.samples("float32")[0]
    given = sample.arguments("spread", torch.float32)
    found = SweepReference.of(operator, "float32", defined=True).usual(Call(sample), given)
    assert (found is None) == (count > 700)


def test_half_precision_that_the_cpu_has_no_kernel_for_is_that_of_float32_rounded() -> None:
    operator = Operator("log_ndtr", torch.special.log_ndtr, lambda make: [call(make.normal(70))])
    sample = operator.samples("bfloat16")[0]
    ((x,), _) = given = sample.arguments("log_ndtr", torch.bfloat16)
    reference = SweepReference.of(operator, "bfloat16")
    wanted = torch.special.log_ndtr(x.float()).bfloat16()
    assert digest(reference.usual(Call(sample), given)) == digest([wanted])
    assert [digest(each) for each in reference.expect(sample, "bfloat16").reference_runs] == [digest([wanted])] * 3
    (gradient,) = reference.usual(Call(sample, direction=BACKWARD), given)
    assert gradient.dtype is torch.bfloat16


def test_an_operator_that_torch_does_not_have_is_not_a_wrong_one() -> None:
    operator = Operator(
        "absent", resolve("torch.nothing_of_this_name"), lambda make: [call(make.normal(7))], sweep=True
    )
    case = Case(suite="user", subject="absent", property="sweep", dtype="float32")
    with pytest.raises(NotImplementedError, match="is not implemented in torch"):
        judged(Target(case, operator, SweepReference.of(operator, "float32", range(6)), torch.device("cpu")))


def test_an_operator_that_torch_has_removed_is_not_a_wrong_one_either() -> None:
    def removed(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("This function was deprecated since version 1.9 and is now removed.")

    operator = Operator("removed", removed, lambda make: [call(make.normal(7))], sweep=True)
    case = Case(suite="user", subject="removed", property="sweep", dtype="float32")
    with pytest.raises(RuntimeError, match="is now removed"):
        judged(Target(case, operator, SweepReference.of(operator, "float32", range(6)), torch.device("cpu")))


def test_what_the_cpu_lets_grow_in_place_is_not_asked() -> None:
    operator = Operator("grow", torch.add, lambda make: [call(make.normal(3))], in_place=lambda x: x.resize_(5))
    changing = Call(operator.samples("float32")[0], direction=IN_PLACE)
    assert SweepReference.of(operator, "float32").usual(changing, ((torch.ones(3),), {})) is None


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_integers_are_changed_in_place_only_if_they_can_hold_the_result(dtype: str) -> None:
    asked: list[torch.Tensor] = []
    operator = Operator(
        "half", lambda x: x / 2, lambda make: [call(make.normal(3))], dtypes=(dtype,), in_place=asked.append
    )
    changing = Call(operator.samples(dtype)[0], direction=IN_PLACE)
    SweepReference.of(operator, dtype).usual(changing, ((torch.ones(3, dtype=getattr(torch, dtype)),), {}))
    assert bool(asked) == (dtype == "float32")


def through_double(x: T, y: Any, **named: Any) -> T:
    found = torch.lt(x, y)
    return torch.lt(x.double(), y.double() if isinstance(y, T) else y) if x.dtype is torch.int64 else found


def tail_not_written(x: T, *rest: Any, **named: Any) -> T:
    found = torch.exp(x, *rest, **named).contiguous()
    if found.numel() > 2048:
        found.view(-1)[found.numel() // 64 * 64 :] = 0
    return found


def one_element_is_off(x: T, **named: Any) -> T:
    """By eight ulp of the largest number in its octave."""
    found = torch.exp(x, **named).contiguous()
    if found.numel() > 100:
        found.view(-1)[found.numel() // 2 :][:8] *= 1 + 8 * torch.finfo(found.dtype).eps
    return found


def large_not_written(x: T, **named: Any) -> T:
    found = torch.exp(x, **named).contiguous()
    if found.numel() > 65_536:
        found.view(-1)[65_536:] = 0
    return found


def nan_dropped_in_the_tail(x: T, **named: Any) -> T:
    found = torch.exp(x, **named)
    return torch.cat([found.reshape(-1)[:-1], found.reshape(-1)[-1:].nan_to_num()]).reshape(found.shape)


def through_float(x: T, **named: Any) -> T:
    return torch.abs(x.double()).to(x.dtype)


def empty_is_one(x: T, *rest: Any, **named: Any) -> T:
    found = torch.matmul(x, *rest, **named)
    return found + 1 if x.shape[-1] == 0 else found


class Stale:
    """What gives the numbers of the call before, where shapes are the same."""

    def __init__(self) -> None:
        self.kept: dict[Any, T] = {}

    def __call__(self, x: T, **named: Any) -> T:
        return self.kept.setdefault((x.shape, str(named)), torch.exp(x, **named)).clone()


@pytest.mark.parametrize(
    ("name", "dtype", "fault"),
    [
        ("lt", "int64", through_double),
        ("exp", "float32", tail_not_written),
        ("exp", "float32", one_element_is_off),
        ("exp", "float16", one_element_is_off),
        ("exp", "float32", large_not_written),
        ("exp", "float16", nan_dropped_in_the_tail),
        ("abs", "int64", through_float),
        ("matmul", "float32", empty_is_one),
        ("exp", "float32", Stale()),
    ],
    ids=lambda each: each if isinstance(each, str) else getattr(each, "__name__", "stale"),
)
def test_a_fault_that_depends_on_sizes_or_numbers_is_seen(
    name: str, dtype: str, fault: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "ATTEMPTS", 0)  # what is seen is asked, not how small it gets
    with pytest.raises(Disagreement):
        judged(target(name, dtype, fault, calls=range(72)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["avg_pool2d", "adaptive_avg_pool2d"])
def test_the_gradient_of_a_mean_over_windows_may_not_be_off_by_eight_ulp(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "ATTEMPTS", 0)
    operator = swept(name, dtype, GoldenStore(folder("baselines") / "golden"))
    case = Case(suite="ops", subject=name, property="sweep", dtype=dtype)
    made = Target(case, operator, SweepReference.of(operator, dtype, range(24)), torch.device("cpu"))
    judged(made)
    both = made.both_ways

    def off(call: Call) -> Any:
        found, (gradient,) = both(call)
        wrong = gradient.clone(memory_format=torch.contiguous_format)
        wrong.view(-1)[3::64] *= 1 + 8 * torch.finfo(gradient.dtype).eps
        return found, [wrong]

    made.both_ways = off
    with pytest.raises(Disagreement):
        judged(made)


def test_a_call_that_fails_is_made_smaller_and_has_a_program(tmp_path: Path) -> None:
    made = target("exp", "float32", tail_not_written)
    verdicts: list[Any] = []
    with pytest.raises(Disagreement, match="made smaller"):
        check(made, PrecisionCompare(verdicts.append))
    text = program(made, tmp_path, verdicts[-1])
    assert "torch.exp, 'cpu')" in text
    (file,) = tmp_path.iterdir()
    assert repr(str(file)) in text


def test_an_operator_of_ones_own_is_swept_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "ATTEMPTS", 0)

    def rows(make: Any) -> list[Any]:
        return [call(make.normal(3, 34)), call(make.normal(5, 7))]

    operator = Operator("double", lambda x: x * 2, rows, definition=lambda x: x + x, sweep=True)
    case = Case(suite="user", subject="double", property="sweep", dtype="float32")
    judged(Target(case, operator, SweepReference.of(operator, "float32", range(15), defined=True), torch.device("cpu")))
    wrong = Operator("double", lambda x: x * 2 + (x.shape[-1] > 100), rows, definition=lambda x: x + x, sweep=True)
    with pytest.raises(Disagreement):
        judged(Target(case, wrong, SweepReference.of(wrong, "float32", range(60), defined=True), torch.device("cpu")))


def test_an_operator_says_for_which_arguments_nothing_is_promised() -> None:
    """Its results are not even looked at there: the device may do anything."""

    def rows(make: Any) -> list[Any]:
        return [call(make.normal(3, 34)), call(make.normal(5, 7))]

    def mean(x: T) -> T:
        return x.mean() if x.numel() else torch.tensor(5.0)

    def asked(only: bool | Callable[..., bool]) -> Target:
        case = Case(suite="user", subject="mean", property="sweep", dtype="float32")
        operator = Operator("mean", mean, rows, definition=lambda x: x.mean(), sweep=only, terms=1 << 10)
        return Target(
            case, operator, SweepReference.of(operator, "float32", range(24), defined=True), torch.device("cpu")
        )

    with pytest.raises(Disagreement):
        judged(asked(True))
    judged(asked(lambda x: x.numel() > 0))


def test_each_of_several_outputs_is_judged_by_its_own_sums() -> None:
    """Next to a variance of about one, an error of a mean would be small."""
    made = target("var_mean", "float32")

    def off(call: Call) -> list[T]:
        args, kwargs = made.arguments(call)
        variance, mean = torch.var_mean(*args, **kwargs)
        return [variance, mean + 1e-4 * variance.sqrt()]

    made.execute = off
    with pytest.raises(Disagreement, match=r"'\]\[1\]"):
        judged(made)


@pytest.mark.parametrize(
    ("exact", "own", "is_judged"),
    [(300.0, math.inf, False), (300.0, math.nan, False), (1e6, math.inf, True), (3, 3, True)],
)
def test_what_leaves_the_range_of_the_dtype_on_the_cpu_is_not_judged(exact: float, own: float, is_judged: bool) -> None:
    """A mean of large numbers is within the range, their sum is not: the CPU may return anything, so may a device."""
    half = [torch.tensor([own, 1], dtype=torch.float16)]
    result = Results([torch.tensor([exact, 1], dtype=torch.float64)], (half,))
    assert overflows(result) is not is_judged


def test_a_call_that_fails_with_its_gradients_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(call: Callable[[], Any], *limits: Any) -> Any:
        found = call()
        if found[1]:
            raise Disagreement(f"{limits[2]} takes too long")
        return found

    monkeypatch.setattr(sweep, "in_time", late)
    with pytest.raises(sweep.WrongCall, match=r"^exp, call .*backward takes too long") as caught:
        judged(target("exp", "float32"))
    assert caught.value.direction == BACKWARD
