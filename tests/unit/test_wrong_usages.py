"""Wrong usages: what went wrong in a line, what to do in a hint, exit code 4, and never a traceback."""

from __future__ import annotations

import sys

import pytest

from pytest_ascend import cli

pytest_plugins = ["pytester"]

OF_PYTEST = (
    ("--ascend-level=smoke",),
    ("--ascend-device=emulated",),
    ("--ascend-suite=ops",),
    ("--ascend-emulate=fault=gelu-by-sigmoid",),
    ("--ascend-resume",),
    ("--ascend", "--ascend-suite=modles"),
    ("--ascend", "--ascend-suite=ops", "test_own.py"),
    ("--ascend", "--ascend-suite=ops", "--ascend-model=a:b"),
    ("--ascend", "--ascend-shard=3"),
    ("--ascend", "--ascend-shard=0/2"),
    ("--ascend", "--ascend-shard=3/2"),
    ("--ascend", "--ascend-ranks=many"),
    ("--ascend", "--ascend-ranks=0"),
    ("--ascend", "--ascend-baselines=slowdown=-1"),
    ("--ascend", "--ascend-baselines=slowdown=much"),
    ("--ascend", "--ascend-deadline=soon"),
    ("--ascend", "--ascend-deadline=case=-5"),
    ("--ascend", "--ascend-against=no-such-run"),
    ("--ascend", "--ascend-baselines=no-such-folder"),
    ("--ascend", "--ascend-baselines=update=yes"),
    ("--ascend", "--ascend-model=input=2x3"),
    ("--ascend", "--pdb", "--ascend-isolation=on"),
    ("--ascend", "--ascend-emulate=memory=lots"),
)
OF_COMMANDS = (
    ("report", "rendr"),
    ("report", "render"),
    ("report", "render", "no-such-run"),
    ("report", "render", "empty"),
    ("report", "render", "not-a-log"),
    ("report", "summary", "no-such-run"),
    ("report", "export", "not-a-log", "--format", "junit"),
    ("report", "export", "no-such-run", "--format", "pdf"),
    ("report", "diff", "no-such-run"),
    ("report", "diff", "no-such-run", "no-such-run"),
    ("report", "diff", "not-a-log", "not-a-log", "--speed", "fast"),
    ("report", "diff", "not-a-log", "not-a-log", "--fail-on", "everything"),
    ("report", "merge", "-o", "out"),
    ("report", "merge", "no-such-run", "-o", "out"),
    ("report", "merge", "not-a-log"),
    ("report", "matrix"),
    ("report", "matrix", "no-such-run"),
    ("report", "history"),
    ("report", "history", "empty"),
    ("report", "history", "no-such-run"),
    ("no-such-command",),
    ("--no-such-option",),
)


@pytest.mark.parametrize("arguments", OF_PYTEST, ids=" ".join)
def test_pytest_says_what_is_wrong_and_what_to_do(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makepyfile(test_own="def test(): pass")
    found = pytester.runpytest_inprocess(*arguments)
    said = [line for line in found.errlines if line.strip()]
    assert found.ret == pytest.ExitCode.USAGE_ERROR, found.errlines
    assert len(said) <= 3
    assert "Traceback" not in "".join(found.errlines + found.outlines)
    assert any("hint: " in line for line in said), said


@pytest.mark.parametrize("arguments", OF_COMMANDS, ids=" ".join)
def test_a_command_says_what_is_wrong(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "not-a-log").write_text("{}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["pytest-ascend", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    assert end.value.code == 4, said
    errors = [line for line in said.err.splitlines() if line.strip()]
    assert 1 <= len(errors) <= 6
    assert "Traceback" not in said.err
    assert said.out == ""


def test_a_path_that_does_not_exist_leaves_the_last_report_alone(pytester: pytest.Pytester) -> None:
    report = pytester.mkdir("ascend-report")
    (report / "run.jsonl").write_text("the last run", encoding="utf-8")
    (report / "conformance.html").write_text("the last page", encoding="utf-8")
    found = pytester.runpytest_subprocess("--ascend", "--ascend-device=cpu", "--ascend-report=ascend-report", "typo.py")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert (report / "run.jsonl").read_text(encoding="utf-8") == "the last run"
    assert (report / "conformance.html").read_text(encoding="utf-8") == "the last page"
