"""One device in the numbering of torch, the runtime, the driver and npu-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.environment.identity import identities, visible
from pytest_ascend.environment.npu_smi import NpuSmi, parse, parse_map
from pytest_ascend.isolation.cards import Locks
from tests.unit.environment.test_npu_smi import OUTPUTS


def _table(start: str) -> str:
    return next(printed for title, (printed, _) in OUTPUTS.items() if title.startswith(start))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0,1", (0, 1)),
        ("1", (1,)),
        ("3,0", (3, 0)),
        ("0,9,1", (0,)),
        ("", ()),
        ("0,0,1", (0,)),
        ("x", ()),
        (" 2 ", (2,)),
    ],
)
def test_the_runtime_shows_devices_up_to_the_first_wrong_entry(text: str, shown: tuple[int, ...]) -> None:
    assert visible({"ASCEND_RT_VISIBLE_DEVICES": text}, 4) == shown


def test_all_devices_without_the_variable() -> None:
    assert visible({}, 3) == (0, 1, 2)


def test_a_310p_duo_whose_npu_begins_at_1(tmp_path: Path) -> None:
    table, mapped = parse(_table("310P Duo")), parse_map(_table("info -m of a 310P Duo"))
    first, second = identities({}, [0, 1], table, mapped)
    assert (first.npu, first.chip, first.physical, first.bus) == (1, 0, 0, "0000:01:00.0")
    assert (second.npu, second.chip, second.physical) == (1, 1, 1)
    assert Locks(tmp_path).take([first.keys, second.keys], 2) == (0, 1)


def test_a_container_with_two_cards_of_eight_in_turned_order() -> None:
    first, second = identities({"ASCEND_RT_VISIBLE_DEVICES": "1,0"}, [4, 6], NpuSmi())
    assert (first.index, first.logical, first.physical) == (0, 1, 6)
    assert (second.index, second.logical, second.physical) == (1, 0, 4)


def test_two_dies_of_an_a3_are_one_npu_with_two_chips() -> None:
    table = parse(_table("A3, the last card"))
    first, second = identities({}, [14, 15], table)
    assert (first.npu, first.chip, first.physical) == (7, 0, 14)
    assert (second.npu, second.chip, second.physical) == (7, 1, 15)
    assert second.label == "npu:1 (NPU 7 chip 1, /dev/davinci15, bus 0000:1B:00.0)"


def test_a_950_has_no_chip_number() -> None:
    (only,) = identities({}, [0], parse(_table("950, whose")))
    assert (only.npu, only.chip) == (0, -1)


def test_what_the_runtime_says_goes_before_what_is_guessed() -> None:
    (only,) = identities({}, [0], NpuSmi(), physical=[5], buses=["0000:41:00.0"])
    assert only.keys == ("davinci5", "bus-0000-41-00.0")


def test_a_table_of_more_devices_than_there_are_files_is_not_guessed_from() -> None:
    table = parse(_table("910B3, 24.1.0.3"))
    (only,) = identities({}, [3], table)
    assert only.npu == -1


def test_without_any_number_the_index_itself_is_the_key() -> None:
    (only,) = identities({"ASCEND_RT_VISIBLE_DEVICES": "0"}, [], NpuSmi(), parse_map("NPU ID Chip ID Chip Name\n0 0 x"))
    assert only.keys == ("npu-0",)


def test_a_950_is_asked_without_a_chip_though_its_map_has_one() -> None:
    table, mapped = parse(_table("950, whose")), parse_map(_table("info -m of a 950"))
    first = identities({}, [0, 1], table, mapped)[0]
    assert (first.npu, first.chip, first.physical) == (0, -1, 0)
