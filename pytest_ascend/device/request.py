"""What the user asked for with ``--ascend-device``."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.errors import UsageError

#: Whether each kind of device takes an index.
KINDS = {"auto": False, "npu": True, "emulated": True, "cuda": True, "cpu": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A kind of :data:`KINDS`, and the index of the device among its kind."""

    kind: str
    index: int = 0


def parse(text: str) -> Request:
    """Read "auto", "npu", "npu:1", "emulated", "cuda:0", "cpu". Raises UsageError on anything else."""
    kind, colon, index = text.partition(":")
    if kind not in KINDS or (colon and not (KINDS[kind] and index.isascii() and index.isdigit())):
        raise UsageError(
            f"--ascend-device={text}: there is no such device",
            hint="give auto, npu, npu:N, emulated, emulated:N, cuda, cuda:N or cpu",
        )
    return Request(kind=kind, index=int(index or 0))
