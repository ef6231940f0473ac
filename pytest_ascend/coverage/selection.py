"""What a run must execute, and whether that is everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ascend.records.case import OWN_MODEL, Case
from pytest_ascend.system.suites import describe
from pytest_ascend.system.text import some_of

#: What the paths on the command line select.
BUNDLED = "bundled"
PART = "part of the bundled suites"
OWN = "tests of one's own"
#: Tests selected by an option -> the option's field, and a description that replaces the path.
NAMED = {
    "user/model.py": ("model", OWN_MODEL),
    "user/cases.py": ("cases", "cases of --ascend-cases"),
    "user/library.py": ("library", "operators of --ascend-library"),
    "ops/exploring.py": ("explore_s", "exploring"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedCases:
    """What one process collected: cases by node ID, and the number of deselected cases of the level.

    ``places`` maps node IDs to the argument with which pytest runs that test again. ``elsewhere`` holds cases, by
    node ID, of other shards of the same run.
    """

    cases: Mapping[str, Case]
    places: Mapping[str, str] = field(default_factory=dict)
    deselected: int = 0
    elsewhere: Mapping[str, Case] = field(default_factory=dict)


def concerns(case: Case, level: str, device: str) -> bool:
    """Return whether a run at ``level`` on a kind of device, such as "npu" or "cpu", must run a case.

    Suites that need an NPU (torch_npu's own operators, graphs) are not in the manifest of another device's run.
    """
    return case.is_in(level) and (device == "npu" or not describe(case.suite).needs_npu)


def scope(paths: Sequence[str], suites: Path, invocation_folder: Path) -> str:
    """Return whether the paths or node IDs given to pytest are the bundled suites, a part of them, or other tests."""
    places = [(invocation_folder / path.partition("::")[0]).resolve() for path in paths]
    if all(place == suites and "::" not in path for place, path in zip(places, paths, strict=True)):
        return BUNDLED
    return PART if all(place.is_relative_to(suites) for place in places) else OWN


def place(path: Path, node_id: str, invocation_folder: Path) -> str:
    """Return the argument with which pytest runs a test again; node IDs of files outside its root do not work."""
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
) -> tuple[tuple[Case, ...], str]:
    """Compare the collected cases with the frozen manifest: return those that must run, and why these are not all.

    All cases of ``level`` in the manifest must run; if the user narrowed the run, all collected cases. Cases of the
    user's own tests must always run.
    """
    found = {case.id: case for case in (*collected.cases.values(), *collected.elsewhere.values())}
    due = {case.id: case for case in frozen if case.is_in(level)}
    reasons = list(narrowed_by)
    if scope == PART:
        within = [each.rpartition("/suites/")[2] for each in paths]
        _, named = NAMED.get(within[0], ("", ""))
        reasons.append(named or f"{scope}: {some_of(within)}")
    elif scope != BUNDLED:
        reasons.append(f"{scope}: {some_of(paths)}")
    if collected.deselected and not narrowed_by:
        reasons.append(f"{collected.deselected} deselected")
    narrowed = "; ".join(reasons)
    has_all = bool(due) and due.keys() <= found.keys() and not collected.deselected
    if has_all or not narrowed:
        return tuple((due | found).values()), ""
    return tuple(found.values()), narrowed
