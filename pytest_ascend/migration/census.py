"""The census: which device computes each operator of the installed torch_npu, from torch's own dispatcher.

No operator is called and no device is used. torch_npu registers the same kernels on import with every CANN; without a
CANN, it is imported on the emulated one.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ascend.device import npu
from pytest_ascend.environment.chips import NPUS, Chip, documented, family, objections, product_formats
from pytest_ascend.environment.signs import Sign, signs
from pytest_ascend.environment.stack import collect
from pytest_ascend.records.census import NATIVE, Census
from pytest_ascend.system.errors import DeviceUnavailable, UsageError, as_error, with_type
from pytest_ascend.system.files import canonical_json, read_regular, strict_json

#: torch's operators, and torch_npu's own.
NAMESPACES = ("aten", "npu")

#: The dtypes that are looked up for a chip, by torch's names.
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip

#: The census of torch_npu 2.13 has 0.2 MB.
LIMIT_BYTES = 16 * 2**20


def bring_up(*, emulated: bool = False, look: Callable[[], Sequence[Sign]] = signs) -> bool:
    """Import torch_npu, on the emulated CANN if requested or without signs of Ascend; return whether it was emulated.

    Raises DeviceUnavailable if torch_npu is not installed, or does not load.
    """
    from pytest_ascend import emulator  # noqa: PLC0415 - not needed to compare two files

    if importlib.util.find_spec("torch_npu") is None:
        hint = "install the torch-npu that belongs to your torch, or 'pytest-ascend[emulated]', which brings both"
        raise DeviceUnavailable("torch_npu is not installed here: there are no operators to count", hint=hint)
    if emulated or not look():
        emulator.activate()
    # If torch_npu does not load, the error should come from this import, not from torch's.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    without = "pytest-ascend census --emulated needs no CANN of yours, and analyze takes what its --output writes"
    hint = f"see that 'python -c \"import torch_npu\"' works; {without}"
    with as_error("torch_npu does not load here", hint, Exception, why=with_type, raises=DeviceUnavailable):
        npu.Npu().load()
    return emulator.is_active()


def take() -> Census:
    """Query the dispatcher for every operator. torch_npu must already be imported (:func:`bring_up`)."""
    from pytest_ascend.device import dispatcher  # noqa: PLC0415 - imports torch

    stack = collect("npu", emulated=False, chip="")
    return Census(
        torch=stack.torch,
        torch_npu=stack.torch_npu,
        torch_npu_commit=stack.torch_npu_commit,
        operators={name: dispatcher.kind(name) for name in dispatcher.names(NAMESPACES)},
    )


def on_chip(census: Census, chip: Chip) -> dict[str, Any]:
    """Return what CANN's documentation says about a census's native operators on a chip, as builtins.

    ``objections`` are by operator with its namespace, empty if the chip supports all dtypes that other chips support.
    ``documented`` counts the operators whose function has a page; nothing is known about others. If ``bfloat16`` is
    false, no operator supports it, and no objection names it. ``float32_products`` says, by kind of product, in what
    format float32 is multiplied by default. Raises UsageError for a chip of unknown family.
    """
    its = family(chip.name)
    if its is None:
        message = f"{chip.name}: CANN's documentation has nothing on it"
        raise UsageError(message, hint=f"choose one of {', '.join(each.name for each in NPUS)}")
    dtypes = [each for each in DTYPES if its.bfloat16 or each != "bfloat16"]
    found = {
        name: objections(operator, dtypes, its.name, own=True)
        for name, kind in census.operators.items()
        if kind == NATIVE and documented(operator := name.partition("::")[2])
    }
    return {
        "chip": chip.name,
        "bfloat16": its.bfloat16,
        "float32_products": product_formats(its),
        "documented": len(found),
        "objections": {name: said for name, said in found.items() if said},
    }


def encode(census: Census, documentation: Mapping[str, Any] | None = None) -> str:
    """Return the text of a census, one line per operator: the same wheel gives the same bytes on every machine."""
    added = {"on_chip": documentation} if documentation else {}
    return canonical_json({**census.to_dict(), **added}, indent=1) + "\n"


def read(path: Path) -> Census:
    """Read the census at ``path``, whoever wrote it. Raises UsageError if it is not one."""
    hint = "give a file that 'pytest-ascend census --output FILE' wrote"
    with as_error(f"cannot read the census {path}", hint, OSError, ValueError):
        return Census.from_dict(strict_json(read_regular(path, LIMIT_BYTES)))
