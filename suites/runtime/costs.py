"""Time and memory, compared within the run: with other operators that do the same work, and with a plain copy.

Limits are wide: they are for a device on which something takes a hundred times too long, not for a benchmark.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, cycle, repeat
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch import nn

from pytest_ascend.system.programs import give_back, resident_bytes

from .refusals import INDEXED
from .rows import SMOKE, STANDARD, At, Row, least_s
from .state import CALLS, WITH_NUMBERS

MIB = 2**20
Calls: TypeAlias = dict[str, Callable[[], object]]
#: How many times longer than its neighbours a call may take, and the seconds that count as nothing.
TIMES, NOTHING_S = 20, 2e-4
#: Calls that take any number: they have another one each time, as a kernel may be made anew for each.
_OF_ANY = ("add", "sub", "mul", "addcmul", "clamp", "threshold", "leaky_relu", "masked_fill")
#: Calls of one matrix, of all kinds of kernels.
_ALL: Mapping[str, Callable[[torch.Tensor], object]] = {
    **CALLS,
    **{f"{name} with numbers": partial(lambda x, each, n: each(x, next(n)), each=each,
        n=count(2, 0.01) if name in _OF_ANY else repeat(2)) for name, each in WITH_NUMBERS.items()},
}  # fmt: skip


def _alike(
    at: At,
    what: str,
    calls: Callable[[At], Calls],
    rounds: int = 4,
    usual_is: str = "",
    times: int = TIMES,
    part: int = 2,
) -> None:
    """No call takes many times what the median of its neighbours does, another ``part`` of them, or ``usual_is``."""
    made = calls(at)
    took = {name: least_s(at.wait, call, rounds) for name, call in made.items()}
    usual = max(took.get(usual_is, sorted(took.values())[len(took) // part]), NOTHING_S)
    slow = {name: each for name, each in took.items() if each > times * usual}
    for _ in range(3 if slow else 0):  # other work on the machine may have been in the way
        again = {name: least_s(at.wait, made[name], 5 * rounds) for name in slow}
        slow = {name: each for name, each in again.items() if each > times * usual}
    beside = usual_is or ("the median" if part == 2 else "the quicker ones")
    said = ", ".join(f"{name} takes {each / usual:.0f} times {beside}" for name, each in slow.items())
    at.same(said, "", f"of {what}, {said or 'all take about as long'}")


def _elementwise(at: At) -> Calls:
    x, y = (torch.rand(MIB // 2, device=at.device) + 0.5 for _ in range(2))
    names = ("abs", "neg", "sqrt", "exp", "tanh", "sigmoid", "relu", "reciprocal", "rsqrt", "log", "floor", "sign")
    one = {name: getattr(x, name) for name in (*names, "clone", "half", "sum", "amax", "mean")}
    two = {name: partial(getattr(torch, name), x, y) for name in ("add", "sub", "mul", "div", "maximum", "lt", "eq")}
    rest: Calls = {
        "where": lambda: torch.where(x > y, x, y), "silu": lambda: F.silu(x), "gelu": lambda: F.gelu(x),
        "fill": lambda: y.clone().fill_(1), "cat": lambda: torch.cat([x, y]),
        "clamp": lambda: x.clamp(0.6, 1), "softmax": lambda: x.view(-1, 512).softmax(-1), "add_": lambda: y.add_(x),
        "transposed": x.view(512, -1).mT.contiguous, "flip": lambda: x.flip(0),
        "layer_norm": lambda: F.layer_norm(x.view(-1, 512), (512,)),
        "index_select": lambda: x.view(-1, 64).index_select(0, rows), "argmax": x.argmax,
        "cumsum": lambda: x.view(-1, 512).cumsum(-1), "gather": lambda: x.view(-1, 64).gather(0, rows[:, None]),
        "masked_select": lambda: x[x > y],
    }  # fmt: skip
    rows = torch.arange(MIB // 128, device=at.device)
    return {**one, **two, **rest}


def _small_calls(at: At) -> None:
    """No call of one element takes long; nor does waiting for a device that has nothing to do, which is in each."""
    _alike(at, "calls of one element", _small, rounds=12)
    took = least_s(at.wait, lambda: None, 20)
    at.holds(took <= TIMES * NOTHING_S, f"waiting for a device without work takes {took * 1e3:.3g} ms")


def _small(at: At) -> Calls:
    x, more = torch.rand(1, 1, device=at.device) + 0.5, Calls()
    half = x.half()
    if at.device.type != "cpu":
        event = at.backend.Event()
        more = {
            "record": event.record, "wait": event.wait, "query": event.query, "stream": at.backend.current_stream,
            "mem_get_info": at.backend.mem_get_info, "memory_allocated": at.backend.memory_allocated,
            "pin_memory": lambda: torch.ones(9).pin_memory().to(at.device, non_blocking=True),
        }  # fmt: skip
    return {
        **more,
        **{name: getattr(x, name) for name in ("exp", "sum", "clone", "sort", "item", "cpu", "tril")},
        "add": lambda: x + x, "add 1": lambda: x + 1, "mul": lambda: x * x, "mm": lambda: x @ x,
        "cat": lambda: torch.cat([x, x]), "softmax": lambda: x.softmax(-1), "fill_": lambda: x.fill_(1),
        "empty": lambda: torch.empty(1, device=at.device), "zeros": lambda: torch.zeros(1, device=at.device),
        "where": lambda: torch.where(x > 0, x, x), "to": lambda: torch.ones(1).to(at.device),
        "gather": lambda: x.gather(0, x.long() * 0), "embedding": lambda: F.embedding(x.long() * 0, x),
        "linear": lambda: F.linear(x, x), "layer_norm": lambda: F.layer_norm(x, (1,)), "halves": lambda: half @ half,
        "cat of 64": lambda: torch.cat([x] * 64), "stack of 64": lambda: torch.stack([x] * 64),
        "foreach of 64": lambda: torch._foreach_add([x] * 64, 1),  # noqa: SLF001
    }  # fmt: skip


def _kinds(at: At, *, gaps: bool) -> Calls:
    """Return calls of all kinds of kernels, each time with another shape; their tensors have gaps, or none."""

    def call(function: Callable[[torch.Tensor], object], sizes: Iterator[int]) -> Callable[[], object]:
        return lambda: function(whole[: next(sizes), 1::2] if gaps else packed[: next(sizes)])

    whole = torch.rand(160, 129, device=at.device)
    packed = whole[:, 1::2].contiguous()
    return {name: call(each, cycle(range(33, 160))) for name, each in _ALL.items()}


def _shapes(at: At) -> None:
    """Along rows and along columns, of one long row, of few, and of many short ones, a call takes about as long."""
    calls: dict[str, Callable[[torch.Tensor, int], object]] = {
        **{name: partial(lambda x, dim, name: getattr(x, name)(dim), name=name)
           for name in ("sum", "mean", "amax", "argmax", "prod", "softmax", "log_softmax", "sort")},
        "topk": lambda x, dim: x.topk(1, dim),
        "flip": lambda x, dim: x.flip(dim), "roll": lambda x, dim: x.roll(1, dim),
        "cat": lambda x, dim: torch.cat([x, x], dim), "add": lambda x, dim: x + x.select(dim, 0).unsqueeze(dim),
        "gather": lambda x, dim: x.gather(dim, torch.zeros_like(x, dtype=torch.int64)),
    }  # fmt: skip
    x = torch.rand(2**16, device=at.device)
    for name, call in calls.items():
        given = {
            f"{rows} x {2**16 // rows}, dimension {dim}": (rows, dim) for rows in (1, 16, 256, 4096) for dim in (0, 1)
        }
        made: Calls = {said: partial(call, x.view(rows, -1), dim) for said, (rows, dim) in given.items()}
        # Half of them are along one dimension.
        _alike(at, f"{name} of one size", lambda _: made, rounds=2, times=15, part=4)  # noqa: B023


def _places(at: At) -> None:
    """Equal, ordered and mixed indices take about as long: of kernels that add in one place, or look it up."""
    count = 4096
    x, table = torch.ones(count, 4, device=at.device), torch.ones(count, 4, device=at.device, requires_grad=True)
    kinds = {
        "mixed": torch.arange(count) * 1021 % count,
        "ordered": torch.arange(count),
        "equal": torch.zeros(count).long(),
    }
    there = {name: each.to(at.device) for name, each in kinds.items()}
    calls: dict[str, Callable[[torch.Tensor], object]] = {
        "index_add": lambda i: x.index_add(0, i, x), "index_put": lambda i: x.index_put((i,), x, accumulate=True),
        "scatter_add": lambda i: x.scatter_add(0, i[:, None].expand(count, 4), x),
        "index_select": lambda i: x.index_select(0, i), "getitem": lambda i: x[i], "bincount": torch.bincount,
        "embedding backward": lambda i: torch.autograd.grad(F.embedding(i, table), table, x),
        "sort": torch.sort, "unique": torch.unique,
    }  # fmt: skip
    for name, call in calls.items():
        made: Calls = {f"{kind} indices": partial(call, each) for kind, each in there.items()}
        _alike(at, f"{name} of one size", lambda _: made, rounds=2, times=2 * TIMES)  # noqa: B023


def _again_and_again(at: At, calls: int = 240) -> None:
    """No kind of call takes longer the more there were; nor do they leave memory behind."""
    x = torch.rand(33, 64, device=at.device)
    kinds: Calls = {name: partial(each, x) for name, each in _ALL.items()}
    for call in kinds.values():
        call()
    at.wait()
    before, wrong = _held(at), list[str]()
    for name, call in kinds.items():
        first = least_s(at.wait, call, calls // 8)
        for _ in range(3):  # other work on the machine may have been in the way
            took = sorted(least_s(at.wait, call, 1) for _ in range(calls * 3 // 8))
            if took[-2] < max(100 * took[len(took) // 2], 0.05):
                break
        else:
            wrong.append(f"now and then a call of {name} takes {took[-2] * 1e3:.0f} ms")
        for _ in range(3):  # other work on the machine may have been in the way
            last = least_s(at.wait, call, calls // 8)
            if last < 2 * first + NOTHING_S:
                break
        else:
            wrong.append(f"{name} takes {last / first:.0f} times as long after {calls} calls")
    at.same("; ".join(wrong), "", "; ".join(wrong))
    gone = _gone(at, before, calls * len(kinds))
    at.same(gone, "", gone and f"{calls} calls of each of {len(kinds)} kinds leave {gone}")


def _copies(at: At) -> Calls:
    host, there = torch.zeros(16 * MIB, dtype=torch.uint8), torch.zeros(16 * MIB, dtype=torch.uint8, device=at.device)
    pinned = host if at.device.type == "cpu" else host.clone().pin_memory()
    return {
        "within the host": host.clone,
        "to the device": lambda: there.copy_(host),
        "to the host": lambda: host.copy_(there),
        "from pinned memory": lambda: there.copy_(pinned, non_blocking=True),
        "to pinned memory": lambda: pinned.copy_(there, non_blocking=True),
        "on the device": there.clone,
        "to the device, from an odd place": lambda: there[1:].copy_(host[1:]),
        "to the host, from an odd place": lambda: host[1:].copy_(there[1:]),
        "on the device, from an odd place": there[1:].clone,
        "zeros": there.zero_,
    }


def _products(at: At, dtype: torch.dtype = torch.float32) -> Calls:
    whole = torch.rand(256, 256, device=at.device)
    a = whole.to(dtype)
    image, kernel = a.view(1, 64, 32, 32), torch.rand(64, 64, 3, 3, device=at.device).to(dtype)
    return {
        "mm in float32": lambda: whole @ whole, "mm": lambda: a @ a, "mm of a transposed matrix": lambda: a @ a.mT,
        "bmm": lambda: a[None] @ a[None],
        "addmm": lambda: torch.addmm(a, a, a), "linear": lambda: F.linear(a, a),
        "conv2d": lambda: F.conv2d(image, kernel[:32], padding=1),
        "attention": lambda: F.scaled_dot_product_attention(*(a.view(1, 4, 256, 64),) * 3),
    }  # fmt: skip


def _products_in(at: At, dtype: torch.dtype) -> None:
    """No product in half precision takes many times as long as one in float32."""
    _alike(at, f"products in {dtype}", partial(_products, dtype=dtype), usual_is="mm in float32")


def host_bytes() -> int:
    """Return the memory that this process has of the host's, without what was freed and malloc still holds."""
    give_back()
    return resident_bytes()


