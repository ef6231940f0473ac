"""Every command that the documentation shows is run, is parsed with its options, or says what it needs."""

import contextlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pytest_ascend.cli import COMMANDS, cli
from pytest_ascend.errors import AscendError
from pytest_ascend.plugin import options
from tests.forks import apart
from tests.unit.runlog import synthetic

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "baselines/README.md")),
]
#: What a command may need beside an installed pytest-ascend; it stands behind the command, as in "# needs an NPU".
NEEDS = {"an NPU", "pytest-xdist", "Docker", "a certificate", "a checkout", "minutes", "CANN"}
#: Programs of others: no test of ours starts them.
OTHERS = ("docker", "source", "tar", "env", "git", "mkdocs", "python3 -m venv", "python -m pip", "pip", "twine")
_COMMAND = re.compile(r"^ {4,}((?:pytest-ascend|pytest|python3?|docker|source|tar|env|git|mkdocs|pip|twine)\b.*)$")


def _commands() -> dict[str, Path]:
    """Return each command of the documents, without its comment, with a page that shows it."""
    found = {}
    for page in PAGES:
        fenced = False
        for line in re.sub(r" *\\\n +", " ", page.read_text(encoding="utf-8")).splitlines():
            fenced ^= line.lstrip().startswith("```")
            match = None if fenced else _COMMAND.match(line)
            if match:
                found.setdefault(match[1], page)
    return found


def _is_marked(command: str) -> bool:
    _, _, comment = command.partition("  # needs ")
    return bool(comment)


SHOWN = _commands()
RUNNABLE = dict.fromkeys(command.partition("  #")[0].strip() for command in SHOWN if not _is_marked(command))
OURS = [command for command in RUNNABLE if not command.startswith(OTHERS)]


def test_there_are_commands_and_what_they_need_is_known():
    assert len(OURS) > 40
    marked = [each.partition("  # needs ")[2] for each in SHOWN if _is_marked(each)]
    needs = {need for each in marked for need in each.split(", ")}
    assert needs <= NEEDS, needs - NEEDS


# --- pytest --ascend: options are parsed and read as pytest does it ---------------------------------------------------


def _parsed(arguments):
    from _pytest.config import get_config

    from pytest_ascend import plugin

    config = get_config()
    config.pluginmanager.import_plugin("xdist.plugin")
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)
    config._parser.addini("required_plugins", "none", type="args")
    return config._parser.parse(arguments)


@pytest.mark.parametrize("command", [each for each in OURS if re.match(r"pytest(?!-)|python3? -m pytest", each)])
def test_the_options_of_a_run_are_what_they_look_like(command, tmp_path):
    # A recipe of CONTRIBUTING makes this suite first.
    arguments = shlex.split(command.replace("--ascend-suite=identities", "--ascend-suite=ops"))[1:]
    (tmp_path / "known.json").write_text("{}", encoding="utf-8")
    (tmp_path / "goldens").mkdir()
    arguments = [each for each in arguments if not re.match(r"(suites/|test_\w+\.py|NAME)", each)]
    given = _parsed(arguments)
    assert given.ascend or command == "pytest"
    assert options.read(given, tmp_path).level


# --- pytest-ascend: commands on logs are run, the others parsed -------------------------------------------------------

