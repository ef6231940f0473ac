"""What the host code of CANN's operators refuses: an interpreter of the C++ with which they check their arguments.

A call is interpreted for one chip, with what is known of its tensors: the dtype or the rank of one, of two or of all.
Everything else is unknown. A condition that is unknown goes both ways, and a call is refused only if every way ends in
an error, so that what is not understood counts as accepted.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

#: Families of chips: the architecture and SoC by which host code tells them apart, and the name in definitions.
CHIPS = {
    "A2": ("DAV_2201", "ASCEND910B", "ascend910b"),
    "A3": ("DAV_2201", "ASCEND910_93", "ascend910_93"),
    "910": ("DAV_1001", "ASCEND910", "ascend910"),
    "310P": ("DAV_2002", "ASCEND310P", "ascend310p"),
    "310B": ("DAV_3002", "ASCEND310B", "ascend310b"),
    "950": ("DAV_3510", "ASCEND950", "ascend950"),
}
_SOCS = ("910", "910B", "910_93", "950", "910E", "310", "310P", "310B", "310C", "610LITE")
#: Constants of CANN's own headers. The SoCs are ordered, as host code compares them.
_CONSTANTS: dict[str, Any] = {
    **{f"ASCEND{each}": place for place, each in enumerate(_SOCS)},
    **dict(ASCEND910_95=3, true=True, false=False, nullptr=None, MAX_SUPPORT_DIMS_NUMS=8, ACLNN_SUCCESS=0, OK=0),
    **dict(ACLNN_ERR_PARAM_NULLPTR=161001, ACLNN_ERR_PARAM_INVALID=161002, ACLNN_ERR_INNER_NULLPTR=561103),
}
_FLOATS = ("DT_FLOAT", "DT_FLOAT16", "DT_BFLOAT16", "DT_DOUBLE", "DT_HIFLOAT8", "DT_FLOAT8_E5M2", "DT_FLOAT8_E4M3FN")
_COMPLEX = ("DT_COMPLEX32", "DT_COMPLEX64", "DT_COMPLEX128")
_INTEGERS = ("DT_UINT8", "DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_UINT16", "DT_UINT32", "DT_UINT64")

#: Macros of op_error_check.h and its like, as the statements that they stand for.
_MACROS = {
    "CHECK_RET": "if(!({0})){{return {1};}}",
    "CHECK_COND": "if(!({0})){{return {1};}}",
    "CHECK_RET_CODE": "if(({0})!=0){{return {0};}}",
    "OP_CHECK": "if(!({0})){{{2};}}",
    "OP_CHECK_NULL": "if(({0})==nullptr){{{1};}}",
    "OP_CHECK_DTYPE_NOT_SUPPORT": "if(!CheckType(({0})->GetDataType(),{1})){{{2};}}",
    "OP_CHECK_DTYPE_NOT_SUPPORT_WITH_REASON": "if(!CheckType(({0})->GetDataType(),{1})){{{2};}}",
    "OP_CHECK_DTYPE_NOT_MATCH": "if(({0})->GetDataType()!=({1})){{{2};}}",
    "OP_CHECK_DTYPE_NOT_SAME": "if(({0})->GetDataType()!=({1})->GetDataType()){{{2};}}",
    "OP_CHECK_RESULT_DTYPE_CAST_FAILED": "if(!CanCast({0},{1})){{{2};}}",
    "OP_CHECK_MAX_DIM": "if(({0})->GetViewShape().GetDimNum()>({1})){{{2};}}",
    "OP_CHECK_MIN_DIM": "if(({0})->GetViewShape().GetDimNum()<({1})){{{2};}}",
    "OP_CHECK_WRONG_DIMENSION": "if(({0})->GetViewShape().GetDimNum()!=({1})){{{2};}}",
    "OP_CHECK_ADD_TO_LAUNCHER_LIST_AICORE": "if({0}){{{1};}}",
}
_TOKEN = re.compile(
    r'"(?:\\[\s\S]|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|[A-Za-z_]\w*(?:\s*::\s*~?[A-Za-z_]\w*)*|\d[\w.]*'
    r"|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s]"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%"))  # fmt: skip


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
    """A function of a source file: the names and types of its parameters, and its body."""

    file: str
    name: str
    types: tuple[str, ...]
    parameters: tuple[str, ...]
    tokens: list[str]
    body: Any = None


@dataclass
class Sources:
    """The functions and constants of some repositories."""

    functions: dict[str, list[Function]] = field(default_factory=dict)
    constants: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    kernels: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)
    #: The parameters of a kernel in the order of the function that CANN generates of its definition.
    orders: dict[str, list[str]] = field(default_factory=dict)
    #: The words for dtypes and chips in each file.
    mentions: dict[str, set[str]] = field(default_factory=dict)

    def read(self, path: str, text: str) -> None:
        """Add a file of host code."""
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
        text = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.MULTILINE)
        tokens = [re.sub(r"\s", "", each) if each[0] != '"' else each for each in _TOKEN.findall(text)]
        words = {each.rsplit("::", 1)[-1] for each in tokens if re.search("DT_|DAV_|ASCEND|IsRegBase|Arch|Soc", each)}
        self.mentions[path] = words
        constants = self.constants.setdefault(path, {})
        place, start = 0, 0
        while place < len(tokens):
            token = tokens[place]
            if token == "{":
                before = tokens[start:place]
                if "(" in before and "=" not in before[: before.index("(")]:
                    end = closing(tokens, place)
                    self._function(path, before, tokens[place : end + 1])
                    place, start = end, end + 1
                elif before and (before[0] in ("namespace", "extern") or before[0].startswith("namespace")):
                    start = place + 1
                else:
                    place = closing(tokens, place)
            elif token == ";":
                _constant(tokens[start:place], constants)
                start = place + 1
            elif token == "}":
                start = place + 1
            place += 1

    def _function(self, path: str, head: list[str], body: list[str]) -> None:
        opened = head.index("(")
        name = head[opened - 1].rsplit("::", 1)[-1]
        given = [each for each in split(head[opened + 1 : closing(head, opened)]) if each != ["void"]]
        names, types = [], []
        for each in given:
            declared = each[: each.index("=")] if "=" in each else each
            words = [word for word in declared if re.match(r"\w", word)]
            names.append(words[-1] if words else "")
            types.append("".join(declared[:-1]))
        found = Function(path, name, tuple(types), tuple(names), body)
        self.functions.setdefault(name, []).append(found)


def _constant(tokens: list[str], constants: dict[str, list[str]]) -> None:
    if "=" in tokens:
        at = tokens.index("=")
        if at:
            constants[tokens[at - 1] if tokens[at - 1] != "]" else tokens[tokens.index("[") - 1]] = tokens[at + 1 :]
    elif "{" in tokens and tokens.index("{"):
        at = tokens.index("{")
        constants[tokens[at - 1]] = tokens[at:]


_PAIRS = {"(": ")", "{": "}", "[": "]"}


def closing(tokens: Sequence[str], place: int) -> int:
    """Return where the bracket at a place is closed."""
    opened, closed, depth = tokens[place], _PAIRS[tokens[place]], 0
    for at in range(place, len(tokens)):
        depth += (tokens[at] == opened) - (tokens[at] == closed)
        if not depth:
            return at
    return len(tokens) - 1


def split(tokens: Sequence[str], by: str = ",") -> list[list[str]]:
    """Split tokens at commas outside of brackets and template arguments."""
    parts: list[list[str]] = [[]]
    depth = angle = 0
    for place, each in enumerate(tokens):
        depth += each in ("(", "[", "{")
        depth -= each in (")", "]", "}")
        angle += each == "<" and place > 0 and bool(re.match(r"std::|static_cast", tokens[place - 1]))
        angle -= each == ">" and angle > 0
        if each == by and not depth and not angle:
            parts.append([])
        else:
            parts[-1].append(each)
    return parts if parts != [[]] else []


class _Parser:
    """Makes trees, tuples that begin with their kind, of a function's tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at = list(tokens), 0

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if expected and token != expected:
            raise ValueError(f"expected {expected}, found {token}")
        self.at += 1
        return token

    def group(self) -> list[str]:
        """Take a bracket and return what is inside."""
        end = closing(self.tokens, self.at)
        inside = self.tokens[self.at + 1 : end]
        self.at = end + 1
        return inside

    def statements(self) -> list[Any]:
        found = []
        while self.at < len(self.tokens):
            found.append(self.statement())
        return found

    def statement(self) -> Any:
        token = self.peek()
        if token == "{":
            return ("block", _Parser(self.group()).statements())
        if token == ";":
            self.take()
            return ("block", [])
        if token == "if":
            self.take()
            if self.peek() == "constexpr":
                self.take()
            condition = split(self.group(), ";")[-1]
            then = self.statement()
            other = ("block", [])
            if self.peek() == "else":
                self.take()
                other = self.statement()
            return ("if", tree(condition), then, other)
        if token == "switch":
            self.take()
            return ("switch", tree(self.group()), self._cases(self.group()))
        if token in ("for", "while"):
            self.take()
            head = self.group()
            return ("loop", any("ize" in each or each == ":" for each in head), self._bound(head), self.statement())
        if token == "do":
            self.take()
            body = self.statement()
            self._rest()
            return body
        if token in ("break", "continue", "return"):
            self.take()
            rest = self._rest()
            return (token, tree(rest) if rest else ("value", U))
        if token in ("case", "default"):
            raise ValueError("a case outside of a switch")
        if token in _MACROS and self.peek(1) == "(":
            self.take()
            given = [" ".join(each) for each in split(self.group())]
            if self.peek() == ";":
                self.take()
            given += [""] * (3 - len(given))
            return ("block", _Parser(_TOKEN.findall(_MACROS[token].format(*given))).statements())
        return simple(self._rest())

    def _bound(self, head: list[str]) -> tuple[str, Any] | None:
        """Return the name and the range of a loop over a range."""
        parts = split(head, ":")
        return (parts[0][-1], tree(parts[1])) if len(parts) == 2 and parts[0] else None

    def _rest(self) -> list[str]:
        start = self.at
        while self.at < len(self.tokens) and self.peek() != ";":
            self.at = closing(self.tokens, self.at) + 1 if self.peek() in _PAIRS else self.at + 1
        found = self.tokens[start : self.at]
        self.at += 1
        return found

    @staticmethod
    def _cases(tokens: list[str]) -> list[tuple[Any, list[Any]]]:
        parser, found = _Parser(tokens), []
        while parser.at < len(parser.tokens):
            if parser.peek() in ("case", "default"):
                token = parser.take()
                start = parser.at
                while parser.peek() != ":":
                    parser.take()
                found.append((tree(parser.tokens[start : parser.at]) if token == "case" else None, []))
                parser.take()
            else:
                found[-1][1].append(parser.statement())
        return found