#: Of kinds that are many calls, so many are made at most.
_FEWER = {"all kinds": 4, "all kinds, of new shapes": 16, "training by AdamW": 32, "training by SGD": 32}


def _training(at: At, optimizers: tuple[str, ...]) -> Calls:
    """Return steps of a network with layers of most kinds, by optimizers with kernels of their own."""
    found: Calls = {}
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


def _soak(at: At, calls: int) -> None:
    """So many calls of each kind leave no memory behind, on the device or the host."""
    x, host = torch.rand(64, 64, device=at.device), torch.ones(4096)
    weight = torch.rand(64, 64, device=at.device, requires_grad=True)
    kinds: Calls = {
        "add": lambda: x + x, "mul": lambda: x * x, "mm": lambda: x @ x, "softmax": lambda: x.softmax(-1),
        "sort": x.sort, "cat": lambda: torch.cat([x, x]), "copies": lambda: host.to(at.device).cpu(),
        "backward": lambda: torch.autograd.grad((x @ weight).sum(), weight), "nonzero": (x > 0.5).nonzero,
        "random": lambda: torch.rand_like(x), "in place": lambda: x.clone().add_(1), "exp": x.exp,
    }  # fmt: skip
    if at.device.type != "cpu":
        kinds["events"] = lambda: [at.backend.Event().record() for _ in range(4)]
        kinds["pinned"] = lambda: host.pin_memory().to(at.device, non_blocking=True)
    for call in [*kinds.values()] * 10:
        call()
    kinds["all kinds"] = lambda: [each(x) for each in CALLS.values()]
    recurrent, sequence = nn.LSTM(3, 4).to(at.device), torch.rand(5, 2, 3, device=at.device)
    kinds["recurrent"] = lambda: recurrent(sequence)[0].sum().backward()
    kinds |= _training(at, ("AdamW",) if calls < 100 else ("AdamW", "SGD"))
    for call in [*kinds.values()][-4:] * 2:
        call()
    sizes = cycle(range(16, 64))
    kinds["all kinds, of new shapes"] = lambda: [each(x[: next(sizes)]) for each in CALLS.values()]
    gc.collect()
    for name, call in kinds.items():
        _leaves_nothing(at, name, call, min(calls, _FEWER.get(name, calls)))


