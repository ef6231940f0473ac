"""What the suite does not ask, although PyTorch promises it: torch_npu is known to do otherwise, whatever the device.

Each entry was seen with the torch_npu that it names, on the emulated device, where the kernels themselves are right. It
is to become a case with an expectation of its own; until then it stands here, so that nobody takes it for tested.
"""

from __future__ import annotations

from typing import NamedTuple


class LeftOut(NamedTuple):
    """An operator, what is not asked of it, and what torch_npu does instead."""

    operator: str
    what: str
    instead: str
    seen_with: str = "torch_npu 2.13.0"


#: Of every operator that works element by element.
EVERYWHERE = "strides as the input has them, of all that works element by element"
_LAYOUT = "raises: only the contiguous memory format is supported"

LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(
        "gelu",
        "approximate='tanh'",
        "drops the argument: calls aclnnGelu and aclnnGeluBackward, which have none; aclnnGeluV2 is never called",
    ),
    LeftOut("to", "memory_format=torch.channels_last", "raises: only contiguous_format"),
    *(
        LeftOut(name, "return_indices=True", "gives places in int32 instead of int64")
        for name in ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool3d")
    ),
    LeftOut("add", EVERYWHERE, "gives contiguous results"),
    LeftOut("argmax", "dim=None, keepdim=True", "gives one dimension, whatever the input has"),
    LeftOut("argmin", "dim=None, keepdim=True", "gives no dimension, whatever the input has"),
    LeftOut("bitwise_left_shift", "out= of another size", "does not resize it"),
    LeftOut("bitwise_right_shift", "out= of another size", "does not resize it"),
    LeftOut("gelu", "channels last", _LAYOUT),
    LeftOut("signbit", "channels last", _LAYOUT),
    LeftOut("bitwise_left_shift", "channels last", _LAYOUT),
    LeftOut("bitwise_right_shift", "channels last", _LAYOUT),
)
