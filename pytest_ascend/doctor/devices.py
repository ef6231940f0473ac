"""Checks of what everything else needs: devices, their driver, and permission to use them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_ascend.doctor.findings import Observation, check
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import CHIP, DRIVER, FIRMWARE, TOOLKIT, TORCH, TORCH_NPU, field
from pytest_ascend.environment.machine import NOT_ASKED, NOT_INSTALLED
from pytest_ascend.environment.npu_smi import Chip, in_use
from pytest_ascend.environment.signs import CLASH_VARIABLE, EMULATED_VARIABLE
from pytest_ascend.environment.versions import Version, in_range, is_version

MOUNT = "start the container with --device /dev/davinciN --device /dev/davinci_manager --device /dev/devmm_svm (the 950 has none) --device /dev/hisi_hdc and -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"  # noqa: E501 (one command)


@check
def presence(survey: Survey) -> Iterator[Observation]:
    """Find parts of an NPU and its driver that are there without the others."""
    if not survey.concerns_ascend:
        said = "no trace of Ascend on this machine: no device, driver, CANN or variable"
        yield Observation("ascend.absent", said)
    if survey.environ.get(EMULATED_VARIABLE) == "1":
        aborts = "torch was built with CUDA: on an NPU, this torch_npu would abort beside it"
        evidence = ("PYTEST_ASCEND_EMULATED=1", *([aborts] if survey.environ.get(CLASH_VARIABLE) else []))
        yield Observation("emulated", "this process runs on the emulated CANN", evidence)
    remedy = MOUNT if survey.is_container else ""
    if survey.home and not survey.has_driver and not survey.devices:
        evidence = (f"CANN: {survey.home.path}", f"no {survey.driver_folder}", "no /dev/davinci0 ...")
        said = "CANN is installed, but there is neither a driver nor a device"
        yield Observation("driver.absent", said, evidence, remedy)
    if survey.has_driver and not survey.devices:
        evidence = (f"{survey.driver_folder} is there", "/dev/davinci0 ... are not")
        yield Observation("devices.absent", "a driver is installed, but there is no device file", evidence, remedy)
    if survey.devices and not survey.has_driver:
        evidence = (f"{survey.devices[0]} is there", f"{survey.driver_folder} is not")
        said = "there are devices, but the driver's files are missing"
        yield Observation("driver.not-mounted", said, evidence, remedy)
    missing = [name for name in survey.control_files if not survey.machine.tree.exists(f"/dev/{name}")]
    if survey.devices and missing:
        evidence = (f"{survey.devices[0]} is there", *(f"/dev/{name} is not" for name in missing))
        said = "there are devices, but not all of the files through which they are managed"
        yield Observation("devices.control-files", said, evidence)
    if survey.is_container and survey.devices and not survey.environ.get("PYTEST_ASCEND_CARD_LOCKS"):
        said = "runs in other containers may take the same cards: they do not see this container's locks"
        yield Observation("devices.locks", said)


@check
def access(survey: Survey) -> Iterator[Observation]:
    """Find devices that this user or this process cannot use."""
    paths = (*survey.devices, *(f"/dev/{name}" for name in survey.control_files))
    closed = [path for path in paths if survey.machine.is_mine(path) is False]
    if closed:
        status = [(path, survey.machine.tree.status(path)) for path in closed[:4]]
        modes = [f"{path}: mode {s.st_mode & 0o777:o}, group {s.st_gid}" if s else path for path, s in status]
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        yield Observation("devices.permission", f"this user may not use {closed[0]}{more}", tuple(modes))
    # The runtime reads the list up to the first invalid entry.
    text = survey.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    numbers = [] if text is None else [(each, re.fullmatch(r"[0-9]+", each.strip())) for each in text.split(",")]
    wrong = [each for each, number in numbers if not number or int(number[0][:9]) >= len(survey.devices)]
    if wrong and text is not None and survey.devices:
        evidence = (f"ASCEND_RT_VISIBLE_DEVICES={text[:80]}", f"{len(survey.devices)} device files")
        said = f"ASCEND_RT_VISIBLE_DEVICES names no device with {wrong[0][:20]!r}"
        yield Observation("devices.visible", said, evidence)


_HEALTH = {"Alarm": "health.bad", "Critical": "health.bad", "Warning": "health.unsure", "UNKNOWN": "health.unsure"}


@check
def of_npu_smi(survey: Survey) -> Iterator[Observation]:
    """Report npu-smi's messages about itself and about each chip."""
    reply, told = survey.reply, survey.npu_smi
    if reply.late:
        yield Observation("npu-smi.late", "npu-smi gave no answer in time", (f"npu-smi info {reply.failure}",))
    elif reply not in (NOT_ASKED, NOT_INSTALLED) and (said := told.failure or reply.failure):
        yield Observation("npu-smi.failed", "npu-smi cannot speak to the driver", (f"npu-smi info: {said[:200]}",))
    if told.incomplete:
        yield Observation("driver.incomplete", "npu-smi says that the driver may not be completely installed")
    for chip in told.chips:
        used = f", {chip.memory_used_mb} of {chip.memory_total_mb} MB used" if chip.memory_used_mb >= 0 else ""
        row = f"npu-smi info: NPU {chip.npu}, {chip.name[:20]}, bus {chip.bus or 'unknown'}{used}"
        card = index_of(survey, chip)
        name = survey.identities[card].label if card >= 0 else f"NPU {chip.npu}, which torch does not see,"
        if chip.health in _HEALTH:
            yield Observation(_HEALTH[chip.health], f"{name} has the health {chip.health}", (row,), card=card)
        if why := in_use(chip, told.processes):
            yield Observation("devices.occupied", f"{name} is in use: {why}", (row,), card=card)
    names = list(dict.fromkeys(each.value for each in survey.components[CHIP].evidence))
    if len(names) > 1:
        said = f"the machine has chips of several kinds: {', '.join(names)}"
        yield Observation("chip.several", said, ("npu-smi info",))
    if survey.version(CHIP) and survey.family is None:
        said = f"the chip {survey.version(CHIP)} is unknown to this release"
        yield Observation("chip.unknown", said, (survey.source(CHIP),))


