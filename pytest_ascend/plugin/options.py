"""The options of ``pytest --ascend``: declared here, and read here only, once, into something that cannot change."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.coverage.shards import Shard
from pytest_ascend.coverage.shards import parse as parse_shard
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import LEVELS
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.sizes import parse_share, parse_size

#: Name, and what argparse is to know of it. All of them do nothing without ``--ascend``.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--ascend": {
        "action": "store_true",
        "help": "test the Ascend stack of this machine; with no path given, the bundled suites run",
    },
    "--ascend-device": {
        "default": "auto",
        "metavar": "DEVICE",
        "help": "auto (default), npu[:N], emulated[:N], cuda[:N] or cpu. auto takes the NPU, and the emulated device "
        "on a machine without any sign of Ascend",
    },
    "--ascend-level": {
        "default": "standard",
        "choices": LEVELS,
        "help": "how much of the bundled suites runs (default: standard)",
    },
    "--ascend-baselines": {
        "metavar": "DIR",
        "help": "folder of goldens and measurements to compare with (default: the bundled one)",
    },
    "--ascend-report": {
        "default": "ascend-report",
        "metavar": "DIR",
        "help": "folder for run.jsonl and conformance.html (default: ascend-report)",
    },
    "--ascend-against": {
        "metavar": "RUN",
        "help": "an earlier run, as its run.jsonl or the folder of it: the page says what changed since",
    },
    "--ascend-shard": {
        "metavar": "K/N",
        "help": "run part K of N, divided by recorded durations; pytest-ascend report merge puts the logs together",
    },
    "--ascend-standard": {
        "metavar": "NAME",
        "help": "the rule by which numbers are judged (default: the project's own)",
    },
    "--ascend-fault": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "plant a fault in the emulated device: a name, module:attribute, or crash:after=100; may be repeated",
    },
    "--ascend-expectations": {
        "action": "append",
        "default": [],
        "metavar": "FILE",
        "help": "known deviations beside the bundled ones, as JSON (docs/expectations.md); may be repeated",
    },
    "--ascend-emulated-numerics": {
        "default": "",
        "metavar": "NUMERICS",
        "help": "exact: the emulated device computes as the CPU does (default); chip or chip:SEED: it is right in "
        "another way, as a chip may be",
    },
    "--ascend-emulated-cann": {
        "default": "",
        "metavar": "VERSION",
        "help": "the CANN that the emulated device answers as, such as 8.1.RC1 (default: the one that fits torch_npu)",
    },
    "--ascend-slowdown": {
        "metavar": "SHARE",
        "default": "5%",
        "help": "slow-down that a benchmark must exclude to be called not slower than its baseline (default: 5%%)",
    },
    "--ascend-emulated-memory": {
        "metavar": "SIZE",
        "help": "memory of each emulated device, such as 512MiB or 8GiB",
    },
    "--ascend-isolation": {
        "default": "auto",
        "choices": ("auto", "on", "off"),
        "help": "run cases in child processes, which a sick device may take down: auto (default) does on npu and "
        "emulated, and not with --pdb or --trace",
    },
    "--ascend-case-deadline": {
        "metavar": "SECONDS",
        "help": "time that a case may take (default: by what it took in the run before, and at least a minute)",
    },
    "--ascend-deadline": {
        "metavar": "SECONDS",
        "help": "time that the whole run may take; what is left can be done with --ascend-resume",
    },
    "--ascend-resume": {
        "action": "store_true",
        "help": "continue the run whose log is in the report folder; what it proved is not run again",
    },
    "--ascend-model": {
        "metavar": "NAME",
        "help": "test a model of yours, package.module:factory, instead of the bundled suites",
    },
    "--ascend-model-input": {
        "metavar": "NAME",
        "help": "what it is called with: package.module:function, or shapes as in 8x3x224x224",
    },
    "--ascend-store-goldens": {
        "action": "store_true",
        "help": "store what cpu_reference(..., golden=NAME) computes in --ascend-baselines, instead of reading it",
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for. Where nothing was said, texts are "" and ``emulated_memory_bytes`` is 0.

    ``cards`` is how many devices to use, or "auto"; deadlines of 0 are those that are worked out.
    """

    device: str = "auto"
    level: str = "standard"
    baselines: Path
    report: Path
    against: Path | None = None
    shard: Shard | None = None
    standard: str = ""
    faults: tuple[str, ...] = ()
    expectations: tuple[Path, ...] = ()
    slowdown: float = 0.05
    emulated_memory_bytes: int = 0
    emulated_numerics: str = ""
    emulated_cann: str = ""
    store_goldens: bool = False
    isolation: str = "auto"
    cards: int | str = 1
    case_deadline_s: float = 0.0
    deadline_s: float = 0.0
    resume: bool = False
    model: str = ""
    model_input: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what a reader of the run log may want to see, as builtins."""
        return {
            "device": self.device,
            "standard": self.standard,
            "faults": list(self.faults),
            "emulated_memory_bytes": self.emulated_memory_bytes,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """Which tests pytest was told to run: ``paths`` as given, and every option that leaves some out, as written."""

    paths: tuple[str, ...] = ()
    narrowed_by: tuple[str, ...] = ()


def declare(parser: pytest.Parser) -> None:
    """Tell pytest of the options."""
    group = parser.getgroup("ascend", "conformance of Ascend NPUs")
    for name, settings in OPTIONS.items():
        group.addoption(name, **settings)


def is_on(namespace: argparse.Namespace) -> bool:
    """Whether this run tests an Ascend stack, and is not only about pytest's help."""
    return bool(getattr(namespace, "ascend", False)) and not (namespace.help or namespace.version)


