"""Where the NPU of this process computes otherwise than PyTorch promises: known deviations, and HF32."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from pytest_ascend.environment.chips import family
from pytest_ascend.records.verdict import FLUSHES, HALVES, SATURATES

#: Settings of torch_npu that let a chip round the factors of float32 products to HF32; the first is on by default.
_HF32 = ("conv", "matmul")


def _npu() -> Any:
    npu = getattr(torch, "npu", None) if "torch_npu" in sys.modules else None
    return npu if npu is not None and npu.is_initialized() else None


def documented_deviations() -> frozenset[str]:
    """Return the deviations that are documented for the chip; none without one. Sources: ``docs/expectations.md``."""
    npu = _npu()
    kind = family(str(npu.get_device_name())) if npu is not None else None
    if kind is None:
        return frozenset()
    has = {SATURATES: kind.saturates, HALVES: kind.halves, FLUSHES: kind.name == "950"}
    return frozenset(name for name, documented in has.items() if documented)


def hf32_settings() -> tuple[str, ...]:
    """Return the names of the settings that let the chip use HF32 now."""
    npu = _npu()
    if npu is None:
        return ()
    return tuple(f"torch.npu.{part}.allow_hf32" for part in _HF32 if getattr(getattr(npu, part), "allow_hf32", False))


@contextlib.contextmanager
def without_hf32(device: str | torch.device) -> Iterator[str]:
    """Have an NPU multiply float32 as float32, as ``pytest --ascend`` does, and restore the settings at the end.

    Yields a sentence on what was changed, "" for nothing, as on the CPU.
    """
    if str(device).startswith("cpu"):
        yield ""
        return
    if str(device).startswith("npu") and "torch_npu" in sys.modules:
        torch.zeros(1, device=device)  # the settings of an NPU that is not in use yet cannot be read
    changed = hf32_settings()
    parts = [getattr(torch.npu, name.split(".")[2]) for name in changed]  # type: ignore[attr-defined]
    for part in parts:
        part.allow_hf32 = False
    try:
        yield f"{' and '.join(changed)} switched off for this comparison: HF32 has 10 or 11 bits" if changed else ""
    finally:
        for part in parts:
            part.allow_hf32 = True
