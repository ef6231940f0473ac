"""The cards of a run are locked, those of ranks among them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.errors import DeviceUnavailable
from pytest_ascend.isolation.cards import Locks
from pytest_ascend.plugin.parent import _cards


def _machine(count: int = 4) -> Any:
    """Return the settings of a run on a machine with NPUs."""
    named = lambda index: SimpleNamespace(keys=(f"card-{index}",), label=f"npu:{index}")  # noqa: E731
    device = SimpleNamespace(kind="npu", emulated=False)
    prepared = SimpleNamespace(device=device, indices=tuple(range(count)), identity=named)
    return SimpleNamespace(prepared=prepared, options=SimpleNamespace(device="auto"))


def test_ranks_use_cards_that_this_run_has_locked(tmp_path: Path) -> None:
    mine, theirs = Locks(tmp_path), Locks(tmp_path)
    assert [each.index for each in _cards(_machine(), mine, 1, ranks=3)] == [0]
    assert [each.index for each in _cards(_machine(), theirs, "auto")] == [3]
    mine.release()
    theirs.release()
    assert [each.index for each in _cards(_machine(), mine, 4, ranks=2)] == [0, 1, 2, 3]
    mine.release()


def test_ranks_are_refused_where_another_run_holds_one_of_their_cards(tmp_path: Path) -> None:
    mine, theirs = Locks(tmp_path), Locks(tmp_path)
    assert len(_cards(_machine(), theirs, 1)) == 1
    with pytest.raises(DeviceUnavailable, match=r"distributed cases need 4 cards, and other runs .* hold 1"):
        _cards(_machine(), mine, 1, ranks=4)
    mine.release()
    theirs.release()
