"""The emulated device is the chip that it is told to be, with the cards and the memory that it is told to have."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import AT_START

PROGRAM = """
import ctypes, json
import torch, torch_npu

def tried(work):
    try:
        return work().cpu().tolist()
    except RuntimeError as error:
        return next((line for line in str(error).splitlines() if "emulated CANN" in line), str(error))

def square(dtype=torch.float32):
    return torch.full((1, 2), 1 + 2**-12, dtype=dtype).npu() @ torch.ones(2, 1, dtype=dtype).npu()

def overflow():
    if torch.npu.utils.is_support_inf_nan():
        return []
    found = []
    for work in (lambda: big.exp(), lambda: big + 1):
        torch.npu.utils.clear_npu_overflow_flag()
        work()
        found.append(torch.npu.utils.get_npu_overflow_flag())
    return found

big = torch.tensor([12.0, -1.0], dtype=torch.float16).npu()
infinite = torch.tensor([torch.inf, torch.nan]).npu()
found = {
    "exp": tried(lambda: big.exp()[:1]), "log": tried(lambda: big.log()[1:]),
    "moved": tried(lambda: torch.cat([infinite, infinite]).flip(0)[1:3].cpu().isinf()),
    "bfloat16": tried(lambda: torch.ones(1, dtype=torch.bfloat16).npu().exp()),
    "overflow": overflow(), "name": torch.npu.get_device_name(),
    "free": list(torch.npu.mem_get_info()), "physical": [],
}
torch.npu.matmul.allow_hf32 = False
for mode in ("must_keep_origin_dtype", "allow_fp32_to_fp16"):
    torch.npu.set_option({"ACL_PRECISION_MODE": mode})
    found[mode] = tried(square)
number = ctypes.c_int32()
for index in range(torch.npu.device_count()):
    ctypes.CDLL("libascendcl.so").aclrtGetPhyDevIdByUserDevId(index, ctypes.byref(number))
    found["physical"].append(number.value)
print(json.dumps(found))
"""


def told(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest_ascend.cli", "emulate", *options, "--", "python", "-c", PROGRAM]
    done = subprocess.run(command, env=AT_START, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("chip", ["310P", "910A"])
def test_an_old_chip_saturates_multiplies_halves_and_has_no_bfloat16(chip: str) -> None:
    found = told("--chip", chip)
    assert (found["exp"], found["log"], found["overflow"]) == ([65504.0], [0.0], [True, False])
    assert found["moved"] == [True, False]
    assert "does not support bf16 / fp32 for calculations" in found["must_keep_origin_dtype"]
    assert found["allow_fp32_to_fp16"] == [[2.0]]
    assert "not implemented for DT_BFLOAT16" in found["bfloat16"]


@pytest.mark.parametrize("chip", ["910B", "910_93", "950"])
def test_a_new_chip_has_infinities_float32_products_and_bfloat16(chip: str) -> None:
    found = told("--chip", chip)
    assert found["exp"] == [float("inf")]
    assert found["log"][0] != found["log"][0]  # NaN
    assert (found["moved"], found["overflow"]) == ([True, False], [])
    assert found["must_keep_origin_dtype"] == [[2 + 2**-11]]
    assert isinstance(found["bfloat16"], list)


def test_cards_of_a_container_and_memory_that_another_process_holds() -> None:
    found = told("--physical", "4,6", "--memory", "1GiB", "--occupied", "768MiB")
    assert found["physical"] == [4, 6]
    free, total = found["free"]
    assert total == 1 << 30
    assert 0 < free <= 1 << 28


@pytest.mark.parametrize("cards", ["4,4", "x", "4,", "-1", "100"])
def test_what_lists_no_cards_is_refused(cards: str) -> None:
    command = [sys.executable, "-m", "pytest_ascend.cli", "emulate", "--physical", cards, "--", "true"]
    done = subprocess.run(command, env=AT_START, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "lists no cards" in done.stderr
