"""Says whether the tests notice: changes the code at random, one place at a time, and runs the tests of its room.

    python tools/mutation.py --count 100 --seed 1 --json found.json
    python tools/mutation.py --rooms precision,runlog --count 50

Works on a copy of the checkout. Before the first mutant the tests of each room run once unchanged: which test calls
which function decides what is run. Then one process imports torch and collects the tests of the room, and each mutant
of a function is put into a fork of it, so that a mutant costs the tests that it takes to notice it, and no start. A
mutant of a table, or of a function that is called on import, has its tests collected anew.
Of a mutant that the tests that call its function let pass, those that start processes are asked too, which read it from
the copy. What ``--json`` has already is not tried again: a run that was stopped goes on where it was.

Known tools do not fit: cosmic-ray starts a process for each mutant (six seconds here, of 500 mutants an hour), and
mutmut puts all mutants of a function behind a switch at run time, which leaves tables, the greater part of the rooms
that judge, as they are; neither draws by seed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: Room -> the tests that have to notice.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "precision": ("tests/unit/precision", "tests/unit/suites/test_ops_judging.py", "tests/meta/test_judge_*.py"),
    "run": ("tests/unit/run", "tests/unit/device", "tests/integration/test_outcomes.py"),
    "records": ("tests/unit/records", "tests/unit/system", "tests/unit/runlog", "tests/unit/verdict"),
    "runlog": ("tests/unit/runlog", "tests/unit/coverage", "tests/unit/verdict/test_merge.py"),
    "verdict": ("tests/unit/verdict", "tests/unit/export"),
    "page": ("tests/unit/page", "tests/unit/verdict/test_scan.py"),
    "export": ("tests/unit/export", "tests/unit/verdict"),
    "certificate": ("tests/unit/certificate",),
    "isolation": ("tests/unit/isolation", "tests/integration/test_isolation.py"),
    "golden": ("tests/unit/golden", "tests/unit/suites/test_ops_goldens.py"),
    "performance": ("tests/unit/performance",),
    "doctor": ("tests/unit/doctor",),
    "operators": (
        "tests/unit/operators",
        "tests/unit/suites/test_ops_[jpv]*.py",
        "tests/meta/test_properties.py",
    ),
    # Not those of chips, devices and start-up, which start processes, minutes in all, for every survivor; nor those in
    # half precision, which call every kernel and take longer than their limit.
    "emulator/kernels": (
        "tests/emulator/test_at*.py",
        "tests/emulator/test_c[or]*.py",
        "tests/emulator/test_[e-gi-or-u]*.py",
        "tests/emulator/test_hc*.py",
        "tests/emulator/test_po*.py",
    ),
}
#: What calls the kernels, from threads of torch's own (those of backward) too, which no trace function reaches.
DISPATCH = "pytest_ascend.emulator.dispatch"
#: Seconds for the tests of a mutant, beside ten times what they take unchanged: who takes longer hangs, and is noticed.
LIMIT_S = 60
#: The same for one test.
TEST_LIMIT_S = 10

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
    sides = (node.left, node.right)
    texts = (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes) for each in sides)
    return any(texts) or any(isinstance(each, ast.JoinedStr) for each in sides)


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
    """A plugin of pytest: how long each test takes, whether it passes, what it calls, and whether it starts processes.

    What is called before the first test (imports, collection) stands under "".
    """

    def __init__(self, package: Path, longest_s: float = math.inf) -> None:
        self.package, self.longest_s = f"{package}{os.sep}", longest_s
        self.tests: dict[str, dict[str, Any]] = {}
        #: By their number in memory, as to hash a code takes longer than most calls.
        self._called: dict[int, CodeType] = {}
        self._starts = False
        os.register_at_fork(before=self._forks)
        self._listen()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """End a test that would be left out as too long: it fails, and what fails unchanged is left out."""
        import pytest  # noqa: PLC0415  (imported by the parent already)

        for item in items if self.longest_s < math.inf else ():
            item.add_marker(pytest.mark.timeout(2 * self.longest_s), append=False)

    def pytest_collection_finish(self) -> None:
        """Keep what was called until now."""
        dispatch = kernels_imported()
        self.tests[""] = self._heard()
        if dispatch:
            made = dispatch._runner  # noqa: SLF001  (there is no public name)
            dispatch._runner = lambda *given: self._listening(made(*given))  # noqa: SLF001

    def _listening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Hear what a function calls in whatever thread it is called."""

        def run(*given: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self._hear)
            try:
                return call(*given)
            finally:
                sys.settrace(before)

        return run

    def pytest_runtest_setup(self) -> None:
        """Listen from here on."""
        self._called.clear()
        self._starts = False
        self._listen()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what was heard up to the end of the test."""
        test = self.tests.setdefault(report.nodeid, {"seconds": 0.0, "passed": True})
        test["seconds"] += report.duration
        test["passed"] &= not report.failed
        if report.when == "teardown":
            test.update(self._heard())

    def _listen(self) -> None:
        sys.settrace(self._hear)
        threading.settrace(self._hear)

    def _heard(self) -> dict[str, Any]:
        sys.settrace(None)
        threading.settrace(None)
        inside = [each for each in self._called.values() if each.co_filename.startswith(self.package)]
        return {"functions": sorted({self._place(each) for each in inside}), "starts": self._starts}

    def _place(self, code: CodeType) -> str:
        name = "pytest_ascend/" + code.co_filename.removeprefix(self.package)
        return place(name, code)

    def _hear(self, frame: Any, event: str, argument: Any) -> None:  # noqa: ARG002  (as sys.settrace calls it)
        code = frame.f_code
        self._called[id(code)] = code
        self._starts |= code.co_name == "_execute_child"

    def _forks(self) -> None:
        self._starts = True


def kernels_imported() -> Any:
    """Import the kernels, as the first operator would, where the emulated device is there; return what calls them."""
    return importlib.import_module(DISPATCH) if "pytest_ascend.emulator" in sys.modules else None


def place(path: str, code: CodeType) -> str:
    """Return what a function is known by."""
    return f"{path}:{code.co_name}:{code.co_firstlineno}"


class Chosen:
    """A plugin of pytest: runs these tests, in this order, and no other."""

    def __init__(self, room: Room, names: Sequence[str]) -> None:
        self.room, self.places = room, {name: number for number, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort, and leave the others out."""
        items[:] = sorted((item for item in items if item.nodeid in self.places), key=lambda it: self.places[it.nodeid])
        self.room.limit_each(items)


