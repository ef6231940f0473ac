"""The doctor's findings: each with its evidence, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from pytest_ascend.system.text import one_line

if TYPE_CHECKING:
    from pytest_ascend.doctor.survey import Survey

#: The NPU does not work, or its results cannot be trusted.
ERROR = "error"
#: It may work, but something is wrong.
WARNING = "warning"
#: Useful when reading results.
NOTE = "note"
#: Could not be determined.
UNKNOWN = "unknown"

#: The worst first.
SEVERITIES = (ERROR, WARNING, NOTE, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of a check: the ``rule`` that explains it, ``what`` in a sentence, the ``evidence`` line by line.

    ``remedy``, if not "", is more specific than the rule's. ``card`` is torch's index of the device concerned, -1 if
    torch does not see it, None for the machine.
    """

    rule: str
    what: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    card: int | None = None


Check = Callable[["Survey"], Iterator[Observation]]

#: Functions that examine a machine, each for the situations of some rules.
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Register a function that yields observations; each rule that it names is a row of ``rules.json``."""
    CHECKS.append(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A situation: its severity, why it matters, what to do, and the observations if it was found.

    ``id`` names the rule and stays the same over releases. The rules are findings without observations.
    """

    id: str
    severity: str
    what: str = ""
    evidence: tuple[str, ...] = ()
    why: str
    remedy: str
    card: int | None = None

    def at(self, seen: Observation) -> Finding:
        """Return the situation with a check's observation, in words that are safe to show."""
        evidence, remedy = tuple(_plain(each) for each in seen.evidence if each), _plain(seen.remedy or self.remedy)
        return replace(self, what=_plain(seen.what), evidence=evidence, remedy=remedy, card=seen.card)


def _plain(text: str) -> str:
    """Make foreign text harmless: files, variables and process names may hold anything."""
    return one_line(text)[:600]


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Everything that was found: components with their evidence, findings (the most severe first), and settings.

    ``components`` has for each name the version ("" if unknown), the evidence and what disagrees; ``judged_by`` names
    the compatibility data; ``settings`` are the environment variables that affect numbers or speed. ``devices`` are the
    chips that npu-smi sees, each with ``npu``, ``chip``, ``name``, ``bus``, ``health``, ``memory_total_mb``,
    ``memory_used_mb``, and ``index``, by which torch knows it (-1 if it does not).
    """

    machine: str
    components: tuple[Mapping[str, Any], ...]
    findings: tuple[Finding, ...]
    settings: Mapping[str, str]
    devices: tuple[Mapping[str, Any], ...]
    judged_by: str

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return what keeps the NPU from working, or its results from being trusted."""
        return tuple(each for each in self.findings if each.severity == ERROR)

    @property
    def grave(self) -> tuple[Finding, ...]:
        """Return the errors, followed by the warnings."""
        return tuple(each for each in self.findings if each.severity in (ERROR, WARNING))

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, as in the output of ``--json`` and in the header of a run log."""
        found = to_builtins(self)
        findings = [{name: value for name, value in each.items() if value is not None} for each in found["findings"]]
        return {**found, "findings": findings}
