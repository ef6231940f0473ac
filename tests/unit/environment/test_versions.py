"""How CANN and its drivers count."""

from __future__ import annotations

import itertools

import pytest

from pytest_ascend.environment.versions import Version, in_range, is_version, matches, satisfies

ORDER = [
    "8.0.T6",
    "8.0.RC3.alpha003",
    "8.0.RC3",
    "8.0.0.alpha001",
    "8.0.0.beta1",
    "8.0.0",
    "8.1.RC1",
    "8.2.RC1.alpha002",
    "8.2.RC1",
    "8.2.RC2",
    "8.2.RC10",
    "8.3.RC1",
    "8.3.RC2",
    "8.5.0-beta.1",
    "8.5.0",
    "8.5.1",
    "9.0.0-beta.1",
    "9.0.0-beta.2",
    "9.0.0",
    "9.1.0",
    "9.2.0-beta.2",
    "9.2.0",
    "25.0.rc1",
    "25.0.rc1.1",
    "25.0.0",
    "25.5.1",
]


def test_versions_are_in_the_order_of_their_release() -> None:
    assert all(Version(a) < Version(b) for a, b in itertools.combinations(ORDER, 2))


@pytest.mark.parametrize(("one", "other"), [("25.0", "25.0.0"), ("25.0.rc1", "25.0.RC1"), ("9.0.0", "9.0")])
def test_two_ways_to_write_one_version(one: str, other: str) -> None:
    assert Version(one) == Version(other)
    assert hash(Version(one)) == hash(Version(other))


@pytest.mark.parametrize("text", ["", "x", "8.0.0\x1b[31m", "1" * 5000, "8..0", "V100R001C23", "8.0.0 ", "８.0"])
def test_what_is_no_version(text: str) -> None:
    assert not is_version(text)
    with pytest.raises(ValueError, match="no version"):
        Version(text)


@pytest.mark.parametrize(
    ("version", "constraint", "verdict"),
    [
        ("8.5.0", ">=8.5", True),
        ("8.5.0-beta.1", ">=8.5", True),
        ("8.3.RC1", ">=8.5", False),
        ("9.1.0", ">=8.5, <9", False),
        ("8.9.0", ">=8.5,<9", True),
        ("9.1.0", "nonsense", None),
        ("nonsense", ">=8.5", None),
        ("9.1.0", "", None),
    ],
)
def test_constraints_of_packages(version: str, constraint: str, *, verdict: bool | None) -> None:
    assert satisfies(version, constraint) is verdict


@pytest.mark.parametrize(
    ("version", "ranges", "verdict"),
    [
        ("7.7.0.1.231", "[7.0.0,7.7.99]", True),
        ("7.8.0.5", "[7.0.0,7.7.99]", False),
        ("24.1.rc2", "[23.0.0,23.0.0.],[24.1,24.1.]", False),
        ("24.1.3", "[23.0.0,23.0.0.],[24.1,24.1.]", True),
        ("9.0.0", "no range", None),
    ],
)
def test_ranges_of_drivers_and_firmware(version: str, ranges: str, *, verdict: bool | None) -> None:
    assert in_range(version, ranges) is verdict


def test_a_statement_on_a_line_means_each_of_its_versions() -> None:
    assert matches("8.5.2", "8.5.x")
    assert matches("8.3.rc1", "8.3.RC1")
    assert not matches("8.5.2", "8.5.0")