class Warm:
    """A plugin of pytest: once the tests are collected, forks for each mutant instead of running them.

    Writes a line of JSON to ``answers`` for each: what noticed it, or that it needs tests that are collected anew.
    """

    def __init__(self, room: Room, drawn: Sequence[Mutant], answers: int) -> None:
        self.room, self.drawn, self.answers, self.failed = room, drawn, answers, ""

    def pytest_runtestloop(self, session: Any) -> bool:
        """Try each mutant."""
        items = {item.nodeid: item for item in session.items if item.nodeid in self.room.tests}
        self.room.limit_each(items.values())
        kernels_imported()
        gc.collect()
        loaded = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        gc.freeze()  # else the collector of each fork would touch, and so copy, all of this
        for number, mutant in enumerate(self.drawn):
            began, noticed = time.monotonic(), None
            with mutated(self.room.copy, mutant) as original:
                codes = functions(original, mutant.source)
                functions_live = live(loaded, str(self.room.copy / mutant.path), codes)
                names = self.room.near(mutant.path, codes)
                if functions_live and names is not None:
                    noticed = self._noticed([items[each] for each in names if each in items], functions_live)
            answer = {"number": number, "noticed": noticed, "seconds": time.monotonic() - began}
            os.write(self.answers, (json.dumps(answer) + "\n").encode())
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the first that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def _noticed(self, items: list[Any], swapped: Sequence[tuple[FunctionType, CodeType]]) -> str:
        result = self.room.copy / "noticed.txt"
        result.write_text("", encoding="utf-8")

        def attempt() -> int:
            for function, code in swapped:
                function.__code__ = code
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    result.write_text(self.failed, encoding="utf-8")
                    return 1
            return 0

        code = forked(attempt, self.room.limit([each.nodeid for each in items]), self.room.copy)
        return result.read_text(encoding="utf-8") or said_of(code)


def functions(before: str, after: str) -> list[tuple[CodeType, CodeType]] | None:
    """Return each function whose code differs, outer ones first; None where a module's or class's own code does."""
    old, new = (compile(source, "", "exec", dont_inherit=True) for source in (before, after))
    return _differing(old, new)


def _differing(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new)]
    is_function, same = bool(old.co_flags & CO_OPTIMIZED), _own(old) == _own(new)
    if not is_function and not same:
        return None
    found: list[tuple[CodeType, CodeType]] = []
    if len(inner[0]) == len(inner[1]):
        for pair in zip(*inner, strict=True):
            below = _differing(*pair)
            if below is None:
                return None
            found += below
    return [(old, new), *found] if is_function and (found or not same) else found


