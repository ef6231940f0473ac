"""Names of devices."""

from __future__ import annotations

import pytest

from pytest_ascend.device import Request, parse
from pytest_ascend.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", Request(kind="auto")),
        ("npu", Request(kind="npu")),
        ("npu:3", Request(kind="npu", index=3)),
        ("emulated:1", Request(kind="emulated", index=1)),
        ("cuda:0", Request(kind="cuda")),
        ("cpu", Request(kind="cpu")),
    ],
)
def test_a_name_is_read(text: str, expected: Request) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "gpu", "npu:", "npu:-1", "npu:x", "npu:1:2", "auto:1", "cpu:0", "NPU", "npu:²"])
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there is no such device"):
        parse(text)
