"""Each check of a log at its limits: what just contradicts, what just does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.certificate import consistency, provenance, requirements, words
from pytest_ascend.coverage.expectations import BETTER, Expectation, Expectations
from pytest_ascend.environment import compatibility
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Passed
from pytest_ascend.records.record import AttemptRecord, ResultRecord
from pytest_ascend.records.verdict import Limit, Verdict
from pytest_ascend.runlog.contents import Attempted, LeftBehind, Quarantined, Resumed, SelfTest, Shard
from tests.unit.runlog.synthetic import replace

from . import runs

OPS = Case(suite="ops", subject="relu", property="forward", dtype="float32")
STARTED = datetime(2026, 3, 1, 10, tzinfo=timezone.utc)


def ended(
    outcome: str = "passed", case: Case = OPS, *, reason: str = "", detail: str = "", **more: Any
) -> ResultRecord:
    made = ResultRecord.of(case, "", Passed(), verdicts=(leaf(),))
    return replace(made, outcome=OUTCOMES[outcome](reason=reason, detail=detail), **more)


def leaf(**changes: Any) -> Verdict:
    given: dict[str, Any] = {"path": "output", "agrees": True, "standard": "error-model@1", "headline": "agrees"}
    return Verdict(**{**given, **changes})


def candidate(
    *results: ResultRecord,
    events: Sequence[object] = (),
    footer: object = None,
    header: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Return what the checks read of a candidate, and no more."""
    given = {"started": STARTED.isoformat(), "doctor": {}, "options": {}, "stack": runs.STACK, "shard": None}
    run = SimpleNamespace(
        records=results, events=events, footer=footer, header=SimpleNamespace(**{**given, **(header or {})})
    )

    def of(outcome: str) -> list[ResultRecord]:
        return [each for each in results if each.outcome.name == outcome]

    return SimpleNamespace(results=results, of=of, summary=SimpleNamespace(run=run), on=date(2026, 3, 2), **more)


def finished(after: timedelta) -> Any:
    return SimpleNamespace(finished=(STARTED + after).isoformat())


@pytest.mark.parametrize(
    ("case", "outcome", "measurements", "said"),
    [
        (OPS, "passed", {}, ["passed without a comparison"]),
        (OPS, "passed", {"latency_us": 1.0}, ["passed without a comparison"]),
        (OPS, "failed", {}, []),
        (OPS.but(suite="random", property="distribution"), "passed", {"p_value_corrected": 0.5}, []),
        (OPS.but(suite="random", property="distribution"), "passed", {"p_value": 0.5},
         ["passed without the figure p_value_corrected"]),
        (OPS.but(suite="stability", property="batch-invariance"), "passed", {"differing_elements_share": 0.0}, []),
        (OPS.but(suite="stability", property="batch-invariance"), "passed", {},
         ["passed without the figure differing_elements_share"]),
        (OPS.but(suite="benchmarks"), "passed", {}, []),
    ],
)  # fmt: skip
def test_a_pass_rests_on_a_comparison_or_on_its_figure(
    case: Case, outcome: str, measurements: dict[str, float], said: list[str]
) -> None:
    record = ended(outcome, case, verdicts=(), measurements=measurements)
    assert [*consistency.compared(record)] == said
    assert [*consistency.compared(replace(record, verdicts=(leaf(),)))] == []


@pytest.mark.parametrize(
    ("name", "value", "samples", "is_wrong"),
    [
        ("latency_p50_us", 105.0, (100.0,), False),
        ("latency_p50_us", 95.0, (100.0,), False),
        ("latency_p50_us", 105.1, (100.0,), True),
        ("latency_p50_us", 94.9, (100.0,), True),
        ("latency_p50_us", 2.0, (1.0, 2.0, 900.0), False),
        ("latency_p50_us", 9.0, (), False),
        ("latency_p95_us", 9.0, (100.0,), False),
        ("latency_us", 9.0, (100.0,), False),
    ],
)
def test_a_median_is_within_a_twentieth_of_its_samples(
    name: str, value: float, samples: tuple[float, ...], is_wrong: bool
) -> None:
    found = ended(measurements={name: value}, series={"latency_us": samples})
    assert bool([*consistency.measured(found)]) is is_wrong


