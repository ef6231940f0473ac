"""What the user can choose of the emulated device, checked before anything imports torch."""

from __future__ import annotations

import re

from pytest_ascend.errors import UsageError

#: The variable that carries the numerics to children.
NUMERICS = "PYTEST_ASCEND_EMULATED_NUMERICS"

EXACT = "exact"


def checked(text: str) -> str:
    """Return the numerics that a text names, as they are to be reported. Raises UsageError where it names none."""
    if text in ("", EXACT):
        return EXACT
    if match := re.fullmatch(r"chip(?::(\d{1,6}))?", text):
        return f"chip:{int(match[1] or 0)}"
    raise UsageError(f"there are no numerics {text!r} for the emulated device", hint="give exact, chip or chip:SEED")
