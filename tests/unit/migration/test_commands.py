"""The command ``pytest-ascend census``, on a torch_npu of two or three operators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_ascend.errors import UsageError
from pytest_ascend.migration import commands
from pytest_ascend.migration.census import encode
from pytest_ascend.records.census import Census
from pytest_ascend.system.files import write_file


def stub(**operators: str) -> Census:
    named = {name.replace("__", "::"): kind for name, kind in operators.items()}
    return Census(torch="2.13.0", torch_npu="2.13.0", torch_npu_commit="c0ffee1c0ffee1", operators=named)


TAKEN = stub(aten__add="native", aten__sin="fallback", npu__rope="native")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Be a machine whose dispatcher knows three operators; gives what it was asked for."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(commands, "bring_up", lambda *, emulated: asked.update(emulated=emulated) or emulated)
    monkeypatch.setattr(commands, "take", lambda: TAKEN)
    return asked


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands.census, list(arguments), catch_exceptions=False)


def test_operators_are_counted_with_their_versions_and_scope() -> None:
    output = run().output
    rows = {words[1]: words[3:6:2] for line in output.splitlines() if len(words := line.split()) > 5}
    assert (rows["native"], rows["fallback"], rows["missing"], rows["all"]) == (
        ["1", "1"],
        ["1", "0"],
        ["0", "0"],
        ["2", "1"],
    )
    assert "torch 2.13.0, torch_npu 2.13.0 (commit c0ffee1c0ffe)" in output
    assert "true of this torch_npu on any chip and CANN" in " ".join(output.split())


def test_the_emulated_cann_is_said_where_it_was_used() -> None:
    assert "EMULATED" in run("--emulated").output
    assert "EMULATED" not in run().output


def test_names_of_a_kind_are_shown_on_lines_of_their_own() -> None:
    lines = run("--show", "fallback", "--show", "native").output.splitlines()
    assert lines[:6] == ["aten::add", "npu::rope", "2 native", "", "aten::sin", "1 fallback"]


def test_what_is_said_of_a_chip_stands_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Census(**{**TAKEN.stack, "operators": {"aten::__lshift__.Tensor": "native", "aten::mm": "native"}})
    monkeypatch.setattr(commands, "take", lambda: taken)
    output = run("--chip", "310P3", "--show", "native").output
    assert "aten::__lshift__.Tensor  aclnnLeftShift is not documented for it\naten::mm\n" in output
    said = " ".join(output.split())
    assert "objections to 1 of the 2 native operators that it documents: 1 is not documented for it" in said
    assert "Ascend310P3 has no bfloat16 at all" in said
    assert "by torch_npu's defaults: matrix products float16, convolutions float16." in said
    on_a2 = " ".join(run("--chip", "910B3").output.split())
    assert "no bfloat16" not in on_a2
    assert "by torch_npu's defaults: matrix products float32, convolutions HF32." in on_a2


def test_json_is_the_census_and_nothing_else() -> None:
    assert run("--json").output == encode(TAKEN)


def test_the_file_is_the_json(tmp_path: Path) -> None:
    output = run("--output", str(tmp_path / "census.json")).output
    assert (tmp_path / "census.json").read_text(encoding="utf-8") == encode(TAKEN)
    assert f"census: {tmp_path / 'census.json'}" in output


@pytest.mark.parametrize(
    "arguments", [("--json", "--show", "native"), ("--json", "diff", "a", "b"), ("--emulated", "diff", "a", "b")]
)
def test_options_without_effect_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"exclude each other|has no effect before diff"):
        run(*arguments)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    write_file(tmp_path / "old.json", encode(TAKEN))
    write_file(
        tmp_path / "new.json", encode(stub(aten__add="fallback", aten__sin="native", npu__rope="composite-implicit"))
    )
    return str(tmp_path / "old.json"), str(tmp_path / "new.json")


def test_what_was_lost_gained_and_changed_is_named(files: tuple[str, str]) -> None:
    assert run("diff", *files).output.splitlines()[2:] == [
        "lost     aten::add: native -> fallback",
        "gained   aten::sin: fallback -> native",
        "changed  npu::rope: native -> composite-implicit",
        "1 lost, 1 gained, 1 changed",
    ]


def test_a_loss_is_exit_code_1(files: tuple[str, str]) -> None:
    assert run("diff", *files).exit_code == 1
    assert run("diff", *files, "--json").exit_code == 1


def test_no_loss_is_exit_code_0(tmp_path: Path) -> None:
    write_file(tmp_path / "old.json", encode(stub(aten__sin="fallback")))
    write_file(tmp_path / "new.json", encode(TAKEN))
    assert run("diff", str(tmp_path / "old.json"), str(tmp_path / "new.json")).exit_code == 0


def test_a_difference_in_json(files: tuple[str, str]) -> None:
    said = json.loads(run("diff", *files, "--json").output)
    assert (said["schema"], said["type"]) == (1, "census-diff")
    assert said["old"] == said["new"] == TAKEN.stack
    assert said["lost"] == {"aten::add": {"before": "native", "after": "fallback"}}


def test_comparing_loads_no_torch(files: tuple[str, str]) -> None:
    program = "import sys; from pytest_ascend.cli import cli; cli(sys.argv[1:], standalone_mode=False)"
    program = f"import sys, atexit; atexit.register(lambda: print('torch' in sys.modules)); {program}"
    command = [sys.executable, "-c", program, "census", "diff", files[0], files[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["0 lost, 0 gained, 0 changed", "False"]
