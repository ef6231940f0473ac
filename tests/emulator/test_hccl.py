"""Programs on several ranks, started by torchrun, as a user starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: The last rank comes late to a sum; what the others' flight recorders say meanwhile is what a user reads of a hang.
LATE = """
import os, pickle, sys, time
from pathlib import Path
import torch, torch.distributed as dist, torch_npu

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
dist.barrier()
while rank == 1 and not (folder / "waits").exists():
    time.sleep(0.01)
work = dist.all_reduce(torch.ones(1234, device="npu"), async_op=True)
entry = pickle.loads(torch_npu._C._distributed_c10d._dump_hccl_trace())["entries"][-1]
if rank == 0:
    print(f"RECORDED {entry['input_sizes']} {entry['state']}", flush=True)
    (folder / "waits").touch()
work.wait()
dist.barrier()
entry = pickle.loads(torch_npu._C._distributed_c10d._dump_hccl_trace())["entries"][-2]
if rank == 0:
    print(f"AFTERWARDS {entry['input_sizes']} {entry['state']}", flush=True)
"""


def run(program: str, folder: Path, *arguments: str, **settings: str) -> str:
    """Run a program on two emulated devices; return what it prints."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest_ascend.cli", "emulate", "--devices", "2", "--"]
    command += ["env", *(f"{name}={value}" for name, value in settings.items())]
    command += [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def test_the_flight_recorder_shows_what_has_not_ended(tmp_path: Path) -> None:
    said = run(LATE, tmp_path, str(tmp_path), TORCH_HCCL_TRACE_BUFFER_SIZE="100")
    assert "RECORDED [[1234]] scheduled" in said
    assert "AFTERWARDS [[1234]] completed" in said
