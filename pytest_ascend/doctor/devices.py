"""Rules on what everything else needs: devices, their driver, and permission to use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import CHIP, DRIVER, FIRMWARE, TOOLKIT, TORCH, TORCH_NPU, field
from pytest_ascend.environment.machine import NOT_ASKED, NOT_INSTALLED
from pytest_ascend.environment.npu_smi import Chip, in_use
from pytest_ascend.environment.signs import CLASH_VARIABLE, EMULATED_VARIABLE
from pytest_ascend.environment.versions import Version, in_range, is_version

MOUNT = "start the container with --device /dev/davinciN --device /dev/davinci_manager --device /dev/devmm_svm (the 950 has none) --device /dev/hisi_hdc and -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"  # noqa: E501 (one command)


@rule("ascend.absent")
def no_sign(survey: Survey) -> Iterator[Observation]:
    if not survey.concerns_ascend:
        yield Observation("no trace of Ascend on this machine: no device, driver, CANN or variable")


@rule("emulated")
def emulated(survey: Survey) -> Iterator[Observation]:
    if survey.environ.get(EMULATED_VARIABLE) == "1":
        aborts = "torch was built with CUDA: on an NPU, this torch_npu would abort beside it"
        evidence = ("PYTEST_ASCEND_EMULATED=1", *([aborts] if survey.environ.get(CLASH_VARIABLE) else []))
        yield Observation("this process runs on the emulated CANN", evidence)


@rule("driver.absent")
def no_driver(survey: Survey) -> Iterator[Observation]:
    if survey.home and not survey.has_driver and not survey.devices:
        yield Observation(
            "CANN is installed, but there is neither a driver nor a device",
            (f"CANN: {survey.home.path}" if survey.home else "", f"no {survey.driver_folder}", "no /dev/davinci0 ..."),
            MOUNT if survey.is_container else "",
        )


@rule("devices.absent")
def no_devices(survey: Survey) -> Iterator[Observation]:
    if survey.has_driver and not survey.devices:
        evidence = (f"{survey.driver_folder} is there", "/dev/davinci0 ... are not")
        yield Observation(
            "a driver is installed, but there is no device file", evidence, MOUNT if survey.is_container else ""
        )


@rule("driver.not-mounted")
def driver_not_mounted(survey: Survey) -> Iterator[Observation]:
    if survey.devices and not survey.has_driver:
        evidence = (f"{survey.devices[0]} is there", f"{survey.driver_folder} is not")
        yield Observation(
            "there are devices, but the driver's files are missing", evidence, MOUNT if survey.is_container else ""
        )


@rule("devices.control-files")
def control_files(survey: Survey) -> Iterator[Observation]:
    missing = [name for name in survey.control_files if not survey.machine.tree.exists(f"/dev/{name}")]
    if survey.devices and missing:
        evidence = (f"{survey.devices[0]} is there", *(f"/dev/{name} is not" for name in missing))
        yield Observation("there are devices, but not all of the files through which they are managed", evidence)


@rule("devices.permission")
def no_permission(survey: Survey) -> Iterator[Observation]:
    paths = (*survey.devices, *(f"/dev/{name}" for name in survey.control_files))
    closed = [path for path in paths if survey.machine.is_mine(path) is False]
    if closed:
        status = [(path, survey.machine.tree.status(path)) for path in closed[:4]]
        modes = [f"{path}: mode {s.st_mode & 0o777:o}, group {s.st_gid}" if s else path for path, s in status]
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        yield Observation(f"this user may not use {closed[0]}{more}", tuple(modes))


@rule("devices.visible")
def not_visible(survey: Survey) -> Iterator[Observation]:
    """ASCEND_RT_VISIBLE_DEVICES names missing devices: the runtime reads the list up to the first wrong entry."""
    text = survey.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None or not survey.devices:
        return
    numbers = [(each, re.fullmatch(r"[0-9]+", each.strip())) for each in text.split(",")]
    wrong = [each for each, number in numbers if not number or int(number[0][:9]) >= len(survey.devices)]
    if wrong:
        evidence = (f"ASCEND_RT_VISIBLE_DEVICES={text[:80]}", f"{len(survey.devices)} device files")
        yield Observation(f"ASCEND_RT_VISIBLE_DEVICES names no device with {wrong[0][:20]!r}", evidence)


@rule("npu-smi.failed")
def npu_smi_failed(survey: Survey) -> Iterator[Observation]:
    if survey.reply.late or survey.reply in (NOT_ASKED, NOT_INSTALLED):
        return
    if said := survey.npu_smi.failure or survey.reply.failure:
        yield Observation("npu-smi cannot speak to the driver", (f"npu-smi info: {said[:200]}",))


@rule("npu-smi.late")
def npu_smi_late(survey: Survey) -> Iterator[Observation]:
    if survey.reply.late:
        yield Observation("npu-smi gave no answer in time", (f"npu-smi info {survey.reply.failure}",))


@rule("driver.incomplete")
def half_installed(survey: Survey) -> Iterator[Observation]:
    if survey.npu_smi.incomplete:
        yield Observation("npu-smi says that the driver may not be completely installed")


def unwell(survey: Survey, healths: tuple[str, ...]) -> Iterator[Observation]:
    """Yield the devices whose health is one of these."""
    for chip in (each for each in survey.npu_smi.chips if each.health in healths):
        what = f"{_called(survey, chip)} has the health {chip.health}"
        yield Observation(what, (_row(chip),), card=index_of(survey, chip))


rule("health.bad")(partial(unwell, healths=("Alarm", "Critical")))
rule("health.unsure")(partial(unwell, healths=("Warning", "UNKNOWN")))


@rule("devices.occupied")
def occupied(survey: Survey) -> Iterator[Observation]:
    for chip in survey.npu_smi.chips:
        if why := in_use(chip, survey.npu_smi.processes):
            yield Observation(f"{_called(survey, chip)} is in use: {why}", (_row(chip),), card=index_of(survey, chip))


@rule("devices.locks")
def locked_for_few(survey: Survey) -> Iterator[Observation]:
    if survey.is_container and survey.devices and not survey.environ.get("PYTEST_ASCEND_CARD_LOCKS"):
        yield Observation("runs in other containers may take the same cards: they do not see this container's locks")


@rule("chip.several")
def several_chips(survey: Survey) -> Iterator[Observation]:
    names = list(dict.fromkeys(each.value for each in survey.components[CHIP].evidence))
    if len(names) > 1:
        yield Observation(f"the machine has chips of several kinds: {', '.join(names)}", ("npu-smi info",))


@rule("chip.unknown")
def unknown_chip(survey: Survey) -> Iterator[Observation]:
    if survey.version(CHIP) and survey.family is None:
        yield Observation(f"the chip {survey.version(CHIP)} is unknown to this release", (survey.source(CHIP),))


@rule("unknown")
def unknown(survey: Survey) -> Iterator[Observation]:
    if not survey.concerns_ascend:
        return
    looked = {
        CHIP: _smi(survey),
        DRIVER: f"{survey.driver_folder}/version.info; {_smi(survey)}",
        FIRMWARE: f"{survey.driver_folder.removesuffix('driver')}firmware/version.info, which containers seldom see",
        TOOLKIT: "install records and version.cfg of " + (survey.home.path if survey.home else "no CANN"),
        TORCH: "Python's packages",
        TORCH_NPU: "Python's packages",
    }
    missing = [name for name in looked if not survey.version(name)]
    if missing:
        evidence = tuple(f"{name}: looked at {looked[name]}" for name in missing)
        yield Observation(f"could not be determined: {', '.join(missing)}", evidence)


def _smi(survey: Survey) -> str:
    return f"npu-smi ({survey.reply.failure[:120]})" if survey.reply.failure else "npu-smi info"


def _row(chip: Chip) -> str:
    used = f", {chip.memory_used_mb} of {chip.memory_total_mb} MB used" if chip.memory_used_mb >= 0 else ""
    return f"npu-smi info: NPU {chip.npu}, {chip.name[:20]}, bus {chip.bus or 'unknown'}{used}"


def index_of(survey: Survey, chip: Chip) -> int:
    """Return torch's index of a device that npu-smi lists, -1 for one that torch does not see."""
    seen = (each for each in survey.identities if each.npu == chip.npu and each.chip in (chip.chip, -1))
    return next((each.index for each in seen), -1)


