"""Pieces of pages by themselves: every field of a row, every branch of a caption, every limit of what is kept."""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64decode
from typing import Any

import pytest

from pytest_ascend.page import casedata, changes, history, tables
from pytest_ascend.page.chart import Chart
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Limit, Verdict
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import Run, Selection
from pytest_ascend.verdict.diff import KINDS, Change, Diff, compare
from pytest_ascend.verdict.phrase import SILENCE, say
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic

from .test_html import Reader


def record(
    suite: str = "ops", subject: str = "relu", property_: str = "forward", dtype: str = "float32", **fields: Any
) -> ResultRecord:
    outcome = OUTCOMES[fields.pop("outcome", "passed")](reason=fields.pop("reason", ""))
    case = Case(suite=suite, subject=subject, property=property_, dtype=dtype)
    return ResultRecord.of(case, fields.pop("node_id", "n"), outcome, **fields)


def verdict(agrees: bool = True, **fields: Any) -> Verdict:
    given = {"path": "output", "standard": "s@1", "headline": "", **fields}
    return Verdict(agrees=agrees, **given)


# --- history ---


def point(**fields: Any) -> history.Point:
    given: dict[str, Any] = {
        "run_id": "0123456789abcdef", "started": "2026-01-02T03:04:05+00:00", "combination": "c", "level": "smoke",
        "label": SILENCE, "opening": say("verdict.conforms"), "kind": "conforms", "passed": 3, "total": 4,
        "causes": {}, "benchmarks": {}, "outcomes": {}, "families": {"ops": (3, 4)}, "manifest": "m", "page": "r/",
    }  # fmt: skip
    return history.Point(**{**given, **fields})


def test_a_run_is_a_row() -> None:
    given = point(causes={"a": (1, "t", "failed"), "b": (1, "t", "failed")}, passed=3000, total=4000)
    page = Reader(history.render_history([given]))
    assert page.texts("td")[:4] == ["2026-01-02 03:04", "75.0 %", "3,000 / 4,000", "2"]
    assert page.texts("a").count("0123456789ab") == 1
    assert str(say("verdict.conforms")) in page.texts("th")
    assert any(dict(each).get("href") == "r/" for each in page.all("a"))


def test_a_run_in_short() -> None:
    bench = record(
        "benchmarks", "resnet50", "step",
        measurements={"latency_p50_us": 5.0, "device_p50_us": 4.0, "peak_memory_bytes": 9.0},
        verdicts=(verdict(headline="first"), verdict(headline="last")),
    )  # fmt: skip
    plain = record("benchmarks", "add", "step", measurements={"peak_memory_bytes": 9.0})
    other = record("ops", measurements={"latency_p50_us": 5.0}, verdicts=(verdict(),))
    bad = record("ops", "gelu", outcome="failed", reason="wrong", verdicts=(verdict(False),))
    records = (bench, plain, other, bad)
    run = Run(header=synthetic.header([each.case for each in records], stack=synthetic.HARDWARE), records=records)
    found = history.point_of(summarise(run), "page/")
    assert found.benchmarks == {
        (bench.case.id, "device_p50_us"): (4.0, "last"),
        (plain.case.id, "peak_memory_bytes"): (9.0, ""),
    }
    assert (found.passed, found.total, found.kind, found.page) == (3, 4, "does-not-conform", "page/")
    assert [(count, outcome) for count, _, outcome in found.causes.values()] == [(1, "failed")]
    assert (found.run_id, found.started, found.level) == (run.header.run_id, run.header.started, run.header.level)
    part = synthetic.replace(run, header=synthetic.replace(run.header, selection=Selection("subset", "x")))
    assert history.point_of(summarise(part)).level == f"{run.header.level}, x"


def test_the_history_for_programs_has_each_run_once_in_order() -> None:
    later = point(run_id="b", started="2026-01-03", causes={"x": (2, "t", "failed")},
                  benchmarks={("add", "latency_us"): (1.5, "slower")})  # fmt: skip
    earlier, elsewhere = point(run_id="a"), point(run_id="c", level="full")
    found = history.to_dict([later, earlier, later, elsewhere])
    assert found["schema"] == 1
    assert [(each["combination"], each["level"]) for each in found["combinations"]] == [("c", "smoke"), ("c", "full")]
    assert found["combinations"][0]["runs"] == [
        {"run": "a", "started": earlier.started, "verdict": "conforms", "passed": 3, "cases": 4, "causes": {},
         "outcomes": {}, "families": {"ops": [3, 4]}, "benchmarks": []},
        {"run": "b", "started": "2026-01-03", "verdict": "conforms", "passed": 3, "cases": 4, "causes": {"x": 2},
         "outcomes": {}, "families": {"ops": [3, 4]},
         "benchmarks": [{"case": "add", "name": "latency_us", "value": 1.5, "verdict": "slower"}]},
    ]  # fmt: skip


