"""Locate the suites, baselines and tables bundled with the package, and import modules of suites."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_ascend.system.errors import AscendError

PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return the bundled folder ``suites`` or ``baselines``: inside an installed package, beside it in a checkout.

    Raises AscendError if the installation lacks it.
    """
    for candidate in (PACKAGE / name, PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    message = f"this installation of pytest-ascend lacks its folder '{name}' (looked beside and inside {PACKAGE})"
    raise AscendError(message, hint="reinstall it; in a checkout, look at git status")


def table(name: str) -> Any:
    """Return the data of a JSON file bundled with the package, such as "doctor/settings.json"."""
    return json.loads((PACKAGE / name).read_text(encoding="utf-8"))


def beside(module: str, name: str) -> Any:
    """Return the data of a JSON file in the folder of a module; ``module`` is its ``__file__``."""
    return json.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


def module(name: str, root: Path | None = None) -> ModuleType:
    """Import a module such as ``suites.models.computation``, from inside the package, or beside it in a checkout.

    ``root`` is the folder that holds ``suites``. Raises AscendError if another package of that name hides it.
    """
    root = root or folder("suites").parent
    if root == PACKAGE:
        return importlib.import_module(f"{PACKAGE.name}.{name}")
    sys.path.insert(0, str(root))
    try:
        found = importlib.import_module(name)
    finally:
        sys.path.remove(str(root))
    if root.resolve() not in Path(found.__file__ or "").resolve().parents:
        above = name.partition(".")[0]
        message = f"another package '{above}' hides {root / above}: {found.__file__}"
        raise AscendError(message, hint=f"start the command in a folder without a '{above}' of its own")
    return found
