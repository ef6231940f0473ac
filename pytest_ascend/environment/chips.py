"""What is known of chips: the families in which they compute alike, their memory, and what they can do at best."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pytest_ascend.environment import measured
from pytest_ascend.errors import UsageError

GB = 2**30


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


#: Source: NpuVariables.{h,cpp}, OpCommand and the environment variable pages of Ascend/pytorch@9e73e708ab93.
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


#: What a mode of torch_npu that changes numbers can be set to.
Mode: TypeAlias = bool | int | str

PRECISION_MODE = "ACL_PRECISION_MODE"
#: The modes that every run sets, so that float32 is computed as float32, by operators that are compiled kernels.
_PINNED: Mapping[str, Mode] = {
    "conv.allow_hf32": False,
    "matmul.allow_hf32": False,
    "allow_internal_format": False,
    "jit_compile": False,
    PRECISION_MODE: "must_keep_origin_dtype",
}


def pinned(chip: str) -> dict[str, Mode]:
    """Return the modes that a run sets on a chip, such as "Ascend910B3".

    A chip whose matrix unit takes no float32 refuses a product that must keep it (CANN, aclnnMatmul: cubeMathType).
    """
    kind = family(chip)
    return {**_PINNED, PRECISION_MODE: "allow_fp32_to_fp16"} if kind and kind.halves else dict(_PINNED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """A chip by the name that npu-smi and torch_npu give it, or a GPU; ``pattern`` fits what else drivers call it.

    ``memory_bytes`` is what one device of torch.npu has, nominal: the driver keeps some. ``half_flop_per_s`` is its
    best in dense products of matrices in half precision, ``bytes_per_s`` that of its memory. 0 is not known: a figure
    without a source would be worse than none.
    """

    name: str
    source: str
    pattern: str = ""
    memory_bytes: int = 0
    half_flop_per_s: float = 0.0
    bytes_per_s: float = 0.0

    @property
    def is_ascend(self) -> bool:
        """Whether it is an NPU, and not another maker's chip to set beside."""
        return self.name.startswith("Ascend")


_SMI = "the HBM or memory column of `npu-smi info` on such cards"
_ROADMAP = "Huawei Connect 2025, roadmap of Ascend chips"


def _gpu(name: str, pattern: str, half_flop_per_s: float, bytes_per_s: float) -> Chip:
    source = f"NVIDIA, data sheet of the {name}"
    return Chip(name=name, pattern=pattern, half_flop_per_s=half_flop_per_s, bytes_per_s=bytes_per_s, source=source)


#: One row a chip. A2: Ascend910B1 to B4-1; A3 has two of these dies on a card, each a device of its own.
CHIPS = (
    Chip(
        name="Ascend910A",
        pattern=r"Ascend910Pro.*",
        memory_bytes=32 * GB,
        half_flop_per_s=256e12,
        bytes_per_s=1.2e12,
        source=f"{_SMI}; Huawei at Hot Chips 31 (2019): DaVinci, Ascend 910",
    ),
    Chip(name="Ascend910B1", memory_bytes=64 * GB, source=_SMI),
    Chip(name="Ascend910B2", memory_bytes=64 * GB, source=_SMI),
    Chip(name="Ascend910B2C", memory_bytes=64 * GB, source=_SMI),
    Chip(name="Ascend910B3", memory_bytes=64 * GB, source=_SMI),
    Chip(name="Ascend910B4", memory_bytes=32 * GB, source=_SMI),
    Chip(name="Ascend910B4-1", memory_bytes=64 * GB, source=_SMI),
    Chip(
        name="Ascend910_9392",
        memory_bytes=64 * GB,
        source="SGLang, Ascend NPU reference: Atlas A3, 64 GB a die",
    ),
    Chip(
        name="Ascend310P3",
        pattern=r"Ascend310P.*",
        memory_bytes=24 * GB,
        half_flop_per_s=70e12,
        bytes_per_s=204.8e9,
        source="Huawei, product page and data sheet of the Atlas 300I Pro, 24 GB",
    ),
    Chip(
        name="Ascend310B4",
        memory_bytes=12 * GB,
        source="Huawei, npu-smi reference of the Atlas 200I A2: 12288 MB",
    ),
    Chip(name="Ascend950PR", memory_bytes=128 * GB, source=_ROADMAP),
    Chip(name="Ascend950DT", memory_bytes=144 * GB, source=_ROADMAP),
    _gpu("Tesla V100 (SXM2)", r".*V100.*", 125e12, 900e9),
    _gpu("A100 80GB (SXM)", r".*A100.*80GB.*", 312e12, 2039e9),
    _gpu("H100 (SXM)", r".*H100.*", 989e12, 3350e9),
    _gpu("H200 (SXM)", r".*H200.*", 989e12, 4800e9),
)
#: The NPUs whose memory is known, by the names that a user may give.
NPUS = tuple(each for each in CHIPS if each.is_ascend and each.memory_bytes)
DEFAULT = "Ascend910B3"


