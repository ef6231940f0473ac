"""Forks a process for each fault on the command line, has it use the device, and prints how it ended: one a line."""

from __future__ import annotations

import faulthandler
import os
import sys
import time

from pytest_ascend import emulator

emulator.activate()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401


def use(fault: str) -> str:
    os.environ["PYTEST_ASCEND_FAULTS"] = fault
    faulthandler.dump_traceback_later(3 if "hang" in fault else 60, exit=True)
    began = time.perf_counter()
    x = torch.arange(8.0).npu()
    found = [(x + i).cpu().tolist() == [float(i + j) for j in range(8)] for i in range(1, 4)]
    torch.empty(1 << 25, device="npu")
    return "slow" if time.perf_counter() - began > 2 and "slow" in fault else f"right {found}"


def ended(fault: str) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = use(fault)
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
