"""Chips: families that compute alike, memory, and peak performance."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_ascend.environment import measured
from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import UsageError, choice
from pytest_ascend.system.groups import by_key

GB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Chips that compute alike.

    ``pattern`` matches their SoC names. ``kernels`` is CANN's folder of their compiled operators. ``halves``: float32
    convolutions and matrix products run in float16 by default. ``saturates``: infinities become the largest number.
    """

    name: str
    pattern: str
    kernels: str
    bfloat16: bool
    halves: bool
    saturates: bool


#: Source of families: NpuVariables.{h,cpp}, OpCommand, the environment variable pages of Ascend/pytorch@9e73e708ab93.
#: A 910B without a digit is of the first generation; only 910B with a digit is an Atlas A2.
_DATA = table("environment/chips.json")
FAMILIES = tuple(Family(**each) for each in _DATA["families"])

#: Kinds of products, and the formats to which their float32 operands may be converted.
MATRIX_PRODUCTS, CONVOLUTIONS = "matrix products", "convolutions"
KEPT, IN_HF32, IN_HALVES, REFUSED = "float32", "HF32", "float16", "refused"


def product_formats(kind: Family) -> dict[str, str]:
    """Return the format in which a family multiplies float32 by torch_npu's defaults, by kind of product.

    Source: Ascend Extension for PyTorch: torch.npu.matmul.allow_hf32 (False by default), torch.npu.conv.allow_hf32
    (True), and ACL_PRECISION_MODE (must_keep_origin_dtype on a 310B, whose matrix products CANN then rejects).
    """
    if not kind.halves:
        return {MATRIX_PRODUCTS: KEPT, CONVOLUTIONS: IN_HF32}
    return {MATRIX_PRODUCTS: REFUSED if kind.name == "310B" else IN_HALVES, CONVOLUTIONS: IN_HALVES}


#: The values of a torch_npu setting that affects numerical results.
Mode: TypeAlias = bool | int | str

PRECISION_MODE = "ACL_PRECISION_MODE"


def pinned(chip: str) -> dict[str, Mode]:
    """Return the torch_npu settings of a run on a chip, such as "Ascend910B3".

    They compute float32 as float32, by operators that are compiled kernels. A chip whose matrix unit does not support
    float32 rejects products that must keep it (CANN, aclnnMatmul: cubeMathType).
    """
    kind = family(chip)
    return {
        "conv.allow_hf32": False,
        "matmul.allow_hf32": False,
        "allow_internal_format": False,
        "jit_compile": False,
        PRECISION_MODE: "allow_fp32_to_fp16" if kind and kind.halves else "must_keep_origin_dtype",
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """A chip by its name in npu-smi and torch_npu, or a GPU; ``pattern`` matches other names used by drivers.

    ``memory_bytes`` is the nominal memory of one torch.npu device, part of which the driver keeps. ``half_flop_per_s``
    is the peak of dense half-precision matrix products, ``bytes_per_s`` the memory bandwidth. 0 means unknown: no
    figure is better than one without a source.
    """

    name: str
    source: str
    pattern: str = ""
    memory_bytes: int = 0
    half_flop_per_s: float = 0.0
    bytes_per_s: float = 0.0


#: One row per chip. A2: Ascend910B1 to B4-1; a card of an A3 has two of these dies, each a device of its own. Chips of
#: other makers are listed for comparison.
CHIPS = tuple(Chip(**each) for each in _DATA["chips"])
#: NPUs with known memory, by the names that a user may give.
NPUS = tuple(each for each in CHIPS if each.name.startswith("Ascend") and each.memory_bytes)
DEFAULT = "Ascend910B3"


def family(soc: str) -> Family | None:
    """Return the family of a SoC such as "Ascend910B3"; None if unknown."""
    return next((each for each in FAMILIES if re.fullmatch(each.pattern, soc)), None)


def has_own_formulas(chip: str) -> bool:
    """Return whether torch_npu computes a function on a chip, such as "Ascend910B3", by another formula than PyTorch.

    On a 950, gelu calls aclnnGeluV2, which has ``approximate``; on others aclnnGelu, which is the tanh formula. Source:
    golden and kernel of activation/gelu in CANN's ops-nn, commit e5c3fa9327ea; GeluKernelNpuOpApi in op-plugin.
    """
    kind = family(chip)
    return kind is not None and kind.name != "950"


def npu_of(name: str) -> Chip:
    """Return an NPU by its name in any case, with or without "Ascend". Raises UsageError, listing the known ones."""
    wanted = name.lower().removeprefix("ascend")
    for chip in NPUS:
        if chip.name.lower().removeprefix("ascend") == wanted:
            return chip
    if memory_bytes := measured.memory_bytes(name):
        return Chip(name=name, memory_bytes=memory_bytes, source=f"contact kit of an {name}")
    raise UsageError(f"no chip {name!r} is known", hint=choice(name, (each.name for each in NPUS)))


def chip_of(driver_name: str) -> Chip | None:
    """Return the chip with this driver name; None if unknown."""
    named = (each for each in CHIPS if each.name == driver_name)
    alike = (each for each in CHIPS if each.pattern and re.fullmatch(each.pattern, driver_name))
    return next(named, None) or next(alike, None)


@functools.cache
def _operators() -> Mapping[str, Any]:
    return table("environment/chip_operators.json")["operators"]  # type: ignore[no-any-return]


def name_in_cann(dtype: str) -> str:
    """Return CANN's name of a torch dtype, given without "torch."."""
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())


