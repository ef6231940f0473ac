"""Kernels that torch_npu calls by name on other chips: each against torch's function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .kernel import T, by_name, called, close, floats, gradients

# --- convolutions ---

#: By name strides and dilations have four entries, paddings are before and after of height and width.
GEOMETRY = {"strides": [1, 1, 2, 1], "pads": [1, 1, 2, 2], "dilations": [1, 1, 1, 2], "groups": 2}
HOW: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}


@pytest.mark.parametrize("biased", [False, True])
def test_convolutions_by_name_and_their_gradients(biased: bool) -> None:
    x, weight, bias = floats(2, 4, 7, 9), floats(6, 2, 3, 2, seed=1), floats(6, seed=2) if biased else None
    close(by_name("Conv2D")(x, weight, bias, data_format="NCHW", **GEOMETRY), F.conv2d(x, weight, bias, **HOW))
    dy = floats(*F.conv2d(x, weight, **HOW).shape, seed=3)
    dx, dweight = gradients(lambda x, weight: F.conv2d(x, weight, **HOW), dy, x, weight)
    shapes = [torch.tensor(each.shape) for each in (x, weight)]
    close(by_name("Conv2DBackpropInput")(shapes[0], weight, dy, data_format="NCHW", **GEOMETRY), dx)
    close(by_name("Conv2DBackpropFilter")(x, shapes[1], dy, data_format="NCHW", **GEOMETRY), dweight)
    added = floats(4, seed=4) if biased else None
    found = by_name("Conv2DTranspose")(
        shapes[0], dy, weight, added, output_padding=[0, 0, 0, 0], data_format="NCHW", **GEOMETRY
    )
    close(found, dx + (0 if added is None else added.view(1, 4, 1, 1)))


def test_a_convolution_by_name_is_rounded_once_and_has_one_group_unless_told() -> None:
    x, weight = floats(2, 40, 5, 6, 4).half(), floats(3, 40, 3, 2, 3, seed=1).half()
    named = {"strides": [1] * 5, "pads": [0] * 6, "dilations": [1] * 5}
    found = by_name("Conv3D")(x, weight, data_format="NCDHW", **named)
    close(found.half(), F.conv3d(x.float(), weight.float()).half(), rtol=1e-3)


def test_convolutions_of_volumes_by_name_and_their_gradients() -> None:
    how: dict[str, Any] = {"stride": (2, 1, 1), "padding": (1, 0, 2), "dilation": (1, 2, 1), "groups": 2}
    named = {"strides": [1, 1, 2, 1, 1], "pads": [1, 1, 0, 0, 2, 2], "dilations": [1, 1, 1, 2, 1], "groups": 2}
    x, weight, bias = floats(2, 4, 5, 6, 4), floats(6, 2, 3, 2, 3, seed=1), floats(6, seed=2)
    wanted = F.conv3d(x, weight, bias, **how)
    close(by_name("Conv3D")(x, weight, bias, data_format="NCDHW", **named), wanted)
    dy = floats(*wanted.shape, seed=3)
    dx, dweight = gradients(lambda x, weight: F.conv3d(x, weight, **how), dy, x, weight)
    shapes = [torch.tensor(each.shape) for each in (x, weight)]
    close(by_name("Conv3DBackpropInput")(shapes[0], weight, dy, data_format="NCDHW", **named), dx)
    close(by_name("Conv3DBackpropFilter")(x, shapes[1], dy, data_format="NCDHW", **named), dweight, rtol=1e-3)
    added = floats(4, seed=4)
    found = by_name("Conv3DTranspose")(
        shapes[0], dy, weight, added, output_padding=[0] * 5, data_format="NCDHW", **named
    )
    close(found, dx + added.view(1, 4, 1, 1, 1))


@pytest.mark.parametrize("biased", [False, True])
def test_depthwise_convolutions(biased: bool) -> None:
    x, weight, bias = floats(2, 3, 7, 9), floats(6, 1, 3, 2, seed=1), floats(6, seed=2) if biased else None
    wanted = F.conv2d(x, weight, bias, (2, 1), (1, 2), (1, 2), groups=3)
    close(called("ConvDepthwise2d", x, weight, [3, 2], bias, [2, 1], [1, 2], [1, 2]), wanted)


def test_convolutions_over_time_and_their_gradients() -> None:
    x, weight, bias = floats(7, 2, 4), floats(3, 4, 5, seed=1), floats(5, seed=2)

    def defined(x: T, weight: T, bias: T) -> T:
        return F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=1).permute(2, 0, 1)

    close(called("ConvTbc", x, weight, bias, 1), defined(x, weight, bias))
    dy = floats(7, 2, 5, seed=3)
    close(called("ConvTbcBackward", dy, x, weight, bias, 1), gradients(defined, dy, x, weight, bias))


# --- pooling, by name: paddings are before and after on each axis ---

WINDOW = {"ksize": [1, 1, 3, 2, 2], "strides": [1, 1, 2, 1, 2], "pads": [1, 1, 0, 0, 1, 1]}
POOL: dict[str, Any] = {"kernel_size": (3, 2, 2), "stride": (2, 1, 2), "padding": (1, 0, 1)}


@pytest.mark.parametrize("rounds_up", [False, True])
def test_largest_numbers_of_volumes_by_name(rounds_up: bool) -> None:
    x = floats(2, 3, 6, 5, 7)
    pads = [1, 2, 0, 0, 1, 2] if rounds_up else WINDOW["pads"]
    how = {**WINDOW, "pads": pads, "data_format": "NCDHW", "padding": "CALCULATED"}
    wanted = F.max_pool3d(x, **POOL, ceil_mode=rounds_up)
    close(by_name("MaxPool3D")(x, dilation=[1, 1, 1, 1, 1], ceil_mode=int(rounds_up), **how), wanted)
    dilated = by_name("MaxPool3D")(x, dilation=[1, 1, 1, 2, 1], ceil_mode=int(rounds_up), **how)
    close(dilated, F.max_pool3d(x, **POOL, dilation=(1, 2, 1), ceil_mode=rounds_up))
    dy = floats(*wanted.shape, seed=1)
    found = by_name("MaxPool3DGrad")(x, wanted, dy, **how)
    close(found, gradients(lambda x: F.max_pool3d(x, **POOL, ceil_mode=rounds_up), dy, x)[0])


@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("rounds_up", [False, True])
def test_means_of_volumes_by_name(rounds_up: bool, counts: bool, divisor: int | None) -> None:
    x = floats(2, 3, 6, 5, 7)
    named = {"ceil_mode": rounds_up, "count_include_pad": counts, "divisor_override": divisor}

    def defined(x: T) -> T:
        return F.avg_pool3d(x, **POOL, **named)

    wanted = defined(x)
    close(by_name("AvgPool3D")(x, data_format="NCDHW", **WINDOW, **named), wanted)
    dy = floats(*wanted.shape, seed=1)
    swapped = [0, 0, 1, 1, 1, 1]  # torch_npu passes those of height and width first
    how = {**WINDOW, "pads": swapped, "data_format": "NCDHW"}
    close(by_name("AvgPool3DGrad")(torch.tensor(x.shape), dy, **how, **named), gradients(defined, dy, x)[0])


def test_pooled_volumes_are_put_back() -> None:
    x = floats(1, 2, 4, 4, 4)
    largest, places = F.max_pool3d(x, 2, return_indices=True)
    out = torch.empty_like(x)
    called("MaxUnpool3d", largest, places.int(), [4, 4, 4], [2, 2, 2], [0, 0, 0], out)
    close(out, F.max_unpool3d(largest, places, 2))
    flat, places = F.max_pool2d(x[0], 2, return_indices=True)
    close(called("MaxUnpool2d", flat, places.int(), [4, 4]), F.max_unpool2d(flat, places, 2))


# --- recurrent ---


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_a_long_short_term_memory_with_two_weights(biased: bool, reverse: bool) -> None:
    steps, batch, inputs, hidden = 4, 2, 5, 3
    x, of_input, of_state = floats(steps, batch, inputs), floats(inputs, 12, seed=1), floats(hidden, 12, seed=2)
    bias = floats(12, seed=3) if biased else None
    h0, c0 = floats(1, batch, hidden, seed=4), floats(1, batch, hidden, seed=5)

    def defined(x: T, of_input: T, of_state: T, h: T, c: T) -> tuple[T, T, T]:
        h, c, every = h[0], c[0], []
        for step in reversed(range(steps)) if reverse else range(steps):
            sums = x[step] @ of_input + h @ of_state + (0 if bias is None else bias)
            i, f, j, o = sums.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
            h = torch.sigmoid(o) * torch.tanh(c)
            every.append(h)
        return torch.stack(every[::-1] if reverse else every), h, c

    how = {"direction": "REDIRECTIONAL" if reverse else "UNIDIRECTIONAL", "gate_order": "ifjo"}
    made = by_name("DynamicRNNV2")(x, of_input, of_state, bias, None, h0, c0, **how)
    y, h, c, *gates = made
    wanted, last_h, last_c = defined(x, of_input, of_state, h0, c0)
    close((y, h), (wanted, wanted))
    end = 0 if reverse else -1
    close((h[end], c[end]), (last_h, last_c))
    dy, dh, dc = floats(steps, batch, hidden, seed=6), floats(batch, hidden, seed=7), floats(batch, hidden, seed=8)
    i, j, f, o, tanh = gates
    found = by_name("DynamicRNNV2Grad")(
        x, of_input, of_state, y, h0[0], c0[0], h, c, dy, dh, dc, i, j, f, o, tanh, torch.empty(()), **how
    )

    def summed(*given: T) -> T:
        y, h, c = defined(*given)
        return (y * dy).sum() + (h * dh).sum() + (c * dc).sum()

    dx, d_input, d_state, dh0, dc0 = gradients(summed, torch.ones(()), x, of_input, of_state, h0, c0)
    close((found[0], found[1], found[3], found[4], found[5]), (d_input, d_state, dx, dh0[0], dc0[0]), **WIDE)


#: Gradients may come in float64.
WIDE: dict[str, Any] = {"check_dtype": False}


@pytest.mark.parametrize(("bias", "batch_first"), [(True, False), (False, True)])
def test_all_layers_and_directions_of_an_lstm_at_once(bias: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.LSTM(3, 4, 2, bias=bias, bidirectional=True, batch_first=batch_first)
    x, *states = (
        floats(*((2, 5, 3) if batch_first else (5, 2, 3))).requires_grad_(),
        *(floats(4, 2, 4, seed=n).requires_grad_() for n in (1, 2)),
    )
    lengths = None if batch_first else torch.tensor([2, 2, 2, 1, 1])
    if lengths is None:
        y, last = model(x, tuple(states))
    else:  # the second sequence ends after three steps
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
        y, last = model(packed, tuple(states))
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
    dy, dh, dc = floats(*y.shape, seed=3), floats(4, 2, 4, seed=4), floats(4, 2, 4, seed=5)
    weights = [*model.parameters()]
    wanted = torch.autograd.grad([y, *last], [x, *states, *weights], [dy, dh, dc])
    params, inner = [each.detach() for each in weights], [each.detach() for each in states]
    given = x.detach() if lengths is None else x.detach().flatten(0, 1)
    how = (bias, 2, 0.0, True, True, batch_first)
    found_y, h, c, *kept = called("LSTM", given, params, inner, lengths, *how)
    close((found_y, h, c), (y, *last))
    dx, dh0, dc0, dparams = called("LstmBackward", given, inner, params, dy, dh, dc, *kept, lengths, *how, None)
    close((dx.view(x.shape), dh0, dc0, *dparams), wanted, **WIDE)
    assert called("LSTM", given, params, inner, lengths, bias, 2, 0.0, False, True, batch_first)[3:] == (None,) * 7


@pytest.mark.parametrize("given", [{"gate_order": "ijfo"}, {"num_proj": 2}])
def test_options_of_recurrent_layers_that_are_not_emulated(given: dict[str, Any]) -> None:
    how = {"direction": "UNIDIRECTIONAL", "gate_order": "ifco"} | given
    x = torch.zeros(1, 1, 1)
    with pytest.raises(NotImplementedError, match="not implemented"):
        by_name("DynamicRNN")(x, x, x, None, x, x, **how)
    for order, after in (("zrh", True), ("rzh", False)):
        with pytest.raises(NotImplementedError, match="not implemented"):
            by_name("DynamicGRUV2")(x, x, x, x, x, None, x, gate_order=order, reset_after=after)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("asked", ["both", "state", "cell"])
def test_gradients_of_a_cell_of_which_not_all_is_used(asked: str, has_bias: bool) -> None:
    sums, cell = floats(3, 16), floats(3, 4, seed=1)
    dh, dc = floats(3, 4, seed=2), floats(3, 4, seed=3)

    def cells(sums: T, cell: T) -> tuple[T, T]:
        i, f, j, o = sums.chunk(4, 1)
        after = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(j)
        return torch.sigmoid(o) * torch.tanh(after), after

    def used(*given: T) -> T:
        h, c = cells(*given)
        return ((h * dh).sum() if asked != "cell" else 0) + ((c * dc).sum() if asked != "state" else 0)  # type: ignore[return-value]

    parts = sums.chunk(4, 1)
    gates = torch.cat([parts[0].sigmoid(), parts[1].sigmoid(), parts[2].tanh(), parts[3].sigmoid()], 1)
    given = (dh if asked != "cell" else None, dc if asked != "state" else None)
    found = called("ThnnFusedLstmCellBackward", *given, cell, cells(sums, cell)[1], gates, has_bias)
    dsums, dcell = gradients(used, torch.ones(()), sums, cell)
    close(found, (dsums, dcell, dsums.sum(0) if has_bias else None))


@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("zero", [False, True])
def test_ctc_losses_by_name_and_their_gradients(zero: bool, blank: int) -> None:
    log_probs = floats(7, 2, 5).log_softmax(-1)
    targets = torch.tensor([[1, 2, 3], [3, 1, 1]])
    lengths, target_lengths = torch.tensor([7, 6]), torch.tensor([3, 2])
    how = {"blank": blank + 3 * 5, "zero_infinity": zero}  # torch_npu adds the longest target, in classes
    loss, alpha = by_name("CTCLossV2")(log_probs, targets, lengths, target_lengths, **how)

    def losses(x: T) -> T:
        counts = lengths.tolist(), target_lengths.tolist()
        return F.ctc_loss(x, targets, *counts, blank, reduction="none", zero_infinity=zero)

    close(loss, losses(log_probs))
    grad, how["blank"] = floats(2, seed=1), blank
    found = by_name("CTCLossV2Grad")(grad, log_probs, targets, lengths, target_lengths, loss, alpha, **how)
    close(found.exp(), gradients(losses, grad, log_probs)[0].exp(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, -1.0])
def test_distances_of_rows_that_come_expanded(p: float) -> None:
    x, y = floats(2, 3, 1, 4), floats(2, 1, 5, 4, seed=1)
    apart = (x - y).abs()
    wanted = {0.0: apart.ne(0).sum(-1).float(), -1.0: apart.amax(-1)}.get(p)
    expected = apart.pow(p).sum(-1).pow(1 / p) if wanted is None else wanted
    close(by_name("Cdist")(x.expand(2, 3, 5, 4), y.expand(2, 3, 5, 4), p), expected)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_by_name(mode: str) -> None:
    rows, indices = floats(6, 4), torch.tensor([0, 5, 2, 2, 1], dtype=torch.int32)
    how = {"scale_grad_by_freq": False, "sparse": False, "include_last_offset": False}
    offsets = torch.tensor([0, 2], dtype=torch.int32)
    output, bag, size, largest = by_name("EmbeddingBag")(rows, indices, offsets, mode=mode, padding_idx=-1, **how)
    summed = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[mode]
    close(output, torch.stack([summed(rows[[0, 5]], 0), summed(rows[[2, 2, 1]], 0)]))
    assert bag is None if mode == "sum" else bag.tolist() == [0, 0, 1, 1, 1]
    assert mode == "sum" or size.tolist() == [2, 3]
    assert (largest is None) == (mode != "max")


@pytest.mark.parametrize("full", [False, True])
def test_singular_values_by_name(full: bool) -> None:
    x = floats(2, 5, 3)
    sigma, u, v = by_name("Svd")(x, compute_uv=True, full_matrices=full)
    assert u.shape == (2, 5, 5 if full else 3)
    close(u[..., :3] * sigma.unsqueeze(-2) @ v.mH, x)
    close(by_name("Svd")(x, compute_uv=False, full_matrices=full), (sigma, None, None))
