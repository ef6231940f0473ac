"""Each machine gives the findings that it must, and no other."""

from __future__ import annotations

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


def test_every_rule_is_seen_at_work() -> None:
    elsewhere = {"emulated", "npu-smi.failed", "npu-smi.late", "file.unreadable"}  # in test_survey.py
    seen = {finding for box in ALL.values() for finding in box.finds.split()} | elsewhere
    assert {rule.id for rule in RULES} == seen
