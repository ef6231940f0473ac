"""The command line: quick to answer, and one message for what the user can act on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pytest_ascend import __version__, cli
from pytest_ascend.errors import DeviceUnavailable, UsageError

LOADED = "import sys; sys.argv = ['pytest-ascend', '--help']; from pytest_ascend.cli import cli; "
LOADED += "cli(standalone_mode=False); print('LOADED', sorted({'torch', 'numpy', 'jinja2'} & set(sys.modules)))"


def test_help_names_every_command_and_loads_none() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in cli.COMMANDS)
    assert "LOADED []" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert __version__ in CliRunner().invoke(cli.cli, ["--version"]).output


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_answers_for_itself(name: str) -> None:
    result = CliRunner().invoke(cli.cli, [name, "--help"])
    assert result.exit_code == 0, result.output


def test_a_command_that_does_not_exist_is_refused() -> None:
    assert CliRunner().invoke(cli.cli, ["nonsense"]).exit_code == 2


@pytest.mark.parametrize("given", [["nonsense"], ["doctor", "--nonsense"], ["report", "render"]])
def test_wrong_usage_ends_with_the_code_of_wrong_usage(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest-ascend", *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert "Usage:" in capsys.readouterr().err


def test_what_the_user_can_act_on_is_a_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def broken() -> None:
        raise DeviceUnavailable("no device", hint="get one")

    monkeypatch.setattr(cli, "cli", lambda **settings: broken(args=[], **settings))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 6
    assert capsys.readouterr().err == "ERROR: no device\n  hint: get one\n"


def test_a_nul_in_an_argument_is_refused() -> None:
    for given in (["analyze", "--source", "a\0b"], ["report", "render", "a\0b"]):
        assert isinstance(CliRunner().invoke(cli.cli, given, standalone_mode=False).exception, UsageError)


def test_an_old_python_gets_one_sentence() -> None:
    program = "import sys; sys.version_info = (3, 9, 9, 'final', 0); import pytest_ascend.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith("pytest-ascend needs Python 3.10 or newer, and this is Python 3.9:")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_behind_the_output_is_one_message() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "pytest_ascend.cli", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "ERROR: the output could not be written: No space left on device\n")
