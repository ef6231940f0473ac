"""Situations that end a run or a case, each with fields and a hint on what to do next.

Every message says what happened and where, what was expected, and what to do. Nothing here imports anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: What the exit code of ``pytest --ascend`` says. 2 and 3 are pytest's own; docs/reference.md is made from this table.
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
    """Return a hint on an unknown name: the known one that is most like it, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}"


class AscendError(Exception):
    """An error that the user can fix. ``str()`` returns the message and the hint, on separate lines."""

    #: Exit code of ``pytest --ascend`` and of the command line when this error ends them.
    exit_code = 4

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}"


class UsageError(AscendError):
    """An option, marker or argument that makes no sense."""


def reason(error: Exception) -> str:
    """Return why something failed: what the system refuses, in its words."""
    return str(getattr(error, "strerror", "") or error)


def with_type(error: Exception) -> str:
    """Return why something failed, after the name of the error: what another's code raises."""
    return f"{type(error).__name__}: {error}"


def answered(work: Callable[[], Any], most: int | None = 300) -> Any:
    """Return the result, or the error as text of at most so many characters: a refusal is an answer."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever is raised is told
        return with_type(error)[:most]


@contextmanager
def as_error(
    message: str,
    hint: str,
    *kinds: type[Exception],
    why: Callable[[Exception], str] = reason,
    raises: Callable[..., AscendError] = UsageError,
) -> Iterator[None]:
    """Turn errors of these kinds, or what the system refuses, into UsageError: the message, why, and the hint.

    Errors that have a hint already pass.
    """
    caught = kinds or (OSError,)
    try:
        yield
    except AscendError:
        raise
    except caught as error:
        raise raises(f"{message}: {why(error)}", hint=hint) from error


class FailedElsewhere(AscendError):
    """What another process raised, or how it ended. ``said`` is that alone, without the words of further processes."""

    said = ""


class DeviceUnavailable(AscendError):
    """The requested device, or one that this machine shows signs of, cannot be used."""

    exit_code = 6


class EmulatorUnavailable(DeviceUnavailable):
    """The emulated device cannot be built or started here."""


class _FileError(AscendError):
    def __init__(self, message: str, *, path: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class GoldenError(_FileError):
    """A golden is missing, damaged or of another form than its case expects. ``path`` is the file to look at."""


class RunLogError(_FileError):
    """A run log that cannot be trusted: cut short, damaged, or of an unknown schema. ``path`` names the file."""
