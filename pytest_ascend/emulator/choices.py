"""The user's choices for the emulated device, checked before anything imports torch."""

from __future__ import annotations

import functools
import os
import re
from importlib.metadata import PackageNotFoundError, version

from pytest_ascend.environment import compatibility
from pytest_ascend.environment.chips import Family, family
from pytest_ascend.environment.signs import EMULATED_CANN_VARIABLE
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.system.errors import UsageError

#: Variables that pass the choices to child processes.
NUMERICS = "PYTEST_ASCEND_EMULATED_NUMERICS"
CANN = EMULATED_CANN_VARIABLE
CHIP = "PYTEST_ASCEND_EMULATED_CHIP"
DEVICES = "PYTEST_ASCEND_EMULATED_DEVICES"

EXACT = "exact"

#: The fault of a card that stays busy for some seconds after its process ended.
RECOVERING = "recovering"

#: Limits of the emulated runtime; the memory of a device is in bytes.
MOST_DEVICES, LEAST_MEMORY = 16, 1 << 20

DEFAULT_CHIP = "Ascend910B1"

#: One chip for each family with a short name in CANN's documentation. 910B is the Atlas A2, as in common usage; the
#: first generation is 910A.
_CHIPS = {
    "910": "Ascend910A",
    "910A": "Ascend910A",
    "910B": DEFAULT_CHIP,
    "910_93": "Ascend910_9392",
    "950": "Ascend950PR",
    "310P": "Ascend310P3",
    "310B": "Ascend310B4",
}


@functools.cache
def emulated_family() -> Family | None:
    """Return the family of the chip that this process emulates; None before one is chosen."""
    return family(os.environ.get(CHIP, ""))


def is_950() -> bool:
    """Return whether this process emulates an Ascend 950, for which torch_npu allocates some results in other sizes."""
    kind = emulated_family()
    return kind is not None and kind.name == "950"


def devices_of(text: str) -> int:
    """Return the number of devices set in the environment, 2 if unset. Raises UsageError."""
    if not text:
        return 2
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_DEVICES:
        return int(text)
    raise UsageError(f"{DEVICES}={text}: invalid number of devices", hint=f"give 1 to {MOST_DEVICES}")


def checked_memory(size: int) -> int:
    """Return a device's memory in bytes. Raises UsageError below a MiB, where the unit was probably forgotten."""
    if size < LEAST_MEMORY:
        raise UsageError(
            f"an emulated device with {size} bytes of memory holds nothing",
            hint="give a number and a unit, as in 512MiB or 8GiB; without one it is bytes",
        )
    return size


def checked_physical(text: str) -> str:
    """Return the card numbers in a text such as "4,6". Raises UsageError for anything else."""
    numbers = text.split(",") if text else []
    if all(re.fullmatch(r"\d{1,2}", each) for each in numbers) and len(set(numbers)) == len(numbers):
        return text
    raise UsageError(f"{text!r} lists no cards", hint="give a number for each emulated device, such as 4,6")


def checked(text: str) -> str:
    """Return the normalised name of numerics. Raises UsageError for unknown ones."""
    if text in ("", EXACT):
        return EXACT
    if match := re.fullmatch(r"chip(?::(\d{1,6}))?", text):
        return f"chip:{int(match[1] or 0)}"
    raise UsageError(f"there are no numerics {text!r} for the emulated device", hint="give exact, chip or chip:SEED")


def checked_cann(text: str) -> str:
    """Return a release of CANN; for an empty text, the one that fits the installed torch_npu.

    Raises UsageError for a text that is not a release, such as 8.1: releases are named 8.1.RC1 and 8.5.0.
    """
    if not text:
        try:
            return fitting_cann(version("torch_npu"))
        except PackageNotFoundError:  # starting the emulated device raises a better error
            return fitting_cann("")
    if is_version(text) and re.match(r"\d+\.\d+[.-]\w", text):
        return text
    known = compatibility.load().cann_releases
    raise UsageError(f"{text!r} is not a release of CANN", hint=f"give one such as {', '.join(map(str, known[-4:]))}")


def checked_chip(text: str) -> str:
    """Return the full name of a chip, such as Ascend310P3 for 310P; by default an Atlas A2.

    Raises UsageError for an unknown one.
    """
    bare = text.removeprefix("Ascend")
    name = _CHIPS.get(bare, f"Ascend{bare}") if text else DEFAULT_CHIP
    if family(name) is None or not re.fullmatch(r"\w+", name):
        known = ", ".join(_CHIPS)
        raise UsageError(f"there is no chip {text!r}", hint=f"give {known}, or a full name such as Ascend910B3")
    return name


@functools.cache
def fitting_cann(torch_npu: str) -> str:
    """Return the CANN release that the compatibility data pairs with a version of torch_npu.

    For an unknown version, it is the newest CANN of other versions for the same torch, or else the newest of all.
    """
    data = compatibility.load()
    own = [each for each in data.statements(torch_npu) if each.says == compatibility.PAIRED]
    named = [cann for each in own for cann in each.cann]
    if not named:
        torch = re.match(r"[\d.]*\d", torch_npu)
        named = [cann for row in data.paired(torch=torch[0] if torch else "") for cann in row["cann"]]
    return str(max([Version(each) for each in named if is_version(each)] or data.cann_releases))
