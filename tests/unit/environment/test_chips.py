"""What is known of chips: each has its source, and a name finds the right one."""

import re

import pytest

from pytest_ascend.environment.chips import CHIPS, DEFAULT, NPUS, chip_of, family, npu_of
from pytest_ascend.errors import UsageError


def test_every_figure_has_a_source_and_every_npu_a_family():
    assert all(each.source for each in CHIPS)
    assert [each.name for each in NPUS if family(each.name) is None] == []
    assert DEFAULT in [each.name for each in NPUS]
    assert len({each.name for each in CHIPS}) == len(CHIPS)


def test_a_chip_is_found_by_its_own_name_before_any_pattern():
    assert [each.name for each in CHIPS if each.name.startswith("Ascend") and chip_of(each.name) != each] == []


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("Ascend910ProA", "Ascend910A"),
        ("Ascend310P1", "Ascend310P3"),
        ("NVIDIA H100 80GB HBM3", "H100 (SXM)"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB (SXM)"),
    ],
)
def test_what_drivers_call_it_finds_its_speed(driver_name, name):
    assert chip_of(driver_name).name == name
    assert chip_of(driver_name).half_flop_per_s > 0


@pytest.mark.parametrize("name", ["Ascend910", "Ascend910B", "Ascend910B9", "NVIDIA A100-SXM4-40GB", ""])
def test_of_a_chip_that_is_not_known_nothing_is_said(name):
    assert chip_of(name) is None


def test_a_user_may_leave_out_the_prefix_and_gets_npus_only():
    assert npu_of("910b4").name == "Ascend910B4"
    with pytest.raises(UsageError, match=re.escape("no chip 'H100 (SXM)' is known")) as raised:
        npu_of("H100 (SXM)")
    assert "Ascend910B3" in str(raised.value)
