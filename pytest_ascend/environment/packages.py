"""Installed Python packages, from their metadata on disk: of this interpreter, or of a copy of another machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_ascend.environment.machine import Machine

_INFO = re.compile(r"([A-Za-z0-9._-]+)-([^-]+)\.dist-info")


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One distribution: ``name`` in its normal form (PEP 503), ``path`` its METADATA, ``requires`` its requirements."""

    name: str
    version: str
    folder: str
    path: str
    requires: tuple[str, ...] = ()


def installed(machine: Machine, names: frozenset[str]) -> dict[str, Package]:
    """Return the distributions of these normalised names; of two, the one that an import would find."""
    found: dict[str, Package] = {}
    for folder in machine.packages:
        for package in _in(machine, folder, names):
            found.setdefault(package.name, package)
    return found


def normalised(name: str) -> str:
    """Return the one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _in(machine: Machine, folder: str, names: frozenset[str]) -> Iterator[Package]:
    for entry in machine.tree.names(folder):
        found = _INFO.fullmatch(entry)
        if found and normalised(found[1]) in names:
            path = f"{folder}/{entry}/METADATA"
            head = machine.tree.read(path).content.split("\n\n", 1)[0]
            yield Package(
                name=normalised(found[1]),
                version=_header(head, "Version") or found[2],
                folder=folder,
                path=path,
                requires=tuple(re.findall(r"^Requires-Dist:\s*(\S.*?)\s*$", head, re.MULTILINE)),
            )


def _header(head: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(\S+)", head, re.MULTILINE)
    return found[1] if found else ""
