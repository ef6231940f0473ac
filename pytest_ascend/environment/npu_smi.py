"""The output of ``npu-smi info``, in the layouts of all five chip families, as data.

Columns are recognised by their bars only: widths and names of columns differ between versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

#: A machine has at most 16 devices, with two rows each; longer text is not npu-smi's output.
MOST_LINES = 4096

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Parts of a card other than chips.
_BOARD = re.compile(r"mcu|3559", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One die. ``name`` is as printed ("910B3", "Ascend910"); ``memory_used_mb`` is -1 if unknown.

    ``chip`` counts the dies of an NPU, -1 if the table has no such column, as on the 950; ``physical`` is the N of
    /dev/davinciN, -1 if the table does not have it: only an Atlas A3's does.
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
    """A process that holds a device; ``chip`` is -1 if the table does not name it."""

    npu: int
    chip: int = -1
    pid: int
    name: str
    memory_mb: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """One row of ``npu-smi info -m``; -1 if the layout has no such column."""

    npu: int
    chip: int
    logical: int = -1
    physical: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NpuSmi:
    """The whole output: ``driver`` is the text after "Version:", ``tool`` the version of npu-smi itself.

    ``failure`` is the message that npu-smi prints instead of a table, in some versions with the exit code 0.
    """

    tool: str = ""
    driver: str = ""
    chips: tuple[Chip, ...] = ()
    processes: tuple[Process, ...] = ()
    incomplete: bool = False
    failure: str = ""


def parse(text: str) -> NpuSmi:
    """Parse the table; unknown text is skipped, so that damaged output yields less, never an error."""
    tool = driver = ""
    chips: list[Chip] = []
    processes: list[Process] = []
    first: Chip | None = None
    has_physical = False
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        # A cell with two columns stays one. Rulers have no cells.
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if "|" in line else []
        has_physical = has_physical or "Phy-ID" in line
        header = re.search(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)", line)
        if header:
            tool, driver = header[1], header[2]
        elif process := _process(cells):
            processes.append(process)
        elif named := _named(cells):
            first = named
        elif first and len(cells) >= 3:
            numbers = re.match(r"(\d{1,9})(?:\s+(\d{1,9}))?$", cells[0])
            address = r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"
            pairs = re.findall(r"([0-9]+|NA|-)\s*/\s*([0-9]+|NA|-)", cells[-1])
            used, total = pairs[-1] if pairs else ("-1", "-1")
            chips.append(
                replace(
                    first,
                    chip=int(numbers[1]) if numbers else -1,
                    physical=int(numbers[2]) if numbers and numbers[2] and has_physical else -1,
                    bus=next((cell for cell in cells if re.fullmatch(address, cell)), ""),
                    memory_used_mb=_small(used),
                    memory_total_mb=_small(total),
                )
            )
            first = None
    # npu-smi's messages when it cannot query devices, or has none. Source: its own source, and reports of users.
    words = r"(?:module|driver) initiali[sz]e failed|DrvMng\w+ failed|There is no NPU card|drv init fail"
    lines = islice(text.splitlines(), MOST_LINES)
    failures = (line.strip()[:200] for line in lines if re.search(words, line, re.IGNORECASE))
    return NpuSmi(
        tool=tool,
        driver=driver,
        chips=tuple(chips),
        processes=tuple(processes),
        incomplete="may not be completely installed" in text,
        failure="" if chips else "; ".join(islice(failures, 4)),
    )


#: Memory in use on an idle card, in MB, with a margin. Source: tables of npu-smi of idle machines: 2.7 to
#: 3.5 GB on 910B and 910_93, 4.4 GB on a 950, 0.9 to 2 GB on 310P and the first 910.
IDLE_MB, _IDLE_310_MB = 5120, 3072
#: A process that uses less is npu-smi itself, or a context without tensors.
OCCUPIED_MB = 512


def of_others(npu: int, chip: int, processes: tuple[Process, ...], ours: Callable[[int], bool]) -> int:
    """Return how many MB other processes hold on a device; 0 if the table does not list ours there.

    In that case it shows the process ids of another namespace, as in a container, or none at all.
    """
    here = [each for each in processes if each.npu == npu and each.chip in (chip, -1)]
    others = [each for each in here if not ours(each.pid)]
    return sum(each.memory_mb for each in others) if len(others) < len(here) else 0


#: Measurements: memory of a card used by other processes, as reported by the runtime and by the process table.
ELSEWHERE, OTHERS = "npu_memory_elsewhere_bytes", "npu_memory_of_others_bytes"


def shared(measured: Mapping[str, float]) -> str:
    """Return how others used the card during a timing; "" if there is no sign of it."""
    for name, most in ((ELSEWHERE, IDLE_MB << 20), (OTHERS, OCCUPIED_MB << 20)):
        held = measured.get(name, 0.0)
        if held > most:
            return f"{held / 2**30:.1f} GiB of its memory were not this process's ({name})"
    return ""


def in_use(chip: Chip, processes: tuple[Process, ...]) -> str:
    """Return why a device is not free; "" if it is.

    In a container the table shows only its own processes; others are visible only by their memory.
    """
    for each in processes:
        if each.npu == chip.npu and each.chip in (chip.chip, -1) and each.memory_mb >= OCCUPIED_MB:
            return f"process {each.pid} ({each.name[:60]}) holds {each.memory_mb} MB"
    idle_mb = _IDLE_310_MB if "310" in chip.name or chip.memory_total_mb < 32_000 else IDLE_MB
    if chip.memory_used_mb > idle_mb:
        return f"{chip.memory_used_mb} of {chip.memory_total_mb} MB are used, where an idle one has up to {idle_mb}"
    return ""


def soc(name: str) -> str:
    """Return the SoC name for a printed name: "910B3" -> "Ascend910B3", "A2G3" -> "Ascend910B3"."""
    plain = name.removeprefix("Ascend").strip()
    for branded, ours in ((r"I2(\w*)", r"310P\1"), (r"A2G(\w+)", r"910B\1")):  # rebranded builds rename the chips
        plain = re.sub(rf"^{branded}$", ours, plain)
    return f"Ascend{plain}" if plain else ""


def _named(cells: list[str]) -> Chip | None:
    """Return a chip from an NPU's first cells: number, name and health. On the 950, number and name are two cells."""
    if len(cells) >= 3 and (together := re.fullmatch(r"([0-9]{1,8})\s+(\S+)", cells[0])):
        number, name, health = together[1], together[2], cells[1]
    elif len(cells) >= 4 and re.fullmatch("[0-9]{1,8}", cells[0]):
        number, name, health = cells[:3]
    else:
        return None
    health = {"0K": "OK", "Ok": "OK"}.get(health, health)  # tables are also copied by hand and from screenshots
    is_known = health in ("OK", "Warning", "Alarm", "Critical", "UNKNOWN")
    return Chip(npu=int(number), name=name, health=health) if is_known else None


