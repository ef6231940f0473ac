"""Kernels that only an older torch_npu calls, by the operator's name, or with outputs of other shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pytest_ascend.emulator.kernels import FAMILIES


def test_the_gradient_of_adaptive_pooling_goes_to_the_largest() -> None:
    x = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    pooled, argmax = F.adaptive_max_pool2d(x, (3, 4), return_indices=True)
    grad = torch.arange(72.0).view(2, 3, 3, 4)
    (expected,) = torch.autograd.grad(pooled, x, grad)
    (backward,) = (
        each.body for family in FAMILIES for each in family.by_name if each.name == "MaxPoolGradWithArgmaxV1"
    )
    found = backward(x.detach(), grad, argmax, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], pads=[1, 0, 0, 1])
    assert torch.equal(found, expected)


def test_triangular_systems_are_solved_from_either_side() -> None:
    (solve,) = (each.body for family in FAMILIES for each in family.by_name if each.name == "MatrixTriangularSolve")
    matrix = torch.tensor([[2.0, 0.0], [3.0, 4.0]])
    x = torch.tensor([[1.0], [2.0]])
    torch.testing.assert_close(solve(matrix, matrix @ x, lower=True, adjoint=False), x)
    torch.testing.assert_close(solve(matrix, matrix.mT @ x, lower=True, adjoint=True), x)
    torch.testing.assert_close(solve(matrix.mT, matrix.mT @ x, lower=False, adjoint=False), x)


def test_norms_of_lists_may_have_a_dimension() -> None:
    (norm,) = (each.body for family in FAMILIES for each in family.kernels if each.name == "aclnnForeachNorm")
    out = [torch.zeros(1), torch.zeros(())]
    norm([torch.tensor([3.0, 4.0]), torch.tensor([6.0, 8.0])], 2, out=out)
    assert [each.tolist() for each in out] == [[5.0], 10.0]


def test_attributes_of_operators_by_name_are_those_of_cann() -> None:
    """As the goldens say: ops-math c41933244c31 (exp, log), ops-nn e5c3fa9327ea (scatter_elements, apply_adam_w)."""
    body = {each.name: each.body for family in FAMILIES for each in family.by_name}
    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(body["Exp"](x, base=2.0, scale=2.0, shift=1.0), 2 ** (2 * x + 1))
    torch.testing.assert_close(body["Log"](x, base=3.0, shift=1.0), (x + 1).log() / torch.tensor(3.0).log())
    index = torch.tensor([0, 0], dtype=torch.int32)
    for reduction, expected in (("none", 2), ("add", 3), ("mul", 2)):
        found = body["ScatterElements"](torch.tensor([0.0 if reduction == "add" else 1.0]), index, x, 0, reduction)
        assert found.tolist() == [expected], reduction
    one, largest = torch.ones(1), torch.tensor([9.0])
    given = (one, 0 * one, 0 * one, one, one, one, 0 * one, 0 * one, 0 * one, 0 * one, one, largest)
    torch.testing.assert_close(body["ApplyAdamW"](*given, amsgrad=True)[0], torch.tensor([1 - 1 / 3]))
    torch.testing.assert_close(body["ApplyAdamW"](*given)[0], torch.tensor([0.0]))
