"""One call that went wrong as a program: paste it into Python and it shows the wrong element beside the right one.

It needs torch and the device, and nothing of this package unless an input is too large to be written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_ascend.operators.sources import Source, Unwritable, number
from pytest_ascend.records.text import one_line

#: A program of more characters is not written: it has to fit into a line of the log, and a page into a few megabytes.
LIMIT_CHARACTERS = 10_000
#: Elements of a tensor that is written down; a larger one is made as the case makes it, where that can be said.
LITERAL_ELEMENTS = 400
#: The same where the program would be too long otherwise.
FEW_ELEMENTS = 32

#: What an expression for a large tensor may call, and where that comes from.
_MADE_BY = {
    **dict.fromkeys(("inputs.uniform", "inputs.normal", "inputs.integers"), "from pytest_ascend.run import inputs"),
    "values.Variant": "from pytest_ascend.operators import values",
    "load_file": "from safetensors.torch import load_file",
}

#: What stands between the elements of a tensor that is not contiguous.
_LAID = '''\
def laid(x, stride, offset):
    """x with other strides; what lies between its elements is no number, or 77."""
    between = float("nan") if x.is_floating_point() or x.is_complex() else 77
    size = offset + 1 + sum((count - 1) * step for count, step in zip(x.shape, stride))
    memory, once = torch.full((size,), between).to(x.dtype), x
    for dim, step in enumerate(stride):
        once = once.narrow(dim, 0, 1) if step == 0 else once
    memory.as_strided(once.shape, stride, offset).copy_(once)
    return memory.as_strided(x.shape, stride, offset)
'''

_OUT = """\
    if change is in_float64:
        del named["out"]
"""

_FORWARD = """\
    found = function(*given, **named)
"""

_BACKWARD = """\
    inputs = [tensors((given, named))[place].requires_grad_() for place in {leaves}]
    outputs = [x for x in tensors(function(*given, **named)) if x.requires_grad]
    pairs = [(out, change(up).to(out.dtype)) for up, out in zip({above}, outputs)]
    found = torch.autograd.grad([out for out, _ in pairs], inputs, [up for _, up in pairs], allow_unused=True)
