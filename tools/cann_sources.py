"""What the host code of CANN's operators refuses: an interpreter of the C++ with which they check their arguments.

A call is interpreted for one chip, with what is known of its tensors: the dtype or the rank of one, of two or of all.
Everything else is unknown. A condition that is unknown goes both ways, and a call is refused only if every way ends in
an error, so that what is not understood counts as accepted.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

#: ``chips``: the architecture and SoC by which host code tells families apart, and the name in definitions; ``socs`` in
#: the order in which it compares them; ``constants`` of CANN's headers; ``macros`` of op_error_check.h and its like, as
#: the statements that they stand for; dtypes by kind, and those that torch has under another name.
_DATA: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
CHIPS, _MACROS, _TORCH = _DATA["chips"], _DATA["macros"], _DATA["torch"]
_CONSTANTS = {f"ASCEND{each}": place for place, each in enumerate(_DATA["socs"])} | _DATA["constants"]
_FLOATS, _INTEGERS, _COMPLEX = _DATA["floats"], _DATA["integers"], _DATA["complex"]


class _Unknown:
    def __bool__(self) -> bool:
        raise TypeError("the truth of what is unknown")

    def __repr__(self) -> str:
        return "?"


U: Any = _Unknown()


@dataclass(frozen=True)
class Tensor:
    """A tensor, or a list of tensors that are alike, of which the dtype (such as DT_FLOAT) or rank may be known."""

    dtype: Any = U
    rank: Any = U


@dataclass
class Function:
    """A function of a source file: the names and types of its parameters, and its body, a tree of statements."""

    file: str
    name: str
    types: tuple[str, ...]
    parameters: tuple[str, ...]
    body: Any


@dataclass
class Sources:
    """The functions and constants of some repositories."""

    functions: dict[str, list[Function]] = field(default_factory=dict)
    #: The values of constants, as trees, by file and name.
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernels: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)
    #: The parameters of a kernel in the order of the function that CANN generates of its definition.
    orders: dict[str, list[str]] = field(default_factory=dict)
    #: The words for dtypes and chips in each file.
    mentions: dict[str, set[str]] = field(default_factory=dict)

    def read(self, path: str, text: str) -> None:
        """Add a file of host code."""
        text = re.sub(r"//[^\n]*|/\*.*?\*/|\bACLNN_API\b", " ", text, flags=re.DOTALL)
        text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.MULTILINE)
        words = re.findall(rf"{_STRING}|\w+(?:\s*::\s*\w+)*", text)
        chosen = [each for each in words if re.search("DT_|DAV_|ASCEND|IsRegBase|Arch|Soc", each)]
        self.mentions[path] = {re.sub(r"\s", "", each).rsplit("::", 1)[-1] for each in chosen}
        self.constants.setdefault(path, {})
        text = re.sub(r'extern\s*""\s*\{?', " ", re.sub(_STRING, '""', text))  # not all are closed
        self._take(path, _CPP.parse(_expanded(text).encode()).root_node)

    def _take(self, path: str, node: Node) -> None:
        """Add what is declared in a file or a namespace."""
        for each in node.named_children:
            if each.type in _AROUND:
                self._take(path, each)
            elif each.type == "declaration":
                self.constants[path].update((name, value) for name, value in _declared(each) if name)
            elif each.type == "function_definition" and (head := _found(each, "function_declarator")):
                name = _text(head.child_by_field_name("declarator")).rsplit("::", 1)[-1]
                given = [_parameter(one) for one in head.child_by_field_name("parameters").named_children]
                given = [one for one in given if one != ("", "void")]
                body = each.child_by_field_name("body")
                names, types = zip(*given, strict=True) if given else ((), ())
                self.functions.setdefault(name, []).append(Function(path, name, types, names, body))


# --- from the syntax of C++ to trees: tuples that begin with their kind ---

_CPP = Parser(Language(tree_sitter_cpp.language()))
_STRING = r'"(?:\\[\s\S]|[^"\\])*"'
#: What is around the declarations of a file.
_AROUND = ("namespace_definition", "linkage_specification", "declaration_list", "template_declaration", "ERROR")
_NOTHING: Any = ("block", [])
_UNKNOWN: Any = ("value", U)


def _expanded(text: str) -> str:
    """Return source with the macros of ``_MACROS`` replaced by their statements, and without others that return."""
    parts, at = [], 0
    for found in re.finditer(r"\b([A-Z][A-Z0-9_]+)\s*\(", text):
        if found.start() < at:
            continue
        given, depth, place = [""], 1, found.end()
        while depth and place < len(text):
            each = text[place]
            depth += (each in "([{") - (each in ")]}")
            if each == "," and depth == 1 and not re.search(r"\b(vector|tuple|list|map|array)<[^>]*$", given[-1]):
                given.append("")
            elif depth:
                given[-1] += each
            place += 1
        if found[1] in _MACROS or re.search(r"\breturn\b", ",".join(given)):
            made = _MACROS.get(found[1], "").format(*given, "", "", "")
            parts += [text[at : found.start()], "{", made, "}"]
            at = place
    return "".join([*parts, text[at:]])


def _text(node: Node | None) -> str:
    """Return source without spaces and template arguments."""
    text = re.sub(r"\s", "", node.text.decode(errors="replace")) if node else ""
    return re.sub(r"<.*>", "", text, flags=re.DOTALL)


def _found(node: Node | None, kind: str) -> Node | None:
    """Return the declarator of a kind, below those of pointers and references."""
    while node and node.type != kind:
        node = node.child_by_field_name("declarator") or next(
            (each for each in node.named_children if each.type.endswith("declarator")), None
        )
    return node


def _parameter(node: Node) -> tuple[str, str]:
    """Return the name and the type of a parameter."""
    declarator = node.child_by_field_name("declarator")
    name = re.findall(r"\w+", _text(declarator))[-1:] if declarator else []
    default = node.child_by_field_name("default_value")
    whole = node.text.decode(errors="replace")
    whole = whole[: default.start_byte - node.start_byte] if default else whole
    kind = re.sub(r"\s", "", whole)
    return (name[0], kind.removesuffix("=").removesuffix(name[0])) if name else ("", kind)


def _declared(node: Node) -> Iterator[tuple[str, Any]]:
    """Yield the names that a declaration gives a value to; "" for what is no name."""
    for each in node.children_by_field_name("declarator"):
        value = each.child_by_field_name("value")
        if value is not None and value.type != "argument_list":
            declarator = each.child_by_field_name("declarator")
            name = re.match(r"[*&]*(\w+)", _text(declarator))
            yield (name[1] if name else ""), expression(value)


def statement(node: Node) -> Any:
    """Return the tree of a statement."""
    part = node.child_by_field_name
    kind = node.type.removesuffix("_statement")
    if kind in ("compound", "else_clause"):
        return ("block", [statement(each) for each in node.named_children])
    if kind == "if":
        condition, other = part("condition").child_by_field_name("value"), part("alternative")
        return ("if", expression(condition), statement(part("consequence")), statement(other) if other else _NOTHING)
    if kind == "switch":
        cases = [each for each in part("body").named_children if each.type == "case_statement"]
        return ("switch", expression(part("condition").child_by_field_name("value")), [_case(each) for each in cases])
    if kind == "for_range_loop":
        name = re.findall(r"\w+", _text(part("declarator")))[-1:] or [""]
        return ("loop", True, (name[0], expression(part("right"))), statement(part("body")))
    if kind in ("for", "while"):
        head = node.text[: part("body").start_byte - node.start_byte]
        return ("loop", b"ize" in head, None, statement(part("body")))
    if kind == "do":
        return statement(part("body"))
    if kind in ("break", "continue", "return"):
        return (kind, expression(node.named_children[0]) if node.named_children else _UNKNOWN)
    if kind == "declaration":
        return ("block", [("let", *each) for each in _declared(node)])
    if kind == "expression" and node.named_children:
        inner = node.named_children[0]
        if inner.type != "assignment_expression":
            return ("let", "", expression(inner))
        left, operator = inner.child_by_field_name("left"), _text(inner.child_by_field_name("operator"))
        name = _text(left).lstrip("*") if left.type in ("identifier", "pointer_expression") else ""
        return ("let", name, expression(inner.child_by_field_name("right"))) if operator == "=" else _NOTHING
    return _NOTHING


def _case(node: Node) -> tuple[Any, list[Any]]:
    value = node.child_by_field_name("value")
    return (expression(value) if value else None, [statement(each) for each in node.named_children if each != value])


def expression(node: Node | None) -> Any:
    """Return the tree of an expression; an unknown value for what is not understood."""
    if node is None or node.has_error:
        return _UNKNOWN
    part, kind = node.child_by_field_name, node.type.removesuffix("_expression")
    inner = node.named_children
    if kind in ("true", "false", "null", "this") or kind.endswith(("identifier", "type", "template_function")):
        return ("name", _text(node))
    if kind == "number_literal":
        number = re.match(r"0x[\da-fA-F]+|\d+(?![\d.]*[.ef])", _text(node))
        return ("value", int(number[0], 0)) if number else _UNKNOWN
    if kind == "parenthesized" and len(inner) == 1:
        return expression(inner[0])
    if kind == "pointer" or (kind == "update" and node.children[0] == part("argument")):
        return expression(part("argument"))
    if kind == "unary" and _text(part("operator")) in ("!", "-", "+"):
        operator, value = _text(part("operator")), expression(part("argument"))
        return value if operator == "+" else ("unary", operator, value)
    if kind == "binary":
        return ("binary", _text(part("operator")), expression(part("left")), expression(part("right")))
    if kind == "conditional":
        return ("choose", *(expression(part(each)) for each in ("condition", "consequence", "alternative")))
    if kind == "call":
        return ("call", expression(part("function")), [expression(each) for each in part("arguments").named_children])
    if kind == "field":
        return ("member", expression(part("argument")), _text(part("field")))
    if kind == "subscript":
        return ("item", expression(part("argument")), _UNKNOWN)
    if kind in ("initializer_list", "compound_literal"):
        values = inner if kind == "initializer_list" else part("value").named_children
        return ("list", [expression(each) for each in values])
    return _UNKNOWN


@dataclass
class _Outcome:
    """What may become of statements: whether they may end, break off, and what they may return."""

    falls: bool = True
    breaks: bool = False
    returned: list[Any] = field(default_factory=list)


class Refused(Exception):
    """A kernel that is surely reached does not take a dtype."""


class Accepted(Exception):
    """A call may be accepted, whatever follows."""


_MOST_STEPS = 5_000


class Interpreter:
    """Interprets calls on one chip."""

    def __init__(self, sources: Sources, chip: str) -> None:
        self.sources, self.chip = sources, chip
        self.arch, soc, self.folder = CHIPS[chip]
        self.soc = _CONSTANTS[soc]
        self.steps = self.depth = 0
        self.sure = 0  # how many unknown conditions are around
        self.cache: dict[tuple[str, str], Any] = {}
        self.memory: dict[Any, Any] = {}

    def refuses(self, function: Function, known: Mapping[str, Tensor], *, kernels: bool = False) -> str:
        """Return how a call of a first phase is refused: "host", "kernel", or "" if it may be accepted.

        Without ``kernels``, interpretation ends where the host code has accepted a call.
        """
        self.kernels = kernels
        self.steps = self.depth = self.sure = 0
        given = [
            known.get(name, Tensor() if "aclTensor" in kind and "Optional" not in name else U)
            for name, kind in zip(function.parameters, function.types, strict=True)
        ]
        try:
            result = self._run(function, given)
        except Refused:
            return "kernel"
        except (Accepted, RecursionError, TimeoutError):
            return ""
        return "host" if result and all(each is not U and each not in (0, True) for each in result) else ""

    def _run(self, function: Function, given: Sequence[Any]) -> list[Any]:
        """Return what a function may return."""
        if isinstance(function.body, Node):
            function.body = statement(function.body)
        scope = {**dict(zip(function.parameters, given, strict=False)), "": function.file}
        outcome = self._all(function.body[1], scope)
        return outcome.returned + [U] * outcome.falls

    def _all(self, statements: Sequence[Any], scope: dict[str, Any]) -> _Outcome:
        total = _Outcome()
        for each in statements:
            made = self._one(each, scope)
            total.returned += made.returned
            total.breaks |= made.breaks
            if not self.depth and not self.kernels and any(code is U or code in (0, True) for code in made.returned):
                raise Accepted
            if not made.falls:
                return replace(total, falls=False)
        return total

    def _one(self, statement: Any, scope: dict[str, Any]) -> _Outcome:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise TimeoutError
        kind = statement[0]
        if kind == "block":
            return self._all(statement[1], scope)
        if kind == "let":
            value = self.value(statement[2], scope)
            if statement[1]:
                scope[statement[1]] = value
            return _Outcome()
        if kind == "return":
            return _Outcome(falls=False, returned=[self.value(statement[1], scope)])
        if kind in ("break", "continue"):
            return _Outcome(falls=False, breaks=True)
        if kind == "if":
            condition = self.value(statement[1], scope)
            if condition is not U:
                return self._one(statement[2] if condition else statement[3], scope)
            return self._either([[statement[2]], [statement[3]]], scope)
        if kind == "switch":
            return self._switch(statement, scope)
        return self._loop(statement, scope)

    def _either(self, ways: Sequence[Sequence[Any]], scope: dict[str, Any]) -> _Outcome:
        """Run each of several ways on a copy, and keep what they agree on."""
        self.sure += 1
        total, kept = _Outcome(falls=False), []
        for way in ways:
            copy = dict(scope)
            try:
                made = self._all(way, copy)
            except Refused:
                total.returned.append(561103)
                continue
            total.returned += made.returned
            total.breaks |= made.breaks
            total.falls |= made.falls
            if made.falls or made.breaks:
                kept.append(copy)
        self.sure -= 1
        for name in {name for copy in kept for name in copy}:
            values = [copy.get(name, U) for copy in kept]
            scope[name] = values[0] if all(_same(each, values[0]) for each in values) else U
        return total

    def _switch(self, statement: Any, scope: dict[str, Any]) -> _Outcome:
        value = self.value(statement[1], scope)
        labels = [None if label is None else self.value(label, scope) for label, _ in statement[2]]
        bodies = [body for _, body in statement[2]]
        runs = [[each for body in bodies[at:] for each in body] for at in range(len(bodies))]  # cases go on
        if value is U or any(label is U for label in labels):
            made = self._either([*runs, *([] if None in labels else [[]])], scope)
        else:
            at = labels.index(value) if value in labels else labels.index(None) if None in labels else -1
            made = self._all(runs[at], scope) if at >= 0 else _Outcome()
        return replace(made, falls=made.falls or made.breaks, breaks=False)

    def _loop(self, statement: Any, scope: dict[str, Any]) -> _Outcome:
        _, once, bound, body = statement
        copy = dict(scope)
        if bound:
            over = self.value(bound[1], scope)
            copy[bound[0]] = over if isinstance(over, Tensor) else U
        self.sure += not once
        try:
            made = self._one(body, copy)
        except Refused:
            if once:
                raise
            made = _Outcome(returned=[561103])
        finally:
            self.sure -= not once
        for name, value in copy.items():
            if name in scope and not _same(value, scope[name]):
                scope[name] = U
        falls = made.falls or made.breaks or not once
        return _Outcome(falls=falls, returned=made.returned)

    # --- expressions ---

    def value(self, tree: Any, scope: dict[str, Any]) -> Any:
        """Return the value of an expression, U if it is unknown."""
        kind = tree[0]
        if kind == "value":
            return tree[1]
        if kind == "name":
            return self._named(tree[1], scope)
        if kind == "list":
            return tuple(self.value(each, scope) for each in tree[1])
        if kind == "choose":
            condition = self.value(tree[1], scope)
            if condition is U:
                first, second = (self.value(each, scope) for each in tree[2:])
                return first if _same(first, second) else U
            return self.value(tree[2] if condition else tree[3], scope)
        if kind == "unary":
            value = self.value(tree[2], scope)
            return U if value is U or isinstance(value, Tensor) else (not value if tree[1] == "!" else -value)
        if kind == "binary":
            return self._combined(tree[1], tree[2], tree[3], scope)
        if kind == "item":
            return self.value(tree[1], scope) if isinstance(self.value(tree[1], scope), Tensor) else U
        if kind == "member":
            return ("method", self.value(tree[1], scope), tree[2])
        return self._call(tree[1], tree[2], scope)

    def _named(self, name: str, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        short = name.rsplit("::", 1)[-1]
        if short.startswith(("DT_", "DAV_", "FORMAT_")):
            return {"DT_BF16": "DT_BFLOAT16"}.get(short, short)
        if short in _CONSTANTS:
            return _CONSTANTS[short]
        if "ACLNN_ERR" in short:
            return 561000
        file = scope.get("", "")
        if (file, short) not in self.cache:
            self.cache[file, short] = U
            holders = [file] if short in self.sources.constants.get(file, {}) else [
                each for each, held in self.sources.constants.items() if short in held
            ]  # fmt: skip
            made = [self.value(self.sources.constants[each][short], {"": each}) for each in holders]
            if made and all(_same(each, made[0]) for each in made):
                self.cache[file, short] = made[0]
        return self.cache[file, short]

    def _combined(self, operator: str, left_tree: Any, right_tree: Any, scope: dict[str, Any]) -> Any:
        left, right = self.value(left_tree, scope), self.value(right_tree, scope)
        if operator in ("&&", "||"):
            stops = operator == "||"
            if any(each is not U and bool(each) == stops for each in (left, right)):
                return stops
            return U if left is U or right is U else not stops
        if U in (left, right) if not isinstance(left, tuple) and not isinstance(right, tuple) else False:
            return U
        if operator in ("==", "!=") and (left is None or right is None or type(left) is type(right)):
            if isinstance(left, Tensor) and isinstance(right, Tensor):
                return U
            return (left == right) == (operator == "==")
        if not isinstance(left, int) or not isinstance(right, int):
            return U
        table: dict[str, Callable[[int, int], Any]] = {
            "<": int.__lt__, ">": int.__gt__, "<=": int.__le__, ">=": int.__ge__, "+": int.__add__, "-": int.__sub__,
            "*": int.__mul__, "==": int.__eq__, "!=": int.__ne__,
        }  # fmt: skip
        return table[operator](left, right) if operator in table else U

    def _call(self, callee: Any, trees: Sequence[Any], scope: dict[str, Any]) -> Any:
        if callee[0] == "member":
            return self._method(self.value(callee[1], scope), callee[2], [self.value(each, scope) for each in trees])
        if callee[0] != "name":
            return U
        name = callee[1].rsplit("::", 1)[-1]
        if name in ("static_cast", "const_cast", "reinterpret_cast", "DataType", "size_t", "move"):
            return self.value(trees[0], scope) if len(trees) == 1 else U
        if name.startswith("ADD_TO_LAUNCHER_LIST"):
            return 0 if "AICPU" in name else self._launched(trees, scope)
        given = [self.value(each, scope) for each in trees]
        if (built := _built_in(name, given)) is not None:
            return built[0]
        if name == "AllocTensor":
            return _allocated(given)
        found = self._function_of(name, len(given), scope.get("", ""))
        if found is None or self.depth > 25:
            return U
        key = (id(found), tuple(given), bool(self.sure))
        if key not in self.memory:
            self.depth += 1
            try:
                results = self._run(found, given)
                first = results[0] if results else U
                self.memory[key] = first if all(_same(each, first) for each in results) else _joined(results)
            except Refused as refused:
                self.memory[key] = refused
            finally:
                self.depth -= 1
        if isinstance(self.memory[key], Refused):
            raise self.memory[key]
        return self.memory[key]

    @functools.cache  # noqa: B019  (an interpreter lives as long as the process)
    def _function_of(self, name: str, count: int, file: str) -> Function | None:
        """Return the function that a call in a file means: the nearest one that takes as many arguments."""
        fit = [each for each in self.sources.functions.get(name, ()) if len(each.parameters) >= count]

        def distance(each: Function) -> tuple[bool, int]:
            same = [mine == theirs for mine, theirs in zip(each.file.split("/"), file.split("/"), strict=False)]
            return len(each.parameters) != count, -([*same, False].index(False))

        return min(fit, key=distance, default=None)

    def _method(self, of: Any, name: str, given: Sequence[Any]) -> Any:
        if name in ("GetCurNpuArch", "GetSocVersion"):
            return self.arch if name == "GetCurNpuArch" else self.soc
        if name == "AllocTensor":
            return _allocated(given)
        if isinstance(of, Tensor):
            shapes = dict.fromkeys(("GetViewShape", "GetStorageShape", "GetOriginalShape"), of)
            return {"GetDataType": of.dtype, "GetDimNum": of.rank, "IsEmpty": False, **shapes}.get(name, U)
        if isinstance(of, tuple) and of[:1] != ("method",):
            if name in ("find", "count"):
                keys = [each[0] if isinstance(each, tuple) and each else each for each in of]  # those of a map
                return ("found", given[0] in keys) if U not in (given[0],) and U not in keys else U
            if name == "end":
                return ("found", False)
        return U

    def _launched(self, trees: Sequence[Any], scope: dict[str, Any]) -> Any:
        """Raise Refused if a kernel lacks a dtype of an input; one that is not known, or on the AICPU, takes all.

        If the kernel of this chip is not published, the dtypes are those on a 950, unless the file that launches it
        names this chip: what it launches there is then a kernel of its own.
        """
        if not trees or trees[0][0] != "name":
            return U
        by_chip = self.sources.kernels.get(trees[0][1], {})
        own = CHIPS[self.chip][1] in self.sources.mentions.get(scope.get("", ""), ())
        lists = by_chip.get(self.folder) or (None if own else by_chip.get("ascend950")) or {}
        inputs = [each for each in trees if each[0] == "call" and each[1] == ("name", "OP_INPUT")]
        tensors = [self.value(each, scope) for each in (inputs[0][2] if inputs else ())]
        for tensor, taken in zip(tensors, lists.values(), strict=False):
            if isinstance(tensor, Tensor) and tensor.dtype is not U and taken and tensor.dtype not in taken:
                if not self.sure:
                    raise Refused(trees[0][1])
                return 561103
        return 0


def _allocated(given: Sequence[Any]) -> Tensor:
    return Tensor(*[each for each in given if isinstance(each, str) and each.startswith("DT_")][:1])


def _same(left: Any, right: Any) -> bool:
    return left is right or (type(left) is type(right) and bool(left == right))


def _joined(values: Sequence[Any]) -> Any:
    """Return what several possible values have in common: whether they are a tensor."""
    known = [each for each in values if each is not None]
    if known and all(isinstance(each, Tensor) for each in known):
        return known[0] if all(each == known[0] for each in known) else Tensor()
    codes = [each for each in values if each is not U]
    if len(codes) == len(values) and all(type(each) is int and each for each in codes):
        return codes[0]
    return U


def promoted(left: Any, right: Any) -> Any:
    """Return the dtype of two, as torch and CANN promote them; unknown where torch does not."""
    if left == right or U in (left, right):
        return left if left == right else U
    try:
        both = (getattr(torch, _TORCH.get(each, each[3:].lower())) for each in (left, right))
        name = str(torch.promote_types(*both)).removeprefix("torch.")
    except (AttributeError, RuntimeError):
        return U
    return next((each for each, known in _TORCH.items() if known == name), f"DT_{name.upper()}")


def can_cast(source: Any, target: Any) -> Any:
    """Whether CANN casts one dtype to another: not from complex to real, float to integer, or to bool."""
    if U in (source, target):
        return U
    rank = lambda dtype: (dtype in _INTEGERS) + 2 * (dtype in _FLOATS) + 3 * (dtype in _COMPLEX)  # noqa: E731
    return rank(source) <= rank(target)


def _built_in(name: str, given: Sequence[Any]) -> tuple[Any] | None:
    """Return the value of a function of CANN's own headers, in a tuple; None for other functions."""
    if name == "CheckType" and len(given) == 2:
        dtype, listed = given
        return (U if dtype is U or not isinstance(listed, tuple) or U in listed else dtype in listed,)
    if name == "PromoteType" and len(given) == 2:
        return (promoted(*given),)
    if name == "CanCast" and len(given) == 2:
        return (can_cast(*given),)
    kinds = {"IsFloatingType": _FLOATS, "IsComplexType": _COMPLEX}
    if name in kinds and len(given) == 1:
        return (U if given[0] is U else given[0] in kinds[name],)
    if name == "IsIntegralType" and given:
        whole = (*_INTEGERS, *(("DT_BOOL",) if len(given) > 1 and given[1] is True else ()))
        return (U if given[0] is U else given[0] in whole,)
    if name == "Cast" and len(given) == 3 and isinstance(given[0], Tensor):
        return (replace(given[0], dtype=given[1]),)
    if name in ("Contiguous", "Reshape", "Transpose", "UnsqueezeNd", "SqueezeNd", "ViewCopy", "ReFormat", "TransData"):
        return (Tensor(given[0].dtype) if given and isinstance(given[0], Tensor) else U,)
    if name == "IsNullptr":
        return (U if given[0] is U else given[0] is None,)
    return None