def _called(survey: Survey, chip: Chip) -> str:
    index = index_of(survey, chip)
    return survey.identities[index].label if index >= 0 else f"NPU {chip.npu}, which torch does not see,"


@rule("driver.firmware")
def firmware_range(survey: Survey) -> Iterator[Observation]:
    folder = survey.driver_folder.removesuffix("driver")
    for mine, other, path, name in (
        (DRIVER, FIRMWARE, f"{folder}driver/version.info", "compatible_version_fw"),
        (FIRMWARE, DRIVER, f"{folder}firmware/version.info", "compatible_version_drv"),
    ):
        version, text = survey.version(other), field(survey.machine.tree.read(path).content, name)
        if version and in_range(version, text) is False:
            evidence = (f"{path}: {name}={text[:120]}", survey.source(other))
            yield Observation(f"{other} {version} is outside of what {mine} {survey.version(mine)} accepts", evidence)


@rule("driver.cann")
def inner_versions(survey: Survey) -> Iterator[Observation]:
    path = f"{survey.driver_folder}/version.info"
    accepted = re.findall(r"V100R001C\d\d", field(survey.machine.tree.read(path).content, "compatible_version"))
    inner, record = survey.inner_version
    if accepted and inner and inner[:11] not in accepted:
        evidence = (f"{path}: compatible_version names {', '.join(accepted[:8])}", f"{record}: innerversion={inner}")
        yield Observation(f"CANN {survey.cann} ({inner[:11]}) is of a line that the driver does not accept", evidence)


@rule("driver.older")
def older_driver(survey: Survey) -> Iterator[Observation]:
    released, source = survey.compatibility.hdk(survey.cann) if survey.cann else ((), "")
    driver = survey.version(DRIVER)
    is_950 = survey.family is not None and survey.family.name == "950"
    if released and is_version(driver) and not is_950 and Version(driver) < min(map(Version, released)):
        evidence = (survey.source(DRIVER), f"CANN {survey.cann} was released with {', '.join(released)} ({source})")
        yield Observation(f"driver {driver} is older than those that CANN {survey.cann} was released with", evidence)