def simple(tokens: list[str]) -> Any:
    """Return the tree of a declaration, an assignment or an expression."""
    depth = 0
    for at, each in enumerate(tokens):
        depth += (each in _PAIRS) - (each in _PAIRS.values())
        if each == "=" and not depth and at:
            before = tokens[at - 1]
            name = before if re.match(r"\w", before) and "->" not in tokens[:at] and "." not in tokens[:at] else ""
            return ("let", name, tree(tokens[at + 1 :]))
    if len(tokens) > 2 and tokens[-1] == "}" and "(" not in tokens[: tokens.index("{")]:  # T name{value}
        at = tokens.index("{")
        return ("let", tokens[at - 1], tree(tokens[at:]))
    return ("let", "", tree(tokens)) if tokens else ("block", [])


def tree(tokens: Sequence[str]) -> Any:
    """Return the tree of an expression; an unknown value for what is not understood."""
    parser = _Parser(tokens)
    try:
        made = _ternary(parser)
    except (ValueError, IndexError):
        return ("value", U)
    return made if parser.at >= len(parser.tokens) else ("value", U)


def _ternary(parser: _Parser) -> Any:
    condition = _binary(parser, 0)
    if parser.peek() != "?":
        return condition
    parser.take()
    then = _ternary(parser)
    parser.take(":")
    return ("choose", condition, then, _ternary(parser))


