"""From the command line to a working device, before any conftest is read."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ascend.coverage import expectations, selection
from pytest_ascend.plugin import options
from pytest_ascend.plugin.preparation import prepare
from pytest_ascend.plugin.session import RunSetup
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import AscendError, DeviceUnavailable
from pytest_ascend.system.programs import without_garbage_collection
from pytest_ascend.system.text import visible


@contextlib.contextmanager
def one_clear_message() -> Iterator[None]:
    """Turn errors that the user can fix into pytest's own: a message, no traceback, the right exit code."""
    try:
        yield
    except DeviceUnavailable as error:
        # Before it is configured, pytest cannot exit with a custom code.
        sys.stderr.write(f"ERROR: {visible(str(error))}\n")
        raise SystemExit(error.exit_code) from None
    except AscendError as error:
        raise pytest.UsageError(visible(str(error))) from None


def narrowing(namespace: argparse.Namespace) -> tuple[str, ...]:
    """Return pytest's own options that exclude tests, as given."""
    options = {
        "-k": namespace.keyword,
        "-m": namespace.markexpr,
        "--lf": getattr(namespace, "lf", False),
        "--sw": getattr(namespace, "stepwise", False),
        "--deselect": " ".join(namespace.deselect or ()),
        "--ignore": " ".join(namespace.ignore or ()),
        "--ignore-glob": " ".join(namespace.ignore_glob or ()),
    }
    return tuple(name if value is True else f"{name} {value}" for name, value in options.items() if value)


@without_garbage_collection()
@one_clear_message()
def set_up(config: pytest.Config, args: list[str]) -> RunSetup:
    """Read the options and start the device; without a path in ``args``, add the bundled suites."""
    namespace, here = config.known_args_namespace, config.invocation_params.dir
    settings, suites = options.read(namespace, here), folder("suites").resolve()
    instead = next((path for path, (field, _) in selection.NAMED.items() if getattr(settings, field)), "")
    if settings.suites:
        _put(namespace, args, *(suites / name for name in settings.suites))
    elif not namespace.file_or_dir and instead:
        _put(namespace, args, suites / instead)
    paths = tuple(namespace.file_or_dir)
    scope = selection.scope(paths, suites, here)
    # Third-party cases may compute for days, or end their process.
    isolation = "on" if settings.cases and settings.isolation == "auto" else settings.isolation
    prepared = prepare(settings.device, settings=settings.emulator, isolation=isolation)
    if settings.standard:  # only after the device has started
        from pytest_ascend import precision  # noqa: PLC0415  (loads torch)

        precision.standard_of(settings.standard)
    if settings.cases:
        from pytest_ascend.operators import community  # noqa: PLC0415  (loads torch)

        community.read(settings.cases)
    if settings.library:
        from pytest_ascend.operators import libraries  # noqa: PLC0415  (loads torch)

        libraries.load(settings.library)
    if settings.model:
        from pytest_ascend.migration import target  # noqa: PLC0415  (loads torch)

        target.refuse_unusable(settings.model, settings.model_input)
    if scope != selection.OWN:
        # The conftests of the current folder are for other tests, and the suites may be in its virtual environment,
        # which pytest skips.
        if not paths:
            _put(namespace, args, suites)
        namespace.confcutdir = str(suites)
    setup = RunSetup(
        options=settings, paths=paths, narrowed_by=narrowing(namespace), scope=scope, suites=suites, prepared=prepared
    )
    # The known deviations of this combination: the bundled ones, then the user's.
    return replace(setup, expectations=expectations.load(setup.expected_by, setup.stack()))


def _put(namespace: argparse.Namespace, args: list[str], *paths: Path) -> None:
    """Make pytest collect these paths, instead of all bundled suites."""
    args[:0] = namespace.file_or_dir = [str(path) for path in paths]