# --- reading repositories ---


def git(repository: Path, *arguments: str) -> str:
    """Return what git says about a repository."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")  # noqa: S603


def texts(repository: Path, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of the files at HEAD whose path a pattern matches, without experiments and tests."""
    names = [
        each
        for each in git(repository, "ls-tree", "-r", "HEAD", "--name-only").splitlines()
        if re.search(wanted, each) and not re.search(r"(^|/)(experimental|tests|examples)/", each)
    ]
    given = "".join(f"HEAD:{each}\n" for each in names).encode()
    command = ["git", "-C", str(repository), "cat-file", "--batch"]
    made = subprocess.run(command, input=given, capture_output=True, check=True).stdout  # noqa: S603
    at = 0
    for name in names:
        end = made.index(b"\n", at)
        size = int(made[at:end].split()[-1])
        yield name, made[end + 1 : end + 1 + size].decode(errors="replace")
        at = end + 1 + size + 1


def sources_of(repositories: Mapping[str, Path]) -> Sources:
    """Return the host code of repositories, by their names."""
    found = Sources()
    for name, path in repositories.items():
        for file, text in texts(path, r"/op_api/[^/]*\.(cpp|h)$|^(\w+/)?common/.*op_api/.*\.(cpp|h)$"):
            found.read(f"{name}/{file}", text)
        for _, text in texts(path, r"op_host/\w*_def\.cpp$"):
            found.kernels.update(definitions(text))
            found.orders.update(orders(text))
    return found


