"""Operators of the older kind, which torch_npu calls by name: bit for bit the CPU's where the CPU has the function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch_npu

from pytest_ascend import emulator

from .both import FLOATS, assert_identical, assert_same, floats, integers, operators
from .kernel import by_name, called, close

T = torch.Tensor


@pytest.mark.parametrize("p", [0, 0.5, 1, 3, math.inf, -math.inf])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_norms_of_any_order(p: float, dims: tuple[int, ...]) -> None:
    x = floats(3, 4, 5)
    found = torch.linalg.vector_norm(x.npu(), p, dims).cpu()
    torch.testing.assert_close(found, torch.linalg.vector_norm(x, p, dims))


def test_infinite_norms_are_exact_in_every_dtype() -> None:
    for dtype in FLOATS:
        assert_same(lambda x: torch.linalg.vector_norm(x, math.inf, 1), floats(3, 7, dtype=dtype))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients_of_distances(p: float) -> None:
    rows, others = floats(4, 6), floats(5, 6, seed=1)
    gradients = []
    for device in ("cpu", "npu"):
        leaves = [each.detach().to(device).requires_grad_() for each in (rows, others)]
        torch.cdist(*leaves, p=p).square().sum().backward()
        gradients.append([each.grad.cpu() for each in leaves if each.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("onesided", [True, False])
def test_short_time_fourier_transforms(onesided: bool) -> None:
    x, window = floats(2, 400), torch.hann_window(40)
    arguments = {"n_fft": 64, "hop_length": 16, "win_length": 40, "onesided": onesided, "return_complex": True}
    found = torch.stft(x.npu(), window=window.npu(), **arguments).cpu()
    torch.testing.assert_close(found, torch.stft(x, window=window, **arguments))


#: What torch_npu's own function gives, and torch's of the same.
MOVEMENTS: dict[str, tuple[Callable[[T], T], Callable[[T], T]]] = {
    "broadcast": (lambda x: torch_npu.npu_broadcast(x, [2, 3, 4, 6]), lambda x: x.expand(2, 3, 4, 6)),
    "confusion_transpose": (
        lambda x: torch_npu.npu_confusion_transpose(x, [1, 0, 2], [4, 18], True),
        lambda x: x.permute(1, 0, 2).reshape(4, 18),
    ),
    "format_cast": (lambda x: torch_npu.npu_format_cast(x, 2), lambda x: x),
    "pad": (
        lambda x: torch_npu.npu_pad(x, [1, 2, 0, 1, 3, 0]),
        lambda x: torch.nn.functional.pad(x, [3, 0, 0, 1, 1, 2]),
    ),
    "slice": (lambda x: torch_npu.npu_slice(x, [1, 0, 2], [2, 3, 4]), lambda x: x[1:3, :3, 2:6]),
    "stride_copy": (
        lambda x: torch_npu.npu_stride_copy(x, [3, 2], [6, 2], 1),
        lambda x: x.contiguous().as_strided([3, 2], [6, 2], 1),
    ),
    "transpose": (lambda x: torch_npu.npu_transpose(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1)),
}


@pytest.mark.parametrize("name", MOVEMENTS)
def test_movements_change_no_bit(name: str) -> None:
    of_npu, of_torch = MOVEMENTS[name]
    for x in (floats(3, 4, 6), floats(3, 4, 6, dtype=torch.float16), integers(3, 4, 6, dtype=torch.int32)):
        assert_identical(of_npu(x.npu()), of_torch(x))


def test_a_gradient_of_windows() -> None:
    assert_same(lambda x: x.unfold(1, 3, 2), floats(4, 9), backward=True)


def test_an_operator_that_is_not_emulated_is_named() -> None:
    emulator.missing()
    with pytest.raises(RuntimeError, match="operator type AnchorResponseFlags is not emulated"):
        torch_npu.npu_anchor_response_flags(floats(2, 4).npu(), [8, 8], [2, 2], 9)
    assert emulator.missing() == ("AnchorResponseFlags",)


def test_a_malformed_call_is_an_error_and_the_device_goes_on() -> None:
    with pytest.raises(RuntimeError, match="emulated CANN: Slice failed"):
        torch_npu.npu_slice(floats(3, 4).npu(), [9, 9], [1, 1]).cpu()
    assert operators(lambda: floats(3).npu() + 1)


@pytest.mark.filterwarnings("ignore:LSTM fallback to acl_op")  # of torch_npu, which has two ways
@pytest.mark.filterwarnings("ignore:torch_npu.npu_gru is deprecated", "ignore:Cannot create tensor with NZ format")
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_and_their_gradients(
    layer: type[torch.nn.RNNBase], layers: int, bidirectional: bool, bias: bool
) -> None:
    torch.manual_seed(0)
    usual, there = (layer(5, 4, layers, bidirectional=bidirectional, bias=bias, batch_first=True) for _ in range(2))
    there.load_state_dict(usual.state_dict())
    states = [floats(layers * (1 + bidirectional), 3, 4, seed=seed) for seed in (1, 2)]
    found = []
    for model, device in ((usual, "cpu"), (there.npu(), "npu")):
        x = floats(3, 6, 5).to(device).requires_grad_()
        given = [each.detach().to(device).requires_grad_() for each in states]
        if layer is torch.nn.LSTM:
            out, last = model(x, tuple(given))
        else:
            given.pop()
            out, *last = model(x, *given)
        (out.square().sum() + sum((place * each).sum() for place, each in enumerate(last, start=1))).backward()
        leaves = [x, *given, *model.parameters()]
        found.append([each.detach().cpu() for each in (out, *last, *(leaf.grad for leaf in leaves))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_an_lstm_in_half_precision() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.LSTM(5, 4), floats(6, 3, 5)
    wanted = model.double()(x.double())[0].float()
    found = model.half().npu()(x.half().npu())[0].float().cpu()
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)


def test_an_lstm_over_sequences_of_different_lengths() -> None:
    torch.manual_seed(0)
    usual, there = torch.nn.LSTM(5, 4), torch.nn.LSTM(5, 4)
    there.load_state_dict(usual.state_dict())
    found = []
    for model, device in ((usual, "cpu"), (there.npu(), "npu")):
        x = floats(6, 3, 5).to(device)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2]))
        made, (last, kept) = model(packed)
        out = torch.nn.utils.rnn.pad_packed_sequence(made)[0]
        (out.square().sum() + last.sum() + (3 * kept).sum()).backward()
        leaves = model.parameters()  # the gradient of x is not here: torch_npu packs sequences with their padding, and
        # torch's own gradient of packing takes that for sequences without
        found.append([each.detach().cpu() for each in (out, last, kept, *(leaf.grad for leaf in leaves))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_boxes_that_overlap_better_ones_are_left_out(seed: int) -> None:
    corner, size = floats(40, 2, seed=seed) * 3, floats(40, 2, seed=seed + 9).abs() + 1
    boxes, scores = torch.cat([corner, corner + size], 1), floats(40, seed=seed + 99).sigmoid()
    limits = torch.tensor(0.4).npu(), torch.tensor(0.3).npu()
    chosen, count = torch_npu.npu_nms_v4(boxes.npu(), scores.npu(), 10, *limits)
    share = torch_npu.npu_iou(boxes.npu(), boxes.npu()).cpu()
    best = [place for place in scores.argsort(descending=True).tolist() if scores[place] > 0.3]
    wanted: list[int] = []
    for place in best:
        if all(share[place, other] <= 0.4 for other in wanted):
            wanted.append(place)
    assert chosen.tolist()[: int(count)] == wanted[:10]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_cell_of_an_lstm(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    usual, there = torch.nn.LSTMCell(5, 4), torch.nn.LSTMCell(5, 4)
    usual.load_state_dict({name: each.to(dtype).float() for name, each in usual.state_dict().items()})
    there.load_state_dict(usual.state_dict())
    there.npu().to(dtype)
    given = [floats(3, 5, dtype=dtype), floats(3, 4, seed=1, dtype=dtype), floats(3, 4, seed=2, dtype=dtype)]
    found = []
    for model, leaves in ((usual, [each.float() for each in given]), (there, [each.npu() for each in given])):
        x, hidden, cell = (each.requires_grad_() for each in leaves)
        made = model(x, (hidden, cell))
        (made[0].square().sum() + 3 * made[1].sum()).backward()
        gradients = [each.grad for each in (x, hidden, cell, *model.parameters())]
        found.append([each.detach().float().cpu() for each in (*made, *gradients)])
    near = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 5e-3, "atol": 5e-3}
    torch.testing.assert_close(found[1], found[0], **near)


def test_the_gradients_of_a_fused_cell() -> None:
    sums, cell = floats(3, 16).double().requires_grad_(), floats(3, 4, seed=1).double().requires_grad_()
    functions = (torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid)
    i, f, j, o = (each(part) for each, part in zip(functions, sums.chunk(4, 1), strict=True))
    after = f * cell + i * j
    state = o * after.tanh()
    dh, dc = floats(3, 4, seed=2), floats(3, 4, seed=3)
    wanted = torch.autograd.grad([state, after], [sums, cell], [dh.double(), dc.double()])
    gates = torch.cat([i, f, j, o], 1)
    given = [each.detach().float().npu() for each in (dh, dc, cell, after, gates)]
    found = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*given, True)
    for actual, expected in zip(found, (*wanted, wanted[0].sum(0)), strict=True):
        torch.testing.assert_close(actual.cpu(), expected.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keeps", [True, False], ids=["with the shares", "without them"])
def test_a_cross_entropy_whose_classes_are_divided(keeps: bool) -> None:
    # CANN takes halves alone: of these, the logits are exact.
    x, weight = (integers(rows, 6, low=-4, high=5, seed=rows).half() / 4 for rows in (11, 10))
    target = integers(11, low=0, high=10).to(torch.int32)
    leaves = [each.double().requires_grad_() for each in (x, weight)]
    loss = torch.nn.functional.cross_entropy(leaves[0] @ leaves[1].T, target.long(), reduction="none")
    grad = floats(11, seed=2)
    wanted = torch.autograd.grad(loss, leaves, grad.double())
    bounds = ((0, 5), (6, 9))  # the last one is still in the part
    parts = [
        torch_npu.npu_fused_linear_online_max_sum(x.npu(), weight[a : b + 1].npu(), target.npu(), a, b, keeps)
        for a, b in bounds
    ]
    largest = torch.maximum(parts[0][0], parts[1][0])
    total = sum(part[1] * (part[0] - largest).exp() for part in parts)
    of_target = [~_bits(part[3], 11) for part in parts]
    predicted = sum((part[2] + part[0] - largest) * ours.npu() for part, ours in zip(parts, of_target, strict=True))
    assert (of_target[0] ^ of_target[1]).all()
    dx, dw = torch.zeros_like(x).float(), []
    for (a, b), part in zip(bounds, parts, strict=True):
        found, shares = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
            largest, total, predicted, vocab_parallel_logits=part[5] if keeps else None
        )
        torch.testing.assert_close(found.cpu(), loss.detach().float(), rtol=1e-5, atol=1e-5)
        made = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
            grad.npu(), x.npu(), weight[a : b + 1].npu(), part[3], part[4],
            logits_max=largest, sum_exp_logits=total, softmax=shares,
        )  # fmt: skip
        dx += made[0].cpu()
        dw.append(made[1].cpu())
    for actual, expected in (
        (dx, wanted[0]),
        (torch.cat(dw).float(), wanted[1]),
    ):  # of dx, each of two parts is rounded
        allowed = torch.finfo(torch.float16).eps * float(expected.abs().max())
        torch.testing.assert_close(actual, expected.float(), rtol=0, atol=allowed)


def _bits(packed: T, count: int) -> T:
    return torch.tensor([bool(int(packed[i // 8]) >> i % 8 & 1) for i in range(count)])


@pytest.mark.parametrize("seed", range(3))
def test_regions_are_pooled_part_by_part(seed: int) -> None:
    """By the definition, pixel by pixel; some regions reach over the edge, and some parts have no pixel."""
    x = floats(2, 3 * 4, 9, 8, seed=seed)
    corner = integers(2, 2, 5, low=-2, high=9, seed=seed).float()
    images, sizes = (integers(2, rows, 5, low=0, high=high, seed=seed + 1).float() for rows, high in ((1, 2), (2, 9)))
    rois = torch.cat([images, corner, corner + sizes], 1)
    leaf = x.npu().requires_grad_()
    found = torch_npu.npu_ps_roi_pooling(leaf, rois.npu(), 0.5, 2, 3)
    found.sum().backward()
    found, gradient = found.detach().cpu(), torch.zeros_like(x)
    for place, (image, left, top, right, bottom) in enumerate(rois.mT.flatten(0, 1).tolist()):
        for channel in range(3):
            for row in range(2):
                for column in range(2):
                    width, height = ((end + 1 - start) * 0.5 / 2 for start, end in ((left, right), (top, bottom)))
                    pixels = [
                        (v, u)
                        for v in range(9)
                        for u in range(8)
                        if v + 1 > top * 0.5 + row * height and v < top * 0.5 + (row + 1) * height
                        if u + 1 > left * 0.5 + column * width and u < left * 0.5 + (column + 1) * width
                    ]
                    of = channel * 4 + row * 2 + column
                    mean = sum(float(x[int(image), of, v, u]) for v, u in pixels) / max(1, len(pixels))
                    assert float(found[place, channel, row, column]) == pytest.approx(mean, abs=1e-5)
                    for v, u in pixels:
                        gradient[int(image), of, v, u] += 1 / len(pixels)
    torch.testing.assert_close(leaf.grad.cpu(), gradient)


X = {"x": floats(4, 5).abs() + 0.5, "y": floats(4, 5, seed=1), "i": integers(4, 5, low=0, high=4)}
#: Functions of one tensor, and others; with jit_compile, torch_npu calls all of these by name.
SIMPLE = """
    abs atan ceil cos cosh erf exp expm1 floor isfinite log log10 log1p log2 max mean min neg prod reciprocal relu round
    rsqrt sigmoid sign sin sinh sqrt square sum tanh tril triu trunc
