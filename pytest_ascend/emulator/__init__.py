"""An emulated CANN: lets the unmodified torch_npu wheel compute without an NPU.

Small C libraries replace CANN's runtime; operators are Python functions on CPU tensors. Results come from PyTorch's own
CPU arithmetic: they show whether torch_npu and a test work, and nothing about any chip.

:func:`activate` turns it on in this process and its children. The rest is for tests of suites: :func:`called` and
:func:`missing` return the operators that were called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytest_ascend.emulator.settings import EmulatorSettings

if TYPE_CHECKING:
    from pytest_ascend.emulator.bootstrap import activate, called, is_active, missing

__all__ = ["EmulatorSettings", "activate", "called", "is_active", "missing"]


def __getattr__(name: str) -> Any:
    """Import the activation on first use only: every pytest run imports the settings from this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("pytest_ascend.emulator.bootstrap"), name)
