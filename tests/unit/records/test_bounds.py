"""Numbers of a log: what 64 bits hold is read, and no more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_ascend.records.bounds import Count, Whole
from pytest_ascend.records.verdict import FLUSHES, HALVES, as_expected_of, named_in


@pytest.mark.parametrize(("kind", "lowest"), [(Whole, -(2**63)), (Count, 0)])
def test_a_whole_number_has_64_bits(kind: Any, lowest: int) -> None:
    for number in (lowest, 0, 1, 2**63 - 1):
        assert msgspec.convert(number, kind) == number
    for number in (lowest - 1, 2**63):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(number, kind)


@pytest.mark.parametrize("names", [(FLUSHES,), (FLUSHES, HALVES)])
def test_what_is_expected_of_a_chip_is_read_as_it_was_told(names: tuple[str, ...]) -> None:
    assert named_in(f"all differ; {as_expected_of(names)}; in 3 places") == set(names)
    assert named_in("all differ") == frozenset()
