"""An emulated CANN: lets the unmodified torch_npu wheel compute where there is no NPU.

Small C libraries stand in for CANN's runtime; operators are Python functions on CPU tensors. What it computes is
PyTorch's own CPU arithmetic, so that it shows whether torch_npu and a test work, and nothing about any chip.

:func:`activate` turns it on in this process and its children. The rest is for tests of suites: :func:`called` and
:func:`missing` tell what was asked of it.
"""

from pytest_ascend.emulator.bootstrap import activate, called, cann, is_active, kernel_modules, missing, numerics
from pytest_ascend.emulator.settings import EmulatorSettings

__all__ = ["EmulatorSettings", "activate", "called", "cann", "is_active", "kernel_modules", "missing", "numerics"]
