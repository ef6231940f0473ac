"""CONTRIBUTING.md leads to files and names that exist, and its recipes work when one follows the page alone."""

import importlib.util
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_path_exists():
    named = re.findall(r"`((?:pytest_ascend|suites|tests|baselines|docs|\.ci)/[\w/.]+)`", TEXT)
    assert len(named) >= 15
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_link_leads_somewhere():
    assert [link for link in re.findall(r"\]\(([\w/.]+)\)", TEXT) if not (ROOT / link).exists()] == []


def test_the_names_of_recipes_are_in_the_code():
    code = {
        "Suite": "pytest_ascend/system/suites.py",
        "LANGUAGES": "pytest_ascend/verdict/phrase.py",
        "assert_same": "tests/emulator/both.py",
    }
    for name, path in code.items():
        assert f"`{name}`" in TEXT
        assert re.search(rf"^(?:class |def )?{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
            name,
            path,
        )


def lint(folder, *files):
    """Run the project's own ruff and mypy on files of a copy, where they are installed; torch's types take a minute."""
    if not importlib.util.find_spec("ruff") or not importlib.util.find_spec("mypy"):
        return
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings += '\n[[tool.mypy.overrides]]\nmodule = ["torch.*", "torch"]\nfollow_imports = "skip"\n'
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    of_torch = [each for each in files if "import torch" in (folder / each).read_text(encoding="utf-8")]
    typed = [each for each in files if each not in of_torch or each.startswith("suites/identities")]
    typing = ["mypy", "--follow-imports=silent", *typed]
    for command in (["ruff", "check", *files], ["ruff", "format", "--check", *files], typing):
        done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def edits():
    """Return each edit that the page asks for: file, whether below the line, the line, and what to write there."""
    found = re.findall(r"[Ii]n\s+`([\w/.]+)`, (above|below)\s+`([^`]+)`[^:]*:\n\n((?:    .*\n|\n)+?)(?=\S)", TEXT)
    return [(path, where == "below", line, text.rstrip()) for path, where, line, text in found]


def test_the_recipes_work_in_a_copy(tmp_path):
    copy = tmp_path / "pytest_ascend"
    left_out = shutil.ignore_patterns("__pycache__", "*.c", "*.h")
    shutil.copytree(ROOT / "pytest_ascend", copy, ignore=left_out)
    shutil.copytree(ROOT / "suites", tmp_path / "suites", ignore=left_out)
    asked = edits()
    assert len(asked) == 9, [edit[:3] for edit in asked]
    for path, below, line, text in asked:
        file = tmp_path / path
        content = file.read_text(encoding="utf-8")
        (start,) = (match.start() for match in re.finditer(rf"^{re.escape(line)}", content, re.MULTILINE))
        end = content.index("\n", start) + 1
        at_top = text.lstrip().startswith(("def ", "@"))
        block = "\n".join(
            each[4:] if at_top or path.endswith((".json", ".txt")) else each for each in text.splitlines()
        )
        place = end if below else start
        file.write_text(content[:place] + block + ("\n\n\n" if at_top else "\n") + content[place:], encoding="utf-8")
    words = copy / "verdict" / "words"
    shutil.copy(words / "en.json", words / "de.json")
    phrase = copy / "verdict" / "phrase.py"
    phrase.write_text(
        phrase.read_text(encoding="utf-8").replace('"zh": "中文"}', '"zh": "中文", "de": "Deutsch"}'), encoding="utf-8"
    )
    (tmp_path / "check.py").write_text(CHECK, encoding="utf-8")
    ran = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    write_suite(tmp_path / "suites" / "identities")
    suite = ("suites/identities/__init__.py", "suites/identities/test_identities.py")
    lint(tmp_path, *sorted({path for path, *_ in asked if path.endswith(".py")}), *suite)


def write_suite(suite):
    """Write the suite of the page into a folder; return the commands that it names then."""
    recipe = TEXT.partition("### 5.")[2].partition("### 6.")[0]
    blocks = re.findall(r"(?:^    .*\n(?:\n+(?=    ))?)+", recipe, re.MULTILINE)
    texts = [textwrap.dedent(block).strip() + "\n" for block in blocks]
    suite.mkdir()
    for name, text in zip(("__init__.py", "test_identities.py", "suite.json"), texts, strict=False):
        (suite / name).write_text(text, encoding="utf-8")
    return [line.split() for line in texts[3].splitlines()]


def test_the_suite_of_the_page_runs(tmp_path):
    left_out = shutil.ignore_patterns("__pycache__", "*.c", "*.h")
    shutil.copytree(ROOT / "pytest_ascend", tmp_path / "pytest_ascend", ignore=left_out)
    (tmp_path / "baselines").symlink_to(ROOT / "baselines")
    shutil.copytree(ROOT / "suites" / "errors", tmp_path / "suites" / "errors", ignore=left_out)
    shutil.copy(ROOT / "suites" / "__init__.py", tmp_path / "suites")
    commands = write_suite(tmp_path / "suites" / "identities")
    assert [command[0] for command in commands] == ["pytest-ascend", "pytest"]
    for module, (_, *arguments) in zip(("pytest_ascend.cli", "pytest"), commands, strict=True):
        device = ["--ascend-device=cpu", "-p", "no:cacheprovider"] if module == "pytest" else []
        command = [sys.executable, "-m", module, *arguments, *device]  # forks have imported another pytest_ascend
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all 2 cases passed" in ran.stdout
    log = (tmp_path / "ascend-report" / "run.jsonl").read_text(encoding="utf-8")
    assert "identities/roll/forward" in log


CHECK = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import json, pathlib
import pytest_ascend
assert pathlib.Path(pytest_ascend.__file__).is_relative_to(pathlib.Path.cwd())
from pytest_ascend.doctor import RULES
from pytest_ascend.doctor.settings import debug_sync
from pytest_ascend.emulator.faults import find_fault
from pytest_ascend.environment import compatibility
from pytest_ascend.environment.chips import family
from pytest_ascend.precision import compare
from pytest_ascend.verdict.columns import columns_of, headings
from pytest_ascend.verdict.phrase import LANGUAGES, say
from pytest_ascend.emulator.kernels import all_kernels
from suites import ops
import torch
frozen = json.loads(pathlib.Path("suites/manifest.json").read_text("utf-8"))["cases"]
frozen = (each for each in frozen if each["suite"] == "ops")
frozen = {(each["subject"], each["property"], each["dtype"]): each["level"] for each in frozen}
levels = {(each.subject, each.property, each.dtype): each.level for each in ops.CASES}
assert {key: levels.get(key) for key in frozen} == frozen
assert {subject for subject, *_ in levels.keys() - frozen.keys()} == {"swish"}
assert "aclnnSwish" in [kernel.name for kernel in all_kernels()]
for value, agrees in ((1.004, True), (1.006, False)):
    assert compare(torch.tensor([value]), torch.tensor([1.0]), standard="half-percent").agrees is agrees
(rule,) = (each for each in RULES if each.id == "settings.debug-sync")
class Survey: environ = {"MY_DEBUG_SYNC": "1"}
assert [each.rule for each in debug_sync(Survey)] == [rule.id]
assert "family" in [each.name for each in columns_of("page")]
assert "2.99.0" in compatibility.BUNDLED.read_text("utf-8") and compatibility.load()
assert family("Ascend970X").name == "970"
assert find_fault("relu-lets-through")
assert LANGUAGES["de"] == "Deutsch" and headings("de") and say("verdict.conforms").text("de")
"""
