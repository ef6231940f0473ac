"""How the modules hang together: no circles, and few pairs of rooms of which one imports the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Pairs of rooms of which one imports the other; suites are one room. Lower it when there are fewer.
PAIRS = 130


def modules() -> dict[str, Path]:
    """Return every module of the package and of the suites, by its dotted name."""
    files = [file for folder in ("pytest_ascend", "suites") for file in (ROOT / folder).rglob("*.py")]
    return {".".join(each.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): each for each in files}


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module, those within functions too, but not those for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from statements(node)


def imported(name: str, file: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules that a module imports."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
            continue
        base = (
            [*package[: len(package) - node.level + 1], *filter(None, [node.module])] if node.level else [node.module]
        )
        whole = ".".join(map(str, base))
        found.update(f"{whole}.{each.name}" if f"{whole}.{each.name}" in known else whole for each in node.names)
    return {each for each in found if each in known and each != name}


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imported(name, file, known) for name, file in known.items()}


def room(name: str) -> str:
    return "suites" if name.startswith("suites") else ".".join(name.split(".")[:2])


def circle(found: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, none where there is no circle."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    found = graph()
    assert len(found) > 300
    assert found["pytest_ascend.cli"] >= {"pytest_ascend.system.errors"}
    assert circle(found) == []


def test_rooms_know_few_others() -> None:
    pairs = {(room(name), room(each)) for name, those in graph().items() for each in those}
    assert len({(one, other) for one, other in pairs if one != other}) <= PAIRS
