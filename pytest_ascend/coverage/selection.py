"""What a run has to execute, and whether that is everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ascend.records.case import Case
from pytest_ascend.verdict.suites import describe
from pytest_ascend.verdict.summary import OWN_MODEL

#: What the paths on the command line come to.
BUNDLED = "bundled"
PART = "part of the bundled suites"
OWN = "tests of one's own"
#: Tests that an option chooses -> what is said instead of their path.
NAMED = {"user/model.py": OWN_MODEL, "user/cases.py": "cases of --ascend-cases", "ops/exploring.py": "exploring"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedCases:
    """What one process collected: cases by node id, and how many that belong to the level were deselected.

    ``places`` gives, by node id, what to tell pytest to run that test again. ``elsewhere`` are cases, by node id, that
    other shards of the same run have.
    """

    cases: Mapping[str, Case]
    places: Mapping[str, str] = field(default_factory=dict)
    deselected: int = 0
    elsewhere: Mapping[str, Case] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The cases that must run, each once; ``narrowed`` says why they are not everything, and is "" where they are."""

    cases: tuple[Case, ...]
    narrowed: str = ""


def concerns(case: Case, level: str, device: str) -> bool:
    """Whether a run at ``level`` on a kind of device, as "npu" or "cpu", has to run a case.

    Operators of torch_npu's own, which no other device has, are not in the manifest of a run on one.
    """
    return case.is_in(level) and (device == "npu" or not describe(case.suite).needs_npu)


def scope(paths: Sequence[str], suites: Path, invocation_folder: Path) -> str:
    """Tell whether the paths or node ids given to pytest are the bundled suites, a part of them, or something else."""
    places = [(invocation_folder / path.partition("::")[0]).resolve() for path in paths]
    if all(place == suites and "::" not in path for place, path in zip(places, paths, strict=True)):
        return BUNDLED
    return PART if all(place.is_relative_to(suites) for place in places) else OWN


def place(path: Path, node_id: str, invocation_folder: Path) -> str:
    """Return what to tell pytest to run a test again: pytest's own ids of files outside its root lead nowhere."""
    shown = path.relative_to(invocation_folder) if path.is_relative_to(invocation_folder) else path
    _, colons, name = node_id.partition("::")
    return f"{shown}{colons}{name}"


def plan(
    collected: CollectedCases,
    frozen: Iterable[Case],
    *,
    level: str,
    scope: str,
    paths: Sequence[str],
    narrowed_by: Sequence[str],
) -> Plan:
    """Set what was collected against the frozen manifest.

    All of the manifest that belongs to ``level`` has to run; where the user narrowed the run, what was collected has.
    Cases of the user's own tests have to run in any case.
    """
    found = {case.id: case for case in (*collected.cases.values(), *collected.elsewhere.values())}
    due = {case.id: case for case in frozen if case.is_in(level)}
    narrowed = _narrowed(collected, scope=scope, paths=paths, narrowed_by=narrowed_by)
    has_all = bool(due) and due.keys() <= found.keys() and not collected.deselected
    if has_all or not narrowed:
        return Plan(cases=tuple((due | found).values()))
    return Plan(cases=tuple(found.values()), narrowed=narrowed)


def _narrowed(collected: CollectedCases, *, scope: str, paths: Sequence[str], narrowed_by: Sequence[str]) -> str:
    reasons = list(narrowed_by)
    if scope == PART:
        within = [each.rpartition("/suites/")[2] for each in paths]
        reasons.append(NAMED.get(within[0]) or f"{scope}: {_listed(within)}")
    elif scope != BUNDLED:
        reasons.append(f"{scope}: {_listed(paths)}")
    if collected.deselected and not narrowed_by:
        reasons.append(f"{collected.deselected} deselected")
    return "; ".join(reasons)


def _listed(paths: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return ", ".join(paths[:limit]) + more
