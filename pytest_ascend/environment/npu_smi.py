"""What ``npu-smi info`` prints, in the layouts of all five chip families, as data.

Columns are told apart by their bars only: widths differ between versions, and so do the names of columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

#: A machine has 16 devices at most per box, with two rows each; what is longer is no output of npu-smi.
MOST_LINES = 4096

HEALTHS = ("OK", "Warning", "Alarm", "Critical", "UNKNOWN")

#: Builds under another brand rename the chips.
_BRANDED = ((r"I2(\w*)", r"310P\1"), (r"A2G(\w+)", r"910B\1"))
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_USED_OF_TOTAL = re.compile(r"([0-9]+|NA|-)\s*/\s*([0-9]+|NA|-)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One die. ``name`` is as printed ("910B3", "Ascend910"); ``memory_used_mb`` is -1 where unknown.

    ``chip`` counts the dies of an NPU, -1 where the table has no such column, as on the 950; ``physical`` is the N of
    /dev/davinciN, -1 where the table does not say, as everywhere but on an Atlas A3.
    """

    npu: int
    name: str
    health: str
    chip: int = -1
    physical: int = -1
    bus: str = ""
    memory_used_mb: int = -1
    memory_total_mb: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process that holds a device; ``chip`` is -1 where the table does not say which of an NPU's."""

    npu: int
    chip: int = -1
    pid: int
    name: str
    memory_mb: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """One row of ``npu-smi info -m``; -1 where the layout has no such column."""

    npu: int
    chip: int
    logical: int = -1
    physical: int = -1
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NpuSmi:
    """All of it: ``driver`` is what stands after "Version:", ``tool`` the version of npu-smi itself."""

    tool: str = ""
    driver: str = ""
    chips: tuple[Chip, ...] = ()
    processes: tuple[Process, ...] = ()
    incomplete: bool = False


def parse(text: str) -> NpuSmi:
    """Read the table; what is not understood is left out, so that damaged output gives less, never an error."""
    tool = driver = ""
    chips: list[Chip] = []
    processes: list[Process] = []
    first: list[str] = []
    has_physical = False
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        cells = _cells(line)
        has_physical = has_physical or "Phy-ID" in line
        header = re.search(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)", line)
        if header:
            tool, driver = header[1], header[2]
        elif process := _process(cells):
            processes.append(process)
        elif _begins_chip(cells):
            first = cells
        elif first and len(cells) >= 3:
            chips.append(_chip(first, cells, has_physical=has_physical))
            first = []
    incomplete = "may not be completely installed" in text
    return NpuSmi(tool=tool, driver=driver, chips=tuple(chips), processes=tuple(processes), incomplete=incomplete)


#: What a card holds that nobody uses, in MB, with room to spare. Source: tables of npu-smi of idle machines: 2.7 to
#: 3.5 GB on 910B and 910_93, 4.4 GB on a 950, 0.9 to 2 GB on 310P and the first 910.
_IDLE_MB, _IDLE_310_MB = 5120, 3072
#: A process below this is npu-smi itself, or a context without tensors.
_OCCUPIED_MB = 512


def in_use(chip: Chip, processes: tuple[Process, ...]) -> str:
    """Say why a device is not free, "" where it is.

    In a container the table of processes shows its own only, and another's work shows in the memory alone.
    """
    for each in processes:
        if each.npu == chip.npu and each.chip in (chip.chip, -1) and each.memory_mb >= _OCCUPIED_MB:
            return f"process {each.pid} ({each.name[:60]}) holds {each.memory_mb} MB"
    idle_mb = _IDLE_310_MB if "310" in chip.name or chip.memory_total_mb < 32_000 else _IDLE_MB
    if chip.memory_used_mb > idle_mb:
        return f"{chip.memory_used_mb} of {chip.memory_total_mb} MB are used, where an idle one has up to {idle_mb}"
    return ""


