"""Failures grouped by what they have in common."""

from random import Random

import pytest

from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.verdict.causes import causes_of, features, known_causes

OPERATORS = [f"op{index}" for index in range(40)]
PROPERTIES = ("forward", "backward", "layout", "special")
DTYPES = ("float32", "float16", "bfloat16", "int64")


def record(subject, property_, dtype, outcome="passed", **fields):
    reason = fields.pop("reason", "" if outcome == "passed" else "differs")
    case = Case(suite="ops", subject=subject, property=property_, dtype=dtype)
    return ResultRecord.of(case, case.id, OUTCOMES[outcome](reason=reason), **fields)


def run(is_bad, outcome="failed", **fields):
    """Make a run of 640 cases in which those deviate that ``is_bad`` says."""
    return [
        record(*key, outcome if is_bad(*key) else "passed", **(fields if is_bad(*key) else {}))
        for key in ((name, each, dtype) for name in OPERATORS for each in PROPERTIES for dtype in DTYPES)
    ]


@pytest.mark.parametrize(
    ("is_bad", "title", "count"),
    [
        (lambda name, _property, _dtype: name == "op7", "ops/op7", 16),
        (lambda _name, _property, dtype: dtype == "bfloat16", "dtype bfloat16", 160),
        (lambda _name, property_, _dtype: property_ == "layout", "layout", 160),
        (lambda name, property_, _dtype: (name, property_) == ("op3", "backward"), "ops/op3, backward", 4),
        (lambda _name, property_, dtype: (property_, dtype) == ("special", "float16"), "special, dtype float16", 40),
    ],
)
def test_one_defect_is_one_cause_with_the_shortest_true_description(is_bad, title, count):
    (cause,) = causes_of(run(is_bad))
    assert (cause.title, len(cause.cases), cause.outcome) == (title, count, "failed")


def test_a_defect_with_a_few_exceptions_is_still_one_cause_and_says_how_many_ran():
    (cause,) = causes_of(
        run(lambda name, property_, dtype: name == "op7" and (property_, dtype) != ("special", "int64"))
    )
    assert (cause.title, len(cause.cases), cause.ran) == ("ops/op7", 15, 16)


def test_failures_of_a_model_whose_wrong_layer_is_named_are_one_cause():
    good = [record("mlp", each, "bfloat16") for each in PROPERTIES]
    bad = [record("mlp", each, dtype, "failed") for each in PROPERTIES for dtype in ("float32", "float16")]
    layers = record("mlp", "layers", "float32", "failed", reason="first wrong layer: 1 (GELU)")
    (cause,) = causes_of([*good, *bad, layers])
    assert (cause.title, len(cause.cases), cause.finding) == ("ops/mlp", 9, "first wrong layer: 1 (GELU)")


def test_what_torch_makes_of_a_failing_operator_fails_by_its_cause():
    passed = [record(name, each, "bool") for name in ("sort", "argsort", "sum") for each in PROPERTIES]
    passed += [record(name, each, dtype) for name in OPERATORS for each in PROPERTIES for dtype in DTYPES]
    kinds = (("forward", "float32"), ("layout", "float16"))
    bad = [record(name, *kind, "failed") for name in ("argsort", "sort") for kind in kinds]
    other = record("sum", "forward", "float16", "failed")
    found = causes_of([*passed, *bad, other])
    assert [(each.title, len(each.cases)) for each in found] == [("ops/sort", 4), ("ops/sum/forward/float16", 1)]
    assert found[0].representative.case.subject == "sort"
    alone = causes_of([*passed, *bad[:2]])
    assert [(each.title, len(each.cases), each.ran) for each in alone] == [("ops/argsort", 2, 6)]


def test_two_defects_are_two_causes_the_larger_first():
    found = causes_of(run(lambda name, _property, dtype: name == "op7" or dtype == "bfloat16"))
    assert [cause.title for cause in found] == ["dtype bfloat16", "ops/op7"]
    assert sum(len(cause.cases) for cause in found) == 160 + 12


def test_errors_are_grouped_by_code_and_by_message_without_its_numbers():
    lost = {"codes": [{"code": "507899", "says": "", "source": ""}], "kind": "lost"}
    results = run(lambda name, *_: name in ("op1", "op2", "op3"), "errored", diagnosis=lost)
    results += [
        record(f"x{index}", "forward", "float32", "errored", reason=f"lost at 0x{index:x}") for index in range(9)
    ]
    assert [(cause.title, len(cause.cases), cause.ran) for cause in causes_of(results)] == [
        ("error 507899", 48, 0),  # none that ran well could have it
        ("error lost at #", 9, 0),
    ]


def test_fallbacks_are_grouped_by_the_operator_that_the_cpu_computed():
    results = [record(f"op{index}", "forward", "float32", "fallback", fallbacks=("aten::foo",)) for index in range(5)]
    (cause,) = causes_of(results)
    assert (cause.title, len(cause.cases), cause.ran) == ("aten::foo computed on the CPU", 5, 0)


def test_the_simplest_case_stands_for_its_cause():
    (cause,) = causes_of(run(lambda name, *_: name == "op7"))
    assert cause.representative.case.id == "ops/op7/forward/float32"


def test_every_deviating_case_is_in_exactly_one_cause_whatever_fails():
    for seed in range(20):
        random = Random(seed)  # noqa: S311 - a test
        results = [
            record(*key, random.choice(list(OUTCOMES)))
            for key in ((name, each, dtype) for name in OPERATORS for each in PROPERTIES for dtype in DTYPES)
        ]
        found = causes_of(results)
        grouped = [each.case.id for cause in found for each in cause.cases]
        deviating = {"failed", "errored", "flaky", "fallback", "unsupported", "not-run"}
        assert sorted(grouped) == sorted(each.case.id for each in results if each.outcome.name in deviating)
        assert len({cause.id for cause in found}) == len(found)


def test_nothing_deviates_nothing_is_grouped():
    assert causes_of(run(lambda *_: False)) == ()


def test_known_deviations_are_grouped_by_their_cause_defects_first_then_the_larger():
    def waived(subject, waiver, outcome="waived"):
        return record(subject, "forward", "float32", outcome, reason="known", waiver=waiver)

    limit = {"cause": "no kernel", "kind": "limit", "expires": "2027-01-01"}
    few, many = ({"cause": name, "kind": "defect", "reason": "x"} for name in ("few", "many"))
    results = [waived(f"a{index}", limit) for index in range(5)]
    results += [waived("b", few), *(waived(f"c{index}", many, "disputed") for index in range(2))]
    results += [waived("d", {"reason": "only said"}), waived("e", {}), record("f", "forward", "float32", "failed")]
    assert [(each.cause, each.kind, each.waiver, len(each.cases)) for each in known_causes(results)] == [
        ("many", "defect", many, 2),
        ("few", "defect", few, 1),
        ("known", "", {}, 1),
        ("only said", "", {"reason": "only said"}, 1),
        ("no kernel", "limit", limit, 5),
    ]


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("a single element; the sign is wrong", "the sign is wrong"),
        ("the last 77 elements; all off by one factor; more", "all off by one factor; more"),
        ("every 16th element from element 3", "every #th element from element #"),
        ("", None),
    ],
)
def test_failures_are_alike_by_the_usual_cause_and_else_by_where_they_are(pattern, kind):
    right = Verdict(path="a", agrees=True, standard="", headline="", pattern="no pattern of a failure")
    wrong = Verdict(path="b", agrees=False, standard="", headline="", pattern=pattern)
    assert features(record("relu", "forward", "float32", "failed", verdicts=(right, wrong))).get("pattern") == kind
