"""An emulated CANN: lets the unmodified torch_npu wheel compute where there is no NPU.

Small C libraries stand in for CANN's runtime; operators are Python functions on CPU tensors. What it computes is
PyTorch's own CPU arithmetic, so that it shows whether torch_npu and a test work, and nothing about any chip.

:func:`activate` turns it on in this process and its children. The rest is for tests of suites: :func:`called` and
:func:`missing` tell what was asked of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytest_ascend.emulator.settings import EmulatorSettings

if TYPE_CHECKING:
    from pytest_ascend.emulator.bootstrap import activate, called, cann, is_active, kernel_modules, missing, numerics

__all__ = ["EmulatorSettings", "activate", "called", "cann", "is_active", "kernel_modules", "missing", "numerics"]


def __getattr__(name: str) -> Any:
    """Load what turns the device on where it is asked for: every pytest imports the settings beside it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("pytest_ascend.emulator.bootstrap"), name)
