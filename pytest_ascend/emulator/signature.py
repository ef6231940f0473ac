"""The declaration of an operator: its C signature, in readable types.

    aclnnAdd(Tensor self, Tensor other, Scalar alpha, out Tensor out)

Each parameter is ``[role] type name``. Roles: none for an input; ``inout`` for a tensor that the operator changes;
``out`` for one that it fills; ``dynamic`` for one that it fills and whose shape depends on the data.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

#: Types for which a null pointer means an omitted argument.
CONTAINERS = ("Tensor", "TensorList", "Scalar", "ScalarList", "IntArray", "BoolArray", "FloatArray")
#: Integers that are passed unchanged; narrow ones are widened in C. aclFormat and other enumerations are among them.
PLAIN = ("int8", "uint8", "int16", "int32", "uint32", "int64")
#: Readable type -> (C type, C expression that converts an argument {0} to a 64-bit word).
C_TYPES = {
    **dict.fromkeys(CONTAINERS, ("const void *", "(intptr_t){0}")),
    "text": ("const char *", "emu_keep_text(executor, {0})"),
    "dtype": ("int32_t", "{0}"),
    "bool": ("_Bool", "{0}"),
    **{name: (f"{name}_t", "{0}") for name in PLAIN},
    "uint64": ("uint64_t", "(int64_t){0}"),
    "float": ("float", "emu_double_bits((double){0})"),
    "double": ("double", "emu_double_bits({0})"),
}

ROLES = ("in", "inout", "out", "dynamic")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator, excluding the two at the end of every first phase."""

    role: str
    type: str
    name: str

    @property
    def is_input(self) -> bool:
        """Return whether it is passed to the kernel's body."""
        return self.role in ("in", "inout")


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of an operator and its parameters, in C's order."""

    name: str
    parameters: tuple[Parameter, ...]


@functools.cache
def parse(declaration: str) -> Signature:
    """Parse a declaration. Raises ValueError that quotes the invalid part."""
    match = re.fullmatch(r"(\w+)\((.*)\)", declaration.strip(), re.DOTALL)
    if not match:
        raise ValueError(f"expected 'aclnnName(type name, ...)', got {declaration!r}")
    name, inside = match.groups()
    parameters = []
    for text in map(str.strip, inside.split(",") if inside.strip() else ()):
        words = text.split()
        role = words.pop(0) if words[0] in ROLES else "in"
        if len(words) != 2 or words[0] not in C_TYPES:
            raise ValueError(f"cannot read the parameter {text!r} of {declaration!r}; types are {', '.join(C_TYPES)}")
        parameters.append(Parameter(role, *words))
    return Signature(name, tuple(parameters))
