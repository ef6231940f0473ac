"""What CANN takes on which chip, by the official documentation."""

from __future__ import annotations

import pytest

from pytest_ascend.emulator.choices import checked_chip
from pytest_ascend.environment import chips
from pytest_ascend.environment.chips import FAMILIES
from pytest_ascend.errors import UsageError


def test_the_data_name_their_sources() -> None:
    assert len(chips.sources()) == 4
    assert all("commit" in each for each in chips.sources())


@pytest.mark.parametrize("family", [each.name for each in FAMILIES if not each.bfloat16])
@pytest.mark.parametrize("operator", ["Abs", "Add", "NoPageIsAboutThis"])
def test_chips_without_bfloat16_have_it_in_no_operator(operator: str, family: str) -> None:
    assert "BFLOAT16" in chips.refused(operator, family)
    assert "BFLOAT16" not in chips.refused(operator, "A2")


def test_a_page_takes_dtypes_back_for_a_product() -> None:
    assert chips.refused("Abs", "310P") >= {"COMPLEX32", "COMPLEX64"}


def test_an_operator_of_torch_has_the_objections_of_what_it_calls() -> None:
    assert chips.objections("abs", ["bfloat16"], "310P") == ("aclnnAbs does not take BFLOAT16 there",)
    assert chips.objections("abs", ["float32"], "310P") == ()
    assert chips.objections("exp", ["float32"], "310P") == ("aclnnExp is not documented for it",)
    assert chips.objections("no.such", ["bfloat16"], "310P") == ()


@pytest.mark.parametrize(
    ("text", "chip"),
    [("", "Ascend910B1"), ("310P", "Ascend310P3"), ("Ascend310P3", "Ascend310P3"), ("910B", "Ascend910B1")],
)
def test_a_chip_is_named_in_short_or_in_full(text: str, chip: str) -> None:
    assert checked_chip(text) == chip


def test_a_chip_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no chip 'H100'"):
        checked_chip("H100")