def test_only_a_pass_needs_numbers() -> None:
    nan = {"latency_us": float("nan")}
    assert [*consistency.measured(ended(measurements=nan))] == ["latency_us is no number"]
    assert [*consistency.measured(ended("failed", measurements=nan))] == []


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (ended(), []),
        (ended(reason="r", detail="d"), ["passed, with a reason", "passed, with a detail"]),
        (ended(reason=f"{BETTER} ..."), []),
        (ended(reason=f"{BETTER} ...", detail="d"), ["passed, with a reason", "passed, with a detail"]),
        (ended(reason=f"nearly, and {BETTER}"), ["passed, with a reason"]),
        (ended("failed", reason="r", detail="d"), []),
        (ended("failed"), ["failed without a reason"]),
        (ended("failed", reason="r", waiver={"reason": "x"}), ["failed, with a waiver"]),
        (ended("waived", reason="r", waiver={"reason": "x"}), []),
        (ended("waived", reason="r"), ["waived, without a waiver"]),
        (ended("disputed", reason="r", waiver={"reason": "x"}), []),
        (ended("disputed", reason="r"), []),
    ],
)
def test_a_pass_explains_nothing_and_all_else_has_a_reason(record: ResultRecord, said: list[str]) -> None:
    assert [*consistency.silent(record)] == said


@pytest.mark.parametrize(
    ("outcome", "agrees", "fallbacks", "count"),
    [
        ("fallback", (True, True), ("aten::x",), 0),
        ("fallback", (True, False), ("aten::x",), 1),
        ("fallback", (), (), 1),
        ("fallback", (False,), (), 2),
        ("failed", (False,), (), 0),
    ],
)
def test_what_the_cpu_computed_agrees_and_has_names(
    outcome: str, agrees: tuple[bool, ...], fallbacks: tuple[str, ...], count: int
) -> None:
    verdicts = tuple(leaf(agrees=each) for each in agrees)
    record = ended(outcome, reason="r", verdicts=verdicts, fallbacks=fallbacks)
    assert len([*consistency.fallen_back(record)]) == count


@pytest.mark.parametrize(
    ("node_id", "is_right"),
    [
        ("", True),
        ("suites/ops/test_ops.py::test[relu]", True),
        ("/opt/x/suites/ops/test_ops.py::test", True),
        ("suites/opsy/test_ops.py::test", False),
        ("mysuites/ops/test_ops.py::test", False),
        ("x.py::/suites/ops/", False),
    ],
)
def test_a_case_is_run_by_a_test_below_its_suite(node_id: str, is_right: bool) -> None:
    assert ([*consistency.placed(ended(node_id=node_id))] == []) is is_right


def attempt(outcome: str, end: str = "answered", **more: Any) -> AttemptRecord:
    return AttemptRecord(**{"card": "npu:0", "end": end, "outcome": outcome, "reason": "", "alone": False, **more})


@pytest.mark.parametrize(
    ("outcome", "made", "noted", "follows"),
    [
        ("passed", [], 0, True),
        ("passed", [], 1, False),
        ("passed", [attempt("passed")], 0, True),
        ("passed", [attempt("passed")], 1, False),
        ("failed", [attempt("failed"), attempt("failed")], 1, True),
        ("failed", [attempt("failed"), attempt("failed")], 0, True),
        ("failed", [attempt("failed"), attempt("failed")], 2, False),
        ("passed", [attempt("failed"), attempt("failed")], 1, False),
        ("failed", [attempt("failed")], 0, False),  # a doubtful answer is asked for again
        ("flaky", [attempt("failed"), attempt("passed")], 1, True),
        ("passed", [attempt("failed"), attempt("passed")], 1, False),
        ("flaky", [attempt("failed"), attempt("failed")], 1, False),
        ("errored", [attempt("", "crashed"), attempt("", "crashed")], 1, True),
        ("failed", [attempt("", "crashed"), attempt("", "crashed")], 1, False),
        ("errored", [attempt("", "crashed")], 0, False),
        ("errored", [attempt("", "killed")] * 3, 2, False),  # nothing is known of it
        ("passed", [attempt("passed", "nonsense")], 0, False),
    ],
)
def test_an_outcome_follows_from_its_attempts(
    outcome: str, made: list[AttemptRecord], noted: int, follows: bool
) -> None:
    record = ended(outcome, attempts=tuple(made))
    assert consistency._follows(record, noted) is follows
    events = [Attempted(case=OPS.id, card="npu:0", end="answered", outcome="x", reason="", alone=False)] * noted
    assert bool([*consistency.attempts(candidate(record, events=[SimpleNamespace(), *events]))]) is not follows


