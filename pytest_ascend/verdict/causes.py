"""Failures grouped by common features, so that 921 failures of one operator are one line to read.

A cause is a set of features that its cases share (operator, dtype, property, error, operator computed by the CPU).
Causes are chosen greedily: each time the one that explains the most cases not yet explained.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

from pytest_ascend.records.case import OWN, OWN_TEST, Case
from pytest_ascend.records.outcome import Disputed, Failed, Fallback, NotEmulated, NotRun, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.suites import describe
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.summary import ORDER

#: Features with their values, as in ``("dtype", "float16")``; a cause is described by up to three of them.
Features: TypeAlias = tuple[tuple[str, str], ...]
#: Outcomes that are grouped, the worst first.
GROUPED = ORDER[:6]
#: Features that may describe a cause. Of two that explain equally many cases, the shorter description is preferred.
_DESCRIPTIONS = (
    *(("error",), ("cpu",), ("subject",), ("operator",), ("dtype",), ("property",), ("suite",)),
    *(("subject", "property"), ("subject", "dtype"), ("property", "dtype"), ("suite", "dtype"), ("pattern", "dtype")),
    ("subject", "property", "dtype"),
)
#: Features that only deviating cases have: no passing case can contradict such a description.
_ONLY_OF_DEVIATIONS = {"error", "cpu", "pattern"}
#: The simplest case represents a cause: these properties and dtypes come first.
_PLAIN = ("forward", "outputs", "float32")


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases with one ``outcome`` that share ``features``, the simplest case first.

    ``id`` is the same in every run in which the same features deviate. ``ran`` counts all executed cases with these
    features, whatever their outcome; 0 if only deviating cases can have them.
    """

    id: str
    outcome: str
    features: Features
    cases: tuple[ResultRecord, ...]
    ran: int

    @property
    def representative(self) -> ResultRecord:
        """Return the simplest case of the cause."""
        return self.cases[0]

    @property
    def title(self) -> str:
        """Return the features in a few words, such as ``ops/relu``, ``error 507899``; for a single case, its ID."""
        if len(self.cases) == 1:
            return evidence.line(self.representative.case.id)
        return evidence.line(", ".join(_WORDS.get(name, "{}").format(value) for name, value in self.features))

    @property
    def is_named_by_its_finding(self) -> bool:
        """Return whether the title of several cases repeats the finding."""
        return len(self.cases) > 1 and self.features == (("error", _without_numbers(self.representative.reason)),)

    @property
    def finding(self) -> str:
        """Return the finding of the representative, in one line."""
        return evidence.finding(self.representative)


_WORDS = {"error": "error {}", "cpu": "{} computed on the CPU", "suite": "suite {}", "dtype": "dtype {}"}


def causes_of(results: Iterable[ResultRecord], manifest: tuple[Case, ...] = ()) -> tuple[Cause, ...]:
    """Return the causes of all cases that deviate or did not run: worst outcome first, then the largest.

    With the ``manifest`` of all cases, results that passed may be left out.
    """
    results = tuple(results)
    by_outcome = by_key((each.outcome_name, each) for each in results)
    if by_outcome.keys().isdisjoint(GROUPED):
        return ()
    executed = Counter(_described(manifest or tuple(each.case for each in results)))
    for each in (*by_outcome[NotRun.name], *by_outcome[NotEmulated.name]):
        executed.subtract(_keys(_features_of(each.case)))
    # Failing operators that torch composes of another failing one, as argsort of sort, with that one.
    counts, explained = Counter(_subject(each.case) for each in by_outcome[Failed.name]), {}
    for suite in {each.case.suite for each in by_outcome[Failed.name]}:
        for name, parts in describe(suite).made_of.items():
            failing = [part for part in (f"{suite}/{each}" for each in parts) if part in counts]
            if failing:
                explained[f"{suite}/{name}"] = max(failing, key=lambda each: (counts[each], each))
    return tuple(cause for name in GROUPED for cause in _grouped(by_outcome[name], executed, explained))


@dataclass(frozen=True, slots=True)
class KnownCause:
    """Cases with a known deviation, by one cause. ``kind`` is "limit" (by design), "defect" or "" (not stated)."""

    cause: str
    kind: str
    waiver: Mapping[str, Any]
    cases: tuple[ResultRecord, ...]


def known_causes(results: Iterable[ResultRecord]) -> tuple[KnownCause, ...]:
    """Return the causes of all waived and disputed cases, defects before limits, then the largest first."""
    known = (each for each in results if each.outcome_name in (Waived.name, Disputed.name))
    found = by_key((str(each.waiver.get("cause") or each.waiver.get("reason") or each.reason), each) for each in known)
    causes = []
    for name, cases in found.items():
        waiver = cases[0].waiver
        causes.append(KnownCause(evidence.line(name), waiver.get("kind", ""), waiver, tuple(cases)))
    return tuple(sorted(causes, key=lambda each: (each.kind == "limit", -len(each.cases), each.cause)))


def not_emulated(results: Iterable[ResultRecord]) -> tuple[Cause, ...]:
    """Return the cases for which the emulated device lacks an operator, by its message, the largest group first."""
    lacking = (each for each in results if each.outcome_name == NotEmulated.name)
    found = by_key((_without_numbers(each.reason), each) for each in lacking)
    ordered = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    return tuple(_cause((("error", text),), cases, 0) for text, cases in ordered)


