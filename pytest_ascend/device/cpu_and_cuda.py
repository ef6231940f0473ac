"""A CUDA GPU as the device under test: a second opinion on goldens and limits."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from pytest_ascend.device import Device
from pytest_ascend.system.errors import DeviceUnavailable
from pytest_ascend.system.programs import run

#: Loading CUDA's libraries takes a quarter of a minute on a cold machine.
LIMIT_S = 180.0
#: Tells the names of the GPUs that torch sees.
_NAMES = """
import torch
from pytest_ascend.system.programs import tell
tell([torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())])
"""


def open_cuda(index: int) -> tuple[Device, str]:
    """Return the GPU with this index and its name; products and convolutions then do without TF32 and 16-bit sums.

    Another process asks for the name: once this one has used CUDA, the processes forked from it cannot. Raises
    DeviceUnavailable where torch sees no such GPU.
    """
    import torch

    names = run([sys.executable, "-c", _NAMES], dict(os.environ), LIMIT_S).answer or []
    if index >= len(names):
        message = f"cuda:{index} was asked for, and torch {torch.__version__} sees {len(names)} CUDA devices"
        hint = "install a torch built for CUDA and its driver, or choose another --ascend-device"
        raise DeviceUnavailable(message, hint=hint)
    # torch's defaults (notes on numerical accuracy) but for matmul.allow_tf32; a run does without, as without HF32.
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
        """Return nothing."""