"""

_RUN = """\
def tensors(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def on_device(x):
    memory = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(device, copy=True)
    return memory.as_strided(x.shape, x.stride(), x.storage_offset())


def in_float64(x):
    x = x.detach().clone()
    return x.to(torch.complex128) if x.is_complex() else x.double() if x.is_floating_point() else x


def run(function, change):
    given, named = tree_map(lambda x: change(x) if isinstance(x, torch.Tensor) else x, ({args}, {kwargs}))
{body}\
    return [x.detach().cpu() for x in tensors(found)]


def difference(one, other):
    same = (one == other) | ((one != one) & (other != other))
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.where(same, 0.0, (one.to(wide) - other.to(wide)).abs().nan_to_num(torch.inf, torch.inf))


actual = run({function}, on_device)
expected = run({definition})
for place, (one, other) in enumerate(zip(actual, expected)):
    if one.shape != other.shape or not one.numel():
        print(f"output {{place}}: {{tuple(one.shape)}} {{one.dtype}} on {{device}}, {{tuple(other.shape)}} expected")
        continue
    apart = difference(one, other)
    worst = (apart == apart.max()).nonzero()[0].tolist()
    index = {element}.get(place, tuple(worst))
    print(f"output {{place}}, element {{index}}: {{one[index].item()}} on {{device}}, {{other[index].item()}}"
          f" expected; largest difference {{apart.max().item():.6g}}")

one, other = actual[{place}], expected[{place}]
if one.shape != other.shape or not one.numel():
    raise SystemExit(one.shape != other.shape)
apart, near = difference(one, other), other.to(one.dtype)
out_of_place = (one.isnan() != near.isnan()) | (one.isinf() != near.isinf()) | (near.isinf() & (one != near))
{judging}
print(f"{{rule}}: {{found:.6g}}, allowed {{allowed:.6g}}: {{'passed' if found <= allowed else 'FAILED'}}")
raise SystemExit(not found <= allowed)
"""

#: The judge's rules that a program can follow by itself -> the figure that it holds against what was allowed.
_RULES = {
    "error of one element": "apart[{index}].item()",
    "error where zero is expected": "apart[{index}].item()",
    "root mean square error": "apart.square().mean().sqrt().item()",
    "elements that are not equal": "float((apart != 0).sum())",
    "elements that are not bitwise equal": "float((apart != 0).sum())",
}
#: Of any other rule: what is out of place is counted, and the rest is held against the CPU's own error in that dtype.
_ANY_RULE = """\
honest = difference(run({function}, lambda x: x.detach().clone())[{place}], other)
rule = "root mean square error, beside ten times the CPU's own"
found, allowed = (x.square().mean().sqrt().item() for x in (apart, honest))
wide = torch.complex128 if other.is_complex() else torch.float64
allowed = 10 * allowed + 1e-12 * other.to(wide).abs().nan_to_num(0, 0, 0).max().item()\
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """One call, with its tensors on the CPU in the strides that they have on the device.

    ``definition`` is what the CPU calls, in float64. ``leaves`` are the numbers of the tensors to differentiate by, and
    ``above`` what comes from above; without leaves the results are compared. ``element`` is the output and the index
    that the judge named, ``rule`` the name of what decided, and what it allowed.
    ``repeats`` tells that the device is compared with itself. ``large`` gives the expression
    for a tensor that is not to be written down.
    """

    title: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    definition: Callable[..., Any] | None = None
    leaves: tuple[int, ...] = ()
    above: tuple[torch.Tensor, ...] = ()
    element: tuple[int, tuple[int, ...]] | None = None
    rule: tuple[str, float] | None = None
    repeats: bool = False
    large: Callable[[torch.Tensor], str] | None = None


def snippet(call: Reproduction, device: torch.device) -> str:
    """Write the program. Raises Unwritable where it cannot be written, or would be longer than LIMIT_CHARACTERS."""
    text = _program(call, device, LITERAL_ELEMENTS)
    if len(text) > LIMIT_CHARACTERS:
        text = _program(call, device, FEW_ELEMENTS)
    if len(text) > LIMIT_CHARACTERS:
        raise Unwritable(f"it would have {len(text):,} characters, more than {LIMIT_CHARACTERS:,}")
    return text


def _program(call: Reproduction, device: torch.device, most: int) -> str:
    writer = _Writer(call, most)
    args, kwargs = writer.write(call.args), writer.write(dict(call.kwargs))
    above = writer.write(list(call.above))
    function = writer.source.function(call.function)
    defined = writer.source.function(call.definition) if call.definition else function
    body = _BACKWARD.format(leaves=list(call.leaves), above=above) if call.leaves else _FORWARD
    body = _OUT + body if "out" in call.kwargs else body
    program = _RUN.format(
        args=args,
        kwargs=kwargs,
        body=body,
        function=function,
        definition=f"{function}, on_device" if call.repeats else f"{defined}, in_float64",
        element={call.element[0]: call.element[1]} if call.element else {},
        place=call.element[0] if call.element else 0,
        judging=_judging(call, function),
    )
    needed = [f"import {each}" for each in ("torch", *(["torch_npu"] if device.type == "npu" else []))]
    imports = [*sorted({*needed, *writer.source.imports}), "from torch.utils._pytree import tree_flatten, tree_map"]
    parts = [
        f"# {one_line(call.title)}",
        "from __future__ import annotations",
        "",
        *imports,
        "",
        f'device = "{device}"',
    ]
    helpers = [*([_LAID] if writer.lays else []), *writer.source.definitions.values()]
    defined_first = [line for each in helpers for line in ("", "", each.rstrip())]
    return "\n".join([*parts, *defined_first, "", *writer.lines, "", "", program])


def _judging(call: Reproduction, function: str) -> str:
    """Return the lines that find the figure which decided, and what was allowed of it."""
    place, index = call.element or (0, ())
    name, allowed = call.rule or ("", 0.0)
    if call.repeats:
        name, allowed = "elements that are not equal", 0.0
    figure = _RULES.get(name, "")
    if "where" in name and "is expected" in name and not figure:
        figure = "float(out_of_place[{index}])" if call.element else "float(out_of_place.sum())"
    if not figure or ("{index}" in figure and call.element is None):
        return _ANY_RULE.format(function=function, place=place)
    return f"rule, found, allowed = {name!r}, {figure.format(index=index)}, {allowed!r}"


class _Writer:
    """Writes values; each tensor gets a line and a name of its own."""

    def __init__(self, call: Reproduction, most: int) -> None:
        self.source = Source()
        self.lines: list[str] = []
        self.lays = False
        self._large = call.large
        self._most = most

    def write(self, value: Any) -> str:
        """Return the expression for a value. Raises Unwritable."""
        if isinstance(value, torch.Tensor):
            name = f"x{len(self.lines)}"
            self.lines.append(f"{name} = {self._tensor(value)}")
            return name
        if isinstance(value, list | tuple | dict | slice):
            return self._structure(value)
        if isinstance(value, torch.device):
            return "torch.device(device)"
        return "..." if value is ... else self.source.value(value)

    def _structure(self, value: Any) -> str:
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.write, (value.start, value.stop, value.step)))})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self.write(each)}' for key, each in value.items())}}}"
        parts = [self.write(each) for each in value]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({''.join(f'{each}, ' for each in parts)})"

    def _tensor(self, tensor: torch.Tensor) -> str:
        made = self._elements(tensor)
        if (tensor.is_contiguous() and not tensor.storage_offset()) or not tensor.numel():
            return made
        self.lays = True
        return f"laid({made}, {tuple(tensor.stride())}, {tensor.storage_offset()})"

    def _elements(self, tensor: torch.Tensor) -> str:
        dtype, shape = tensor.dtype, tuple(tensor.shape)
        if tensor.numel() > self._most:
            made = (self._large(tensor) if self._large else "") or _constant(tensor)
            if not made:
                raise Unwritable(f"an input has {tensor.numel():,} elements")
            self.source.imports |= {line: None for name, line in _MADE_BY.items() if f"{name}(" in made}
            return made
        numbers = _numbers(tensor)
        if not shape:
            return f"torch.tensor({numbers[0]}, dtype={dtype})"
        flat = f"torch.tensor([{', '.join(numbers)}], dtype={dtype})"
        return flat if len(shape) == 1 else f"{flat}.reshape({shape})"


