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
_USED_OF_TOTAL = re.compile(r"([0-9]+)\s*/\s*([0-9]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One die. ``name`` is as printed ("910B3", "Ascend910"); ``memory_used_mb`` is -1 where unknown."""

    npu: int
    name: str
    health: str
    bus: str = ""
    memory_used_mb: int = -1
    memory_total_mb: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process that holds a device."""

    npu: int
    pid: int
    name: str
    memory_mb: int


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
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        cells = _cells(line)
        header = re.search(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)", line)
        if header:
            tool, driver = header[1], header[2]
        elif process := _process(cells):
            processes.append(process)
        elif _begins_chip(cells):
            first = cells
        elif first and len(cells) >= 3:
            chips.append(_chip(first, cells))
            first = []
    incomplete = "may not be completely installed" in text
    return NpuSmi(tool=tool, driver=driver, chips=tuple(chips), processes=tuple(processes), incomplete=incomplete)


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


def _chip(first: list[str], second: list[str]) -> Chip:
    npu, name, health = _named(first) or (0, "", "UNKNOWN")
    bus = next((cell for cell in second if re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", cell)), "")
    pairs = _USED_OF_TOTAL.findall(second[-1])
    used, total = pairs[-1] if pairs else ("-1", "-1")
    return Chip(npu=npu, name=name, health=health, bus=bus, memory_used_mb=_small(used), memory_total_mb=_small(total))


def _process(cells: list[str]) -> Process | None:
    """Read "NPU chip | process id | name | memory", of which the newest have a column more."""
    if len(cells) < 4 or not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in (cells[1], cells[3])):
        return None
    npu = re.match(r"[0-9]{1,9}", cells[0])
    return Process(npu=int(npu[0]), pid=int(cells[1]), name=cells[2], memory_mb=int(cells[3])) if npu else None


def _small(text: str) -> int:
    return int(text) if len(text) < 12 else -1
