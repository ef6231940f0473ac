"""Whether a run is everything: a subset is never called a full run, and a full run misses nothing in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pytest_ascend.coverage.selection import BUNDLED, NAMED, OWN, PART, CollectedCases, plan, scope
from pytest_ascend.records.case import OWN_MODEL, Case
from pytest_ascend.system.bundled import folder

RELU = Case(suite="ops", subject="relu", property="forward")
GELU = Case(suite="ops", subject="gelu", property="forward", level="standard")
SLOW = Case(suite="ops", subject="slow", property="forward", level="full")
MINE = Case(suite="user", subject="test_mine.py::test_x", property="test")
FROZEN = (RELU, GELU, SLOW)


def collected(*cases: Case, deselected: int = 0) -> CollectedCases:
    return CollectedCases(cases={f"node::{case.id}": case for case in cases}, deselected=deselected)


def planned(found: CollectedCases, *, where: str = BUNDLED, narrowed_by: tuple[str, ...] = ()) -> tuple[set[str], str]:
    cases, narrowed = plan(found, FROZEN, level="standard", scope=where, paths=("some/path",), narrowed_by=narrowed_by)
    return {case.id for case in cases}, narrowed


def test_everything_of_the_level_is_a_full_run() -> None:
    assert planned(collected(RELU, GELU)) == ({RELU.id, GELU.id}, "")


def test_a_case_that_was_lost_without_anybody_asking_is_due_all_the_same() -> None:
    assert planned(collected(RELU)) == ({RELU.id, GELU.id}, "")


def test_what_a_worker_tells_is_what_it_collected() -> None:
    found = replace(collected(RELU), elsewhere={"node": GELU})
    assert msgspec.json.decode(msgspec.json.encode(found), type=CollectedCases) == found


def test_a_keyword_makes_a_subset() -> None:
    cases, narrowed = planned(collected(RELU, deselected=1), narrowed_by=("-k relu",))
    assert cases == {RELU.id}
    assert "-k relu" in narrowed


def test_a_keyword_that_leaves_nothing_out_makes_no_subset() -> None:
    assert planned(collected(RELU, GELU), narrowed_by=("-k forward",)) == ({RELU.id, GELU.id}, "")


def test_a_keyword_that_leaves_out_what_the_manifest_does_not_know_makes_a_subset() -> None:
    assert planned(collected(RELU, GELU, deselected=1), narrowed_by=("-k forward",))[1] == "-k forward"


def test_cases_that_another_plugin_deselected_make_a_subset() -> None:
    assert planned(collected(RELU, deselected=1)) == ({RELU.id}, "1 deselected")


def test_a_node_id_makes_a_subset() -> None:
    cases, narrowed = planned(collected(RELU), where=PART)
    assert cases == {RELU.id}
    assert "some/path" in narrowed


def test_tests_of_ones_own_are_never_a_full_run() -> None:
    cases, narrowed = planned(collected(MINE), where=OWN)
    assert cases == {MINE.id}
    assert "own" in narrowed


def test_tests_of_ones_own_beside_all_of_the_suites_are_a_full_run() -> None:
    assert planned(collected(MINE, RELU, GELU), where=OWN) == ({MINE.id, RELU.id, GELU.id}, "")


def test_tests_of_ones_own_are_no_full_run_even_where_nothing_is_due() -> None:
    _, narrowed = plan(collected(MINE), (), level="smoke", scope=OWN, paths=("t.py",), narrowed_by=())
    assert narrowed


def test_what_a_worker_collected_survives_the_way_to_its_controller() -> None:
    found = collected(RELU, MINE, deselected=3)
    assert msgspec.json.decode(msgspec.json.encode(found), type=CollectedCases) == found


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((), BUNDLED),
        (("suites",), BUNDLED),
        (("suites/ops",), PART),
        (("suites/ops/test_x.py::test_y[ops/relu]",), PART),
        (("suites", "tests"), OWN),
        (("tests",), OWN),
        (("suites-of-mine",), OWN),
    ],
)
def test_paths_tell_what_is_asked_of_the_suites(tmp_path: Path, paths: tuple[str, ...], expected: str) -> None:
    assert scope(paths, tmp_path.resolve() / "suites", tmp_path) == expected


def test_what_an_option_chooses_is_named_by_it_and_is_there() -> None:
    _, narrowed = plan(
        collected(MINE), (), level="smoke", scope=PART, paths=("/x/suites/user/model.py",), narrowed_by=()
    )
    assert narrowed == OWN_MODEL
    assert [path for path in NAMED if not (folder("suites") / path).exists()] == []
