"""From ``--ascend-device`` to a working device, before anything imports torch."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_ascend.device import Device, Request, parse
from pytest_ascend.device.probe import LIMIT_S, ask, numbering
from pytest_ascend.doctor import examine, in_short
from pytest_ascend.emulator import EmulatorSettings
from pytest_ascend.emulator.choices import MOST_DEVICES
from pytest_ascend.environment.identity import VISIBLE, Identity, identities, of_machine
from pytest_ascend.environment.machine import PATIENT_S, this_machine
from pytest_ascend.environment.npu_smi import NpuSmi
from pytest_ascend.environment.signs import EMULATED_VARIABLE, Sign, signs
from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import DeviceUnavailable, UsageError

if TYPE_CHECKING:
    from pytest_ascend.device.npu import Npu


#: Symptoms of an NPU that does not start, with remedies; the first match counts.
REMEDIES: list[tuple[str, str]] = table("plugin/remedies.json")
OTHERWISE = "see that 'python -c \"import torch_npu\"' works and that npu-smi info lists the device"
#: Hint if the emulated device does not start.
EMULATED = (
    "install what it runs, pip install 'pytest-ascend[emulated]'; or, if the soc version is unsupported, the torch_npu "
    "there does not know the chip: emulate another"
)
#: Hint for users who want the emulated device.
EMULATE = "to test without an NPU, say so: --ascend-device=emulated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A working device. ``chip`` is its name, "" if not queried yet; ``notice`` is a prominent message.

    ``numerics``: the pinned settings that affect numerical results on a chip; ``emulator``: the settings of the
    emulated device, None for a real one. ``isolated``: only child processes use it; this process has not. ``indices``
    are the devices that a run may use, the preferred one first; ``threads`` is torch's default number of threads.
    ``identities`` are the cards by torch's index, in every numbering; empty if they have no other number.
    """

    device: Device
    chip: str = ""
    notice: str = ""
    numerics: Mapping[str, bool | int | str] = field(default_factory=dict)
    emulator: EmulatorSettings | None = None
    isolated: bool = False
    indices: tuple[int, ...] = (0,)
    threads: int = 1
    identities: tuple[Identity, ...] = ()

    def identity(self, index: int) -> Identity:
        """Return the identity of the card with this index, in every known numbering."""
        return self.identities[index] if index < len(self.identities) else Identity(index=index, logical=index)


def prepare(text: str, *, settings: EmulatorSettings, isolation: str) -> Prepared:
    """Make the device that ``--ascend-device`` names usable in this process and in its children.

    With ``isolation`` "on", or "auto" on devices that may crash, this process does not use the device. ``settings`` are
    those of the emulated device; their number of devices applies to every kind. Raises UsageError for an unknown device
    or faults on a real one, DeviceUnavailable if the device, or one the machine shows signs of, does not work.
    """
    request = parse(text)
    found = tuple(signs()) if request.kind in ("auto", "npu") else ()
    kind, is_emulated = request.kind, os.environ.get(EMULATED_VARIABLE) == "1"
    if kind == "npu" and is_emulated:  # an emulated device is never taken for an NPU
        raise DeviceUnavailable(
            f"--ascend-device=npu was asked for, and this process runs on the emulated CANN ({EMULATED_VARIABLE}=1)",
            hint="start it without 'pytest-ascend emulate', or leave --ascend-device out",
        )
    if kind == "auto":
        kind = "npu" if found and not is_emulated else "emulated"
    if kind != "emulated" and (given := settings.given()):
        raise UsageError(f"{given[0]} is for the emulated device, and this run is on {kind}", hint=EMULATE)
    isolated = isolation == "on" or (isolation == "auto" and kind in {"npu", "emulated"})
    if kind == "emulated":
        devices = max(2, request.index + 1, settings.resolved().devices)
        prepared = _emulated(request, replace(settings, devices=devices), isolated=isolated)
    elif kind == "npu":
        prepared = _npu(request, found, isolated=isolated)
    else:
        prepared = _other(request, settings.devices)
    indices = (request.index, *(index for index in prepared.indices if index != request.index))
    threads = 1
    if isolated:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # a pool of threads does not survive a fork
    return replace(prepared, indices=indices, isolated=isolated, threads=threads)


