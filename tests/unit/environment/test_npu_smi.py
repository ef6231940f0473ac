"""The tables of npu-smi, family by family, and what people's pastes do to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ascend.environment.chips import family
from pytest_ascend.environment.npu_smi import Chip, NpuSmi, Process, in_use, parse, parse_common, parse_map, soc

A2 = """+--------------------------------------------------------------------------------------------+
| npu-smi 25.5.2                   Version: 25.5.2                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 5     910B4               | OK            | 89.9        39                0    / 0             |
| 0                         | 0000:41:00.0  | 0           0    / 0          2922 / 32768         |
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 5       0                 | 812           | python3.11               | 512                     |
"""
OLD_910A = """| npu-smi 22.0.3                       Version: 22.0.3                                       |
| 4       910A     | OK              | NA                43             0          / 970            |
| 0       0         | 0000:81:00.0    | 0                 861  / 21534                               |
"""
A5 = """| npu-smi 25.1.rc2                        Version: 25.1.rc2                                       |
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
| 0      | Ascend950DT      | Warning       | 204.4       56                0     / 0             |
|        |                  | NA            | 0           0    / 0          4439  / 86016         |
"""


def test_an_a2() -> None:
    said = parse(A2)
    assert (said.tool, said.driver) == ("25.5.2", "25.5.2")
    chip = Chip(
        npu=5, name="910B4", health="OK", chip=0, bus="0000:41:00.0", memory_used_mb=2922, memory_total_mb=32768
    )
    assert said.chips == (chip,)
    assert said.processes == (Process(npu=5, chip=0, pid=812, name="python3.11", memory_mb=512),)


def test_a_910a_in_the_narrow_layout() -> None:
    (chip,) = parse(OLD_910A).chips
    assert (chip.npu, chip.name, chip.memory_total_mb) == (4, "910A", 21534)


def test_a_950_whose_number_is_a_cell_of_its_own() -> None:
    (chip,) = parse(A5).chips
    assert (chip.name, chip.health, chip.bus, chip.memory_used_mb) == ("Ascend950DT", "Warning", "", 4439)


def test_colours_and_cut_lines_do_no_harm() -> None:
    coloured = A2.replace("OK ", "\x1b[32mOK\x1b[0m ")
    assert parse(coloured) == parse(A2)
    assert parse(A2[:400]).chips == ()


@pytest.mark.parametrize("text", ["", "|" * 100_000, "| 1 910B | OK |\n" * 9, "\0\xff", "| 9 | 9 | 9 | 9 |\n" * 9])
def test_nonsense_gives_no_chips(text: str) -> None:
    assert parse(text).chips == ()


@pytest.mark.parametrize(
    ("printed", "name", "of"),
    [
        ("910B3", "Ascend910B3", "A2"),
        ("910B", "Ascend910B", "910"),
        ("910ProA", "Ascend910ProA", "910"),
        ("Ascend910", "Ascend910", "A3"),
        ("310P3", "Ascend310P3", "310P"),
        ("I2", "Ascend310P", "310P"),
        ("A2G3", "Ascend910B3", "A2"),
        ("Ascend950PR", "Ascend950PR", "950"),
    ],
)
def test_chips_by_the_names_that_are_printed(printed: str, name: str, of: str) -> None:
    known = family(soc(printed))
    assert soc(printed) == name
    assert known is not None
    assert known.name == of


def _outputs() -> dict[str, tuple[str, list[str]]]:
    """Read npu_smi_outputs.txt: a title, what was printed (as in issues and manuals, retyped), and what it says."""
    found = {}
    for block in (
        Path(__file__).with_name("npu_smi_outputs.txt").read_text(encoding="utf-8").removeprefix("# ").split("\n\n# ")
    ):
        title, *lines = block.splitlines()
        printed = "\n".join(line for line in lines if not line.startswith("=> "))
        found[title] = (printed, [line.removeprefix("=> ") for line in lines if line.startswith("=> ")])
    return found


OUTPUTS = _outputs()


def _says(said: NpuSmi, printed: str, statement: str) -> bool:
    word, *rest = statement.split()
    if word == "map":
        return statement in [
            f"map {each.npu} {each.chip} {each.logical} {each.physical}" for each in parse_map(printed)
        ]
    if word == "process":
        return rest in [[str(each) for each in (p.npu, p.chip, p.pid, p.memory_mb)] for p in said.processes]
    if word in ("idle", "busy"):
        chips = [each for each in said.chips if str(each.npu) == rest[0] and rest[1:] in ([], [str(each.chip)])]
        return bool(chips) and all(bool(in_use(each, said.processes)) == (word == "busy") for each in chips)
    if word in ("driver", "tool", "failure"):
        return bool(getattr(said, word) == " ".join(rest))
    if word == "incomplete":
        return said.incomplete
    rows = [
        (c.npu, c.chip, c.physical, c.name, c.health, c.bus or "-", c.memory_used_mb, c.memory_total_mb)
        for c in said.chips
    ]
    return statement in [" ".join(map(str, row)) for row in rows]


def test_there_are_thirty_outputs_and_more() -> None:
    assert len(OUTPUTS) >= 45


@pytest.mark.parametrize("title", OUTPUTS)
def test_what_people_published_is_read_right(title: str) -> None:
    printed, statements = OUTPUTS[title]
    assert statements
    for statement in statements:
        assert _says(parse(printed), printed, statement), statement
    if statements[0].startswith("map"):
        assert len(parse_map(printed)) == len(statements)


#: Answers to ``npu-smi info -t common -i N``: of a 910B with the controller of its board, of the manual of the Atlas
#: training servers, of a card with two chips, and what they say of one chip.
COMMON_910B = """        NPU ID                         : 1
        Chip Count                     : 1

        Chip ID                        : 0
        Memory Usage Rate(%)           : 0
        HBM Usage Rate(%)              : 4
        Aicore Usage Rate(%)           : 0
        Aicore Freq(MHZ)               : 1800
        Aicore curFreq(MHZ)            : 800
        Aicore Count                   : 24
        Temperature(C)                 : 46
        NPU Real-time Power(W)         : 93.4

        Chip Name                      : mcu
        Temperature(C)                 : 38
        NPU Real-time Power(W)         : 45.2