def _constant(tensor: torch.Tensor) -> str:
    """Return the expression for a tensor of one number, as what an ``out=`` holds at first, "" for any other."""
    if tensor.is_complex():
        return ""
    plain = tensor.detach().reshape(-1)
    same = (plain == plain[0]) & (plain.signbit() == plain[0].signbit()) | plain.isnan() & plain[0].isnan()
    if not same.all():
        return ""
    return f"torch.full({tuple(tensor.shape)}, {_numbers(plain[:1])[0]}, dtype={tensor.dtype})"


def _numbers(tensor: torch.Tensor) -> Sequence[str]:
    """Write the elements so that a tensor of the same dtype made of them has the same bits, but for kinds of NaN."""
    plain = tensor.detach().reshape(-1)
    if tensor.dtype in (torch.float32, torch.float16):
        short = [str(each) for each in plain.numpy()]  # the fewest digits that tell a number from its neighbours
        said = [each if each[-1].isdigit() or each[-1] == "." else f'float("{each}")' for each in short]
        back = torch.tensor([float(each) for each in short], dtype=tensor.dtype)
        if torch.equal(back.nan_to_num(0.5), plain.nan_to_num(0.5)):
            return said
    return [number(each) if isinstance(each, float | complex) else repr(each) for each in plain.tolist()]
