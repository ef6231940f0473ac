"""The combination under test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """What computed, by version. An empty string means that the version could not be found out.

    ``device`` is the kind ("npu", "cuda", "cpu"); ``emulated`` is true where no hardware computed anything.
    """

    device: str
    emulated: bool
    chip: str = ""
    driver: str = ""
    firmware: str = ""
    cann: str = ""
    torch: str = ""
    torch_npu: str = ""
    torch_npu_commit: str = ""
    python: str = ""
    os: str = ""
    host: str = ""
    pytest_ascend: str = ""
