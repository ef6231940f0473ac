"""The chips that torch_npu knows, by family, and what is particular to each.

Source: NpuVariables.{h,cpp}, OpCommand and the environment variable pages of Ascend/pytorch@9e73e708ab93.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Chips that compute alike.

    ``pattern`` fits their SoC names. ``kernels`` is the folder of CANN's compiled operators for them. ``halves``:
    float32 convolutions and matrix products run in float16 unless told otherwise. ``saturates``: infinities become
    the largest number.
    """

    name: str
    pattern: str
    kernels: str
    bfloat16: bool
    halves: bool
    saturates: bool


#: A bare 910B is of the first generation; only 910B with a digit is an Atlas A2.
FAMILIES = (
    Family(name="A2", pattern=r"Ascend910B\d.*", kernels="ascend910b", bfloat16=True, halves=False, saturates=False),
    Family(
        name="A3", pattern=r"Ascend910(_93\w*)?", kernels="ascend910_93", bfloat16=True, halves=False, saturates=False
    ),
    Family(
        name="910",
        pattern=r"Ascend910(A|B|ProA|ProB|PremiumA)",
        kernels="ascend910",
        bfloat16=False,
        halves=True,
        saturates=True,
    ),
    Family(name="310P", pattern=r"Ascend310P.*", kernels="ascend310p", bfloat16=False, halves=True, saturates=True),
    Family(name="310B", pattern=r"Ascend310B.*", kernels="ascend310b", bfloat16=True, halves=True, saturates=True),
    Family(name="950", pattern=r"Ascend950.*", kernels="ascend950", bfloat16=True, halves=False, saturates=False),
)


def family(soc: str) -> Family | None:
    """Give the family of a SoC such as "Ascend910B3"; None for one that nobody knows."""
    return next((each for each in FAMILIES if re.fullmatch(each.pattern, soc)), None)