def index_of(survey: Survey, chip: Chip) -> int:
    """Return torch's index of a device that npu-smi lists, -1 if torch does not see it."""
    seen = (each for each in survey.identities if each.npu == chip.npu and each.chip in (chip.chip, -1))
    return next((each.index for each in seen), -1)


@check
def unknown(survey: Survey) -> Iterator[Observation]:
    """Report versions that could not be determined."""
    failure = survey.reply.failure
    smi = f"npu-smi ({failure[:120]})" if failure else "npu-smi info"
    looked = {
        CHIP: smi,
        DRIVER: f"{survey.driver_folder}/version.info; {smi}",
        FIRMWARE: f"{survey.driver_folder.removesuffix('driver')}firmware/version.info, which containers seldom see",
        TOOLKIT: "install records and version.cfg of " + (survey.home.path if survey.home else "no CANN"),
        TORCH: "Python's packages",
        TORCH_NPU: "Python's packages",
    }
    missing = [name for name in looked if not survey.version(name)]
    if missing and survey.concerns_ascend:
        evidence = tuple(f"{name}: looked at {looked[name]}" for name in missing)
        yield Observation("unknown", f"could not be determined: {', '.join(missing)}", evidence)


@check
def driver_versions(survey: Survey) -> Iterator[Observation]:
    """Find a driver that is incompatible with its firmware, or with CANN."""
    folder = survey.driver_folder.removesuffix("driver")
    for mine, other, path, name in (
        (DRIVER, FIRMWARE, f"{folder}driver/version.info", "compatible_version_fw"),
        (FIRMWARE, DRIVER, f"{folder}firmware/version.info", "compatible_version_drv"),
    ):
        version, text = survey.version(other), field(survey.machine.tree.read(path).content, name)
        if version and in_range(version, text) is False:
            evidence = (f"{path}: {name}={text[:120]}", survey.source(other))
            said = f"{other} {version} is outside of what {mine} {survey.version(mine)} accepts"
            yield Observation("driver.firmware", said, evidence)
    path = f"{survey.driver_folder}/version.info"
    accepted = re.findall(r"V100R001C\d\d", field(survey.machine.tree.read(path).content, "compatible_version"))
    (inner, record), cann = survey.inner_version, survey.cann
    if accepted and inner and inner[:11] not in accepted:
        evidence = (f"{path}: compatible_version names {', '.join(accepted[:8])}", f"{record}: innerversion={inner}")
        said = f"CANN {cann} ({inner[:11]}) is of a line that the driver does not accept"
        yield Observation("driver.cann", said, evidence)
    released, source = survey.compatibility.hdk(cann) if cann else ((), "")
    driver = survey.version(DRIVER)
    if released and is_version(driver) and not survey.is_950 and Version(driver) < min(map(Version, released)):
        evidence = (survey.source(DRIVER), f"CANN {cann} was released with {', '.join(released)} ({source})")
        said = f"driver {driver} is older than those that CANN {cann} was released with"
        yield Observation("driver.older", said, evidence)
