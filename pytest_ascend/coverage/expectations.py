"""Known deviations, as data: which case comes to something else than a pass on which combination, why, and until when.

What is expected is executed all the same. As long as it happens the case is waived; when it does not, the run fails, so
that no expectation outlives its reason.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_ascend.errors import UsageError
from pytest_ascend.records.outcome import Disputed, Errored, Failed, Fallback, Outcome, Passed, Unsupported, Waived
from pytest_ascend.records.stack import Stack
from pytest_ascend.system.untrusted import read_regular, strict_json

SCHEMA = 1
NAME = "expectations.json"
#: Some thousand expectations; a file that is larger is none of ours.
LIMIT_BYTES = 4 * 2**20

#: What can be expected. Of errors one that is known by what it ``says``: a crash or a hang is no known deviation, as
#: nobody knows what it leaves behind.
EXPECTED = (Failed.name, Unsupported.name, Fallback.name, Errored.name, Disputed.name)
#: Parts of a stack that an expectation can be limited to by a range of versions (PEP 440).
RANGES = ("torch_npu", "cann", "torch")
_NEEDED = ("cases", "outcome", "reason", "source", "expires")
_OPTIONAL = ("chip", "emulated", "owner", "says", *RANGES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """One known deviation.

    ``cases`` and ``chip`` are patterns (``*`` and ``?``) of case ids and names of chips; ``versions`` maps parts of the
    stack to ranges of versions. ``emulated`` limits it to emulated devices (True) or real ones (False). ``says`` is a
    part of what the outcome says of itself. ``source`` says where the deviation is documented or was seen; ``file``
    where this entry stands.
    """

    cases: str
    outcome: str
    reason: str
    source: str
    expires: date
    chip: str = "*"
    versions: Mapping[str, SpecifierSet]
    emulated: bool | None = None
    owner: str = ""
    says: str = ""
    file: str

    def applies(self, stack: Stack) -> bool:
        """Whether it is about this combination. A version that is not known is in no range."""
        if self.emulated not in (None, stack.emulated) or not fnmatch.fnmatchcase(stack.chip, self.chip):
            return False
        return all(_contains(allowed, getattr(stack, part)) for part, allowed in self.versions.items())

    def matches(self, case_id: str) -> bool:
        """Whether it is about this case."""
        beginning, whole = _pattern(self.cases)
        return case_id.startswith(beginning) and whole.match(case_id) is not None

    def judge(self, found: Outcome, today: date) -> Outcome:
        """Return what becomes of a case of which this was expected. What the emulated device lacks stays as it is."""
        if found.name == self.outcome and self.says in f"{found.reason}\n{found.detail}":
            return self._expired(found) if today > self.expires else self._waived(found)
        if self.outcome == Disputed.name:
            return self._disputed(found)
        if isinstance(found, Passed):
            reason = f"expected to be {self.outcome} ({self.reason}), and passed: remove the expectation"
            return Failed(reason=reason, detail=f"{self.cases} in {self.file}, from {self.source}")
        if found.name in EXPECTED and not isinstance(found, Errored):
            return replace(found, reason=f"{found.reason} (expected was {self.outcome}: {self.reason})")
        return found

    def waiver(self) -> dict[str, str]:
        """Return what a reader of the run log needs to look after it."""
        expires = self.expires.isoformat()
        return {"reason": self.reason, "issue": self.source, "owner": self.owner, "expires": expires}

    def _waived(self, found: Outcome) -> Outcome:
        said = f"{found.name}: {found.reason}\n{found.detail}".rstrip()
        return Waived(reason=f"{self.reason} ({self.outcome}, as expected until {self.expires})", detail=said)

    def _disputed(self, found: Outcome) -> Outcome:
        """A case that fails on some devices that may be right: passing is no surprise, and failing no defect yet."""
        said = f"{found.name}: {found.reason}\n{found.detail}".rstrip()
        return Disputed(reason=self.reason, detail=said) if isinstance(found, (Failed, Unsupported)) else found

    def _expired(self, found: Outcome) -> Outcome:
        return replace(found, reason=f"{found.reason} (expected until {self.expires}, which is over: {self.reason})")


@dataclass(frozen=True, slots=True)
class Expectations:
    """All that is expected of one combination. Where several are about one case, the last one counts."""

    entries: tuple[Expectation, ...] = ()

    def find(self, case_id: str) -> Expectation | None:
        """Return what is expected of a case, None where it is to pass."""
        return next((each for each in reversed(self.entries) if each.matches(case_id)), None)

    def refuse_unmatched(self, case_ids: Iterable[str]) -> None:
        """Raise UsageError where one is about no case at all: a slip of the pen, or its case is gone."""
        known = tuple(case_ids)
        hint = "correct it, or remove it; 'pytest --ascend --ascend-level=full --collect-only -q' lists the cases"
        for each in self.entries:
            if not any(map(each.matches, known)):
                raise UsageError(f"{each.file}: an expectation matches no case: {each.cases!r}", hint=hint)

    def said(self) -> list[str]:
        """Return each in a few words, for the run log."""
        return [f"{each.cases}: {each.outcome} until {each.expires}" for each in self.entries]


@functools.cache
def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    """Return what every match begins with, and the pattern itself: hundreds for each of thousands of cases."""
    return re.split(r"[*?\[]", text, maxsplit=1)[0], re.compile(fnmatch.translate(text))


def load(files: Sequence[Path], stack: Stack) -> Expectations:
    """Read what these files expect of a combination. Raises UsageError for a file that is missing or malformed."""
    return _applying((entry for file in files for entry in _read(file)), stack)


def parse(content: bytes, stack: Stack) -> Expectations:
    """Read what the bytes of a file expect of a combination. Raises ValueError where they are malformed."""
    return _applying(_entries(content, NAME), stack)


def _applying(entries: Iterable[Expectation], stack: Stack) -> Expectations:
    return Expectations(tuple(entry for entry in entries if entry.applies(stack)))


def today() -> date:
    """Return the day by which expectations expire, the same all over the world."""
    return datetime.now(timezone.utc).date()


def _contains(allowed: SpecifierSet, version: str) -> bool:
    try:
        return allowed.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _read(file: Path) -> list[Expectation]:
    try:
        return _entries(read_regular(file, LIMIT_BYTES), str(file))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the expectations in {file} cannot be read: {error}", hint="docs/expectations.md describes the file"
        ) from error


def _entries(content: bytes, file: str) -> list[Expectation]:
    data = strict_json(content)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("expectations"), list):
        raise ValueError(f'expected {{"schema": {SCHEMA}, "expectations": [...]}}')
    return [_entry(each, file, number) for number, each in enumerate(data["expectations"], 1)]


def _entry(given: Any, file: str, number: int) -> Expectation:
    place = f"entry {number}"
    if not isinstance(given, dict):
        raise ValueError(f"{place} is no object")
    for name in _NEEDED:
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise ValueError(f"{place} has no {name}")
    if unknown := given.keys() - {*_NEEDED, *_OPTIONAL}:
        raise ValueError(f"{place} has an unknown key: {min(unknown)!r}")
    if given["outcome"] not in EXPECTED:
        raise ValueError(f"{place}: outcome is {given['outcome']!r}, expected one of {', '.join(EXPECTED)}")
    if given["outcome"] == Errored.name and not given.get("says"):
        raise ValueError(f"{place}: an error is expected by what it says, and there is no says")
    if given.get("emulated") not in (None, True, False):
        raise ValueError(f"{place}: emulated is {given['emulated']!r}, expected true or false")
    return Expectation(
        **{name: given[name] for name in ("cases", "outcome", "reason", "source")},
        expires=_date(given["expires"], place),
        versions={name: _range(given[name], f"{place}: {name}") for name in RANGES if name in given},
        emulated=given.get("emulated"),
        chip=str(given.get("chip", "*")),
        owner=str(given.get("owner", "")),
        says=str(given.get("says", "")),
        file=file,
    )


def _date(text: str, place: str) -> date:
    try:
        if len(text) != len("2027-06-30"):  # newer Pythons take weeks and more
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{place}: expires is {text!r}, expected a date as 2027-06-30") from None


def _range(text: Any, place: str) -> SpecifierSet:
    try:
        return SpecifierSet(str(text))
    except InvalidSpecifier:
        raise ValueError(f"{place} is {text!r}, expected a range of versions as >=2.1,<2.14") from None
