"""A page as one file that loads nothing: the template places, this module only escapes and assembles."""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_ascend.report import codec, figures
from pytest_ascend.report.page import Page, page_of
from pytest_ascend.report.summary import Summary

_TEMPLATES = files("pytest_ascend.report") / "templates"


def render(summary: Summary) -> str:
    """Give the conformance page of a run: HTML that needs no network, in which nothing acts but its own script."""
    return render_page(page_of(summary))


def render_page(page: Page) -> str:
    """Place an arranged page in its template."""
    style, script = _asset("conformance.css"), _asset("conformance.js")
    return (
        _environment()
        .get_template("conformance.html")
        .render(
            page=page,
            style=style,
            style_hash=_hash(style),
            script=script,
            script_hash=_hash(script),
            data=Markup(codec.for_script(page.data)),  # noqa: S704 - for_script leaves nothing that could end the element
        )
    )


def write(path: Path, text: str) -> None:
    """Write a page beside its place and move it there, so that no reader ever sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _environment() -> Environment:
    """Give an environment that escapes whatever the name of the template, and where a typo is an error."""
    return Environment(
        loader=PackageLoader("pytest_ascend.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: Any) -> Any:
    """Make unseen characters visible in every text, also where the page forgot to."""
    return figures.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> Markup:
    """Read a part of the package, which is trusted."""
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))  # noqa: S704


def _hash(inline: str) -> str:
    """Give the source expression by which a content security policy allows this very text and no other."""
    return f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"
