"""Templates of pages and other texts."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_ascend.system.text import visible


def templates_of(package: str, folder: str = "templates", **how: Any) -> Environment:
    """Return a package's templates: they escape values, unless they are no HTML, and raise for undefined names."""
    how = {"autoescape": True, "finalize": _visible, "undefined": StrictUndefined, **how}
    found = Environment(loader=PackageLoader(package, folder), trim_blocks=True, lstrip_blocks=True, **how)  # noqa: S701
    # The source expression with which a content security policy allows exactly this text.
    found.filters["hash"] = lambda text: f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    return found


def _visible(value: Any) -> Any:
    """Make invisible characters visible in every text, even if the page forgets to."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
