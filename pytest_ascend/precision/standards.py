"""Acceptance standards as data: a row of ``standards.json`` each, with its revision and its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from pytest_ascend.precision.formats import ALLOWANCES
from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import UsageError, choice

Numbers = Mapping[str, float]

#: For dtypes without a row of their own.
ANY = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standard:
    """A rule with its numbers by dtype. ``rule`` names the function in :mod:`pytest_ascend.precision.rules`.

    ``upper`` names the numbers for which larger is looser; for the others smaller is.
    """

    name: str
    revision: str
    source: str
    rule: str
    limits: Mapping[str, Numbers]
    upper: frozenset[str] = field(default=frozenset())
    waiver: str = ""

    @property
    def label(self) -> str:
        """Name and revision, as in reports."""
        return f"{self.name}@{self.revision}"

    def numbers(self, dtype: str) -> Numbers:
        """Return the numbers for a dtype (torch's name). Raises :class:`UsageError` if the standard has none."""
        found = self.limits.get(dtype) or self.limits.get(ANY)
        if found is None:
            raise UsageError(
                f"standard {self.label} says nothing about {dtype}: it knows {', '.join(sorted(self.limits))}",
                hint=f"judge {dtype} by another standard, such as {DEFAULT}",
            )
        return found


#: The standard that judges by default.
DEFAULT = "error-model"


def _standard(*, dtypes: list[str], limits: dict[str, list[float | str]], upper: list[str], **row: str) -> Standard:
    """Return a row of ``standards.json``, whose limits have a number for each dtype."""
    by_dtype = {
        dtype: {key: _number(values[place]) for key, values in limits.items()} for place, dtype in enumerate(dtypes)
    }
    return Standard(**row, limits=MappingProxyType(by_dtype), upper=frozenset(upper))


def _number(given: float | str) -> float:
    """Return a number, or what a text says: "2^-10" or "10 * 2^-10"."""
    if not isinstance(given, str):
        return given
    factor, _, exponent = given.partition("2^")
    return float(factor.rstrip("* ") or 1) * 2.0 ** int(exponent)


_ROWS = (
    Standard(
        name=DEFAULT,
        revision="1",
        source="this project: docs/precision.md",
        rule="model",
        limits={ANY: {key: float(value) for key, value in asdict(ALLOWANCES).items()}},
        upper=frozenset(asdict(ALLOWANCES)) - {"luck"},
    ),
    *(_standard(**row) for row in table("precision/standards.json")),
)

#: Every standard by name and revision; a bare name stands for its last revision.
STANDARDS: Mapping[str, Standard] = MappingProxyType({row.label: row for row in _ROWS})


def standard_of(name: str | Standard | None) -> Standard:
    """Return a standard by name, or the default. Raises :class:`UsageError` for an unknown one."""
    if isinstance(name, Standard):
        return name
    wanted = DEFAULT if name is None else name
    found = STANDARDS.get(wanted) or next((row for row in reversed(_ROWS) if row.name == wanted), None)
    if found is None:
        raise UsageError(f"there is no standard {wanted!r}", hint=choice(str(wanted), STANDARDS))
    return found


def adjusted(standard: Standard, dtype: str, limits: Mapping[str, float], waiver: str) -> Standard:
    """Return the standard with some of its numbers replaced for ``dtype``.

    A tighter number needs no reason; a looser one is a waiver, and raises :class:`UsageError` without one.
    """
    numbers = standard.numbers(dtype)
    if not limits:
        return standard
    looser = [key for key, x in limits.items() if (x > numbers[key] if key in standard.upper else x < numbers[key])]
    if looser and not waiver:
        raise UsageError(
            f"{looser[0]}={limits[looser[0]]:g} is looser than the {numbers[looser[0]]:g} of standard {standard.label}",
            hint="give a reason with waiver='...': it is then counted as a waiver",
        )
    changed = {**standard.limits, dtype: {**numbers, **limits}}
    return replace(standard, limits=changed, waiver=waiver if looser else "")


def check_names(standard: Standard, limits: Mapping[str, float]) -> None:
    """Raise :class:`UsageError` for a limit that the standard does not have for any dtype."""
    known = {key for numbers in standard.limits.values() for key in numbers}
    unknown = [key for key in limits if key not in known]
    if unknown:
        raise UsageError(
            f"standard {standard.label} has no limit {unknown[0]!r}", hint=f"it has: {', '.join(sorted(known))}"
        )
