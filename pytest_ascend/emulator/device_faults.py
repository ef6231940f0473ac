"""Faults of the device as a whole: it crashes, hangs, loses its memory, fails silently or late, is slow or erratic.

A fault is written as its kind and, after colons, when and where it happens::

    crash:operator=Add:after=100        the 101st addition in a process kills it
    hang:gil=held:numel=4099            an operator with a tensor of 4099 elements never returns
    poison:device=1                     the second device never computes, without an error
    slow:operator=Mm:share=0.1          each matrix product takes 10 % longer
"""

from __future__ import annotations

import ctypes
import math
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.emulator.choices import RECOVERING
from pytest_ascend.emulator.registry import Kernel
from pytest_ascend.emulator.system import determinism, runtime
from pytest_ascend.system.dispatching import tensors_in
from pytest_ascend.system.errors import UsageError, as_error

#: CANN's names of the two errors are ACL_ERROR_RT_LOST_HEARTBEAT and ACL_ERROR_RT_AICORE_EXCEPTION.
LOST_HEARTBEAT = 507010
AICORE_EXCEPTION = 507015

SIGNALS = {"segv": signal.SIGSEGV, "abort": signal.SIGABRT, "bus": signal.SIGBUS, "kill": signal.SIGKILL}


class SilentFailure(BaseException):
    """Raised instead of computing: the operator reports success and writes nothing."""


Read: TypeAlias = Callable[[str], Any]


def _one_of(names: Collection[str], text: str) -> str:
    if text not in names:
        raise ValueError(f"expected one of {', '.join(names)}")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ValueError("expected a whole number from 0")
    return int(text)


