"""The device interface of a run, for the CPU and CUDA GPUs; NPUs are in a module of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ascend.system.errors import DeviceUnavailable, UsageError
from pytest_ascend.system.programs import run

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "Request", "parse"]

#: Loading CUDA's libraries takes a quarter of a minute on a cold machine.
LIMIT_S = 180.0
#: Prints the names of the GPUs that torch sees.
_NAMES = """
import torch
from pytest_ascend.system.programs import tell
tell([torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())])
"""
#: Whether each kind of device takes an index.
KINDS = {"auto": False, "npu": True, "emulated": True, "cuda": True, "cpu": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A kind of :data:`KINDS`, and the index of the device among its kind."""

    kind: str
    index: int = 0


def parse(text: str) -> Request:
    """Parse "auto", "npu", "npu:1", "emulated", "cuda:0", "cpu". Raises UsageError for anything else."""
    kind, colon, index = text.partition(":")
    if kind not in KINDS or (colon and not (KINDS[kind] and index.isascii() and index.isdigit())):
        hint = "give auto, npu, npu:N, emulated, emulated:N, cuda, cuda:N or cpu"
        raise UsageError(f"--ascend-device={text}: there is no such device", hint=hint)
    return Request(kind=kind, index=int(index or 0))


def device_count() -> int:
    """Return how many devices CANN's runtime reports; none is opened."""
    count = ctypes.c_uint32(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libascendcl.so").aclrtGetDeviceCount(ctypes.byref(count))
    return count.value


@dataclass(frozen=True, slots=True)
class Device:
    """A device on which cases run, by torch's module of its kind's name. Creating one imports no torch; using one does.

    ``kind`` is torch's device type: "npu", "cuda" or "cpu". ``emulated``: no hardware computes anything.
    ``falls_back``: torch may compute an operator on the CPU if the device lacks it.
    """

    index: int = 0
    emulated: bool = False
    kind: str = ""
    falls_back: bool = False

    @property
    def label(self) -> str:
        """Return the name used on terminals and pages, such as "npu:0" or "emulated npu:0"."""
        return f"{self.kind}:{self.index}"

    @property
    def module(self) -> Any:
        """Return torch's module of the kind, such as ``torch.cuda``; None for the CPU."""
        import torch

        return getattr(torch, self.kind)

    def _asked(self, name: str, otherwise: Any) -> Any:
        """Return the value that a function of torch's module returns for this device."""
        module = self.module
        return getattr(module, name)(self.index) if module else otherwise

    def torch_device(self) -> torch.device:
        """Return the device as torch knows it, with its index."""
        import torch

        return torch.device(self.label)

    def synchronize(self) -> None:
        """Wait until all launched work is done. Raises the device's errors."""
        self._asked("synchronize", None)

    def overflowed(self) -> bool:
        """Return whether anything overflowed since the last call, if the device keeps such a status."""
        return False

    def events(self) -> tuple[Any, Any] | None:
        """Return two events with ``record()`` and ``elapsed_time()`` in ms; None if only the host has a clock."""
        module = self.module
        return (module.Event(enable_timing=True), module.Event(enable_timing=True)) if module else None

    def chip(self) -> str:
        """Return the name of the chip, "" if unknown; for the CPU, its architecture."""
        return str(self._asked("get_device_name", platform.machine()))

    def allocated_bytes(self) -> int:
        """Return the bytes that tensors hold now, 0 if the device does not report them."""
        return int(self._asked("memory_allocated", 0))

    def reset_peak_memory(self) -> None:
        """Restart measuring peak memory."""
        self._asked("reset_peak_memory_stats", None)

    def peak_memory_bytes(self) -> int:
        """Return the peak of the bytes held by tensors since the last reset, 0 if the device does not report it."""
        return int(self._asked("max_memory_allocated", 0))


def open_cuda(index: int) -> tuple[Device, str]:
    """Return the GPU with this index and its name; disable TF32 and 16-bit sums in its products and convolutions.

    Another process queries the name: once this process has used CUDA, processes forked from it cannot. Raises
    DeviceUnavailable if torch sees no such GPU.
    """
    import torch

    names = run([sys.executable, "-c", _NAMES], dict(os.environ), LIMIT_S).answer or []
    if index >= len(names):
        message = f"cuda:{index} was asked for, and torch {torch.__version__} sees {len(names)} CUDA devices"
        hint = "install a torch built for CUDA and its driver, or choose another --ascend-device"
        raise DeviceUnavailable(message, hint=hint)
    # These are torch's defaults (notes on numerical accuracy) except for matmul.allow_tf32; HF32 is disabled likewise.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return Device(index, kind="cuda"), names[index]


@dataclass(frozen=True, slots=True)
class Cpu(Device):
    """The CPU. Its calls are synchronous, the host's clock is its own, and torch does not count its memory."""

    kind: str = "cpu"

    @property
    def label(self) -> str:
        """Return "cpu"."""
        return "cpu"

    @property
    def module(self) -> None:
        """Return None."""
