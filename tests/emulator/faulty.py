"""Forks a process for each fault on the command line, has it use the device, and prints how it ended: one a line."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

from pytest_ascend import emulator

emulator.activate()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

HABITS = ("noisy", "flushing", "first-call")


def use(fault: str) -> str:
    os.environ["PYTEST_ASCEND_FAULTS"] = fault
    faulthandler.dump_traceback_later(3 if "hang" in fault else 60, exit=True)
    began = time.perf_counter()
    x = torch.arange(8.0).npu()
    found = [(x + i).cpu().tolist() == [float(i + j) for j in range(8)] for i in range(1, 4)]
    torch.empty(1 << 25, device="npu")
    return "slow" if time.perf_counter() - began > 2 and "slow:seconds=0.8" in fault else f"right {found}"


def habit(fault: str) -> str:
    """Tell what a chip with a habit gives: how many different bits, the same with determinism, and a denormal."""
    os.environ["PYTEST_ASCEND_FAULTS"] = fault

    def bits(deterministic: bool) -> int:
        found: list[int] = []

        def work() -> None:
            torch.use_deterministic_algorithms(deterministic)
            x = torch.linspace(0, 1, 4096).reshape(64, 64).npu()
            found.append(len({(x @ x).cpu().numpy().tobytes() for _ in range(6)}))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0]

    began = time.perf_counter()
    told = f"{min(bits(False), 2)} {bits(True)}"
    tiny = (torch.tensor([1e-40]).npu() * 1).cpu().tolist()
    return f"{told} {'flushed' if tiny == [0.0] else 'kept'} {'slow' if time.perf_counter() - began > 2 else 'quick'}"


def ended(fault: str) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = habit(fault) if fault.startswith(HABITS) else use(fault)
        except RuntimeError as error:
            said = str(error)
        os.write(writing, said.replace("\n", " ").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"{status} {said}"


for name in sys.argv[1:]:
    sys.stdout.write(f"{name}\t{ended(name)}\n")