def _amount(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("expected a number from 0")
    return value


def _setting(default: Any, read: Read = str) -> Any:
    return field(default=default, metadata={"read": read})


@dataclass(kw_only=True, slots=True)
class DeviceFault:
    """When a fault happens, and how often it has happened.

    ``operator`` is CANN's name without "aclnn", "" for any; ``numel`` the number of elements of one of its tensors, 0
    for any; ``device`` its index, -1 for all. The fault happens after the first ``after`` matching calls, ``times``
    times (0: each time), and with ``once`` only in the process that creates that file. ``rate`` is the share of calls
    hit; ``share`` the time added, relative to the operator's; ``seconds``, ``by`` and ``gil`` are for some kinds.
    """

    kind: str
    operator: str = _setting("")
    numel: int = _setting(0, _count)
    device: int = _setting(-1, _count)
    after: int = _setting(0, _count)
    times: int = _setting(0, _count)
    once: str = _setting("")
    rate: float = _setting(1.0, _amount)
    seconds: float = _setting(0.05, _amount)
    share: float = _setting(0.0, _amount)
    by: str = _setting("segv", partial(_one_of, SIGNALS))
    gil: str = _setting("held", partial(_one_of, ("held", "released")))
    poisoned: bool = field(default=False, init=False)
    met: int = field(default=0, init=False)
    happened: int = field(default=0, init=False)
    called: set[str] = field(default_factory=set, init=False)

    def fits(self, name: str, values: Any) -> bool:
        """Count a call, and return whether the fault happens in it. ``values`` are the operator's arguments.

        Arguments are inspected only if the fault needs them: inspecting takes longer than a small operator.
        """
        if self.operator and name != f"aclnn{self.operator}":
            return False
        if self.numel and all(tensor.numel() != self.numel for tensor in tensors_in(values)):
            return False
        if self.device != -1:
            current = ctypes.c_int32(0)
            runtime().aclrtGetDevice(ctypes.byref(current))
            if self.device != runtime().emu_logical(current):
                return False
        self.met += 1
        is_due = self.met > self.after and not (self.times and self.happened >= self.times)
        is_chosen = is_due and (self.rate >= 1 or random.random() < self.rate)  # noqa: S311 - chance, no secret
        if not is_chosen:
            return False
        if self.once:
            try:
                Path(self.once).touch(exist_ok=False)
            except FileExistsError:
                return False
        self.happened += 1
        return True


#: Name of a setting -> parser of its text.
SETTINGS: Mapping[str, Read] = {each.name: each.metadata["read"] for each in fields(DeviceFault) if each.metadata}


#: Some of these happen in C when a card is opened (cards.c), some at an operator's first call in a process, and some to
#: the results; the others happen before an operator computes.
KINDS = (
    *("crash", "hang", "poison", "oom", "late", "lost", "slow", "nondeterministic", RECOVERING, "first-call"),
    *("noisy", "flushing"),
)


def _happen(device_fault: DeviceFault) -> None:
    """Execute the fault before the operator computes."""
    if device_fault.kind == "crash":
        runtime().emu_die(int(SIGNALS[device_fault.by]))
    elif device_fault.kind == "hang":
        # Wait in native code forever: holding the GIL, like a driver call that does not release it, or without it.
        library = ctypes.PyDLL(runtime()._name) if device_fault.gil == "held" else runtime()  # noqa: SLF001 - its path
        library.emu_hang()
    elif device_fault.kind == "poison":
        device_fault.poisoned = True
    elif device_fault.kind == "oom":
        runtime().emu_fail_allocations(1)
        raise RuntimeError("NPU out of memory: the emulated device has none left")
    elif device_fault.kind == "late":
        runtime().emu_fail_later(AICORE_EXCEPTION)
    elif device_fault.kind == "lost":
        runtime().emu_fail_later(LOST_HEARTBEAT)
        raise RuntimeError(f"the device is lost, its heartbeat stopped ({LOST_HEARTBEAT})")
    elif device_fault.kind == "slow" and not device_fault.share:
        time.sleep(device_fault.seconds)


#: Operators whose summation order varies unless determinism was enabled first, so that the last bit may differ.
#:  Source: the sections on determinism in the documentation of aclnn operators (hicann/ops-math, ops-nn), A2 and A3.
_RANDOM = re.compile(
    r"aclnn(Inplace)?(Addmm|Baddbmm|BatchMatMul|Matmul|Mm|Addmv|Mv|Dot|ReduceSum|Mean|Cumsum|BatchNorm\w*|LayerNorm\w*"
    r"|GroupNorm\w*|IndexAdd|ScatterAdd|IndexPutImpl|EmbeddingDenseBackward|Convolution\w*)"
)
_first_asked = threading.local()


def is_device_fault(text: str) -> bool:
    """Return whether a fault's name is one of this module's, with or without settings."""
    return text.partition(":")[0] in KINDS


def parse(text: str) -> DeviceFault:
    """Parse "crash:operator=Add:after=100". Raises UsageError for an unknown or invalid setting."""
    kind, *parts = text.split(":")
    found = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name not in SETTINGS or not equals:
            raise UsageError(
                f"the fault {text!r} has the setting {part!r}",
                hint=f"settings are written name=value, with one of {', '.join(SETTINGS)}",
            )
        with as_error(f"the fault {text!r}: {name}={value}", "see docs/emulator.md", ValueError):
            found[name] = SETTINGS[name](value)
    return DeviceFault(kind=kind, **found)


def inject(kernels: Mapping[str, Kernel], text: str) -> dict[str, Kernel]:
    """Return the kernels with this device fault. Raises UsageError for an operator that is not emulated."""
    device_fault = parse(text)
    if device_fault.kind == RECOVERING:
        return dict(kernels)
    if device_fault.operator and f"aclnn{device_fault.operator}" not in kernels:
        raise UsageError(
            f"the fault {text!r} is about aclnn{device_fault.operator}, which is not emulated", hint="check its name"
        )
    # A fault limited to one operator leaves the others unwrapped, which saves microseconds per call.
    only = f"aclnn{device_fault.operator}" if device_fault.operator and device_fault.kind != "poison" else ""
    concerned = [each for each in kernels.values() if each.name == only or not only]
    return dict(kernels) | {each.name: replace(each, body=partial(_faulty, each, device_fault)) for each in concerned}


def _faulty(kernel: Kernel, device_fault: DeviceFault, /, *arguments: Any, **out: Any) -> Any:
    hit = device_fault.fits(kernel.name, (arguments, out))
    if hit:
        _happen(device_fault)
    if device_fault.poisoned:
        raise SilentFailure
    if hit and device_fault.kind == "first-call" and kernel.name not in device_fault.called:
        device_fault.called.add(kernel.name)
        time.sleep(device_fault.seconds)
    start = time.perf_counter()
    found = kernel.body(*arguments, **out)
    if hit and (afterwards := _AFTERWARDS.get(device_fault.kind)):
        afterwards(kernel.name, tensors_in(found if found is not None else (out or arguments[:1])))
    if hit and device_fault.share:
        # Keep the processor busy for a share of the time since ``start``: sleeping would take longer than most kernels.
        end = time.perf_counter() + device_fault.share * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
    return found


def _anywhere(tensor: torch.Tensor) -> tuple[int, ...]:
    place = random.randrange(tensor.numel())  # noqa: S311  (chance, no secret)
    return tuple(map(int, np.unravel_index(place, tuple(tensor.shape))))  # torch.unravel_index came with 2.2


def _disturb(_: str, results: list[torch.Tensor]) -> None:
    """Change one random element of the first result."""
    for tensor in results[:1]:
        if tensor.numel():
            place = _anywhere(tensor)
            tensor[place] = ~tensor[place] if tensor.dtype is torch.bool else tensor[place] * 3 + 1


def _add_noise(name: str, results: list[torch.Tensor]) -> None:
    """Move one element of each result by one ulp now and then, unless the thread enabled determinism at the start.

    CANN reads the setting once per thread. Sums without rounding have the same bits in every order.
    """
    if not _RANDOM.fullmatch(name):
        return
    if not hasattr(_first_asked, "deterministic"):
        _first_asked.deterministic = bool(determinism())
    for each in results:
        if each.is_floating_point() and each.numel() and not _first_asked.deterministic:
            place = _anywhere(each)
            if each.dtype is torch.float32 and torch.frexp(each[place]).mantissa * 2**11 % 1 == 0:
                continue  # a sum of few bits is exact, whatever its order and magnitude
            each[place] = torch.nextafter(each[place], each[place].new_tensor(random.choice((0.0, torch.inf))))  # noqa: S311


def _flush(_: str, results: list[torch.Tensor]) -> None:
    """Flush denormals to zero, keeping their sign."""
    for each in results:
        if each.dtype in (torch.float32, torch.float16):
            each.mul_(each.abs() >= torch.finfo(each.dtype).tiny)


#: Kind -> change to an operator's results.
_AFTERWARDS: Mapping[str, Callable[[str, list[torch.Tensor]], None]] = {
    "nondeterministic": _disturb,
    "noisy": _add_noise,
    "flushing": _flush,
}