ENTRY = Expectation(
    cause="c", cases=("ops/relu/*",), outcome="failed", reason="known", source="s", owner="o",
    expires=date(2027, 1, 1), versions={}, says="NaN",
)  # fmt: skip
DERIVED = replace(ENTRY, outcome="fallback", derived="dispatcher", says="")


def waived(entry: Expectation, below: str, how: str = "waived", **more: Any) -> ResultRecord:
    given = {"reason": "known", "detail": f"{below}: a NaN", "waiver": entry.waiver(OUTCOMES[below]()), **more}
    return ended(how, **given)


@pytest.mark.parametrize(
    ("entries", "record", "said"),
    [
        ((ENTRY,), waived(ENTRY, "failed"), ""),
        ((ENTRY,), waived(ENTRY, "failed", "disputed"), ""),
        ((ENTRY, replace(ENTRY, cause="other")), waived(ENTRY, "failed"), ""),
        ((), waived(ENTRY, "failed"), "no such cause"),
        ((replace(ENTRY, cases=("ops/gelu/*",)),), waived(ENTRY, "failed"), "no such cause"),
        ((ENTRY,), waived(ENTRY, "failed", waiver={**ENTRY.waiver(OUTCOMES["failed"]()), "owner": "me"}), "otherwise"),
        ((ENTRY,), waived(ENTRY, "failed", detail="fell: a NaN"), "otherwise"),
        ((ENTRY,), waived(ENTRY, "errored"), "deviating otherwise"),
        ((ENTRY,), waived(ENTRY, "failed", detail="failed: an Inf"), "deviating otherwise"),
        ((replace(ENTRY, outcome="disputed"),), waived(ENTRY, "errored", "disputed"), ""),
        ((DERIVED,), waived(DERIVED, "fallback"), "without a kernel"),
        ((DERIVED,), waived(DERIVED, "fallback", fallbacks=("aten::x",)), ""),
        ((replace(ENTRY, says="", outcome="fallback"),), waived(ENTRY, "fallback"), ""),
        ((ENTRY,), ended(), "expects to deviate"),
        ((ENTRY,), ended(reason=f"{BETTER} ..."), "expects to deviate"),
        ((replace(ENTRY, confirmed=False),), ended(reason=f"{BETTER} ..."), ""),
        ((replace(ENTRY, confirmed=False),), ended(), "expects to deviate"),
        ((replace(ENTRY, outcome="disputed"),), ended(), ""),
        ((replace(ENTRY, cases=("ops/gelu/*",)),), ended(), ""),
        ((ENTRY,), ended("failed", reason="NaN"), ""),
    ],
)
def test_a_waiver_is_the_releases_word_for_word(
    entries: tuple[Expectation, ...], record: ResultRecord, said: str
) -> None:
    found = [*consistency._waived_otherwise(record, Expectations(entries=entries))]
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": {"limit_used": 1.0}}, ""),
        ({"metrics": {"limit_used": 1.01}}, "used 1.01 of its limit"),
        ({"agrees": False, "headline": "differs", "metrics": {"limit_used": 1.0}}, "used 1 of its limit"),
        ({"agrees": False, "headline": "differs", "metrics": {"limit_used": 1.01}}, ""),
        ({"agrees": False, "headline": "agrees"}, "says 'agrees'"),
        ({"headline": "differs"}, "says 'differs'"),
        ({"message": "m"}, "explains a difference"),
        ({"pattern": "p"}, "explains a difference"),
        ({"agrees": False, "headline": "differs", "message": "m", "pattern": "p", "metrics": {"mismatches": 3.0}}, ""),
        ({"metrics": {"mismatches": 3.0}}, "3 elements differ"),
        ({"metrics": {"mismatches": 0.0}}, ""),
        ({"limit": Limit(name="x", value=1.0)}, "does not say how much of its limit it used"),
        ({"limit": Limit(name="x", value=1.0), "metrics": {"limit_used": 0.0}}, ""),
    ],
)
def test_whether_a_part_agrees_follows_from_its_figures(changes: dict[str, Any], said: str) -> None:
    assert "".join(consistency._contradicted(leaf(**changes))) == said