def _binary(parser: _Parser, level: int) -> Any:
    if level == len(_LEVELS):
        return _unary(parser)
    left = _binary(parser, level + 1)
    while parser.peek() in _LEVELS[level]:
        operator = parser.take()
        left = ("binary", operator, left, _binary(parser, level + 1))
    return left


def _unary(parser: _Parser) -> Any:
    token = parser.peek()
    if token in ("!", "-"):
        parser.take()
        return ("unary", token, _unary(parser))
    if token in ("*", "&", "+"):
        parser.take()
        return _unary(parser)
    return _postfix(parser, _primary(parser))


def _primary(parser: _Parser) -> Any:
    token = parser.peek()
    if token == "(":
        return tree(parser.group())
    if token == "{":
        return ("list", [tree(each) for each in split(parser.group())])
    if token == "[":  # a lambda
        parser.group()
        if parser.peek() == "(":
            parser.group()
        while parser.peek() != "{":
            parser.take()
        parser.group()
        return ("value", U)
    parser.take()
    if token[0].isdigit():
        number = re.match(r"0x[\da-fA-F]+|\d+(?![\d.]*[.ef])", token)
        return ("value", int(number[0], 0) if number else U)
    if token[0] in "\"'":
        while parser.peek()[:1] == '"':
            parser.take()
        return ("value", U)
    if parser.peek() == "<" and (template := _template(parser)):
        parser.at = template
    return ("name", token)


