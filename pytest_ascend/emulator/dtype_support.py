"""Dtypes that CANN checks: the emulated device refuses what a real one refuses, with the same message.

The lists are those of an Atlas A2, for operators where torch's CPU kernels support more. Other operators support
what these kernels do. Differences of other chips are in the official documentation of the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from pytest_ascend.emulator.choices import DEFAULT_CHIP
from pytest_ascend.emulator.signature import Signature
from pytest_ascend.emulator.tensors import DTYPES, Refused, code_of
from pytest_ascend.environment.chips import family, name_in_cann, refused

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_WITH_DOUBLE = (*_FLOATS, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)
_INTS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


class DtypeRule(NamedTuple):
    """Dtypes that an operator supports in ``parameters``; in all of its tensors if none are named."""

    dtypes: tuple[torch.dtype, ...]
    parameters: tuple[str, ...] = ()


_ONLY_FLOATS = (
    *("Gelu", "GeluBackward", "LayerNorm", "LayerNormBackward", "BatchNorm", "BatchNormBackward"),
    *("VarCorrection", "VarMean", "Std", "StdMeanCorrection", "Norm", "LinalgVectorNorm"),
    *("Cdist", "CdistBackward", "Logit", "BinaryCrossEntropyWithLogits"),
    *("Mm", "Mv", "Matmul", "BatchMatMul", "Addmm", "InplaceAddmm", "Addbmm", "Baddbmm"),
)

#: By the operator's name without ``aclnn``.
TAKEN: Mapping[str, DtypeRule] = {
    "Exp": DtypeRule((*_WITH_DOUBLE, *_COMPLEX, torch.bool, torch.int64), ("self",)),
    **dict.fromkeys(("Erf", "Erfc"), DtypeRule((*_WITH_DOUBLE, torch.bool, torch.int64), ("self",))),
    "Expm1": DtypeRule((*_FLOATS, torch.bool, torch.int64), ("self",)),
    **dict.fromkeys(("Clamp", "ClampMin", "ClampMax"), DtypeRule((*_WITH_DOUBLE, *_INTS))),
    "Dot": DtypeRule((*_FLOATS, torch.int8, torch.int32, torch.uint8)),
    "Addmv": DtypeRule((*_WITH_DOUBLE, *_INTS, torch.bool)),
    "Softmax": DtypeRule(_WITH_DOUBLE),
    "L1Loss": DtypeRule((*_FLOATS, torch.int64), ("self", "target")),
    "MaskedSelect": DtypeRule((*_WITH_DOUBLE, *_INTS, torch.bool), ("self",)),
    **dict.fromkeys(("All", "Max", "Min"), DtypeRule((*_WITH_DOUBLE, *_INTS, torch.bool), ("self",))),
    "Pdist": DtypeRule((torch.float32, torch.float16)),
    **dict.fromkeys(_ONLY_FLOATS, DtypeRule(_FLOATS)),
}


#: The lists above are those of an Atlas A2, and an A3 has two of its dies: its pages say the same of both.
_LISTED = ("A2", "A3")


def refuses(operator: str, dtype: str, chip: str = DEFAULT_CHIP) -> bool:
    """Whether an operator such as "aclnnMm" has a list of dtypes on a chip without a dtype such as "DOUBLE"."""
    name, kind = operator.removeprefix("aclnn"), family(chip)
    if kind and kind.name not in _LISTED and dtype in refused(name, kind.name):
        return True
    taken = TAKEN.get(name)
    return taken is not None and f"DT_{dtype}" not in map(_name_of, taken.dtypes)


_Check = Callable[[Sequence[int]], None]


_EVERYTHING = DtypeRule(tuple(DTYPES.values()))


def check_of(signature: Signature, chip: str = DEFAULT_CHIP) -> _Check | None:
    """Return the function that checks the words of a call and raises Refused; None if there is nothing to check."""
    name, kind = signature.name.removeprefix("aclnn"), family(chip)
    lost = refused(name, kind.name) if kind and kind.name not in _LISTED else frozenset()
    keeps = _check_of_product(signature) if kind and kind.halves else None
    if name not in TAKEN and not lost:
        return keeps
    taken = TAKEN.get(name, _EVERYTHING)
    if lost:  # what a chip lacks, it lacks in every parameter
        taken = DtypeRule(tuple(each for each in taken.dtypes if _name(each) not in lost))
    codes = frozenset(code for code, dtype in DTYPES.items() if dtype in taken.dtypes)
    looked_at = [
        (place, each.name)
        for place, each in enumerate(signature.parameters)
        if each.type == "Tensor" and (not taken.parameters or each.name in taken.parameters)
    ]

    def check(words: Sequence[int]) -> None:
        if keeps:
            keeps(words)
        for place, name in looked_at:
            if words[place] and (code := code_of(words[place])) not in codes:
                listed = "".join(f"{_name_of(each)}," for each in taken.dtypes)
                found = _name_of(DTYPES[code]) if code in DTYPES else code
                raise Refused(f"Tensor {name} not implemented for {found}, should be in dtype support list [{listed}].")

    return check


#: cubeMathType: a product is computed in the dtype of its operands, or in HF32.
_KEEPS, _HF32 = 0, 3


def _check_of_product(signature: Signature) -> _Check | None:
    """Return the check of a product on a chip whose cube unit does not take float32; None for other operators.

    Source: CANN, CheckCubeMathType in the host code of operators that multiply (hicann/ops-nn, matmul/common).
    """
    names = [each.name for each in signature.parameters]
    if "cube" not in names:
        return None
    cube = names.index("cube")
    places = [place for place, each in enumerate(signature.parameters) if each.type == "Tensor" and each.is_input]

    def check(words: Sequence[int]) -> None:
        wide = any(words[place] and DTYPES.get(code_of(words[place])) is torch.float32 for place in places)
        if wide and words[cube] in (_KEEPS, _HF32):
            raise Refused(
                "The soc version does not support bf16 / fp32 for calculations, please change the setting of "
                "cubeMathType or the Dtype of input tensor."
            )

    return check


def _name(dtype: torch.dtype) -> str:
    return name_in_cann(str(dtype).removeprefix("torch."))


def _name_of(dtype: torch.dtype) -> str:
    return f"DT_{_name(dtype)}"
