"""Kernels of operators that the installed torch lacks are left out one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import FAMILIES
from pytest_ascend.emulator.registry import Family, aten, with_kernels_of_float32
from pytest_ascend.emulator.signature import parse


def _around(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: function(*given)  # noqa: PLW0108  (in a closure is where it is looked for)


def test_what_a_family_widens_is_computed_in_float32_and_written_where_it_changes() -> None:
    seen: list[torch.dtype] = []

    def body(x: torch.Tensor, total: torch.Tensor, *, out: torch.Tensor) -> None:
        seen.extend((x.dtype, total.dtype, out.dtype))
        torch.add(x, 1, out=out)
        total.add_(x)

    family = Family("of a test")
    family.wide = ("A",)
    for name in "AB":
        family.op(f"aclnn{name}(Tensor x, inout Tensor total, out Tensor out)", body, into=True)
    x, total, out = (torch.ones(3, dtype=torch.float16) for _ in range(3))
    for kernel in family.kernels:
        kernel.body(x, total, out=out)
    assert seen == [torch.float32] * 3 + [torch.float16] * 3
    assert total.tolist() == [3.0] * 3
    assert out.tolist() == [2.0] * 3


def test_half_precision_that_torch_has_no_kernel_for_is_computed_in_float32_and_rounded_once() -> None:
    def body(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float16:
            raise RuntimeError("\"own_cpu\" not implemented for 'Half'")
        total.add_(x)
        return x / 3

    family = Family("of a test")
    family.op("aclnnA(Tensor x, inout Tensor total, out Tensor out)", body)
    computed = with_kernels_of_float32(family.kernels[0].signature, body)
    total = torch.ones(3, dtype=torch.float16)
    assert computed(torch.ones(3, dtype=torch.float16), total).tolist() == (torch.ones(3) / 3).tolist()
    assert total.tolist() == [2.0] * 3


def test_an_output_in_half_precision_of_a_kernel_without_inputs_is_rounded_once_too() -> None:
    def body(n: int, *, out: torch.Tensor) -> None:
        if out.dtype is torch.bfloat16:
            raise RuntimeError("\"own\" not implemented for 'BFloat16'")
        out.copy_(torch.arange(n) / 3)

    out = torch.empty(4, dtype=torch.bfloat16)
    with_kernels_of_float32(parse("aclnnA(int64 n, out Tensor out)"), body)(4, out=out)
    assert out.equal((torch.arange(4) / 3).bfloat16())


def test_other_errors_of_a_kernel_stay() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"not implemented for 'Long': {x}")

    with pytest.raises(RuntimeError, match="'Long'"):
        with_kernels_of_float32(parse("aclnnA(Tensor x, out Tensor out)"), body)(torch.ones(1))


def test_kernels_of_what_torch_lacks_are_left_out_however_they_are_made() -> None:
    family = Family("of a test")
    family.op("aclnnA(Tensor a, out Tensor b)", aten.nothing_of_this_name.default)
    family.op("aclnnB(Tensor a, out Tensor b)", _around(aten.add.no_such_overload))
    family.op("aclnnC(Tensor a, out Tensor b)", partial(aten.nothing_of_this_name, 1))
    family.named("D", lambda x, of=aten.add: of(x))
    family.op("aclnnE(Tensor a, out Tensor b)", _around(aten.add.Tensor))
    assert family.left_out == ["aclnnA", "aclnnB", "aclnnC"]
    assert [kernel.name for kernel in (*family.kernels, *family.by_name)] == ["aclnnE", "D"]


def test_what_torch_has_computes_as_it_is() -> None:
    assert aten.add(torch.ones(2), 1).tolist() == aten.add.Tensor(torch.ones(2), 1).tolist() == [2, 2]


def test_what_torch_lacks_says_so_when_it_is_called() -> None:
    with pytest.raises(NotImplementedError, match="has no aten::nothing_of_this_name"):
        aten.nothing_of_this_name.out(1)


def test_with_the_torch_of_the_tests_nothing_is_left_out() -> None:
    if torch.__version__.startswith("2.13."):
        assert [name for family in FAMILIES for name in family.left_out] == []
