"""Recurrent layers: LSTM and GRU over a sequence, forward and backward, which torch_npu calls by name.

Shapes: x (steps, batch, inputs), states (1, batch, hidden) or (batch, hidden). For the LSTM: weight (inputs + hidden,
4 * hidden), split in two in V2, bias (4 * hidden), gates in PyTorch's order input, forget, candidate, output
(``gate_order`` "ifjo"); sequences may have different lengths: a mask (steps, batch, hidden) is 1 within each. For the
GRU: weights (inputs, 3 * hidden) and (hidden, 3 * hidden), gates in the order reset, update, new ("rzh").

An Ascend 950 has no operators that are called by name: there torch_npu calls aclnnLSTM, with all layers and both
directions at once and PyTorch's own weights. Source: rnn/dynamic_rnn and rnn/single_layer_lstm_grad of CANN's ops-nn.
"""

from __future__ import annotations

from typing import Any

import torch

from pytest_ascend.emulator.registry import T, gap, gradients
from pytest_ascend.system.dispatching import in_float32

_REVERSED = "REDIRECTIONAL"
#: PyTorch's order of the gates; the candidate has two letters.
_ORDER, _ORDERS = "ifjo", ("ifjo", "ifco")


def _lasts(mask: T | None, x: T, hidden: T) -> T:
    """Return 1 for each element of a state, step by step, within its sequence, else 0."""
    return mask if mask is not None and mask.dim() else hidden.new_ones((len(x), 1, 1))


def dynamic_rnn(
    x: T, weight: T, bias: T, mask: T | None, hidden: T, cell: T, *, direction: str, gate_order: str = _ORDER,
    num_proj: int = 0, **_: Any,
) -> tuple[T, ...]:  # fmt: skip
    """Run over the sequence; return outputs, states, cells, gates i, j (the candidate), f, o, and tanh of the cells.

    A state stays unchanged after the end of its sequence.
    """
    is_known = gate_order in _ORDERS and not num_proj
    gap(not is_known, f"gate_order {gate_order!r} and num_proj {num_proj!r} are not implemented")
    is_reversed, lasts = direction == _REVERSED, _lasts(mask, x, hidden)
    over_time = (x.flip(0), lasts.flip(0)) if is_reversed else (x, lasts)
    x, on_time, weight, bias, hidden, cell = map(in_float32, (*over_time, weight, bias, hidden, cell))
    hidden, cell = (each.reshape(each.shape[-2:]) for each in (hidden, cell))
    kept = []
    for row, on in zip(x, on_time, strict=True):
        gates = torch.addmm(bias, torch.cat([row, hidden], 1), weight).chunk(4, 1)
        i, f, o = (gates[place].sigmoid() for place in (0, 1, 3))
        j = gates[2].tanh()
        cell = cell.lerp(f * cell + i * j, on)
        tanh = cell.tanh()
        hidden = hidden.lerp(o * tanh, on)
        kept.append((hidden, cell, i, j, f, o, tanh))
    made = [torch.stack(each[::-1] if is_reversed else each) for each in zip(*kept, strict=True)]
    return made[0] * lasts, *made


def dynamic_rnn_grad(
    x: T, weight: T, _bias: T, _y: T, hidden: T, cell: T, *rest: T, gate_order: str = _ORDER, num_proj: int = 0,
    **how: Any,
) -> tuple[T, ...]:  # fmt: skip
    """Run backward step by step, in float64: the stored gates are already rounded, and errors would grow."""
    h, c, dy, dh, dc, i, j, f, o, tanh, mask, *_ = rest
    is_known = gate_order in _ORDERS and not num_proj
    gap(not is_known, f"gate_order {gate_order!r} and num_proj {num_proj!r} are not implemented")
    is_reversed = how.get("direction") == _REVERSED
    over_time = (x, _lasts(mask, x, hidden), dy, h, c, i, j, f, o, tanh)
    x, lasts, dy, h, c, *gates = ((each.flip(0) if is_reversed else each).double() for each in over_time)
    weight, hidden, cell, dh, dc = (each.double() for each in (weight, hidden, cell, dh, dc))
    before = torch.cat([hidden[None], h[:-1]]), torch.cat([cell[None], c[:-1]])
    sums: list[T] = []
    for step in reversed(range(len(x))):
        on = lasts[step]
        d_gates, inner = _through_gates((dy[step] + dh) * on, dc * on, before[1][step], *(each[step] for each in gates))
        dh, dc = dh * (1 - on) + d_gates @ weight[x.shape[2] :].T, dc * (1 - on) + inner
        sums.insert(0, d_gates)
    d_gates = torch.stack(sums)
    dx = d_gates @ weight[: x.shape[2]].T
    dw = torch.cat([x, before[0]], 2).flatten(0, 1).T @ d_gates.flatten(0, 1)
    return dw, d_gates.sum((0, 1)), dx.flip(0) if is_reversed else dx, dh, dc


def _through_gates(dh: T, dc: T, cell: T, i: T, j: T, f: T, o: T, tanh: T) -> tuple[T, T]:
    """Return the gradients of a step's four sums, side by side, and of the previous cell."""
    dc = dc + dh * o * (1 - tanh * tanh)
    sums = dc * j * i * (1 - i), dc * cell * f * (1 - f), dc * i * (1 - j * j), dh * tanh * o * (1 - o)
    return torch.cat(sums, 1), dc * f


