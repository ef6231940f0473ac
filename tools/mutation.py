"""Says whether the tests notice: changes the code at random, one place at a time, and runs the tests of its room.

    python tools/mutation.py --count 100 --seed 1 --json found.json
    python tools/mutation.py --rooms precision,runlog --count 50

Works on a copy of the checkout. One process imports torch once; each mutant is tried in a fork of it, so that a mutant
costs the tests that it takes to notice it, and no start. Before the first mutant the tests of each room run once
unchanged: which test calls which function decides what runs first (the rest follows for a mutant that survives these).
What ``--json`` has already is not tried again: a run that was stopped goes on where it was.

Known tools do not fit: cosmic-ray starts a process for each mutant (six seconds here, of 500 mutants an hour), and
mutmut puts all mutants of a function behind a switch at run time, which leaves tables, the greater part of the rooms
that judge, as they are; neither draws by seed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: Room -> the tests that have to notice. Those that start processes come last.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "precision": ("tests/unit/precision", "tests/unit/suites/test_ops_judging.py", "tests/meta/test_judge_*.py"),
    "run": ("tests/unit/run", "tests/unit/device", "tests/integration/test_outcomes.py"),
    "records": ("tests/unit/records", "tests/unit/runlog", "tests/unit/verdict"),
    "runlog": ("tests/unit/runlog",),
    "verdict": ("tests/unit/verdict", "tests/unit/export"),
    "certificate": ("tests/unit/certificate",),
    "isolation": ("tests/unit/isolation", "tests/integration/test_isolation.py"),
    "golden": ("tests/unit/golden", "tests/unit/suites/test_ops_goldens.py"),
    "performance": ("tests/unit/performance",),
    "doctor": ("tests/unit/doctor",),
    "operators": ("tests/unit/operators", "tests/unit/suites/test_ops*.py", "tests/meta/test_properties.py"),
    "emulator/kernels": ("tests/emulator",),
}
#: Seconds for one mutant's tests: more than those of the slowest room take. Who takes longer hangs, and is noticed.
LIMIT_S = 300

#: pytest cannot rewrite the assertions of what is imported already, and need not.
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip
_CALLED = {a: b for pair in (
    ("min", "max"), ("any", "all"), ("minimum", "maximum"), ("amin", "amax"), ("floor", "ceil"), ("first", "last"),
    ("startswith", "endswith"), ("isnan", "isinf"), ("append", "extend"),
) for a, b in (pair, pair[::-1])}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one place: ``source`` is the whole file with it."""

    room: str
    path: str
    line: int
    function: str
    before: str
    after: str
    source: str


class Nodes(ast.NodeVisitor):
    """Every place of a module that can be changed: the node, and the function that it stands in."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str]] = []
        self._inside: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave annotations and decorators out; a docstring is no place either."""
        self._inside.append(f"{node.name}:{min([node.lineno, *(each.lineno for each in node.decorator_list)])}")
        for each in [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]:
            self.visit(each)
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Leave decorators and bases out."""
        for each in node.body:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leave the annotation out."""
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages out: what errors say is for people."""

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Raise  # type: ignore[assignment]  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        """Leave out what is there for the type checker."""
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Note the node."""
        self.found.append((node, self._inside[0] if self._inside else ""))
        super().generic_visit(node)


def changed(node: ast.AST) -> Iterator[str]:
    """Give every text that can stand in place of a node."""
    match node:
        case ast.Constant():
            yield from _changed_constant(node.value)
        case ast.Call():
            yield from _changed_call(node)
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Continue():
            yield "break"
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return None"
        case ast.Attribute(attr=name) if name in _CALLED:
            yield ast.unparse(ast.Attribute(node.value, _CALLED[name]))
        case ast.expr():
            yield from map(ast.unparse, _computed_otherwise(node))