ULP = Limit(name="largest error in ulp", value=2.0)


@pytest.mark.parametrize(
    ("metrics", "limit", "is_possible"),
    [
        ({"max_abs": 0.0, "cosine": -1.0, "bias_ulp": -3.0}, None, True),
        ({"max_abs": -1e-9}, None, False),
        ({"within_0.001": 0.5, "within_0.005": 0.5, "within_0.01": 1.0}, None, True),
        ({"within_0.001": 0.6, "within_0.005": 0.5}, None, False),
        ({"within_0.001": 0.6, "within_0.01": 0.5}, None, False),
        ({"ulp_p50": 2.0, "ulp_max": 2.0 * (1 - 5e-7)}, None, True),
        ({"ulp_p50": 2.0, "ulp_max": 2.0 * (1 - 5e-6)}, None, False),
        ({"ulp_p99": 1.0, "ulp_p99.9": 3.0, "ulp_max": 2.0}, None, False),
        ({"ulp_max": 1.0, "limit_used": 0.5}, ULP, True),
        ({"ulp_max": 1.0, "limit_used": 0.500001}, ULP, False),
        ({"ulp_max": 1.0, "limit_used": 0.4999999}, ULP, True),
        ({"ulp_max": 0.0, "limit_used": 9e-10}, ULP, True),
        ({"ulp_max": 0.0, "limit_used": 2e-9}, ULP, False),
        ({"ulp_max": 1.0}, ULP, True),
        ({"ulp_max": 1.0, "limit_used": 0.9}, Limit(name="another rule", value=2.0), True),
        ({"ulp_max": 1.0, "limit_used": 0.9}, Limit(name="largest error in ulp", value=0.0), True),
        ({"max_abs": 1.0, "limit_used": 0.5}, Limit(name="error where zero is expected", value=2.0), True),
        ({"max_abs": 1.0, "limit_used": 0.6}, Limit(name="error where zero is expected", value=2.0), False),
        ({"limit_used": 0.6}, ULP, True),
    ],
)
def test_figures_are_such_as_a_tensor_has(metrics: dict[str, float], limit: Limit | None, is_possible: bool) -> None:
    assert ([*consistency._impossible(metrics, limit)] == []) is is_possible


@pytest.mark.parametrize(
    ("functions", "exact", "is_a_cpu"), [(12, 7, True), (12, 6, False), (11, 11, False), (13, 13, True), (13, 6, False)]
)
def test_results_without_any_error_are_a_cpus_where_they_are_most(functions: int, exact: int, is_a_cpu: bool) -> None:
    subjects = sorted(consistency.ROUNDED)[:functions]
    results = [
        ended(case=OPS.but(subject=name), verdicts=(leaf(metrics={"max_abs": 0.0 if place < exact else 1e-7}),))
        for place, name in enumerate(subjects)
    ]
    others = [
        ended(case=OPS.but(subject=name, **change))
        for name in subjects
        for change in ({"suite": "fused"}, {"dtype": "float16"}, {"property": "backward"})
    ]
    assert bool([*consistency.a_cpu(candidate(*results, *others))]) is is_a_cpu
    failed = [replace(each, outcome=OUTCOMES["failed"](reason="r")) for each in results]
    assert [*consistency.a_cpu(candidate(*failed))] == []


def test_a_function_is_known_by_its_last_name_and_exact_in_every_part() -> None:
    both = (leaf(metrics={"max_abs": 0.0}), leaf(metrics={"max_abs": 1e-9}))
    deep = [OPS.but(subject=f"nn.functional.{name}") for name in sorted(consistency.ROUNDED)[:12]]
    assert [*consistency.a_cpu(candidate(*(ended(case=each) for each in deep)))]
    assert not [*consistency.a_cpu(candidate(*(ended(case=each, verdicts=both) for each in deep)))]


@pytest.mark.parametrize(("planted", "correct", "said"), [(15, 5, 0), (14, 5, 1), (15, 6, 1), (16, 5, 1)])
def test_the_self_test_has_all_that_this_release_plants(planted: int, correct: int, said: int) -> None:
    event = SelfTest(planted=planted, detected=planted, correct=correct, missed=())
    assert len([*consistency.self_test(candidate(events=[SimpleNamespace(), event]))]) == said


DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        (STARTED, STARTED, 0),
        (STARTED, STARTED - SECOND, 1),
        (STARTED, STARTED + timedelta(hours=13), 0),
        (STARTED, STARTED + timedelta(hours=14), 0),  # the end of the day before the certificate's
        (STARTED, datetime(2026, 3, 3, 0, tzinfo=timezone.utc) - SECOND, 0),
        (STARTED, datetime(2026, 3, 3, 0, tzinfo=timezone.utc), 1),
        (STARTED - 13 * DAY, STARTED + DAY, 0),
        (STARTED - 13 * DAY, STARTED + DAY + SECOND, 1),
    ],
)
def test_a_run_ends_after_its_start_within_two_weeks_and_before_its_certificate(
    start: datetime, end: datetime, count: int
) -> None:
    header = {"started": start.isoformat()}
    found = candidate(header=header, footer=SimpleNamespace(finished=end.isoformat()))
    assert len([*provenance.clock(found)]) == count


@pytest.mark.parametrize(("ahead_s", "count"), [(30, 0), (90, 1)])
def test_a_run_may_end_a_minute_ahead_of_this_clock(ahead_s: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            assert tz is timezone.utc
            return STARTED

    monkeypatch.setattr(provenance, "datetime", Clock)
    found = candidate(footer=finished(timedelta(seconds=ahead_s)))
    assert len([*provenance.clock(found)]) == count


def test_a_day_is_that_of_universal_time() -> None:
    east = candidate(footer=SimpleNamespace(finished="2026-03-03T05:00:00+08:00"))
    west = candidate(footer=SimpleNamespace(finished="2026-03-02T20:00:00-08:00"))
    assert [len([*provenance.clock(each)]) for each in (east, west)] == [0, 1]


def test_a_run_without_an_end_has_no_times() -> None:
    assert [*provenance.clock(candidate()), *provenance.time_stamps(candidate())] == []


@pytest.mark.parametrize(
    ("took", "elapsed_s", "devices", "shards", "is_wrong"),
    [
        ((60.0, 42.0), 100, 1, None, False),
        ((60.0, 42.1), 100, 1, None, True),
        ((60.0, 42.1), 100, 0, None, True),
        ((101.0, 101.0), 100, 2, None, False),
        ((101.0, 101.1), 100, 2, None, True),
        ((90.0, 90.0, 23.0), 100, 2, None, True),
        ((90.0, 90.0, 22.0), 100, 1, 2, False),
        ((102.0,), 100, 4, 4, False),
        ((102.1,), 100, 4, 4, True),
        ((), 0, 1, None, False),
    ],
)
def test_no_case_takes_longer_than_the_run_and_all_no_longer_than_its_devices_have(
    took: tuple[float, ...], elapsed_s: float, devices: int, shards: int | None, is_wrong: bool
) -> None:
    header = {"doctor": {"devices": [{}] * devices}, "options": {"shards": shards}}
    found = candidate(*(ended(duration_s=each) for each in took), header=header)
    assert bool([*provenance._too_fast(found, elapsed_s)]) is is_wrong


@pytest.mark.parametrize(
    ("times", "is_wrong"),
    [
        ([(0, 0)], False),
        ([(60, 3)], False),
        ([(61, 3)], True),
        ([(-1, 0)], True),
        ([(9, 4)], True),
        ([(9, 2), (9, 2)], False),
        ([(9, 2), (8, 2)], True),
        ([(9, 2), (10, 1)], True),
    ],
)
def test_a_run_is_continued_in_its_order(times: list[tuple[int, int]], is_wrong: bool) -> None:
    events = [Resumed(at=(STARTED + timedelta(minutes=at)).isoformat(), records=count) for at, count in times]
    found = candidate(*[ended()] * 3, events=[SimpleNamespace(), *events])
    assert bool([*provenance._continued(found, STARTED, STARTED + timedelta(hours=1))]) is is_wrong


@pytest.mark.parametrize(
    ("cann", "is_known"),
    [
        ("8.5.0", True),
        ("8.5.1", True),
        ("8.5.10", True),
        ("8.5.01", False),
        ("8.4.1", False),
        ("8.3.RC1", True),
        ("8.3.RC9", False),
        ("8.3.1", False),
        ("newest", False),
    ],
)
def test_a_correction_of_a_release_is_released(cann: str, is_known: bool) -> None:
    assert provenance._is_released(cann, compatibility.load()) is is_known


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"cann": ""}, 0),
        ({"torch_npu": "", "cann": "8.5.0"}, 0),
        ({"torch_npu": "2.9.0+git123", "torch": "2.9.0"}, 0),
        ({"torch": "2.9.1+cpu"}, 1),
        ({"torch_npu": "nightly"}, 1),
        ({"cann": "7.0.0"}, 1),
        ({"cann": "9.9.9"}, 2),
    ],
)
def test_versions_belong_together(changes: dict[str, str], count: int) -> None:
    found = candidate(header={"stack": replace(runs.STACK, **changes)})
    assert len([*provenance.versions(found)]) == count


