"""Acceptance standards as data: one row each, with its revision and its source. Adding one is adding a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from pytest_ascend.precision.formats import ALLOWANCES
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


def _by_dtype(names: tuple[str, ...], **numbers: tuple[float, ...]) -> Mapping[str, Numbers]:
    rows = {dtype: {key: values[place] for key, values in numbers.items()} for place, dtype in enumerate(names)}
    return MappingProxyType(rows)


def _ratio(maximum: float, mean: float, root: float, small_share: float) -> Mapping[str, Numbers]:
    shared = {"max_rel": maximum, "mean_rel": mean, "rmse": root, "small": small_share}
    floors = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-14}
    small = {"float16": (2.0**-10, 1e-16), "bfloat16": (2.0**-10, 1e-16), "float32": (2.0**-20, 2.0**-30)}
    rows = {
        dtype: {**shared, "floor": floor, "small_value": small[dtype][0], "small_atol": small[dtype][1]}
        for dtype, floor in floors.items()
    }
    return MappingProxyType(rows)


_LONG = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
_SHORT = ("float16", "bfloat16", "float32")
_CANN = "CANN operator precision standard"
_MSPROBE = "msprobe, accuracy checker of the MindStudio training tools"

#: The standard that judges by default.
DEFAULT = "error-model"

_ROWS = (
    Standard(
        name=DEFAULT,
        revision="1",
        source="this project: docs/precision.md",
        rule="model",
        limits={ANY: {key: float(value) for key, value in asdict(ALLOWANCES).items()}},
        upper=frozenset(asdict(ALLOWANCES)) - {"luck"},
    ),
    Standard(
        name="mere-mare",
        revision="2026-04",
        source=f"{_CANN}, April 2026",
        rule="relative",
        limits=_by_dtype(
            _LONG,
            mean=(2**-10, 2**-7, 2**-13, 2**-3, 2**-2),
            max=tuple(10 * each for each in (2**-10, 2**-7, 2**-13, 2**-3, 2**-2)),
            offset=(1e-7,) * 5,
        ),
        upper=frozenset({"mean", "max", "offset"}),
    ),
    Standard(
        name="mixed",
        revision="2026-07",
        source=f"{_CANN}, July 2026",
        rule="mixed",
        limits=_by_dtype(
            _LONG,
            rtol=(2**-9, 2**-6, 2**-10, 2**-2, 2**-1),
            atol=(2**-9, 2**-6, 2**-16, 2**-4, 2**-3),
            floor=(0.1, 1, 0.01, 0.1, 1),
            share=(0.99,) * 5,
            ulps=(32,) * 5,
        ),
        upper=frozenset({"rtol", "atol", "floor", "ulps"}),
    ),
    Standard(
        name="mixed",
        revision="current",
        source=f"{_CANN}, current revision",
        rule="mixed",
        limits=_by_dtype(
            _LONG,
            rtol=(2**-10, 2**-7, 2**-13, 2**-3, 2**-2),
            atol=(2**-10, 2**-7, 2**-13, 2**-3, 2**-2),
            floor=(0.1, 0.1, 0.01, 1, 1),
            share=(0.99,) * 5,
            ulps=(32,) * 5,
        ),
        upper=frozenset({"rtol", "atol", "floor", "ulps"}),
    ),
    *(
        Standard(
            name=f"benchmark-ratio-{level}",
            revision="1",
            source=f"{_CANN} for commercial use, level {level}; {_MSPROBE}",
            rule="ratio",
            limits=_ratio(*numbers),
            upper=frozenset({"max_rel", "mean_rel", "rmse", "small", "floor", "small_value", "small_atol"}),
        )
        for level, numbers in {"L0": (10, 2, 2, 2), "L1": (5, 1.5, 1.5, 2), "L2": (2, 1.2, 1.2, 2)}.items()
    ),
    Standard(
        name="ulp",
        revision="1",
        source=_MSPROBE,
        rule="ulp",
        limits=_by_dtype(_SHORT, ulps=(1, 1, 32), share=(0.001, 0.001, 0.05), mean=(0, 0, 64)),
        upper=frozenset({"ulps", "share", "mean"}),
    ),
    Standard(
        name="thousandth",
        revision="1",
        source=f"{_MSPROBE}, for convolutions",
        rule="thousandth",
        limits={ANY: {"share": 0.999}},
    ),
    Standard(
        name="torch",
        revision="2.13",
        source="torch.testing.assert_close, its defaults by dtype",
        rule="close",
        limits=_by_dtype(
            ("float16", "bfloat16", "float32", "float64"),
            rtol=(1e-3, 1.6e-2, 1.3e-6, 1e-7),
            atol=(1e-5, 1e-5, 1e-5, 1e-7),
        ),
        upper=frozenset({"rtol", "atol"}),
    ),
    Standard(
        name="binary",
        revision="1",
        source="bitwise equality, the sign of zero included",
        rule="binary",
        limits={ANY: {"elements": 0.0}},
        upper=frozenset({"elements"}),
    ),
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
    looser = [key for key, value in limits.items() if is_looser(standard, key, value, numbers[key])]
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


def is_looser(standard: Standard, key: str, value: float, usual: float) -> bool:
    """Return whether ``value`` lets more pass than ``usual`` does."""
    return value > usual if key in standard.upper else value < usual
