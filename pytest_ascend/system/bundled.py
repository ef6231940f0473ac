"""Where the suites and baselines that come with the package are."""

from __future__ import annotations

from pathlib import Path

from pytest_ascend.errors import AscendError

PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return the bundled folder ``suites`` or ``baselines``: inside an installed package, beside it in a checkout.

    Raises AscendError where the installation lacks it.
    """
    for candidate in (PACKAGE / name, PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise AscendError(
        f"this installation of pytest-ascend lacks its folder '{name}' (looked beside and inside {PACKAGE})",
        hint="install it anew; in a checkout, look at git status",
    )