def _own(code: CodeType) -> tuple[object, ...]:
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants


def live(
    loaded: Iterable[FunctionType], path: str, codes: Sequence[tuple[CodeType, CodeType]] | None
) -> list[tuple[FunctionType, CodeType]]:
    """Return those functions that have these codes, with the new one; [] where the first is nowhere."""
    new = dict(codes or ())
    found = [
        (each, new[each.__code__]) for each in loaded if each.__code__.co_filename == path and each.__code__ in new
    ]
    return found if codes and any(each.__code__ == codes[0][0] for each, _ in found) else []


@dataclass(frozen=True)
class Room:
    """A room, its copy, and what its tests do unchanged."""

    name: str
    copy: Path
    tests: Mapping[str, Mapping[str, Any]]
    at_import: frozenset[str]
    #: Seconds of the longest test that is asked.
    longest_s: float = math.inf

    def near(self, path: str, codes: Sequence[tuple[CodeType, CodeType]] | None) -> list[str] | None:
        """Return the tests that may notice a change of these functions, those that call them first.

        None where one is called on import, or where a table is changed.
        """
        changed = {place(path, code) for code, _ in codes or ()}
        if not changed or changed & self.at_import:
            return None
        near = [each for each in self.passing() if changed & set(self.tests[each]["functions"])]
        known = set(near)
        return near + [each for each in self.passing() if each not in known and self.tests[each]["starts"]]

    def of_module(self, path: str) -> tuple[list[str], list[str]]:
        """Return the tests that call anything of a module, and all others."""
        passing = self.passing()
        near = [each for each in passing if any(said.startswith(f"{path}:") for said in self.tests[each]["functions"])]
        known = set(near)
        return near, [each for each in passing if each not in known]

    def passing(self) -> list[str]:
        """Return the tests that pass unchanged and take no longer than they may, quick ones first."""
        found = (each for each in self.tests if self.tests[each]["passed"] and self._seconds(each) <= self.longest_s)
        return sorted(found, key=self._seconds)

    def limit(self, names: Sequence[str]) -> float:
        """Return the seconds that tests may take."""
        return LIMIT_S + 10 * sum(map(self._seconds, names))

    def limit_each(self, items: Iterable[Any]) -> None:
        """Give each test of pytest a limit that it fails at, as a loop without end would take its room's."""
        import pytest  # noqa: PLC0415  (imported by the parent already)

        for item in items:
            seconds = TEST_LIMIT_S + 10 * self._seconds(item.nodeid)
            item.add_marker(pytest.mark.timeout(seconds), append=False)

    def _seconds(self, name: str) -> float:
        return float(self.tests[name]["seconds"])


@contextlib.contextmanager
def mutated(copy: Path, mutant: Mutant) -> Iterator[str]:
    """Put a mutant into the copy; yield what stood there, which comes back."""
    path = copy / mutant.path
    original = path.read_bytes()
    try:
        _write(path, mutant.source.encode())
        yield original.decode()
    finally:
        _write(path, original)


def _write(path: Path, content: bytes) -> None:
    """Write a module with a date of its own: bytecode is known by seconds and size."""
    stamp = int(path.stat().st_mtime) + 2
    path.write_bytes(content)
    os.utime(path, (stamp, stamp))


def forked(attempt: Callable[[], int], limit_s: float, copy: Path) -> int:
    """Run something in a fork of this process; return its exit code, -1 where time is over. Nothing of it is left."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os._exit(attempt())
        except BaseException:  # noqa: BLE001  (a fork must never go on as its parent)
            traceback.print_exc()
            os._exit(70)
    ended, status = 0, 0
    try:
        while not ended and time.monotonic() - began < limit_s:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0 if ended else 0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
        end_strays(copy)
    return os.waitstatus_to_exitcode(status) if ended else -1


def end_strays(copy: Path) -> None:
    """End what tests started in sessions of their own: it was started with the copy in its PYTHONPATH."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"PYTHONPATH={copy}".encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def run(
    copy: Path, tests: Sequence[str], plugin: Any, *options: str, limit_s: float = 3600, result: Path | None = None
) -> int:
    """Run tests in a fork of this process; give pytest's exit code (-1 where time is over)."""
    return forked(lambda: _in_child(copy, tests, plugin, options, result), limit_s, copy)


