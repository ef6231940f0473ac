"""Kernels of operators that the installed torch lacks are left out one by one."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from pytest_ascend.emulator.kernels import FAMILIES
from pytest_ascend.emulator.registry import Family, aten, widened


def test_kernels_of_what_torch_lacks_are_left_out_however_they_are_made() -> None:
    family = Family("of a test")
    family.op("aclnnA(Tensor a, out Tensor b)", aten.nothing_of_this_name.default)
    family.op("aclnnB(Tensor a, out Tensor b)", widened(aten.add.no_such_overload))
    family.op("aclnnC(Tensor a, out Tensor b)", partial(aten.nothing_of_this_name, 1))
    family.named("D", lambda x, of=aten.add: of(x))
    family.op("aclnnE(Tensor a, out Tensor b)", widened(aten.add.Tensor))
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
