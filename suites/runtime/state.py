"""State between calls: repeated calls give the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch import nn

from pytest_ascend.operators.calling import tensors
from pytest_ascend.run import inputs

from .rows import CPU, SMOKE, STANDARD, At, Row, T, deterministic, fetched, forked

#: Calls on one matrix (rows, 64), covering all kinds of kernels. Those that accumulate in one place are exact.
CALLS: Mapping[str, Callable[[T], object]] = {
    "add": lambda x: x + 1 + x,
    "mul": lambda x: x * x,
    "div": lambda x: x / 3,
    "exp": torch.exp,
    "gelu": F.gelu,
    "where": lambda x: torch.where(x > 0, x, -x),
    "softmax": partial(torch.softmax, dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "sum": lambda x: x.sum(-1),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "var": lambda x: x.var(-1),
    "cumsum": lambda x: x.cumsum(0),
    "mm": lambda x: x @ x.mT,
    "bmm": lambda x: x[None] @ x.mT[None],
    "matmul": lambda x: x[None] @ x.mT,
    "linear": lambda x: F.linear(x, x[:5], x[:5, 0]),
    "conv1d": lambda x: F.conv1d(x[None], x[:3, None, :3].expand(3, len(x), 3), padding=1),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 3, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(5),
    "cat": lambda x: torch.cat([x, x.flip(0), x[:1]]),
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "index_select": lambda x: x.index_select(0, torch.arange(len(x) - 1, -1, -1, device=x.device)),
    "embedding": lambda x: F.embedding(torch.arange(len(x), device=x.device), x),
    "scatter": lambda x: x.scatter(1, x.argsort(1), x),
    "nonzero": lambda x: (x > 0).nonzero(),
    "masked_select": lambda x: x[x > 0],
    "transposed": lambda x: x.mT.contiguous(),
    "half": lambda x: x.half().float(),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x), device=x.device) % 64),
    "attention": lambda x: F.scaled_dot_product_attention(*(x[None, None],) * 3),
    "attention, causal": lambda x: F.scaled_dot_product_attention(*(x[None, None],) * 3, is_causal=True),
}
FEW = ("add", "softmax", "sum", "mm", "sort", "cat", "index_select", "conv1d")
#: Calls that do not accept an empty matrix.
_NOT_OF_NONE = "conv1d", "max_pool1d", "amax", "batch_norm", "cross_entropy"
ROWS = 33


def _given(at: At, name: str, rows: int = ROWS) -> T:
    return inputs.normal(f"state/{name}", (rows, 64)).to(at.device)


def computed(function: Callable[[T], object], x: T) -> list[T]:
    """Return the tensors that a call returns, on the CPU."""
    return [each.cpu() for each in tensors(function(x))]


def _interleaved(at: At, rounds: int, names: tuple[str, ...]) -> None:
    """Repeat calls between calls on other inputs: another slice, fewer or more rows, Inf, another layout, empty."""
    whole, few, more = (_given(at, *each) for each in (("x", 2 * ROWS), ("y", 7), ("z", 64)))
    x = whole[ROWS:]
    others = (whole[:ROWS], few.half().float(), x.sqrt() * 1e38 * 1e38, more, x.view(64, ROWS).mT, x[:0])
    with deterministic():
        first = {name: computed(CALLS[name], x.clone()) for name in names}
        for turn in range(rounds):
            between = others[turn % len(others)]
            order = inputs.permutation(f"state/{turn}", len(names)).tolist()
            left_out, again = () if len(between) else _NOT_OF_NONE, {}
            for name, other in ((names[place], names[place - 1]) for place in order):
                around = [CALLS[each] for each in (other, name) if each not in left_out]
                for call in around:
                    call(between)
                again[name] = tensors(CALLS[name](x))
                for call in around:
                    call(between)
            cause = f"calls give other results in round {turn + 2}, after other operators ran between"
            at.same(fetched(again), {name: first[name] for name in again}, cause)


#: Calls whose operands are changed in place between calls, with their shapes. "i" stands for 33 indices of 0 to 63.
_OPERANDS: Mapping[str, tuple[Callable[..., object], tuple[tuple[int, ...] | str, ...]]] = {
    "linear": (F.linear, ((33, 64), (64, 64), (64,))),
    "mm": (torch.mm, ((33, 64), (64, 64))),
    "addmm": (torch.addmm, ((64,), (33, 64), (64, 64))),
    "bmm": (torch.bmm, ((2, 9, 64), (2, 64, 7))),
    "conv2d": (F.conv2d, ((2, 4, 9, 8), (6, 4, 3, 3), (6,))),
    "conv1d": (F.conv1d, ((2, 4, 33), (6, 4, 3), (6,))),
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m, v.abs() + 1, w, b), ((9, 7), (7,), (7,), (7,), (7,))),
    "batch_norm, in place": (lambda x, m, v: F.batch_norm(x, m, v.abs_().add_(1)), ((9, 7), (7,), (7,))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b), ((9, 64), (64,), (64,))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), ((2, 4, 9), (4,), (4,))),
    "attention": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.gt(0).index_fill(1, (m[0, :1] * 0).long(), True)),
        ((1, 2, 9, 16), (1, 2, 9, 16), (1, 2, 9, 16), (9, 9)),
    ),
    "embedding": (F.embedding, ("i", (64, 9))),
    "index_select": (lambda x, i: x.index_select(0, i), ((64, 9), "i")),
    "gather": (lambda x, i: x.gather(0, i[:, None]), ((64, 9), "i")),
    "getitem": (lambda x, i: x[i], ((64, 9), "i")),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), ((64, 9), "i", (33, 9))),
    "scatter": (lambda x, i, y: x.scatter_add(0, i[:, None].expand(33, 9), y), ((64, 9), "i", (33, 9))),
    "bincount": (lambda i: torch.bincount(i, minlength=64), ("i",)),
    "topk": (lambda x: x.topk(3), ((5, 37),)),
    "masked_fill": (lambda x, m: x.masked_fill(m > 0, 2), ((9, 7), (9, 7))),
    "where": (lambda x, y, m: torch.where(m > 0, x, y), ((9, 7),) * 3),
    **{name: (getattr(torch, name), ((9, 7),) * 3) for name in ("lerp", "addcmul")},
    "foreach_add": (lambda x, y: torch._foreach_add([x, y], [y, x]), ((9, 7), (9, 7))),  # noqa: SLF001
    "cross_entropy": (lambda x, i, w: F.cross_entropy(x, i, w.abs()), ((33, 64), "i", (64,))),
    "prelu": (F.prelu, ((9, 7), (7,))),
    "cat": (lambda x, y: torch.cat([x, y]), ((9, 7), (5, 7))),
    "number": (lambda x, n: torch.cat([x * n, x / n, x - n]), ((9, 7), ())),
    **{f"{name} of one tensor": (function, ((ROWS, 64),)) for name, function in CALLS.items()},
}


def _operands(at: At) -> None:
    """Change each operand in place, as an optimizer changes weights: results must equal those of new tensors."""
    for name, (function, shapes) in _OPERANDS.items():

        def made(turn: int) -> list[T]:
            keys = [(f"state/{name}/{turn}/{i}", shape) for i, shape in enumerate(shapes)]  # noqa: B023
            drawn = (inputs.normal(k, s) if isinstance(s, tuple) else inputs.integers(k, (33,), low=0, high=64)
                     for k, s in keys)  # fmt: skip
            return [each.to(at.device) for each in drawn]

        with deterministic():
            given, new, kept = made(0), made(1), list[T]()  # new tensors, at new addresses
            for place, turn in product(range(len(given)), range(2)):
                for each in tensors(function(*given)):
                    each.fill_(0)  # buffers that a kernel keeps are not the caller's
                if turn == 0:
                    given[place].copy_(new[place])
                elif given[place].is_floating_point():
                    given[place].mul_(1.015625)  # slightly, like a training step
                kept += (copied := [each.clone() for each in given])
                found, fresh = ([each.cpu() for each in tensors(function(*some))] for some in (given, copied))
                at.same(found, fresh, f"{name}: operand {place} was changed in place, and the result does not show it")


def _many(at: At, times: int, names: tuple[str, ...]) -> None:
    """Make ``times`` calls (an even number) with two inputs alternately; all results are compared on the device."""
    x, wrong = _given(at, "x"), {}
    given = (x, x * 2)
    for name in names:
        function = CALLS[name]
        with deterministic():
            wanted = torch.stack([tensors(function(each))[0] for each in given])
            found = torch.stack([tensors(function(given[i % 2]))[0] for i in range(times)])
        wrong[name] = (found.view(-1, 2, *found.shape[1:]) != wanted).flatten(2).any(-1).cpu()
    right = {name: torch.zeros_like(each) for name, each in wrong.items()}
    at.same(wrong, right, "a call is wrong after many right ones")


def _threads(at: At, names: tuple[str, ...]) -> None:
    """Call operators with other shapes from several threads at once, on one stream or each on its own."""
    asked = [(name, 7 + 11 * turn % 60) for turn in range(12) for name in names]

    def work(name: str, rows: int) -> list[T]:
        if at.device == CPU:
            return computed(CALLS[name], given[:rows])
        at.backend.set_device(at.device)
        current, default = at.backend.current_stream(), at.backend.default_stream()
        at.holds(current == default, "a thread does not begin with the default stream")
        with forked(at.backend, at.backend.Stream() if rows % 2 else current):
            return computed(CALLS[name], given[:rows])

    given = _given(at, "x", 64)
    with deterministic():
        alone = [work(*each) for each in asked]
        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(work, *zip(*asked, strict=True))]
    at.same(found, alone, "of calls that several threads make at once, one has another result than alone")


#: Calls with a number as an argument, exact for small integers.
WITH_NUMBERS: Mapping[str, Callable[[T, int], object]] = {
    "add": lambda x, n: torch.add(x, x, alpha=n),
    "sub": lambda x, n: torch.sub(x, x.flip(0), alpha=n),
    "mul": lambda x, n: x * (1 + n / 4),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addmm": lambda x, n: torch.addmm(x @ x.mT, x, x.mT, beta=n, alpha=3 - n),
    "clamp": lambda x, n: x.clamp(-n, n),
    "clamp, above": lambda x, n: x.clamp(-3, n),
    "clamp, below": lambda x, n: x.clamp(-n, 3),
    "addmm, alpha": lambda x, n: torch.addmm(x @ x.mT, x, x.mT, alpha=n),
    "threshold": lambda x, n: F.threshold(x, n, -1),
    "leaky_relu": F.leaky_relu,
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "sum": lambda x, n: x.sum(n - 1),
    "amax": lambda x, n: x.amax(n - 1),
    "cumsum": lambda x, n: x.cumsum(n - 1),
    "roll": lambda x, n: x.roll(n, n - 1),
    "masked_fill, by rows": lambda x, n: x[:, :ROWS].masked_fill(x[:, :1] > 0, n),
    "tril": lambda x, n: x.tril(n),
    "cat": lambda x, n: torch.cat([x, x], n - 1),
    "conv1d": lambda x, n: F.conv1d(x[None], x[:3, None, :3].expand(3, len(x), 3), padding=n, dilation=n),
    "pad": lambda x, n: F.pad(x, (n, 3 - n)),
    "mm": lambda x, n: x[:13, : 8 * n] @ x[:13, : 8 * n].mT,
    "bmm": lambda x, n: torch.bmm(x[: 8 * n].reshape(4 * n, 2, -1), x[: 8 * n].reshape(4 * n, -1, 2)),
    "gather": lambda x, n: x.gather(n - 1, (x > 0).long()),
    "sort": lambda x, n: x.sort(stable=True, descending=n > 1),
    "topk": lambda x, n: x.topk(5, largest=n > 1),
    "cumsum, long": lambda x, n: (x * n).flatten().cumsum(0),
    "div": lambda x, n: torch.div(x, 3 - x * 0, rounding_mode=(None, "floor")[n - 1]),
    "dropout in training": lambda x, n: F.dropout(torch.ones_like(x), 0.5, training=n == 1).amax(),
    "dropout": lambda x, n: F.dropout(torch.ones_like(x), (n + 1) / 4).amax(),  # kept elements are scaled by 2 or by 4
}
#: Calls on a square matrix with a setting, 1 or 2, that does not change the shape of the result.
_WITH_SETTINGS: Mapping[str, Callable[[T, int], T]] = {
    "pow": lambda x, n: x.abs() ** (1 + n / 4),
    "std": lambda x, n: x.std(-1, correction=n),
    "softmax": lambda x, n: x.softmax(n - 1),
    "log_softmax": lambda x, n: x.log_softmax(n - 1),
    "logsumexp": lambda x, n: x.logsumexp(n - 1),
    "mean": lambda x, n: x.mean(n - 1),
    "norm": lambda x, n: torch.linalg.vector_norm(x, n, -1),
    "group_norm": lambda x, n: F.group_norm(x[None], 3, eps=n / 4),
    "batch_norm in training": lambda x, n: F.batch_norm(x, x[0] * 0, x[0] * 0 + 4, training=n == 1),
    "layers dropped in training": lambda x, n: torch.func.functional_call(
        nn.RNN(3, 3, 2, bias=False, dropout=1.0).train(n == 1),
        {f"weight_{of}h_l{layer}": x[:3, :3] / 8 for of in "ih" for layer in (0, 1)},
        x[None, :, :3],
    )[0],
    "groups": lambda x, n: F.group_norm(x[None], (3, 11)[n - 1]),
    "layer_norm": lambda x, n: F.layer_norm(x, x.shape[-1:], eps=n / 4),
    "batch_norm": lambda x, n: F.batch_norm(x, None, None, training=True, eps=n / 4),
    "cross_entropy": lambda x, n: F.cross_entropy(x, x[:, 0].argsort(), ignore_index=n, label_smoothing=n / 4),
    "avg_pool2d": lambda x, n: F.avg_pool2d(x[None], 3, 1, 1, count_include_pad=n == 1),
    "conv2d": lambda x, n: F.conv2d(x[None, None], x[None, None, :3, :3], padding=(n, 3 - n))[..., :30, :30],
    "conv2d, in steps": lambda x, n: F.conv2d(x[None, None], x[None, None, :3, :3], stride=(n, 3 - n))[..., :9, :9],
    "conv_transpose2d": lambda x, n: F.conv_transpose2d(
        x[None, None], x[None, None, :3, :3], stride=2, output_padding=(n - 1, 2 - n)
    )[..., :60, :60],
    "max_pool2d": lambda x, n: F.max_pool2d(x[None], 3, 1, padding=(n - 1, 2 - n), dilation=n)[..., :20, :20],
    "grid_sample": lambda x, n: F.grid_sample(
        x[None, None],
        2 * x[None, :, :2].expand(2, -1, -1)[None].reshape(1, 2, -1, 2),
        padding_mode=("zeros", "border")[n - 1],
        align_corners=False,
    ),
    "index_add": lambda x, n: x.index_add(0, x[:, 0].argsort(), x, alpha=n),
    "direction": lambda x, n: (F.conv2d, F.conv_transpose2d)[n - 1](x[None, None], x[None, None, :3, :3], padding=1),
    "norm of columns": lambda x, n: torch.linalg.vector_norm(x, n, 0),
    "interpolate": lambda x, n: F.interpolate(x[None, None], (40, 50), mode="bilinear", align_corners=n == 1),
    "causal": lambda x, n: F.scaled_dot_product_attention(x[None, :9], x[None], x[None], is_causal=n == 1),
    "attention": lambda x, n: F.scaled_dot_product_attention(*(x[None, None],) * 3, scale=n / 8),
}


def other_arguments(at: At, *, on_cards: bool = False) -> None:
    """Check that results follow a number that changes from call to call, between threads and, ``on_cards``, cards."""
    x = inputs.integers("state/arguments", (ROWS, 64), low=-8, high=9).float()
    last = torch.device(at.device.type, at.backend.device_count() - 1) if on_cards and at.device != CPU else at.device
    there = {1: x.to(at.device), 2: x.to(last)}
    where = ", on two cards in turn" if on_cards else ""
    for name, function in WITH_NUMBERS.items():
        found, wanted = ([tensors(function(each[n], n))[0] for n in (1, 2, 1)] for each in (there, {1: x, 2: x}))
        with ThreadPoolExecutor(1) as other:
            found += tensors(other.submit(function, there[2], 2).result())[:1]
        cause = f"{name}: the result does not follow an argument that changes from call to call{where}"
        # Nor may a later call change an earlier result.
        at.same([each.cpu() for each in found], [*wanted, wanted[1]], cause)


def _other_settings(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Return results for settings that change from call to call; they are not exact."""
    x = inputs.normal("state/settings", (ROWS, ROWS)).to(dtype).to(device)
    return {name: torch.stack([function(x, n) for n in (1, 2, 1)]) for name, function in _WITH_SETTINGS.items()}


STATE: Mapping[str, Row] = {
    "interleaved": (SMOKE, partial(_interleaved, rounds=3, names=FEW)),
    "interleaved-all": (STANDARD, partial(_interleaved, rounds=8, names=tuple(CALLS))),
    "operands": (STANDARD, _operands),
    "threads": (SMOKE, partial(_threads, names=FEW)),
    "threads-all": (STANDARD, partial(_threads, names=tuple(CALLS))),
    "hundred-calls": (SMOKE, partial(_many, times=70, names=("add", "mul", "exp", "sum", "softmax", "mm"))),
    "thousand-calls": (STANDARD, partial(_many, times=1030, names=("add", "softmax", "mm"))),
    "other-arguments": (SMOKE, other_arguments),
    "other-settings": (STANDARD, lambda at: at.defined(_other_settings, accumulation=ROWS)),
}
