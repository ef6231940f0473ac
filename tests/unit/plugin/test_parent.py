"""The cards of a run are locked, those of ranks among them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.errors import DeviceUnavailable, RunLogError
from pytest_ascend.isolation.cards import Locks
from pytest_ascend.plugin.hooks import RunState
from pytest_ascend.plugin.parent import _cards


def _machine(count: int = 4, device: str = "auto", ranks: int = 0) -> Any:
    """Return the settings of a run on a machine with NPUs."""
    named = lambda index: SimpleNamespace(keys=(f"card-{index}",), label=f"npu:{index}")  # noqa: E731
    npu = SimpleNamespace(kind="npu", emulated=False)
    first = int(device.partition(":")[2] or 0)
    indices = (first, *(each for each in range(count) if each != first))
    prepared = SimpleNamespace(device=npu, indices=indices, identity=named)
    return SimpleNamespace(prepared=prepared, options=SimpleNamespace(device=device, ranks=ranks))


def _locked(locks: Locks, wanted: int | str, ranks: int = 0, **machine: Any) -> tuple[list[int], list[int]]:
    """Return the indices of the cards of a run, and of the devices of its ranks."""
    cards, on = _cards(_machine(**machine), locks, wanted, ranks)
    return [each.index for each in cards], [*on]


def test_ranks_use_cards_that_this_run_has_locked(tmp_path: Path) -> None:
    mine, theirs = Locks(tmp_path), Locks(tmp_path)
    assert _locked(mine, 1, ranks=3) == ([0], [0, 1, 2])
    assert _locked(theirs, "auto") == ([3], [])
    mine.close()
    theirs.close()
    assert _locked(mine, 4, ranks=2) == ([0, 1, 2, 3], [0, 1])
    mine.close()


def test_ranks_use_the_cards_that_are_free(tmp_path: Path) -> None:
    mine, theirs = Locks(tmp_path), Locks(tmp_path)
    assert _locked(theirs, 1, device="npu:1") == ([1], [])
    assert _locked(mine, 1, ranks=2) == ([0], [0, 2])
    mine.close()
    assert _locked(mine, 1, ranks=2, device="npu:3") == ([3], [3, 0])
    mine.close()
    assert _locked(mine, "auto", ranks=4) == ([0, 2, 3], [0, 2, 3])
    mine.close()
    with pytest.raises(DeviceUnavailable, match="other runs on this machine hold npu:1"):
        _locked(mine, 1, ranks=2, device="npu:1")
    theirs.close()


def test_more_ranks_than_cards_are_what_the_user_asked_for(tmp_path: Path) -> None:
    mine = Locks(tmp_path)
    assert _locked(mine, 1, ranks=3, count=1) == ([0], [0, 1, 2])
    mine.close()


def test_ranks_are_refused_where_too_few_cards_are_free(tmp_path: Path) -> None:
    mine, theirs = Locks(tmp_path), Locks(tmp_path)
    assert len(_locked(theirs, 1)[0]) == 1
    with pytest.raises(DeviceUnavailable, match="distributed cases need 4 cards, and 3 of 4 on this machine are free"):
        _locked(mine, 1, ranks=4)
    mine.close()
    theirs.close()


def test_an_attempt_that_cannot_be_logged_ends_the_run_as_a_case_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> bool:
        raise RunLogError("cannot write the run log", path="run.jsonl", hint="free space")

    monkeypatch.setattr("pytest_ascend.plugin.parent.run", full)
    monkeypatch.setattr("pytest_ascend.plugin.options.only_looks", lambda _: False)
    option = SimpleNamespace(continue_on_collection_errors=False)
    setup, config = SimpleNamespace(prepared=SimpleNamespace(isolated=True)), SimpleNamespace(option=option)
    run: Any = SimpleNamespace(setup=setup, config=config, opened_by=[], recorder=object())
    session: Any = SimpleNamespace(testsfailed=0, items=[], config=config)
    with pytest.raises(pytest.exit.Exception, match="continue with --ascend-resume") as ended:
        RunState.pytest_runtestloop(run, session)
    assert (ended.value.returncode, run.recorder) == (7, None)