def orders(text: str) -> dict[str, list[str]]:
    """Return the inputs, attributes and outputs of kernels; what is changed in place is one parameter."""
    found = {}
    for kernel, body in re.findall(r"class (\w+)\s*:\s*public OpDef(.*?)\n\};?", text, re.DOTALL):
        named = re.findall(r"this\s*->\s*(Input|Attr|Output)\(\"(\w+)\"\)", body)
        ordered = sorted(named, key=lambda each: ("Input", "Attr", "Output").index(each[0]))
        found[kernel] = list(dict.fromkeys(name for _, name in ordered))
    return found


def definitions(text: str) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the dtypes of the inputs and outputs of kernels, by kernel and chip."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    lists = {
        name: _listed(inside)
        for name, inside in re.findall(r"(\w+)\s*(?:\[\])?\s*=?\s*\{((?:\s*(?:ge::)?DT_\w+\s*,?)+)\}", text)
    }
    for kernel, body in re.findall(r"class (\w+)\s*:\s*public OpDef(.*?)\n\};?", text, re.DOTALL):
        tensors: dict[str, dict[str, list[str]]] = {}
        pattern = (
            r"(\w+)\s*(?:->|\.)\s*(?:Input|Output)\(\"(\w+)\"\)((?:(?!Input\(|Output\().)*?)"
            r"\.DataType(?:List)?\(\s*(\{[^}]*\}|\w+)"
        )
        for of, name, _, given in re.findall(pattern, body, re.DOTALL):
            tensors.setdefault(of, {})[name] = _listed(given) if given.startswith("{") else lists.get(given, [])
        base = tensors.get("this", {})
        for chip, config in re.findall(r"AddConfig\(\"(\w+)\"\s*(?:,\s*(\w+))?", body):
            found.setdefault(kernel, {})[chip] = {**base, **tensors.get(config, {})}
    return found


def _listed(text: str) -> list[str]:
    return ["DT_BFLOAT16" if each == "DT_BF16" else each for each in re.findall(r"DT_\w+", text)]
