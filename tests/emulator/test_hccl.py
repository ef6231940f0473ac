"""Programs on several ranks, started by torchrun, as a user starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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

#: Products of float8 with an exchange, which no suite asks as only a 950 has them: each against its definition.
FLOAT8 = """
import os
import torch, torch.distributed as dist, torch_npu

rank, count, narrow = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), torch.float8_e4m3fn
torch.npu.set_device(rank)
dist.init_process_group("hccl")
group = dist.distributed_c10d._get_default_group()
name = group._get_backend(torch.device("npu")).get_hccl_comm_name(rank)


def of(seed, *shape):
    return [torch.randn(shape, generator=torch.Generator().manual_seed(100 * each + seed)) for each in range(count)]


x, w = ([each.to(narrow) for each in some] for some in (of(1, 8, 16), of(2, 16, 6 * count)))
rows, columns, bias = ([each.abs() for each in of(3, 8)], [each.abs() for each in of(4, 6 * count)], of(5, 6 * count))
whole = [
    a.double() @ b.double() * r.unsqueeze(1) * c + d for a, b, r, c, d in zip(x, w, rows, columns, bias, strict=True)
]
wanted = torch.cat([each.chunk(count, 1)[rank] for each in whole])
mine = [each[rank].npu() for each in (x, w, bias, rows, columns)]
found = torch_npu.npu_quant_matmul_all_to_all(mine[0], mine[1], name, count, *mine[2:], x1_quant_mode=3)
torch.testing.assert_close(found.cpu().double(), wanted, rtol=1e-5, atol=1e-4)

x, w = [each.bfloat16() for each in of(6, 8, 16)], [each.to(narrow) for each in of(7, 16 * count, 12)]
scale = [each.abs() for each in of(8, 12)]
came = torch.cat([each.chunk(count)[rank] for each in x], 1)
by_row = came.float().abs().amax(1, keepdim=True) / 448
wanted = (came.float() / by_row).to(narrow).double() @ w[rank].double() * by_row * scale[rank]
found, received = torch_npu.npu_all_to_all_quant_matmul(
    x[rank].npu(), w[rank].npu(), name, count, x2_scale=scale[rank].npu(), x1_quant_mode=7, x1_quant_dtype=24
)
torch.testing.assert_close(found.cpu().double(), wanted, rtol=1e-5, atol=1e-4)
assert torch.equal(received.cpu(), came)
dist.barrier()
print("AS DEFINED", flush=True)
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


@pytest.mark.drawn(4, "long")
def test_products_of_float8_with_an_exchange_are_as_defined(tmp_path: Path) -> None:
    assert run(FLOAT8, tmp_path).count("AS DEFINED") == 2
