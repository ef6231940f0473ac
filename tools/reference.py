"""Write docs/reference.md and its Chinese page from the code: options, commands, fixtures, outcomes, files, exit codes.

    python tools/reference.py            writes both pages
    python tools/reference.py --check    exits 1 if a page does not match the code

Only introductions and headings are written by hand, in ``reference.json``; the rest is read from the declarations.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from pytest_ascend import plugin
from pytest_ascend.cli import cli
from pytest_ascend.errors import EXIT_CODES
from pytest_ascend.plugin import options
from pytest_ascend.records.outcome import OUTCOMES
from tools.evaluation.support import table

DOCS = Path(__file__).resolve().parents[1] / "docs"

#: Introductions in English and Chinese; output of commands and options; environment variables that processes read
#: besides torch_npu's and CANN's own; headings and table heads in both languages.
TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
WORDS: dict[str, tuple[str, str]] = TEXTS["words"]


def page(language: int) -> str:
    """Return the reference: 0 in English, 1 with Chinese introduction and headings."""

    def word(key: str) -> str:
        return WORDS[key][language]

    files, variables = ([(f"`{name}`", says) for name, says in TEXTS[of].items()] for of in ("files", "variables"))
    former = ((f"`{old}`", f"`{new}`") for old, new in options.former_names().items())
    sections: tuple[tuple[str, tuple[str, ...], Iterable[tuple[str, ...]]], ...] = (
        (f"## {word('options')}", ("option", "meaning"), options_of_pytest()),
        (f"### {word('former names').capitalize()}", ("former name", "now"), former),
        (f"## {word('outcomes')}", ("outcome", "meaning", "conforms"), outcomes(word)),
        (f"## {word('exit')}", ("code", "meaning"), EXIT_CODES.items()),
        (f"## {word('fixtures')}", ("fixture", "meaning"), fixtures()),
        (f"## {word('markers')}", ("marker", "meaning"), markers()),
        (f"## {word('files')}", ("file", "meaning"), files),
        (f"## {word('variables')}", ("variable", "meaning"), variables),
    )
    parts = ["\n".join(TEXTS["introductions"][language])]
    for title, heads, rows in sections:
        parts += [title, "\n".join(table([word(each) for each in heads], rows))]
    parts += [f"## {word('commands')}", *commands(cli, "pytest-ascend", (word("option"), word("meaning")))]
    return anchored("\n\n".join(part.strip() for part in parts) + "\n", language)


def anchored(text: str, language: int) -> str:
    """Return the page with English anchors before its headings, so that links fit both languages."""
    for english, own in (words for words in WORDS.values() if language and words[0][0].isupper()):
        text = text.replace(f"## {own}\n", f'<a id="{english.lower().replace(" ", "-")}"></a>\n\n## {own}\n')
    return text


def options_of_pytest() -> Iterator[tuple[str, str]]:
    """Yield the options, as declared to pytest."""
    found: list[tuple[str, dict[str, Any]]] = []
    group = SimpleNamespace(addoption=lambda name, **declared: found.append((name, declared)))
    options.declare(SimpleNamespace(getgroup=lambda *_: group))  # type: ignore[arg-type]
    for name, declared in (each for each in found if each[1]["help"] != argparse.SUPPRESS):
        choices = declared.get("choices")
        value = "{" + ",".join(choices) + "}" if choices else declared.get("metavar", "")
        yield f"`{name}={value}`" if value else f"`{name}`", declared["help"].replace("%%", "%")


def outcomes(word: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield the outcomes with the first sentence of their descriptions."""
    for name, kind in OUTCOMES.items():
        conforms = "—" if name == "not-emulated" else word("yes" if kind.conforms else "no")
        yield f"`{name}`", plain(inspect.getdoc(kind) or ""), conforms


def fixtures() -> Iterator[tuple[str, str]]:
    """Yield the plugin's fixtures."""
    for name, value in vars(plugin).items():
        function = getattr(value, "_fixture_function", None) or getattr(value, "__pytest_wrapped__", None)
        function = getattr(function, "obj", function)
        if function is not None and not name.startswith("_"):
            yield f"`{name}`", plain(inspect.getdoc(function) or "")


def markers() -> Iterator[tuple[str, str]]:
    """Yield the markers, as declared to pytest."""
    lines: list[str] = []
    off = SimpleNamespace(ascend=False, help=False, version=False)
    config = SimpleNamespace(addinivalue_line=lambda _, line: lines.append(line), option=off)
    plugin.pytest_configure(config)  # type: ignore[arg-type]
    for line in lines:
        name, _, says = line.partition("): ")
        yield f"`{name})`", says


def commands(command: click.Command, path: str, heads: tuple[str, str]) -> Iterator[str]:
    """Yield a command with its options, preceded by those of its group."""
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if its := command.get_command(context, name):
                yield from commands(its, f"{path} {name}", heads)
        if not command.invoke_without_command:
            return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### {path}"
    yield f"`{path} {usage}`"
    yield plain(inspect.cleandoc(command.help or ""))
    rows = []
    for each in command.params:
        if isinstance(each, click.Option) and not each.hidden:
            value = "" if each.is_flag else f" {each.make_metavar(context)}"
            rows.append((f"`{', '.join(each.opts)}{value}`", plain(each.help or "")))
    if rows:
        yield "\n".join(table(heads, rows))


def plain(text: str) -> str:
    """Return a docstring as Markdown: double backticks become single, roles become code, lines are joined."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"\s+", " ", text).strip()


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is stale")
    check = parser.parse_args().check
    stale = []
    for language, name in enumerate(("reference.md", "reference.zh.md")):
        path, text = DOCS / name, page(language)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"stale: {', '.join(stale)}; run python tools/reference.py" if stale and check else f"written: {stale}")  # noqa: T201
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
