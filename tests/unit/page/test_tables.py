"""Tables over benchmarks: speed-ups and published figures, from the records of one run."""

import pytest
from click.testing import CliRunner

from pytest_ascend.cli import cli
from pytest_ascend.page.html import render
from pytest_ascend.page.tables import published, published_of, speed_ups, tables
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Run
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic

from .test_html import Reader


def step(dtype="float32", prop="training-step", **measurements):
    case = Case(suite="benchmarks", subject="resnet50", property=prop, dtype=dtype)
    return ResultRecord.of(case, "n", Passed(), measurements=measurements)


def rows(results, key):
    return [line for table in tables(results) if table.title.key == key for line in table.lines]


def test_a_speed_up_is_of_the_same_work_in_the_same_run():
    results = [step(latency_p50_us=300.0), step("bfloat16", latency_p50_us=150.0), step("float16", "other")]
    assert speed_ups(results) == {"benchmarks/resnet50/training-step/bfloat16": 2.0}
    [line] = rows(results, "speed-up.title")
    assert line.cells == ("300 µs", "150 µs", "2.00 ×")


def test_the_clock_of_the_device_tells_only_where_both_have_it():
    fast = step("bfloat16", latency_p50_us=150.0, device_p50_us=100.0)
    assert set(speed_ups([step(latency_p50_us=300.0), fast]).values()) == {2.0}
    assert set(speed_ups([step(latency_p50_us=300.0, device_p50_us=290.0), fast]).values()) == {2.9}


def test_without_a_time_or_a_usual_there_is_no_speed_up():
    assert speed_ups([step("bfloat16", latency_p50_us=1.0)]) == {}
    assert speed_ups([step(), step("bfloat16", latency_p50_us=1.0)]) == {}
    assert speed_ups([step(latency_p50_us=1.0), step("bfloat16", latency_p50_us=0.0)]) == {}


def test_what_was_published_stands_beside_what_this_run_measured_with_its_source():
    results = [
        step(latency_p50_us=200_000.0, throughput_items_per_s=160.0, items_per_call=32.0),
        step("autocast-bfloat16", latency_p50_us=100_000.0),
        step(prop="memory", peak_memory_bytes=2.0**30),
    ]
    found = {
        (line.id.rpartition("resnet50/")[2], line.cells[0], line.cells[2]): line
        for line in rows(results, "published.title")
    }
    line = found["training-step/float32", "throughput items", "92.75/s (batch 32)"]
    assert line.cells[1] == "160/s (batch 32)"
    assert all(cell for each in found.values() for cell in each.cells)
    assert found["training-step/autocast-bfloat16", "speed up", "1.87 × (AMP against float32)"].cells[1] == "2.00 ×"
    assert ("memory/float32", "peak memory", "3.91 GiB (batch 32, said as 4.2 GB)") in found
    assert not any(key[0].endswith("float32") and key[1] == "speed up" for key in found)


@pytest.mark.parametrize("stack", [synthetic.HARDWARE, synthetic.EMULATED], ids=["npu", "emulated"])
def test_the_page_shows_them_but_beside_no_emulated_figure(stack):
    records = (step(latency_p50_us=9e9), step("bfloat16", latency_p50_us=1e9))
    summary = summarise(Run(header=synthetic.header([each.case for each in records], stack=stack), records=records))
    page = Reader(render(summary))
    assert "Speed-up over float32" in page.text
    assert ("345,000 µs (batch 32)" in page.text) is not stack.emulated
    assert "9,000,000,000 µs" in page.text


def test_every_published_figure_names_its_source_and_a_benchmark_that_exists():
    from suites.benchmarks import CASES
    from suites.distributed import CASES as OF_RANKS

    assert published()
    for each in published():
        assert each.source
        assert each.stack
        wanted = [case for case in (*CASES, *OF_RANKS) if each in published_of(case)]
        assert wanted, each


def test_the_command_names_each_with_its_source():
    result = CliRunner().invoke(cli, ["baseline", "published"], catch_exceptions=False)
    assert "resnet50/training-step: throughput items 92.75/s (batch 32; Ascend 910B, CANN 7.0.RC1)" in result.output
    assert result.output.count("  source: ") == len(published())


def swept(subject, dtype="float32", **asked):
    case = Case(suite="ops", subject=subject, property="sweep", dtype=dtype)
    measurements = {f"generated_{name}": count for name, count in asked.items()}
    return ResultRecord.of(case, "n", Passed(), measurements=measurements)


def test_what_generated_calls_varied_is_counted_by_operator():
    results = [
        swept("relu", calls=18, arguments=1, size_edge=9, size_empty=3, layout_transposed=2, way_in_place=4),
        swept("relu", "float16", calls=17, arguments=1, size_edge=8, values_special_at_the_head=2, way_forward=12),
        swept("add", calls=5, arguments=3),
        step(latency_p50_us=300.0),
    ]
    add, relu = rows(results, "inputs.title")
    assert (add.id, add.cells) == ("add", ["5", "3", "", "", "", ""])
    assert relu.cells == [
        "35", "1", "edge 17, empty 3", "special at the head 2", "transposed 2", "forward 12, in place 4"
    ]  # fmt: skip
    assert not rows([step(latency_p50_us=300.0)], "inputs.title")


def test_what_a_log_claims_to_have_varied_is_shown_as_text():
    forged = swept("<b>relu</b>", **{"calls": 10**30, "size_<script>": 2, "values_x": float("nan"), "way_x": -1})
    [line] = rows([forged], "inputs.title")
    assert line.cells == ["0", "", "<script> 2", "", "", ""]  # which the template escapes
    page = render(summarise(Run(header=synthetic.header([forged.case]), records=(forged,))))
    assert "<script> 2" not in page
    assert "<b>relu" not in page
