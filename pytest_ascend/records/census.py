"""Where each operator of an installed torch_npu is computed, and how two versions differ in that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

SCHEMA = 1
TYPE = "census"

NATIVE = "native"
IMPLICIT = "composite-implicit"
EXPLICIT = "composite-explicit"
NONFUNCTIONAL = "composite-nonfunctional"
OTHER_LAYOUT = "other-layout"
FALLBACK = "fallback"
MISSING = "missing"
#: How an operator runs on NPU tensors. The composites have the names of torch's dispatcher.
KINDS = {
    NATIVE: "torch_npu has a kernel for it",
    IMPLICIT: "composed of other operators, gradient included",
    EXPLICIT: "composed of other operators, except for its gradient",
    NONFUNCTIONAL: "computed by its out= variant",
    OTHER_LAYOUT: "kernel for sparse or quantized only",
    FALLBACK: "computed on the CPU",
    MISSING: "no kernel, not even on the CPU: raises an error",
}
#: Kinds that torch_npu does not leave to the CPU.
ON_NPU = frozenset({NATIVE, IMPLICIT, EXPLICIT, NONFUNCTIONAL, OTHER_LAYOUT})
#: Marks an operator that does not exist, in a comparison.
ABSENT = "absent"
#: torch 2.13 with torch_npu 2.13 has 3,954 operators in both namespaces; the longest name has 81 characters.
OPERATORS_LIMIT = 100_000
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}::[A-Za-z0-9_.]{1,200}")
_VERSION = re.compile(r"[A-Za-z0-9_.+-]{0,100}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """The kind of each operator, by its name with overload ("aten::add.Tensor"), and the versions it applies to.

    ``torch_npu_commit`` distinguishes builds of one version. An empty version is unknown.
    """

    torch: str
    torch_npu: str
    torch_npu_commit: str
    operators: Mapping[str, str]

    @property
    def stack(self) -> dict[str, str]:
        """Return the versions by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "operators"}

    def counts(self) -> Counter[tuple[str, str]]:
        """Count operators by namespace and kind."""
        return Counter((name.partition("::")[0], kind) for name, kind in self.operators.items())

    def by_namespace(self) -> dict[str, dict[str, int]]:
        """Count operators by namespace and, in the order of KINDS, by kind."""
        counts = self.counts()
        names = sorted({namespace for namespace, _ in counts})
        return {name: {kind: counts[name, kind] for kind in KINDS if counts[name, kind]} for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        return {"schema": SCHEMA, "type": TYPE, "stack": self.stack, "operators": dict(self.operators)}

    @classmethod
    def from_dict(cls, data: Any) -> Census:
        """Return the census from :meth:`to_dict`, as untrusted data. Raises ValueError with what is wrong."""
        if not isinstance(data, dict) or data.get("type") != TYPE:
            raise ValueError(f'it is no census: "type" is not {TYPE!r}')
        if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {str(data.get('schema'))[:20]!r}; this version reads {SCHEMA}")
        stack, operators = data.get("stack"), data.get("operators")
        if not isinstance(stack, dict):
            raise ValueError('"stack" is no object')
        versions: dict[str, Any] = {each: stack.get(each) for each in ("torch", "torch_npu", "torch_npu_commit")}
        for name, version in versions.items():
            if not isinstance(version, str) or not _VERSION.fullmatch(version):
                raise ValueError(f"stack.{name}: expected a version, got {str(version)[:40]!r}")
        if not isinstance(operators, dict) or not 0 < len(operators) <= OPERATORS_LIMIT:
            raise ValueError(f'"operators" is no object of 1 to {OPERATORS_LIMIT} operators')
        for name, kind in operators.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no name of an operator")
            if not isinstance(kind, str) or kind not in KINDS:
                raise ValueError(f"{name} is {str(kind)[:40]!r}; expected one of {', '.join(KINDS)}")
        return cls(**versions, operators=operators)


class Change(NamedTuple):
    """An operator's kind before and after: one of KINDS, or "absent"."""

    before: str
    after: str


#: Parts of a difference. "gained" operators are newly on the NPU, "lost" ones no longer; "changed" is any other change.
#: Operators that another version of torch removed or added are "removed" and "added", since that is not torch_npu's
#: doing; but an operator that torch added and for which torch_npu has a kernel is gained.
PARTS = ("lost", "gained", "changed", "removed", "added")
#: The namespace of torch's own operators.
_TORCH = "aten::"


def compare(old: Census, new: Census) -> dict[str, dict[str, Change]]:
    """Return changes by operator, in :data:`PARTS`: torch_npu's own first, then torch's, each sorted by name."""
    parts: dict[str, dict[str, Change]] = {part: {} for part in PARTS}
    has_other_torch = old.torch != new.torch
    for name in sorted({*old.operators, *new.operators}, key=lambda name: (name.startswith(_TORCH), name)):
        change = Change(old.operators.get(name, ABSENT), new.operators.get(name, ABSENT))
        was, is_now = (each in ON_NPU for each in change)
        part = "changed" if was == is_now else "gained" if is_now else "lost"
        if has_other_torch and name.startswith(_TORCH) and ABSENT in change and change.after != NATIVE:
            part = "removed" if change.after == ABSENT else "added"
        if change.before != change.after:
            parts[part][name] = change
    return parts
