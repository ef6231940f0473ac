"""Rules on versions: whether driver, firmware and CANN belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_ascend.doctor.findings import ERROR, WARNING, Rule, Seen
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import DRIVER, FIRMWARE, field
from pytest_ascend.environment.versions import Version, in_range, is_version


def firmware_range(survey: Survey) -> Iterator[Seen]:
    """A firmware that the driver does not name, or a driver that the firmware does not name."""
    folder = survey.driver_folder.removesuffix("driver")
    for mine, other, path, name in (
        (DRIVER, FIRMWARE, f"{folder}driver/version.info", "compatible_version_fw"),
        (FIRMWARE, DRIVER, f"{folder}firmware/version.info", "compatible_version_drv"),
    ):
        version, text = survey.version(other), field(survey.machine.tree.read(path).content, name)
        if version and in_range(version, text) is False:
            evidence = (f"{path}: {name}={text[:120]}", survey.source(other))
            yield Seen(f"{other} {version} is outside of what {mine} {survey.version(mine)} accepts", evidence)


def inner_versions(survey: Survey) -> Iterator[Seen]:
    """A CANN of a line that the driver does not name."""
    path = f"{survey.driver_folder}/version.info"
    accepted = re.findall(r"V100R001C\d\d", field(survey.machine.tree.read(path).content, "compatible_version"))
    inner, record = survey.inner_version
    if accepted and inner and inner[:11] not in accepted:
        evidence = (f"{path}: compatible_version names {', '.join(accepted[:8])}", f"{record}: innerversion={inner}")
        yield Seen(f"CANN {survey.cann} ({inner[:11]}) is of a line that the driver does not accept", evidence)


def older_driver(survey: Survey) -> Iterator[Seen]:
    """A driver that is older than all that the CANN was released with."""
    released, source = survey.compatibility.hdk(survey.cann) if survey.cann else ((), "")
    driver = survey.version(DRIVER)
    is_950 = survey.family is not None and survey.family.name == "950"
    if released and is_version(driver) and not is_950 and Version(driver) < min(map(Version, released)):
        evidence = (survey.source(DRIVER), f"CANN {survey.cann} was released with {', '.join(released)} ({source})")
        yield Seen(f"driver {driver} is older than those that CANN {survey.cann} was released with", evidence)


RULES = (
    Rule(
        id="driver.firmware",
        severity=ERROR,
        look=firmware_range,
        why="Driver and firmware speak a protocol of their own; outside of the range devices fail or vanish.",
        remedy="upgrade both to one release: firmware first, then the driver, then reboot",
    ),
    Rule(
        id="driver.cann",
        severity=ERROR,
        look=inner_versions,
        why="The driver names the lines of CANN that it was made for.",
        remedy="install the driver that belongs to this CANN, or a CANN that the driver names",
    ),
    Rule(
        id="driver.older",
        severity=WARNING,
        look=older_driver,
        why="CANN may ask the driver for what it does not have.",
        remedy="upgrade firmware and driver to one of the releases that are named",
    ),
)
