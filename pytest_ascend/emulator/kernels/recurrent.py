"""Recurrent layers: the LSTM over a sequence, forward and back, which torch_npu calls by name.

Shapes: x (steps, batch, inputs), weight (inputs + hidden, 4 * hidden), bias (4 * hidden), states (1, batch, hidden) or
(batch, hidden). Gates lie in the order input, forget, candidate, output, as PyTorch has them (``gate_order`` "ifjo").
"""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.registry import Family

family = Family("recurrent")
T = torch.Tensor

_REVERSED = "REDIRECTIONAL"
_ORDER = "ifjo"


def _check(mask: T | None, gate_order: str, num_proj: int) -> None:
    if mask is not None and mask.dim():
        raise NotImplementedError("sequences of different lengths are not implemented")
    if gate_order != _ORDER or num_proj:
        raise NotImplementedError(f"gate_order {gate_order!r} and num_proj {num_proj} are not implemented")


def _wide(*tensors: T) -> list[T]:
    """Return numbers as the gates are computed: in float32 at least."""
    return [each.float() if each.dtype in {torch.float16, torch.bfloat16} else each for each in tensors]


def _steps(x: T, weight: T, bias: T, hidden: T, cell: T) -> tuple[T, ...]:
    """Run over the sequence; give hidden states, cells, gates i, j (the candidate), f and o, and tanh of the cells."""
    kept = []
    for row in x.unbind(0):
        gates = torch.addmm(bias, torch.cat([row, hidden], 1), weight).chunk(4, 1)
        i, f, o = (gates[place].sigmoid() for place in (0, 1, 3))
        j = gates[2].tanh()
        cell = f * cell + i * j
        tanh = cell.tanh()
        hidden = o * tanh
        kept.append((hidden, cell, i, j, f, o, tanh))
    return tuple(torch.stack(each) for each in zip(*kept, strict=True))


@family.kernel_named("DynamicRNN")
def dynamic_rnn(
    x: T,
    weight: T,
    bias: T,
    mask: T | None,
    hidden: T,
    cell: T,
    *,
    direction: str,
    gate_order: str = _ORDER,
    num_proj: int = 0,
    **_: Any,
) -> tuple[T, ...]:
    _check(mask, gate_order, num_proj)
    wide = _wide(x.flip(0) if direction == _REVERSED else x, weight, bias, hidden, cell)
    made = _steps(*wide[:3], *(each.reshape(each.shape[-2:]) for each in wide[3:]))
    if direction == _REVERSED:
        made = tuple(each.flip(0) for each in made)
    return made[0], *made


@family.kernel_named("DynamicRNNGrad")
def dynamic_rnn_grad(
    x: T,
    weight: T,
    _bias: T,
    _y: T,
    hidden: T,
    cell: T,
    *rest: T,
    gate_order: str = _ORDER,
    num_proj: int = 0,
    **how: Any,
) -> tuple[T, ...]:
    """Go back step by step, in float64: the gates that were kept are rounded already, and errors grow on the way."""
    h, c, dy, dh, dc, i, j, f, o, tanh, mask, *_ = rest
    _check(mask, gate_order, num_proj)
    is_reversed = how.get("direction") == _REVERSED
    over_time = [each.flip(0) if is_reversed else each for each in (x, dy, h, c, i, j, f, o, tanh)]
    x, dy, h, c, *gates = (each.double() for each in over_time)
    weight, hidden, cell, dh, dc = (each.double() for each in (weight, hidden, cell, dh, dc))
    before = torch.cat([hidden[None], h[:-1]]), torch.cat([cell[None], c[:-1]])
    sums: list[T] = []
    for step in reversed(range(len(x))):
        above, dc = _through_gates(dy[step] + dh, dc, before[1][step], *(each[step] for each in gates))
        dh = above @ weight[x.shape[2] :].T
        sums.insert(0, above)
    above = torch.stack(sums)
    dx = above @ weight[: x.shape[2]].T
    dw = torch.cat([x, before[0]], 2).flatten(0, 1).T @ above.flatten(0, 1)
    return dw, above.sum((0, 1)), dx.flip(0) if is_reversed else dx, dh, dc


def _through_gates(dh: T, dc: T, cell: T, i: T, j: T, f: T, o: T, tanh: T) -> tuple[T, T]:
    """Return the gradients of a step's four sums, side by side, and of the cell before it."""
    dc = dc + dh * o * (1 - tanh * tanh)
    sums = dc * j * i * (1 - i), dc * cell * f * (1 - f), dc * i * (1 - j * j), dh * tanh * o * (1 - o)
    return torch.cat(sums, 1), dc * f
