"""Options of ``pytest --ascend``: declared here, and read once into an immutable record."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
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


def _integer(problem: str, least: int, most: int, hint: str, text: str) -> int:
    """Read a whole number from ``least`` to ``most``; ``problem`` says what is wrong with any other text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(f"{most}")
    if not is_number or not least <= int(text) <= most:
        raise UsageError(f"{text[:40]}{problem}", hint=hint)
    return int(text)


# Too many values for anyone to prepare a run for each challenge.
_challenge = partial(_integer, " is not a challenge", 0, 10**18 - 1, "give a whole number of at most 18 digits")
_seed = partial(_integer, ": not a seed", 0, 2**32 - 1, "give an integer from 0 to 4294967295")
# Processes on this machine, each with its own card.
_ranks = partial(_integer, ": invalid number of ranks", 2, 16, "give a number from 2 to 16")


def _shard(text: str) -> Shard:
    from pytest_ascend.coverage.shards import parse  # noqa: PLC0415  (loaded with every pytest, needed by few)

    return parse(text)


def _yes(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise UsageError(f"{text}: neither yes nor no", hint="give yes, or leave it out")
    return text == "yes"


#: Rows by field: help line, metavar, and the option's name where it differs. A field with a ``key`` is one of several
#: settings of its option, as in ``--ascend-deadline=case=60``; ``old`` is its former name.
_ROWS: dict[str, dict[str, Any]] = table("plugin/options.json")


def option(name: str, default: Any, read: Callable[[str], Any] = str, **declared: Any) -> Any:
    """Declare the option of a field of :class:`Options`: its default, its parser and arguments for argparse."""
    row = _ROWS[name]
    declared |= {each: row[each] for each in ("metavar", "choices", "help") if each in row}
    if default is False:
        declared["action"] = "store_true"
    if default == ():
        declared.update(action="append", default=[])
    named = {"name": row.get("option") or f"--ascend-{name.replace('_', '-')}", "key": "", "old": "", **row}
    return field(default=default, metadata={**named, "read": read, "declared": declared})


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options, one field each, with default and parser; pytest's options are declared from this table.

    They do nothing without ``--ascend``. A text option that was not given is ""; a deadline of 0 is derived from
    earlier runs. ``cards`` is the number of devices or "auto", from pytest-xdist's ``-n``; 0 if it was not given.
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
    seed: int = option("seed", 1, _seed)
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
        """Return the options that determine what a case computes, as command-line arguments, to rerun a case."""
        device = "emulated" if is_emulated and self.device == "auto" else self.device
        given, usual = replace(self, device=device), replace(Options(), baselines=folder("baselines"))
        mine = (each for each in _OWN if each.name in _OF_A_CASE)
        pairs = [(each, getattr(given, each.name), getattr(usual, each.name)) for each in mine]
        if is_emulated:
            pairs += [(each, getattr(self.emulator, each.name), each.default) for each in emulated.OPTIONS]
        return [
            f"{_name(each)}={_plain(one)}"
            for each, value, default in pairs
            if value != default
            for one in (value if isinstance(value, tuple) else (value,))
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all options as builtins, in the form of the run log."""
        names = (each.name for each in fields(self) if each.name not in {"emulator", "former"})
        return {**{name: _plain(getattr(self, name)) for name in names}, **self.emulator.to_dict()}


#: Options that determine what a case computes and how it is judged.
_OF_A_CASE = (
    *("device", "level", "baselines", "standard", "expectations", "ranks", "isolation", "model", "model_input"),
    *("explore_s", "seed", "library", "cases", "challenge"),
)
#: Fields set by an option; then also those of the emulated device.
_OWN = [each for each in fields(Options) if each.metadata]
_FIELDS = [*_OWN, *emulated.OPTIONS]
#: Options that set several fields, each with its fields.
_SEVERAL = {
    name: [each for each in _FIELDS if each.metadata["name"] == name]
    for name in dict.fromkeys(each.metadata["name"] for each in _FIELDS if each.metadata["key"])
}


def _plain(value: Any) -> Any:
    """Return builtins. Paths below the current folder become relative."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        here = Path.cwd()
        return str(value.relative_to(here) if value.is_relative_to(here) else value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _name(of: Field[Any]) -> str:
    """Return the prefix of a field's value on the command line: ``--ascend-deadline=case`` or ``--ascend-level``."""
    return f"{of.metadata['name']}={of.metadata['key']}".removesuffix("=")


def _attribute(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _text_name(of: Field[Any]) -> str:
    return _attribute(of.metadata["old"] or of.metadata["name"])


def declare(parser: pytest.Parser) -> None:
    """Declare the options to pytest; former names get no help text."""
    group = parser.getgroup("ascend", "conformance of Ascend NPUs")
    group.addoption(
        "--ascend",
        action="store_true",
        help="test the Ascend stack of this machine; with no path given, the bundled suites run",
    )
    for each in _FIELDS:
        name, old, declared = (each.metadata[part] for part in ("name", "old", "declared"))
        if old:
            group.addoption(old, **{**declared, "help": argparse.SUPPRESS})
        elif name not in _SEVERAL:
            group.addoption(name, **declared)
    for name, settings in _SEVERAL.items():
        written, lines = [], []
        for each in settings:
            declared = each.metadata["declared"]
            written.append(f"{_name(each)}=".removeprefix(f"{name}=") + declared.get("metavar", "yes"))
            lines.append(f"{written[-1]}: {declared['help']}")
        group.addoption(name, action="append", default=[], metavar=",".join(written[:2]), help="; ".join(lines))


def former_names() -> dict[str, str]:
    """Return the former names of options, each with its replacement."""
    return {each.metadata["old"]: f"{_name(each)}=..." for each in _FIELDS if each.metadata["old"]}


def names() -> tuple[str, ...]:
    """Return the names of all options, former ones last."""
    return tuple(dict.fromkeys(("--ascend", *(each.metadata["name"] for each in _FIELDS), *former_names())))


def expand(namespace: argparse.Namespace) -> list[str]:
    """Store each setting of a multi-valued option in the namespace entry of its field.

    Return a line for each option that was given by its former name. Raises UsageError for an unknown setting.
    """
    former = [
        f"{old} is now {new}; the former name goes with the next release"
        for old, new in former_names().items()
        if getattr(namespace, _attribute(old), None) not in (None, False, [])
    ]
    for name, settings in _SEVERAL.items():
        given = getattr(namespace, _attribute(name), None)
        setattr(namespace, _attribute(name), None)
        keys = {each.metadata["key"]: _text_name(each) for each in settings}
        keys.setdefault("", keys.get("run", ""))  # --ascend-deadline=2h is the deadline of the run
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
    """Return whether this run tests an Ascend stack: ``--ascend`` is given, ``--help`` and ``--version`` are not."""
    return bool(getattr(namespace, "ascend", False)) and not (namespace.help or namespace.version)


def unused_options(namespace: argparse.Namespace) -> list[str]:
    """Return options given without ``--ascend``, which would silently do nothing."""
    if getattr(namespace, "ascend", False):
        return []
    return [name for name in names() if getattr(namespace, _attribute(name)) not in (None, False, [])]


def only_looks(namespace: argparse.Namespace) -> bool:
    """Return whether no test will be executed, as with ``--collect-only``."""
    names = ("collectonly", "setupplan", "setuponly", "showfixtures", "show_fixtures_per_test", "markers")
    return any(getattr(namespace, name, False) for name in names)


def read(namespace: argparse.Namespace, invocation_folder: Path) -> Options:
    """Check the given options and return them as :class:`Options`. Raises UsageError with one clear message."""
    former = expand(namespace)
    found = {each.name: _value(each, getattr(namespace, _text_name(each)), invocation_folder) for each in _OWN}
    settings = emulated.read({each.name: getattr(namespace, _text_name(each)) for each in emulated.OPTIONS})
    # The number of devices: with isolation, pytest-xdist's -n, if xdist is installed
    processes = getattr(namespace, "numprocesses", None)
    cards: int | str = "auto" if processes in {"auto", "logical"} else int(processes or 0)
    found["suites"] = tuple(name.strip() for each in found["suites"] for name in each.split(",") if name.strip())
    _refuse_pairs(namespace, found["suites"])
    # A debugger needs the terminal, and therefore this process.
    for debugger, is_given in {"--pdb": namespace.usepdb, "--trace": namespace.trace}.items():
        if is_given and namespace.ascend_isolation == "on":
            raise UsageError(f"{debugger} cannot debug child processes", hint="remove --ascend-isolation=on")
        found["isolation"] = "off" if is_given else found["isolation"]
    if log := found["against"]:
        found["against"] = log = log / "run.jsonl" if log.is_dir() else log
        if not log.is_file():
            problem = f"--ascend-against={namespace.ascend_against}: there is no run log {log}"
            raise UsageError(problem, hint="give an earlier report folder")
    stores, given, goldens = found["store_goldens"], namespace.ascend_baselines, found["baselines"]
    if given is None and stores:
        raise UsageError(
            "--ascend-baselines=update=yes would write into the bundled baselines",
            hint="name a folder of your own: --ascend-baselines=DIR,update=yes",
        )
    if given is None:
        found["baselines"] = folder("baselines")
    elif not goldens.is_dir() and (goldens.exists() or not stores):
        raise UsageError(f"--ascend-baselines={given}: there is no folder {goldens}", hint="name a folder with goldens")
    emulator = EmulatorSettings(devices=0 if isinstance(cards, str) else cards, **settings)
    return Options(**found, cards=cards, emulator=emulator, former=tuple(former))


def _value(option: Field[Any], given: Any, invocation_folder: Path) -> Any:
    """Return the value for an option's field. Relative paths start at pytest's invocation folder."""
    as_value, texts = option.metadata["read"], given if isinstance(given, list) else [given]
    try:
        values = [as_value(each) if isinstance(each, str) else each for each in texts]
    except UsageError as error:
        if isinstance(given, list) or _name(option) in error.message:
            raise
        raise UsageError(f"{_name(option)}={error.message}", hint=error.hint) from None
    values = [option.default if each is None else each for each in values]
    values = [invocation_folder / each if isinstance(each, Path) else each for each in values]
    return tuple(values) if isinstance(given, list) else values[0]


def _refuse_pairs(namespace: argparse.Namespace, suites: Sequence[str]) -> None:
    """Raise UsageError for options that exclude each other, options that lack another, and unknown suites."""
    model, explores, library = namespace.ascend_model, namespace.ascend_explore, namespace.ascend_library
    if namespace.ascend_model_input and not model:
        raise UsageError(
            "--ascend-model=input=... has no effect without a model", hint="add --ascend-model=PACKAGE:FACTORY"
        )
    if namespace.ascend_seed and not explores:
        raise UsageError("--ascend-explore=seed=... has no effect without a time", hint="give 10m,seed=5")
    if library and (model or explores or namespace.ascend_cases):
        raise UsageError(
            "--ascend-library excludes --ascend-model, --ascend-cases and --ascend-explore", hint="give one of them"
        )
    if suites:
        from pytest_ascend.coverage.manifest import names  # noqa: PLC0415  (loaded with every pytest, needed by few)

        known = names(folder("suites"))
        for name in suites:
            if name not in known:
                raise UsageError(f"--ascend-suite={name}: there is no such suite", hint=choice(name, known))
    path, cases = namespace.file_or_dir, namespace.ascend_cases
    others = any("exploring.py" not in each for each in path)
    given = {
        "--ascend-explore": explores and {"--ascend-model": model, "--ascend-suite": suites, "a path": others},
        "--ascend-suite": suites
        and {"a path": path, "--ascend-model": model, "--ascend-library": library, "--ascend-cases": cases},
    }
    for name, excluded in given.items():
        if both := [what for what, other in (excluded or {}).items() if other]:
            raise UsageError(f"{name} and {both[0]} exclude each other", hint="give one of the two")
