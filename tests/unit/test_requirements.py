"""Every case of the suites covers a requirement, by an id that a reader can look up."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_ascend.coverage import manifest
from pytest_ascend.system.bundled import folder
from tools.requirements import covered, requirements

ROOT = Path(__file__).parents[2]


def test_every_case_covers_a_requirement_and_every_requirement_is_covered() -> None:
    found = covered(each.id for each in manifest.load(folder("suites")))
    assert not found.pop("", [])[:5], "add the requirement of these cases to suites/requirements.json"
    assert not [name for name, cases in found.items() if not cases]


def test_requirements_have_ids_and_sentences_and_stand_on_the_page() -> None:
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    ids = [str(each["id"]) for each in requirements()]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"NPU-[A-Z]+-\d{3}", each) for each in ids)
    assert all(
        str(each["says"]).endswith(".") and f"| {each['id']} | {each['says']} |" in page for each in requirements()
    )