def test_a_trend_takes_two_runs() -> None:
    assert history._combination(0, "t", [point()]).trend is None
    drawn = history._combination(0, "t", [point(), point(passed=4, started="2026-02-03T00:00:00")]).trend
    assert drawn.caption.values == {"n": "2", "first": "75.00 %", "last": "100.00 %"}
    assert [row[1] for row in json.loads(drawn.numbers)["rows"]] == [75.0, 100.0]
    assert {each.words for each in drawn.texts} >= {"01-02", "02-03"}


def test_a_combination_has_its_latest_run_first() -> None:
    runs = [point(run_id="a", label=say("x")), point(run_id="b", label=say("y"))]
    made = history._combination(7, "title", runs)
    assert (made.id, made.title, made.label.key) == ("combination-7", "title", "y")
    assert [each.run_id for each in made.runs] == ["b", "a"]


def test_a_cause_without_words_is_named_by_its_id() -> None:
    (cause,) = history._combination(0, "t", [point(causes={"failed:x": (1200, "", "failed")})]).causes
    assert (cause.title, cause.outcome, cause.cases, cause.runs) == ("failed:x", "failed", "1,200", "1 / 1")


# --- comparisons ---


def compared(**fields: Any) -> Diff:
    """Return a comparison of two runs with one change."""
    given = Change(id="i", **fields)
    one = summarise(Run(header=synthetic.header([Case(suite="ops", subject="relu", property="forward")]), records=()))
    return synthetic.replace(compare(one, one), changes={kind: [given] * (kind == given.kind) for kind in KINDS})


@pytest.mark.parametrize(
    ("kind", "after", "deviates"),
    [("new", "failed", True), ("new", "passed", False), ("new", "waived", False), ("regression", "failed", True),
     ("fix", "passed", False)],
)  # fmt: skip
def test_a_change_for_programs_says_whether_it_deviates(kind: str, after: str, deviates: bool) -> None:
    given = compared(kind=kind, before="b", after=after, finding="f", name="n", factor=2.0)
    assert changes.to_dict(given)["changes"] == [{
        "kind": kind, "case": "i", "before": "b", "after": after, "finding": "f", "name": "n", "factor": 2.0,
        "deviates": deviates,
    }]  # fmt: skip


def test_a_change_links_to_its_case_where_the_page_has_it() -> None:
    for after, linked, href in (("failed", True, "#case=i"), ("failed", False, ""), ("", True, "")):
        (row,) = changes.change_data(compared(kind="new", before="", after=after), linked=linked)["new"]
        assert row[:2] == ["i", href]


def test_a_factor_is_told_unless_it_is_endless() -> None:
    def told(factor: float) -> str:
        given = compared(kind="slower", before="1 µs", after="3 µs", name="latency_us", factor=factor)
        return changes.change_data(given)["slower"][0][-1]

    assert "× 2.5" in told(2.5)
    assert "×" not in told(math.inf)


# --- all cases ---


