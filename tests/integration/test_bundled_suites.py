"""With no path given the bundled suites run, in whatever folder, and the manifest accounts for every case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.coverage.manifest import write
from pytest_ascend.records.case import Case
from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]

SUITE = """
import pytest
from pytest_ascend.records.case import Case

CASES = [Case(suite="small", subject=name, property="p", level=level) for name, level in {cases}]

@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_small(case, npu_device, ascend_measure):
    ascend_measure("latency_us", 1)
    assert case.subject != "wrong"
"""
THREE = [("one", "smoke"), ("two", "standard"), ("three", "full")]


@pytest.fixture
def suites(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put small suites, with a manifest, in the place of the bundled ones, in a virtual environment."""
    environment = tmp_path_factory.mktemp("venv")
    (environment / "pyvenv.cfg").touch()
    folder = environment / "suites"
    (folder / "small").mkdir(parents=True)
    set_cases(folder, THREE, THREE)
    monkeypatch.setattr("pytest_ascend.plugin.startup.folder", lambda name: folder.parent / name)
    return folder


def set_cases(folder: Path, collected: list[tuple[str, str]], frozen: list[tuple[str, str]]) -> None:
    (folder / "small/test_small.py").write_text(SUITE.format(cases=collected), encoding="utf-8")
    write(folder, [Case(suite="small", subject=name, property="p", level=level) for name, level in frozen])


def test_they_run_where_no_path_is_given(ascend: Run, suites: Path, lines: Lines) -> None:
    result = ascend(paths=())
    assert result.ret == 0
    result.assert_outcomes(passed=2, deselected=1)
    assert lines("header")[0]["selection"] == {"kind": "full", "reason": ""}


@pytest.mark.parametrize(("level", "count"), [("smoke", 1), ("standard", 2), ("full", 3)])
def test_a_level_includes_the_ones_before(ascend: Run, suites: Path, lines: Lines, level: str, count: int) -> None:
    ascend(f"--ascend-level={level}", paths=())
    header = lines("header")[0]
    assert header["level"] == level
    assert len(header["manifest"]) == len(lines("record")) == count
    assert header["selection"]["kind"] == "full"


def test_an_unknown_level_is_refused(ascend: Run, suites: Path) -> None:
    result = ascend("--ascend-level=extreme", paths=())
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--ascend-level*extreme*"])


def test_the_tests_of_the_folder_they_are_started_in_do_not_matter(
    ascend: Run, suites: Path, pytester: pytest.Pytester, lines: Lines
) -> None:
    pytester.makeini(
        """
        [pytest]
        python_files = check_*.py
        python_functions = check
        norecursedirs = suites small
        filterwarnings = error
        testpaths = mine
        addopts = --strict-markers
        """
    )
    pytester.makeconftest("raise ImportError('for other tests')")
    pytester.mkdir("mine").joinpath("check_mine.py").write_text("def test_x(): assert False", encoding="utf-8")
    result = ascend(paths=())
    assert result.ret == 0
    assert len(lines("record")) == 2


