"""Checks of what affects numbers or speed independently of versions: environment variables and the chip itself.

Source: the environment variable pages of Ascend/pytorch@9e73e708ab93 and the chips' defaults in NpuVariables.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_ascend.doctor.findings import Observation, check
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import CHIP
from pytest_ascend.system.bundled import table

#: By variable: what it affects ("numbers", "speed", or the "order" of events and the errors shown), the values that
#: have no effect, and the effect of others.
SETTINGS: Mapping[str, tuple[str, list[str], str]] = table("doctor/settings.json")


def in_force(survey: Survey) -> dict[str, str]:
    """Return the variables that are set, by name, including those that this process set itself."""
    return {name: survey.environ[name][:200] for name in SETTINGS if name in survey.environ}


@check
def changed(survey: Survey) -> Iterator[Observation]:
    """Report settings that differ from their defaults."""
    for name, (changes, defaults, effect) in SETTINGS.items():
        value = survey.environ.get(name)
        is_default = value is None or value.lower() in [each.lower() for each in defaults]
        if not is_default and survey.concerns_ascend:
            said = f"{name} is set: {effect}"
            yield Observation(f"settings.{changes}", said, (f"{name}={str(value)[:200]}",))


@check
def allocators(survey: Survey) -> Iterator[Observation]:
    """Find memory settings that contradict each other."""
    environ, names = survey.environ, ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if all(environ.get(name) for name in names) and survey.concerns_ascend:
        evidence = tuple(f"{name}={environ[name][:100]}" for name in names)
        yield Observation("settings.two-allocators", "memory is configured twice", evidence)
    text = environ.get("PYTORCH_NPU_ALLOC_CONF", "").replace(" ", "").lower()
    others = [name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in text]
    if "expandable_segments:true" in text and others:
        said = f"expandable_segments and {others[0]} exclude each other"
        yield Observation("settings.allocator", said, (f"PYTORCH_NPU_ALLOC_CONF={text[:200]}",))


@check
def of_the_chip(survey: Survey) -> Iterator[Observation]:
    """Report behaviour in which a chip differs from most."""
    for name, has, says in (
        ("halves", True, "computes float32 convolutions and matrix products in float16 by default"),
        ("saturates", True, "gives the largest number instead of infinity, and 0 for NaN"),
        ("bfloat16", False, "does not have bfloat16"),
    ):
        if survey.family and getattr(survey.family, name) is has:
            yield Observation(f"chip.{name if has else f'no-{name}'}", f"{survey.version(CHIP)} {says}")
