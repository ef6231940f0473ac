"""Stored measurements: written, read, chosen; and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ascend.errors import GoldenError
from pytest_ascend.performance import baseline as files
from pytest_ascend.performance.baseline import SCHEMA, Baseline, Comparison, MeasuredRun
from pytest_ascend.performance.verdict import Estimate, estimate
from pytest_ascend.records.case import Stack

STACK = Stack(
    device="npu", emulated=False, chip="Ascend910B3", cann="8.3.RC1", torch_npu="2.7.1", torch="2.7.1", host="h"
)
NAME = "benchmarks/gelu-mlp/latency/float32"


def made(stack: Stack = STACK, recorded: str = "2026-01-01T00:00:00+00:00") -> Baseline:
    rng = np.random.default_rng(0)
    runs = tuple(MeasuredRun.of(100 * np.exp(0.004 * rng.standard_normal(100))) for _ in range(6))
    return Baseline(recorded=recorded, stack=stack, settings={}, benchmarks={NAME: runs, "other": runs})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = files.write(made(), tmp_path)
    assert path.relative_to(tmp_path).parts[:3] == ("measured", "Ascend910B3", "8.3.RC1_2.7.1")
    assert files.read(path) == made()


def test_no_field_of_a_baseline_is_lost(tmp_path: Path) -> None:
    whole = replace(made(), settings={"a": 1}, profiles={NAME: {"add": 2.5}}, work={NAME: {"flop": 3.0}})
    assert not [each.name for each in fields(whole) if not getattr(whole, each.name)]
    assert files.read(files.write(whole, tmp_path)) == whole


def test_the_exact_combination_is_preferred(tmp_path: Path) -> None:
    files.write(made(), tmp_path)
    files.write(made(replace(STACK, cann="8.2.RC1")), tmp_path)
    choice = files.choose(tmp_path, STACK, {})
    assert choice is not None
    assert choice.baseline.stack.cann == "8.3.RC1"
    assert "exactly" in choice.description


def test_else_the_nearest_older_and_it_says_so(tmp_path: Path) -> None:
    for cann in ("8.1.RC1", "8.2.RC1", "9.0.0"):
        files.write(made(replace(STACK, cann=cann)), tmp_path)
    choice = files.choose(tmp_path, STACK, {})
    assert choice is not None
    assert "nearest older baseline: CANN 8.2.RC1" in choice.description


def test_times_of_another_host_are_shown_and_decide_nothing(tmp_path: Path) -> None:
    files.write(made(replace(STACK, host="another")), tmp_path)
    comparison = Comparison(choice=files.choose(tmp_path, STACK, {}), tolerance=0.05)
    verdict = comparison.verdict(NAME, estimate([200.0] * 10), lambda: estimate([200.0] * 10))
    assert verdict is not None
    assert verdict.agrees
    assert verdict.headline.startswith("cannot tell: 10")


def test_of_other_hosts_the_newest_is_shown(tmp_path: Path) -> None:
    for cann in ("8.2.RC1", "9.0.0", "8.10.0"):
        files.write(made(replace(STACK, host="another", cann=cann)), tmp_path)
    choice = files.choose(tmp_path, STACK, {})
    assert choice is not None
    assert choice.baseline.stack.cann == "9.0.0"
    assert choice.shown_only
    assert choice.description == (
        "a baseline of another host (another), shown only: CANN 9.0.0, torch 2.7.1, torch_npu 2.7.1"
    )


def test_without_any_baseline_there_is_no_choice(tmp_path: Path) -> None:
    assert files.choose(tmp_path, STACK, {}) is None


@pytest.mark.parametrize(
    ("field", "older", "newer"),
    [
        ("cann", "8.2.RC1", "8.3.RC2"),
        ("torch_npu", "2.7.1", "2.7.2"),
        ("driver", "25.2.0", "25.5.0"),
        ("cann", "unknown", "8.10.0"),
    ],
)
def test_an_older_version_of_any_part_is_taken_and_a_newer_is_not(
    tmp_path: Path, field: str, older: str, newer: str
) -> None:
    stack = replace(STACK, cann="8.3.RC1", torch_npu="2.7.1.post1", driver="25.3.0")
    files.write(made(replace(stack, **{field: newer}), recorded="newer"), tmp_path)
    assert files.choose(tmp_path, stack, {}) is None
    (tmp_path / "both").mkdir()
    for each in (older, newer):
        files.write(made(replace(stack, **{field: each}), recorded=each), tmp_path / "both")
    choice = files.choose(tmp_path / "both", stack, {})
    if field == "driver":
        assert choice is None or choice.baseline.recorded == older, "one file for both drivers"
        return
    assert choice is not None
    assert choice.baseline.recorded == older
    assert not choice.shown_only
    assert choice.description.startswith("the nearest older baseline: ")
    assert choice.description.endswith(f"driver 25.3.0, of {older}")


def test_another_build_of_a_version_is_not_the_same_combination_but_no_newer_one(tmp_path: Path) -> None:
    cuda = replace(STACK, device="cuda", torch_npu="", torch="2.7.1+cu128", cann="")
    files.write(made(replace(cuda, torch="2.7.1+cpu")), tmp_path)
    choice = files.choose(tmp_path, cuda, {})
    assert choice is not None
    assert choice.description.startswith("the nearest older baseline: torch 2.7.1+cpu")


def test_a_place_names_chip_and_versions_and_hides_the_host() -> None:
    assert files.place(STACK).parts[:2] == ("Ascend910B3", "8.3.RC1_2.7.1")
    emulated = replace(STACK, emulated=True, chip="", cann="9.0.0 (emulated)", torch_npu="")
    assert files.place(emulated).parts[:2] == ("emulated-npu", "9.0.0-emulated_2.7.1")
    assert files.place(replace(STACK, chip="../..", cann="")).parts[:2] == ("none", "none_2.7.1")
    host = files.place(STACK).name
    assert len(host) == len("0123456789ab.json")
    assert host != files.place(replace(STACK, host="i")).name


def test_an_emulated_device_is_never_compared_with_a_real_one(tmp_path: Path) -> None:
    files.write(made(), tmp_path)
    assert files.choose(tmp_path, replace(STACK, emulated=True), {}) is None


def test_a_slowdown_has_to_show_twice(tmp_path: Path) -> None:
    files.write(made(), tmp_path)
    comparison = Comparison(choice=files.choose(tmp_path, STACK, {}), tolerance=0.05)
    slow, usual = Estimate(value=np.log(120), error=0, scale="log of microseconds"), estimate([99.5] * 10)
    once = comparison.verdict(NAME, slow, lambda: usual)
    twice = comparison.verdict(NAME, slow, lambda: slow)
    assert once is not None
    assert twice is not None
    assert (once.agrees, twice.agrees) == (True, False)
    assert twice.headline.startswith("slower: 2")


@pytest.mark.parametrize(("second_us", "agrees"), [(100.5, True), (102.5, False)])
def test_the_second_look_may_be_less_certain_than_the_first(tmp_path: Path, second_us: float, agrees: bool) -> None:
    files.write(made(), tmp_path)
    comparison = Comparison(choice=files.choose(tmp_path, STACK, {}), tolerance=0.05)
    slow, second = (Estimate(value=np.log(us), error=0, scale="log of microseconds") for us in (110, second_us))
    verdict = comparison.verdict(NAME, slow, lambda: second)
    assert verdict is not None
    assert verdict.agrees is agrees


def test_a_benchmark_without_baseline_gets_no_verdict(tmp_path: Path) -> None:
    files.write(made(), tmp_path)
    comparison = Comparison(choice=files.choose(tmp_path, STACK, {}), tolerance=0.05)
    assert (
        comparison.verdict("benchmarks/new/latency/float32", estimate([1.0, 1.0]), lambda: estimate([1.0, 1.0])) is None
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.clear(),
        lambda data: data.update(schema=99),
        lambda data: data.update(benchmarks=[]),
        lambda data: data["benchmarks"][NAME][0]["estimate"].update(value="x"),
        lambda data: data["benchmarks"][NAME][0].update(percentiles_us=[1.0]),
        lambda data: data["benchmarks"][NAME][0]["estimate"].update(error=-1),
        lambda data: data["benchmarks"][NAME][0]["estimate"].update(pace=1e999),
        lambda data: data["benchmarks"][NAME][0]["estimate"].update(value=1e999),
        lambda data: data["benchmarks"][NAME][0]["percentiles_us"].append(1.0),
        lambda data: data["benchmarks"][NAME][0]["percentiles_us"].__setitem__(3, 1e999),
        lambda data: data["work"].update({NAME: {"flop": "many"}}),
        lambda data: data["profiles"].update({NAME: 3}),
        lambda data: data["benchmarks"].update({NAME: 3}),
        lambda data: data.pop("stack"),
        lambda data: data.pop("benchmarks"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: object) -> None:
    path = files.write(made(), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)  # type: ignore[operator]
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(GoldenError, match="is not a baseline"):
        files.choose(tmp_path, STACK, {})


def test_what_may_be_without_error_or_with_none_that_is_known_is_read() -> None:
    for error in (0.0, float("inf")):
        data = {"schema": SCHEMA, **asdict(made())}
        data["benchmarks"][NAME][0]["estimate"]["error"] = error
        assert Baseline.from_dict(data).benchmarks[NAME][0].estimate.error == error


@pytest.mark.parametrize("name", ["value", "pace", "percentile"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_each_figure_of_a_run_is_a_number(name: str, value: float) -> None:
    run = made().benchmarks[NAME][0]
    wrong: dict[str, Any] = {"percentiles_us": (*run.percentiles_us[:7], value, *run.percentiles_us[8:])}
    if name != "percentile":
        wrong = {"estimate": replace(run.estimate, **{name: value})}
    with pytest.raises(ValueError, match="not a number"):
        replace(run, **wrong)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write(made(), tmp_path)
    monkeypatch.setattr(files, "LARGEST_BYTES", path.stat().st_size)
    assert files.read(path) == made()
    monkeypatch.setattr(files, "LARGEST_BYTES", path.stat().st_size - 1)
    with pytest.raises(GoldenError):
        files.read(path)


def test_percentiles_are_stored_to_six_digits() -> None:
    run = MeasuredRun.of([1.23456789, 1.23456789])
    assert set(run.percentiles_us) == {1.23457}
    assert set(files.pooled_us([run, run])) == {1.23457}
    steps = MeasuredRun.of([float(each) for each in range(1, 102)])
    assert steps.percentiles_us == tuple(range(1, 102))


def test_a_run_without_a_pace_had_none(tmp_path: Path) -> None:
    data = {"schema": SCHEMA, **asdict(made())}
    for run in data["benchmarks"][NAME]:
        del run["estimate"]["pace"]
    assert [run.estimate.pace for run in Baseline.from_dict(data).benchmarks[NAME]] == [0.0] * 6


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = files.write(made(), tmp_path)
    moved = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(moved)
    with pytest.raises(GoldenError, match="no regular file"):
        files.read(path)


def test_the_runs_of_a_baseline_count_alike_when_pooled() -> None:
    low, high = (MeasuredRun.of([value] * count) for value, count in ((100.0, 10), (200.0, 1000)))
    pooled = files.pooled_us([low, high])
    assert len(pooled) == files.PERCENTILES
    assert (pooled[0], pooled[25], pooled[75], pooled[100]) == (100, 100, 200, 200)
