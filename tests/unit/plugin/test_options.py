"""Reading options: what is given is checked once, and becomes something that cannot change."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from pytest_ascend.emulator.settings import OPTIONS
from pytest_ascend.errors import UsageError
from pytest_ascend.plugin.options import is_on, names, only_looks, read, unused_options
from pytest_ascend.plugin.startup import narrowing


def given(**values: object) -> argparse.Namespace:
    standard: dict[str, object] = {
        "ascend": True,
        "ascend_device": None,
        "ascend_level": None,
        "ascend_baselines": None,
        "ascend_against": None,
        "ascend_shard": None,
        "ascend_ranks": None,
        "ascend_challenge": None,
        "ascend_timestamp": None,
        "ascend_report": None,
        "ascend_standard": None,
        **{each.metadata["old"].removeprefix("--").replace("-", "_"): None for each in OPTIONS},
        "ascend_emulate": [],
        "ascend_certify": [],
        "ascend_fault": [],
        "ascend_expectations": [],
        "ascend_slowdown": None,
        "ascend_store_goldens": False,
        "ascend_isolation": None,
        "ascend_case_deadline": None,
        "ascend_deadline": None,
        "ascend_resume": False,
        "ascend_suite": [],
        "ascend_model": None,
        "ascend_model_input": None,
        "ascend_library": None,
        "ascend_cases": None,
        "ascend_explore": None,
        "ascend_seed": None,
        "usepdb": False,
        "trace": False,
        "help": False,
        "version": 0,
        "keyword": "",
        "markexpr": "",
        "deselect": None,
        "ignore": None,
        "ignore_glob": None,
        "file_or_dir": [],
    }
    return argparse.Namespace(**standard | values)


def test_the_report_lies_below_the_folder_that_pytest_was_started_in(tmp_path: Path) -> None:
    assert read(given(ascend_report="here"), tmp_path).report == tmp_path / "here"


def test_baselines_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        read(given(ascend_baselines="nowhere"), tmp_path)


def test_a_file_for_baselines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="there is no folder"):
        read(given(ascend_baselines="file", ascend_store_goldens=True), tmp_path)


def test_goldens_are_never_stored_in_the_bundled_baselines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bundled baselines"):
        read(given(ascend_store_goldens=True), tmp_path)


def test_a_folder_for_goldens_may_be_made_by_storing(tmp_path: Path) -> None:
    options = read(given(ascend_store_goldens=True, ascend_baselines="new"), tmp_path)
    assert options.baselines == tmp_path / "new"


def test_every_option_stands_in_the_log(tmp_path: Path) -> None:
    options = read(given(ascend_fault=["stale-add"], ascend_emulated_memory="1G", ascend_slowdown="7%"), tmp_path)
    logged = json.loads(json.dumps(options.to_dict()))
    assert logged["faults"] == ["stale-add"]
    assert (logged["emulated_memory_bytes"], logged["slowdown"], logged["isolation"]) == (2**30, 0.07, "auto")
    short = {
        name.removeprefix("--ascend-").replace("-", "_")
        for name in names()
        if name not in {"--ascend", "--ascend-certify"}
    }
    assert not {each for each in short if not any(key.startswith(each) for key in logged)}


def test_a_text_that_is_no_value_names_its_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--ascend-baselines=slowdown='much'"):
        read(given(ascend_slowdown="much"), tmp_path)


def test_help_is_no_run() -> None:
    assert not is_on(given(help=True))


def test_a_namespace_without_the_option_is_no_run() -> None:
    assert not is_on(argparse.Namespace())


def test_collecting_only_executes_nothing() -> None:
    assert only_looks(given(collectonly=True))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"keyword": "relu"}, ("-k relu",)),
        ({"markexpr": "slow"}, ("-m slow",)),
        ({"lf": True}, ("--lf",)),
        ({"deselect": ["a", "b"]}, ("--deselect a b",)),
        ({}, ()),
    ],
)
def test_what_narrows_a_run_is_named(values: dict[str, object], expected: tuple[str, ...]) -> None:
    assert narrowing(given(**values)) == expected


def test_inputs_without_a_model_are_refused() -> None:
    with pytest.raises(UsageError, match="has no effect without a model"):
        read(given(ascend_model_input="2x3"), Path())


def test_suites_are_named_with_commas_or_again(tmp_path: Path) -> None:
    assert read(given(ascend_suite=["fusion,models", "ops"]), tmp_path).suites == ("fusion", "models", "ops")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ascend_suite": ["fusoin"]}, "did you mean fusion?"),
        ({"ascend_suite": ["xyz"]}, "choose one of adaptation, benchmarks"),
        ({"ascend_suite": ["ops"], "file_or_dir": ["tests"]}, "--ascend-suite and a path exclude each other"),
        ({"ascend_suite": ["ops"], "ascend_model": "a:b"}, "--ascend-suite and --ascend-model exclude each other"),
        ({"ascend_suite": ["ops"], "ascend_library": "a"}, "--ascend-suite and --ascend-library exclude each other"),
        ({"ascend_library": "a", "ascend_model": "a:b"}, "--ascend-library excludes --ascend-model"),
    ],
)
def test_suites_that_cannot_be_run_are_refused(values: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read(given(**values), tmp_path)
    assert message in str(refused.value)


def test_one_option_has_all_settings_of_the_emulated_device(tmp_path: Path) -> None:
    text = "chip=310P,cann=8.1.RC1,numerics=chip:1,fault=crash:operator=Add:after=3,memory=2G,physical=4,6"
    options = read(given(ascend_emulate=[text, "fault=stale-add"]), tmp_path)
    assert (options.emulator.chip, options.emulator.cann, options.emulator.numerics) == ("310P", "8.1.RC1", "chip:1")
    assert options.emulator.faults == ("crash:operator=Add:after=3", "stale-add")
    assert (options.emulator.memory_bytes, options.emulator.physical) == (2 << 30, "4,6")
    assert options.former == ()
    again = options.arguments(is_emulated=True)
    assert {"--ascend-emulate=chip=310P", "--ascend-emulate=fault=stale-add"} <= set(again)


@pytest.mark.parametrize(
    ("text", "run", "case"),
    [("2h", 7200, 0), ("run=2h,case=60", 7200, 60), ("case=2m", 0, 120), ("90", 90, 0), ("45s,case=1.5", 45, 1.5)],
)
def test_deadlines_are_one_option(tmp_path: Path, text: str, run: float, case: float) -> None:
    options = read(given(ascend_deadline=[text]), tmp_path)
    assert (options.deadline_s, options.case_deadline_s) == (run, case)


def test_other_options_with_several_settings(tmp_path: Path) -> None:
    found = read(given(ascend_certify=["challenge=7,timestamp=http://a/b,c"]), tmp_path)
    assert (found.challenge, found.timestamp) == (7, "http://a/b,c")
    found = read(given(ascend_baselines=[f"{tmp_path},update=yes"]), tmp_path)
    assert (found.baselines, found.store_goldens) == (tmp_path, True)
    found = read(given(ascend_model=["a:f,input=8x3,2x4"]), tmp_path)
    assert (found.model, found.model_input) == ("a:f", "8x3,2x4")
    assert read(given(ascend_explore=["10m,seed=5"]), tmp_path).seed == 5


@pytest.mark.parametrize("text", ["chp=310P", "310P", "chip"])
def test_a_setting_that_is_none_names_those_that_are(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"--ascend-emulate=.*is no setting") as raised:
        read(given(ascend_emulate=[text]), tmp_path)
    assert "chip=..." in str(raised.value.hint)


def test_former_names_work_and_name_the_new_one(tmp_path: Path) -> None:
    options = read(given(ascend_fault=["stale-add"], ascend_case_deadline="60", ascend_store_goldens=False), tmp_path)
    assert (options.emulator.faults, options.case_deadline_s) == (("stale-add",), 60)
    assert [line.partition("=...")[0] for line in sorted(options.former)] == [
        "--ascend-case-deadline is now --ascend-deadline=case",
        "--ascend-fault is now --ascend-emulate=fault",
    ]


def test_an_option_without_ascend_is_given_in_vain() -> None:
    assert unused_options(given(ascend=False)) == []
    assert unused_options(given(ascend=False, ascend_level="smoke")) == ["--ascend-level"]
    assert unused_options(given(ascend=True, ascend_level="smoke")) == []


def test_a_challenge_is_a_whole_number(tmp_path: Path) -> None:
    assert read(given(), tmp_path).challenge is None
    assert read(given(ascend_challenge="007"), tmp_path).challenge == 7


@pytest.mark.parametrize("text", ["-1", "1.5", "a", "1" * 19, "٣", ""])
def test_anything_else_is_no_challenge(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"--ascend-certify=challenge=.*is not a challenge"):
        read(given(ascend_challenge=text), tmp_path)
