"""Errors that end a run or a case, each with fields and a hint on what to do next.

Every message says what happened and where, what was expected, and what to do. This module imports no other of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Meanings of the exit code of ``pytest --ascend``. 2 and 3 are pytest's; docs/reference.md is generated from this.
EXIT_CODES = {
    0: "everything that must run did, and conforms; or a subset was selected, and all of it conforms",
    1: "some case does not conform, or was not run",
    2: "interrupted",
    3: "internal error",
    4: "bad usage: an option, a marker, a fault, a report folder that another run is writing to",
    5: "nothing was executed",
    6: "the device cannot be used: an NPU that does not come up, no C compiler for the emulated one, all cards in use",
    7: "infrastructure failure, and nothing that ran deviates: all cards lost, the deadline passed, or the log could "
    "not be written; --ascend-resume continues",
}


def choice(wrong: str, known: Iterable[str]) -> str:
    """Return a hint on an unknown name: the most similar known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}"


class AscendError(Exception):
    """An error that the user can fix. ``str()`` returns the message and the hint, on separate lines."""

    #: Exit code of ``pytest --ascend`` and of the command line if this error ends them.
    exit_code = 4

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}"


class UsageError(AscendError):
    """An invalid option, marker or argument."""


def reason(error: Exception) -> str:
    """Return why something failed; for an error of the operating system, its message."""
    return str(getattr(error, "strerror", "") or error)


def with_type(error: Exception) -> str:
    """Return why third-party code failed: the error's type and message."""
    return f"{type(error).__name__}: {error}"


def answered(work: Callable[[], Any], most: int | None = 300) -> Any:
    """Return the result, or the error as text of at most ``most`` characters, which counts as an answer."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever is raised is reported
        return with_type(error)[:most]


@contextmanager
def as_error(
    message: str,
    hint: str,
    *kinds: type[Exception],
    why: Callable[[Exception], str] = reason,
    raises: Callable[..., AscendError] = UsageError,
) -> Iterator[None]:
    """Turn errors of these kinds, by default OSError, into UsageError: the message, why, and the hint.

    Errors that already have a hint pass through.
    """
    caught = kinds or (OSError,)
    try:
        yield
    except AscendError:
        raise
    except caught as error:
        raise raises(f"{message}: {why(error)}", hint=hint) from error


class FailedElsewhere(AscendError):
    """An error or exit of another process. ``said`` is that alone, without the text of intermediate processes."""

    said = ""


class DeviceUnavailable(AscendError):
    """A device cannot be used that was requested, or that this machine shows signs of."""

    exit_code = 6


class EmulatorUnavailable(DeviceUnavailable):
    """The emulated device cannot be built or started on this machine."""


class _FileError(AscendError):
    def __init__(self, message: str, *, path: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class GoldenError(_FileError):
    """A golden is missing, damaged or of another form than its case expects. ``path`` is the file to look at."""


class RunLogError(_FileError):
    """A run log cannot be trusted: it is truncated, damaged, or of an unknown schema. ``path`` names the file."""