def _computed_otherwise(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=[one]) if type(one) in _COMPARED:
            yield ast.Compare(node.left, [_COMPARED[type(one)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in _COMPUTED and not _is_text(node):
            yield ast.BinOp(node.left, _COMPUTED[type(op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp():
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)


def _changed_constant(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield repr(value + 1)
    elif isinstance(value, float):
        yield repr(value * 2 or 1.0)


def _changed_call(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield ast.unparse(ast.Call(ast.Name(_CALLED[node.func.id]), node.args, node.keywords))
    for place in range(len(node.keywords)):
        yield ast.unparse(ast.Call(node.func, node.args, node.keywords[:place] + node.keywords[place + 1 :]))


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
               for each in (node.left, node.right))  # fmt: skip


def mutants(room: str) -> list[Mutant]:
    """Return every change of every file of a room."""
    found = []
    for path in sorted((ROOT / "pytest_ascend" / room).rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        data, starts = code.encode(), [0]
        for line in data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        nodes = Nodes()
        nodes.visit(ast.parse(code))
        for node, function in nodes.found:
            for after in changed(node):
                begin, end = (starts[line - 1] + column for line, column in _span(node))
                text = f"({after})" if isinstance(node, ast.expr) else after
                source = data[:begin] + text.encode() + data[end:]
                name = str(path.relative_to(ROOT))
                before = data[begin:end].decode()
                found.append(Mutant(room, name, node.lineno, function, before, after, source.decode()))
    return found


def _span(node: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


class Recorder:
    """A plugin of pytest: how long each test takes, whether it passes, and which functions of the package it calls."""

    def __init__(self, package: Path) -> None:
        self.package = f"{package}{os.sep}"
        self.tests: dict[str, dict[str, Any]] = {}
        self._called: set[Any] = set()

    def pytest_runtest_setup(self) -> None:
        """Listen from here on."""
        self._called.clear()
        sys.setprofile(self._hear)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what was heard up to the end of the test."""
        test = self.tests.setdefault(report.nodeid, {"seconds": 0.0, "passed": True, "functions": []})
        test["seconds"] += report.duration
        test["passed"] &= not report.failed
        if report.when == "teardown":
            sys.setprofile(None)
            inside = (each for each in self._called if each.co_filename.startswith(self.package))
            test["functions"] = sorted(
                f"pytest_ascend/{each.co_filename.removeprefix(self.package)}:{each.co_name}:{each.co_firstlineno}"
                for each in inside
            )

    def _hear(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            self._called.add(frame.f_code)


class Chosen:
    """A plugin of pytest: runs these tests, in this order, and no other."""

    def __init__(self, names: Sequence[str]) -> None:
        self.places = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort, and leave the others out."""
        items[:] = sorted((item for item in items if item.nodeid in self.places), key=lambda it: self.places[it.nodeid])


def run(copy: Path, tests: Sequence[str], plugin: Any, *options: str, result: Path | None = None) -> tuple[int, float]:
    """Run tests in a fork of this process; give pytest's exit code (-1 where time is over) and the seconds."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            os._exit(_in_child(copy, tests, plugin, options, result))
        except BaseException:  # noqa: BLE001  (a fork must never go on as its parent)
            traceback.print_exc()
            os._exit(70)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        over = time.monotonic() - began > (3600 if result else LIMIT_S)
        if ended or over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
            return (os.waitstatus_to_exitcode(status) if ended else -1), time.monotonic() - began
        time.sleep(0.02)


def _in_child(copy: Path, tests: Sequence[str], plugin: Any, options: Sequence[str], result: Path | None) -> int:
    import pytest  # noqa: PLC0415  (imported by the parent already)

    os.setsid()
    said = os.open(copy / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    files = sorted({str(path.relative_to(copy)) for each in tests for path in copy.glob(each)})
    code = int(pytest.main(["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *QUIET, *options, *files], [plugin]))
    if result:
        result.write_text(json.dumps(plugin.tests), encoding="utf-8")
    sys.stdout.flush()
    return code


def order(known: Mapping[str, Mapping[str, Any]], mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return the tests that call the changed function, quick ones first, and then all others."""
    name, _, line = mutant.function.rpartition(":")
    place = f"{mutant.path}:{name}:{line}"
    passing = sorted((each for each in known if known[each]["passed"]), key=lambda each: known[each]["seconds"])
    near = [each for each in passing if place in known[each]["functions"]]
    return near, [each for each in passing if each not in set(near)]


def tried(copy: Path, mutant: Mutant, known: Mapping[str, Mapping[str, Any]], number: int) -> tuple[str, float]:
    """Put a mutant into the copy and run the tests: what noticed it ("" where nothing did), and the seconds."""
    path = copy / mutant.path
    honest = path.read_bytes()
    path.write_text(mutant.source, encoding="utf-8")
    os.utime(path, (stamp := 1_000_000_000 + 2 * number, stamp))  # bytecode is known by seconds and size
    seconds = 0.0
    try:
        for names in order(known, mutant):
            if names:
                files = sorted({each.partition("::")[0] for each in names})
                code, took = run(copy, files, Chosen(names), "-x")
                seconds += took
                if code:
                    return _words(copy, code), seconds
        return "", seconds
    finally:
        path.write_bytes(honest)
        os.utime(path, (stamp + 1, stamp + 1))


def _words(copy: Path, code: int) -> str:
    if code < 0:
        return "time is over" if code == -1 else f"signal {-code}"
    said = (copy / "said.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in said if line.startswith(("FAILED", "ERROR "))), f"exit code {code}")[:200]


def copied(target: Path) -> Path:
    """Make a copy of the checkout; goldens, which are large and which nobody changes, are links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout  # noqa: S607
    for name in filter(None, listed.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (os.link if name.startswith("baselines/") else shutil.copy2)(ROOT / name, target / name)
    return target


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the table for CONTRIBUTING.md, and the survivors."""
    rows = ["| room | mutants | noticed |", "|---|---|---|"]
    total, seen = Counter(each["room"] for each in found), Counter(each["room"] for each in found if each["noticed"])
    rows += [f"| {room} | {total[room]} | {seen[room]} |" for room in ROOMS if total[room]]
    rows.append(f"| all | {len(found)} | {sum(seen.values())} ({sum(seen.values()) / max(len(found), 1):.0%}) |")
    rows += [
        f"{each['path']}:{each['line']}: {each['before']!r} -> {each['after']!r}"
        for each in found
        if not each["noticed"]
    ]
    return "\n".join(rows)


def main() -> int:
    """Draw, try, and say; the exit code is 1 where fewer than 92 % are noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--json", type=Path, help="where each mutant and what noticed it is kept, as it goes")
    parser.add_argument("--again", type=Path, help="try the survivors of such a file again, where they still apply")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk of the checkout")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    sys.dont_write_bytecode = False
    rooms = given.rooms.split(",")
    every = [each for room in rooms for each in mutants(room)]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))  # noqa: S311
    if given.again:
        left = [each for each in json.loads(given.again.read_text(encoding="utf-8")) if not each["noticed"]]
        wanted = {(each["before"], each["after"], each["function"].split(":")[0]) for each in left}
        drawn = [each for each in every if (each.before, each.after, each.function.split(":")[0]) in wanted]
    kept = given.json and given.json.exists()
    found: list[dict[str, Any]] = json.loads(given.json.read_text(encoding="utf-8")) if kept else []
    known_of = {(each["path"], each["line"], each["before"], each["after"]) for each in found}
    drawn = [each for each in drawn if (each.path, each.line, each.before, each.after) not in known_of]
    drawn.sort(key=lambda each: rooms.index(each.room))
    import hypothesis, pytest, torch  # noqa: E401, F401, I001, PLC0415  the whole point of the forks

    folder = Path(tempfile.mkdtemp(prefix="mutation-", dir=given.folder))
    try:
        copy, known = copied(folder / "copy"), {}
        for number, mutant in enumerate(drawn):
            if mutant.room not in known:
                known = {mutant.room: unchanged(copy, mutant.room)}
            noticed, seconds = tried(copy, mutant, known[mutant.room], number)
            told = {name: value for name, value in asdict(mutant).items() if name != "source"}
            found.append({**told, "noticed": noticed, "seconds": round(seconds, 1)})
            print(f"{number + 1}/{len(drawn)} {mutant.path}:{mutant.line} {mutant.before[:60]!r} -> {mutant.after[:60]!r}: "  # noqa: E501, T201
                  f"{noticed or 'SURVIVED'} ({seconds:.0f} s)", flush=True)  # fmt: skip
            if given.json:
                given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))  # noqa: T201
    return int(sum(bool(each["noticed"]) for each in found) < 0.92 * len(found))


def unchanged(copy: Path, room: str) -> dict[str, dict[str, Any]]:
    """Run the tests of a room as they are; say what fails without any mutant, which is left out from then on."""
    result = copy / "tests.json"
    code, seconds = run(copy, ROOMS[room], Recorder(copy / "pytest_ascend"), result=result)
    if not result.exists():
        raise SystemExit(f"{room}: its tests do not run (exit code {code}): {(copy / 'said.txt').read_text()[-2000:]}")
    known: dict[str, dict[str, Any]] = json.loads(result.read_text(encoding="utf-8"))
    result.unlink()
    failing = [name for name, each in known.items() if not each["passed"]]
    print(f"{room}: {len(known)} tests in {seconds:.0f} s; left out: {failing}", flush=True)  # noqa: T201
    return known


if __name__ == "__main__":
    sys.exit(main())