#: Commands that this file runs: they work on files alone. The others take seconds, a device or the bundled goldens,
#: are run by tests of their own rooms, and have their arguments parsed here.
RUN_HERE = ("report", "doctor", "certificate-key", "certify", "verify", "revoke", "baseline published")
RUNS = ("RUN", "BEFORE", "AFTER", "OLDER", "LAST", "TONIGHT", "ascend-report", "report")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with what the commands of the documents name."""
    folder = tmp_path_factory.mktemp("documents")
    cases = synthetic.op_cases(12)
    for name in RUNS:
        synthetic.write_log(folder / name / "run.jsonl", cases)
    CliRunner().invoke(cli, ["certificate-key", str(folder / "held.key")], catch_exceptions=False)
    (folder / "old.json").write_text("{}", encoding="utf-8")
    return folder


def _expanded(command, tmp_path):
    """Return the arguments with placeholders filled in."""
    command = command.partition(" >> ")[0].replace("RUN...", "RUN").replace("junit|csv|json|crcr|github", "junit")
    command = re.sub(r"\bNUMBER\b", "00000000000000000000000000000000", command).replace("-o FILE", "-o file.xml")
    return shlex.split(command)[1:]


@pytest.mark.parametrize("command", [each for each in OURS if each.startswith("pytest-ascend ")])
def test_a_command_of_pytest_ascend_is_one(command, workplace, tmp_path, monkeypatch):
    arguments = _expanded(command, tmp_path)
    if not command.removeprefix("pytest-ascend ").startswith(RUN_HERE) or "PART" in command or "part-" in command:
        _parse(arguments)
        return
    monkeypatch.chdir(tmp_path)
    for name in (*RUNS, "held.key", "held.key.pub"):
        target = name.replace("held", "vendor")
        if "certificate-key" not in command and (workplace / name).exists():
            (tmp_path / target).symlink_to(workplace / name)
    ran = CliRunner().invoke(cli, arguments)
    usage = isinstance(ran.exception, click.UsageError) or ran.exit_code == 2
    assert not usage, ran.output
    # NUMBER and the like are no certificates: what is refused in words is fine.
    assert ran.exception is None or isinstance(ran.exception, AscendError | SystemExit), ran.exception


def _parse(arguments):
    """Have click read the arguments of a command without running it; a name that is nowhere is a UsageError."""
    context = click.Context(cli, info_name="pytest-ascend")
    command = cli
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        inner = command.get_command(context, arguments[0])
        if inner is None:
            break
        command, arguments = inner, arguments[1:]
    with contextlib.suppress(click.BadParameter):  # a file of the reader's
        command.make_context("x", list(arguments))


def test_every_command_has_a_document():
    shown = {each.split()[1] for each in SHOWN if each.startswith("pytest-ascend ")}
    assert not set(COMMANDS) - shown


# --- the tutorials, as their readers go through them ------------------------------------------------------------------


def _files(page: Path) -> dict[str, str]:
    text = page.read_text(encoding="utf-8")
    found = re.findall(r'```(?:python|json) title="([\w./]+)"\n(.*?)```', text, re.DOTALL)
    return {name: re.sub(r"  # .*", "", content) for name, content in found}  # comments are translated


@pytest.mark.parametrize("name", ["laptop", "migration", "nightly", "certification", "kernel-author"])
def test_the_chinese_tutorial_has_the_same_commands_and_files(name):
    english, chinese = (ROOT / "docs" / "tutorials" / f"{name}{suffix}.md" for suffix in ("", ".zh"))
    assert _files(english) == _files(chinese)
    steps = [
        [line for line in page.read_text(encoding="utf-8").splitlines() if _COMMAND.match(line)]
        for page in (english, chinese)
    ]
    assert steps[0] == steps[1]


HOW_TOS = sorted(page.name.removesuffix(".zh.md") for page in (ROOT / "docs").glob("*.zh.md"))


def _code(page: Path) -> list[str]:
    """Return the blocks of Python and YAML of a page, without comments, which are translated."""
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [re.sub(r"  # .*", "", block) for block in blocks]


@pytest.mark.parametrize("name", [each for each in HOW_TOS if each not in ("index", "reference")])
def test_the_chinese_page_shows_commands_and_code_of_the_english_one(name):
    english, chinese = (ROOT / "docs" / f"{name}{suffix}.md" for suffix in ("", ".zh"))
    shown = [
        [match[1] for line in page.read_text(encoding="utf-8").splitlines() if (match := _COMMAND.match(line))]
        for page in (english, chinese)
    ]
    assert shown[1]
    assert [each for each in shown[1] if each not in shown[0]] == []
    assert _code(chinese) == _code(english)


def test_the_tests_of_the_tutorials_pass(pytester):
    for name in ("laptop", "migration", "kernel-author"):
        for file, text in _files(ROOT / "docs" / "tutorials" / f"{name}.md").items():
            (pytester.path / file).write_text(text, encoding="utf-8")
    files = ["test_layers.py", "test_my_block.py", "test_my_op.py"]
    assert all((pytester.path / file).exists() for file in files)
    ran = apart(pytester, "--ascend", "--ascend-device=emulated", *files)
    assert ran.ret == 0
    counts = ran.parseoutcomes()
    assert counts["passed"] + counts["waived"] > 10


# --- the reference and the site ---------------------------------------------------------------------------------------


def test_the_reference_is_what_the_code_says():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for language, name in enumerate(("reference.md", "reference.zh.md")):
        assert reference.page(language) == (ROOT / "docs" / name).read_text(encoding="utf-8"), (
            "run python tools/reference.py"
        )


def test_no_option_is_without_help():
    assert "|  |" not in (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    program = Path(sys.executable).with_name("mkdocs")
    if not program.exists():
        pytest.skip("needs mkdocs, of the extra 'docs'")
    built = subprocess.run(  # noqa: PLW1510
        [program, "build", "--strict", "-q", "-d", tmp_path / "site"], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50
    link = r'<link[^>]+rel="(?:stylesheet|preload)"[^>]+href="https?:'
    loads = re.compile(rf'<(?:script|img|iframe)[^>]+src="https?:|{link}')
    assert not [page for page in pages if loads.search(page.read_text(encoding="utf-8"))]
    assert (tmp_path / "site" / "zh" / "tutorials" / "laptop" / "index.html").exists()
    shutil.rmtree(tmp_path / "site")
