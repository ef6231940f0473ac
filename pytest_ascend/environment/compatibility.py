"""Public statements on which versions are compatible, each with its source.

Sources contradict each other; every statement is kept as published and weighed by its kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_ascend.environment.versions import Version, is_version, matches
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import read_regular, strict_json

SCHEMA = 1
BUNDLED = Path(__file__).with_name("compatibility.json")

#: The kinds of statements, the strongest first.
PAIRED, INCOMPATIBLE, COMPATIBLE, TESTED = "paired", "incompatible", "compatible", "tested"
SAYINGS = (PAIRED, INCOMPATIBLE, COMPATIBLE, TESTED, "prerelease", "superseded")

#: Sections of the file, and the fields of their rows: strings, and lists of strings.
SECTIONS: Mapping[str, Mapping[str, type]] = {
    "combinations": {"torch_npu": str, "torch": str, "cann": list, "line": str, "says": str, "source": str},
    "lines": {"line": str, "cann": list, "says": str, "source": str},
    "packages": {"torch_npu": str, "lines": list},
    "python": {"torch": str, "python": list, "source": str},
    "hdk": {"cann": str, "hdk": list, "source": str},
    "cann_mixes": {"toolkit": list, "ops": list, "source": str},
    "libraries": {"library": str, "version": str, "needs": list, "source": str},
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that a torch_npu works with some CANNs, or does not: ``says`` is one of :data:`SAYINGS`.

    ``subject`` is what the statement is about: a version of torch_npu, or a line of versions.
    """

    subject: str
    says: str
    cann: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.says} with CANN {', '.join(self.cann)} ({self.source})"


@dataclass(frozen=True)
class Compatibility:
    """The compatibility data: ``as_of`` is the day up to which the sources were read."""

    data: Mapping[str, Any]
    path: Path

    @property
    def as_of(self) -> str:
        """Return the day up to which the sources were read."""
        return str(self.data["as_of"])

    @cached_property
    def cann_releases(self) -> tuple[Version, ...]:
        """Return every release of CANN that a torch_npu was made for, oldest first."""
        return tuple(sorted(Version(each) for each in self.data["cann_releases"]))

    def statements(self, torch_npu: str) -> tuple[Statement, ...]:
        """Return all statements on a version of torch_npu, by its number and by the lines that it belongs to."""
        rows = [row for row in self.data["combinations"] if row["torch_npu"] == torch_npu]
        # A corrected row tells where a number was once listed, not where it belongs.
        lines = {row["line"] for row in rows if row["line"] and row["says"] == PAIRED}.union(self.lines(torch_npu))
        on_it = [(f"torch_npu {torch_npu}", row) for row in rows]
        for row in self.data["lines"]:
            # 7.3.0 covers its correction 7.3.0.1, and 7.3.x covers 7.3.1 too.
            line = re.escape(row["line"].removesuffix(".x"))
            covered = rf"{line}\.[^-]*" if row["line"].endswith(".x") else rf"{line}(\.\d+)?"
            if any(re.fullmatch(covered, each) for each in lines):
                on_it.append((f"line {row['line']}", row))
        statements = [
            Statement(subject, row["says"], tuple(row["cann"]), self.where(row["source"])) for subject, row in on_it
        ]
        return tuple(sorted(dict.fromkeys(statements), key=lambda each: SAYINGS.index(each.says)))

    def knows(self, torch_npu: str) -> bool:
        """Return whether this torch_npu had been published when the data was collected."""
        return any(row["torch_npu"] == torch_npu for part in ("combinations", "packages") for row in self.data[part])

    def lines(self, torch_npu: str) -> tuple[str, ...]:
        """Return the lines ("7.3.0") that published this version: some version numbers were used twice."""
        found = (row["lines"] for row in self.data["packages"] if row["torch_npu"] == torch_npu)
        return tuple(line for lines in found for line in lines)

    def paired(self, *, torch: str = "", cann: str = "") -> tuple[Mapping[str, Any], ...]:
        """Return the official pairs with this torch, this CANN, or both."""
        rows = (row for row in self.data["combinations"] if row["says"] == PAIRED and torch in ("", row["torch"]))
        return tuple(row for row in rows if not cann or any(matches(cann, each) for each in row["cann"]))

    def python(self, torch: str) -> tuple[tuple[str, ...], str]:
        """Return the Python versions for which torch_npu has wheels for this torch, and the source."""
        rows = (row for row in self.data["python"] if row["torch"] == torch)
        return next(((tuple(row["python"]), self.where(row["source"])) for row in rows), ((), ""))

    def hdk(self, cann: str) -> tuple[tuple[str, ...], str]:
        """Return the drivers that were released with a CANN, and the source."""
        rows = (row for row in self.data["hdk"] if matches(cann, row["cann"]))
        return next(((tuple(row["hdk"]), self.where(row["source"])) for row in rows), ((), ""))

    def may_mix(self, toolkit: str, ops: str) -> bool:
        """Return whether these two versions are officially used together."""
        rows = [row for row in self.data["cann_mixes"] if any(matches(toolkit, each) for each in row["toolkit"])]
        return any(matches(ops, each) for row in rows for each in row["ops"])

    def needs(self, library: str, version: str) -> tuple[Mapping[str, Any], ...]:
        """Return the rows on a version of a library: each has one release and the versions released with it."""
        rows = (row for row in self.data["libraries"] if row["library"] == library)
        return tuple(row for row in rows if row["version"] in ("", version))

    def where(self, source: str) -> str:
        """Return the address of a source."""
        return str(self.data["sources"].get(source, {}).get("where", source))


def load(path: Path = BUNDLED) -> Compatibility:
    """Read compatibility data, bundled or newer. Raises UsageError if it is malformed."""
    hint = "docs/doctor.md describes the file; leave --compatibility out to use the one of this release"
    kinds = (OSError, ValueError, KeyError, TypeError, AttributeError)
    with as_error(f"the compatibility data {path} cannot be used", hint, *kinds):
        data = strict_json(read_regular(path, 8 << 20))
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        are_named = all(isinstance(each, dict) for each in data["sources"].values())
        _require(isinstance(data["as_of"], str) and are_named, "as_of or sources")
        _require(all(is_version(each) for each in data["cann_releases"]), "cann_releases")
        data.setdefault("libraries", [])  # missing in data of earlier releases
        for section, fields in SECTIONS.items():
            for index, row in enumerate(data[section]):
                where = f"{section}[{index}]"
                _require(isinstance(row, dict) and set(row) == set(fields), where)
                for name, kind in fields.items():
                    texts = row[name] if kind is list else [row[name]]
                    _require(isinstance(texts, list) and all(isinstance(each, str) for each in texts), where)
                _require(row.get("says", PAIRED) in SAYINGS and row.get("source", "") in {"", *data["sources"]}, where)
        _require(all(is_version(each) for row in data["hdk"] for each in row["hdk"]), "hdk")
    return Compatibility(data, path)


def _require(right: bool, where: str) -> None:
    if not right:
        raise ValueError(f"{where} is not of the form that docs/doctor.md gives")