def parse_common(text: str, chip: int = -1) -> dict[str, float]:
    """Parse ``npu-smi info -t common``: figures of a chip by their printed names, e.g. "Aicore curFreq(MHZ)".

    Without ``-c`` it lists all chips of a card, and the board's controller (Mcu), which also has a temperature.
    """
    found: dict[str, float] = {}
    is_asked = True
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "Chip ID":
            is_asked = chip in (-1, _small(value))
        elif name == "Chip Name":
            is_asked = is_asked and not _BOARD.search(value)
        elif is_asked and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            found.setdefault(name, float(value))
    return found


def parse_map(text: str) -> tuple[Mapped, ...]:
    """Parse ``npu-smi info -m``: columns are recognised by their headings. Rows of other parts (Mcu) are skipped."""
    heads: list[str] = []
    found = []
    for line in islice(_ANSI.sub("", text).splitlines(), MOST_LINES):
        if line.strip().startswith("NPU ID"):
            heads = re.findall(r"NPU ID|Slot ID|Chip ID|Chip Logic ID|Chip Phy-ID|Chip Name", line)
            continue
        cells = dict(zip(heads, line.split(None, len(heads) - 1) if heads else (), strict=False))
        numbers = {name: int(text) for name, text in cells.items() if re.fullmatch("[0-9]{1,9}", text)}
        npu, chip, logical, physical = (
            numbers.get(name, -1) for name in ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID")
        )
        is_board = _BOARD.search(cells.get("Chip Name", ""))
        is_device = logical >= 0 or "Chip Logic ID" not in cells  # "-": not a device
        if len(cells) == len(heads) and npu >= 0 and chip >= 0 and is_device and not is_board:
            found.append(Mapped(npu=npu, chip=chip, logical=logical, physical=physical))
    return tuple(found)


def _process(cells: list[str]) -> Process | None:
    """Parse "NPU chip | process id | name | memory"; the newest versions have one more column."""
    if len(cells) < 4 or not all(re.fullmatch("[0-9]{1,9}", cell) for cell in (cells[1], cells[3])):
        return None
    if not (place := re.match(r"([0-9]{1,9})(?:\s+([0-9]{1,9}))?", cells[0])):
        return None
    npu, chip = (int(each or -1) for each in place.groups())
    return Process(npu=npu, chip=chip, pid=int(cells[1]), name=cells[2], memory_mb=int(cells[3]))


def _small(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 12 else -1