def _template(parser: _Parser) -> int:
    """Return where template arguments end, if these are some."""
    depth = 0
    for at in range(parser.at, min(parser.at + 40, len(parser.tokens))):
        token = parser.tokens[at]
        depth += (token == "<") - (token == ">") - 2 * (token == ">>")
        if depth <= 0:
            return at + 1 if at + 1 < len(parser.tokens) and parser.tokens[at + 1] in ("(", "{") else 0
        if not re.match(r"[\w*&,<>]|::", token):
            return 0
    return 0


def _postfix(parser: _Parser, made: Any) -> Any:
    while True:
        token = parser.peek()
        if token == "(":
            made = ("call", made, [tree(each) for each in split(parser.group())])
        elif token == "{":
            made = ("list", [tree(each) for each in split(parser.group())])
        elif token == "[":
            made = ("item", made, tree(parser.group()))
        elif token in ("->", "."):
            parser.take()
            made = ("member", made, parser.take())
        elif token in ("++", "--"):
            parser.take()
        else:
            return made


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
        except Accepted:
            return ""
        except (RecursionError, TimeoutError):
            return ""
        return "host" if result and all(each is not U and each not in (0, True) for each in result) else ""

    def _run(self, function: Function, given: Sequence[Any]) -> list[Any]:
        """Return what a function may return."""
        if function.body is None:
            try:
                function.body = _Parser(function.tokens[1:-1]).statements()
            except (ValueError, IndexError):
                function.body = []
        scope = {**dict(zip(function.parameters, given, strict=False)), "": function.file}
        outcome = self._all(function.body, scope)
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
            return {"DT_BF16": "DT_BFLOAT16", "DT_BOOL": "DT_BOOL"}.get(short, short)
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
            made = [self.value(tree_of(self.sources.constants[each][short]), {"": each}) for each in holders]
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
            return Tensor(*[each for each in given if isinstance(each, str) and each.startswith("DT_")][:1])
        return self._user(name, given, scope)

    def _user(self, name: str, given: Sequence[Any], scope: dict[str, Any]) -> Any:
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
        if name == "GetCurNpuArch":
            return self.arch
        if name == "GetSocVersion":
            return self.soc
        if name == "AllocTensor":
            dtypes = [each for each in given if isinstance(each, str) and each.startswith("DT_")]
            return Tensor(dtypes[0] if dtypes else U)
        if isinstance(of, Tensor):
            if name == "GetDataType":
                return of.dtype
            if name in ("GetViewShape", "GetStorageShape", "GetOriginalShape"):
                return of
            if name == "GetDimNum":
                return of.rank
            if name == "IsEmpty":
                return False
        if isinstance(of, tuple) and of[:1] != ("method",):
            if name in ("find", "count"):
                return ("found", given[0] in of) if U not in (given[0],) and U not in of else U
            if name == "end":
                return ("found", False)
        return U

    def _launched(self, trees: Sequence[Any], scope: dict[str, Any]) -> Any:
        """Raise Refused if a kernel lacks a dtype of an input; one that is not known, or on the AICPU, takes all."""
        if not trees or trees[0][0] != "name":
            return U
        kernel = trees[0][1]
        inputs = [each for each in trees if each[0] == "call" and each[1] == ("name", "OP_INPUT")]
        tensors = [self.value(each, scope) for each in (inputs[0][2] if inputs else ())]
        for place, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor) or tensor.dtype is U:
                continue
            taken = self._taken(kernel, place, scope.get("", ""))
            if taken and tensor.dtype not in taken:
                if not self.sure:
                    raise Refused(kernel)
                return 561103
        return 0

    def _taken(self, kernel: str, place: int, file: str) -> list[str] | None:
        """Return the dtypes of a kernel's input.

        If the kernel of this chip is not published, those on a 950, unless the file that launches it names this chip:
        what it launches there is then a kernel of its own.
        """
        by_chip = self.sources.kernels.get(kernel, {})
        own = CHIPS[self.chip][1] in self.sources.mentions.get(file, ())
        inputs = by_chip.get(self.folder) or (None if own else by_chip.get("ascend950")) or {}
        lists = list(inputs.values())
        return lists[place] if place < len(lists) else None


