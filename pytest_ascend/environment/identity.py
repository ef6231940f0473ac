"""Which card is which: torch, the runtime, the driver and npu-smi number them differently."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_ascend.environment.machine import Machine
from pytest_ascend.environment.npu_smi import Chip, Mapped, NpuSmi, in_use, parse, parse_map

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """One device in every numbering; -1 or "" if a number is unknown.

    ``index`` is torch's (the runtime's user id, after ASCEND_RT_VISIBLE_DEVICES), ``logical`` the runtime's own,
    counted inside a container; ``physical`` is the N of /dev/davinciN on the machine, the same in all containers.
    ``npu`` and ``chip`` are npu-smi's -i and -c: a card of an Atlas A3 is one NPU with two chips.
    """

    index: int
    logical: int = -1
    physical: int = -1
    npu: int = -1
    chip: int = -1
    bus: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return lock names of the card that are the same in every process that can reach it."""
        named = [f"davinci{self.physical}"] if self.physical >= 0 else []
        further = f"-chip{self.chip}" if self.chip > 0 else ""  # both chips of an Atlas 300I Duo have one address
        named += [f"bus-{self.bus.lower().replace(':', '-')}{further}"] if self.bus else []
        return tuple(named) or (f"npu-{max(self.logical, 0)}",)

    @property
    def label(self) -> str:
        """Return the device in all known numberings, e.g. "npu:0 (NPU 5 chip 0, /dev/davinci5)"."""
        known = [f"NPU {self.npu}{f' chip {self.chip}' if self.chip >= 0 else ''}"] if self.npu >= 0 else []
        known += [f"/dev/davinci{self.physical}"] if self.physical >= 0 else []
        known += [f"bus {self.bus}"] if self.bus else []
        return f"npu:{self.index} ({', '.join(known)})" if known else f"npu:{self.index}"


def observed(cards: Sequence[Identity], npu_smi: NpuSmi) -> list[dict[str, Any]]:
    """Return each card in every numbering, with its current state from npu-smi if known."""
    found = []
    for card in cards:
        state: dict[str, Any] = {}
        if chip := _printed(card, npu_smi):
            state = {name: getattr(chip, name) for name in ("health", "memory_used_mb", "memory_total_mb")}
            state["in_use"] = in_use(chip, npu_smi.processes)
        found.append({**asdict(card), **state})
    return found


def _printed(card: Identity | Mapped, npu_smi: NpuSmi) -> Chip | None:
    return next((each for each in npu_smi.chips if each.npu == card.npu and each.chip in (card.chip, -1)), None)


def visible(environ: Mapping[str, str], count: int) -> tuple[int, ...]:
    """Return the logical ids that the runtime shows, in torch's order, out of ``count`` devices.

    The runtime reads ASCEND_RT_VISIBLE_DEVICES up to the first entry that is not a device or is repeated.
    """
    if VISIBLE not in environ:
        return tuple(range(count))
    found: list[int] = []
    for entry in environ[VISIBLE].split(","):
        text = entry.strip()
        if not (text.isascii() and text.isdigit()) or not 0 <= int(text[:9]) < count or int(text[:9]) in found:
            break
        found.append(int(text[:9]))
    return tuple(found)


def identities(
    environ: Mapping[str, str],
    numbers: Sequence[int],
    npu_smi: NpuSmi,
    mapped: Sequence[Mapped] = (),
    *,
    physical: Sequence[int] = (),
    buses: Sequence[str] = (),
) -> tuple[Identity, ...]:
    """Return every device that torch sees, by its index.

    ``numbers`` are the N of the files /dev/davinciN, sorted; ``npu_smi`` and ``mapped`` are npu-smi's output on all
    devices (``info`` and ``info -m``). ``physical`` and ``buses``, from the runtime by torch's index, take precedence.
    """
    numbers = sorted(numbers)
    count = len(numbers) or len(mapped) or len(npu_smi.chips) or len(physical)
    found = []
    for index, logical in enumerate(visible(environ, count)):
        # The 950's map has no logical ids, but lists devices in their order.
        counted = [each for each in mapped if each.logical < 0]
        row: Mapped | None = next((each for each in mapped if each.logical == logical), _at(counted, logical, None))
        known = (_at(physical, index, -1), row.physical if row else -1, _at(numbers, logical, -1))
        number = next((each for each in known if each >= 0), -1)
        if row:
            chip = _printed(row, npu_smi)
        else:  # by its number, or by position if the table lists all devices
            placed = _at(npu_smi.chips, logical, None) if len(npu_smi.chips) == count else None
            chip = next((each for each in npu_smi.chips if each.physical == number >= 0), placed)
        named = row or chip
        found.append(
            Identity(
                index=index,
                logical=logical,
                physical=number,
                npu=named.npu if named else -1,
                # The 950's map counts chips and has no logical ids, and its npu-smi has no -c.
                chip=named.chip if named and not (row and row.logical < 0) else -1,
                bus=_at(buses, index, "") or (chip.bus if chip else ""),
            )
        )
    return tuple(found)


def of_machine(machine: Machine, *, physical: Sequence[int] = (), buses: Sequence[str] = ()) -> tuple[Identity, ...]:
    """Return every card of a machine from its files and npu-smi; ``physical`` and ``buses`` are the runtime's."""
    names = (re.fullmatch(r"davinci(\d{1,3})", name) for name in machine.tree.names("/dev"))
    numbers = [int(name[1]) for name in names if name]
    table, mapped = parse(machine.npu_smi().text), parse_map(machine.npu_smi_map().text)
    return identities(machine.environ, numbers, table, mapped, physical=physical, buses=buses)


def _at(found: Sequence[Any], place: int, otherwise: Any) -> Any:
    return found[place] if 0 <= place < len(found) else otherwise
