"""What the host code of CANN's operators refuses: an interpreter of the C++ code that checks their arguments.

A call is interpreted for one chip, with partial knowledge of its tensors: the dtype or the rank of one, of two or of
all. Everything else is unknown. An unknown condition takes both branches, and a call is refused only if every branch
ends in an error, so code that is not understood counts as accepting.
"""

from __future__ import annotations

import functools
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

from tools.evaluation.support import git

#: ``chips``: the architecture and SoC by which host code distinguishes families, and the name in definitions;
#: ``socs`` in comparison order; ``constants`` from CANN's headers; ``macros`` of op_error_check.h and others, as
#: equivalent statements; dtypes by kind, and dtypes that torch names differently.
_DATA: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
CHIPS, _MACROS, _TORCH = _DATA["chips"], _DATA["macros"], _DATA["torch"]
_CONSTANTS = {f"ASCEND{each}": place for place, each in enumerate(_DATA["socs"])} | _DATA["constants"]
_FLOATS, _INTEGERS, _COMPLEX = _DATA["floats"], _DATA["integers"], _DATA["complex"]


class _Unknown:
    def __bool__(self) -> bool:
        raise TypeError("the truth of what is unknown")


U: Any = _Unknown()


@dataclass(frozen=True)
class Tensor:
    """A tensor, or a list of similar tensors, whose dtype (such as DT_FLOAT) or rank may be known."""

    dtype: Any = U
    rank: Any = U


@dataclass
class Function:
    """A function in a source file: the types of its parameters by name, and the syntax node of its body."""

    file: str
    name: str
    parameters: Mapping[str, str]
    body: Node


@dataclass
class Sources:
    """The functions and constants of some repositories."""

    functions: dict[str, list[Function]] = field(default_factory=dict)
    #: The values of constants, by file and name.
    constants: dict[str, dict[str, Node]] = field(default_factory=dict)
    #: The dtypes of a kernel's inputs and outputs, by kernel, chip and name.
    kernels: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)
    #: The parameters of a kernel, in the order of the function that CANN generates from its definition.
    orders: dict[str, list[str]] = field(default_factory=dict)
    #: The identifiers of dtypes and chips in each file.
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
        """Add the declarations in a file or a namespace."""
        for each in node.named_children:
            if each.type in _AROUND:
                self._take(path, each)
            elif each.type == "declaration":
                self.constants[path].update((name, value) for name, value in _declared(each) if name)
            elif each.type == "function_definition" and (head := _found(each, "function_declarator")):
                name = _text(head.child_by_field_name("declarator")).rsplit("::", 1)[-1]
                given = [_parameter(one) for one in head.child_by_field_name("parameters").named_children]
                kinds = {own or f"{at}": kind for at, (own, kind) in enumerate(given) if (own, kind) != ("", "void")}
                found = Function(path, name, kinds, each.child_by_field_name("body"))
                self.functions.setdefault(name, []).append(found)

    def define(self, text: str) -> None:
        """Add a file of kernel definitions: parameters, and by chip the dtypes of inputs and outputs."""
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
        lists = {
            name: _listed(inside)
            for name, inside in re.findall(r"(\w+)\s*(?:\[\])?\s*=?\s*\{((?:\s*(?:ge::)?DT_\w+\s*,?)+)\}", text)
        }
        tensor = (
            r"(\w+)\s*(?:->|\.)\s*(?:Input|Output)\(\"(\w+)\"\)((?:(?!Input\(|Output\().)*?)"
            r"\.DataType(?:List)?\(\s*(\{[^}]*\}|\w+)"
        )
        for kernel, body in re.findall(r"class (\w+)\s*:\s*public OpDef(.*?)\n\};?", text, re.DOTALL):
            named = re.findall(r"this\s*->\s*(Input|Attr|Output)\(\"(\w+)\"\)", body)
            ordered = sorted(named, key=lambda each: ("Input", "Attr", "Output").index(each[0]))
            self.orders[kernel] = list(dict.fromkeys(name for _, name in ordered))  # once if changed in place
            dtypes: dict[str, dict[str, list[str]]] = {"this": {}}
            for of, name, _, given in re.findall(tensor, body, re.DOTALL):
                dtypes.setdefault(of, {})[name] = _listed(given) if given.startswith("{") else lists.get(given, [])
            for chip, config in re.findall(r"AddConfig\(\"(\w+)\"\s*(?:,\s*(\w+))?", body):
                self.kernels.setdefault(kernel, {})[chip] = {**dtypes["this"], **dtypes.get(config, {})}