def soc(name: str) -> str:
    """Return the SoC's name of a printed one: "910B3" -> "Ascend910B3", "A2G3" -> "Ascend910B3"."""
    plain = name.removeprefix("Ascend").strip()
    for branded, ours in _BRANDED:
        plain = re.sub(rf"^{branded}$", ours, plain)
    return f"Ascend{plain}" if plain else ""


def _cells(line: str) -> list[str]:
    """Split at the bars; a cell with two columns stays one. Rulers give nothing."""
    if "|" not in line:
        return []
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _begins_chip(cells: list[str]) -> bool:
    """Whether these are an NPU's number, name and health. On the 950, number and name are cells of their own."""
    named = _named(cells)
    return named is not None and named[2] in HEALTHS


def _named(cells: list[str]) -> tuple[int, str, str] | None:
    together = re.fullmatch(r"([0-9]{1,8})\s+(\S+)", cells[0]) if len(cells) >= 3 else None
    if together:
        return int(together[1]), together[2], cells[1]
    if len(cells) >= 4 and cells[0].isascii() and cells[0].isdigit() and len(cells[0]) < 9:
        return int(cells[0]), cells[1], cells[2]
    return None


def parse_map(text: str) -> tuple[Mapped, ...]:
    """Read ``npu-smi info -m``: its columns are told by their heads. Rows of what is no NPU (Mcu) are left out."""
    heads: list[str] = []
    found = []
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        if line.strip().startswith("NPU ID"):
            heads = re.findall(r"NPU ID|Slot ID|Chip ID|Chip Logic ID|Chip Phy-ID|Chip Name", line)
            continue
        cells = line.split(None, len(heads) - 1) if heads else []
        if heads and len(cells) == len(heads):
            row = _mapped(dict(zip(heads, cells, strict=True)))
            found += [row] if row else []
    return tuple(found)


def _mapped(cells: dict[str, str]) -> Mapped | None:
    numbers = {name: int(text) for name, text in cells.items() if text.isascii() and re.fullmatch(r"\d{1,9}", text)}
    name = cells.get("Chip Name", "")
    if "NPU ID" not in numbers or "Chip ID" not in numbers or re.search(r"mcu|3559", name, re.IGNORECASE):
        return None
    logical, physical = numbers.get("Chip Logic ID", -1), numbers.get("Chip Phy-ID", -1)
    if logical < 0 and "Chip Logic ID" in cells:
        return None  # "-": no device of its own
    return Mapped(npu=numbers["NPU ID"], chip=numbers["Chip ID"], logical=logical, physical=physical, name=name)


def _chip(first: list[str], second: list[str], *, has_physical: bool) -> Chip:
    npu, name, health = _named(first) or (0, "", "UNKNOWN")
    numbers = re.match(r"(\d{1,9})(?:\s+(\d{1,9}))?$", second[0])
    bus = next((cell for cell in second if re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", cell)), "")
    pairs = _USED_OF_TOTAL.findall(second[-1])
    used, total = pairs[-1] if pairs else ("-1", "-1")
    return Chip(
        npu=npu,
        name=name,
        health=health,
        chip=int(numbers[1]) if numbers else -1,
        physical=int(numbers[2]) if numbers and numbers[2] and has_physical else -1,
        bus=bus,
        memory_used_mb=_small(used),
        memory_total_mb=_small(total),
    )


def _process(cells: list[str]) -> Process | None:
    """Read "NPU chip | process id | name | memory", of which the newest have a column more."""
    if len(cells) < 4 or not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in (cells[1], cells[3])):
        return None
    place = re.match(r"([0-9]{1,9})(?:\s+([0-9]{1,9}))?", cells[0])
    if place is None:
        return None
    chip = int(place[2]) if place[2] else -1
    return Process(npu=int(place[1]), chip=chip, pid=int(cells[1]), name=cells[2], memory_mb=int(cells[3]))


def _small(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 12 else -1