def doctor(**changes: Any) -> dict[str, Any]:
    return {"doctor": {**runs.DOCTOR, **changes}}


def test_a_machine_is_the_one_of_the_run() -> None:
    assert [*provenance.machine(candidate(header=doctor()))] == []
    assert [*provenance.machine(candidate(header={"doctor": {}}))] == []
    stack = replace(runs.STACK, os="openEuler 22.03, x86_64")
    assert len([*provenance.machine(candidate(header={**doctor(), "stack": stack}))]) == 1
    stack = replace(runs.STACK, host="x86_64, 192 CPUs")
    assert len([*provenance.machine(candidate(header={**doctor(), "stack": stack}))]) == 1
    assert len([*provenance.machine(candidate(header=doctor(machine="another")))]) == 1
    assert [*provenance.machine(candidate(header=doctor(machine="this machine, h")))] == []


def test_either_place_of_cann_may_give_its_version() -> None:
    known = [each for each in runs.DOCTOR["components"] if each["name"] != "CANN toolkit"]
    seen = [{"value": runs.STACK.cann, "source": "made up", "internal": False}]
    runtime = {"name": "CANN runtime", "version": runs.STACK.cann, "evidence": seen}
    assert [*provenance.machine(candidate(header=doctor(components=[*known, runtime])))] == []
    [said] = provenance.machine(candidate(header=doctor(components=known)))
    assert said == f"the stack says cann {runs.STACK.cann}, and the doctor saw none"


def rule(name: str, **changes: Any) -> dict[str, Any]:
    return {**runs.finding(name)["findings"][0], **changes}


@pytest.mark.parametrize(
    ("found", "count"),
    [
        ([], 0),
        ([rule("health.bad")], 0),
        ([rule("health.bad", severity="note")], 1),
        ([rule("health.bad", why="because")], 1),
        ([rule("health.bad", id="all.well")], 1),
        ([rule("emulated"), rule("ascend.absent")], 2),
    ],
)
def test_a_finding_is_one_of_the_releases(found: list[dict[str, Any]], count: int) -> None:
    assert len([*provenance.findings(candidate(header=doctor(findings=found)))]) == count


def test_a_disagreement_is_found_unless_it_is_of_the_chip() -> None:
    other = {"value": "9.9.9", "source": "elsewhere", "internal": False}

    def disputed(*names: str) -> list[dict[str, Any]]:
        return [
            {**each, "evidence": [*each["evidence"], *([other] if each["name"] in names else [])]}
            for each in runs.DOCTOR["components"]
        ]

    def said(components: list[dict[str, Any]], *found: dict[str, Any]) -> list[str]:
        return [*provenance.findings(candidate(header=doctor(components=components, findings=list(found))))]

    assert said(disputed("chip")) == []
    assert len(said(disputed("driver"))) == 1
    assert len(said(disputed("chip", "driver"))) == 1
    assert said(disputed("driver"), rule("version.disagreement")) == []


def machine_with(*devices: dict[str, Any]) -> dict[str, Any]:
    return doctor(devices=[{**runs.DEVICE, **each} for each in devices])


