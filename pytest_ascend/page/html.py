"""A page as one file that loads nothing: this module escapes and assembles, templates do the layout."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from pytest_ascend.page import View
from pytest_ascend.page.changes import change_data, changes_of, name_of
from pytest_ascend.page.page import SYMBOLS, combination, label_of, page_of
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.reading import LOG
from pytest_ascend.system import figures
from pytest_ascend.system.programs import without_garbage_collection
from pytest_ascend.system.templates import templates_of
from pytest_ascend.system.version import __version__
from pytest_ascend.verdict.columns import headings
from pytest_ascend.verdict.diff import CANNOT_TELL, NO, YES, Diff
from pytest_ascend.verdict.phrase import LANGUAGES, SILENCE, Phrase, Value, say, table
from pytest_ascend.verdict.summary import CONFORMS, DOES_NOT_CONFORM, INCOMPLETE, Summary

#: The page of a run, beside its log.
PAGE = "conformance.html"


def render_diff(diff: Diff) -> str:
    """Return a comparison as a page that loads nothing."""
    before, after = diff.before.run.header.stack, diff.after.run.header.stack
    # Answers use the colours of verdicts.
    kind = {YES: CONFORMS, NO: DOES_NOT_CONFORM, CANNOT_TELL: INCOMPLETE}[diff.answer]
    page = View(
        title=f"{name_of(before)} → {name_of(after)} · pytest-ascend",
        kind_of_page=say("page.diff"),
        looks=f"kind-{kind}",
        label=label_of(after) or label_of(before) or SILENCE,
        heading=say(f"diff.heading.{diff.answer}"),
        changes=changes_of(diff, linked=False),
        sides=tuple(
            View(
                title=say(f"diff.{name}"),
                opening=each.verdict.opening,
                body=each.verdict.body,
                combination=tuple(combination(each.run.header.stack)),
            )
            for name, each in (("before", diff.before), ("after", diff.after))
        ),
    )
    return place("diff.html", ("common.js",), page, {"changes": change_data(diff, linked=False)})


@without_garbage_collection()
def render(summary: Summary, *, against: Summary | None = None) -> str:
    """Return the conformance page of a run: HTML without network access, which runs no script but its own.

    ``against`` is an earlier run; the first screen says what changed since.
    """
    page = page_of(summary, against=against)
    scripts = ("common.js", "case.js", "conformance.js")
    return place("conformance.html", scripts, page, page.data, details=page.details)


def place(template: str, scripts: tuple[str, ...], page: object, data: Mapping[str, Any], *, details: str = "") -> str:
    """Render a template with a prepared page; ``data`` is for its scripts.

    ``details`` is base64 of more data, unpacked when needed.
    """
    folder = files("pytest_ascend.page") / "templates"
    # Files of the package are trusted.
    style, *each = (Markup((folder / name).read_text(encoding="utf-8")) for name in ("page.css", *scripts))  # noqa: S704
    script = Markup("").join(each)
    words = {"words": {code: {**table(code), **headings(code)} for code in LANGUAGES}, "symbols": SYMBOLS}
    # for_script returns nothing that could close the element.
    texts = {name: Markup(codec.for_script(each)) for name, each in (("data", data), ("words", words))}  # noqa: S704
    return _environment().get_template(template).render(page=page, style=style, script=script, details=details, **texts)


def page_beside(log: Path, into: Path) -> str:
    """Return the address of a log's own page relative to a folder; "" if there is none."""
    page = log.with_name(page_name(log))
    return f"./{quote(Path(os.path.relpath(page.resolve(), into.resolve())).as_posix())}" if page.is_file() else ""


def page_name(log: Path) -> str:
    """Return the file name of a log's page; a log that is not the latest of its folder has a name of its own."""
    return PAGE if log.name == LOG else f"{log.stem}.html"


@cache
def _environment() -> Environment:
    found = templates_of("pytest_ascend.page")
    with contextlib.suppress(OSError, RuntimeError):  # this user has no safe folder
        found.bytecode_cache = _Compiled(pattern=f"pytest-ascend-{__version__}-%s.cache")
    words = {"say": _say, "show": _shown, "attr": _attribute, "word": lambda key: str(say(key))}
    found.globals.update(words, symbols=SYMBOLS, languages=LANGUAGES, share=figures.share)
    return found


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates in jinja's folder of this user; if that fails, they are compiled each time."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store a template if there is room."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def _say(phrase: Phrase | str, **values: Value) -> Markup:
    """Render a phrase, or that of a key, so that the script can translate it."""
    phrase = phrase if isinstance(phrase, Phrase) else say(phrase, **values)
    return Markup('<span data-say="{}">{}</span>').format(_key(phrase), str(phrase))


def _shown(value: Phrase | str) -> Markup:
    return _say(value) if isinstance(value, Phrase) else escape(figures.visible(value))


def _attribute(name: str, phrase: Phrase | str) -> Markup:
    phrase = phrase if isinstance(phrase, Phrase) else say(phrase)
    return Markup(' {}="{}" data-say-{}="{}"').format(name, str(phrase), name, _key(phrase))


def _key(phrase: Phrase) -> str:
    data = phrase.to_data()
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
