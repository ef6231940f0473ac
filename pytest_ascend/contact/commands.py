"""``pytest-ascend contact``: ask one machine everything, and turn the answers into data."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pytest_ascend.contact.kit import SCHEMA
from pytest_ascend.diagnosis.codes import CODES, codes_in
from pytest_ascend.environment.signs import EMULATED_VARIABLE, signs
from pytest_ascend.errors import DeviceUnavailable, UsageError
from pytest_ascend.records.outcome import Waived


@click.group(invoke_without_command=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("contact.zip"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "npu", "emulated"]),
    default="auto",
    show_default=True,
    help="As --ascend-device.",
)
@click.pass_context
def contact(context: click.Context, output: Path, device: str) -> None:
    """Ask this machine everything that the project wants to know of an NPU, and pack it for somebody to read.

    Takes ten minutes at most and no root; each step runs in a process of its own with a deadline, and one that fails is
    a finding. Names and addresses are struck out. Look at summary.html inside before you send the file.
    """
    if context.invoked_subcommand:
        return
    from pytest_ascend.contact.kit import Kit, gather, pack

    if not output.parent.is_dir():
        raise UsageError(
            f"the folder of {output} does not exist", hint="name a file in a folder that is there: -o contact.zip"
        )
    if device == "npu" and not signs():
        raise DeviceUnavailable(
            "this machine shows no sign of Ascend", hint="to see the kit at work: --device emulated"
        )
    is_active = os.environ.get(EMULATED_VARIABLE) == "1"
    emulated = device == "emulated" or (device == "auto" and (is_active or not signs()))
    kit = Kit(_environ(emulated=emulated), emulated, lambda line: click.echo(f"contact: {line}"))
    gather(kit)
    pack(kit, output)
    where = ", on the emulated device" if emulated else ""
    click.echo(f"{output}: {len(kit.answers)} steps{where}; look at summary.html inside")


def _environ(*, emulated: bool) -> Mapping[str, str]:
    """Return the variables for the steps. torch must not load torch_npu by itself, which would hide what fails."""
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if emulated:
        from pytest_ascend.emulator.bootstrap import environment

        environ |= environment()
    return environ


@contact.command()
@click.argument("kit", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("baselines/contact"),
    show_default=True,
    help="The folder to write.",
)
def apply(kit: Path, output: Path) -> None:
    """Turn a kit into data: dtypes, expectations seen, the chip's clock and memory, durations, error codes."""
    from pytest_ascend.contact.commands import data_of, read_kit, write

    data = data_of(read_kit(kit))
    folder = write(data, output)
    taken = sum(by == "npu" for row in data["dtypes"].values() for by in row.values())
    unknown = [code for code, known in data["codes"].items() if not known]
    click.echo(f"{folder}: {len(data['dtypes'])} operators, {taken} of their dtypes taken by the NPU")
    click.echo(f"{len(data['expectations']['cases'])} known deviations seen, {len(data['durations'])} durations")
    click.echo(f"{len(data['codes'])} error codes{', unknown: ' + ', '.join(unknown) if unknown else ', all known'}")
    if data["chip"]["emulated"]:
        click.echo("THE EMULATED DEVICE: nothing of this says anything about an NPU")


#: A kit has some fifty files of text; what is larger is none.
MOST_FILES, MOST_BYTES = 500, 128 * 2**20
_NAME = re.compile(r"[\w.-]{1,40}")
_OPERATOR = re.compile(r"[a-z_0-9]{1,40}")


def read_kit(path: Path) -> dict[str, Any]:
    """Return the files of a kit: JSON read, text as it is. Raises UsageError for what is no kit."""
    hint = "give the file that `pytest-ascend contact -o contact.zip` wrote, as it is"
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_FILES or sum(each.file_size for each in entries) > MOST_BYTES:
                raise UsageError(f"{path} is larger than any kit", hint=hint)
            texts = {each.filename: archive.read(each).decode("utf-8", errors="replace") for each in entries}
        found: dict[str, Any] = {
            name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()
        }
        about = found["about.json"]
        if about["schema"] != SCHEMA or not isinstance(about["emulated"], bool) or not isinstance(about["steps"], dict):
            raise UsageError(
                f"{path} is a kit of another form", hint="use the pytest-ascend that made it, or a newer one"
            )
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, RecursionError, RuntimeError) as error:
        raise UsageError(f"{path} is no contact kit: {type(error).__name__}: {error}", hint=hint) from error
    return found


