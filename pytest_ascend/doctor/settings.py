"""Rules on what changes numbers or speed without any version saying so: environment variables and the chip itself.

Source: the environment variable pages of Ascend/pytorch@9e73e708ab93 and the chips' defaults in NpuVariables.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import CHIP
from pytest_ascend.system.bundled import table

#: What a setting changes: numbers, the order of events and what errors show, or only speed.
NUMBERS, ORDER, SPEED = "numbers", "order", "speed"


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: what it changes, its ``defaults`` (values that change nothing), and its effect."""

    changes: str
    defaults: tuple[str, ...]
    effect: str


#: By name; in a file of data beside this module.
SETTINGS: Mapping[str, Setting] = {
    name: Setting(changes, tuple(defaults), effect)
    for name, (changes, defaults, effect) in table("doctor/settings.json").items()
}


def in_force(survey: Survey) -> dict[str, str]:
    """Return the variables that are set, by name; what this process has set for itself too."""
    return {name: survey.environ[name][:200] for name in SETTINGS if name in survey.environ}


def changed(survey: Survey, changes: str) -> Iterator[Observation]:
    """Yield the settings of one kind that are not at their default."""
    for name, setting in SETTINGS.items():
        value = survey.environ.get(name)
        is_default = value is None or value.lower() in [each.lower() for each in setting.defaults]
        if setting.changes == changes and not is_default and survey.concerns_ascend:
            yield Observation(f"{name} is set: {setting.effect}", (f"{name}={str(value)[:200]}",))


@rule("settings.numbers")
def numbers(survey: Survey) -> Iterator[Observation]:
    """Settings that change numbers."""
    return changed(survey, NUMBERS)


@rule("settings.order")
def order(survey: Survey) -> Iterator[Observation]:
    """Settings that change the order of events."""
    return changed(survey, ORDER)


@rule("settings.speed")
def speed(survey: Survey) -> Iterator[Observation]:
    """Settings that change time or memory."""
    return changed(survey, SPEED)


@rule("settings.two-allocators")
def two_allocators(survey: Survey) -> Iterator[Observation]:
    """Two variables that exclude each other in torch_npu."""
    names = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if all(survey.environ.get(name) for name in names) and survey.concerns_ascend:
        yield Observation("memory is configured twice", tuple(f"{name}={survey.environ[name][:100]}" for name in names))


@rule("settings.allocator")
def clashing_allocator(survey: Survey) -> Iterator[Observation]:
    """Settings of the allocator that exclude each other."""
    text = survey.environ.get("PYTORCH_NPU_ALLOC_CONF", "").replace(" ", "").lower()
    others = [name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in text]
    if "expandable_segments:true" in text and others:
        yield Observation(
            f"expandable_segments and {others[0]} exclude each other", (f"PYTORCH_NPU_ALLOC_CONF={text[:200]}",)
        )


@rule("chip.halves")
def halves(survey: Survey) -> Iterator[Observation]:
    """A chip that computes float32 in float16 unless told otherwise."""
    if survey.family and survey.family.halves:
        yield Observation(
            f"{survey.version(CHIP)} computes float32 convolutions and matrix products in float16 by default"
        )


@rule("chip.saturates")
def saturates(survey: Survey) -> Iterator[Observation]:
    """A chip without infinity."""
    if survey.family and survey.family.saturates:
        yield Observation(f"{survey.version(CHIP)} gives the largest number instead of infinity, and 0 for NaN")


@rule("chip.no-bfloat16")
def no_bfloat16(survey: Survey) -> Iterator[Observation]:
    """A chip without bfloat16."""
    if survey.family and not survey.family.bfloat16:
        yield Observation(f"{survey.version(CHIP)} does not have bfloat16")