def _soak_shapes(at: At) -> None:
    """Calls of each kind, each time with another shape, leave no memory behind; nor do calls that are refused."""
    x, square = torch.rand(496, 64, device=at.device), torch.ones(5, 5, device=at.device)
    outside = torch.tensor([0, 5], device=at.device)
    # None comes twice in three looks at 128 calls, each of which may keep some 48 KiB: kernels cache what they prepare.
    rows = cycle(16 + 7 * i % 480 for i in range(480))

    def refused() -> None:
        for forms in INDEXED.values():
            with contextlib.suppress(RuntimeError, IndexError):
                forms[0](square, outside)
                at.wait()

    gc.collect()
    known = {name: partial(each, x[:33]) for name, each in CALLS.items()}
    before = {name: least_s(at.wait, call, 9) for name, call in known.items()}
    for name, each in CALLS.items():
        _leaves_nothing(at, f"{name}, of new shapes,", partial(lambda each: each(x[: next(rows)]), each), 128)
    _leaves_nothing(at, "what is refused", refused, 128)
    more = {name: least_s(at.wait, known[name], 40) - took for name, took in before.items()}
    slow = ", ".join(f"{name} takes {s * 1e3:.0f} ms longer" for name, s in more.items() if s > TIMES * NOTHING_S)
    at.same(slow, "", f"after calls of other shapes and calls that are refused, {slow}")


