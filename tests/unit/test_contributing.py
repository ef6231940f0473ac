"""CONTRIBUTING.md leads to files and names that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_path_exists():
    named = re.findall(r"`((?:pytest_ascend|suites|tests|baselines|docs|\.ci)/[\w/.]+)`", TEXT)
    assert len(named) >= 15
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_link_leads_somewhere():
    assert [link for link in re.findall(r"\]\(([\w/.]+)\)", TEXT) if not (ROOT / link).exists()] == []


def test_every_recipe_names_something_that_is_in_the_code():
    code = {
        "SUITES": "pytest_ascend/page/sections.py",
        "COLUMNS": "pytest_ascend/verdict/columns.py",
        "FAULTS": "pytest_ascend/emulator/faults.py",
        "LANGUAGES": "pytest_ascend/verdict/phrase.py",
        "Family": "pytest_ascend/environment/chips.py",
        "assert_same": "tests/emulator/both.py",
    }
    for name, path in code.items():
        assert f"`{name}`" in TEXT
        assert re.search(rf"^(?:class |def )?{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)


def test_the_row_of_the_first_recipe_is_a_row_of_the_catalogue():
    (row,) = re.findall(r"^    (Operator\(.*\),)$", TEXT, re.MULTILINE)
    assert row in (ROOT / "suites/ops/families/activation.py").read_text()
