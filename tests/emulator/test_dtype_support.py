"""Dtypes that CANN refuses are refused on the emulated device, in CANN's words."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.dtype_support import check_of
from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.emulator.tensors import Refused
from pytest_ascend.environment.chips import family, limits
from pytest_ascend.run.outcomes import classify


def test_parameters_are_those_of_cann_by_place_or_by_name() -> None:
    strange = []
    for kernel in all_kernels():
        found = limits(kernel.name.removeprefix("aclnn"), "A2")
        own = {each.name for each in kernel.signature.parameters}
        if found.parameters and len(found.parameters) != len(own):
            strange.append(kernel.name)
    assert len(strange) < 40, strange  # signatures are those that torch_npu uses, which may be of another release


@pytest.mark.parametrize(("operator", "shape"), [(torch.exp, [1] * 9), (torch.neg, [2] * 9)])
def test_more_than_eight_dimensions_are_refused(operator: Any, shape: list[int]) -> None:
    with pytest.raises(RuntimeError, match="161002") as refused:
        operator(torch.ones(shape, device="npu"))
    assert "tensor cannot be larger than 8 dimensions" in str(refused.value)
    operator(torch.ones(shape[1:], device="npu"))


def test_dtypes_are_refused_as_promoted() -> None:
    x = torch.tensor([3, 5], dtype=torch.int8, device="npu")
    with pytest.raises(RuntimeError, match="not implemented for DT_INT8"):
        torch.remainder(x, x)
    assert torch.remainder(x.int(), x).tolist() == [0, 0]


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
    assert on_a2 is not None
    tensors = {code: (ctypes.c_int64 * 13)(code) for code in (0, 1, 27)}  # float32, float16, bfloat16
    for code in (0, 1):
        on_310p([ctypes.addressof(tensors[code])] * 2)
    with pytest.raises(Refused, match="Tensor self not implemented for DT_BFLOAT16"):
        on_310p([ctypes.addressof(tensors[27])] * 2)
    on_a2([ctypes.addressof(tensors[27])] * 2)


@pytest.mark.parametrize("version", ["V2", "V3", "V4"])
def test_an_output_that_a_flag_turns_off_is_not_looked_at(version: str) -> None:
    name = f"aclnnFusedInferAttentionScore{version}"
    signature = next(kernel.signature for kernel in all_kernels() if kernel.name == name)
    check, names = check_of(signature, "Ascend910_9392"), [each.name for each in signature.parameters]
    assert check is not None
    half, words = (ctypes.c_int64 * 13)(*[1] * 13), [0] * len(names)
    words[names.index("softmaxLse")] = ctypes.addressof(half)
    check(words)
    words[names.index("softmaxLseFlag")] = 1
    with pytest.raises(Refused, match="Tensor softmaxLse not implemented for DT_FLOAT16"):
        check(words)


_FLOATS, _COMPLEX, _NARROW = "FLOAT FLOAT16 DOUBLE ", "COMPLEX64 COMPLEX128 ", "INT8 UINT8 INT16 "
#: Dtypes that the lists in host code have for a 310P; an A2, an A3 and a 950 take bfloat16, too, where it is marked.
#: Source: op_api/aclnn_{ceil,neg,remainder,masked_fill_scalar,gcd,sign,exp,relu,celu}.cpp, ops-math c41933244c31 and
#: ops-nn e5c3fa9327ea.
TAKEN = {
    "aclnnCeil": (_FLOATS, True),
    "aclnnNeg": (_FLOATS + _COMPLEX + "INT8 INT32 INT64", True),
    "aclnnRelu": ("FLOAT FLOAT16 INT8 UINT8 INT32 INT64", True),
    "aclnnCelu": ("FLOAT FLOAT16", True),
    "aclnnRemainderTensorTensor": (_FLOATS + "INT32 INT64", True),
    "aclnnInplaceMaskedFillScalar": ("FLOAT FLOAT16 INT8 INT32 INT64 BOOL", True),
    "aclnnGcd": ("INT16 INT32 INT64", False),
    "aclnnSign": (_FLOATS + _COMPLEX + "INT32 INT64 BOOL", True),
    "aclnnExp": (_FLOATS + _COMPLEX + "INT64 BOOL", True),
}
#: What a chip takes besides: a switch without a case for a 310P; a list of a 950's own.
BESIDES = {("aclnnSign", "Ascend310P3"): _NARROW, ("aclnnGcd", "Ascend950PR"): "INT8 UINT8"}


def _takes(name: str, dtype: str, chip: str) -> bool:
    kind = family(chip)
    assert kind
    found = limits(name.removeprefix("aclnn"), kind.name)
    listed = found.takes.get("selfRef")  # the mask beside it has a list of its own
    return dtype in listed if listed else not found.refuses(dtype)


@pytest.mark.parametrize("chip", ["Ascend910B1", "Ascend910_9392", "Ascend310P3", "Ascend950PR"])
def test_the_dtypes_that_a_chip_takes_are_those_of_host_code(chip: str) -> None:
    every = (_FLOATS + _COMPLEX + _NARROW + "INT32 INT64 BOOL BFLOAT16").split()
    found, expected = {}, {}
    for name, (listed, has_bfloat16) in TAKEN.items():
        found[name] = {each for each in every if _takes(name, each, chip)}
        wide = {"BFLOAT16"} if has_bfloat16 and chip != "Ascend310P3" else set()
        expected[name] = {*listed.split(), *BESIDES.get((name, chip), "").split()} | wide
    assert found == expected