@pytest.mark.parametrize(
    ("devices", "count"),
    [
        ([{}], 0),
        ([{}, {"npu": 1, "bus": "0000:42:00.0"}], 0),
        ([{}, {"npu": 1}], 1),
        ([{"health": "Warning"}, {"health": "Alarm", "bus": "b"}], 2),
        ([{"name": "910B1"}], 0),  # of the same family
        ([{"name": "310P3"}], 1),
        ([{"memory_total_mb": 32768}], 0),
        ([{"memory_total_mb": 32767}], 1),
        ([{"memory_total_mb": 72089}], 0),
        ([{"memory_total_mb": 72090}], 1),
        ([{"memory_total_mb": None}], 0),
    ],
)
def test_devices_are_healthy_of_one_chip_and_each_in_its_place(devices: list[dict[str, Any]], count: int) -> None:
    assert len([*provenance.devices(candidate(header=machine_with(*devices)))]) == count


@pytest.mark.parametrize(
    ("used", "strange"),
    [
        (["npu:0"], ""),
        (["npu:1"], ""),
        (["npu:5"], ""),  # as npu-smi numbers it
        (["npu:2"], "npu:2"),
        (["cpu", "npu:7"], "cpu, npu:7"),
        (["npu:0x"], "npu:0x"),
    ],
)
def test_what_was_used_is_there_in_every_place_that_names_it(used: list[str], strange: str) -> None:
    header = machine_with({}, {"npu": 5, "bus": "b"})
    said = [f"the run was on {strange}, and the machine has 2 devices"] if strange else []
    given = {"case": "x", "end": "answered", "outcome": "x", "reason": "", "alone": False}
    places: list[list[Any]] = [
        [Attempted(card=each, **given) for each in used],
        [Quarantined(card=each, reason="r") for each in used],
        [LeftBehind(case="x", card=each, bytes=1) for each in used],
    ]
    for events in places:
        assert [*provenance.devices(candidate(header=header, events=[SimpleNamespace(card="x"), *events]))] == said
    record = ended(attempts=tuple(attempt("passed", card=each) for each in used))
    assert [*provenance.devices(candidate(record, header=header))] == said
    assert [*provenance.devices(candidate(record, header=doctor(devices=[])))] == []


PINNED = runs.OPTIONS["numerics"]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"numerics": PINNED}, 0),
        ({"numerics": PINNED, "device": "auto"}, 0),
        ({"numerics": PINNED, "device": "npu:3"}, 0),
        ({"numerics": PINNED, "device": "npu:"}, 1),
        ({"numerics": PINNED, "device": "npux"}, 1),
        ({"numerics": PINNED, "emulated_numerics": ""}, 0),
        ({"numerics": PINNED, "emulated_numerics": "x", "timing": {"emulated_memory_bytes": 0}}, 1),
        ({"numerics": PINNED, "timing": {"emulated_memory_bytes": 1}}, 1),
        ({"numerics": {**PINNED, "more": True}}, 1),
        ({"numerics": None, "device": "cpu", "emulator": {"x": 1}}, 3),
    ],
)
def test_a_run_was_asked_for_on_an_npu_with_its_numerics(options: dict[str, Any], count: int) -> None:
    assert len([*provenance.options(candidate(header={"options": options}))]) == count


def test_a_part_of_a_run_is_no_run() -> None:
    shard = Shard(index=2, count=3, cases=1, digest="0" * 64, selection=runs.Selection(runs.FULL))
    host = replace(runs.STACK, host="a; b")
    said = [*provenance.one_run(candidate(header={"shard": shard, "stack": host}))]
    assert said == ["the log is part 2 of 3 of a run", "parts of the run were on different machines: a; b"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("a", "a"),
        ("abc", "a, b, c"),
        ("abcd", "a, b, c and 1 more"),
        ("abcdefg", "a, b, c and 4 more"),
    ],
)
def test_three_are_named(names: str, said: str) -> None:
    assert words.named(list(names)) == said


def test_cases_are_counted_with_their_thousands() -> None:
    assert [words.counted_cases(each) for each in (0, 1, 2, 2000)] == ["0 cases", "1 case", "2 cases", "2,000 cases"]


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError, AttributeError, OverflowError])
def test_what_cannot_be_judged_is_refused(error: type[Exception]) -> None:
    def fails(_: object) -> Any:
        yield "before"
        raise error("x")

    found = [*requirements._checked(fails, candidate())]
    assert found[0] == "before"
    assert found[1].startswith(f"the log cannot be judged: {error.__name__}: ")
