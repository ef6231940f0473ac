"""CANN's checks before computing: the emulated device rejects the dtypes and ranks that a real one rejects.

The limits are data, by operator and chip: :func:`pytest_ascend.environment.chips.limits`. Operators without limits
accept what torch's CPU kernels accept.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import torch

from pytest_ascend.emulator.signature import Signature
from pytest_ascend.emulator.tensors import DTYPES, Refused, code_of, is_empty
from pytest_ascend.environment.chips import MOST_DIMENSIONS, Limits, family, limits, name_in_cann

_NAMES = {code: name_in_cann(str(dtype).removeprefix("torch.")) for code, dtype in DTYPES.items()}
_CODES = {name: code for code, name in _NAMES.items()}
_TWO = ctypes.c_int64 * 2
#: ACL's numbers of E8M0 and of four-bit floats: the lists have no names for these dtypes and cannot exclude them.
_NOT_LISTED = frozenset({37, 40})

#: cubeMathType: a product is computed in the dtype of its operands, or in HF32.
_KEEPS, _HF32 = 0, 3

_Check = Callable[[Sequence[int]], None]


def check_of(signature: Signature, chip: str) -> _Check | None:
    """Return the function that checks the words of a call and raises Refused; None if there is nothing to check."""
    kind = family(chip)
    found = limits(signature.name.removeprefix("aclnn"), kind.name) if kind else Limits()
    places = names = [each.name for each in signature.parameters]
    if len(found.parameters) == len(places):  # CANN's parameter names are known
        places = list(found.parameters)
    allowed = {
        name: frozenset(_CODES[each] for each in listed if each in _CODES) for name, listed in found.takes.items()
    }
    some = frozenset(code for code, name in _NAMES.items() if name != "BFLOAT16")
    without = None if kind is None or kind.bfloat16 else some  # a chip without bfloat16 supports it in no operator
    # An output that a flag turns off is not checked: CANN replaces softmaxLse by a placeholder of its own
    # (FusedInferAttentionScoreProcessSoftmaxLse in hicann/ops-transformer).
    flags = {name.removesuffix("Flag"): place for place, name in enumerate(places) if name.endswith("Flag")}
    looked_at = [
        (place, each.type == "TensorList", name, allowed.get(name, without), name in found.ranked, flags.get(name))
        for place, (each, name) in enumerate(zip(signature.parameters, places, strict=True))
        if each.type in ("Tensor", "TensorList") and (name in allowed or without or name in found.ranked)
    ]
    promoted = [
        ([places.index(name) for name in both.split() if name in places], both.split(), frozenset(listed))
        for both, listed in found.together.items()
    ]
    # A chip whose cube unit does not support float32 rejects float32 products, kept or in HF32. Source:
    # CheckCubeMathType in the host code of CANN's operators that multiply (hicann/ops-nn, matmul/common).
    cube = names.index("cube") if kind and kind.halves and "cube" in names else None
    tensors = [place for place, each in enumerate(signature.parameters) if each.type == "Tensor" and each.is_input]
    is_documented = found.by == "page"  # a page gives no dtype for an empty tensor that means an omitted one
    if not looked_at and not promoted and cube is None:
        return None

    def check(words: Sequence[int]) -> None:
        wide = (words[each] for each in tensors if words[each] and DTYPES.get(code_of(words[each])) is torch.float32)
        if cube is not None and words[cube] in (_KEEPS, _HF32) and any(wide):
            raise Refused(
                "The soc version does not support bf16 / fp32 for calculations, please change the setting of "
                "cubeMathType or the Dtype of input tensor."
            )
        for place, is_list, name, codes, is_ranked, flag in looked_at:
            descriptor = words[place]
            if descriptor and is_list:
                count, items = _TWO.from_address(descriptor)
                descriptor = ctypes.c_int64.from_address(items).value if count else 0
            if not descriptor or (flag is not None and not words[flag]):
                continue
            code, rank = _TWO.from_address(descriptor)
            if codes is not None and code not in codes | _NOT_LISTED and not (is_documented and is_empty(descriptor)):
                listed = _listed(frozenset(_NAMES[each] for each in codes))
                given = f"DT_{_NAMES[code]}" if code in _NAMES else code
                raise Refused(f"Tensor {name} not implemented for {given}, should be in dtype support list [{listed}].")
            if is_ranked and rank > MOST_DIMENSIONS:
                raise Refused(f"The {name} tensor cannot be larger than {MOST_DIMENSIONS} dimensions.")
        for where, names, lost in promoted:
            _check_together([words[place] for place in where], names, lost)

    return check


def _check_together(descriptors: Sequence[int], names: Sequence[str], lost: frozenset[str]) -> None:
    codes = [code_of(each) for each in descriptors if each]
    if len(codes) != len(names) or any(code not in DTYPES for code in codes):
        return
    dtype = functools.reduce(torch.promote_types, (DTYPES[code] for code in codes))
    made = name_in_cann(str(dtype).removeprefix("torch."))
    if made in lost:
        found = " and ".join(f"{name} dtype DT_{_NAMES[code]}" for name, code in zip(names, codes, strict=True))
        raise Refused(
            f"Tensor {names[0]} not implemented for DT_{made}, should be in dtype support list "
            f"[{_listed(frozenset(_CODES) - lost)}]: {found} get promoteType dtype DT_{made}."
        )


def _listed(names: frozenset[str]) -> str:
    return "".join(f"DT_{name}," for name in _NAMES.values() if name in names)