def _leaves_nothing(at: At, name: str, call: Callable[[], object], calls: int) -> None:
    at.wait()
    took: list[float] = []
    for _ in range(3):  # other programs may use the card, or the processor: of several looks the best counts
        wrong = _left_behind(at, name, call, calls, took)
        if not wrong:
            break
    at.same(wrong, "", wrong)


def _left_behind(at: At, name: str, call: Callable[[], object], calls: int, took: list[float]) -> str:
    """Say what so many calls leave behind, or whether the last take many times what the first ones did."""
    before = _held(at)
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(calls // 4):
            call()
        at.wait()
        took.append(time.perf_counter() - start)
    if took[-1] > 3 * took[0] + 0.1:
        return f"of {calls:,} calls of {name} the last quarter takes {took[-1]:.2g} s, the first {took[0]:.2g} s"
    gone = _gone(at, before, calls)
    return gone and f"{calls:,} calls of {name} leave {gone}"


def _gone(at: At, before: tuple[int, int, int], calls: int) -> str:
    grown, lost, host_grown = (now - then for now, then in zip(_held(at), before, strict=True))
    # a leak of 64 KiB a call would be 20 MiB after 320
    limit = 24 * MIB * min(max(calls, 250), 500) // 1000
    if max(grown, lost) >= MIB // 4:
        return f"{max(grown, lost):,} bytes on the device"
    return f"{host_grown:,} bytes on the host" if host_grown > limit else ""


def _held(at: At) -> tuple[int, int, int]:
    """Return the bytes that tensors hold, those of the device that its allocator does not, and those of the host."""
    if at.device.type == "cpu":
        return 0, 0, host_bytes()
    free, total = at.backend.mem_get_info()
    return int(at.backend.memory_allocated()), int(total - free - at.backend.memory_reserved()), host_bytes()


def _released(at: At) -> None:
    """What is freed can be had again: by the allocator's figures, and by the device's."""
    backend: Any = at.backend
    here, last = backend.current_device(), backend.device_count() - 1
    gc.collect()  # what earlier cases left in cycles is not freed in between
    backend.empty_cache()
    before, (free, total) = backend.memory_allocated(), backend.mem_get_info()
    for size, place in ((70, here), (384, here), (70, last)):
        for _ in range(20):  # other processes may use the card
            held, left = backend.memory_allocated(place), backend.mem_get_info(place)[0]
            big = torch.empty(size * MIB, dtype=torch.uint8, device=torch.device(at.device.type, place))
            taken, gone = backend.memory_allocated(place) - held, (left - backend.mem_get_info(place)[0]) / MIB
            at.same(backend.mem_get_info(here)[1], total, "all memory, by mem_get_info(), is less while some is taken")
            del big
            backend.empty_cache()
            if size - 4 <= gone <= size + 34:
                break
        said = f"a tensor of {size} MiB"
        at.holds(0 <= taken - size * MIB <= 2 * MIB, f"{said} counts as {taken:,} bytes of memory_allocated()")
        at.holds(size - 4 <= gone <= size + 34, f"{said} takes {gone:.0f} MiB by mem_get_info()")
    at.holds(backend.memory_allocated() == before, "freeing a tensor does not free what memory_allocated() counts")
    for size, number in ((MIB // 2, 128), (21 * MIB, min(100, free // (64 * MIB))), *((64 * MIB, 1),) * 12):
        start = time.perf_counter()
        kept = [torch.empty(size, dtype=torch.uint8, device=at.device) for _ in range(number)]
        del kept
        backend.empty_cache()
        took = (time.perf_counter() - start) / number
        said = f"to have and free {number} tensors of {size:,} bytes takes {took * 1e3:.0f} ms for each"
        at.holds(number == 1 or took < 0.01, said)
    for _ in range(20):  # other processes may use the card: of several looks the best counts
        lost = free - backend.mem_get_info()[0]
        if lost < 8 * MIB:
            break
        time.sleep(0.02)
    at.holds(lost < 8 * MIB, f"{lost:,} bytes are still taken on the device after empty_cache()")
    if empty := getattr(backend, "host_empty_cache", None):  # torch_npu 2.7 and later
        host, held = torch.ones(40 * MIB, dtype=torch.uint8), host_bytes()  # above 32 MiB malloc keeps nothing
        for _ in range(3):
            host.pin_memory()
            empty()
        lost = host_bytes() - held
        at.holds(lost < 60 * MIB, f"pinned memory is kept: {lost:,} bytes of 120 MiB after host_empty_cache()")


def _peaks(at: At) -> None:
    """Simple calls need room for their result, and hardly more: no second copy."""
    backend: Any = at.backend
    x = torch.ones(16 * MIB // 4, device=at.device)
    calls: dict[str, tuple[Callable[[], object], float]] = {
        "add": (lambda: x + 1, 1), "add_": (lambda: x.add_(0), 0), "mul_": (lambda: x.mul_(1), 0),
        "clone": (x.clone, 1), "relu": (x.relu, 1),
        "view": (lambda: x.view(512, -1).mT, 0), "contiguous": (x.view(512, -1).mT.contiguous, 1),
        "sum": (x.sum, 0),
        "cpu": (x.cpu, 0), "copy_": (lambda: x.copy_(host), 0), "to": (lambda: host.to(at.device), 1),
        "zeros": (lambda: torch.zeros_like(x), 1),
        "expand": (lambda: x[:1].expand(len(x)), 0), "cat": (lambda: torch.cat([x, x]), 2),
        "fill_": (lambda: x.fill_(1), 0),
    }  # fmt: skip
    host = x.cpu()
    for name, (call, results) in calls.items():
        backend.reset_peak_memory_stats()
        before = backend.memory_allocated()
        call()
        peak = (backend.max_memory_allocated() - before) / (16 * MIB)
        said = f"{name} of 16 MiB needs {peak:.2f} times that at its peak; its result {results:g}"
        at.holds(results <= peak <= results + 0.6, said)


def _blocks(at: At) -> None:
    """Tensors of sizes where allocators change their ways have memory of their own, which is counted, and a limit."""
    backend: Any = at.backend
    gc.collect()  # what earlier cases left in cycles is not freed in between
    places = range(backend.device_count())
    steps = (512, 4096, MIB // 2, MIB, 2 * MIB, 10 * MIB, 20 * MIB)
    sizes = [*(size + more for size in steps for more in (-1, 0, 1)), *range(1, 4000, 37)]
    before, held = [backend.memory_allocated(each) for each in places], dict[int, torch.Tensor]()
    for turn in range(3):
        others = range(len(sizes))[:: (1, -3, 2)[turn]]
        held = {place: each for place, each in held.items() if place not in others}
        backend.empty_cache()
        for place in others:
            held[place] = torch.empty(sizes[place], dtype=torch.uint8, device=at.device).fill_((place + turn) % 251)
            held[place] += turn  # what is read and written is its own
        found = {sizes[place]: int(each.amax()) - int(each.amin()) for place, each in held.items()}
        at.same(found, dict.fromkeys(found, 0), "tensors, of so many bytes, share their memory with others")
    here, reserved = backend.memory_allocated(), backend.memory_reserved()
    changes = [backend.memory_allocated(each) - before[each] for each in places]
    most = sum((size // 512 + 2) * 512 + 2 * MIB * (size > MIB // 2) for size in sizes)
    asked = {
        "memory_allocated() is not what tensors take": sum(sizes) <= changes[backend.current_device()] <= most,
        "memory_allocated() of another card changes": changes.count(0) == len(places) - 1,
        "memory_stats() tells another number": backend.memory_stats()["allocated_bytes.all.current"] == here,
        "memory_snapshot() is not all": sum(each["total_size"] for each in backend.memory_snapshot()) >= reserved,
        "less is reserved, or was the most so far, than now": min(reserved, backend.max_memory_allocated()) >= here,
    }
    held.clear()
    backend.reset_peak_memory_stats()
    asked["reset_peak_memory_stats() leaves the peak"] = backend.max_memory_allocated() == backend.memory_allocated()
    backend.empty_cache()
    asked["empty_cache() keeps what is not used"] = backend.memory_reserved() <= reserved - 20 * MIB
    free, total = backend.mem_get_info()
    for share in (0.25, 1.0) if free > total // 2 else ():  # other processes may hold the rest
        backend.set_per_process_memory_fraction(share)
        try:
            torch.empty(total // 3, dtype=torch.uint8, device=at.device)
        except RuntimeError:
            asked["a third of the memory, of which all may be used, is refused"] = share < 1
        else:
            asked["a third of the memory is given, where a quarter may be used"] = share == 1
    backend.empty_cache()
    at.same("; ".join(said for said, is_so in asked.items() if not is_so), "", "figures of memory are wrong")


COSTS: Mapping[str, Row] = {
    "elementwise": (STANDARD, partial(_alike, what="calls that move as much memory", calls=_elementwise, times=40)),
    "small-calls": (SMOKE, _small_calls),
    "new-shapes": (SMOKE, partial(_alike, what="calls with new shapes", calls=partial(_kinds, gaps=False))),
    "shapes": (STANDARD, _shapes),
    "indices": (SMOKE, _places),
    "again-and-again": (STANDARD, _again_and_again),
    "gaps": (SMOKE, partial(_alike, what="calls of tensors with gaps", calls=partial(_kinds, gaps=True), rounds=1)),
    "copies": (SMOKE, partial(_alike, what="copies of 16 MiB", calls=_copies, usual_is="within the host")),
    "products": (STANDARD, partial(_alike, what="products of as many terms", calls=_products)),
    "products-float16": (STANDARD, partial(_products_in, dtype=torch.float16)),
    "products-bfloat16": (STANDARD, partial(_products_in, dtype=torch.bfloat16)),
    "soak-short": (SMOKE, partial(_soak, calls=64)),
    "soak": (STANDARD, partial(_soak, calls=320)),
    "soak-shapes": (STANDARD, _soak_shapes),
    "release": (SMOKE, _released),
    "peaks": (STANDARD, _peaks),
    "blocks": (STANDARD, _blocks),
}