def only_looks(namespace: argparse.Namespace) -> bool:
    """Whether nothing will be executed, as with ``--collect-only``."""
    names = ("collectonly", "showfixtures", "show_fixtures_per_test", "markers")
    return any(getattr(namespace, name, False) for name in names)


def read(namespace: argparse.Namespace, invocation_folder: Path) -> Options:
    """Check what was given and give it as :class:`Options`. Raises UsageError with one clear message."""
    baselines = _baselines(namespace.ascend_baselines, invocation_folder, stores=namespace.ascend_store_goldens)
    memory = namespace.ascend_emulated_memory
    return Options(
        device=namespace.ascend_device,
        level=namespace.ascend_level,
        baselines=baselines,
        report=invocation_folder / namespace.ascend_report,
        shard=parse_shard(namespace.ascend_shard) if namespace.ascend_shard is not None else None,
        against=_against(namespace.ascend_against, invocation_folder),
        standard=namespace.ascend_standard or "",
        faults=tuple(namespace.ascend_fault),
        expectations=tuple(invocation_folder / each for each in namespace.ascend_expectations),
        slowdown=parse_share(namespace.ascend_slowdown),
        emulated_memory_bytes=parse_size(memory) if memory is not None else 0,
        emulated_numerics=namespace.ascend_emulated_numerics,
        emulated_cann=namespace.ascend_emulated_cann,
        store_goldens=namespace.ascend_store_goldens,
        isolation=_isolation(namespace),
        cards=_cards(namespace),
        case_deadline_s=_seconds("--ascend-case-deadline", namespace.ascend_case_deadline),
        deadline_s=_seconds("--ascend-deadline", namespace.ascend_deadline),
        resume=namespace.ascend_resume,
        model=_model(namespace),
        model_input=namespace.ascend_model_input or "",
    )


def _model(namespace: argparse.Namespace) -> str:
    """Return the model's name. Raises UsageError for inputs without a model."""
    if namespace.ascend_model_input and not namespace.ascend_model:
        raise UsageError("--ascend-model-input says nothing without a model", hint="add --ascend-model=package:factory")
    return namespace.ascend_model or ""


def _isolation(namespace: argparse.Namespace) -> str:
    """Return auto, on or off. A debugger needs the terminal, and so this process."""
    debugs = [name for name, on in (("--pdb", namespace.usepdb), ("--trace", namespace.trace)) if on]
    if debugs and namespace.ascend_isolation == "on":
        raise UsageError(f"{debugs[0]} cannot look into child processes", hint="leave --ascend-isolation=on out")
    return "off" if debugs else str(namespace.ascend_isolation)


def _cards(namespace: argparse.Namespace) -> int | str:
    """Return what pytest-xdist's -n says, where it is installed: with isolation, it is the number of devices."""
    given = getattr(namespace, "numprocesses", None)
    return "auto" if given in {"auto", "logical"} else int(given or 1)


def _seconds(name: str, text: str | None) -> float:
    """Read a time of up to a year, 0.0 where none is given."""
    if text is None:
        return 0.0
    try:
        value = float(text) if text.isascii() else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 366 * 86400:
        raise UsageError(f"{name}={text}: that is no time", hint="give seconds, such as 600")
    return value


def chosen(namespace: argparse.Namespace) -> Chosen:
    """Say what pytest's own options select."""
    values = (
        ("-k", namespace.keyword),
        ("-m", namespace.markexpr),
        ("--lf", getattr(namespace, "lf", False)),
        ("--sw", getattr(namespace, "stepwise", False)),
        ("--deselect", " ".join(namespace.deselect or ())),
        ("--ignore", " ".join(namespace.ignore or ())),
        ("--ignore-glob", " ".join(namespace.ignore_glob or ())),
    )
    narrowed_by = tuple(name if value is True else f"{name} {value}" for name, value in values if value)
    return Chosen(paths=tuple(namespace.file_or_dir), narrowed_by=narrowed_by)


def _against(given: str | None, invocation_folder: Path) -> Path | None:
    if given is None:
        return None
    path = invocation_folder / given
    log = path / "run.jsonl" if path.is_dir() else path
    if not log.is_file():
        raise UsageError(f"--ascend-against={given}: there is no run log {log}", hint="name an earlier run's folder")
    return log


def _baselines(given: str | None, invocation_folder: Path, *, stores: bool) -> Path:
    if given is None and stores:
        raise UsageError(
            "--ascend-store-goldens would write into the bundled baselines",
            hint="name a folder of your own: --ascend-baselines=DIR",
        )
    if given is None:
        return folder("baselines")
    path = invocation_folder / given
    if not path.is_dir() and (path.exists() or not stores):
        raise UsageError(f"--ascend-baselines={given}: there is no folder {path}", hint="name a folder with goldens")
    return path