def test_suites_in_a_virtual_environment_inside_the_folder_are_found(
    ascend: Run, suites: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = pytester.path / ".venv/lib/suites"
    inside.parent.mkdir(parents=True)
    (pytester.path / ".venv/pyvenv.cfg").touch()
    suites.rename(inside)
    monkeypatch.setattr("pytest_ascend.plugin.startup.folder", lambda name: inside.parent / name)
    pytester.makeini("[pytest]\n")
    ascend(paths=()).assert_outcomes(passed=2, deselected=1)


def test_the_place_that_is_recorded_runs_the_case_again(ascend: Run, suites: Path, lines: Lines) -> None:
    ascend(paths=())
    place = lines("record")[0]["node_id"]
    result = ascend(paths=(place,))
    result.assert_outcomes(passed=1)
    header = lines("header")[0]
    assert header["selection"]["kind"] == "subset"
    assert place.rpartition("/suites/")[2] in header["selection"]["reason"]
    assert len(header["manifest"]) == 1


def test_the_folder_of_the_suites_as_a_path_is_the_full_run(ascend: Run, suites: Path, lines: Lines) -> None:
    ascend(paths=(str(suites),))
    assert lines("header")[0]["selection"]["kind"] == "full"


def test_a_case_that_the_suites_have_lost_is_due_and_the_run_does_not_conform(
    ascend: Run, suites: Path, lines: Lines
) -> None:
    set_cases(suites, THREE[:1], THREE)
    result = ascend(paths=())
    assert result.ret == 1
    header = lines("header")[0]
    assert header["selection"]["kind"] == "full"
    assert [case["id"] for case in header["manifest"]] == ["small/one/p", "small/two/p"]
    result.stdout.fnmatch_lines(["*1 not-run*"])


def test_no_case_at_all_is_no_success(ascend: Run, suites: Path) -> None:
    set_cases(suites, [], THREE)
    assert ascend(paths=()).ret == 5


def test_a_damaged_manifest_is_one_message(ascend: Run, suites: Path) -> None:
    (suites / "manifest.json").write_text("{", encoding="utf-8")
    result = ascend(paths=())
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: the manifest of the bundled suites cannot be read*manifest.json*"])


def test_stopping_at_the_first_failure_leaves_the_rest_not_run(ascend: Run, suites: Path, lines: Lines) -> None:
    cases = [("one", "smoke"), ("wrong", "smoke"), ("two", "smoke")]
    set_cases(suites, cases, cases)
    result = ascend("-x", paths=())
    assert result.ret == 1
    result.stdout.fnmatch_lines(["1 failed, 1 not-run, 1 passed"])
    assert lines("header")[0]["selection"]["kind"] == "full"


@pytest.mark.parametrize("option", ["-k one", "-k not two"])
def test_what_narrows_the_run_makes_it_a_subset(ascend: Run, suites: Path, lines: Lines, option: str) -> None:
    result = ascend(*option.split(" ", 1), paths=())
    header = lines("header")[0]
    assert header["selection"]["kind"] == "subset"
    assert option in header["selection"]["reason"]
    result.stdout.fnmatch_lines(["*subset*"])
    assert result.ret == 0


def test_the_last_failures_are_a_subset(ascend: Run, suites: Path, lines: Lines) -> None:
    cases = [("one", "smoke"), ("wrong", "smoke")]
    set_cases(suites, cases, cases)
    ascend(paths=())
    ascend("--lf", paths=())
    header = lines("header")[0]
    assert header["selection"] == {"kind": "subset", "reason": "--lf"}
    assert [case["id"] for case in header["manifest"]] == ["small/wrong/p"]


def test_a_case_that_two_tests_decide_is_refused(ascend: Run, suites: Path) -> None:
    set_cases(suites, [THREE[0], THREE[0]], THREE)
    result = ascend(paths=())
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*two tests decide the case small/one/p*"])


def test_collecting_only_writes_nothing(ascend: Run, suites: Path, pytester: pytest.Pytester) -> None:
    assert ascend("--collect-only", paths=()).ret == 0
    assert not (pytester.path / "ascend-report").exists()


#: Suites of torch_npu's own operators, and of several devices.
NOT_FOR_ONE_CPU = ("fused", "graphs", "inference", "distributed")


def test_the_ones_that_come_with_the_package_are_all_in_the_manifest(ascend: Run, pytester: pytest.Pytester) -> None:
    from pytest_ascend.coverage import manifest
    from pytest_ascend.system.bundled import folder

    result = ascend("--collect-only", "-q", "--ascend-level=full", paths=())
    collected = [line for line in result.outlines if "::" in line]
    assert result.ret == 0
    frozen = [case for case in manifest.load(folder("suites")) if case.suite not in NOT_FOR_ONE_CPU]
    assert len(collected) == len(frozen)