def _emulated(request: Request, settings: EmulatorSettings, *, isolated: bool) -> Prepared:
    from pytest_ascend import emulator
    from pytest_ascend.device.npu import Npu

    if request.index >= MOST_DEVICES:
        raise UsageError(
            f"--ascend-device=emulated:{request.index}: there are at most {MOST_DEVICES} emulated devices",
            hint=f"give emulated:0 to emulated:{MOST_DEVICES - 1}",
        )
    if settings.devices > MOST_DEVICES:
        raise UsageError(
            f"{settings.devices} devices were asked for", hint=f"there are at most {MOST_DEVICES} emulated ones"
        )
    shown = [int(each) for each in os.environ.get(VISIBLE, "").split(",") if each.isascii() and each.isdigit()]
    count = min(max([settings.devices, *(each + 1 for each in shown)]), MOST_DEVICES)
    settings = replace(settings, devices=count)
    emulator.activate(settings)
    by_itself = "This machine shows no sign of Ascend." if request.kind == "auto" else ""
    with _comes_up("the emulated device", hint=EMULATED):
        npu = Npu(request.index, emulated=True)
        said = _device_facts_in_child(npu, count) if isolated else _device_facts(npu, count)
        return Prepared(
            device=npu,
            chip=str(said["chip"]),
            notice=by_itself,
            numerics=dict(said["numerics"]),
            emulator=settings.resolved(),
            indices=tuple(range(len(said["physical"]))),
            identities=identities(os.environ, range(count), NpuSmi(), physical=said["physical"], buses=said["buses"]),
        )


def _device_facts(npu: Npu, count: int) -> dict[str, Any]:
    return {"chip": npu.chip(), "numerics": npu.pin_numerics(), **numbering(count)}


def _device_facts_in_child(npu: Npu, count: int = 0) -> dict[str, Any]:
    """Query the device in a child process, with numerics pinned as in every process of the run.

    Without ``count``, the process opens no other card (:func:`show_only`).
    """
    from pytest_ascend.device.npu import show_only
    from pytest_ascend.isolation.process import Channel, start

    def tell(channel: Channel) -> None:
        try:
            channel.send(**_device_facts(npu if count else replace(npu, index=show_only([npu.index])[0]), count))
        except Exception as error:  # noqa: BLE001  (whatever a broken stack raises is the answer)
            channel.send(failure=f"{type(error).__name__}: {error}")

    npu.load()
    answer = start(tell).result(LIMIT_S)
    if "failure" in answer:
        raise RuntimeError(answer["failure"])
    return answer


def _npu(request: Request, found: Sequence[Sign], *, isolated: bool) -> Prepared:
    from pytest_ascend.device.npu import Npu

    answer = ask(request.index)
    if answer.failure:
        remedy = next((remedy for pattern, remedy in REMEDIES if re.search(pattern, answer.failure)), OTHERWISE)
        asked = "this machine shows signs of Ascend" if request.kind == "auto" else f"npu:{request.index} was asked for"
        evidence = "".join(f"\n  found: {sign}" for sign in found) or "\n  found: no sign of Ascend on this machine"
        said = "".join(f"\n  doctor: {line}" for line in in_short(examine(this_machine(limit_s=PATIENT_S))))
        raise DeviceUnavailable(
            f"{asked}, but the NPU does not come up{evidence}\n  failed: {answer.failure}{said}",
            hint=f"{remedy}\n  hint: {EMULATE}",
        )
    with _comes_up(f"npu:{request.index}", hint=OTHERWISE):
        npu = Npu(request.index)
        return Prepared(
            device=npu,
            chip=answer.chip,
            numerics=dict(_device_facts_in_child(npu)["numerics"]) if isolated else npu.pin_numerics(),
            indices=tuple(range(max(answer.count, 1))),
            identities=of_machine(this_machine(limit_s=PATIENT_S), physical=answer.physical, buses=answer.buses),
        )


@contextlib.contextmanager
def _comes_up(name: str, *, hint: str) -> Iterator[None]:
    """Turn any exception of the stack in this process into DeviceUnavailable.

    Warnings during import are not failures, even if the tests turn warnings into errors.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    except Exception as error:
        causes: list[str] = []
        cause: BaseException | None = error
        while cause is not None:  # torch itself only says that a backend does not load
            causes.append(f"{type(cause).__name__}: {cause}")
            cause = cause.__cause__
        message = f"{name} does not come up in this process: {', because of '.join(causes)}"
        raise DeviceUnavailable(message, hint=hint) from error


def _other(request: Request, devices: int) -> Prepared:
    if importlib.util.find_spec("torch_npu"):
        # torch would autoload torch_npu, and fail without CANN.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        if "torch_npu" not in sys.modules:
            try:
                ctypes.CDLL("libhccl.so")
            except OSError:  # no CANN: libraries would import a torch_npu that cannot be loaded, and fail
                sys.modules["torch_npu"] = None  # type: ignore[assignment]  # as Python marks what cannot be imported
    from pytest_ascend.device import Cpu, open_cuda

    if request.kind == "cuda":
        cuda, chip = open_cuda(request.index)
        return Prepared(device=cuda, chip=chip, indices=(request.index,))
    return Prepared(device=Cpu(), chip=Cpu().chip(), indices=tuple(range(max(1, devices))))