def _in_child(copy: Path, tests: Sequence[str], plugin: Any, options: Sequence[str], result: Path | None) -> int:
    import pytest  # noqa: PLC0415  (imported by the parent already)

    said = os.open(copy / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    files = sorted({str(path.relative_to(copy)) for each in tests for path in copy.glob(each)})
    given = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", f"--basetemp={copy.with_name('temporary')}", *QUIET]
    code = int(pytest.main([*given, *options, *files], [plugin]))
    if result:
        result.write_text(json.dumps(plugin.tests), encoding="utf-8")
    sys.stdout.flush()
    return code


def warmly(room: Room, drawn: Sequence[Mutant]) -> Iterator[dict[str, Any]]:
    """Try mutants in forks of one process; yield the answers of ``Warm``, as they come."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            os._exit(_in_child(room.copy, ROOMS[room.name], Warm(room, drawn, writing), (), None))
        except BaseException:  # noqa: BLE001  (a fork must never go on as its parent)
            traceback.print_exc()
            os._exit(70)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for line in answers:
            yield json.loads(line)
    os.waitpid(child, 0)


def tried(room: Room, mutant: Mutant) -> str:
    """Put a mutant into the copy and collect and run the tests anew: what noticed it, "" where nothing did."""
    with mutated(room.copy, mutant):
        for names in room.of_module(mutant.path):
            if names:
                files = sorted({each.partition("::")[0] for each in names})
                code = run(room.copy, files, Chosen(room, names), "-x", limit_s=room.limit(names))
                if code:
                    said = (room.copy / "said.txt").read_text(encoding="utf-8", errors="replace").splitlines()
                    failed = next((line for line in said if line.startswith(("FAILED", "ERROR "))), said_of(code))
                    return failed[:200]
    return ""


def said_of(code: int) -> str:
    """Say in words how tests ended; "" where they passed."""
    if code < 0:
        return "time is over" if code == -1 else f"signal {-code}"
    return f"exit code {code}" if code else ""


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
    parser.add_argument("--longest", type=float, default=math.inf, metavar="S", help="leave tests of more seconds out")
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
    import hypothesis, pytest, torch  # noqa: E401, F401, I001, PLC0415  the whole point of the forks

    folder = Path(tempfile.mkdtemp(prefix="mutation-", dir=given.folder))
    try:
        copy = copied(folder / "copy")
        for room in rooms:
            here = [each for each in drawn if each.room == room]
            for mutant, noticed, seconds in answers(copy, room, here, given.longest) if here else ():
                told = {name: value for name, value in asdict(mutant).items() if name != "source"}
                found.append({**told, "noticed": noticed, "seconds": round(seconds, 1)})
                print(f"{len(found)} {mutant.path}:{mutant.line} {mutant.before[:60]!r} -> {mutant.after[:60]!r}: "  # noqa: T201
                      f"{noticed or 'SURVIVED'} ({seconds:.0f} s)", flush=True)  # fmt: skip
                if given.json:
                    given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))  # noqa: T201
    return int(sum(bool(each["noticed"]) for each in found) < 0.92 * len(found))


def answers(
    copy: Path, name: str, drawn: Sequence[Mutant], longest_s: float = math.inf
) -> Iterator[tuple[Mutant, str, float]]:
    """Try the mutants of a room: each, what noticed it ("" where nothing did), and the seconds."""
    room, left = replace(unchanged(copy, name, longest_s), longest_s=longest_s), dict(enumerate(drawn))
    for answer in warmly(room, drawn):
        if answer["noticed"] is not None:
            yield left.pop(answer["number"]), answer["noticed"], answer["seconds"]
    for mutant in left.values():
        began = time.monotonic()
        noticed = tried(room, mutant)
        yield mutant, noticed, time.monotonic() - began


def unchanged(copy: Path, name: str, longest_s: float = math.inf) -> Room:
    """Run the tests of a room as they are; say what fails without any mutant, which is left out from then on."""
    result, began = copy / "tests.json", time.monotonic()
    recorder = Recorder(copy / "pytest_ascend", longest_s)
    code = forked(lambda: _in_child(copy, ROOMS[name], recorder, (), result), 3600, copy)
    if not result.exists():
        said = (copy / "said.txt").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"{name}: its tests do not run (exit code {code}): {said[-2000:]}")
    known: dict[str, dict[str, Any]] = json.loads(result.read_text(encoding="utf-8"))
    result.unlink()
    at_import = frozenset(known.pop("")["functions"])
    failing = [each for each in known if not known[each]["passed"]]
    seconds = time.monotonic() - began
    print(f"{name}: {len(known)} tests in {seconds:.0f} s; left out: {failing}", flush=True)  # noqa: T201
    return Room(name, copy, known, at_import)


if __name__ == "__main__":
    sys.exit(main())
