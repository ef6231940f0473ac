"""Shards: every case in exactly one, of about equal length, and what belongs together stays together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.coverage import manifest, shards
from pytest_ascend.coverage.shards import Shard, part
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system.bundled import folder


def case(subject: str, name: str = "forward", dtype: str = "float32") -> Case:
    return Case(suite="ops", subject=subject, property=name, dtype=dtype)


CASES = [case(f"op{index}", name) for index in range(40) for name in ("forward", "backward")]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_every_case_is_in_exactly_one_shard(count: int) -> None:
    parts = [part(CASES, {}, Shard(index + 1, count)) for index in range(count)]
    assert sum(map(len, parts)) == len(CASES)
    assert frozenset().union(*parts) == {each.id for each in CASES}


def test_what_one_operator_or_model_shares_stays_together() -> None:
    for ids in (part(CASES, {}, Shard(index, 4)) for index in range(1, 5)):
        assert {each.replace("forward", "backward") for each in ids} == {
            each.replace("backward", "forward").replace("forward", "backward") for each in ids
        }
        assert sum("forward" in each for each in ids) == sum("backward" in each for each in ids)


def test_shards_are_of_about_equal_length() -> None:
    durations = {each.id: 1.0 + index % 7 for index, each in enumerate(CASES)}
    lengths = [sum(durations[each] for each in part(CASES, durations, Shard(index, 3))) for index in (1, 2, 3)]
    assert max(lengths) < 1.1 * min(lengths)


def test_the_order_of_the_cases_does_not_matter() -> None:
    assert part(CASES, {}, Shard(2, 3)) == part(reversed(CASES), {}, Shard(2, 3))


def test_the_bundled_suites_are_divided_evenly() -> None:
    suites = folder("suites")
    durations = shards.load(suites)
    cases = [each for each in manifest.load(suites) if each.is_in("standard")]
    parts = [part(cases, durations, Shard(index, 4)) for index in range(1, 5)]
    lengths = [sum(durations.get(each, shards.USUAL_S) for each in ids) for ids in parts]
    assert max(lengths) < 1.3 * min(lengths)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "-1/2", "1/0", "a/b", "1/2/3", "1/1001", "²/2"])
def test_what_is_no_part_of_a_whole_is_one_clear_message(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a part of a whole\n  hint: "):
        shards.parse(text)


def test_durations_are_kept_for_what_takes_long(tmp_path: Path) -> None:
    records = [
        ResultRecord.of(case(name), "t", Passed(), duration_s=seconds)
        for name, seconds in (("slow", 1.2345), ("quick", 0.001))
    ]
    (tmp_path / shards.NAME).write_text(shards.encode(records), encoding="utf-8")
    assert shards.load(tmp_path) == {"ops/slow/forward/float32": 1.2}


def test_without_durations_cases_count_alike(tmp_path: Path) -> None:
    assert shards.load(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}', '{"schema": 1, "durations_s": {"a": "b"}}'])
def test_damaged_durations_are_one_clear_message(tmp_path: Path, text: str) -> None:
    (tmp_path / shards.NAME).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="the durations cannot be read"):
        shards.load(tmp_path)
