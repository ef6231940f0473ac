"""A wrong call as a program: run it, and it shows the wrong element beside the expected one.

It needs torch and the device, and this package only if an input is too large to write out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_ascend.device.npu import pinning
from pytest_ascend.operators.sources import Source, Unwritable, number
from pytest_ascend.records.text import one_line
from pytest_ascend.run.program import DIFFERENCE, ending

#: Longer programs are left out: they have to fit into a line of the log, and a page into a few megabytes.
LIMIT_CHARACTERS = 10_000
#: Elements of a tensor that is written out; a larger one is made as the case makes it, if there is an expression.
LITERAL_ELEMENTS = 400
#: The same if the program would be too long otherwise.
FEW_ELEMENTS = 32

#: Functions that expressions of large tensors may call, and their modules.
_MADE_BY = {
    **dict.fromkeys(("inputs.uniform", "inputs.normal", "inputs.integers"), "from pytest_ascend.run import inputs"),
    "values.Variant": "from pytest_ascend.operators import values",
    "load_file": "from safetensors.torch import load_file",
}

#: Fills the gaps of a tensor that is not contiguous.
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
    pairs = [(out, change(up).to(out.dtype)) for up, out in zip({grad_outputs}, outputs)]
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


actual = run({function}, on_device)
expected = run({definition})
for place, (one, other) in enumerate(zip(actual, expected)):
    if one.shape != other.shape or not one.numel():
        print(f"output {{place}}: {{tuple(one.shape)}} {{one.dtype}} on {{device}}, {{tuple(other.shape)}} expected")
        continue
    distance = difference(one, other)
    worst = (distance == distance.max()).nonzero()[0].tolist()
    index = {element}.get(place, tuple(worst))
    print(f"output {{place}}, element {{index}}: {{one[index].item()}} on {{device}}, {{other[index].item()}}"
          f" expected; largest difference {{distance.max().item():.6g}}")

"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """One call, with its tensors on the CPU in the device's strides.

    ``definition`` is called on the CPU, in float64. ``leaves`` are the numbers of the tensors to differentiate by, and
    ``grad_outputs`` the outputs' gradients; without leaves the results are compared. ``element`` is the output and
    index named by the judge, ``rule`` the deciding rule and its limit. ``repeats`` compares the device with itself.
    ``large`` returns the expression of a tensor that is not written out.
    """

    title: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    definition: Callable[..., Any] | None = None
    leaves: tuple[int, ...] = ()
    grad_outputs: tuple[torch.Tensor, ...] = ()
    element: tuple[int, tuple[int, ...]] | None = None
    rule: tuple[str, float] | None = None
    repeats: bool = False
    large: Callable[[torch.Tensor], str] | None = None


def snippet(call: Reproduction, device: torch.device) -> str:
    """Return the program. Raises Unwritable if there is none, or it would be longer than LIMIT_CHARACTERS."""
    text = _program(call, device, LITERAL_ELEMENTS)
    if len(text) > LIMIT_CHARACTERS:
        text = _program(call, device, FEW_ELEMENTS)
    if len(text) > LIMIT_CHARACTERS:
        raise Unwritable(f"it would have {len(text):,} characters, more than {LIMIT_CHARACTERS:,}")
    return text


def _program(call: Reproduction, device: torch.device, most: int) -> str:
    writer = _Writer(call, most)
    args, kwargs = writer.write(call.args), writer.write(dict(call.kwargs))
    grad_outputs = writer.write(list(call.grad_outputs))
    function = writer.source.function(call.function)
    defined = writer.source.function(call.definition) if call.definition else function
    body = _BACKWARD.format(leaves=list(call.leaves), grad_outputs=grad_outputs) if call.leaves else _FORWARD
    body = _OUT + body if "out" in call.kwargs else body
    program = _RUN.format(
        args=args,
        kwargs=kwargs,
        body=body,
        function=function,
        definition=f"{function}, on_device" if call.repeats else f"{defined}, in_float64",
        element={call.element[0]: call.element[1]} if call.element else {},
    )
    place, index = call.element or (0, None)
    reference_runs = f"run({function}, lambda x: x.detach().clone())"
    program += ending(place, index, *(call.rule or ("", 0.0)), reference_runs=reference_runs, repeats=call.repeats)
    needed = [f"import {each}" for each in ("torch", *(["torch_npu"] if device.type == "npu" else []))]
    imports = [*sorted({*needed, *writer.source.imports}), "from torch.utils._pytree import tree_flatten, tree_map"]
    parts = [
        f"# {one_line(call.title)}",
        "from __future__ import annotations",
        "",
        *imports,
        "",
        f'device = "{device}"',
        *pinning(device),
    ]
    helpers = [*([_LAID] if writer.lays else []), *writer.source.definitions.values(), DIFFERENCE]
    defined_first = [line for each in helpers for line in ("", "", each.rstrip())]
    return "\n".join([*parts, *defined_first, "", *writer.lines, "", "", program])


class _Writer:
    """Writes values; each tensor gets a line and a name."""

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
    """Return the expression of a constant tensor, as the initial content of ``out=``, "" for any other."""
    if tensor.is_complex():
        return ""
    plain = tensor.detach().reshape(-1)
    same = (plain == plain[0]) & (plain.signbit() == plain[0].signbit()) | plain.isnan() & plain[0].isnan()
    if not same.all():
        return ""
    return f"torch.full({tuple(tensor.shape)}, {_numbers(plain[:1])[0]}, dtype={tensor.dtype})"


def _numbers(tensor: torch.Tensor) -> Sequence[str]:
    """Return the elements as text, so that they restore the same bits, except for kinds of NaN."""
    plain = tensor.detach().reshape(-1)
    if tensor.dtype in (torch.float32, torch.float16):
        short = [str(each) for each in plain.numpy()]  # the fewest digits that distinguish a number from its neighbours
        numbers = [each if each[-1].isdigit() or each[-1] == "." else f'float("{each}")' for each in short]
        back = torch.tensor([float(each) for each in short], dtype=tensor.dtype)
        if torch.equal(back.nan_to_num(0.5), plain.nan_to_num(0.5)):
            return numbers
    return [number(each) if isinstance(each, float | complex) else repr(each) for each in plain.tolist()]
