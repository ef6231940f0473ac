"""What the judge finds is said in Chinese, too: headlines, patterns and titles of causes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from pytest_ascend.precision import compare
from pytest_ascend.system.bundled import table as bundled
from pytest_ascend.system.translation import CHINESE, translated

Wrong = Callable[[torch.Tensor], torch.Tensor]
WRONG: dict[str, Wrong] = {
    "tail": lambda x: torch.cat([x.flatten()[:-16], torch.zeros(16)]).reshape(x.shape),
    "column": lambda x: x.index_fill(1, torch.tensor(3), 0.0),
    "half": lambda x: x.half().float(),
    "sign": lambda x: -x,
    "factor": lambda x: x * 1.5,
    "offset": lambda x: x + 0.25,
    "one": lambda x: x.index_put((torch.tensor(5), torch.tensor(7)), torch.tensor(9.0)),
    "neighbours": lambda x: x.roll(1, 1),
    "reordered": lambda x: x.flip(0),
    "unrelated": lambda x: torch.linspace(-1, 1, x.numel()).reshape(x.shape),
    "nan": lambda x: x.index_fill(0, torch.tensor(2), torch.nan),
    "infinite": lambda x: x.index_fill(0, torch.tensor(2), torch.inf),
    "scattered": lambda x: torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.2, x + 1, x),
    "shape": lambda x: x[:5],
    "bits": lambda x: (x * 100).int(),
}
#: Names that Chinese engineers write in English, too.
NAMES = r"float\w*|bfloat16|int\d+|torch\.\w+|dtype|ulp|NaN|Inf|TF32|HF32|maximum|minimum|clamp|or|a|an|output\S*"


def left(text: str) -> list[str]:
    """Return the English words that a translation still has."""
    return re.findall(r"[A-Za-z]{2,}[a-z]*", re.sub(rf"\b({NAMES})\b", "", translated(text, CHINESE, "findings")))


@pytest.mark.parametrize("name", WRONG)
def test_headline_and_pattern_have_no_english_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether an earlier test of this process has opened an NPU, whose settings would be named, plays no part.
    monkeypatch.setattr("pytest_ascend.precision.diagnosis.of_chip", lambda: (frozenset(), ()))
    expected = torch.randn(24, 40, generator=torch.Generator().manual_seed(1))
    exact = name != "bits"
    verdict = compare(WRONG[name](expected), expected.double() if exact else (expected * 100).int() + 1, name="output")
    assert not verdict.agrees
    assert left(verdict.headline) == []
    assert [each for each in verdict.pattern.split("; ") if left(each)] == []


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        (
            "mine: 2 of 3 parts differ; mine[0]: 1 of 9 elements differ",
            "mine：共 3 个部分，其中 2 个不一致；mine[0]：共 9 个元素，其中 1 个不一致",
        ),
        (
            "first wrong layer: 1 (GELU); root mean square error: 0.1, allowed 0.01",
            "第一个出错的层：1（GELU）；均方根误差为 0.1，允许 0.01",
        ),
        ("aten::sort computed on the CPU", "aten::sort 由 CPU 计算"),
        ("what nobody translated: stays", "what nobody translated: stays"),
    ],
)
def test_parts_of_a_finding_are_translated_by_themselves(text: str, chinese: str) -> None:
    assert translated(text, CHINESE, "findings") == chinese


def test_every_meaning_of_a_code_that_this_project_words_has_chinese_words():
    meanings = {row[1] for part in ("codes", "numbering") for row in bundled("environment/kinds.json")[part]}
    assert [each for each in meanings if translated(each, CHINESE, "findings") == each] == []
