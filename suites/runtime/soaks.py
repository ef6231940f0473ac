"""Many calls of each kind: they do not slow down and do not leak memory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from io import BytesIO
from itertools import count, cycle, repeat
from threading import Thread
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch import nn

from pytest_ascend.operators.calling import tensors
from pytest_ascend.system.programs import give_back, resident_bytes

from .refusals import INDEXED
from .rows import MIB, NOTHING_S, SMOKE, STANDARD, TIMES, At, Row, forked, least_s
from .state import CALLS, WITH_NUMBERS

Calls: TypeAlias = dict[str, Callable[[], object]]
Kind: TypeAlias = Callable[[torch.Tensor], object]
#: A function that makes the calls on a device.
Kinds: TypeAlias = Callable[[At], Calls]
#: Rows of matrices so large that leaking each result shows in host memory.
ROWS = 400
#: Calls that take any number: each call gets a new one, as a kernel may be compiled for each.
_OF_ANY = ("add", "sub", "mul", "addcmul", "clamp", "threshold", "leaky_relu", "masked_fill")
#: Calls on one matrix, covering all kinds of kernels.
ALL: Mapping[str, Kind] = {
    **CALLS,
    **{f"{name} with numbers": partial(lambda x, each, n: each(x, next(n)), each=each,
        n=count(2, 0.01) if name in _OF_ANY else repeat(2)) for name, each in WITH_NUMBERS.items()},
    "dropout": lambda x: F.dropout(x, 0.1), "rand_like": torch.rand_like, "bernoulli": lambda x: x.clone().bernoulli_(),
    "randperm": lambda x: torch.randperm(99, device=x.device), "multinomial": lambda x: x.exp().multinomial(2),
    "unique": lambda x: torch.unique((x * 4).int()), "bincount": lambda x: (x[0].abs() * 4).long().bincount(),
    "index_put": lambda x: x.index_put((x[:, 0].argsort(),), x, accumulate=True),
    "scatter_add": lambda x: x.scatter_add(1, x.argsort(1), x), "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "embedding_bag": lambda x: F.embedding_bag(x[:2].argsort(1) % len(x), x),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2.0),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None, :3, :3]),
    "in place": lambda x: x.clone().add_(x).mul_(2), "out=": lambda x: torch.add(x, x, out=torch.empty_like(x)),
    "foreach": lambda x: torch._foreach_mul([x] * 9, 2), "pow": lambda x: x.abs() ** 1.5,  # noqa: SLF001
    "tril": torch.tril, "arange": lambda x: torch.arange(99, device=x.device), "logical": lambda x: (x > 0) & (x < 1),
    "rows": lambda x: x + x[:1], "columns": lambda x: x * x[:, :1], "minus": lambda x: x - x[0, 0],
    "cpu": lambda x: x.cpu(), "item": lambda x: x[0, 0].item(), "repeat": lambda x: x.repeat(2, 3),
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "atan", "sinh", "expm1", "log1p", "erf",
        "log2", "sqrt", "rsqrt", "sigmoid", "tanh", "round", "trunc", "isnan", "signbit", "abs", "neg", "relu", "log",
        "floor", "reciprocal", "sign", "mean", "randn_like", "median")}, "flip": lambda x: x.flip(0), "silu": F.silu,
    "two dtypes": lambda x: x * x.half() + (x > 0),
    "maximum": lambda x: torch.maximum(x, x.flip(1)), "less": lambda x: x < x.flip(1), "fill": lambda x: x.new_ones(99),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "std": lambda x: x.std(0), "prod": lambda x: x.prod(-1),
    "one row by all": lambda x: F.linear(x[:1], x),
}  # fmt: skip


def _differentiated(call: Kind, x: torch.Tensor) -> object:
    x = x.detach().requires_grad_()
    return [torch.autograd.grad(each.sum(), x) for each in tensors(call(x)) if each.requires_grad]


#: Calls that also compute the gradients of their results.
GRADIENTS: Mapping[str, Kind] = {
    f"{name}, with its gradient,": partial(_differentiated, each) for name, each in CALLS.items()
}


def kinds(at: At, calls: Mapping[str, Kind] = ALL, dtype: torch.dtype = torch.float32, rows: int = ROWS) -> Calls:
    """Return calls on a matrix with 64 columns in a dtype."""
    x = torch.rand(rows, 64, device=at.device).to(dtype)
    return {f"{name} in {dtype}": partial(each, x) for name, each in calls.items()}


def of_new_shapes(at: At, calls: Mapping[str, Kind] = CALLS, *, gaps: bool = False) -> Calls:
    """Return calls that each have a new shape; with ``gaps`` their tensors are not contiguous."""

    def of_next(call: Kind) -> object:
        return call(x[: next(rows)])

    x = torch.rand(496, 129, device=at.device)[:, 1::2]
    x = x if gaps else x.contiguous()
    # No shape repeats within three times 128 calls, each of which may keep some 48 KiB: kernels cache per shape.
    rows = cycle(16 + 211 * i % 480 for i in range(480))  # alternately large and small
    return {f"{name}, of new shapes,": partial(of_next, each) for name, each in calls.items()}


def of_runtime(at: At) -> Calls:
    """Return calls of streams, events, memory, random states, threads and cards; none for the CPU."""
    if at.device.type == "cpu":
        return {}
    backend, x = at.backend, torch.rand(64, 64, device=at.device)
    side, event, ends = backend.Stream(), backend.Event(), [backend.Event(enable_timing=True) for _ in range(2)]
    last, generator = torch.device(at.device.type, backend.device_count() - 1), torch.Generator(at.device)
    state, saved = backend.get_rng_state(), partial(torch.save, {"x": x})

    def on_the_side() -> None:
        with forked(backend, side):
            (x + 1).record_stream(backend.current_stream())

    def in_a_thread() -> None:
        other = Thread(target=lambda: x + 1)
        other.start()
        other.join()

    for each in ends:
        each.record()
    at.wait()
    return {
        "record": event.record, "wait": event.wait, "query": event.query, "synchronize": event.synchronize,
        "elapsed_time": lambda: ends[0].elapsed_time(ends[1]), "Event": lambda: backend.Event().record(),
        "stream": backend.current_stream, "Stream": backend.Stream, "another stream": on_the_side,
        "thread": in_a_thread, "set_device": lambda: backend.set_device(at.device), "device": backend.current_device,
        "mem_get_info": backend.mem_get_info, "memory_allocated": backend.memory_allocated,
        "memory_stats": backend.memory_stats, "reset_peak_memory_stats": backend.reset_peak_memory_stats,
        "empty_cache": backend.empty_cache, "properties": lambda: backend.get_device_properties(at.device),
        "manual_seed": lambda: backend.manual_seed(3), "set_rng_state": lambda: backend.set_rng_state(state),
        "get_rng_state": backend.get_rng_state, "generator": lambda: x.bernoulli(generator=generator),
        "another card": lambda: x.to(last) + 1, "to and from the last card": lambda: x.to(last).to(at.device),
        "a copy to the host": lambda: (x + 1).to("cpu", non_blocking=True),
        "pin_memory": lambda: torch.ones(9).pin_memory().to(at.device, non_blocking=True), "tolist": x[0].tolist,
        "print": lambda: repr(x[:2, :2]), "save": lambda: saved(BytesIO()), "deepcopy": lambda: deepcopy(x),
        "autocast": torch.autocast(at.device.type, torch.float16)(lambda: x @ x),
        "inference mode": torch.inference_mode()(lambda: x + 1),
    }  # fmt: skip


def _refused(at: At) -> None:
    x, outside = torch.ones(5, 5, device=at.device), torch.tensor([0, 5], device=at.device)
    for forms in INDEXED.values():
        with contextlib.suppress(RuntimeError, IndexError):
            forms[0](x, outside)
            at.wait()


#: Calls of the runtime that a short soak also makes.
_OFTEN = ("Event", "a copy to the host", "another stream", "pin_memory", "to and from the last card")


def _mixed(at: At, optimizers: tuple[str, ...] = ("AdamW",)) -> Calls:
    """Return copies, gradients, training steps, all kinds of calls together, and some calls of the runtime."""
    x, host = torch.rand(64, 64, device=at.device), torch.ones(4096)
    weight = torch.rand(64, 64, device=at.device, requires_grad=True)
    recurrent, sequence = nn.LSTM(3, 4).to(at.device), torch.rand(5, 2, 3, device=at.device)
    sizes = cycle(range(16, 64))
    found: Calls = {
        **{name: each for name, each in of_runtime(at).items() if name in _OFTEN},
        "copies": lambda: host.to(at.device).cpu(),
        "backward": lambda: torch.autograd.grad((x @ weight).sum(), weight),
        "recurrent": lambda: recurrent(sequence)[0].sum().backward(),
        "all kinds": lambda: [each(x) for each in CALLS.values()],
        "all kinds, of new shapes": lambda: [each(x[: next(sizes)]) for each in CALLS.values()],
    }
    for name in optimizers:
        layers = nn.Conv1d(3, 2, 3), nn.BatchNorm1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(14, 4), nn.LayerNorm(4)
        model = nn.Sequential(*layers, nn.Dropout(0.1)).to(at.device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
        found[f"training by {name}"] = partial(_step, model, optimizer, torch.rand(5, 3, 9, device=at.device))
    return found


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    torch.autograd.backward(F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.int64, device=x.device)))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


#: Entries that consist of many calls, with the most repetitions of each.
_FEWER = {"all kinds": 8, "all kinds, of new shapes": 16, "training by AdamW": 32, "training by SGD": 32}


def _soak(at: At, of: Kinds, calls: int) -> None:
    """Check that many calls of each kind leak no memory and slow down neither themselves nor earlier calls."""
    known, made = kinds(at, CALLS, rows=33), of(at)
    for call in [*made.values()] * 2:
        call()
    gc.collect()
    before = {name: least_s(at.wait, call, 9) for name, call in known.items()}
    for name, call in made.items():
        first: list[float] = []
        for _ in range(3):  # other programs may use the card or the processor: the best of several attempts counts
            wrong = _left_behind(at, name, call, min(calls, _FEWER.get(name, calls)), first)
            if not wrong:
                break
        at.same(wrong, "", wrong)
    much_s = TIMES * NOTHING_S
    more = {name: least_s(at.wait, known[name], 40, took + much_s) - took for name, took in before.items()}
    slow = ", ".join(f"{name} takes {s * 1e3:.0f} ms longer" for name, s in more.items() if s > much_s)
    at.same(slow, "", f"after these calls, {slow}")


def _left_behind(at: At, name: str, call: Callable[[], object], calls: int, first: list[float]) -> str:
    """Report what many calls leave behind, and whether the last are slower than the ``first`` or some are very slow."""
    before = _held(at)
    first.append(least_s(at.wait, call, max(calls // 8, 3)))
    took = sorted(least_s(at.wait, call, 1) for _ in range(calls // 4))
    for _ in range(calls // 4):  # without synchronizing
        call()
    last = least_s(at.wait, call, max(calls // 8, 3))
    if took[-2] > max(100 * took[len(took) // 2], 0.05):  # one may be slow by chance
        return f"now and then a call of {name} takes {took[-2] * 1e3:.0f} ms"
    # The fastest of a few may be slow by chance, too.
    if last > (2 if calls > 100 else 3) * first[0] + max(NOTHING_S, 0.1 / calls):
        return f"{name} takes {last / first[0]:.0f} times as long after {calls} calls"
    grown, lost, host_grown = (now - then for now, then in zip(_held(at), before, strict=True))
    if max(grown, lost) >= MIB // 4:
        return f"{calls:,} calls of {name} leave {max(grown, lost):,} bytes on the device"
    # a leak of 64 KiB a call would be 20 MiB after 320
    is_leak = host_grown > 24 * MIB * min(max(calls, 250), 500) // 1000
    return f"{calls:,} calls of {name} leave {host_grown:,} bytes on the host" if is_leak else ""


def _held(at: At) -> tuple[int, int, int]:
    """Return the bytes held by tensors, those held on the device outside its allocator, and those on the host."""
    if at.device.type == "cpu":
        return 0, 0, host_bytes()
    free, total = at.backend.mem_get_info()
    return int(at.backend.memory_allocated()), int(total - free - at.backend.memory_reserved()), host_bytes()


def host_bytes() -> int:
    """Return the resident host memory of this process, without freed memory that malloc still holds."""
    give_back()
    return resident_bytes()


SOAKS: Mapping[str, Row] = {
    "soak-short": (SMOKE, partial(_soak, of=_mixed, calls=64)),
    "soak": (STANDARD, partial(_soak, of=lambda at: of_runtime(at) | _mixed(at, ("AdamW", "SGD")), calls=320)),
    "soak-kinds": (STANDARD, partial(_soak, of=kinds, calls=128)),
    "soak-halves": (STANDARD, partial(_soak, of=partial(kinds, calls=CALLS, dtype=torch.float16), calls=128)),
    "soak-gradients": (STANDARD, partial(_soak, of=partial(kinds, calls=GRADIENTS, rows=33), calls=120)),
    "soak-shapes": (STANDARD, partial(_soak, of=of_new_shapes, calls=128)),
    "soak-refusals": (STANDARD, partial(_soak, of=lambda at: {"refusals": partial(_refused, at)}, calls=128)),
}
