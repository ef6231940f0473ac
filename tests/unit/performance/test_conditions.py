"""How a card is while something is timed on it: the right card is asked, while it works, and who else uses it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_ascend.environment.identity import Identity
from pytest_ascend.environment.npu_smi import ELSEWHERE, OTHERS
from pytest_ascend.performance.benchmarking import card_conditions, remarks

#: Answers as npu-smi does: the clock is high while somebody works (a file is there), for which it waits, else low.
NPU_SMI = """#!/bin/sh
echo "$*" >> {folder}/asked
if [ "$2" = -t ]; then
    clock=800
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e {folder}/working ] && clock={clock} && break; sleep 0.1; done
    printf '\tNPU ID : 5\n\n\tChip ID : {chip}\n\tAicore Freq(MHZ) : 1800\n'
    printf '\tAicore curFreq(MHZ) : %s\n\tTemperature(C) : 46\n\n\tChip Name : mcu\n\tTemperature(C) : 38\n' $clock
else
    echo "| 5     910B3               | OK            | 98.9        38                0    / 0             |"
    echo "| {chip}                         | 0000:C1:00.0  | 0           0    / 0          43382/ 65536         |"
    echo "{processes}"
fi
"""
CARD = Identity(index=0, logical=0, physical=5, npu=5, chip=0, bus="0000:C1:00.0")


def asked(
    folder: Path, patch: pytest.MonkeyPatch, card: Identity = CARD, *, processes: str = "", clock: int = 1800
) -> dict[str, float]:
    """Ask how a card is that works meanwhile."""
    program = folder / "npu-smi"
    program.write_text(
        NPU_SMI.format(folder=folder, clock=clock, chip=max(card.chip, 0), processes=processes), encoding="utf-8"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return card_conditions(card, (folder / "working").touch)


@pytest.mark.parametrize(
    ("card", "which"),
    [
        (CARD, "-i 5 -c 0"),
        (Identity(index=1, npu=1, chip=1), "-i 1 -c 1"),
        (Identity(index=0, npu=3), "-i 3"),
    ],
    ids=["A2", "310P, whose numbers begin at 1", "950, which takes no -c"],
)
def test_npu_smi_is_asked_by_its_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: Identity, which: str
) -> None:
    asked(tmp_path, monkeypatch, card)
    assert f"info -t common {which}" in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()


def test_a_card_is_asked_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(tmp_path, monkeypatch)
    assert (found["npu_frequency_mhz"], found["npu_rated_frequency_mhz"]) == (1800, 1800)
    assert found["npu_temperature_c"] == 46, "the chip's, and not the board's"
    assert not [each for each in remarks(found) if "throttled" in each]


def test_a_card_that_works_below_its_clock_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(tmp_path, monkeypatch, clock=1200)
    assert "the card was throttled: 1200 of 1800 MHz" in remarks(found)


def test_a_card_that_npu_smi_does_not_know_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(tmp_path, monkeypatch, Identity(index=0)) == {}


#: Of no session here: Linux numbers processes up to 2**22. Number 1 is of our session in a container.
NOT_HERE = 2**22 + 1
OURS = f"| 5       0                 | {os.getpid()} | python3 | 31000 |\n"
THEIRS = f"| 5 0 | {NOT_HERE} | python3 | 9000 |\n"


@pytest.mark.parametrize(
    ("processes", "mb"),
    [
        (OURS, 0),
        (OURS + THEIRS, 9000),
        (OURS + THEIRS.replace("| 5 ", "| 6 "), 0),
        (THEIRS, 0),
        ("", 0),
    ],
    ids=["ours", "another one", "on another card", "another namespace", "a container"],
)
def test_other_processes_count_where_the_table_has_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str, mb: int
) -> None:
    found = asked(tmp_path, monkeypatch, processes=processes)
    assert found[OTHERS] == mb * 2**20
    assert bool([each for each in remarks(found) if "others used" in each]) is (mb > 0)


def test_memory_that_nobody_here_holds_shows_others_in_a_container() -> None:
    assert not remarks({ELSEWHERE: 3.5 * 2**30})
    (said,) = remarks({ELSEWHERE: 31 * 2**30})
    assert said == "others used the card: 31.0 GiB of its memory were not this process's (npu_memory_elsewhere_bytes)"
