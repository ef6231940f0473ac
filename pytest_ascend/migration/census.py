"""The census: who computes each operator of the torch_npu that is installed, from torch's own dispatcher.

No operator is called and no device is touched. torch_npu registers its kernels when it is imported, the same ones
whatever CANN lies below it; where there is no CANN, the emulated one lets it be imported.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_ascend.device import npu
from pytest_ascend.environment.signs import Sign, signs
from pytest_ascend.environment.stack import collect
from pytest_ascend.errors import AscendError, DeviceUnavailable, UsageError
from pytest_ascend.records.census import Census
from pytest_ascend.system.files import canonical_json, read_regular, strict_json, write_if_new

#: torch's operators, and torch_npu's own.
NAMESPACES = ("aten", "npu")

#: A census of torch_npu 2.13 has 0.2 MB.
LIMIT_BYTES = 16 * 2**20

_INSTALL = "install the torch-npu that belongs to your torch, or 'pytest-ascend[emulated]', which brings both"
_ELSEWHERE = "see that 'python -c \"import torch_npu\"' works; the census needs no CANN of yours: --emulated"


def bring_up(*, emulated: bool = False, look: Callable[[], Sequence[Sign]] = signs) -> bool:
    """Import torch_npu, on the emulated CANN if asked or if ``look`` finds no sign of Ascend; tell whether it was that.

    Raises DeviceUnavailable where torch_npu is not installed, or does not load.
    """
    from pytest_ascend import emulator  # noqa: PLC0415 - not needed to compare two files

    if importlib.util.find_spec("torch_npu") is None:
        raise DeviceUnavailable("torch_npu is not installed here: there are no operators to count", hint=_INSTALL)
    if emulated or not look():
        emulator.activate()
    # Where torch_npu does not load, this import shall say why, and not that of torch.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        npu.load()
    except AscendError:
        raise
    except Exception as error:
        message = f"torch_npu does not load here: {type(error).__name__}: {error}"
        raise DeviceUnavailable(message, hint=_ELSEWHERE) from error
    return emulator.is_active()


def take() -> Census:
    """Ask the dispatcher about every operator. torch_npu has to be imported already (:func:`bring_up`)."""
    from pytest_ascend.device import dispatcher  # noqa: PLC0415 - imports torch

    stack = collect("npu", emulated=False, chip="")
    return Census(
        torch=stack.torch,
        torch_npu=stack.torch_npu,
        torch_npu_commit=stack.torch_npu_commit,
        operators={name: dispatcher.kind(name) for name in dispatcher.names(NAMESPACES)},
    )


def encode(census: Census) -> str:
    """Return the one text of a census: the same wheel gives the same bytes on every machine, one line an operator."""
    return canonical_json(census.to_dict(), indent=1) + "\n"


def write(path: Path, census: Census) -> None:
    """Write a census beside ``path`` and put it there. Raises UsageError where that cannot be."""
    try:
        write_if_new(path, encode(census).encode())
    except OSError as error:
        message = f"cannot write the census {path}: {error.strerror or error}"
        raise UsageError(message, hint="choose another place: --output FILE") from error


def read(path: Path) -> Census:
    """Read the census ``path``, whoever wrote it. Raises UsageError for anything that is none."""
    try:
        return Census.from_dict(strict_json(read_regular(path, LIMIT_BYTES)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or error
        message = f"cannot read the census {path}: {reason}"
        raise UsageError(message, hint="give a file that 'pytest-ascend census --output FILE' wrote") from error
