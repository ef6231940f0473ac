"""Rules on what changes numbers or speed without any version saying so: environment variables and the chip itself.

Source: the environment variable pages of Ascend/pytorch@9e73e708ab93 and the chips' defaults in NpuVariables.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.chips import Family
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


for _kind in (NUMBERS, ORDER, SPEED):
    rule(f"settings.{_kind}")(partial(changed, changes=_kind))


@rule("settings.two-allocators")
def two_allocators(survey: Survey) -> Iterator[Observation]:
    names = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if all(survey.environ.get(name) for name in names) and survey.concerns_ascend:
        yield Observation("memory is configured twice", tuple(f"{name}={survey.environ[name][:100]}" for name in names))


@rule("settings.allocator")
def clashing_allocator(survey: Survey) -> Iterator[Observation]:
    text = survey.environ.get("PYTORCH_NPU_ALLOC_CONF", "").replace(" ", "").lower()
    others = [name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in text]
    if "expandable_segments:true" in text and others:
        yield Observation(
            f"expandable_segments and {others[0]} exclude each other", (f"PYTORCH_NPU_ALLOC_CONF={text[:200]}",)
        )


def of_the_chip(survey: Survey, has: Callable[[Family], bool], says: str) -> Iterator[Observation]:
    """Yield what a chip does otherwise than most."""
    if survey.family and has(survey.family):
        yield Observation(f"{survey.version(CHIP)} {says}")


for _name, _has, _says in (
    ("halves", lambda chip: chip.halves, "computes float32 convolutions and matrix products in float16 by default"),
    ("saturates", lambda chip: chip.saturates, "gives the largest number instead of infinity, and 0 for NaN"),
    ("no-bfloat16", lambda chip: not chip.bfloat16, "does not have bfloat16"),
):
    rule(f"chip.{_name}")(partial(of_the_chip, has=_has, says=_says))
