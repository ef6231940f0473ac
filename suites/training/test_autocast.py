"""Under autocast sensitive operators compute in float32, products in the lower dtype, by torch's documented lists."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.run.comparing import PrecisionCompare

from .catalogue import CASES_OF_AUTOCAST, CPU_FLOAT32, CPU_UNLISTED, FLOAT32, LOWER
from .operators import CALLS, given

#: What a result of the lists must have, by the lower dtype.
LOWER_DTYPE = torch.bfloat16

#: torch gives the inner softmax of these the dtype of the input, whatever autocast would do.
INSIDE = {"cross_entropy"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ascend_case(case), id=case.id) for name, case in CASES_OF_AUTOCAST]
)
def test_autocast(name: str, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    tensors, call, dtype = given(LOWER_DTYPE), CALLS[name], promised(name, npu_device.type)
    with torch.autocast(npu_device.type, dtype=LOWER_DTYPE):
        actual = call(tensors.to(lambda each: each.to(npu_device)))
    # Products round their inputs, too; everything else takes them as they are, and widens them exactly.
    rounded = tensors.to(lambda each: each.to(LOWER_DTYPE)) if name in LOWER else tensors
    expected = call(rounded.to(lambda each: each.double()))
    within = LOWER_DTYPE if name in INSIDE else dtype
    honest = call(rounded.to(lambda each: each.to(within))).to(dtype)
    precision_compare(actual, expected, honest=honest, dtype=dtype, name=name)


def promised(name: str, device_type: str) -> torch.dtype:
    """Return the dtype of a result by its device's list; what is on no list has the widest of its inputs."""
    if device_type == "cpu" and name in CPU_UNLISTED:
        return torch.float32
    if name in LOWER or (device_type == "cpu" and name in FLOAT32 and name not in CPU_FLOAT32):
        return LOWER_DTYPE
    return torch.float32