def lstm(
    x: T, params: list[T], states: list[T], batch_sizes: T | None, has_bias: bool, _layers: int, _dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Run all layers and directions; return output, last states and cells, and for training what each layer saved."""
    layer, lasts = x.transpose(0, 1) if batch_first else x, None
    if batch_sizes is not None and batch_sizes.numel():  # padded: a row for each sequence at each step
        layer = x.view(len(batch_sizes), -1, x.shape[-1])
        lasts = (torch.arange(layer.shape[1]) < batch_sizes[:, None]).to(x.dtype)[..., None]
    modes, kept, count = ("UNIDIRECTIONAL", _REVERSED)[: 1 + bidirectional], [], 4 if has_bias else 2
    for place in range(len(params) // count):
        of_input, of_state, *biases = params[place * count : (place + 1) * count]
        weight = torch.cat([of_input, of_state], 1).T
        bias = sum(map(in_float32, biases), of_input.new_zeros(len(of_input)))
        way = place % len(modes)
        hidden, cell = (each[place] for each in states)
        kept.append(dynamic_rnn(layer, weight, bias, lasts, hidden, cell, direction=modes[way]))
        if way == len(modes) - 1:
            layer = torch.cat([each[0] for each in kept[-len(modes) :]], 2).to(x.dtype)
    last = [torch.stack([each[i][0 if place % len(modes) else -1] for place, each in enumerate(kept)]) for i in (1, 2)]
    _, h, c, i, j, f, o, tanh = zip(*kept, strict=True)
    return layer.transpose(0, 1) if batch_first else layer, *last, *((i, j, f, o, h, c, tanh) if train else [None] * 7)


def lstm_backward(
    x: T, states: list[T], params: list[T], dy: T | None, dh: T | None, dc: T | None, *rest: Any
) -> tuple[T | list[T], ...]:
    """Differentiate the whole computation in float64: saved intermediate results are already rounded."""
    batch_sizes, has_bias, layers, _, _, bidirectional, batch_first, _ = rest[7:]

    def whole(x: T, hidden: T, cell: T, *params: T) -> tuple[Any, ...]:
        how = (batch_sizes, has_bias, layers, 0.0, False, bidirectional, batch_first)
        return lstm(x, list(params), [hidden, cell], *how)

    dx, dhidden, dcell, *dparams = gradients(whole, [x, *states, *params], dy, dh, dc, dtype=torch.float64)
    return dx, dhidden, dcell, dparams


def dynamic_gru(
    x: T, weight: T, weight_hidden: T, bias: T, bias_hidden: T, _lengths: T | None, hidden: T, *, gate_order: str,
    reset_after: bool, **_: Any,
) -> tuple[T, ...]:  # fmt: skip
    """Return the states twice, the gates update, reset and new, and the factor of the reset gate."""
    is_known = gate_order == "rzh" and reset_after
    gap(not is_known, f"gate_order {gate_order!r} and reset_after {reset_after!r} are not implemented")
    given = (x, weight, weight_hidden, bias, bias_hidden, hidden)
    x, weight, weight_hidden, bias, bias_hidden, hidden = map(in_float32, given)
    hidden = hidden.reshape(hidden.shape[-2:])
    kept = []
    for row in x:
        of_input = torch.addmm(bias, row, weight).chunk(3, 1)
        of_state = torch.addmm(bias_hidden, hidden, weight_hidden).chunk(3, 1)
        reset, update = ((of_input[i] + of_state[i]).sigmoid() for i in (0, 1))
        new = (of_input[2] + reset * of_state[2]).tanh()
        hidden = new.lerp(hidden, update)
        kept.append((hidden, update, reset, new, of_state[2]))
    made = [torch.stack(each) for each in zip(*kept, strict=True)]
    return made[0], *made


def dynamic_gru_grad(
    x: T, weight: T, weight_hidden: T, _y: T, hidden: T, h: T, *rest: T, gate_order: str, reset_after: bool, **_: Any
) -> tuple[T, ...]:
    """Run backward step by step, in float64, as :func:`dynamic_rnn_grad` does."""
    is_known = gate_order == "rzh" and reset_after
    gap(not is_known, f"gate_order {gate_order!r} and reset_after {reset_after!r} are not implemented")
    given = (each.double() for each in (x, weight, weight_hidden, hidden, h, *rest[:6]))
    x, weight, weight_hidden, first, h, dy, dh, updates, resets, news, of_state = given
    dh, first = dh.reshape(dh.shape[-2:]), first.reshape(1, *first.shape[-2:])
    before = torch.cat([first, h[:-1]])
    of_inputs: list[T] = []
    of_states: list[T] = []
    for step in reversed(range(len(x))):
        d, update, reset, new = dy[step] + dh, updates[step], resets[step], news[step]
        d_new = d * (1 - update) * (1 - new * new)
        d_update = d * (before[step] - new) * update * (1 - update)
        d_reset = d_new * of_state[step] * reset * (1 - reset)
        of_inputs.insert(0, torch.cat([d_reset, d_update, d_new], 1))
        of_states.insert(0, torch.cat([d_reset, d_update, d_new * reset], 1))
        dh = d * update + of_states[0] @ weight_hidden.T
    d_gates, beside = torch.stack(of_inputs), torch.stack(of_states)
    dw = x.flatten(0, 1).T @ d_gates.flatten(0, 1)
    dw_hidden = before.flatten(0, 1).T @ beside.flatten(0, 1)
    return dw, dw_hidden, d_gates.sum((0, 1)), beside.sum((0, 1)), d_gates @ weight.T, dh.view(hidden.shape)