def undocumented(operator: str, family: str) -> bool:
    """Return whether the page of an operator (without ``aclnn``) says that a family of chips does not support it."""
    return family in _operators().get(operator, {}).get("not_on", ())


@dataclass(frozen=True, slots=True)
class Limits:
    """What CANN checks of an operator's arguments on one family of chips, with dtypes by CANN's names.

    ``parameters`` are CANN's, in its order. ``takes`` has the allowed dtypes of each checked parameter, and
    ``together`` those that the named parameters do not take when they are promoted to one of them. The parameters in
    ``ranked`` have at most :data:`MOST_DIMENSIONS`. ``lacks`` are dtypes that no operator supports. ``by`` is the
    source: "host" for host code, "definition" for that of a kernel, "page" for the documentation.
    """

    parameters: tuple[str, ...] = ()
    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    by: str = ""

    def refused(self) -> frozenset[str]:
        """Return the dtypes that no input parameter takes, or that several parameters do not take together.

        Nothing is known of an operator whose first parameter takes all dtypes. An operator without input tensors, such
        as arange, is judged by its outputs.
        """
        read = {name: listed for name, listed in self.takes.items() if not name.lower().endswith("out")}
        asked = read or self.takes
        if not asked or (self.parameters and read and self.parameters[0] not in read):
            return frozenset[str]().union(*self.together.values())
        return (frozenset(DTYPES) - set().union(*asked.values())).union(*self.together.values())

    def refuses(self, dtype: str) -> bool:
        """Return whether no operator takes a dtype such as "DOUBLE", a list excludes it, or it fails with others."""
        lost = (self.lacks, *self.together.values())
        return any(dtype in each for each in lost) or any(dtype not in each for each in self.takes.values())


#: CANN's dtypes that torch has too, in the order of their numbers.
DTYPES = (
    *("FLOAT", "FLOAT16", "INT8", "INT32", "UINT8", "INT16", "UINT16", "UINT32", "INT64", "UINT64", "DOUBLE", "BOOL"),
    *("COMPLEX64", "COMPLEX128", "BFLOAT16", "COMPLEX32", "FLOAT8_E5M2", "FLOAT8_E4M3FN"),
)
#: Source: OP_CHECK_MAX_DIM in CANN's host code, whose limit is 8 in nearly all operators that have one.
MOST_DIMENSIONS = 8


@functools.cache
def limits(operator: str, family: str) -> Limits:
    """Return what CANN checks of an operator (without ``aclnn``) on a family of chips.

    Families without bfloat16 support it in no operator, whatever its sources say.
    """
    row = _operators().get(operator, {})
    lacks = ("BFLOAT16",) if any(each.name == family and not each.bfloat16 for each in FAMILIES) else ()

    def of(part: str) -> Any:
        return next((value for chips, value in row.get(part, {}).items() if family in chips.split()), ())

    return Limits(
        parameters=tuple(row.get("parameters", ())),
        takes={name: tuple(each for each in its if each not in lacks) for name, its in dict(of("takes")).items()},
        together={name: tuple(listed) for name, listed in dict(of("together")).items()},
        ranked=tuple(of("rank")),
        lacks=lacks,
        by=of("by") or "",
    )


@functools.cache
def _callers() -> Mapping[str, list[str]]:
    return by_key((name, function) for function, page in _operators().items() for name in page.get("used_by", ()))


def documented(operator: str) -> Sequence[str]:
    """Return the documented functions of CANN (without ``aclnn``) that a torch operator calls, by overload or name."""
    return _callers().get(operator) or _callers().get(operator.partition(".")[0]) or ()


@functools.cache
def multiplies(operator: str) -> bool:
    """Return whether a torch operator, such as "mm.out", multiplies on the chip's matrix unit.

    It does if it may call a CANN function with a ``cubeMathType``, or if its name implies it.
    """
    packet = operator.partition(".")[0]
    if packet.startswith("upsample"):  # here "linear" is the kind of interpolation
        return False
    if any(_operators()[each].get("multiplies") for each in documented(operator)):
        return True
    # For these the pages do not list cubeMathType, or torch decomposes them below its dispatcher.
    return re.search(r"conv|lstm|gru|rnn|attention|matmul|linear|einsum|pinv|(^|_)b?mm", packet) is not None


def objections(operator: str, dtypes: Iterable[str], family: str, *, own: bool = False) -> tuple[str, ...]:
    """Return why, by the documentation, a family does not support a torch operator ("add.Tensor") in some dtypes.

    ``dtypes`` are torch's names, without "torch.". If torch_npu may call one of several functions, it is enough that
    one of them is supported. With ``own``, dtypes count only if other families support them.
    """
    asked, against = set(map(name_in_cann, dtypes)), []
    for function in documented(operator):
        its = limits(function, family)
        lost = asked & {*its.refused(), *its.lacks}
        if own:
            lost -= frozenset(DTYPES).intersection(*(limits(function, each.name).refused() for each in FAMILIES))
        refused = [f"aclnn{function} does not take {', '.join(sorted(lost))} there"] if lost else []
        absent = [f"aclnn{function} is not documented for it"] if undocumented(function, family) else []
        against.append((*refused, *absent))
    return against[0] if against and all(against) else ()
