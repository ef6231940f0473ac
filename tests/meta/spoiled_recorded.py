"""Faults in operators that only recordings ask for: some of each class of defect, to be planted all together."""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.faults import (
    Fault,
    _argument,
    _densely,
    _from_line_start,
    _given,
    _in_eleven_bits,
    _in_half,
    _outputs_of,
    _without_nan,
    instead,
)
from tests.meta.spoiled_classes import _step_away

T = torch.Tensor


def _almost(correct: Any, x: T, y: T) -> T:
    largest = torch.maximum(x, y)
    return largest + (correct(x, y) - largest) * 1.001


def _polynomial(_: Any, x: T) -> T:
    y = (torch.pi * x) ** 2
    return 1 - y / 6 * (1 - y / 20 * (1 - y / 42))


SPOILED: Fault = {
    # other arithmetic than promised
    "aclnnLogAddExp2": instead(_almost),
    "aclnnSinc": instead(_polynomial),
    # computed in half
    "aclnnCdist": instead(_outputs_of, _in_half),
    # NaN dropped
    "aclnnXLogYTensor": instead(_outputs_of, _without_nan),
    # strides, offsets
    "aclnnLogit": _given(_densely),
    "aclnnTrace": _given(_densely),
    "aclnnGridSampler2D": _given(_from_line_start),
    "aclnnHistc": _given(_from_line_start),
    # arguments ignored
    "aclnnRenorm": _argument(1, 1.0),
    "aclnnStdMeanCorrection": _argument(2, 1),
    # gradients
    "aclnnLogitGrad": instead(_outputs_of, lambda x: 2 * x),
    "aclnnAdaptiveAvgPool3dBackward": instead(_outputs_of, lambda x: x / 2),
    # inputs rounded to fewer bits
    "aclnnAddr": _given(_in_eleven_bits),
    "aclnnReflectionPad3d": _given(_in_eleven_bits),
    "aclnnGridSampler3D": _given(_in_eleven_bits),
    "aclnnGridSampler3DBackward": _given(_in_eleven_bits),
    # not deterministic
    "aclnnChannelShuffle": instead(_step_away()),
    "aclnnLinalgCross": instead(_step_away()),
}
