"""Versions of CANN, drivers and their packages: how they are written, and how they are ordered."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

#: Suffixes of a version, from the earliest preview to the release itself and its builds.
_STAGES = {"dev": 0, "t": 0, "a": 1, "alpha": 1, "beta": 2, "rc": 3, "": 4, "post": 5, "b": 5}
_STAGE = "(" + "|".join(sorted(filter(None, _STAGES), reverse=True)) + ")"
_PART = re.compile(rf"{_STAGE}?\.?(\d+)", re.ASCII)
_FORM = re.compile(rf"\d{{1,9}}([.-]?({_STAGE}\.?)?\d{{1,9}}){{0,7}}", re.ASCII)

#: The longest text that can be a version.
LONGEST = 64


@dataclass(order=True, unsafe_hash=True)
class Version:
    """A version in the order of CANN and its drivers: 8.0.RC3.alpha003 < 8.0.RC3 < 8.0.0 < 8.1.RC1.

    Case is ignored (drivers write ``rc1``), and build numbers (``.B231``) are compared as numbers. Raises ValueError if
    a text is not a version.
    """

    text: str = field(compare=False)
    key: tuple[tuple[int, int], ...] = field(init=False, compare=False)
    _padded: tuple[tuple[int, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_version(self.text):
            raise ValueError(f"{self.text[:LONGEST]!r} is no version")
        self.key = tuple((_STAGES[(stage or "")], int(number)) for stage, number in _PART.findall(self.text.lower()))
        # Padded, so that 25.0 equals 25.0.0 and a release follows its RCs.
        self._padded = (*self.key, *[(_STAGES[""], 0)] * (10 - len(self.key)))

    @property
    def release(self) -> tuple[int, ...]:
        """Return the leading numbers: (8, 0) of 8.0.RC3, (9, 0, 0) of 9.0.0-beta.1."""
        return tuple(number for _, number in itertools.takewhile(lambda part: part[0] == _STAGES[""], self.key))

    def __str__(self) -> str:
        return self.text


def is_version(text: str) -> bool:
    """Return whether a text can be a version of CANN, a driver or one of their packages."""
    return len(text) <= LONGEST and _FORM.fullmatch(text.lower()) is not None


def matches(version: str, pattern: str) -> bool:
    """Return whether ``version`` matches a statement's "9.0.0", "8.5.x" or "8.3.RC1"."""
    if pattern.endswith(".x"):
        return version.lower().startswith(pattern[:-1].lower())
    return is_version(version) and is_version(pattern) and Version(version) == Version(pattern)


def satisfies(version: str, constraint: str) -> bool | None:
    """Return whether a version satisfies ``>=8.5``, ``<9``, ``==8.5.0`` or several of them; None if undecidable.

    A preview of 8.5.0 satisfies ``>=8.5``: constraints name the line, and previews belong to it.
    """
    parts = list(filter(None, map(str.strip, constraint.split(","))))
    if not parts or not is_version(version):
        return None
    mine, verdicts = Version(version), []
    for part in parts:
        found = re.fullmatch(r"(>=|<=|==|>|<)?\s*([0-9A-Za-z.-]+)", part, re.ASCII)
        if not found or not is_version(found[2]):
            return None
        sign, bound = found[1] or "==", Version(found[2])
        length = len(bound.release)
        same_line = length == len(bound.key) and mine.release[:length] == bound.release
        if same_line or mine == bound:
            verdicts.append("=" in sign)
        else:
            verdicts.append((mine < bound and "<" in sign) or (mine > bound and ">" in sign))
    return all(verdicts)


def in_range(version: str, text: str) -> bool | None:
    """Return whether a version is in one of the ranges ``[7.0.0,8.9.9]`` or ``[24.1,24.1.]``; None if undecidable.

    An upper end with a trailing dot means every version with that prefix. A single version in brackets is itself.
    """
    ranges = re.findall(r"\[([^\[\]]*)\]", text)
    if not ranges or not is_version(version):
        return None
    mine, verdicts = Version(version), []
    for each in ranges:
        low, _, high = (part.strip() for part in each.partition(","))
        high = high or low
        if is_version(low) and is_version(high.rstrip(".")):
            last = Version(high.rstrip("."))
            begins_so = high.endswith(".") and mine.release[: len(last.release)] == last.release
            verdicts.append(Version(low) <= mine and (mine <= last or begins_so))
    return any(verdicts) if verdicts else None
