"""Memory of Ascend chips, nominal: what one device of torch.npu has."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ascend.errors import UsageError

GB = 2**30


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip by the name that npu-smi and torch_npu give it. ``memory_bytes`` is nominal; the driver keeps some."""

    name: str
    memory_bytes: int
    source: str


_SMI = "the HBM or memory column of `npu-smi info` on such cards"
_ATLAS = "Huawei, product pages of the Atlas series"

#: One row a chip. A2: Ascend910B1 to B4-1; A3 has two of these dies on a card, each a device of its own.
CHIPS = (
    Chip("Ascend910A", 32 * GB, _SMI),
    Chip("Ascend910B1", 64 * GB, _SMI),
    Chip("Ascend910B2", 64 * GB, _SMI),
    Chip("Ascend910B2C", 64 * GB, _SMI),
    Chip("Ascend910B3", 64 * GB, _SMI),
    Chip("Ascend910B4", 32 * GB, _SMI),
    Chip("Ascend910B4-1", 64 * GB, _SMI),
    Chip("Ascend910_9392", 64 * GB, "SGLang, Ascend NPU reference: Atlas A3, 64 GB a die"),
    Chip("Ascend310P3", 24 * GB, _ATLAS + ": Atlas 300I Pro, 24 GB"),
    Chip("Ascend310B4", 12 * GB, "Huawei, npu-smi reference of the Atlas 200I A2: 12288 MB"),
    Chip("Ascend950PR", 128 * GB, "Huawei Connect 2025, roadmap of Ascend chips"),
    Chip("Ascend950DT", 144 * GB, "Huawei Connect 2025, roadmap of Ascend chips"),
)

DEFAULT = "Ascend910B3"


def chip_of(name: str) -> Chip:
    """Find a chip, with or without "Ascend" and in any case. Raises UsageError, listing the known ones."""
    wanted = name.lower().removeprefix("ascend")
    for chip in CHIPS:
        if chip.name.lower().removeprefix("ascend") == wanted:
            return chip
    raise UsageError(f"no chip {name!r} is known", hint=f"choose one of {', '.join(each.name for each in CHIPS)}")