def data_of(kit: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the project keeps, by the name of its file.

    ``chip``: name, memory in bytes, clocks in MHz, start-up in seconds. ``dtypes``: operator -> dtype -> who computes
    it ("npu", "cpu", or "" for refused). ``expectations``: ids of cases whose deviation was seen on this machine, and
    whether as expected. ``durations``: seconds by case. ``codes``: error codes seen, and whether the tables know them.
    """
    emulated = kit["about.json"]["emulated"]
    start, steps = _data(kit, "start-up"), kit["about.json"]["steps"]
    chip = {
        "emulated": emulated,
        "chip": _text(start.get("chip")),
        "torch": _text(start.get("torch")),
        "torch_npu": _text(start.get("torch_npu")),
        "memory_total_bytes": _number(start.get("memory_total_bytes")),
        "context_bytes": _number(start.get("memory_used_by_context_bytes")),
        "first_use_s": _number(start.get("first_use_s")),
        "recovery_s": _number(_data(kit, "recovery").get("usable_after_s")),
        "clock_mhz": {name: _clock(text) for name, text in _data(kit, "clock").items() if isinstance(text, str)},
        "steps": {_text(name): _text(status) for name, status in steps.items()},
    }
    records = list(_records(kit))
    return {
        "chip": chip,
        "dtypes": _dtypes(_data(kit, "dtypes")),
        "expectations": {"emulated": emulated, "cases": dict(_expected(records))},
        "durations": {_text(each["case"]["id"], 300): _number(each["duration_s"]) for each in records},
        "codes": _codes(kit),
    }


def write(data: Mapping[str, Any], folder: Path) -> Path:
    """Write the data into a folder of its chip below ``folder``, each file beside first; return that folder."""
    chip = data["chip"]
    name = f"{chip['chip'] or 'unknown'}{'-emulated' if chip['emulated'] else ''}"
    target = folder / (name if _NAME.fullmatch(name) else "unknown")
    target.mkdir(parents=True, exist_ok=True)
    for each, value in data.items():
        beside = target / f".{each}.json"
        beside.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        beside.replace(target / f"{each}.json")
    return target


def _data(kit: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    found = kit.get(f"steps/{step}.json")
    data = found.get("data") if isinstance(found, dict) else None
    return data if isinstance(data, dict) else {}


def _text(value: Any, most: int = 80) -> str:
    return value[:most] if isinstance(value, str) and value.isprintable() else ""


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return value if is_number else None


def _clock(text: str) -> float | None:
    found = re.search(r"Aicore curFreq\(MHZ\)\s*:\s*([0-9]{1,5})\b", text)
    return float(found[1]) if found else None


def _dtypes(answers: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for name, by_dtype in answers.items():
        if _OPERATOR.fullmatch(name) and isinstance(by_dtype, dict):
            kept = {dtype: said.get("by") for dtype, said in by_dtype.items() if isinstance(said, dict)}
            table[name] = {d: by for d, by in kept.items() if _OPERATOR.fullmatch(d) and by in ("npu", "cpu", "")}
    return table


def _records(kit: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for line in str(kit.get("smoke/run.jsonl", "")).splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and record.get("type") == "record" and isinstance(record.get("case"), dict):
            case = record["case"]
            case.setdefault(
                "id", "/".join(str(case.get(name, "")) for name in ("suite", "subject", "property", "variant"))
            )
            yield record


def _expected(records: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for each in records:
        if each.get("waiver") or each.get("outcome") in (Waived.name, "left-to-cpu", "fallback", "unsupported"):
            yield _text(each["case"]["id"], 300), _text(each.get("outcome"))


def _codes(kit: Mapping[str, Any]) -> dict[str, bool]:
    text = "\n".join(json.dumps(value) if not isinstance(value, str) else value for value in kit.values())
    return {each.code: each.code in CODES for each in codes_in(text[: 2**24])}