def tree_of(tokens: list[str]) -> Any:
    """Return the tree of a constant's value."""
    return tree(tokens)


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
    """Return the dtype of two, as torch and CANN promote them."""
    if U in (left, right):
        return left if left == right else U
    if left == right:
        return left
    order = ("DT_BOOL", *_INTEGERS[:5])
    if left in order and right in order:
        if "DT_UINT8" in (left, right) and "DT_INT8" in (left, right):
            return "DT_INT16"
        return max(left, right, key=order.index)
    pair = {left, right}
    for kinds in (_COMPLEX, _FLOATS):
        inside = [each for each in (left, right) if each in kinds]
        if len(inside) == 1 and pair - set(inside) <= set(order):
            return inside[0]
    if pair == {"DT_FLOAT16", "DT_BFLOAT16"}:
        return "DT_FLOAT"
    narrow = ("DT_BFLOAT16", "DT_FLOAT16", "DT_FLOAT", "DT_DOUBLE")
    if pair <= set(narrow):
        return max(left, right, key=narrow.index)
    wide = {
        "DT_FLOAT16": 0,
        "DT_BFLOAT16": 1,
        "DT_FLOAT": 1,
        "DT_DOUBLE": 2,
        **dict(zip(_COMPLEX, range(3), strict=True)),
    }
    return _COMPLEX[max(wide[left], wide[right])] if pair <= set(wide) else U


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
    if name in ("IsNullptr",):
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
