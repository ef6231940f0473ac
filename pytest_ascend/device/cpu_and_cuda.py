"""A CUDA GPU as the device under test: a second opinion on goldens and limits."""

from __future__ import annotations

import ast
import os
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ascend.system.errors import DeviceUnavailable
from pytest_ascend.system.programs import run

if TYPE_CHECKING:
    import torch


#: Loading CUDA's libraries takes a quarter of a minute on a cold machine.
LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class Cuda:
    """The GPU with this index."""

    index: int = 0
    kind: str = "cuda"
    emulated: bool = False
    falls_back: bool = False

    @property
    def label(self) -> str:
        """Return "cuda:N"."""
        return f"cuda:{self.index}"

    def torch_device(self) -> torch.device:
        """Return the device as torch knows it."""
        import torch

        return torch.device("cuda", self.index)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        import torch

        torch.cuda.synchronize(self.index)

    def overflowed(self) -> bool:
        """Return false: results overflow to infinities."""
        return False

    def events(self) -> tuple[Any, Any]:
        """Return two events of the current stream, which know the time between them."""
        import torch

        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        return start, stop

    def chip(self) -> str:
        """Return the name of the GPU."""
        import torch

        return str(torch.cuda.get_device_name(self.index))

    def allocated_bytes(self) -> int:
        """Return how much memory tensors hold now."""
        import torch

        return int(torch.cuda.memory_allocated(self.index))

    def reset_peak_memory(self) -> None:
        """Restart measuring peak memory."""
        import torch

        torch.cuda.reset_peak_memory_stats(self.index)

    def peak_memory_bytes(self) -> int:
        """Return the most memory that tensors held since the last reset."""
        import torch

        return int(torch.cuda.max_memory_allocated(self.index))


#: Prints the names of the GPUs that torch sees.
_NAMES = "import torch; n = torch.cuda; print('cuda:', [n.get_device_name(i) for i in range(n.device_count())])"


def open_cuda(index: int) -> tuple[Cuda, str]:
    """Return the GPU with this index and its name; products and convolutions then do without TF32 and 16-bit sums.

    Another process asks for the name: once this one has used CUDA, the processes forked from it cannot. Raises
    DeviceUnavailable where torch sees no such GPU.
    """
    import torch

    reply = run([sys.executable, "-c", _NAMES], dict(os.environ), LIMIT_S)
    answers = [line.removeprefix("cuda:") for line in reply.text.splitlines() if line.startswith("cuda:")]
    names = ast.literal_eval(answers[-1].strip()) if answers else []
    if index >= len(names):
        raise DeviceUnavailable(
            f"cuda:{index} was asked for, and torch {torch.__version__} sees {len(names)} CUDA devices",
            hint="install a torch built for CUDA and its driver, or choose another --ascend-device",
        )
    # torch's defaults (notes on numerical accuracy) but for matmul.allow_tf32; a run does without, as without HF32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return Cuda(index), names[index]


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU. Its calls are synchronous, and its memory is not measured."""

    kind: str = "cpu"
    label: str = "cpu"
    emulated: bool = False
    falls_back: bool = False

    def torch_device(self) -> torch.device:
        """Return the device as torch knows it."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Do nothing: everything is done already."""

    def overflowed(self) -> bool:
        """Return false: results overflow to infinities."""
        return False

    def events(self) -> None:
        """Return nothing: the host's clock is the CPU's."""

    def chip(self) -> str:
        """Return the architecture."""
        return platform.machine()

    def allocated_bytes(self) -> int:
        """Return 0: torch does not count the CPU's memory."""
        return 0

    def reset_peak_memory(self) -> None:
        """Do nothing: see :meth:`peak_memory_bytes`."""

    def peak_memory_bytes(self) -> int:
        """Return 0: torch does not count the CPU's memory."""
        return 0
