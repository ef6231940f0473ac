"""Known blockers in a user's source, by file and line.

Python files and the code cells of notebooks are read as syntax trees, so that comments and prose are ignored; lists of
requirements, shell scripts and Dockerfiles line by line; a file of CUDA kernels is one finding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from pytest_ascend.system.bundled import table
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import read_regular, strict_json

#: Does not run; runs after a change or with transfer_to_npu; runs, but not as intended.
BLOCKER, CHANGE, ADVICE = "blocker", "change", "advice"

SEVERITIES = (BLOCKER, CHANGE, ADVICE)

_DATA: Mapping[str, Any] = table("migration/blockers.json")


def _meaning(severity: str, says: str, instead: str, source: str) -> dict[str, str]:
    """Return the meaning of a source construct on an NPU, in the form of a finding."""
    return {"severity": severity, "says": says, "instead": instead, "source": _DATA["sources"][source]}


#: The source for constructs that a single import handles.
TRANSFER = str(_DATA["sources"]["transfer"])

#: Modules, classes and functions by full dotted name however imported. Each covers all below; the longest match counts.
NAMES = {name: _meaning(*row) for name, *row in _DATA["names"]}

#: Methods and attributes of any object that are relevant on an NPU.
METHODS = {name: _meaning(*row) for name, row in _DATA["methods"].items()}

#: Keywords of calls with relevant values: how the value begins, as written in Python.
KEYWORDS = {(name, begins): _meaning(*row) for name, begins, *row in _DATA["keywords"]}

#: Patterns of strings in arguments, defaults, comparisons and keys that name a device, a backend or a tool.
STRINGS = {re.compile(pattern): _meaning(*row) for pattern, row in _DATA["strings"].items()}

#: Patterns in lists of requirements (whole packages are among NAMES), and in shell scripts and Dockerfiles.
PACKAGES, SHELL = (
    {re.compile(pattern): _meaning(*row) for pattern, *row in _DATA[key]} for key in ("packages", "shell")
)

#: A file of CUDA kernels.
CUDA_SOURCE = _meaning(*_DATA["cuda_source"])

#: Folders without source code of the user.
SKIPPED = {".git", ".tox", ".venv", "venv", "__pycache__", "build", "dist", "node_modules", "site-packages"}

#: Larger files are generated.
LARGEST_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One place in a source: ``what`` is written there, its meaning on an NPU, and what to use instead."""

    path: str
    line: int
    what: str
    severity: str
    says: str
    instead: str
    source: str


def scan(folder: Path) -> tuple[list[Finding], list[str]]:
    """Return findings in every source below ``folder`` (or in one file), and a note for each unreadable file.

    Links that lead out of the folder are not followed. Raises UsageError if nothing there can be read.
    """
    if not folder.exists():
        raise UsageError(f"--source {folder}: there is no such folder", hint="name the folder of your program")
    found: list[Finding] = []
    notes: list[str] = []
    is_anything_read = False
    root = folder.resolve()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        shown = str(path.relative_to(folder)) if folder.is_dir() else path.name
        if folder.is_dir() and (
            not any(fnmatch(path.name, pattern) for patterns in _READERS for pattern in patterns)
            or SKIPPED.intersection(Path(shown).parts[:-1])
            or not (path.is_file() and path.resolve().is_relative_to(root))
        ):
            continue
        try:
            reads = (its for patterns, its in _READERS.items() if any(fnmatch(path.name, each) for each in patterns))
            found += next(reads, scan_text)(read_regular(path, LARGEST_BYTES), shown)
            is_anything_read = True
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
            notes.append(f"{shown} was not read: {type(error).__name__}: {str(error) or 'nested too deep'}")
    if not is_anything_read:
        what = next(iter(notes), "no Python file, notebook, CUDA source, list of requirements or shell script there")
        raise UsageError(f"--source {folder}: {what}", hint="name the folder of your program")
    return sorted(found, key=lambda each: (SEVERITIES.index(each.severity), each.path, each.line, each.what)), notes


