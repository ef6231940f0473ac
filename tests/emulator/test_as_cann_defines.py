"""What CANN's operators define otherwise than torch's CPU kernels, by their host code and others' tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch_npu
from torch.testing import assert_close

from pytest_ascend.emulator.kernels import normalization
from pytest_ascend.environment.chips import family

from .kernel import by_name, called


def test_gelu_is_the_tanh_formula_forward_and_backward() -> None:
    x = torch.linspace(-6, 6, 97)
    own, cpu = x.npu().requires_grad_(), x.clone().requires_grad_()
    torch.nn.functional.gelu(own).sum().backward()
    torch.nn.functional.gelu(cpu, approximate="tanh").sum().backward()
    torch.testing.assert_close(torch.nn.functional.gelu(own).cpu(), torch.nn.functional.gelu(x, approximate="tanh"))
    torch.testing.assert_close(own.grad.cpu(), cpu.grad)


def test_a_product_of_two_dtypes_has_the_first() -> None:
    left, right = torch.ones(5, 4).half().npu(), torch.full((4, 3), 1.5).npu()
    assert torch.matmul(left, right).dtype is torch.float16
    assert torch.matmul(left, right).tolist() == [[6.0] * 3] * 5
    assert torch.matmul(left.float(), right.half()).dtype is torch.float32


def test_a_batch_of_one_is_broadcast() -> None:
    left, right = torch.rand(1, 2, 3), torch.rand(4, 3, 5)
    torch.testing.assert_close(torch.bmm(left.npu(), right.npu()).cpu(), left @ right)
    torch.testing.assert_close(torch.bmm(right.mT.npu(), left.mT.npu()).cpu(), right.mT @ left.mT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.3, 2), (0, 0.7)])
def test_batches_of_products_are_rounded_before_they_are_added(dtype: torch.dtype, beta: float, alpha: float) -> None:
    added, left, right = (torch.randn(shape).to(dtype) for shape in ((5, 3), (2, 5, 7), (2, 7, 3)))
    products = (left.float() @ right.float()).to(dtype)
    own = added * beta
    each = torch.add(own, products, alpha=alpha) if beta else products * alpha
    found = torch.baddbmm(added.npu(), left.npu(), right.npu(), beta=beta, alpha=alpha)
    assert_close(found.cpu(), each, rtol=1e-6, atol=1e-6)
    own = added.float() * beta if dtype is torch.bfloat16 else own
    total = products.float().sum(0).to(dtype)
    whole = torch.add(own, total, alpha=alpha).to(dtype) if beta else total * alpha
    found = torch.addbmm(added.npu(), left.npu(), right.npu(), beta=beta, alpha=alpha)
    assert_close(found.cpu(), whole, rtol=1e-6, atol=1e-6)


def test_a_sum_is_rounded_before_it_is_normalized_but_on_a_950(monkeypatch: pytest.MonkeyPatch) -> None:
    x1, x2, gamma = (torch.randn(shape).bfloat16() for shape in ((64, 16), (64, 16), (16,)))
    whole = x1.float() + x2.float()

    def normal(total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rstd = total.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        return total * rstd, rstd

    short, rstd = normal(whole.bfloat16().float())
    for made in (
        torch_npu.npu_add_rms_norm(x1.npu(), x2.npu(), gamma.npu(), 1e-6),
        called("AddRmsNorm", x1, x2, gamma, 1e-6),
    ):
        assert_close(made[0].cpu(), (short.bfloat16().float() * gamma.float()).bfloat16(), rtol=0, atol=0)
        assert_close(made[1].cpu(), rstd)
    monkeypatch.setattr(normalization, "emulated_family", lambda: family("Ascend950PR"))
    y, of_whole, _ = called("AddRmsNorm", x1, x2, gamma, 1e-6)
    assert_close(y, normal(whole)[0] * gamma.float())
    assert_close(of_whole, normal(whole)[1])
    assert not torch.equal(of_whole, rstd)


def test_gradients_use_what_is_given_beside() -> None:
    grad, x, given = torch.randn(4, 6), torch.randn(4, 12), torch.randn(4, 6)
    made = called("GeGluV3Backward", grad, x, given, dim=-1, approximate=1)
    assert_close(made[:, :6], grad * given)
    made = by_name("MishGrad")(grad, x[:, :6], given)
    assert_close(made, grad * (given + x[:, :6].sigmoid() * x[:, :6] * (1 - given**2)))
    made = called("KlDivTargetBackward", grad, x[:, :6], given.abs(), reduction=1)
    assert_close(made, grad / 24 * (given.abs().log() + 1 - x[:, :6]))
    infinite = called("FastGeluBackward", torch.tensor([-torch.inf]), torch.tensor([-2.0]))
    assert infinite.isinf()


def test_gating_keeps_all_shares_only_if_asked() -> None:
    x = torch.randn(4, 8)
    values, _, shares = torch_npu.npu_moe_gating_top_k_softmax_v2(x.npu(), k=2)
    torch.testing.assert_close(values.cpu(), x.softmax(-1).topk(2).values)
    assert shares.numel() == 0
    assert torch_npu.npu_moe_gating_top_k_softmax_v2(x.npu(), k=2, output_softmax=True)[2].shape == (4, 8)
    equal = torch_npu.npu_moe_gating_top_k_softmax_v2(torch.zeros(3, 9).npu(), k=3, renorm=1)
    assert equal[1].tolist() == [[0, 1, 2]] * 3  # of equal experts, the first


def test_empty_boxes_overlap_nothing() -> None:
    boxes = torch.tensor([[0.0, 0, 0, 0], [0, 0, 10, 10]]).npu()
    for mode in (0, 1):
        found = torch_npu.npu_iou(boxes, boxes, mode=mode).cpu()
        whole = 10.01**2  # the area of a box larger by 0.01
        expected = torch.tensor([[0, 0], [0, 100 / (whole if mode else 2 * whole - 100)]])
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-4)  # computed in float16


#: Counts the devices that each text shows, in a process of its own: the variable is read once.
_COUNT = """
import ctypes, os, sys
for text in sys.argv[1:]:
    if not os.fork():
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = text
        count = ctypes.c_uint32()
        ctypes.CDLL("libascendcl.so").aclrtGetDeviceCount(ctypes.byref(count))
        print(count.value, flush=True)
        os._exit(0)
    os.wait()
"""


def test_visible_devices_are_read_as_by_the_runtime_of_cann() -> None:
    expected = {
        "": 0,
        ",": 0,
        "0,": 1,
        ",0": 0,
        "0, 1": 1,
        "0 ,1": 1,
        "0,1": 2,
        "0,32,1": 1,
        "0,0": 0,
        "1,0": 0,
        "npu0": 0,
    }
    command = [sys.executable, "-S", "-c", _COUNT, *expected]
    counted = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert dict(zip(expected, map(int, counted.split()), strict=True)) == expected
