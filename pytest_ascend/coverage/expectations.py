"""Known deviations: one table, grouped by cause, of cases that do not pass, with reason and expiry date.

These cases run like any other. If they deviate as expected, they are waived. If one passes although its entry was
confirmed on hardware, the run fails, so that stale entries are removed; if the entry was seen only on the emulated
device, the case passes with a note.
"""

from __future__ import annotations

import bisect
import fnmatch
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_ascend.coverage import expectation_files
from pytest_ascend.environment import cards
from pytest_ascend.records.case import Stack
from pytest_ascend.records.outcome import Disputed, Failed, Fallback, Outcome, Passed, Unsupported, Waived
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular, strict_json

NAME = "expectations.json"
#: Enough for some hundred causes with some thousand patterns; larger files are refused.
LIMIT_BYTES = 4 * 2**20

#: Prefix of the reason for a pass on the emulated device despite an expected deviation.
BETTER = "better than expected"

#: A limit is something that a version of torch_npu lacks by design; a defect has to be fixed.
LIMIT, DEFECT = "limit", "defect"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """One cause of known deviations.

    ``cause`` is its ID; ``cases`` and ``chips`` are patterns (``*`` and ``?``) of case IDs and names of chips;
    ``devices`` are kinds of device, with "emulated" for the emulated NPU, empty for all; ``versions`` maps parts of the
    stack to ranges. ``says`` is a part of the outcome's message. ``source`` says where the deviation is documented or
    was seen; ``confirmed`` whether that was on hardware; ``file`` is the file of this entry. ``kind`` is "limit" for
    what torch_npu lacks by design, "defect" for errors. ``optional`` means that a pass is not a surprise either: the
    behaviour is unspecified, or depends on chance.

    ``derived`` names the source that decides case by case whether the cause applies: see
    :mod:`pytest_ascend.coverage.expectation_files`. ``cases`` then only limits where it may apply.
    """

    cause: str
    cases: tuple[str, ...]
    outcome: str
    reason: str
    why: str = ""
    source: str
    owner: str = ""
    expires: date
    chips: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    versions: Mapping[str, SpecifierSet]
    says: str = ""
    confirmed: bool = True
    kind: str = DEFECT
    optional: bool = False
    derived: str = ""
    file: str = ""

    def applies(self, stack: Stack) -> bool:
        """Return whether it applies to this stack. An unknown version is in no range."""
        device = "emulated" if stack.emulated else stack.device
        if self.devices and device not in self.devices:
            return False
        if self.chips and not any(fnmatch.fnmatchcase(stack.chip, each) for each in self.chips):
            return False
        try:
            versions = [(Version(getattr(stack, part)), allowed) for part, allowed in self.versions.items()]
        except InvalidVersion:
            return False
        return all(allowed.contains(version, prereleases=True) for version, allowed in versions)

    def matches(self, case_id: str) -> bool:
        """Return whether it applies to this case."""
        return any(_matches(pattern, case_id) for pattern in self.cases)

    def judge(self, found: Outcome, today: date) -> Outcome:
        """Return the outcome of a case with this expectation. ``not-emulated`` is kept."""
        if self.outcome == Disputed.name:
            # The device may be right here: a pass is no surprise, and a failure is no defect until it is decided.
            deviates, detail = isinstance(found, (Failed, Unsupported)), f"{found.name}: {found.reason}\n{found.detail}"
            if deviates and today > self.expires:
                return self._expired(found)
            return Disputed(reason=self.reason, detail=detail.rstrip()) if deviates else found
        if found.name == self.outcome and self.says in f"{found.reason}\n{found.detail}":
            return self._expired(found) if today > self.expires else self.waived(found, self.reason)
        if isinstance(found, Passed) and not self.optional:
            where = f"the cause {self.cause} in {self.file}, from {self.source}"
            better = f"{BETTER} ({self.outcome}: {self.reason}): remove it from {where}"
            stale = f"expected to be {self.outcome} ({self.reason}), and passed: remove the expectation"
            return Failed(reason=stale, detail=where) if self.confirmed else Passed(reason=better)
        if isinstance(found, (Failed, Unsupported, Fallback)):
            return replace(found, reason=f"{found.reason} (expected was {self.outcome}: {self.reason})")
        return found

    def waiver(self, found: Outcome) -> dict[str, str]:
        """Return the waiver for the run log; ``found`` is the outcome without it."""
        return {
            "cause": self.cause,
            "kind": self.kind,
            "outcome": found.name,
            "reason": self.reason,
            "issue": self.source,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
            "confirmed": "on hardware" if self.confirmed else "on the emulated device only",
        }

    def waived(self, found: Outcome, reason: str) -> Outcome:
        """Return the outcome of a case that deviates as expected."""
        detail = f"{found.name}: {found.reason}\n{found.detail}".rstrip()
        return Waived(reason=f"{reason} ({found.name}, as expected until {self.expires})", detail=detail)

    def _expired(self, found: Outcome) -> Outcome:
        return replace(found, reason=f"{found.reason} (expected until {self.expires}, which is over: {self.reason})")


