"""The emulated device is the chip that it is told to be, with the cards and the memory that it is told to have."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pytest_ascend.environment import chips
from tests.conftest import AT_START
from tests.forks import emulated, run

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

def product_format(product):
    try:
        kept = [product(1 + 2**-bits).item() == 1 + 2**-bits for bits in (11, 12)]
    except RuntimeError:
        return "refused"
    return {(True, True): "float32", (True, False): "HF32", (False, False): "float16"}[tuple(kept)]

one = torch.ones(1, 1).npu()
found["products"] = {
    "matrix products": product_format(lambda x: one * 0 + torch.full((1, 1), x).npu() @ one),
    "convolutions": product_format(lambda x: torch.nn.functional.conv2d(one[None, None] * x, one[None, None])),
}
torch.npu.matmul.allow_hf32 = torch.npu.conv.allow_hf32 = False
image, kernel = torch.full((1, 1, 1, 2), 1 + 2**-12).requires_grad_(), torch.ones(1, 1, 1, 2)
convolved = torch.nn.functional.conv2d(image.npu(), kernel.npu())
convolved.backward(torch.full_like(convolved, 1 + 2**-12))
found["conv2d"] = [convolved.item(), image.grad.unique().item()]
for mode in ("must_keep_origin_dtype", "allow_fp32_to_fp16"):
    torch.npu.set_option({"ACL_PRECISION_MODE": mode})
    found[mode] = tried(square)
number = ctypes.c_int32()
for index in range(torch.npu.device_count()):
    ctypes.CDLL("libascendcl.so").aclrtGetPhyDevIdByUserDevId(index, ctypes.byref(number))
    found["physical"].append(number.value)
torch.npu.config.allow_internal_format = True
matrix = torch.arange(600.0).reshape(20, 30).half().npu()
tiled = torch_npu.npu_format_cast(matrix, 29)
found["format"] = [torch_npu.get_npu_format(tiled).name, tiled.untyped_storage().nbytes()]
found["format"] += [torch.equal(torch_npu.npu_format_cast(tiled, 2).cpu(), matrix.cpu())]
print(json.dumps(found))
"""


#: What torch_npu calls by name on an old chip, in random windows: the worst difference from the CPU of each.
BY_NAME = """
import json, random
import torch, torch_npu
import torch.nn.functional as F

draw, found = random.Random(11), {}

def window():
    kernel = [draw.randint(2, 3) for _ in range(3)]
    return {"kernel_size": kernel, "stride": [draw.randint(1, 3) for _ in kernel],
            "padding": [draw.randint(0, each // 2) for each in kernel], "ceil_mode": draw.random() < 0.5}

def compare(name, call, dtype):
    x = torch.randn(2, 3, 9, 8, 10).to(dtype)
    ours, theirs = x.npu().requires_grad_(), x.float().requires_grad_()
    made = [call(each) for each in (ours, theirs)]
    torch.manual_seed(1)
    weight = torch.randn(made[1].shape).to(dtype)
    for each in made:
        each.backward(weight.to(each))
    torch.testing.assert_close(made[0].detach().cpu(), made[1].detach().to(dtype))
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad.to(dtype))
    found[name] = found.get(name, 0) + 1

for _ in range(8):
    for dtype in (torch.float32, torch.float16):
        chosen, include = window(), draw.random() < 0.5
        compare("max", lambda x: F.max_pool3d(x, **chosen), dtype)
        compare("mean", lambda x: F.avg_pool3d(x, **chosen, count_include_pad=include), dtype)
x = torch.randint(2**40, (1, 1, 3, 4, 4))
found["integers"] = torch.equal(F.avg_pool3d(x.npu(), 2).cpu(), F.avg_pool3d(x, 2))
torch.npu.config.allow_internal_format = True
for groups in (1, 3):
    for padded in (0, 1):
        x, weight, bias = torch.randn(2, 3, 7, 6), torch.randn(3, 2, 3, 2), torch.randn(2 * groups)
        geometry = {"stride": 2, "padding": 1, "output_padding": padded, "groups": groups}
        made = F.conv_transpose2d(x.npu(), weight.npu(), bias.npu(), **geometry).cpu()
        torch.testing.assert_close(made, F.conv_transpose2d(x, weight, bias, **geometry), rtol=1e-2, atol=1e-2)
        found["transposed"] = found.get("transposed", 0) + 1
print(json.dumps(found))
"""


def test_what_an_old_chip_is_asked_by_name() -> None:
    assert told(BY_NAME, chip="310P") == {"max": 16, "mean": 16, "integers": True, "transposed": 4}


