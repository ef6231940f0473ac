"""Each machine gives the findings that it must, and no other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ascend.doctor import RULES, Diagnosis, examine
from pytest_ascend.environment.machine import copied_machine

from .hostile import HOSTILE
from .machines import MACHINES, Box
from .trees import build

ALL = {**MACHINES, **HOSTILE}

#: A user whom nothing belongs to.
NOBODY = 54321

#: What is said of each machine, in whole: below its name each finding, its evidence, and the remedy that is its own.
SAID = {
    name: text.rstrip()
    for part in Path(__file__).with_name("said.txt").read_text(encoding="utf-8").split("== ")[1:]
    for name, _, text in [part.partition("\n")]
}


def look(box: Box, root: Path) -> Diagnosis:
    build(root, box.files)
    machine = copied_machine(root, box.environ, box.smi)
    if box.user:
        machine = replace(machine, uid=NOBODY, groups=frozenset({NOBODY}))
    return examine(machine)


@pytest.mark.parametrize("name", ALL)
def test_a_machine_gives_exactly_its_findings(name: str, tmp_path: Path) -> None:
    diagnosis = look(ALL[name], tmp_path)
    assert sorted(each.id for each in diagnosis.findings) == sorted(ALL[name].finds.split())
    for finding in diagnosis.findings:
        texts = (finding.what, *finding.evidence, finding.why, finding.remedy)
        assert all(text and text.isprintable() for text in texts)
    assert said(diagnosis) == SAID[name], "where this is meant, put the left side into said.txt"


def said(diagnosis: Diagnosis) -> str:
    usual = {rule.id: rule.remedy for rule in RULES}
    lines = []
    for each in diagnosis.findings:
        lines += [f"{each.id}: {each.what}", *(f"    {text}" for text in each.evidence)]
        lines += [f"    -> {each.remedy}"] * (each.remedy != usual.get(each.id))
        # The group is that of who runs the tests, the day is that of the table, and what is wrong a library says.
    return re.sub(r"(?<=group )\d+|(?<=as of )[\d-]+|(?<=a loadable library: ).*", "...", "\n".join(lines))


def test_every_rule_is_seen_at_work() -> None:
    elsewhere = {"emulated", "npu-smi.failed", "npu-smi.late", "file.unreadable"}  # in test_survey.py
    seen = {finding for box in ALL.values() for finding in box.finds.split()} | elsewhere
    assert {rule.id for rule in RULES} == seen
