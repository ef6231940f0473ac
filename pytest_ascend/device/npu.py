"""The NPU, real or emulated: the only module outside the emulator that imports torch_npu."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_ascend.device import Device, device_count
from pytest_ascend.environment.chips import PRECISION_MODE, Mode, pinned
from pytest_ascend.environment.identity import VISIBLE
from pytest_ascend.system.programs import for_now

if TYPE_CHECKING:
    import torch


def _npu() -> Any:
    import torch
    import torch_npu  # noqa: F401  (torch loads it by itself from 2.5 on only, and only where that is not turned off)

    return torch.npu  # type: ignore[attr-defined]


def operator(name: str) -> Any:
    """Return ``torch_npu.NAME``. Raises NotImplementedError without torch_npu, or if it has no such operator."""
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None:
        raise NotImplementedError(f"{name} is an operator of torch_npu, which is not loaded for this device")
    if not hasattr(torch_npu, name):
        raise NotImplementedError(f"torch_npu {getattr(torch_npu, '__version__', '')} has no operator {name}")
    return getattr(torch_npu, name)


def has_context() -> bool:
    """Return whether this process already uses an NPU, so that a process forked from it cannot."""
    return "torch_npu" in sys.modules and bool(_npu().is_initialized())


def show_only(indices: Sequence[int]) -> Sequence[int]:
    """Make only the cards with these indices visible to this process, and return the indices that they then have.

    A process that sees several cards opens the first of them, whichever it uses (torch_npu over CANN before 8.3.RC1).
    If CANN has already read the variable, in the process that this one was forked from, nothing changes. CANN and
    torch_npu only accept the variable in ascending order (torch_npu/npu/__init__.py:_device_count_ascend_hal).
    """
    shown = sorted(indices)
    if given := os.environ.get(VISIBLE):
        entries = given.split(",")
        os.environ[VISIBLE] = ",".join(entries[each].strip() for each in shown if each < len(entries))
    else:
        os.environ[VISIBLE] = ",".join(map(str, shown))
    return [shown.index(each) for each in indices] if device_count() == len(indices) else indices


def knows_infinities() -> bool:
    """Return whether the NPU's results overflow to infinities; in the other mode, they saturate.

    Raises NotImplementedError if torch_npu does not have these modes.
    """
    operator("npu_format_cast")
    return bool(_npu().utils.is_support_inf_nan())


def with_modes(modes: Mapping[str, Mode]) -> contextlib.AbstractContextManager[None]:
    """Set modes that affect numerical results, by their names in :meth:`Npu.pin_numerics`, and restore them afterwards.

    Raises NotImplementedError if torch_npu does not have these modes.
    """
    operator("npu_format_cast")
    npu = _npu()
    return for_now(partial(_set_modes, npu), modes, {name: _mode(npu, name) for name in modes})


def _mode(npu: Any, name: str) -> Mode:
    part, _, attribute = name.partition(".")
    if attribute:
        return bool(getattr(getattr(npu, part), attribute))
    if name == "deterministic_level" and not hasattr(npu, "set_deterministic_level"):
        raise NotImplementedError("this torch_npu has no set_deterministic_level")
    return pinned(str(npu.get_device_name())).get(name, 0)  # these cannot be queried


def _set_modes(npu: Any, modes: Mapping[str, Mode]) -> None:
    for name, value in modes.items():
        part, _, attribute = name.partition(".")
        if attribute:
            setattr(getattr(npu, part), attribute, value)
        elif name == "jit_compile":
            npu.set_compile_mode(jit_compile=value)
        elif name == PRECISION_MODE:
            npu.set_option({name: value})
        elif name == "deterministic_level":
            with warnings.catch_warnings():  # torch's own setting follows, as intended
                warnings.simplefilter("ignore")
                npu.set_deterministic_level(value)
        else:
            npu.config.allow_internal_format = value


def chip() -> str:
    """Return the name of the chip, "" if torch_npu is not loaded."""
    return str(_npu().get_device_name()) if "torch_npu" in sys.modules else ""


def optimizer(name: str) -> Any:
    """Return ``torch_npu.optim.NAME``. Raises NotImplementedError without torch_npu, or without this optimizer."""
    if "torch_npu" not in sys.modules:
        raise NotImplementedError(f"{name} is an optimizer of torch_npu, which is not loaded for this device")
    from torch_npu import optim

    if not hasattr(optim, name):
        raise NotImplementedError(f"this torch_npu has no optimizer {name}")
    return getattr(optim, name)


def compiler(*, emulated: bool) -> Any:
    """Return the backend of torch.compile for an NPU. Raises NotImplementedError without one."""
    if emulated:
        raise NotImplementedError("torchair is not emulated: CANN's graph engine, which it calls, is missing")
    try:
        import torchair
    except ImportError as error:
        raise NotImplementedError(f"torch_npu compiles through torchair, which cannot be loaded: {error}") from error
    return torchair.get_npu_backend()


def profiler() -> Any:
    """Return ``torch_npu.profiler``."""
    import torch_npu.profiler

    return torch_npu.profiler


@dataclass(frozen=True, slots=True)
class Npu(Device):
    """The NPU with this index, through torch_npu; ``emulated`` if the CANN below it is emulated.

    ``called`` is the user's index of it, if this process sees fewer cards.
    """

    kind: str = "npu"
    falls_back: bool = True
    called: int = -1

    @property
    def label(self) -> str:
        """Return "npu:N", or "emulated npu:N"."""
        index = self.index if self.called < 0 else self.called
        return f"{'emulated ' if self.emulated else ''}npu:{index}"

    @property
    def module(self) -> Any:
        """Return ``torch.npu``, which torch_npu created."""
        return _npu()

    def torch_device(self) -> torch.device:
        """Return the device as torch knows it, and make it current, since kernels without tensors run there."""
        import torch

        _npu().set_device(self.index)
        return torch.device("npu", self.index)

    def load(self) -> None:
        """Import torch_npu, which registers its kernels with torch; no device is used."""
        _npu()

    def memory_elsewhere_bytes(self) -> int:
        """Return the card's memory in use outside this process's allocator: by its context, and by others."""
        free, total = _npu().mem_get_info(self.index)
        return int(total - free) - int(_npu().memory_reserved(self.index))

    def overflowed(self) -> bool:
        """Return whether anything overflowed since the last call; False on chips with infinities, which keep no status.

        The status also tells a GradScaler to skip a step, whatever set it.
        """
        utils = _npu().utils
        if utils.is_support_inf_nan() or not utils.get_npu_overflow_flag():
            return False
        utils.clear_npu_overflow_flag()
        return True

    def pin_numerics(self) -> dict[str, Mode]:
        """Have float32 computed as float32, by operators that are compiled kernels; return the settings made, by name.

        By default a chip rounds the inputs of float32 convolutions to HF32, which has 10 or 11 bits of fraction; older
        chips compute in formats of their own: neither is what PyTorch promises. Chips that only multiply in half
        precision keep their default, since they would otherwise reject float32 products.
        """
        modes = pinned(self.chip())
        _set_modes(_npu(), modes)
        return modes
