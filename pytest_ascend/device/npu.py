"""The NPU, real or emulated: the only place outside of the emulator that imports torch_npu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def _npu() -> Any:
    import torch
    import torch_npu  # noqa: F401  (torch loads it by itself from 2.5 on only, and only where that is not turned off)

    return torch.npu  # type: ignore[attr-defined]


def load() -> None:
    """Import torch_npu, which registers its kernels with torch; no device is touched."""
    _npu()


@dataclass(frozen=True, slots=True)
class Npu:
    """The NPU with this index, through torch_npu; ``emulated`` where the CANN below it is ours."""

    index: int = 0
    emulated: bool = False
    kind: str = "npu"
    falls_back: bool = True

    @property
    def label(self) -> str:
        """Give "npu:N", or "emulated npu:N"."""
        return f"{'emulated ' if self.emulated else ''}npu:{self.index}"

    def torch_device(self) -> torch.device:
        """Give the device as torch knows it, and make it the current one, as kernels without tensors run there."""
        import torch

        _npu().set_device(self.index)
        return torch.device("npu", self.index)

    def synchronize(self) -> None:
        """Wait for the NPU and for torch_npu's queue in front of it."""
        _npu().synchronize(self.index)

    def chip(self) -> str:
        """Give the SoC's name, such as "Ascend910B3"."""
        return str(_npu().get_device_name(self.index))

    def pin_numerics(self) -> dict[str, bool]:
        """Have float32 computed as float32, and operators called as compiled kernels; give what was set, by name.

        By default a chip rounds the inputs of float32 convolutions to HF32, which has 10 or 11 bits of fraction, and
        old ones compute in formats of their own: neither is what PyTorch promises.
        """
        npu = _npu()
        npu.conv.allow_hf32 = npu.matmul.allow_hf32 = False
        npu.config.allow_internal_format = False
        npu.set_compile_mode(jit_compile=False)
        return dict.fromkeys(("conv.allow_hf32", "matmul.allow_hf32", "allow_internal_format", "jit_compile"), False)

    def reset_peak_memory(self) -> None:
        """Begin to measure the peak of memory anew."""
        _npu().reset_peak_memory_stats(self.index)

    def peak_memory_bytes(self) -> int:
        """Give the most memory that tensors held since the last reset."""
        return int(_npu().max_memory_allocated(self.index))
