"""Products of matrices and vectors give the same bits on the emulated device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .both import FLOATS, assert_same, floats

Shapes = tuple[tuple[int, ...], ...]

CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "mm": (torch.mm, ((5, 7), (7, 3))),
    "mm, transposed": (lambda a, b: torch.mm(a, b.t()), ((5, 7), (3, 7))),
    "mm, empty": (torch.mm, ((5, 0), (0, 3))),
    "bmm": (torch.bmm, ((2, 5, 7), (2, 7, 3))),
    "matmul, batch and matrix": (torch.matmul, ((2, 5, 7), (7, 3))),
    "matmul, transposed batch and matrix": (lambda a, b: a.transpose(0, 1) @ b, ((2, 5, 7), (7, 3))),
    "matmul, matrix and batch": (torch.matmul, ((5, 7), (2, 7, 3))),
    "matmul, batch and vector": (torch.matmul, ((2, 5, 7), (7,))),
    "matmul, vector and batch": (torch.matmul, ((7,), (2, 7, 3))),
    "matmul, vectors": (torch.matmul, ((7,), (7,))),
    "matmul, broadcast": (torch.matmul, ((2, 1, 5, 7), (3, 7, 4))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((3,), (5, 7), (7, 3))),
    "addmm_": (lambda c, a, b: (c * 1).addmm_(a, b), ((5, 3), (5, 7), (7, 3))),
    "addmv": (torch.addmv, ((5,), (5, 7), (7,))),
    "baddbmm": (torch.baddbmm, ((2, 5, 3), (2, 5, 7), (2, 7, 3))),
    "mv": (torch.mv, ((5, 7), (7,))),
    "dot": (torch.dot, ((7,), (7,))),
    "addr": (torch.addr, ((5, 3), (5,), (3,))),
    "linear": (F.linear, ((5, 7), (3, 7), (3,))),
    "linear, three dimensions": (F.linear, ((2, 5, 7), (3, 7), (3,))),
    "linear, no bias": (F.linear, ((2, 5, 7), (3, 7))),
    "einsum": (lambda a, b: torch.einsum("bik,bkj->ij", a, b), ((2, 5, 7), (2, 7, 3))),
}


def _assert_close_with_gradients(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    results = []
    for device in ("cpu", "npu"):
        leaves = [each.detach().to(device).requires_grad_() for each in inputs]
        output = function(*leaves)
        output.sum().backward()
        results.append([each.detach().cpu() for each in (output, *(leaf.grad for leaf in leaves))])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_product_and_its_gradients(name: str, dtype: torch.dtype) -> None:
    function, shapes = CASES[name]
    if (name, dtype) == ("matmul, matrix and batch", torch.float32):
        # The gradient's sum over the batch runs in another order on some processors: right within an ulp or two.
        _assert_close_with_gradients(function, *_inputs(shapes, dtype))
        return
    assert_same(function, *_inputs(shapes, dtype), backward=True)


@pytest.mark.parametrize("name", ["mm", "bmm", "linear", "mv"])
def test_strided_operands(name: str) -> None:
    function, shapes = CASES[name]
    assert_same(function, *_inputs(shapes, torch.float32), strided=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64])
def test_there_are_products_of_narrow_floats_only(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="should be in dtype support list"):
        torch.mm(torch.ones(2, 3, dtype=dtype).npu(), torch.ones(3, 2, dtype=dtype).npu())


def test_product_into_a_tensor() -> None:
    assert_same(
        lambda a, b, out: torch.mm(a, b, out=out), floats(5, 7), floats(7, 3, seed=1), torch.zeros(5, 3), strided=True
    )


def test_hf32_rounds_the_operands_to_eleven_bits() -> None:
    a, b = floats(64, 256).npu(), floats(256, 64, seed=1).npu()
    exact = a.double().cpu() @ b.double().cpu()
    torch.npu.matmul.allow_hf32 = True
    try:
        error = (torch.mm(a, b).cpu() - exact).norm() / exact.norm()
    finally:
        torch.npu.matmul.allow_hf32 = False
    assert 2**-14 < error < 2**-11
    assert (torch.mm(a, b).cpu() - exact).norm() / exact.norm() < 2**-20


def _inputs(shapes: Shapes, dtype: torch.dtype) -> list[torch.Tensor]:
    return [floats(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("then", "rest"),
    [
        ("", lambda y, _: y),
        ("add", lambda y, x3: y + x3),
        ("mul", lambda y, x3: y * x3),
        ("relu", lambda y, _: y.relu()),
        ("gelu_erf", lambda y, _: F.gelu(y)),
        ("gelu_tanh", lambda y, _: F.gelu(y, approximate="tanh")),
    ],
)
def test_a_product_with_what_comes_next(then: str, rest: Callable[..., torch.Tensor]) -> None:
    import torch_npu

    x1, x2, bias, x3 = _inputs(((5, 7), (7, 3), (3,), (5, 3)), torch.float32)
    third = {"x3": x3.npu()} if then in {"add", "mul"} else {}
    actual = torch_npu.npu_fused_matmul(x1.npu(), x2.npu(), bias=bias.npu(), fused_op_type=then, **third)
    torch.testing.assert_close(actual.cpu(), rest(x1 @ x2 + bias, x3))
