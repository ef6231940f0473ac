"""All evidence of a machine, and what comes of it: one version a component, and who disagrees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_ascend.environment import evidence
from pytest_ascend.environment.cann import Home, driver_root
from pytest_ascend.environment.evidence import COMPONENTS, Evidence
from pytest_ascend.environment.machine import Machine
from pytest_ascend.environment.npu_smi import NpuSmi
from pytest_ascend.environment.packages import Package
from pytest_ascend.environment.versions import Version, is_version


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a stack. ``version`` is "" where nothing speaks of it; the first evidence is the best."""

    name: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def version(self) -> str:
        """The version that the best evidence gives, public ones before CANN's internal count."""
        public = [each.value for each in self.evidence if not each.internal]
        return next(iter(public or [each.value for each in self.evidence]), "")

    @property
    def disagreeing(self) -> tuple[Evidence, ...]:
        """The evidence that says something else than the best."""
        return tuple(each for each in self.evidence if not each.internal and not same(each.value, self.version))


def gather(machine: Machine, home: Home | None, packages: dict[str, Package], said: NpuSmi) -> dict[str, Component]:
    """Return every component by name, unknown ones included."""
    found = tuple(_all(machine, home, packages, said))
    return {name: Component(name, tuple(each for each in found if each.component == name)) for name in COMPONENTS}


def same(one: str, other: str) -> bool:
    """Whether two texts are one version: a build's own ending ("+cpu") says nothing, nor does case."""
    one, other = one.partition("+")[0], other.partition("+")[0]
    if is_version(one) and is_version(other):
        return Version(one) == Version(other)
    return one == other


def _all(machine: Machine, home: Home | None, packages: dict[str, Package], said: NpuSmi) -> Iterator[Evidence]:
    parts: Iterable[Iterable[Evidence]] = (
        evidence.told_by_npu_smi(said),
        evidence.driver(machine, driver_root(machine)),
        evidence.cann(machine, home.path) if home else (),
        evidence.atb(machine),
        evidence.python_packages(machine, packages),
        evidence.host(machine),
    )
    for part in parts:
        yield from part