"""
BY_NAME: dict[str, Callable[[T, T, T], T | tuple[T, ...]]] = {
    "add": lambda x, y, _i: x.add(y, alpha=2),
    "addcdiv": lambda x, y, _i: y.addcdiv(y, x, value=0.3),
    "addcmul": lambda x, y, _i: y.addcmul(y, x, value=0.3),
    "amax": lambda _x, y, _i: y.amax(1),
    "any": lambda x, y, _i: (y > x).any(1),
    "argmax": lambda _x, y, _i: y.argmax(0),
    "cat": lambda x, y, _i: torch.cat([x, y], 1),
    "clamp": lambda _x, y, _i: y.clamp(-0.3, 0.4),
    "comparisons": lambda x, y, _i: ((x > y) | (y >= 0.2)) & (x != 1) & (y <= x) & (x < 2) | (x == y),
    "cumsum": lambda _x, y, _i: y.cumsum(1),
    "cumprod": lambda _x, y, _i: y.cumprod(0),
    "div": lambda x, y, _i: y / x,
    "flip": lambda _x, y, _i: y.flip(1),
    "gather": lambda _x, y, i: y.gather(0, i),
    "gelu": lambda _x, y, _i: torch.nn.functional.gelu(y),
    "index_select": lambda _x, y, i: y.index_select(1, i[0]),
    "lerp": lambda x, y, _i: x.lerp(y, 0.3),
    "log_softmax": lambda _x, y, _i: y.log_softmax(0),
    "logsumexp": lambda _x, y, _i: y.logsumexp(1),
    "masked_fill": lambda x, y, _i: y.masked_fill(y > x, 3),
    "masked_select": lambda x, y, _i: y.masked_select(y > x),
    "maximum": lambda x, y, _i: torch.maximum(x, y),
    "max of a dimension": lambda _x, y, _i: tuple(y.max(1)),
    "mean of dimensions": lambda _x, y, _i: y.mean(0, keepdim=True),
    "mul": lambda x, y, _i: x * y,
    "pow": lambda x, y, _i: x**y,
    "pow of a number": lambda x, _y, _i: x**2.5,
    "remainder": lambda x, y, _i: y.remainder(x),
    "repeat": lambda _x, y, _i: y.repeat(2, 3),
    "scatter": lambda x, y, i: y.scatter(0, i[:1], x),
    "softmax": lambda _x, y, _i: y.softmax(1),
    "softplus": lambda _x, y, _i: torch.nn.functional.softplus(y),
    "sort": lambda _x, y, _i: tuple(y.sort(1, descending=True)),
    "stack": lambda x, y, _i: torch.stack([x, y], 1),
    "sub": lambda x, y, _i: x - y,
    "topk": lambda _x, y, _i: tuple(y.topk(2, 1)),
    "topk of the smallest": lambda _x, y, _i: tuple(y.topk(2, 0, largest=False)),
    "where": lambda x, y, _i: torch.where(y > 0, x, y),
}


def _simple(name: str) -> Callable[[T, T, T], T]:
    return lambda x, _y, _i: getattr(torch, name)(x)


BY_NAME |= {name: _simple(name) for name in SIMPLE.split()}


@pytest.fixture
def _compiling() -> Iterator[None]:
    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)


@pytest.mark.usefixtures("_compiling")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", BY_NAME)
def test_with_jit_compile_operators_go_by_name(name: str, dtype: torch.dtype) -> None:
    x, y, i = X["x"].to(dtype), X["y"].to(dtype), X["i"]
    on_npu = x.npu(), y.npu(), i.npu()
    made: list[T | tuple[T, ...]] = []
    called = operators(lambda: made.append(BY_NAME[name](*on_npu)))
    assert {each for each in called if not each.startswith("aclnn")}, called
    found, wanted = made[0], BY_NAME[name](x.float(), y.float(), i)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for actual, expected in pairs:
        torch.testing.assert_close(actual.cpu().to(expected.dtype), expected, rtol=3e-3, atol=3e-3)


@pytest.mark.usefixtures("_compiling")
def test_with_jit_compile_dropout_keeps_bits() -> None:
    x = torch.ones(40, 50, device="npu", requires_grad=True)
    made: list[T] = []
    assert operators(lambda: made.append(torch_npu._npu_dropout(x, 0.25)[0])) == {
        "StatelessDropOutGenMask",
        "DropOutDoMask",
    }
    made[0].sum().backward()
    kept = made[0].detach().cpu() != 0
    torch.testing.assert_close(made[0].detach().cpu(), kept / 0.75)
    assert 0.65 < kept.float().mean() < 0.85
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), kept / 0.75)


@pytest.mark.usefixtures("_compiling")
@pytest.mark.parametrize("biased", [False, True])
def test_with_jit_compile_a_linear_layer_is_a_product(biased: bool) -> None:
    x, weight, bias = floats(4, 3), floats(5, 3, seed=1), floats(5, seed=2) if biased else None
    found = torch_npu.npu_linear(x.npu(), weight.npu(), None if bias is None else bias.npu())
    torch.testing.assert_close(found.cpu(), torch.nn.functional.linear(x, weight, bias), rtol=1e-3, atol=1e-3)


def test_a_dimension_that_there_is_not_is_refused() -> None:
    with pytest.raises(RuntimeError, match="161002"):
        torch.arange(3.0).npu().flip(3)


def test_places_may_be_int32() -> None:
    x, places = floats(3, 4), torch.tensor([0, 7, 11], dtype=torch.int32)
    expected = x.clone().put_(places.long(), floats(3, seed=1))
    assert torch.equal(x.npu().put_(places.npu(), floats(3, seed=1).npu()).cpu(), expected)


def test_numbers_in_equal_steps_of_an_exponent() -> None:
    found = by_name("LogSpaceD")(torch.arange(5.0), start=-1.0, end=3.0, steps=5, base=2.0, dtype=1)
    close(found, torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0]))


def test_parts_of_given_sizes() -> None:
    x = torch.arange(24.0).view(4, 6)
    parts = called("SplitWithSize", x, [1, 0, 5], 1)
    assert [each.tolist() for each in parts] == [x[:, :1].tolist(), x[:, 1:1].tolist(), x[:, 1:].tolist()]
