"""Kernels that lose terms, or add in half precision, fail the property ``exact`` at level smoke; correct ones pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.meta.lost_terms import FAULTS, case_of
from tests.meta.planted import complaints

PARTS = 24


@pytest.mark.drawn(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_fault_is_seen_by_the_case_of_its_kernel(part: int, tmp_path: Path) -> None:
    planted = list(FAULTS)[part::PARTS]
    cases = [case_of(each) for each in planted]
    jobs = [{"faults": [f"tests.meta.lost_terms:{each}"], "cases": [case_of(each)]} for each in planted]
    without, *found = complaints([{"faults": [], "cases": sorted({*cases})}, *jobs], tmp_path)
    assert not any(without.values())
    assert [each for each, said in zip(planted, found, strict=True) if not all(said.values())] == []