@cache
def told(program: str = PROGRAM, **settings: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        found: dict[str, Any] = json.loads(emulated(program, Path(folder), **settings).splitlines()[-1])
    return found


@pytest.mark.parametrize("chip", ["910B", "910_93", "950", "310P", "310B", "910A"])
def test_a_chip_multiplies_float32_by_default_as_the_census_says(chip: str) -> None:
    found = told(chip=chip)
    kind = chips.family(found["name"])
    assert kind is not None
    assert found["products"] == chips.product_formats(kind)


@pytest.mark.parametrize("chip", ["310P", "910A"])
def test_an_old_chip_saturates_multiplies_halves_and_has_no_bfloat16(chip: str) -> None:
    found = told(chip=chip)
    assert (found["exp"], found["log"], found["overflow"]) == ([65504.0], [0.0], [True, False])
    assert found["moved"] == [True, False]
    assert "does not support bf16 / fp32 for calculations" in found["must_keep_origin_dtype"]
    assert found["allow_fp32_to_fp16"] == [[2.0]]
    assert found["conv2d"] == [2.0, 1.0]
    assert "not implemented for DT_BFLOAT16" in found["bfloat16"]


@pytest.mark.parametrize("chip", ["910B", "910_93", "950"])
def test_a_new_chip_has_infinities_float32_products_and_bfloat16(chip: str) -> None:
    found = told(chip=chip)
    assert found["exp"] == [float("inf")]
    assert found["log"][0] != found["log"][0]  # NaN
    assert (found["moved"], found["overflow"]) == ([True, False], [])
    assert found["must_keep_origin_dtype"] == [[2 + 2**-11]]
    assert found["conv2d"] == [2 + 2**-11, 1 + 2**-12]
    assert isinstance(found["bfloat16"], list)
    assert found["format"] == ["FRACTAL_NZ", 32 * 32 * 2, True]


def test_cards_of_a_container_and_memory_that_another_process_holds() -> None:
    options = ("--physical", "4,6", "--memory", "1GiB", "--occupied", "768MiB")
    command = [sys.executable, "-m", "pytest_ascend.cli", "emulate", *options, "--", "python", "-c", PROGRAM]
    done = subprocess.run(command, env=AT_START, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["physical"] == [4, 6]
    free, total = found["free"]
    assert total == 1 << 30
    assert 0 < free <= 1 << 28


@pytest.mark.parametrize("cards", ["4,4", "x", "4,", "-1", "100"])
def test_what_lists_no_cards_is_refused(cards: str) -> None:
    done = run("pytest_ascend.cli", "emulate", "--physical", cards, "--", "true")
    assert done.returncode == 4
    assert "lists no cards" in done.stderr


OPERATORS = """
import json, sys
import torch, torch_npu
from torch.nn import functional as F

def attention(device):
    q, k, v = (torch.linspace(-1, 1, 2 * 2 * 9 * 8).sin().mul(by).view(2, 2, 9, 8).half().to(device).requires_grad_()
               for by in (1, 2, 3))
    out = F.scaled_dot_product_attention(q, k, v)
    return [out, *torch.autograd.grad(out.float().sum(), (q, k, v))]

def bag(device):
    weight, index = torch.linspace(0, 1, 18).view(6, 3).to(device), torch.arange(5).to(device)
    start = torch.tensor([0, 2]).to(device)
    return [F.embedding_bag(index, weight, start, mode=mode) for mode in ("sum", "mean", "max")]

def norm(device):
    x, c = torch.linspace(-1, 1, 24).view(2, 3, 4).to(device), torch.ones(3).to(device)
    return [torch.batch_norm_elemt(x, c * 2, c, c / 4, c * 3, 1e-5) if device == "npu" else (x - 0.25) * 6 + 1]

def dropped(device):
    x = torch.ones(1000, requires_grad=True, device=device)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    kept, is_scaled = (y > 0).float().mean().item(), (y == 0) | ((y - 4 / 3).abs() < 1e-6)
    return [torch.tensor([abs(kept - 0.75) < 0.1, bool((x.grad == y).all()), bool(is_scaled.all())])]

def thinned(device):
    x, unit = torch.zeros(1, 2, 200, 64, device=device), torch.eye(64, device=device).expand(1, 2, 64, 64).contiguous()
    unit.requires_grad_()
    first, second = (F.scaled_dot_product_attention(x, 0 * unit, unit, dropout_p=0.25) for _ in range(2))
    first.sum().backward()
    kept, share = first > 0, (first > 0).float().mean().item()
    sums = torch.allclose(unit.grad, (kept / 48).sum(2)[..., None].float().expand(1, 2, 64, 64), rtol=1e-3)
    return [torch.tensor([abs(share - 0.75) < 0.02, not torch.equal(first, second), sums])]

def turned(device):
    x = torch.linspace(-1, 1, 2 * 4 * 8).view(1, 2, 4, 8).half().to(device).requires_grad_()
    c, s = torch.full((1, 1, 4, 8), 0.6).half().to(device), torch.full((1, 1, 4, 8), 0.8).half().to(device)
    if device == "npu":
        y = torch_npu.npu_rotary_mul(x, c, s)
    else:
        y = x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s
    return [y, *torch.autograd.grad(y.float().sum(), x)]

off = {}
for name in sys.argv[1:]:
    pairs = zip(*(globals()[name](device) for device in ("npu", "cpu")))
    off[name] = max((a.detach().cpu().double() - b.detach().double()).abs().max().item() for a, b in pairs)
print(json.dumps(off))
"""


@pytest.mark.parametrize(
    ("chip", "names"), [("950", ("attention", "bag", "norm", "dropped", "thinned")), ("310P", ("bag", "turned"))]
)
def test_operators_that_torch_npu_calls_on_some_chips_only_agree_with_the_cpu(
    chip: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    off = json.loads(emulated(OPERATORS, tmp_path, *names, chip=chip).splitlines()[-1])
    assert set(off) == set(names)
    assert max(off.values()) < 4e-3, off