def _listed(text: str) -> list[str]:
    return ["DT_BFLOAT16" if each == "DT_BF16" else each for each in re.findall(r"DT_\w+", text)]


# --- the syntax of C++ ---

_CPP = Parser(Language(tree_sitter_cpp.language()))
_STRING = r'"(?:\\[\s\S]|[^"\\])*"'
#: Nodes that enclose the declarations of a file.
_AROUND = ("namespace_definition", "linkage_specification", "declaration_list", "template_declaration", "ERROR")
_NAMES = ("true", "false", "null", "this")


def _expanded(text: str) -> str:
    """Return source with the macros in ``_MACROS`` replaced by their statements, and other returning macros removed."""
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


@functools.cache
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
    name = (re.findall(r"\w+", _text(node.child_by_field_name("declarator"))) or [""])[-1]
    default = node.child_by_field_name("default_value")
    whole = node.text[: default.start_byte - node.start_byte] if default else node.text
    return name, re.sub(r"\s", "", whole.decode(errors="replace")).removesuffix("=").removesuffix(name)


def _is_name(node: Node) -> bool:
    return node.type in _NAMES or node.type.endswith(("identifier", "type", "template_function"))


def _declared(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the names that a declaration initialises, with their values; "" for anything that is no name."""
    for each in node.children_by_field_name("declarator"):
        value = each.child_by_field_name("value")
        if value is not None and value.type != "argument_list":
            declarator = each.child_by_field_name("declarator")
            name = re.match(r"[*&]*(\w+)", _text(declarator))
            yield (name[1] if name else ""), value


@dataclass
class _Outcome:
    """What statements may do: run to the end, break, or return some values."""

    falls: bool = True
    breaks: bool = False
    returned: list[Any] = field(default_factory=list)


class Refused(Exception):
    """A kernel that is certainly reached does not accept a dtype."""


class Accepted(Exception):
    """A call may be accepted, whatever follows."""


_MOST_STEPS = 5_000


class Interpreter:
    """An interpreter of calls on one chip."""

    def __init__(self, sources: Sources, chip: str) -> None:
        self.sources, self.chip = sources, chip
        self.arch, soc, self.folder = CHIPS[chip]
        self.soc = _CONSTANTS[soc]
        self.steps = self.depth = 0
        self.sure = 0  # number of enclosing unknown conditions
        self.cache: dict[tuple[str, str], Any] = {}
        self.memory: dict[Any, Any] = {}

    def refuses(self, function: Function, known: Mapping[str, Tensor], *, kernels: bool = False) -> str:
        """Return what refuses a call of the first phase: "host", "kernel", or "" if it may be accepted.

        Without ``kernels``, interpretation ends where the host code has accepted a call.
        """
        self.kernels = kernels
        self.steps = self.depth = self.sure = 0
        given = [
            known.get(name, Tensor() if "aclTensor" in kind and "Optional" not in name else U)
            for name, kind in function.parameters.items()
        ]
        try:
            result = self._run(function, given)
        except Refused:
            return "kernel"
        except (Accepted, RecursionError, TimeoutError):
            return ""
        return "host" if result and all(each is not U and each not in (0, True) for each in result) else ""

    def _run(self, function: Function, given: Sequence[Any]) -> list[Any]:
        """Return the values that a function may return."""
        scope = {**dict(zip(function.parameters, given, strict=False)), "": function.file}
        outcome = self._all(function.body.named_children, scope)
        return outcome.returned + [U] * outcome.falls

    def _all(self, statements: Sequence[Node], scope: dict[str, Any]) -> _Outcome:
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

    def _one(self, node: Node, scope: dict[str, Any]) -> _Outcome:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise TimeoutError
        part, kind, inner = node.child_by_field_name, node.type.removesuffix("_statement"), node.named_children
        if kind in ("compound", "else_clause"):
            return self._all(inner, scope)
        if kind == "if":
            ways = [[part("consequence")], [each for each in [part("alternative")] if each]]
            condition = self.value(part("condition").child_by_field_name("value"), scope)
            return self._either(ways, scope) if condition is U else self._all(ways[not condition], scope)
        if kind == "switch":
            return self._switch(node, scope)
        if kind in ("for_range_loop", "for", "while"):
            return self._loop(node, scope)
        if kind in ("break", "continue"):
            return _Outcome(falls=False, breaks=True)
        if kind == "return":
            return _Outcome(falls=False, returned=[self.value(inner[0] if inner else None, scope)])
        if kind == "expression" and inner and inner[0].type == "assignment_expression":
            left, operator, right = (inner[0].child_by_field_name(each) for each in ("left", "operator", "right"))
            name = _text(left).lstrip("*") if left.type in ("identifier", "pointer_expression") else ""
            named = [(name, right)] if _text(operator) == "=" else []
        elif kind == "expression" and inner:
            named = [("", inner[0])]
        else:
            named = _declared(node) if kind == "declaration" else []
        for name, given in named:
            value = self.value(given, scope)
            if name:
                scope[name] = value
        return _Outcome()

    def _either(self, ways: Sequence[Sequence[Node]], scope: dict[str, Any]) -> _Outcome:
        """Run each alternative on a copy of the scope, and keep the values on which all agree."""
        self.sure += 1  # so that no kernel in them counts as certainly reached
        total, kept = _Outcome(falls=False), []
        for way in ways:
            copy = dict(scope)
            made = self._all(way, copy)
            total.returned += made.returned
            total.breaks |= made.breaks
            total.falls |= made.falls
            if made.falls or made.breaks:
                kept.append(copy)
        self.sure -= 1
        for name in {name for copy in kept for name in copy}:
            scope[name] = _agreed([copy.get(name, U) for copy in kept])
        return total

    def _switch(self, node: Node, scope: dict[str, Any]) -> _Outcome:
        value = self.value(node.child_by_field_name("condition").child_by_field_name("value"), scope)
        cases = [each for each in node.child_by_field_name("body").named_children if each.type == "case_statement"]
        given = [each.child_by_field_name("value") for each in cases]
        labels = [None if label is None else self.value(label, scope) for label in given]
        bodies = [[s for s in case.named_children if s != label] for case, label in zip(cases, given, strict=True)]
        runs = [[each for body in bodies[at:] for each in body] for at in range(len(bodies))]  # cases fall through
        if value is U or any(label is U for label in labels):
            made = self._either([*runs, *([] if None in labels else [[]])], scope)
        else:
            at = labels.index(value) if value in labels else labels.index(None) if None in labels else -1
            made = self._all(runs[at], scope) if at >= 0 else _Outcome()
        return replace(made, falls=made.falls or made.breaks, breaks=False)

    def _loop(self, node: Node, scope: dict[str, Any]) -> _Outcome:
        """Run the body once; it certainly runs for a list, and where the loop head compares with a size."""
        part, copy = node.child_by_field_name, dict(scope)
        once = node.type == "for_range_loop" or b"ize" in node.text[: part("body").start_byte - node.start_byte]
        if node.type == "for_range_loop":
            over = self.value(part("right"), scope)
            copy[re.findall(r"\w+", _text(part("declarator")))[-1]] = over if isinstance(over, Tensor) else U
        self.sure += not once
        made = self._one(part("body"), copy)
        self.sure -= not once
        for name, value in copy.items():
            if name in scope:
                scope[name] = _agreed([value, scope[name]])
        falls = made.falls or made.breaks or not once
        return _Outcome(falls=falls, returned=made.returned)

    # --- expressions ---

    def value(self, node: Node | None, scope: dict[str, Any]) -> Any:
        """Return the value of an expression, or U if it is unknown or not understood."""
        if node is None or node.has_error:
            return U
        part, kind, inner = node.child_by_field_name, node.type.removesuffix("_expression"), node.named_children
        if _is_name(node):
            return self._named(_text(node), scope)
        if kind == "number_literal":
            number = re.match(r"0x[\da-fA-F]+|\d+(?![\d.]*[.ef])", _text(node))
            return int(number[0], 0) if number else U
        if kind == "parenthesized" and len(inner) == 1:
            return self.value(inner[0], scope)
        if kind == "pointer" or (kind == "update" and node.children[0] == part("argument")):
            return self.value(part("argument"), scope)
        if kind == "unary" and (operator := _text(part("operator"))) in ("!", "-", "+"):
            value = self.value(part("argument"), scope)
            if operator == "+" or value is U or isinstance(value, Tensor):
                return value if operator == "+" else U
            return not value if operator == "!" else -value
        if kind == "binary":
            return self._combined(_text(part("operator")), part("left"), part("right"), scope)
        if kind == "conditional":
            condition, ways = self.value(part("condition"), scope), (part("consequence"), part("alternative"))
            taken = ways if condition is U else [ways[not condition]]
            return _agreed([self.value(each, scope) for each in taken])
        if kind == "call":
            return self._call(part("function"), part("arguments").named_children, scope)
        if kind == "field":
            return ("method", self.value(part("argument"), scope), _text(part("field")))
        if kind == "subscript":
            value = self.value(part("argument"), scope)
            return value if isinstance(value, Tensor) else U
        if kind in ("initializer_list", "compound_literal"):
            values = inner if kind == "initializer_list" else part("value").named_children
            return tuple(self.value(each, scope) for each in values)
        return U

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
            known = self.sources.constants
            holders = [file] if short in known.get(file, {}) else [each for each, its in known.items() if short in its]
            self.cache[file, short] = _agreed([self.value(known[each][short], {"": each}) for each in holders])
        return self.cache[file, short]

    def _combined(self, operator: str, one: Node, other: Node, scope: dict[str, Any]) -> Any:
        left, right = self.value(one, scope), self.value(other, scope)
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

    def _call(self, callee: Node, arguments: Sequence[Node], scope: dict[str, Any]) -> Any:
        if callee.type == "field_expression" and not callee.has_error:
            of, name = self.value(callee.child_by_field_name("argument"), scope), callee.child_by_field_name("field")
            return self._method(of, _text(name), [self.value(each, scope) for each in arguments])
        if not _is_name(callee) or callee.has_error:
            return U
        name = _text(callee).rsplit("::", 1)[-1]
        if name in ("static_cast", "const_cast", "reinterpret_cast", "DataType", "size_t", "move"):
            return self.value(arguments[0], scope) if len(arguments) == 1 else U
        if name.startswith("ADD_TO_LAUNCHER_LIST"):
            return 0 if "AICPU" in name else self._launched(arguments, scope)
        given = [self.value(each, scope) for each in arguments]
        if built := _BUILT_IN.get((name, len(given))):
            return U if U in given else built(*given)
        if name in _ALIKE:
            return Tensor(given[0].dtype) if given and isinstance(given[0], Tensor) else U
        if name == "Cast" and len(given) == 3 and isinstance(given[0], Tensor):
            return replace(given[0], dtype=given[1])
        found = self._function_of(name, len(given), scope.get("", ""))
        if found is None or self.depth > 25:
            return U
        key = (id(found), tuple(given), bool(self.sure))
        if key not in self.memory:
            self.depth += 1
            try:
                self.memory[key] = _joined(self._run(found, given))
            except Refused as refused:
                self.memory[key] = refused
            finally:
                self.depth -= 1
        if isinstance(self.memory[key], Refused):
            raise self.memory[key]
        return self.memory[key]

    @functools.cache  # noqa: B019  (an interpreter lives as long as the process)
    def _function_of(self, name: str, count: int, file: str) -> Function | None:
        """Return the function that a call in a file refers to: the nearest with as many parameters."""
        fit = [each for each in self.sources.functions.get(name, ()) if len(each.parameters) >= count]

        def distance(each: Function) -> tuple[bool, int]:
            same = [mine == theirs for mine, theirs in zip(each.file.split("/"), file.split("/"), strict=False)]
            return len(each.parameters) != count, -([*same, False].index(False))

        return min(fit, key=distance, default=None)

    def _method(self, of: Any, name: str, given: Sequence[Any]) -> Any:
        if name in ("GetCurNpuArch", "GetSocVersion"):
            return self.arch if name == "GetCurNpuArch" else self.soc
        if name == "AllocTensor":
            return Tensor(*[each for each in given if isinstance(each, str) and each.startswith("DT_")][:1])
        if isinstance(of, Tensor):
            shapes = dict.fromkeys(("GetViewShape", "GetStorageShape", "GetOriginalShape"), of)
            return {"GetDataType": of.dtype, "GetDimNum": of.rank, "IsEmpty": False, **shapes}.get(name, U)
        if isinstance(of, tuple) and of[:1] != ("method",):
            if name in ("find", "count"):
                keys = [each[0] if isinstance(each, tuple) and each else each for each in of]  # the keys of a map
                return ("found", given[0] in keys) if U not in (given[0],) and U not in keys else U
            if name == "end":
                return ("found", False)
        return U

    def _launched(self, arguments: Sequence[Node], scope: dict[str, Any]) -> Any:
        """Raise Refused if a kernel lacks an input's dtype; unknown kernels and those on the AICPU accept all.

        If this chip's kernel is not published, the dtypes are those on a 950, unless the launching file names this
        chip, which means that it launches a separate kernel there.
        """
        by_chip = self.sources.kernels.get(_text(arguments[0]), {})
        own = CHIPS[self.chip][1] in self.sources.mentions.get(scope.get("", ""), ())
        lists = by_chip.get(self.folder) or (None if own else by_chip.get("ascend950")) or {}
        inputs = [
            each.child_by_field_name("arguments").named_children
            for each in arguments
            if _text(each.child_by_field_name("function")) == "OP_INPUT"
        ]
        tensors = [self.value(each, scope) for each in (inputs[0] if inputs else ())]
        for tensor, taken in zip(tensors, lists.values(), strict=False):
            if isinstance(tensor, Tensor) and tensor.dtype is not U and taken and tensor.dtype not in taken:
                if not self.sure:
                    raise Refused(_text(arguments[0]))
                return 561103
        return 0


def _agreed(values: Sequence[Any]) -> Any:
    """Return the common value of all, or U if they differ or there are none."""
    first = values[0] if values else U
    is_one = all(each is first or (type(each) is type(first) and bool(each == first)) for each in values)
    return first if is_one else U


def _joined(values: Sequence[Any]) -> Any:
    """Return what several possible values have in common: a value, that they are tensors, or that they are errors."""
    if (agreed := _agreed(values)) is not U:
        return agreed
    known = [each for each in values if each is not None]
    if known and all(isinstance(each, Tensor) for each in known):
        return Tensor() if _agreed(known) is U else known[0]
    return values[0] if values and all(type(each) is int and each for each in values) else U


def promoted(left: str, right: str) -> Any:
    """Return the dtype to which torch and CANN promote two dtypes, or U if torch does not know."""
    if left == right:
        return left
    try:
        both = (getattr(torch, _TORCH.get(each, each[3:].lower())) for each in (left, right))
        name = str(torch.promote_types(*both)).removeprefix("torch.")
    except (AttributeError, RuntimeError):
        return U
    return next((each for each, known in _TORCH.items() if known == name), f"DT_{name.upper()}")


def can_cast(source: str, target: str) -> bool:
    """Return whether CANN casts one dtype to another: not from complex to real, float to integer, or to bool."""
    rank = lambda dtype: (dtype in _INTEGERS) + 2 * (dtype in _FLOATS) + 3 * (dtype in _COMPLEX)  # noqa: E731
    return rank(source) <= rank(target)


#: Functions of CANN's own headers, by name and number of arguments; with unknown arguments the result is unknown.
_BUILT_IN: dict[tuple[str, int], Callable[..., Any]] = {
    ("CheckType", 2): lambda dtype, listed: dtype in listed if isinstance(listed, tuple) and U not in listed else U,
    ("PromoteType", 2): promoted,
    ("CanCast", 2): can_cast,
    ("IsFloatingType", 1): lambda dtype: dtype in _FLOATS,
    ("IsComplexType", 1): lambda dtype: dtype in _COMPLEX,
    ("IsIntegralType", 1): lambda dtype: dtype in _INTEGERS,
    ("IsIntegralType", 2): lambda dtype, or_bool: dtype in _INTEGERS or (or_bool is True and dtype == "DT_BOOL"),
}
#: Functions that return a tensor with the dtype of their first argument.
_ALIKE = ("Contiguous", "Reshape", "Transpose", "UnsqueezeNd", "SqueezeNd", "ViewCopy", "ReFormat", "TransData")


# --- reading repositories ---


def texts(repository: Path, wanted: str, *paths: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of the files at HEAD whose path matches, without experiments and tests."""
    with tarfile.open(fileobj=BytesIO(git(repository, "archive", "HEAD", *paths))) as files:
        for each in files:
            if re.search(wanted, each.name) and not re.search(r"(^|/)(experimental|tests|examples)/", each.name):
                yield each.name, files.extractfile(each).read().decode(errors="replace")
