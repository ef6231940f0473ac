"""Cards are shared between runs by locks that the kernel gives back, and one that is busy is no dead one."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ascend.errors import DeviceUnavailable
from pytest_ascend.isolation import cards
from pytest_ascend.isolation.cards import Card, Locks

BUSY = "RuntimeError: SetPrecisionMode ... error code is 507899 ... EL0005: The resources are busy."


def test_two_runs_get_different_cards(tmp_path: Path) -> None:
    first, second, third = Locks(tmp_path), Locks(tmp_path), Locks(tmp_path)
    both = (("davinci0",), ("davinci1",))
    assert first.take(both, 1) == (0,)
    assert second.take(both, 2) == (1,)
    assert third.take(both, 1) == ()
    first.close()
    assert third.take(both, 1) == (0,)


def test_two_runs_that_call_different_cards_by_the_same_index_do_not_exclude_each_other(tmp_path: Path) -> None:
    assert Locks(tmp_path).take([("davinci0",)], 1) == (0,)
    held = Locks(tmp_path)
    assert held.take([("davinci1",)], 1) == (0,)


def test_one_shared_name_is_enough(tmp_path: Path) -> None:
    held = Locks(tmp_path)
    assert held.take([("davinci5", "bus-0000-41-00.0")], 1) == (0,)
    assert Locks(tmp_path).take([("bus-0000-41-00.0",)], 1) == ()
    assert Locks(tmp_path).take([("davinci5",)], 1) == ()


def test_asking_for_a_card_that_is_taken_leaves_no_file_open(tmp_path: Path) -> None:
    held, other = Locks(tmp_path), Locks(tmp_path)
    assert held.take([("a",)], 1) == (0,)
    files = Path("/proc/self/fd")
    before = len([*files.iterdir()])
    assert [other.take([("a",)], 1) for _ in range(5)] == [()] * 5
    assert len([*files.iterdir()]) == before


def test_a_name_that_is_taken_gives_the_others_back(tmp_path: Path) -> None:
    held, other = Locks(tmp_path), Locks(tmp_path)
    assert held.take([("b",)], 1) == (0,)
    assert other.take([("a", "b")], 1) == ()
    assert other.take([("a",)], 1) == (0,)


def test_without_a_folder_the_network_excludes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers that share the host's network and no folder."""
    name = f"test-{os.getpid()}"
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    monkeypatch.setattr(cards.tempfile, "gettempdir", lambda: str(tmp_path / "one"))
    held = Locks()
    assert held.take([(name,)], 1) == (0,)
    monkeypatch.setattr(cards.tempfile, "gettempdir", lambda: str(tmp_path / "two"))
    assert Locks().take([(name,)], 1) == ()
    held.close()
    assert Locks().take([(name,)], 1) == (0,)


def test_the_folder_is_for_all_users_and_nobody_removes_anothers_locks(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Locks(tmp_path / "locks").take([("davinci0",)], 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777
    assert stat.S_IMODE((tmp_path / "locks" / "davinci0.lock").stat().st_mode) == 0o644


def test_a_folder_of_locks_is_made_with_those_above_it(tmp_path: Path) -> None:
    assert Locks(tmp_path / "a" / "b").take([("davinci0",)], 1) == (0,)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o1777


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeviceUnavailable, match="PYTEST_ASCEND_CARD_LOCKS"):
        Locks(tmp_path / "file").take([("davinci0",)], 1)


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from pytest_ascend.isolation.cards import Locks
locks = Locks(pathlib.Path({str(tmp_path)!r}))
assert locks.take([("davinci0",)], 1) == (0,)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert Locks(tmp_path).take([("davinci0",)], 1) == (0,)


def test_a_card_that_recovers_is_kept() -> None:
    card = Card(label="npu:0", index=0)
    for failure in ("zeros came", "", "zeros came", ""):
        card.started(failure)
    assert not card.quarantined


def test_a_busy_card_is_waited_for_ever_longer() -> None:
    card = Card(label="npu:0", index=0)
    assert [card.started(BUSY) for _ in range(6)] == pytest.approx([1, 2, 4, 8, 16, 30], abs=0.1)
    assert not card.quarantined
    assert card.started("") == 0
    assert card.started(BUSY) == pytest.approx(1, abs=0.1)


def test_a_card_that_stays_busy_is_told_from_a_dead_one() -> None:
    card = Card(label="npu:0", index=0, busy_limit_s=0)
    card.started(BUSY)
    assert card.quarantined.startswith("busy for")


@pytest.mark.parametrize("limit_s", [300.0, 100.0, 7.0, 0.5])
def test_a_busy_card_is_asked_for_its_whole_time_and_then_given_up(
    limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = 1000.0, []
    monkeypatch.setattr("pytest_ascend.isolation.cards.time.monotonic", lambda: now)
    card = Card(label="npu:0", index=0, busy_limit_s=limit_s)
    while not card.quarantined:
        asked.append(now - 1000)
        now += card.started(BUSY)
    assert asked[-1] == pytest.approx(limit_s)
    assert card.quarantined == f"busy for {limit_s:.0f} s, in {len(asked)} fresh processes: {BUSY}"
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses[:-1] == [min(2.0**place, 30.0) for place in range(len(pauses) - 1)]


def test_a_card_that_is_dead_is_asked_twice_after_a_pause() -> None:
    card = Card(label="npu:0", index=0)
    assert (card.started("zeros came"), card.quarantined) == (2.0, "")
    assert card.started("") == 0.0
    card.started("zeros came")
    card.started("nothing came")
    assert card.quarantined == "in 2 fresh processes one after the other: nothing came"


def test_three_cases_that_go_well_elsewhere_are_the_cards_fault() -> None:
    card = Card(label="npu:0", index=0)
    for task in (1, 1, 2, 2, 1):
        card.suspect(task)
    assert card.quarantined == ""
    card.suspect(3)
    assert card.quarantined == "3 cases went wrong here and well on another card"
