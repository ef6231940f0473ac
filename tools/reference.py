"""Write docs/reference.md and its Chinese page from the code: options, commands, fixtures, outcomes, files, exit codes.

    python tools/reference.py            writes both pages
    python tools/reference.py --check    exits 1 where a page is not what the code says

Only the introductions are written by hand, here; everything else is read from where it is declared.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from pytest_ascend import plugin
from pytest_ascend.cli import COMMANDS, cli
from pytest_ascend.errors import EXIT_CODES
from pytest_ascend.plugin import options
from pytest_ascend.records.outcome import OUTCOMES

DOCS = Path(__file__).resolve().parents[1] / "docs"

#: What the commands and options below write, by name.
FILES = {
    "ascend-report/run.jsonl": "the run log: one line a case ([format](run-log.md))",
    "ascend-report/conformance.html": "the page: one file, which loads nothing from elsewhere ([manual](report.md))",
    "baselines/golden/": "stored float64 results, with a hashed manifest",
    "baselines/measured/": "stored measurements, by chip, CANN and torch_npu ([manual](benchmarks.md))",
    "baselines/expectations.json": "known deviations, with reason, source and last day ([format](expectations.md))",
    "suites/manifest.json": "the frozen list of cases that must run",
}

#: What processes read, beside torch_npu's and CANN's own variables.
VARIABLES = {
    "PYTEST_ASCEND_CACHE": "folder of the emulated device's compiled libraries and of locks on goldens; the user's "
    "cache folder if not set",
    "PYTEST_ASCEND_CARD_LOCKS": "folder of locks on cards, where containers share them ([manual](survival.md))",
    "PYTEST_ASCEND_EMULATED_DEVICES": "number of emulated devices, 1 to 16; 2 if not set",
    "PYTEST_ASCEND_EMULATED_MEMORY": "as `--ascend-emulate=memory=...`",
    "PYTEST_ASCEND_EMULATED_NUMERICS": "as `--ascend-emulate=numerics=...`",
    "PYTEST_ASCEND_EMULATED_CANN": "as `--ascend-emulate=cann=...`",
    "PYTEST_ASCEND_EMULATED_CHIP": "as `--ascend-emulate=chip=...`",
    "PYTEST_ASCEND_EMULATED_PHYSICAL": "as `--ascend-emulate=physical=...`",
    "PYTEST_ASCEND_EMULATED_OCCUPIED": "as `--ascend-emulate=occupied=...`",
    "PYTEST_ASCEND_EMULATED_DEBUG": "1 prints the traceback of an emulated kernel that fails",
    "PYTEST_ASCEND_FAULTS": "as `--ascend-emulate=fault=...`, separated by commas",
}

ENGLISH = """# Reference

All options, commands, fixtures, outcomes, files and exit codes. This page is generated from the code by
`python tools/reference.py`.

Every option needs `--ascend`; without it, an option that begins with `--ascend-` is an error. Relative paths start at
the folder in which pytest was started. `-k`, `-m`, `-x`, `--lf` and node ids work as usual, and so does `-n` with
pytest-xdist: on an NPU, `-n auto` uses every free card, one process each.
"""

CHINESE = """# 参考手册

本页列出全部选项、命令、fixture、用例结果、文件和退出码，由 `python tools/reference.py` 从代码生成，表格内容为英文。

