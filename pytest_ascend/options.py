"""The options of ``pytest --ascend``: declared here, and read here only, once, into something that cannot change."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.bundled import folder
from pytest_ascend.errors import UsageError
from pytest_ascend.records.case import LEVELS
from pytest_ascend.sizes import parse_size

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
    "--ascend-standard": {
        "metavar": "NAME",
        "help": "the rule by which numbers are judged (default: the project's own)",
    },
    "--ascend-fault": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "plant a fault in the emulated device, by name or as module:attribute; may be repeated",
    },
    "--ascend-emulated-memory": {
        "metavar": "SIZE",
        "help": "memory of each emulated device, such as 512MiB or 8GiB",
    },
    "--ascend-store-goldens": {
        "action": "store_true",
        "help": "store what cpu_reference(..., golden=NAME) computes in --ascend-baselines, instead of reading it",
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the user asked for. ``standard`` is "" for the default rule, ``emulated_memory_bytes`` 0 for the default."""

    device: str = "auto"
    level: str = "standard"
    baselines: Path
    report: Path
    standard: str = ""
    faults: tuple[str, ...] = ()
    emulated_memory_bytes: int = 0
    store_goldens: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Give what a reader of the run log may want to see, as builtins."""
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
        standard=namespace.ascend_standard or "",
        faults=tuple(namespace.ascend_fault),
        emulated_memory_bytes=parse_size(memory) if memory is not None else 0,
        store_goldens=namespace.ascend_store_goldens,
    )


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