def features(record: ResultRecord, explained: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return all features of one case, without numbers that vary between runs, such as addresses.

    ``explained`` maps failing subjects to others that cause their failure.
    """
    found = _features_of(record.case)
    if record.outcome_name == Fallback.name and record.fallbacks:
        found["cpu"] = ", ".join(sorted(set(record.fallbacks)))
    elif record.outcome_name == Failed.name:
        found["subject"] = (explained or {}).get(found["subject"], found["subject"])
        pattern = next((each.pattern for each in record.verdicts if not each.agrees), "")
        found["pattern"] = _without_numbers(pattern.partition("; ")[2] or pattern)
    elif record.outcome_name in GROUPED and record.outcome_name != Fallback.name:
        codes = record.diagnosis.get("codes")
        found["error"] = str(codes[0]["code"]) if codes else _without_numbers(record.reason)
    return {name: value for name, value in found.items() if value}


def _features_of(case: Case) -> dict[str, str]:
    """Return the features of a case itself; what users' own tests have in common is not a cause."""
    shared = {} if case.suite == OWN and case.property == OWN_TEST else {"suite": case.suite, "property": case.property}
    return {**shared, "subject": _subject(case), "operator": case.subject, "dtype": case.dtype}


def _subject(case: Case) -> str:
    return f"{case.suite}/{case.subject}"


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text.partition("\n")[0])[:120]


@lru_cache(maxsize=8)
def _described(cases: tuple[Case, ...]) -> Mapping[Features, int]:
    """Count the cases that fit each description; cached, since many runs of a history execute the same cases."""
    return Counter(key for case in cases for key in _keys(_features_of(case)))


def _keys(known: Mapping[str, str]) -> Iterator[Features]:
    for names in _DESCRIPTIONS:
        if all(map(known.get, names)):
            yield tuple((name, known[name]) for name in names)


def _grouped(
    found: Sequence[ResultRecord], executed: Mapping[Features, int], explained: Mapping[str, str]
) -> Iterator[Cause]:
    """Yield causes of cases with one outcome, the largest first.

    Scores only fall as cases are explained, so a heap suffices whose entries are rescored when they are popped.
    """
    keys = [tuple(_keys(features(record, explained))) for record in found]
    is_failed = any(each.outcome_name == Failed.name and each.case.property != OWN_TEST for each in found)
    left = defaultdict[Features, set[int]](set)
    for index, each in enumerate(keys):
        for key in each:
            left[key].add(index)
    total = {key: len(each) for key, each in left.items()}

    def entry(key: Features) -> tuple[float, int, Features]:
        """Return a sort key, the best explanation first: the cases covered, reduced if other cases that fit it pass."""
        names, covered = tuple(name for name, _ in key), float(len(left[key]))
        if "pattern" in names:  # a weaker sign of a common cause than an operator or an error code
            covered *= 0.5
        elif _ONLY_OF_DEVIATIONS.isdisjoint(names):
            share = total[key] / max(executed.get(key, 0), total[key])
            # Failures of one operator or model have one cause, even if its other cases pass; a closer description is
            # better. One that mostly passing cases fit explains little, however many deviating cases it has.
            least = covered * 0.99 if is_failed and names == ("subject",) else 0
            covered = max(least, covered * share * share * (1 if share >= 0.5 else 0.5**4))
        return -covered, _DESCRIPTIONS.index(names), key

    heap, chosen = [entry(key) for key in left], []
    heapq.heapify(heap)
    while heap:
        popped = heapq.heappop(heap)
        key = popped[2]
        if left[key] and popped == (now := entry(key)):
            indices = sorted(left[key])
            cases = [found[index] for index in indices]
            is_wider = any(_subject(each.case) in explained for each in cases)
            is_certain = not _ONLY_OF_DEVIATIONS.isdisjoint(name for name, _ in key)
            chosen.append(_cause(key, cases, 0 if is_wider or is_certain else executed[key]))
            for index in indices:
                for other in keys[index]:
                    left[other].discard(index)
        elif left[key]:
            heapq.heappush(heap, now)
    yield from sorted(chosen, key=lambda each: (-len(each.cases), each.id))


def _cause(key: Features, cases: Sequence[ResultRecord], ran: int) -> Cause:
    own = dict(key).get("subject", "")

    def simplicity(record: ResultRecord) -> tuple[bool, bool, int, bool, str]:
        case = record.case
        is_other = own not in ("", _subject(case))
        # of a model's cases, the one that names the first wrong layer is the most informative
        names_no_layer = not case.property.endswith("layers")
        plain = sum(each in _PLAIN for each in (case.property, case.dtype))
        return is_other, names_no_layer, -plain, not record.snippet, case.id

    ordered = tuple(sorted(cases, key=simplicity))
    outcome = ordered[0].outcome_name
    named = ".".join(re.sub(r"[^A-Za-z0-9_/-]+", "-", value).strip("-") for _, value in key)
    short = named if len(named) <= 60 else f"{named[:40]}-{sha256(named.encode()).hexdigest()[:8]}"
    return Cause(f"{outcome}:{short}", outcome, key, ordered, ran)
