"""Every field of a cause, of a change between runs, and of the judgement of a run as a whole."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_ascend.records.case import Case
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Run, Selection
from pytest_ascend.system.suites import describe, suites
from pytest_ascend.verdict import diff, phrase, summary
from pytest_ascend.verdict.causes import causes_of, features, known_causes, not_emulated
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

from .made import record, verdict

# --- causes ---


def many(count: int, outcome: str, subject: str, **fields: Any) -> list[ResultRecord]:
    return [
        record(outcome, Case(suite="ops", subject=subject, property="forward", dtype=f"d{place}"), **fields)
        for place in range(count)
    ]


def test_a_cause_has_an_id_of_its_features() -> None:
    results = [*many(3, "failed", "relu"), *many(3, "passed", "gelu")]
    (cause,) = causes_of(results)
    assert cause.id == "failed:ops/relu"
    assert (cause.outcome, cause.features, cause.ran) == ("failed", (("subject", "ops/relu"),), 3)
    assert cause.finding == "differs"
    long = "x" * 70
    (cause,) = causes_of([*many(3, "failed", long), *many(3, "passed", "gelu")])
    assert len(cause.id) == len("failed:") + 40 + 1 + 8
    assert cause.id.startswith(f"failed:ops/{'x' * 36}-")
    (cause,) = causes_of([*many(3, "errored", "relu", reason="no such (thing) in here"), *many(9, "passed", "relu")])
    assert cause.id == "errored:no-such-thing-in-here"


def test_ids_of_sixty_characters_are_kept_whole() -> None:
    for length, is_whole in ((60, True), (61, False)):
        subject = "x" * (length - len("ops/"))
        (cause,) = causes_of([*many(2, "failed", subject), *many(3, "passed", "gelu")])
        assert (cause.id == f"failed:ops/{subject}") is is_whole


def test_the_simplest_case_comes_first() -> None:
    def at(property_: str, dtype: str, **fields: Any) -> ResultRecord:
        return record("failed", Case(suite="ops", subject="relu", property=property_, dtype=dtype), **fields)

    some = [
        at("layout", "int8"),
        at("forward", "int8"),
        at("forward", "int4", snippet="a program"),
        at("forward", "float32"),
        at("layers", "int8"),
        at("aside", "int8"),
    ]
    (cause,) = causes_of(some)
    assert [each.case.id for each in cause.cases] == [
        "ops/relu/layers/int8", "ops/relu/forward/float32", "ops/relu/forward/int4", "ops/relu/forward/int8",
        "ops/relu/aside/int8", "ops/relu/layout/int8",
    ]  # fmt: skip


def test_causes_of_one_outcome_are_sorted_by_size_and_then_by_name() -> None:
    results = [*many(2, "failed", "b"), *many(2, "failed", "a"), *many(3, "failed", "c"), *many(2, "errored", "z")]
    results += [each for name in "abcz" for each in many(0, "passed", name)]
    results += [record("passed", Case(suite="ops", subject="p", property="forward", dtype=f"d{n}")) for n in range(9)]
    assert [each.id for each in causes_of(results)] == [
        "failed:ops/c",
        "failed:ops/a",
        "failed:ops/b",
        "errored:differs",
    ]


def test_what_is_not_emulated_is_grouped_by_its_message() -> None:
    some = [record("not-emulated", reason=f"aclnnFoo at {place}") for place in range(2)]
    some += [record("not-emulated", reason="aclnnBar"), record("failed")]
    found = not_emulated(some)
    assert [(each.id, len(each.cases), each.ran) for each in found] == [
        ("not-emulated:aclnnFoo-at", 2, 0), ("not-emulated:aclnnBar", 1, 0),
    ]  # fmt: skip


def test_known_causes_name_what_is_waived() -> None:
    (known,) = known_causes([record("waived", waiver={"cause": "x\ny", "kind": "defect"}), record("failed")])
    assert (known.cause, known.kind, len(known.cases)) == (r"x\ny", "defect", 1)
    (known,) = known_causes([record("disputed", reason="unclear")])
    assert (known.cause, known.kind, dict(known.waiver)) == ("unclear", "", {})


@pytest.mark.parametrize(
    ("given", "feature"),
    [
        (record("fallback", fallbacks=("b", "a", "b")), ("cpu", "a, b")),
        (record("errored", diagnosis={"codes": [{"code": 507899}]}), ("error", "507899")),
        (record("unsupported", reason="no 0xff kernel 12\nmore"), ("error", "no # kernel #")),
        (record("flaky", reason="x" * 130), ("error", "x" * 120)),
        (record("not-run", reason="lost"), ("error", "lost")),
    ],
)
def test_the_feature_of_an_outcome(given: ResultRecord, feature: tuple[str, str]) -> None:
    found = dict(features(given))
    assert found.pop(feature[0]) == feature[1]
    assert found == {
        "suite": "ops",
        "subject": "ops/relu",
        "operator": "relu",
        "property": "forward",
        "dtype": "float32",
    }


# --- comparisons of runs ---

CASES = synthetic.op_cases(2)


def run_of(*outcomes: str, cases: Any = CASES, selection: Any = None, **fields: Any) -> summary.Summary:
    records = synthetic.records(cases[: len(outcomes)], outcomes, synthetic.Random(7))
    changed = tuple(replace(each, **fields) for each in records)
    return summarise(
        Run(header=synthetic.header(cases, stack=synthetic.HARDWARE, selection=selection), records=changed)
    )


def change(before: summary.Summary, after: summary.Summary, kind: str, **how: Any) -> diff.Change:
    return diff.compare(before, after, **how).changes[kind][0]


def measured(value: float, series: Any = None) -> summary.Summary:
    return run_of("passed", "passed", measurements={"latency_us": value}, series=series or {})


def with_share(share: float) -> summary.Summary:
    return run_of("passed", "passed", verdicts=(verdict(metrics={"limit_used": share}),))


def test_every_field_of_a_change_of_outcome() -> None:
    found = change(run_of("passed", "passed"), run_of("failed", "passed"), "regression")
    assert (found.id, found.before, found.after) == (CASES[0].id, "passed", "failed")
    assert found.finding == synthetic.REASONS["failed"]
    assert (found.name, found.factor) == ("", 1.0)
    gone = change(run_of("passed", "failed"), run_of("passed", cases=CASES[:1]), "vanished")
    assert (gone.id, gone.before, gone.after, gone.finding) == (CASES[1].id, "failed", "", "")
    new = change(run_of("passed", cases=CASES[:1]), run_of("passed", "failed"), "new")
    assert (new.before, new.after, new.finding) == ("", "failed", synthetic.REASONS["failed"])
    known = change(
        run_of("waived", "passed", waiver={"cause": "a", "outcome": "failed"}),
        run_of("waived", "passed", waiver={"cause": "b", "outcome": "failed"}),
        "known",
    )
    assert (known.before, known.after, known.finding) == ("waived (a)", "waived (b)", synthetic.REASONS["waived"])


def test_every_field_of_a_drift() -> None:
    slower = change(measured(100.0), measured(150.0), "slower")
    assert (slower.before, slower.after, slower.name, slower.factor) == ("100 µs", "150 µs", "latency_us", 1.5)
    faster = change(measured(150.0), measured(100.0), "faster")
    assert (faster.before, faster.after, faster.factor) == ("150 µs", "100 µs", 1.5)
    drift = change(with_share(0.2), with_share(0.5), "error-drift")
    assert (drift.before, drift.after, drift.name, drift.factor) == ("20 %", "50 %", "limit_used", 2.5)
    assert change(with_share(0.0), with_share(0.5), "error-drift").factor == math.inf


@pytest.mark.parametrize(("after", "share", "counts"), [(110.0, 0.1, True), (109.9, 0.1, False), (120.0, 0.3, False)])
def test_a_time_counts_from_a_share_on(after: float, share: float, counts: bool) -> None:
    found = diff.compare(measured(100.0), measured(after), speed_share=share)
    assert bool(found.changes["slower"]) is counts


@pytest.mark.parametrize(
    ("before", "after", "counts"), [(0.05, 0.1, True), (0.04, 0.099, False), (0.2, 0.4, True), (0.2, 0.39, False)]
)
def test_an_error_counts_from_twice_its_share_and_a_tenth_on(before: float, after: float, counts: bool) -> None:
    assert bool(diff.compare(with_share(before), with_share(after)).changes["error-drift"]) is counts


def test_times_below_one_unit_count_and_those_of_an_emulated_run_on_either_side_do_not() -> None:
    assert change(measured(0.5), measured(0.8), "slower").factor == pytest.approx(1.6)
    header = synthetic.header(CASES, stack=synthetic.EMULATED)
    other = measured(0.8)
    emulated = summarise(replace(other.run, header=header))
    for one, two in ((measured(0.5), emulated), (emulated, measured(0.5))):
        assert not diff.compare(one, two).changes["slower"]
        assert not diff.compare(one, two).changes["faster"]


def test_drifts_are_sorted_by_their_factor() -> None:
    def both(first: float, second: float) -> summary.Summary:
        records = [replace(each, measurements={"latency_us": value}) for each, value in zip(
            run_of("passed", "passed").run.records, (first, second), strict=True)]  # fmt: skip
        return summarise(Run(header=synthetic.header(CASES, stack=synthetic.HARDWARE), records=tuple(records)))

    found = diff.compare(both(100.0, 100.0), both(150.0, 300.0))
    assert [each.id for each in found.changes["slower"]] == [CASES[1].id, CASES[0].id]


@pytest.mark.parametrize(("samples", "counts"), [(4, True), (5, False)])
def test_a_spread_is_considered_from_five_samples_on(samples: int, counts: bool) -> None:
    wide = [50.0, 100.0, 150.0, 200.0, 250.0][:samples]
    found = diff.compare(measured(100.0, {"latency_us": wide}), measured(150.0, {"latency_us": wide}))
    assert bool(found.changes["slower"]) is counts


@pytest.mark.parametrize(("share", "counts"), [(0.99, False), (1.01, True)])
def test_medians_differ_where_their_uncertainties_do_not_overlap(share: float, counts: bool) -> None:
    samples = [70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0]
    apart = share * 2 * 1.57 * (120.0 - 80.0) / math.sqrt(7)
    before = measured(100.0, {"latency_us": samples})
    for sign, kind in ((1, "slower"), (-1, "faster")):
        after = measured(100.0 + sign * apart, {"latency_us": [each + sign * apart for each in samples]})
        assert bool(diff.compare(before, after).changes[kind]) is counts


def test_runs_are_comparable_where_both_covered_a_level() -> None:
    subset = Selection("subset", "-k relu")
    full, part = run_of("passed", "passed"), run_of("passed", "passed", selection=subset)
    for one, other, fits in ((full, full, True), (full, part, False), (part, full, False), (part, part, False)):
        assert diff.compare(one, other).is_comparable is fits
    other = replace(full, run=replace(full.run, header=replace(full.run.header, level="full")))
    assert not diff.compare(full, other).is_comparable


def test_what_the_later_run_did_not_execute_is_unknown() -> None:
    one = run_of("passed", "passed")
    less = run_of("passed", selection=Selection("subset", "x"), cases=CASES[:1])
    found = diff.compare(one, less)
    assert (found.unknown, found.answer) == (1, "cannot-tell")
    assert diff.compare(one, run_of("passed", cases=CASES[:1])).answer == "no"
    nothing = run_of(cases=[])
    assert (diff.compare(nothing, nothing).answer, diff.compare(nothing, nothing).unknown) == ("cannot-tell", 0)


def test_causes_of_regressions_are_those_of_the_later_run() -> None:
    found = diff.compare(run_of("passed", "passed"), run_of("failed", "passed"))
    assert [len(each.cases) for each in found.causes] == [1]
    assert found.causes[0].representative.case.id == CASES[0].id
    assert diff.compare(run_of("failed", "passed"), run_of("failed", "passed")).causes == ()


# --- a run as a whole ---


def test_a_pass_that_was_not_earned_says_why() -> None:
    stack = synthetic.HARDWARE
    wrong = record("passed", verdicts=(verdict(False),))
    cases: list[tuple[ResultRecord, str, str]] = [
        (wrong, "failed", "recorded as passed, but a comparison disagrees"),
        (record("passed"), "errored", "passed without comparing or measuring anything"),
        (record("passed", verdicts=(verdict(),), fallbacks=("a", "b")), "fallback", "computed on the CPU: a, b"),
        (record("waived", reason=""), "errored", "waived without a reason"),
        (record("disputed", reason=""), "errored", "disputed without a reason"),
        (record("not-emulated"), "errored", "recorded as not-emulated, on a device that is not emulated"),
    ]
    for given, outcome, reason in cases:
        found = summary.verified(given, stack)
        assert (found.outcome.name, found.outcome.reason) == (outcome, reason)
        assert found.case is given.case
    for fine in (
        record("passed", verdicts=(verdict(),)),
        record("passed", measurements={"latency_us": 1.0}),
        record("failed", fallbacks=("a",)),
        record("waived"),
    ):
        assert summary.verified(fine, stack) is fine
    emulated = record("not-emulated")
    assert summary.verified(emulated, synthetic.EMULATED) is emulated


def test_cases_without_a_record_say_why_they_did_not_run() -> None:
    assert run_of("passed").results[1].outcome.reason == "no record in the log"
    given = run_of("passed").run
    stopped = summarise(replace(given, ended=False))
    assert stopped.results[1].outcome.reason == "the run was stopped before this case"
    assert stopped.results[1].node_id == ""


def test_notices_say_what_computed() -> None:
    assert not summary.notice(synthetic.HARDWARE)
    assert summary.notice(synthetic.EMULATED).key == "notice.emulated"
    said = summary.notice(replace(synthetic.HARDWARE, device="cpu"))
    assert (said.key, said.values) == ("notice.other", {"device": "cpu"})


def test_a_footer_that_disagrees_is_named_with_its_numbers() -> None:
    given = run_of("passed", "failed")
    footer = given.footer(synthetic.FINISHED)
    assert (footer.records, footer.counts, footer.finished) == (2, {"failed": 1, "passed": 1}, synthetic.FINISHED)
    found = summarise(replace(given.run, footer=replace(footer, counts={"passed": 2})))
    assert found.contradictions == ("The footer counts 2 passed; the records give 1 failed, 1 passed.",)
    none = summarise(replace(given.run, footer=replace(footer, counts={})))
    assert "The footer counts nothing;" in none.contradictions[0]
    other = summarise(replace(given.run, footer=replace(footer, verdict=replace(footer.verdict, conforms=True))))
    assert other.contradictions == ("The footer's verdict is not the one that the records give.",)


def test_phrases_travel_to_the_page_as_data() -> None:
    inner = phrase.say("cases", n="3")
    outer = phrase.say("x", one="a\nb", some=("c", inner), said=inner)
    said = {"say": ["cases", {"n": "3"}]}
    assert outer.to_data() == ["x", {"one": r"a\nb", "some": {"list": ["c", said]}, "said": said}]
    assert phrase.say("y").to_data() == "y"
    assert (phrase.counted("cases", 1).key, phrase.counted("cases", 1200).values) == ("cases.one", {"n": "1,200"})


@pytest.mark.parametrize("language", phrase.LANGUAGES)
def test_lists_are_joined_as_the_language_does(language: str) -> None:
    words = phrase.table(language)
    comma, last = words["list.comma"], words["list.last"]
    assert phrase._text(("a",), language) == "a"
    assert phrase._text(("a", "b"), language) == f"a{last}b"
    assert phrase._text(("a", "b", phrase.say("")), language) == f"a{comma}b{last}"


def test_suites_stand_in_the_order_of_their_files() -> None:
    found = suites()
    assert list(found) == sorted(found, key=lambda name: (found[name].order, name))
    assert describe("ops") is found["ops"]
    mine = describe("a suite of mine")
    assert (mine.title, mine.order, mine.grid, mine.compares) == ({"en": "a suite of mine"}, 1000, False, True)
    assert (mine.tier, mine.needs_npu, mine.computed_once) == ("operators", False, False)
    assert (mine.allowed.fallbacks, mine.allowed.waived, mine.allowed.limits) == (0.01, 0.05, 0.25)