@dataclass(frozen=True, slots=True)
class Known:
    """Known deviations of one case: an entry that names it, or None, and entries that may apply."""

    entry: Expectation | None
    derived: tuple[Expectation, ...] = ()
    chip: str = ""
    case_id: str = ""

    def judge(
        self, found: Outcome, fallbacks: Sequence[str], today: date, deviations: frozenset[str] = frozenset()
    ) -> tuple[Outcome, dict[str, str]]:
        """Return the outcome of the case and its waiver, empty for none. ``fallbacks`` are operators on the CPU,
        ``deviations`` the documented deviations of chips that together explain every error.
        """
        explained = deviations if deviations <= {each.says for each in self.derived} else frozenset()
        judged = self.entry.judge(found, today) if self.entry else found
        if isinstance(judged, (Waived, Disputed)) and self.entry:
            return judged, self.entry.waiver(found)
        for each in self.derived:
            lacking = expectation_files.gap(each.derived, found, fallbacks, self.chip, explained)
            is_said = each.says in f"{found.reason}\n{found.detail}"
            if found.name == each.outcome and lacking and is_said and today <= each.expires:
                # A test of the same operator and dtype may have failed on a real card for the same reason.
                _, operator, *rest = *self.case_id.split("/"), ""
                where = cards.seen(operator, rest[-2] if len(rest) > 1 else "", f"{found.reason} {found.detail}")
                seen = f"; for the same reason a test of it does not pass on a real card ({where})" if where else ""
                return each.waived(found, f"{each.reason}: {lacking}{seen}"), each.waiver(found)
        return judged, {}


@dataclass(frozen=True, slots=True)
class Expectations:
    """Known deviations of one stack. If several entries name the same case, the last one counts."""

    entries: tuple[Expectation, ...] = ()
    chip: str = ""

    def find(self, case_id: str) -> Expectation | None:
        """Return the entry that names a case, None if it should pass."""
        return next((each for each in reversed(self.entries) if not each.derived and each.matches(case_id)), None)

    def known(self, case_id: str) -> Known | None:
        """Return the known deviations of a case, None if there are none. Exploration shares those of the sweep."""
        explores = "/explore/" in case_id
        entry = self.find(case_id) or (self.find(case_id.replace("/explore/", "/sweep/")) if explores else None)
        derived = tuple(each for each in reversed(self.entries) if each.derived and each.matches(case_id))
        entry = replace(entry, optional=True) if entry and explores else entry
        return Known(entry, derived, self.chip, case_id) if entry or derived else None

    def refuse_unmatched(self, case_ids: Iterable[str]) -> None:
        """Raise UsageError if a pattern matches no case: it is misspelt, or its case no longer exists."""
        known = sorted(case_ids)
        hint = "correct it, or remove it; 'pytest --ascend --ascend-level=full --collect-only -q' lists the cases"
        for each in self.entries:
            for pattern in each.cases:
                if not _matches_any(pattern, known):
                    raise UsageError(f"{each.file}: an expectation matches no case: {pattern!r}", hint=hint)

    def summaries(self) -> list[str]:
        """Return a short form of each entry, for the run log."""
        return [f"{case}: {each.outcome} until {each.expires}" for each in self.entries for case in each.cases]


def load(files: Sequence[Path], stack: Stack) -> Expectations:
    """Read the known deviations of a stack from files. Raises UsageError for a missing or malformed file."""
    hint, found = "docs/expectations.md describes the file", list[Expectation]()
    for file in files:
        with as_error(f"the expectations in {file} cannot be read", hint, OSError, ValueError, RecursionError, why=str):
            found += _entries(read_regular(file, LIMIT_BYTES), str(file))
    return _applying(found, stack)


def parse(content: bytes, stack: Stack) -> Expectations:
    """Read the known deviations of a stack from the bytes of a file. Raises ValueError if they are malformed."""
    return _applying(_entries(content, NAME), stack)


def today() -> date:
    """Return today's date in UTC, for expiry."""
    return datetime.now(timezone.utc).date()


def _applying(entries: Iterable[Expectation], stack: Stack) -> Expectations:
    return Expectations(tuple(entry for entry in entries if entry.applies(stack)), stack.chip)


def _entries(content: bytes, file: str) -> Iterator[Expectation]:
    for given in expectation_files.checked(strict_json(content)):
        is_limit = given.pop("by_design", given["outcome"] in (Unsupported.name, Fallback.name))
        yield Expectation(**given, kind=LIMIT if is_limit else DEFECT, file=file)


def _matches_any(pattern: str, ordered: Sequence[str]) -> bool:
    beginning, _ = _pattern(pattern)
    first = bisect.bisect_left(ordered, beginning)
    found = itertools.takewhile(lambda case_id: case_id.startswith(beginning), itertools.islice(ordered, first, None))
    return any(_matches(pattern, case_id) for case_id in found)


def _matches(pattern: str, case_id: str) -> bool:
    beginning, whole = _pattern(pattern)
    return case_id.startswith(beginning) and whole.match(case_id) is not None


@functools.cache
def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    """Return the fixed prefix of a pattern, for quick rejection, and the compiled pattern."""
    return re.split(r"[*?\[]", text, maxsplit=1)[0], re.compile(fnmatch.translate(text))