"""
COMMON_MANUAL = """NPU ID                         : 0
Memory Usage Rate(%)           : 0
HBM Usage Rate(%)              : 3
Aicore Freq(MHZ)               : 1650
Aicore curFreq(MHZ)            : 100
Temperature(C)                 : 65
NPU Real-time Power(W)         : 298.6
"""
COMMON_TWO = """	NPU ID                         : 2
	Chip ID                        : 0
	Aicore Freq(MHZ)               : 1080
	Aicore curFreq(MHZ)            : 960
	Temperature(C)                 : 43

	Chip ID                        : 1
	Aicore Freq(MHZ)               : 1080
	Aicore curFreq(MHZ)            : 1080
	Temperature(C)                 : NA
"""


@pytest.mark.parametrize(
    ("text", "chip", "clock", "rated", "temperature", "power"),
    [
        (COMMON_910B, 0, 800, 1800, 46, 93.4),
        (COMMON_910B, -1, 800, 1800, 46, 93.4),
        (COMMON_MANUAL, 0, 100, 1650, 65, 298.6),
        (COMMON_TWO, 0, 960, 1080, 43, None),
        (COMMON_TWO, 1, 1080, 1080, None, None),
        ("This device does not support querying common.", 0, None, None, None, None),
    ],
)
def test_figures_are_those_of_the_chip_that_was_asked_for(
    text: str, chip: int, clock: float, rated: float, temperature: float, power: float
) -> None:
    said = parse_common(text, chip)
    names = ("Aicore curFreq(MHZ)", "Aicore Freq(MHZ)", "Temperature(C)", "NPU Real-time Power(W)")
    assert [said.get(name) for name in names] == [clock, rated, temperature, power]
