"""Dtypes that CANN refuses are refused on the emulated device, in CANN's words."""

from __future__ import annotations

import ctypes

import pytest
import torch

from pytest_ascend.emulator.dtype_support import TAKEN, check_of
from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.emulator.tensors import Refused
from pytest_ascend.run.outcomes import classify


def test_every_list_is_about_an_operator_and_its_tensors() -> None:
    signatures = {kernel.name.removeprefix("aclnn"): kernel.signature for kernel in all_kernels()}
    for name, taken in TAKEN.items():
        tensors = {each.name for each in signatures[name].parameters if each.type == "Tensor"}
        assert set(taken.parameters) <= tensors, name


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8])
def test_a_dtype_that_is_not_taken_is_refused_as_cann_does(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="161002") as refused:
        torch.exp(torch.ones(3, dtype=dtype).npu())
    assert f"Tensor self not implemented for DT_{str(dtype)[6:].upper()}" in str(refused.value)
    assert classify(refused.value, emulated=True).name == "unsupported"


def test_a_dtype_that_is_taken_is_computed() -> None:
    assert torch.exp(torch.zeros(3, dtype=torch.int64).npu()).tolist() == [1, 1, 1]


def test_a_310p_refuses_bfloat16_and_takes_the_rest() -> None:
    signature = next(kernel.signature for kernel in all_kernels() if kernel.name == "aclnnAbs")
    on_310p, on_a2 = check_of(signature, "Ascend310P3"), check_of(signature, "Ascend910B1")
    assert on_310p is not None
    assert on_a2 is None
    tensors = {code: (ctypes.c_int64 * 13)(code) for code in (0, 1, 27)}  # float32, float16, bfloat16
    for code in (0, 1):
        on_310p([ctypes.addressof(tensors[code])] * 2)
    with pytest.raises(Refused, match="Tensor self not implemented for DT_BFLOAT16"):
        on_310p([ctypes.addressof(tensors[27])] * 2)