def packed(*records: ResultRecord) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the details of cases by field, and what they share."""
    lines = tuple(range(7, 7 + len(records)))
    summary = summarise(Run(header=synthetic.header([each.case for each in records]), records=records, lines=lines))
    data = codec.loads(zlib.decompress(b64decode(casedata.details_of(summary))).decode())
    return [dict(zip(casedata.DETAIL_FIELDS, each, strict=True)) for each in data["cases"]], data


def test_texts_are_kept_once_and_long_ones_up_to_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casedata, "TEXT_BUDGET_BYTES", 300)
    messages = ("x" * 201, "y" * 201, "x" * 201, "z" * 200)  # one that is there already, and short ones, cost nothing
    cases, data = packed(record(verdicts=tuple(verdict(False, message=each) for each in messages)))
    place = casedata.VERDICT_FIELDS.index("message")
    told = [data["texts"][each[place]] for each in cases[0]["verdicts"]]
    assert told == [messages[0], casedata._LEFT_OUT, messages[2], messages[3]]
    assert len(set(data["texts"])) == len(data["texts"])


def test_programs_are_whole_or_left_out_by_a_budget_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casedata, "SNIPPETS_BUDGET_BYTES", {True: 50, False: 500})
    failed, waived = (record(outcome=outcome, snippet="x" * 100, reason="r") for outcome in ("failed", "waived"))
    for given, wanted in ((failed, "x" * 100), (waived, f"# {casedata._LEFT_OUT}"), (record(), "")):
        (case,), data = packed(given)
        assert data["texts"][case["snippet"]] == wanted


def test_shapes_of_figures_are_kept_once() -> None:
    given = ({"latency_us": 1.0, "max_abs": 2.0}, {"latency_us": 1.0}, {"latency_us": 3.0, "c": None, "max_abs": 4.0})
    cases, data = packed(record(verdicts=tuple(verdict(metrics=each) for each in given)))
    place = casedata.VERDICT_FIELDS.index("shape")
    assert [each[place] for each in cases[0]["verdicts"]] == [0, 1, 0]
    assert data["shapes"] == [["latency (µs)", "max abs"], ["latency (µs)"]]


def test_a_case_is_packed_field_by_field() -> None:
    given = record(
        node_id="a.py::test[x]", fallbacks=("aten::a",), measurements={"latency_us": 2.0}, verdicts=(verdict(),)
    )
    (found,), data = packed(given)
    texts = data["texts"]
    assert (texts[found["file"]], texts[found["parameters"]], found["line"]) == ("a.py::test", "[x]", 7)
    assert [[texts[each] for each in pair] for pair in found["measures"]] == [["latency", "2 µs"]]
    assert [texts[each] for each in found["fallbacks"]] == ["aten::a"]
    assert len(found["verdicts"]) == 1
    assert texts[found["snippet"]] == texts[found["detail"]] == ""


@pytest.mark.parametrize(
    ("suite", "outcome", "whole"), [("models", "passed", True), ("ops", "passed", False), ("ops", "failed", True)]
)
def test_tensors_are_wanted_of_models_and_of_faults(suite: str, outcome: str, whole: bool) -> None:
    found = (verdict(leaves=(verdict(path="a"), verdict(path="b"))),)
    (case,), _ = packed(record(suite, outcome=outcome, reason="r", verdicts=found))
    ((*_, leaves),) = case["verdicts"]
    assert bool(leaves) is whole


def test_of_too_many_tensors_the_wrong_ones_are_kept() -> None:
    leaves = tuple(verdict(place != 450, path=f"l{place}") for place in range(451))
    (case,), data = packed(record("models", verdicts=(verdict(leaves=leaves),)))
    ((*_, kept),) = case["verdicts"]
    assert len(kept) == 400
    assert (kept[0][0], data["texts"][kept[0][1]]) == (0, "l450")


def test_the_layout_of_each_suite() -> None:
    given = [Case(suite="ops", subject="relu", property=name, dtype=dtype)
             for name, dtype in (("forward", "float32"), ("backward", "int8"))]  # fmt: skip
    given.append(Case(suite="mine", subject="relu", property="forward", dtype="bool"))
    found = casedata.index_of(summarise(Run(header=synthetic.header(given), records=())), {})["suites"]
    assert list(found) == ["ops", "mine"]
    assert found["ops"]["letters"] == {"forward": "F", "backward": "B"}
    assert found["ops"]["dtypes"] == ["float32", "int8"]
    assert found["mine"]["grid"] is False


# --- tables ---


def step(dtype: str = "float32", **measurements: Any) -> ResultRecord:
    return record("benchmarks", "resnet50", "step", dtype, measurements=measurements)


def test_a_speed_up_is_of_the_case_in_float32() -> None:
    fast = step("bfloat16", latency_p50_us=100.0)
    assert tables.speed_ups([step(latency_p50_us=300.0), fast]) == {fast.case.id: 3.0}
    assert tables.speed_ups([step("float16", latency_p50_us=300.0), fast]) == {}
    assert tables.speed_ups([step(latency_p50_us=300.0), step("bfloat16", latency_p50_us=0.0)]) == {}


def test_variations_are_counted_by_kind_most_frequent_first() -> None:
    counts = {"generated_size_edge": 6, "generated_size_one": 1, "generated_size_at_the_head": 6000,
              "generated_calls": 7, "generated_arguments": 1200}  # fmt: skip
    (found,) = tables.tables([record(measurements=counts)])
    assert found.lines[0].cells == ["7", "1,200", "at the head 6,000, edge 6, one 1", "", "", ""]


def drawn_of(*records: ResultRecord) -> dict[str, Chart]:
    return {each.caption.key: each for each in tables.charts(records)}


USUAL_LEAVES = tuple(verdict(path=f"l{place}", metrics={"rmse": 1.0, "limit_used": 0.5, "reference_rmse": 0.1})
                     for place in range(8))  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "limit", "allowed"),
    [
        ({"rmse": 1.0, "limit_used": 0.5, "reference_rmse": 0.1}, None, 2.0),
        ({"rmse": 1.0, "limit_used": 0.5, "honest_rmse": 0.1}, Limit(name="another", value=9.0), 2.0),
        ({"rmse": 1.0, "limit_used": 0.5, "reference_rmse": 0.1}, Limit(name="root mean square error", value=9.0), 9.0),
        ({"rmse": 1.0, "limit_used": 0.0, "reference_rmse": 0.1}, None, math.nan),
        ({"limit_used": 0.5, "reference_rmse": 0.1}, None, None),
        ({"rmse": 1.0, "reference_rmse": 0.1}, None, None),
        ({"rmse": 1.0, "limit_used": 0.5}, None, None),
    ],
)
def test_the_errors_of_one_tensor(metrics: dict[str, float], limit: Limit | None, allowed: float | None) -> None:
    leaves = (verdict(metrics=metrics, limit=limit, path="layer"), *USUAL_LEAVES)
    (found,) = tables.charts([record("models", "vit", verdicts=(verdict(leaves=leaves),))])
    path, actual, reference, told = json.loads(found.numbers)["rows"][0]
    if allowed is None:
        assert path == "l0"
    else:
        assert (path, actual, reference) == ("layer", 1.0, 0.1)
        assert float(told) == allowed or (math.isnan(allowed) and told == "nan")


@pytest.mark.parametrize(("count", "drawn"), [(8, True), (7, False)])
def test_a_model_is_drawn_from_eight_tensors_on(count: int, drawn: bool) -> None:
    leaves = USUAL_LEAVES[:count]

    def titles(suite: str, property_: str) -> list[str]:
        return [
            each.title for each in tables.charts([record(suite, "vit", property_, verdicts=(verdict(leaves=leaves),))])
        ]

    assert titles("models", "gradients") == ["vit float32"] * drawn
    assert titles("ops", "gradients") == titles("models", "loss") == []
    assert titles("models", "autocast-forward") == ["vit autocast float32"] * drawn


def test_figures_over_a_quantity() -> None:
    series = {"latency_by_batch_us": (3.0, 1.0), "batch_size": (8.0, 16.0), "loss_by_step": (5.0, 4.0, 2.0)}
    found = drawn_of(record(series=series))
    said = {name: str(value) for name, value in found["chart.by-batch"].caption.values.items()}
    assert said == {"name": "latency", "n": "16", "low": "1 µs", "high": "3 µs"}
    said = {name: str(value) for name, value in found["chart.by-step"].caption.values.items()}
    assert said == {"name": "loss", "n": "3", "low": "2", "high": "5"}
    for wrong in ({"a_by_step": (-1.0, 2.0)}, {"a_by_step": (math.nan, 2.0)}, {"a_by_batch": (1.0,), "batch_size": ()},
                  {"a_by_batch": (1.0, 2.0), "batch_size": (8.0,)}):  # fmt: skip
        assert not drawn_of(record(series=wrong))


def test_series_are_curves_and_distributions() -> None:
    series = {
        "loss_actual": (1.0, 2.0), "loss_expected": (1.0, 2.5), "loss_low": (0.9, 1.9), "loss_high": (1.1, 2.6),
        "latency_us": (1.0, 2.0, 3.0), "baseline_latency_us": (1.0, 1.5), "peer_us": (1.0, 2.0), "a_by_step": (1.0,),
        "alone_actual": (1.0,), "bad_us": (math.nan,),
    }  # fmt: skip
    assert list(drawn_of(record(series=series))) == ["chart.by-step", "chart.curve-spread", "chart.beside"]
    plain = {key: value for key, value in series.items() if not key.startswith(("baseline", "loss_low"))}
    assert list(drawn_of(record(series=plain))) == ["chart.by-step", "chart.curve", "chart.samples"]