- 所有选项都必须与 `--ascend` 一起使用；缺少 `--ascend` 时，以 `--ascend-` 开头的选项会报错。
- 相对路径以启动 pytest 时所在的目录为准。
- `-k`、`-m`、`-x`、`--lf` 和用例 id 的用法与平常一样。
- 安装 pytest-xdist 后可以使用 `-n`：在 NPU 上，`-n auto` 使用所有空闲的卡，每卡一个进程。
- 只运行部分用例时，报告会标明是子集，不对整个版本配套下结论。
"""

#: Headings and the heads of tables, in both languages.
WORDS = {
    "options": ("Options of pytest --ascend", "pytest --ascend 的选项"),
    "commands": ("Commands", "命令"),
    "fixtures": ("Fixtures", "Fixture"),
    "markers": ("Markers", "标记（marker）"),
    "outcomes": ("Outcomes of a case", "用例结果"),
    "exit": ("Exit codes", "退出码"),
    "files": ("Files", "文件"),
    "variables": ("Environment variables", "环境变量"),
    "former names": ("former names of options, accepted for one release", "旧选项名（保留一个版本）"),
    "former name": ("former name", "旧名称"),
    "now": ("now", "现在写作"),
    "option": ("option", "选项"),
    "meaning": ("meaning", "含义"),
    "fixture": ("fixture", "fixture"),
    "marker": ("marker", "标记"),
    "outcome": ("outcome", "结果"),
    "conforms": ("conforms", "是否符合"),
    "code": ("code", "退出码"),
    "file": ("file", "文件"),
    "variable": ("variable", "变量"),
    "yes": ("yes", "是"),
    "no": ("no", "否"),
}


def page(language: int) -> str:
    """Return the reference: 0 in English, 1 with Chinese introduction and headings."""

    def word(key: str) -> str:
        return WORDS[key][language]

    parts = [ENGLISH if not language else CHINESE]
    parts += _section(word("options"), table((word("option"), word("meaning")), options_of_pytest()))
    rows = ((f"`{old}`", f"`{new}`") for old, new in options.former_names().items())
    parts += [f"### {word('former names').capitalize()}", table((word("former name"), word("now")), rows)]
    parts += _section(word("outcomes"), table((word("outcome"), word("meaning"), word("conforms")), outcomes(word)))
    rows = ((str(code), says) for code, says in EXIT_CODES.items())
    parts += _section(word("exit"), table((word("code"), word("meaning")), rows))
    parts += _section(word("fixtures"), table((word("fixture"), word("meaning")), fixtures()))
    parts += _section(word("markers"), table((word("marker"), word("meaning")), markers()))
    parts += _section(word("files"), table((word("file"), word("meaning")), coded(FILES)))
    parts += _section(word("variables"), table((word("variable"), word("meaning")), coded(VARIABLES)))
    parts += [f"## {word('commands')}", *commands((word("option"), word("meaning")))]
    return anchored("\n\n".join(part.strip() for part in parts) + "\n", language)


def _section(title: str, text: str) -> list[str]:
    return [f"## {title}", text]


def anchored(text: str, language: int) -> str:
    """Return the page with English anchors before its headings, so that links fit both languages."""
    for english, own in (words for words in WORDS.values() if language and words[0][0].isupper()):
        text = text.replace(f"## {own}\n", f'<a id="{english.lower().replace(" ", "-")}"></a>\n\n## {own}\n')
    return text


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def coded(names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names as code, with what they mean."""
    return ((f"`{name}`", says) for name, says in names.items())


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
    """Yield the outcomes with the first sentence of what they mean."""
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


def commands(heads: tuple[str, str]) -> Iterator[str]:
    """Yield each command of pytest-ascend with its options."""
    context = click.Context(cli, info_name="pytest-ascend")
    for name in sorted(COMMANDS):
        command = cli.get_command(context, name)
        if command is not None:
            yield from _command(command, f"pytest-ascend {name}", heads)


def _command(command: click.Command, path: str, heads: tuple[str, str]) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _command(command.commands[name], f"{path} {name}", heads)
        if not command.invoke_without_command:
            return
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### {path}"
    yield f"`{path} {usage}`"
    yield plain(inspect.cleandoc(command.help or ""))
    rows = [
        (f"`{', '.join(each.opts)}{_value(each)}`", plain(getattr(each, "help", "") or ""))
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden
    ]
    if rows:
        yield table(heads, rows)


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    return f" {option.make_metavar(click.Context(click.Command('x')))}"


def plain(text: str) -> str:
    """Return a docstring as Markdown: double backticks are single, roles are code, lines are joined."""
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
