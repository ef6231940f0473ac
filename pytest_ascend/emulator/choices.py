"""What the user can choose of the emulated device, checked before anything imports torch."""

from __future__ import annotations

import functools
import re
from importlib.metadata import PackageNotFoundError, version

from pytest_ascend.environment import compatibility
from pytest_ascend.environment.signs import EMULATED_CANN_VARIABLE
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.errors import UsageError

#: The variables that carry the choices to children.
NUMERICS = "PYTEST_ASCEND_EMULATED_NUMERICS"
CANN = EMULATED_CANN_VARIABLE

EXACT = "exact"


def checked(text: str) -> str:
    """Return the numerics that a text names, as they are to be reported. Raises UsageError where it names none."""
    if text in ("", EXACT):
        return EXACT
    if match := re.fullmatch(r"chip(?::(\d{1,6}))?", text):
        return f"chip:{int(match[1] or 0)}"
    raise UsageError(f"there are no numerics {text!r} for the emulated device", hint="give exact, chip or chip:SEED")


def checked_cann(text: str) -> str:
    """Return the release of CANN that a text names, and where it names none, the one that fits the torch_npu here.

    Raises UsageError for what is no release of CANN, such as 8.1: CANN and torch_npu count 8.1.RC1 and 8.5.0.
    """
    if not text:
        return fitting_cann(_installed())
    if is_version(text) and re.match(r"\d+\.\d+[.-]\w", text):
        return text
    known = compatibility.load().cann_releases
    raise UsageError(f"{text!r} is no release of CANN", hint=f"give one such as {', '.join(map(str, known[-4:]))}")


@functools.cache
def fitting_cann(torch_npu: str) -> str:
    """Return the CANN that a version of torch_npu is paired with by the compatibility data.

    For a version that the data does not know it is the newest CANN of others for the same torch, and else the newest.
    """
    data = compatibility.load()
    own = [each for each in data.statements(torch_npu) if each.says == compatibility.PAIRED]
    named = [cann for each in own for cann in each.cann]
    if not named:
        torch = re.match(r"[\d.]*\d", torch_npu)
        named = [cann for row in data.paired(torch=torch[0] if torch else "") for cann in row["cann"]]
    releases = [Version(each) for each in named if is_version(each)] or data.cann_releases
    return str(max(releases))


def _installed() -> str:
    try:
        return version("torch_npu")
    except PackageNotFoundError:  # who starts the emulated device says it better
        return ""
