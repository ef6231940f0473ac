"""The NPU, real or emulated: the only place outside of the emulator that imports torch_npu."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
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


def operator(name: str) -> Any:
    """Give ``torch_npu.NAME``. Raises NotImplementedError where there is no torch_npu, or it has no such operator."""
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None:
        raise NotImplementedError(f"{name} is an operator of torch_npu, which is not loaded for this device")
    if not hasattr(torch_npu, name):
        raise NotImplementedError(f"torch_npu {getattr(torch_npu, '__version__', '')} has no operator {name}")
    return getattr(torch_npu, name)


@contextlib.contextmanager
def with_modes(modes: Mapping[str, bool]) -> Iterator[None]:
    """Set modes that change numbers, by the names that :meth:`Npu.pin_numerics` gives, and put them back as they were.

    Raises NotImplementedError where there is no torch_npu to have such modes.
    """
    operator("npu_format_cast")
    npu = _npu()
    before = {name: _mode(npu, name) for name in modes}
    try:
        for name, value in modes.items():
            _set_mode(npu, name, value)
        yield
    finally:
        for name, value in before.items():
            _set_mode(npu, name, value)


def _mode(npu: Any, name: str) -> bool:
    part, _, attribute = name.partition(".")
    return bool(getattr(getattr(npu, part), attribute)) if attribute else False  # pinned to this, and cannot be asked


def _set_mode(npu: Any, name: str, value: bool) -> None:
    part, _, attribute = name.partition(".")
    if attribute:
        setattr(getattr(npu, part), attribute, value)
    elif name == "jit_compile":
        npu.set_compile_mode(jit_compile=value)
    else:
        npu.config.allow_internal_format = value


def optimizer(name: str) -> Any:
    """Give ``torch_npu.optim.NAME``. Raises NotImplementedError where torch_npu is not loaded, or has none such."""
    if "torch_npu" not in sys.modules:
        raise NotImplementedError(f"{name} is an optimizer of torch_npu, which is not loaded for this device")
    from torch_npu import optim

    if not hasattr(optim, name):
        raise NotImplementedError(f"this torch_npu has no optimizer {name}")
    return getattr(optim, name)


def compiler(*, emulated: bool) -> Any:
    """Give the backend by which torch.compile makes programs for an NPU. Raises NotImplementedError without one."""
    if emulated:
        raise NotImplementedError("torchair is not emulated: CANN's graph engine, which it calls, is missing")
    try:
        import torchair
    except ImportError as error:
        raise NotImplementedError(f"torch_npu compiles through torchair, which cannot be loaded: {error}") from error
    return torchair.get_npu_backend()


def profiler() -> Any:
    """Give ``torch_npu.profiler``."""
    import torch_npu.profiler

    return torch_npu.profiler


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

    def load(self) -> None:
        """Import torch_npu and touch no device."""
        load()

    def allocated_bytes(self) -> int:
        """Give how much memory tensors hold now."""
        return int(_npu().memory_allocated(self.index))

    def synchronize(self) -> None:
        """Wait for the NPU and for torch_npu's queue in front of it."""
        _npu().synchronize(self.index)

    def events(self) -> tuple[Any, Any]:
        """Give two events of the current stream, which know the time between them."""
        return _npu().Event(enable_timing=True), _npu().Event(enable_timing=True)

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
