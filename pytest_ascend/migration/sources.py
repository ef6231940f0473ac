"""Known blockers in a user's source, by file and line, from the syntax tree: comments and prose are ignored."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ascend.errors import UsageError
from pytest_ascend.migration.blockers import KEYWORDS, METHODS, NAMES, SEVERITIES, STRINGS, Blocker
from pytest_ascend.system.files import read_regular

#: Folders without source of the user's.
SKIPPED = {".git", ".tox", ".venv", "venv", "__pycache__", "build", "dist", "node_modules", "site-packages"}

#: Larger files are generated.
LARGEST_BYTES = 4 * 2**20

#: Calls whose strings are for people to read.
SAYING = {"print", "debug", "info", "warning", "warn", "error", "exception", "log", "critical"}

_DEVICE = re.compile(r"(?P<name>cuda|nccl)(:\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One place in a source: ``what`` is written there, what it means on an NPU, and what to use instead."""

    path: str
    line: int
    what: str
    severity: str
    says: str
    instead: str
    source: str


def scan(folder: Path) -> tuple[list[Finding], list[str]]:
    """Return findings in every Python file below ``folder`` (or in one file), and a note for each unreadable file.

    Links that lead out of the folder are not followed. Raises UsageError if the folder does not exist.
    """
    if not folder.exists():
        raise UsageError(f"--source {folder}: there is no such folder", hint="name the folder of your program")
    found: list[Finding] = []
    notes: list[str] = []
    for path in _files(folder):
        shown = str(path.relative_to(folder)) if folder.is_dir() else path.name
        try:
            found += scan_text(_read(path), shown)
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            notes.append(f"{shown} was not read: {type(error).__name__}: {error}")
    return sorted(found, key=lambda each: (SEVERITIES.index(each.severity), each.path, each.line, each.what)), notes


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    root = folder.resolve()
    for path in sorted(folder.rglob("*.py")):
        outside = SKIPPED.intersection(path.relative_to(folder).parts[:-1])
        if not outside and path.is_file() and path.resolve().is_relative_to(root):
            yield path


def _read(path: Path) -> bytes:
    return read_regular(path, LARGEST_BYTES)


def scan_text(source: str | bytes, path: str) -> list[Finding]:
    """Return the findings of one file. Raises SyntaxError or ValueError if it is not Python."""
    visitor = _Visitor(path)
    visitor.visit(ast.parse(source, filename=path))
    return visitor.found


def _only_says(function: ast.expr) -> bool:
    """Whether a call prints or logs its arguments, so that a string in it names no device."""
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return name in SAYING


class _Visitor(ast.NodeVisitor):
    """Resolves imported names, and notes each use of a known one once per line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: dict[str, str] = {}
        self._found: dict[tuple[int, str], Finding] = {}

    @property
    def found(self) -> list[Finding]:
        return list(self._found.values())

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.names[bound] = alias.name if alias.asname else bound
            self._name(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            return  # the program's own module
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.names[alias.asname or alias.name] = full
            self._name(node, full)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._full(node)
        if full is not None:
            self._name(node, full)
            return
        if node.attr == "is_cuda":
            self._note(node, f".{node.attr}", METHODS[node.attr])
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        full = self.names.get(node.id)
        if full is not None and isinstance(node.ctx, ast.Load):
            self._name(node, full)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and self._full(node.func) is None:
            self._note(node, ".cuda()", METHODS["cuda"])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "double" and self._full(node.func) is None:
            self._note(node, ".double()", METHODS["double"])
        for keyword in node.keywords:
            for (name, begins), blocker in KEYWORDS.items():
                if keyword.arg == name and ast.unparse(keyword.value).startswith(begins):
                    self._note(node, f"{name}={ast.unparse(keyword.value)}", blocker)
        if not _only_says(node.func):
            for argument in (*node.args, *(each.value for each in node.keywords)):
                self._strings(argument)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self._strings(default)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for each in (node.left, *node.comparators):
            self._strings(each)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._strings(node.value)
        self.generic_visit(node)

    def _full(self, node: ast.expr) -> str | None:
        """Return the full name of a.b.c if a is imported; None for attributes of anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._full(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def _strings(self, node: ast.expr) -> None:
        """Check a string that may name a device, in either branch of a conditional and at the start of an f-string."""
        if isinstance(node, ast.IfExp):
            self._strings(node.body)
            self._strings(node.orelse)
        elif isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            if isinstance(first, ast.Constant) and str(first.value) == "cuda:":
                self._note(node, 'f"cuda:…"', STRINGS["cuda"])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = _DEVICE.fullmatch(node.value)
            if match:
                self._note(node, repr(node.value), STRINGS[match["name"]])

    def _name(self, node: ast.AST, full: str) -> None:
        fitting = [each for each in NAMES if full == each.name or full.startswith(f"{each.name}.")]
        blocker = max(fitting, key=lambda each: len(each.name), default=None)
        if blocker is None:
            return
        is_package = "." not in blocker.name  # the import is enough; uses below it would only repeat it
        if not is_package or all(each.says != blocker.says for each in self._found.values()):
            self._note(node, blocker.name if is_package else full, blocker)

    def _note(self, node: ast.AST, what: str, blocker: Blocker) -> None:
        line = int(getattr(node, "lineno", 0))
        # One line often names a module and then its function: the longer name is more specific.
        for (at, other), finding in list(self._found.items()):
            if at == line and finding.says == blocker.says and (what in other or other in what):
                if len(other) >= len(what):
                    return
                del self._found[at, other]
        self._found[line, what] = Finding(
            path=self.path,
            line=line,
            what=what,
            severity=blocker.severity,
            says=blocker.says,
            instead=blocker.instead,
            source=blocker.source,
        )
