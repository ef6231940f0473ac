"""Converts the C runtime's words to kernel arguments: tensors over device memory, scalars, lists, text.

A descriptor is read at once as 64-bit words, in the order of ``runtime/emulated.h``. All device memory is one address
range, so each tensor is a view of one base tensor of its dtype: no memory is wrapped twice.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pytest_ascend.emulator.signature import PLAIN

_NAMES = {
    0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32", 9: "int64",
    10: "uint64", 11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16", 33: "complex32",
    35: "float8_e5m2", 36: "float8_e4m3fn", 37: "float8_e8m0fnu", 40: "float4_e2m1fn_x2",
}  # fmt: skip

#: Torch's dtypes for two four-bit numbers in a byte and for powers of two; None if the installed torch lacks them.
FOUR_BITS, POWERS = getattr(torch, "float4_e2m1fn_x2", None), getattr(torch, "float8_e8m0fnu", None)
#: ACL's number for four-bit floats (E2M1). A descriptor counts numbers, of which torch has two in a byte.
_FOUR_BITS = 40

#: aclDataType, by CANN's numbers -> torch dtype, if the installed version has it.
DTYPES: dict[int, torch.dtype] = {code: getattr(torch, name) for code, name in _NAMES.items() if hasattr(torch, name)}

_HEADER = 5  # dtype, ndim, offset, data, format
_AT_ONCE = ctypes.c_int64 * 13  # EMU_TENSOR_WORDS: enough for four dimensions
_TWO = ctypes.c_int64 * 2


class Refused(Exception):
    """Arguments that CANN rejects; ``CODE`` is its ACLNN_ERR_PARAM_INVALID."""

    CODE = 161002


def code_of(descriptor: int) -> int:
    """Return the aclDataType of a descriptor."""
    return ctypes.c_int64.from_address(descriptor).value


def is_empty(descriptor: int) -> bool:
    """Return whether a descriptor's tensor has no elements."""
    rank = _TWO.from_address(descriptor)[1]
    return 0 in (ctypes.c_int64 * rank).from_address(descriptor + 8 * _HEADER)[:]


class DeviceMemory:
    """The address range of all emulated devices' memory, as one base tensor per dtype."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        whole = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)
        self.bases = {code: (whole.view(dtype), dtype.itemsize) for code, dtype in DTYPES.items()}

    def holds(self, address: int) -> bool:
        """Return whether an address is in device memory."""
        return 0 <= address - self.address < self.size

    def tensor(self, descriptor: int) -> torch.Tensor | None:
        """Return a descriptor's tensor (None for a null pointer): a view, with its sizes, strides and offset.

        Raises ValueError for a dtype that torch does not have.
        """
        if not descriptor:
            return None
        words = _AT_ONCE.from_address(descriptor)[:]
        code, ndim, offset, data = words[:4]
        if ndim > 4:
            words = (ctypes.c_int64 * (_HEADER + 2 * ndim)).from_address(descriptor)[:]
        middle = _HEADER + ndim
        shape, strides = words[_HEADER:middle], words[middle : middle + ndim]
        try:
            base, itemsize = self.bases[code]
        except KeyError:
            raise ValueError(f"a tensor of aclDataType {code}, which is not emulated") from None
        if code == _FOUR_BITS:  # in bytes: the dense dimension, the last or the one before, is halved (op-plugin)
            dense = ndim - (1 if ndim == 1 or strides[-1] == 1 else 2)
            shape = [size // 2 if dim == dense else size for dim, size in enumerate(shape)]
            strides = [1 if dim == dense else stride // 2 for dim, stride in enumerate(strides)]
            offset //= 2
        if not data:  # torch_npu allocates no memory for tensors without elements
            return torch.empty(shape, dtype=base.dtype)
        return base.as_strided(shape, strides, (data - self.address) // itemsize + offset)


def write(target: Any, value: Any) -> None:
    """Copy a result to an output. An omitted output, or one that the kernel did not compute, stays unchanged."""
    if target is None or value is None:
        return
    if isinstance(target, (list, tuple)):
        for each, result in zip(target, value, strict=True):
            write(each, result)
        return
    if target.shape != value.shape:  # copy_ would broadcast, and hide the mistake
        raise Refused(f"Shape of out should be {tuple(value.shape)}, but current is {tuple(target.shape)}.")
    target.copy_(value)


def set_view_shape(descriptor: int, shape: torch.Size) -> None:
    """Set the data-dependent shape of a result for torch_npu; it never has more dimensions than expected."""
    words = (ctypes.c_int64 * (_HEADER + len(shape))).from_address(descriptor)
    words[1] = len(shape)
    words[_HEADER:] = list(shape)


_SCALAR_FORMATS = {0: "<f", 1: "<e", 2: "<b", 3: "<i", 4: "<B", 6: "<h", 9: "<q", 11: "<d", 12: "<?"}


def scalar(descriptor: int) -> complex | None:
    """Return the Python number of a scalar's descriptor: bool, int, float or complex; None for a null pointer."""
    if not descriptor:
        return None
    code = code_of(descriptor)
    value = ctypes.string_at(descriptor + 8, 16)
    if code in _SCALAR_FORMATS:
        return struct.unpack_from(_SCALAR_FORMATS[code], value)[0]  # type: ignore[no-any-return]
    return torch.frombuffer(bytearray(value), dtype=DTYPES[code])[0].item()


def _array(item: type[Any], read: Callable[[int], Any] | None, descriptor: int) -> list[Any] | None:
    """Read a list, None for a null pointer; ``read`` dereferences items that are pointers."""
    if not descriptor:
        return None
    count, items = _TWO.from_address(descriptor)
    found = list((item * count).from_address(items)) if count else []
    return [read(each) for each in found] if read else found


def readers(memory: DeviceMemory) -> dict[str, Callable[[int], Any]]:
    """Return, for each type of a declaration, the function from a word to the kernel's argument."""
    return {
        "Tensor": memory.tensor,
        "TensorList": partial(_array, ctypes.c_int64, memory.tensor),
        "Scalar": scalar,
        "ScalarList": partial(_array, ctypes.c_int64, scalar),
        "IntArray": partial(_array, ctypes.c_int64, None),
        "BoolArray": partial(_array, ctypes.c_bool, None),
        "FloatArray": partial(_array, ctypes.c_float, None),
        "text": lambda address: ctypes.string_at(address).decode() if address else None,
        "dtype": DTYPES.get,
        "bool": bool,
        **dict.fromkeys(("float", "double"), lambda bits: struct.unpack("<d", struct.pack("<q", bits))[0]),
        "uint64": lambda word: word & 0xFFFF_FFFF_FFFF_FFFF,
        **dict.fromkeys(PLAIN, int),
    }