def family(soc: str) -> Family | None:
    """Return the family of a SoC such as "Ascend910B3"; None for one that nobody knows."""
    return next((each for each in FAMILIES if re.fullmatch(each.pattern, soc)), None)


def npu_of(name: str) -> Chip:
    """Find an NPU, with or without "Ascend" and in any case. Raises UsageError, listing the known ones."""
    wanted = name.lower().removeprefix("ascend")
    for chip in NPUS:
        if chip.name.lower().removeprefix("ascend") == wanted:
            return chip
    if memory_bytes := measured.memory_bytes(name):
        return Chip(name=name, memory_bytes=memory_bytes, source=f"contact kit of an {name}")
    raise UsageError(f"no chip {name!r} is known", hint=f"choose one of {', '.join(each.name for each in NPUS)}")


def chip_of(driver_name: str) -> Chip | None:
    """Return the chip that a driver calls so, None for one that is not known."""
    named = (each for each in CHIPS if each.name == driver_name)
    alike = (each for each in CHIPS if each.pattern and re.fullmatch(each.pattern, driver_name))
    return next(named, None) or next(alike, None)


DATA = Path(__file__).with_name("chip_operators.json")

#: How CANN names dtypes that are not called as torch's are.
NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}

_BFLOAT16 = "BFLOAT16"


@functools.cache
def _data() -> Mapping[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def sources() -> tuple[str, ...]:
    """Return what was read, and when."""
    return tuple(_data()["sources"])


def name_in_cann(dtype: str) -> str:
    """Return CANN's name of a dtype of torch, given without "torch."."""
    return NAMES.get(dtype, dtype.upper())


def undocumented(operator: str, family: str) -> bool:
    """Whether the page of an operator (without ``aclnn``) says that a family of chips does not have it."""
    return family in _data()["operators"].get(operator, {}).get("not_on", ())


def refused(operator: str, family: str) -> frozenset[str]:
    """Return the dtypes, as CANN names them, that others take for an operator and a family of chips does not.

    Families without bfloat16 have it in no operator, whether or not its page says so.
    """
    has_none = any(each.name == family and not each.bfloat16 for each in FAMILIES)
    said = _data()["operators"].get(operator, {}).get("without", {}).get(family, ())
    return frozenset({*said, _BFLOAT16} if has_none else said)


@functools.cache
def _callers() -> Mapping[str, tuple[str, ...]]:
    """Return the functions of CANN that an operator of torch calls, without ``aclnn``, by its name and overload."""
    found: dict[str, list[str]] = {}
    for function, page in _data()["operators"].items():
        for name in page.get("used_by", ()):
            found.setdefault(name, []).append(function)
    return {name: tuple(functions) for name, functions in found.items()}


#: Operators of the matrix unit whose pages list no cubeMathType, or that torch decomposes below its dispatcher.
_MULTIPLYING = re.compile(r"conv|lstm|gru|rnn|attention|matmul|linear|einsum|pinv|(^|_)b?mm")


@functools.cache
def multiplies(operator: str) -> bool:
    """Whether an operator of torch, such as "mm.out", has the chip's matrix unit multiply.

    It does where it may call a function of CANN's that takes a ``cubeMathType``, and where its name says so.
    """
    packet, data = operator.partition(".")[0], _data()["operators"]
    if packet.startswith("upsample"):  # "linear" is how it interpolates
        return False
    functions = _callers().get(operator) or _callers().get(packet) or ()
    return bool(_MULTIPLYING.search(packet)) or any(
        "cubeMathType" in data[each].get("dtypes", ()) for each in functions
    )


def objections(operator: str, dtypes: Iterable[str], family: str) -> tuple[str, ...]:
    """Return what the documentation has against an operator of torch ("add.Tensor") with some dtypes on a family.

    ``dtypes`` are torch's names, without "torch.". Where torch_npu may call one of several functions, one that has
    nothing against it is enough.
    """
    functions = _callers().get(operator) or _callers().get(operator.partition(".")[0]) or ()
    said = [tuple(_against(each, dtypes, family)) for each in functions]
    return () if not said or any(not each for each in said) else said[0]


def documented(operator: str) -> bool:
    """Whether CANN documents a function that an operator of torch calls."""
    return bool(_callers().get(operator) or _callers().get(operator.partition(".")[0]))


def _against(function: str, dtypes: Iterable[str], family: str) -> Iterable[str]:
    lost = refused(function, family) & {name_in_cann(each) for each in dtypes}
    if lost:
        yield f"aclnn{function} does not take {', '.join(sorted(lost))} there"
    if undocumented(function, family):
        yield f"aclnn{function} is not documented for it"
