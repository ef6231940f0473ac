"""What in a program's source stops it from running on an NPU, or slows it down there, and what to use instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ascend.system.bundled import table

#: Nothing runs; runs after a change or under transfer_to_npu; runs, but not as intended.
BLOCKER, CHANGE, ADVICE = "blocker", "change", "advice"

SEVERITIES = (BLOCKER, CHANGE, ADVICE)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A module, class or function by its full name, with its effect. ``name`` covers everything below it."""

    name: str
    severity: str
    says: str
    instead: str
    source: str


_DATA: Mapping[str, Any] = table("migration/blockers.json")


def _blocker(name: str, severity: str, says: str, instead: str, source: str) -> Blocker:
    return Blocker(name, severity, says, instead, _DATA["sources"][source])


#: The source of what one import solves.
TRANSFER = str(_DATA["sources"]["transfer"])

#: Full dotted names, however they are imported. The longest match counts.
NAMES = tuple(_blocker(*row) for row in _DATA["names"])

#: Methods and attributes that matter on an NPU on any object.
METHODS = {name: _blocker(name, *row) for name, row in _DATA["methods"].items()}

#: Keywords of calls with values that matter: how the value begins, as written in Python.
KEYWORDS = {(name, begins): _blocker(name, *row) for name, begins, *row in _DATA["keywords"]}

#: Strings in arguments, defaults, comparisons and keys that name a device, a backend or a tool: by a pattern of them.
STRINGS = {re.compile(pattern): _blocker(pattern, *row) for pattern, row in _DATA["strings"].items()}


def _texts(key: str) -> Mapping[re.Pattern[str], Blocker]:
    return {re.compile(pattern): _blocker(pattern, *row) for pattern, *row in _DATA[key]}


#: Patterns in lists of requirements (whole packages are among NAMES), and in shell scripts and Dockerfiles.
PACKAGES, SHELL = _texts("packages"), _texts("shell")

#: A file of CUDA kernels.
CUDA_SOURCE = _blocker("CUDA source", *_DATA["cuda_source"])
