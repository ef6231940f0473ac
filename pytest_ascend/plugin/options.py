"""The options of ``pytest --ascend``: declared here, and read once into an immutable record."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ascend.emulator import settings as emulated
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.records import LEVELS
from pytest_ascend.system.bundled import folder, table
from pytest_ascend.system.errors import UsageError, choice
from pytest_ascend.system.text import parse_duration, parse_share

if TYPE_CHECKING:
    from pytest_ascend.coverage.shards import Shard

#: Digits of a challenge: too many to have prepared a run for each.
CHALLENGE_DIGITS = 18
#: Cards of one machine.
RANKS_LIMIT = 16


def _shard(text: str) -> Shard:
    from pytest_ascend.coverage.shards import parse  # noqa: PLC0415  (loaded with every pytest, needed by few)

    return parse(text)


def _challenge(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > CHALLENGE_DIGITS:
        raise UsageError(
            f"{text[:40]} is not a challenge", hint=f"give a whole number of at most {CHALLENGE_DIGITS} digits"
        )
    return int(text)


def _whole(text: str) -> int:
    """Read a non-negative integer of at most 32 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 32):
        raise UsageError(f"{text}: not a seed", hint="give an integer from 0 to 4294967295")
    return int(text)


def _yes(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise UsageError(f"{text}: neither yes nor no", hint="give yes, or leave it out")
    return text == "yes"


def _ranks(text: str) -> int:
    """Read a number of ranks: processes on this machine, each with its own card."""
    if not (text.isascii() and text.isdigit() and 2 <= int(text[:6]) <= RANKS_LIMIT):
        raise UsageError(f"{text}: invalid number of ranks", hint=f"give a number from 2 to {RANKS_LIMIT}")
    return int(text)


#: By field: its line of help, how its value is written in it, and its option where that has another name. A field with
#: a ``key`` is one of several settings of its option, as ``--ascend-deadline=case=60``; ``old`` is its former name.
_ROWS: dict[str, dict[str, Any]] = table("plugin/options.json")


def option(name: str, default: Any, read: Callable[[str], Any] = str, **declared: Any) -> Any:
    """Declare the option of a field of :class:`Options`: its default, how its text is read, arguments for argparse."""
    row = _ROWS[name]
    declared |= {each: row[each] for each in ("metavar", "choices", "help") if each in row}
    if default is False:
        declared["action"] = "store_true"
    if default == ():
        declared.update(action="append", default=[])
    named = {"name": row.get("option", ""), "key": row.get("key", ""), "old": row.get("old", "")}
    return field(default=default, metadata={**named, "read": read, "declared": declared})


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options, one field each, with default and reader; pytest is told of them from this table.

    They do nothing without ``--ascend``. A text that was not given is ""; a deadline of 0 is derived from earlier runs.
    ``cards`` is the number of devices to use or "auto", as given by pytest-xdist's ``-n``; 0 if it was not given.
    ``former`` has a line for each option that was given by its former name.
    """

    device: str = option("device", "auto")
    level: str = option("level", "standard", choices=LEVELS)
    baselines: Path = option("baselines", Path(), Path)
    report: Path = option("report", Path("ascend-report"), Path)
    against: Path | None = option("against", None, Path)
    shard: Shard | None = option("shard", None, _shard)
    standard: str = option("standard", "")
    expectations: tuple[Path, ...] = option("expectations", (), Path)
    slowdown: float = option("slowdown", 0.05, parse_share)
    challenge: int | None = option("challenge", None, _challenge)
    timestamp: str = option("timestamp", "")
    ranks: int = option("ranks", 0, _ranks)
    isolation: str = option("isolation", "auto")
    case_deadline_s: float = option("case_deadline_s", 0.0, parse_duration)
    deadline_s: float = option("deadline_s", 0.0, parse_duration)
    suites: tuple[str, ...] = option("suites", ())
    explore_s: float = option("explore_s", 0.0, parse_duration)
    seed: int = option("seed", 1, _whole)
    resume: bool = option("resume", False)
    model: str = option("model", "")
    model_input: str = option("model_input", "")
    library: str = option("library", "")
    cases: Path | None = option("cases", None, Path)
    store_goldens: bool = option("store_goldens", False, _yes)
    cards: int | str = 0
    emulator: EmulatorSettings = EmulatorSettings()
    former: tuple[str, ...] = ()

    def arguments(self, *, is_emulated: bool) -> list[str]:
        """Return the options that decide what a case computes, as command-line arguments, to run a case again."""
        device = "emulated" if is_emulated and self.device == "auto" else self.device
        given = replace(self, device=device)
        usual = replace(Options(), baselines=folder("baselines"))
        found = []
        for each in _declared():
            value = getattr(given, each.name)
            if each.name in _OF_A_CASE and value != getattr(usual, each.name):
                found += _written(each, value)
        for each in emulated.OPTIONS:
            value = getattr(self.emulator, each.name)
            if is_emulated and value != each.default:
                found += _written(each, value)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all options as they stand in the run log, as builtins."""
        mine = {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name not in _NOT_LOGGED}
        return {**mine, **self.emulator.to_dict()}


_NOT_LOGGED = ("emulator", "former")
#: Options that decide what a case computes and how it is judged.
_OF_A_CASE = (
    *("device", "level", "baselines", "standard", "expectations", "ranks", "isolation", "model", "model_input"),
    *("explore_s", "seed", "library", "cases", "challenge"),
)


def _plain(value: Any) -> Any:
    """Return builtins. Paths below the current folder become relative."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        here = Path.cwd()
        return str(value.relative_to(here) if value.is_relative_to(here) else value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _written(of: Field[Any], value: Any) -> list[str]:
    """Return the arguments that give a field this value."""
    values = value if isinstance(value, tuple) else (value,)
    return [f"{_name(of)}={_plain(one)}" for one in values]


def _declared() -> list[Field[Any]]:
    return [each for each in fields(Options) if each.metadata]


def _fields() -> list[Field[Any]]:
    """Return the fields that an option gives, those of the emulated device among them."""
    return [*_declared(), *emulated.OPTIONS]


def _option(of: Field[Any]) -> str:
    return of.metadata["name"] or f"--ascend-{of.name.replace('_', '-')}"


def _name(of: Field[Any]) -> str:
    """Return what a field's value is written behind, as ``--ascend-deadline=case`` or ``--ascend-level``."""
    key = of.metadata["key"]
    return f"{_option(of)}={key}" if key else _option(of)


def _attribute(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _text_name(of: Field[Any]) -> str:
    """Return the attribute of the command line's namespace that holds a field's text."""
    return _attribute(of.metadata["old"] or _option(of))


def _several() -> dict[str, list[Field[Any]]]:
    """Return the options that give several fields, each with these."""
    names = dict.fromkeys(_option(each) for each in _fields() if each.metadata["key"])
    return {name: [each for each in _fields() if _option(each) == name] for name in names}


def declare(parser: pytest.Parser) -> None:
    """Declare the options to pytest, and former names without help."""
    group = parser.getgroup("ascend", "conformance of Ascend NPUs")
    group.addoption(
        "--ascend",
        action="store_true",
        help="test the Ascend stack of this machine; with no path given, the bundled suites run",
    )
    several = _several()
    for each in _fields():
        if each.metadata["old"]:
            group.addoption(each.metadata["old"], **{**each.metadata["declared"], "help": argparse.SUPPRESS})
        elif _option(each) not in several:
            group.addoption(_option(each), **each.metadata["declared"])
    for name, settings in several.items():
        written = [(f"{_name(each)}=".removeprefix(f"{name}="), each.metadata["declared"]) for each in settings]
        lines = [f"{key}{of.get('metavar', 'yes')}: {of['help']}" for key, of in written]
        metavar = ",".join(f"{key}{of.get('metavar', 'yes')}" for key, of in written[:2])
        group.addoption(name, action="append", default=[], metavar=metavar, help="; ".join(lines))


def former_names() -> dict[str, str]:
    """Return the former names of options, each with what is written now."""
    return {each.metadata["old"]: f"{_name(each)}=..." for each in _fields() if each.metadata["old"]}


def names() -> tuple[str, ...]:
    """Return the names of all options, former ones last."""
    return tuple(dict.fromkeys(("--ascend", *map(_option, _fields()), *former_names())))


def expand(namespace: argparse.Namespace) -> list[str]:
    """Store each setting of an option that has several where its field is read from.

    Return a line for each option that was given by its former name. Raises UsageError for a setting that is none.
    """
    former = [
        f"{old} is now {new}; the former name goes with the next release"
        for old, new in former_names().items()
        if getattr(namespace, _attribute(old), None) not in (None, False, [])
    ]
    for name, settings in _several().items():
        given = getattr(namespace, _attribute(name), None)
        setattr(namespace, _attribute(name), None)
        keys = {each.metadata["key"]: _text_name(each) for each in settings}
        keys.setdefault("", keys.get("run", ""))  # --ascend-deadline=2h is that of the run
        for text in [given] if isinstance(given, str) else given or []:
            for part in re.split(rf",(?=(?:{'|'.join(filter(None, keys))})=)", text.strip()):
                key, equals, value = part.partition("=")
                key, value = (key, value) if equals and key in keys else ("", part)
                if not keys[key]:
                    hint = f"give one or more of {', '.join(f'{each}=...' for each in keys if each)}"
                    raise UsageError(f"{name}={text}: {part!r} is no setting", hint=hint)
                before = getattr(namespace, keys[key], None)
                setattr(namespace, keys[key], [*before, value] if isinstance(before, list) else value)
    return former


def is_on(namespace: argparse.Namespace) -> bool:
    """Whether this run tests an Ascend stack: ``--ascend`` is given, ``--help`` and ``--version`` are not."""
    return bool(getattr(namespace, "ascend", False)) and not (namespace.help or namespace.version)


def unused_options(namespace: argparse.Namespace) -> list[str]:
    """Return the options that were given without ``--ascend``, which would silently do nothing."""
    if getattr(namespace, "ascend", False):
        return []
    return [name for name in names() if getattr(namespace, _attribute(name)) not in (None, False, [])]


def only_looks(namespace: argparse.Namespace) -> bool:
    """Whether nothing will be executed, as with ``--collect-only``."""
    names = ("collectonly", "showfixtures", "show_fixtures_per_test", "markers")
    return any(getattr(namespace, name, False) for name in names)


def read(namespace: argparse.Namespace, invocation_folder: Path) -> Options:
    """Check the given options and return them as :class:`Options`. Raises UsageError with one clear message."""
    former = expand(namespace)
    found = {each.name: _value(each, getattr(namespace, _text_name(each)), invocation_folder) for each in _declared()}
    settings = emulated.read({each.name: getattr(namespace, _text_name(each)) for each in emulated.OPTIONS})
    # The number of devices: with isolation, what pytest-xdist's -n says, if it is installed
    given = getattr(namespace, "numprocesses", None)
    cards = "auto" if given in {"auto", "logical"} else int(given or 0)
    if namespace.ascend_model_input and not namespace.ascend_model:
        raise UsageError(
            "--ascend-model=input=... has no effect without a model", hint="add --ascend-model=PACKAGE:FACTORY"
        )
    if namespace.ascend_seed and not namespace.ascend_explore:
        raise UsageError("--ascend-explore=seed=... has no effect without a time", hint="give 10m,seed=5")
    if namespace.ascend_library and (namespace.ascend_model or namespace.ascend_explore or namespace.ascend_cases):
        raise UsageError(
            "--ascend-library excludes --ascend-model, --ascend-cases and --ascend-explore", hint="give one of them"
        )
    path = any("exploring.py" not in each for each in namespace.file_or_dir)
    others = {"--ascend-model": namespace.ascend_model, "--ascend-suite": namespace.ascend_suite, "a path": path}
    for what, other in others.items():
        if namespace.ascend_explore and other:
            raise UsageError(f"--ascend-explore and {what} exclude each other", hint="give one of the two")
    found |= {
        "baselines": _baselines(namespace.ascend_baselines, invocation_folder, stores=found["store_goldens"]),
        "against": _against(namespace.ascend_against, invocation_folder),
        "isolation": _isolation(namespace, found["isolation"]),
        "suites": _suites(found["suites"], namespace),
    }
    devices = cards if isinstance(cards, int) else 0
    emulator = EmulatorSettings(devices=devices, **settings)
    return Options(**found, cards=cards, emulator=emulator, former=tuple(former))


def _value(option: Field[Any], given: Any, invocation_folder: Path) -> Any:
    """Return the value for the field of an option. Relative paths start where pytest was started."""
    as_value = option.metadata["read"]
    if isinstance(given, list):
        return tuple(_placed(as_value(each), invocation_folder) for each in given)
    if given is None or isinstance(given, bool):
        return _placed(option.default if given is None else given, invocation_folder)
    try:
        return _placed(as_value(given), invocation_folder)
    except UsageError as error:
        if _name(option) in error.message:
            raise
        raise UsageError(f"{_name(option)}={error.message}", hint=error.hint) from None


def _placed(value: Any, invocation_folder: Path) -> Any:
    return invocation_folder / value if isinstance(value, Path) else value


def _suites(given: tuple[str, ...], namespace: argparse.Namespace) -> tuple[str, ...]:
    """Return the names of suites. Raises UsageError for an unknown one, or together with paths or a model."""
    wanted = tuple(name.strip() for each in given for name in each.split(",") if name.strip())
    from pytest_ascend.coverage.manifest import names  # noqa: PLC0415  (loaded with every pytest, needed by few)

    known = names(folder("suites"))
    for name in wanted:
        if name not in known:
            raise UsageError(f"--ascend-suite={name}: there is no such suite", hint=choice(name, known))
    for what, other in (
        ("a path", namespace.file_or_dir),
        ("--ascend-model", namespace.ascend_model),
        ("--ascend-library", namespace.ascend_library),
        ("--ascend-cases", namespace.ascend_cases),
    ):
        if wanted and other:
            raise UsageError(f"--ascend-suite and {what} exclude each other", hint="give one of the two")
    return wanted


def _isolation(namespace: argparse.Namespace, wanted: str) -> str:
    """Return auto, on or off. A debugger needs the terminal, and therefore this process."""
    debugs = [name for name, on in (("--pdb", namespace.usepdb), ("--trace", namespace.trace)) if on]
    if debugs and wanted == "on":
        raise UsageError(f"{debugs[0]} cannot debug child processes", hint="remove --ascend-isolation=on")
    return "off" if debugs else wanted


def _against(given: str | None, invocation_folder: Path) -> Path | None:
    if given is None:
        return None
    path = invocation_folder / given
    log = path / "run.jsonl" if path.is_dir() else path
    if not log.is_file():
        raise UsageError(f"--ascend-against={given}: there is no run log {log}", hint="give an earlier report folder")
    return log


def _baselines(given: str | None, invocation_folder: Path, *, stores: bool) -> Path:
    if given is None and stores:
        raise UsageError(
            "--ascend-baselines=update=yes would write into the bundled baselines",
            hint="name a folder of your own: --ascend-baselines=DIR,update=yes",
        )
    if given is None:
        return folder("baselines")
    path = invocation_folder / given
    if not path.is_dir() and (path.exists() or not stores):
        raise UsageError(f"--ascend-baselines={given}: there is no folder {path}", hint="name a folder with goldens")
    return path