def scan_notebook(source: bytes, path: str) -> Iterator[Finding]:
    """Yield the findings in the code cells of a notebook. Raises ValueError or SyntaxError."""
    notebook = strict_json(source, constants=True)
    cells = notebook.get("cells", []) if isinstance(notebook, dict) else []
    for number, cell in enumerate(cells if isinstance(cells, list) else [], start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        lines = cell.get("source", "")
        code = "".join(map(str, lines)) if isinstance(lines, list) else str(lines)
        # IPython's own lines, such as %pip and !nvidia-smi, are not Python.
        python = "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in code.splitlines())
        yield from scan_text(python, f"{path}[cell {number}]")


def scan_lines(
    source: bytes, path: str, patterns: Mapping[re.Pattern[str], Mapping[str, str]], *, packages: bool = False
) -> Iterator[Finding]:
    """Yield the findings outside of comments; with ``packages``, each line may begin with a package's name."""
    for number, line in enumerate(source.decode(errors="replace").splitlines(), start=1):
        text = line.partition("#")[0]
        matches = ((pattern.search(text), meaning) for pattern, meaning in patterns.items())
        seen = [(match[0], meaning) for match, meaning in matches if match]
        # A package's name begins a line, or a string: a list of dependencies may be on one line.
        begins = re.findall(r"""(?:^\W*|["'])([A-Za-z][\w.-]*)""", text) if packages else []
        named = dict.fromkeys(each.replace("-", "_").lower() for each in begins)
        seen += [(name, NAMES[name]) for name in named if name in NAMES]
        yield from (Finding(path=path, line=number, what=what, **meaning) for what, meaning in seen)


def scan_text(source: str | bytes, path: str) -> list[Finding]:
    """Return the findings of one file. Raises SyntaxError or ValueError if it is not Python."""
    visitor = _Visitor(path)
    visitor.visit(ast.parse(source, filename=path))
    return list(visitor.found.values())


#: Parsers by patterns of file names, the first match counts; a single file of another name is parsed as Python.
_READERS: Mapping[tuple[str, ...], Callable[[bytes, str], Iterable[Finding]]] = {
    ("*.ipynb",): scan_notebook,
    ("*.cu", "*.cuh"): lambda _, path: [Finding(path=path, line=1, what=Path(path).name, **CUDA_SOURCE)],
    ("requirements*.txt", "requirements*.in", "pyproject.toml", "setup.cfg", "environment*.y*ml", "Pipfile"): partial(
        scan_lines, patterns=PACKAGES, packages=True
    ),
    ("*.sh", "Dockerfile*", "*.dockerfile"): partial(scan_lines, patterns=SHELL),
    ("*.py",): scan_text,
}

#: Nodes with expressions that may be the name of a device: defaults, comparisons, keys, assigned values.
_HOLDING: Mapping[type, Callable[[Any], Iterable[ast.expr]]] = {
    ast.arguments: lambda node: [*node.defaults, *filter(None, node.kw_defaults)],
    ast.Compare: lambda node: [node.left, *node.comparators],
    ast.Subscript: lambda node: [node.slice],
    ast.Assign: lambda node: [node.value],
}


class _Visitor(ast.NodeVisitor):
    """Resolves imported names, and notes each use of a known one once per line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: dict[str, str] = {}
        self.found: dict[tuple[int, str], Finding] = {}

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
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        is_method = isinstance(node.func, ast.Attribute) and self._full(node.func) is None
        if is_method and called in ("cuda", "double"):
            self._note(node, f".{called}()", METHODS[called])
        known = set()  # keywords whose value means more than a device
        for keyword in node.keywords:
            for (name, begins), meaning in KEYWORDS.items():
                if keyword.arg == name and ast.unparse(keyword.value).startswith(begins):
                    known.add(keyword)
                    self._note(node, f"{name}={ast.unparse(keyword.value)}", meaning)
        # Strings in these calls are for people to read.
        if called not in ("print", "debug", "info", "warning", "warn", "error", "exception", "log", "critical"):
            for argument in (*node.args, *(each.value for each in node.keywords if each not in known)):
                self._strings(argument)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Check the parts of a node that may name a device, then its children."""
        holds = _HOLDING.get(type(node))
        for each in holds(node) if holds else ():
            self._strings(each)
        super().generic_visit(node)

    def _full(self, node: ast.expr) -> str | None:
        """Return the full name of a.b.c if a is imported; None for attributes of anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._full(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def _strings(self, node: ast.expr) -> None:
        """Check strings that may name a device, a backend or a tool, inside conditionals, lists and keys."""
        if isinstance(node, ast.IfExp):
            self._strings(node.body)
            self._strings(node.orelse)
        elif isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            if isinstance(first, ast.Constant) and str(first.value) == "cuda:":
                self._string(node, "cuda", 'f"cuda:…"')
        elif isinstance(node, ast.List | ast.Tuple | ast.Dict):
            for each in filter(None, node.keys) if isinstance(node, ast.Dict) else node.elts:
                self._strings(each)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._string(node, node.value, repr(node.value))

    def _string(self, node: ast.AST, value: str, what: str) -> None:
        for pattern, meaning in STRINGS.items():
            if pattern.fullmatch(value):
                self._note(node, what, meaning)

    def _name(self, node: ast.AST, full: str) -> None:
        name = max((each for each in NAMES if full == each or full.startswith(f"{each}.")), key=len, default="")
        is_package = "." not in name  # the import is enough; uses below it would only repeat it
        if name and not (is_package and any(each.says == NAMES[name]["says"] for each in self.found.values())):
            self._note(node, name if is_package else full, NAMES[name])

    def _note(self, node: ast.AST, what: str, meaning: Mapping[str, str]) -> None:
        line = int(getattr(node, "lineno", 0))
        # One line often names a module and then its function: keep the longer name, which is more specific.
        for (at, other), finding in list(self.found.items()):
            if at == line and finding.says == meaning["says"] and (what in other or other in what):
                if len(other) >= len(what):
                    return
                del self.found[at, other]
        self.found[line, what] = Finding(path=self.path, line=line, what=what, **meaning)
