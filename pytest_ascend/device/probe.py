"""Test in a separate process whether an NPU works: a faulty device may hang or kill the process.

Run as a module, it tests the device and prints the answer as one line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ascend.device import device_count
from pytest_ascend.system.programs import run, tell

#: The first use of a healthy NPU takes up to half a minute; kernels may have to be compiled.
LIMIT_S = 180.0
#: An NPU's messages that it is not free yet, as after a process was killed; it is tried again after a pause.
BUSY, BUSY_PAUSE_S = re.compile(r"EL0005|resources? (?:is|are) busy", re.IGNORECASE), 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The NPU's answer: ``failure`` is "" if it works. ``chip`` is the SoC's name.

    ``physical`` and ``buses`` are the runtime's names of the devices, by torch's index; empty if unknown.
    """

    failure: str = ""
    chip: str = ""
    count: int = 0
    physical: Sequence[int] = ()
    buses: Sequence[str] = ()


def ask(index: int, *, limit_s: float = LIMIT_S, command: Sequence[str] = ()) -> Answer:
    """Test the NPU with this index, and wait ``limit_s`` at most. Never raises on a faulty device.

    A busy device is tried again within that time. ``command`` replaces the test program, for our own tests.
    """
    asking = list(command) or [sys.executable, "-m", "pytest_ascend.device.probe", str(index)]
    # Without this, `import torch` itself would fail there, with a message about autoloading.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    end, left_s = time.monotonic() + limit_s, limit_s
    while True:
        reply = run(asking, environment, left_s)
        if reply.answer:
            answer = Answer(**reply.answer)
        elif reply.late:
            answer = Answer(failure=f"it {reply.failure}")
        else:
            last = next((line for line in reversed(reply.text.splitlines()) if line.strip()), "it printed nothing")
            answer = Answer(failure=f"the process that asked {reply.failure or f'ended without an answer: {last}'}")
        left_s = end - time.monotonic() - BUSY_PAUSE_S
        if not BUSY.search(answer.failure) or left_s <= 0:
            return answer
        time.sleep(BUSY_PAUSE_S)


def numbering(count: int) -> dict[str, list[Any]]:
    """Return the device names of CANN's runtime; empty if it is too old to report them."""
    found: dict[str, list[Any]] = {"physical": [], "buses": []}
    with contextlib.suppress(OSError, AttributeError):
        runtime = ctypes.CDLL("libascendcl.so")
        for index in range(count):
            number, text = ctypes.c_int32(-1), ctypes.create_string_buffer(32)
            if runtime.aclrtGetPhyDevIdByUserDevId(index, ctypes.byref(number)) == 0:
                found["physical"].append(number.value)
            if runtime.aclrtDeviceGetPCIBusId(index, text, len(text)) == 0:
                found["buses"].append(text.value.decode("ascii", errors="replace"))
    return found


def known_answer(device: Any) -> str:
    """Run a computation with a known result; return "" if the device gets it right, else the wrong result.

    After a fatal error, an NPU's queue silently turns every operator into a no-op. The numbers differ each time, since
    the memory of a result may still hold that of the previous run.
    """
    import torch

    # Also exact in half precision, in which some chips multiply float32.
    first, power = random.randrange(1, 12), random.randrange(-6, 6)  # noqa: S311  (no secret)
    numbers = torch.arange(first, first + 8, dtype=torch.float32) * 2.0**power
    square, on_device = numbers.reshape(2, 4), numbers.to(device)
    # A single copy back, as this runs after every case: details are computed only if something is wrong.
    together = (on_device + on_device).reshape(2, 4) @ on_device.reshape(2, 4).T
    if together.cpu().tolist() == (2 * square @ square.T).tolist():
        return ""
    made = {
        "an addition": (on_device + on_device, 2 * numbers),
        "a product": (on_device * on_device, numbers * numbers),
        "a product of matrices": (on_device.reshape(2, 4) @ on_device.reshape(2, 4).T, square @ square.T),
        "a product of matrices with a sum": (together, 2 * square @ square.T),
    }
    for name, (actual, expected) in made.items():
        if actual.cpu().tolist() != expected.tolist():
            return f"{expected.tolist()} was to come of {name}, and {actual.cpu().tolist()} came"
    return ""


def main(arguments: Sequence[str]) -> None:
    """Print the answer of the NPU whose index is the only argument; without one, the devices that the runtime shows."""
    try:
        if arguments:
            # Another process counts: CANN reads the visible cards once, and this process must not open another card.
            told = run([sys.executable, "-m", "pytest_ascend.device.probe"], dict(os.environ), LIMIT_S).answer or {}
            from pytest_ascend.device.npu import Npu, show_only

            index = int(arguments[0])
            shown = show_only([index])[0] if index < told.get("count", 0) else index
            import torch

            npu = Npu(shown)
            npu.load()
            count = told.get("count") or torch.npu.device_count()  # type: ignore[attr-defined]
            answer = {"failure": f"torch_npu sees {count} NPUs", "count": count}
            if index < count:
                known = known_answer(npu.torch_device())
                answer = {"failure": known, "chip": npu.chip(), **(told or {"count": count})}
        else:
            count = device_count()
            answer = {"count": count, **numbering(count)} if count else {}
    except Exception as error:  # noqa: BLE001  (whatever a broken stack raises is the answer)
        answer = {"failure": f"{type(error).__name__}: {error}"}
    tell(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
