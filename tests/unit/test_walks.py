"""How many functions and files of ours a reader passes on the way from a call to its result."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
import torch

from pytest_ascend.precision import compare


def test_a_comparison_and_its_message_take_eighty_functions_in_ten_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may have started an NPU, whose chip is looked at, too.
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    expected = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    actual = expected.float()
    actual[7] += 1
    seen: set[tuple[str, str]] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "pytest_ascend" in code.co_filename and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_name))

    sys.setprofile(look)
    try:
        verdict = compare(actual, expected)
        assert not verdict.agrees
        assert dict(verdict.metrics)
    finally:
        sys.setprofile(None)
    assert len(seen) <= 80
    assert len({file for file, _ in seen}) <= 10
