"""Settings of the emulated device: one record, from the command line to the variables that processes inherit.

Each field declares its option once: ``pytest --ascend`` and ``pytest-ascend emulate`` both read this table. Imports
next to nothing: every pytest run reads it, with ``--ascend`` or without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pytest_ascend.system.bundled import table
from pytest_ascend.system.text import parse_size

USUAL_MEMORY = "8G"
#: The ``pytest`` option that takes all of them.
EMULATE_OPTION = "--ascend-emulate"
#: By option, without its hyphens: its metavar and its help line.
_ROWS: dict[str, dict[str, Any]] = table("emulator/settings.json")


def setting(key: str, default: Any, read: Callable[[str], Any] = str) -> Any:
    """Declare a field: ``key`` names its option of ``pytest-ascend emulate`` and its part of ``--ascend-emulate``."""
    old = "--ascend-fault" if key == "fault" else f"--ascend-emulated-{key}"
    repeated = {"action": "append", "default": []} if default == () else {}
    named = {"emulate": f"--{key}", "name": EMULATE_OPTION, "key": key, "old": old}
    return field(default=default, metadata={**named, "read": read, "declared": {**_ROWS[key], **repeated}})


def _variable(field: str) -> str:
    return f"PYTEST_ASCEND_EMULATED_{field.removesuffix('_bytes').upper()}"


@dataclass(frozen=True, kw_only=True)
class EmulatorSettings:
    """The user's settings of the emulated device.

    For unset fields (0 and ""), the environment's variables decide, then the defaults. ``devices``: their number (1 to
    16, default 2). ``memory_bytes``: memory of each device (8 GiB). ``numerics``: exact or chip:SEED, see
    :mod:`pytest_ascend.emulator.chip` (exact). ``cann``: the release that it reports, such as 8.1.RC1 (the one
    that fits the installed torch_npu). ``chip``: its chip, by full or short name, e.g. 310P (an Ascend910B1).
    ``physical``: the number of each device's card on its machine, as 4,6 for two cards of eight in a container (0, 1,
    ...). ``occupied_bytes``: memory of each device that another process holds (0). ``faults``: see
    :mod:`pytest_ascend.emulator.faults`.
    """

    devices: int = 0
    memory_bytes: int = setting("memory", 0, parse_size)
    numerics: str = setting("numerics", "")
    cann: str = setting("cann", "")
    chip: str = setting("chip", "")
    physical: str = setting("physical", "")
    occupied_bytes: int = setting("occupied", 0, parse_size)
    faults: tuple[str, ...] = setting("fault", ())

    def resolved(self) -> EmulatorSettings:
        """Return the settings with defaults filled in. Raises UsageError for invalid ones."""
        from pytest_ascend.emulator import choices  # noqa: PLC0415  (not light)

        there = {each.name: os.environ.get(_variable(each.name), "") for each in fields(self)}
        memory, occupied = there["memory_bytes"] or USUAL_MEMORY, there["occupied_bytes"]
        return replace(
            self,
            devices=self.devices or choices.devices_of(there["devices"]),
            memory_bytes=choices.checked_memory(self.memory_bytes or parse_size(memory)),
            numerics=choices.checked(self.numerics or there["numerics"]),
            cann=choices.checked_cann(self.cann or there["cann"]),
            chip=choices.checked_chip(self.chip or there["chip"]),
            physical=choices.checked_physical(self.physical or there["physical"]),
            occupied_bytes=self.occupied_bytes or (parse_size(occupied) if occupied else 0),
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables that pass the settings to the device. Raises as :meth:`resolved` does."""
        values = vars(self.resolved())
        named = {_variable(name): str(value or "") for name, value in values.items() if name != "faults"}
        return {**named, "PYTEST_ASCEND_FAULTS": ",".join(self.faults)}

    def given(self) -> list[str]:
        """Return the ``pytest`` options that were used, as written; they have no effect on other devices."""
        found: list[str] = []
        for each in OPTIONS:
            name, value = f"{EMULATE_OPTION}={each.metadata['key']}", getattr(self, each.name)
            if isinstance(value, tuple):
                found += [f"{name}={part}" for part in value]
            elif value != each.default:
                found.append(name)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as builtins, in the form of the run log."""
        found = {f"emulated_{each.name}": getattr(self, each.name) for each in fields(self)}
        return {"faults": list(found.pop("emulated_faults")), **found}


#: Fields with an option of their own. ``pytest`` takes the number of devices from ``-n``.
OPTIONS = tuple(each for each in fields(EmulatorSettings) if each.metadata)


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields from a command line, where None or () means unset."""
    found: dict[str, Any] = {}
    for each in OPTIONS:
        text, as_value = given[each.name], each.metadata["read"]
        if isinstance(each.default, tuple):
            found[each.name] = tuple(as_value(part) for part in text)
        elif text is not None:
            found[each.name] = as_value(text)
    return found
