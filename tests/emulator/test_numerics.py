"""The numerics of a chip through torch_npu, in a process of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ascend import emulator
from pytest_ascend.errors import UsageError
from tests.forks import emulated

PROGRAM = """
import json, torch, torch_npu
from pytest_ascend import emulator

x = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
w = torch.randn(8, 16, 3, 3, generator=torch.Generator().manual_seed(2))
image = x.view(4, 16, 8, 12)


def error(function, *operands):
    actual = function(*(each.npu() for each in operands)).cpu()
    expected = function(*(each.double() for each in operands))
    return float((actual - expected).abs().max() / expected.abs().max()), torch.equal(actual, function(*operands))


def found():
    return {
        "exp": error(torch.exp, x),
        "matmul": error(torch.matmul, x, x.t()),
        "convolution": error(torch.conv2d, image, w),
        "softmax": error(lambda x: x.softmax(1), x),
        "add": error(torch.add, x, x),
        "maximum": error(torch.amax, x),
    }


with_hf32 = found()
torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False
print(json.dumps([emulator.EmulatorSettings().resolved().numerics, with_hf32, found()]))
"""


def test_a_chip_computes_otherwise_and_no_worse(tmp_path: Path) -> None:
    numerics, with_hf32, without = json.loads(emulated(PROGRAM, tmp_path, numerics="chip:3").splitlines()[-1])
    assert numerics == "chip:3"
    assert all(error < 1e-6 for error, _ in without.values())
    assert [name for name, (_, is_cpus) in without.items() if is_cpus] == ["add", "maximum"]
    assert 1e-5 < with_hf32["convolution"][0] < 1e-3  # on by default, as on a chip


def test_a_process_keeps_the_numerics_that_it_began_with() -> None:
    assert emulator.EmulatorSettings().resolved().numerics == "exact"
    emulator.activate(emulator.EmulatorSettings(numerics="exact"))
    with pytest.raises(UsageError, match="started with numerics exact, and chip:1 is asked for"):
        emulator.activate(emulator.EmulatorSettings(numerics="chip:1"))
