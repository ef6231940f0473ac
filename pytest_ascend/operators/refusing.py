"""Legal calls with one argument made illegal: the device must refuse what PyTorch refuses on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.judging import alike
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import CPU, Tensors
from pytest_ascend.operators.samples import leaves, on_leaves
from pytest_ascend.operators.target import placed
from pytest_ascend.records.outcome import Unsupported
from pytest_ascend.run.comparing import Disagreement, refusal
from pytest_ascend.run.outcomes import classify
from pytest_ascend.system.dispatching import no_dispatch, torch_is_before

#: Replacements for an argument, by its type; an integer becomes larger than any number of dimensions, rows or groups.
_OTHERS: Mapping[type, Mapping[str, Callable[[Any], Any]]] = {
    torch.Tensor: {
        "has a column more": lambda x: torch.cat([x, x[..., :1]], -1),
        "has a row more": lambda x: torch.cat([x, x[:1]]),
        "has a dimension more": lambda x: x[None],
        "has a dimension less": lambda x: x[0],
        "is of another dtype": lambda x: x.long() if x.is_floating_point() else x.float(),
    },
    int: {"is 97": lambda _: 97, "is -97": lambda _: -97},
}
#: Number of arguments replaced, one at a time, beside each legal call; most elements of a tensor in such a call.
_AT_ONCE, _LARGEST = 4, 4096


def check(operator: Operator, given: Any, device: torch.device, turn: int) -> None:
    """Replace arguments of a legal call, a tuple and a dictionary on the CPU; ``turn`` selects the replacements.

    Raises Disagreement if the device accepts what PyTorch refuses on the CPU, or modifies an input of a refused call.
    """
    # Kernels of older versions read out of bounds; some illegal calls are accepted if a tensor is empty.
    if torch_is_before(2, 13) or not all(0 < each.numel() <= _LARGEST for each in calling.tensors(given)):
        return
    changes = [
        (place, *each) for place, leaf in enumerate(leaves(given)) for each in _OTHERS.get(type(leaf), {}).items()
    ]
    for number in range(min(_AT_ONCE, len(changes))):
        place, what, change = changes[(turn * _AT_ONCE + number) % len(changes)]
        with no_dispatch():
            places = itertools.count()
            try:
                wrong = on_leaves(lambda leaf: change(leaf) if next(places) == place else leaf, given)  # noqa: B023
                wrong = calling.on_tensors(torch.clone, wrong)
                there = placed(wrong, calling.preserve_layout, device)
                before = [each.clone() for each in calling.tensors(wrong)]
            except (IndexError, RuntimeError):  # there are no rows, or no such dimension
                continue
            wanted = _refused(operator, wrong, CPU)
        is_lacking = wanted is None or isinstance(classify(wanted, emulated=False), Unsupported)
        if is_lacking or "INTERNAL ASSERT" in str(wanted):  # a bug in the CPU's kernel
            continue
        shapes = ", ".join(f"{str(each.dtype)[6:]}{[*each.shape]}" for each in before)
        said = f"{operator.name} of {shapes}, whose argument {place} {what}"
        if _refused(operator, there, device) is None:
            raise Disagreement(f"{said}: nothing is raised; the CPU raises {type(wanted).__name__}: {wanted}"[:600])
        with no_dispatch():
            left: Mapping[str, Tensors] = {"": [each.cpu() for each in calling.tensors(there)]}
            if not any(alike(left, {"": [*tensors]}) for tensors in (before, calling.tensors(wrong))):
                raise Disagreement(f"{said}: it is refused, but an input is not what it was")


def _refused(operator: Operator, given: Any, device: torch.device) -> Exception | None:
    def call() -> None:
        if not callable(operator.sweep) or operator.sweep(*given[0], **given[1]):  # some others end the process
            calling.forward(operator, operator.function, *given)

    return refusal(call, device)
