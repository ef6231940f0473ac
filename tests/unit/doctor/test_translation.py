"""Every sentence of the doctor has Chinese words, which name the same values."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from pytest_ascend.doctor import RULES, settings
from pytest_ascend.system.translation import CHINESE, ENGLISH, translated

from .machines import MACHINES
from .test_commands import invoke
from .test_machines import ALL, look

#: A remedy that is a command stands as it is.
COMMANDS = ("pip install ", "source /")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_why_and_remedy_of_each_rule_have_chinese_words(rule):
    assert translated(rule.why, CHINESE) != rule.why
    assert translated(rule.remedy, CHINESE) != rule.remedy or rule.remedy.startswith(COMMANDS)


def test_the_effect_of_each_variable_has_chinese_words():
    assert [told for *_, told in settings.SETTINGS.values() if translated(told, CHINESE) == told] == []


@pytest.mark.parametrize("name", MACHINES)
def test_every_finding_is_said_in_chinese_with_its_values(name: str, tmp_path: Path) -> None:
    for finding in look(ALL[name], tmp_path).findings:
        for text in (finding.what, finding.remedy):
            said = translated(text, CHINESE)
            assert said != text or text.startswith(COMMANDS)
            numbers = re.findall(r"\d+\.\d+[\w.]*", text)
            assert [each for each in numbers if each.rstrip(".") not in said] == []


@pytest.mark.parametrize("package", ["doctor", "migration", "distributed"])
def test_both_languages_have_the_same_places_for_values(package: str) -> None:
    table = json.loads((files(f"pytest_ascend.{package}") / "zh.json").read_text(encoding="utf-8"))
    holes = re.compile(r"\{\d\}")
    different = [each for each, words in table.items() if {*holes.findall(each)} != {*holes.findall(words)}]
    assert different == []


def test_what_nobody_translated_stands_as_it_is():
    assert translated("a finding of a later release", CHINESE) == "a finding of a later release"
    assert translated("unset one of them", ENGLISH) == "unset one of them"


def test_the_command_speaks_chinese(tmp_path: Path) -> None:
    result = invoke(tmp_path, "torch-npu-of-another-cann", "--language=zh")
    assert result.exit_code == 1
    for said in ("torch_npu 2.1.0.post10 与 CANN 8.5.0 不配套", "最接近的官方配套", "原因", "处理", "个错误"):
        assert said in result.output
