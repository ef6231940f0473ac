"""The combination under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


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

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stack:
        """Read what :meth:`to_dict` wrote; fields of later versions are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})
