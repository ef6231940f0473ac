"""Time and memory, compared within the run: with other operators that do the same work, and with a plain copy.

Limits are wide: they are for a device on which something takes a hundred times too long, not for a benchmark.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.system.programs import give_back, resident_bytes

from .rows import SMOKE, STANDARD, At, Row
from .state import CALLS

MIB = 2**20
Calls: TypeAlias = dict[str, Callable[[], object]]
#: How many times longer than its neighbours a call may take, and the seconds that count as nothing.
TIMES, NOTHING_S = 20, 2e-4


def _least_s(at: At, call: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds + 1):  # the first may load the kernel
        at.wait()
        start = time.perf_counter()
        call()
        at.wait()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def _alike(
    at: At, what: str, calls: Callable[[At], Calls], rounds: int = 4, usual_is: str = "", times: int = TIMES
) -> None:
    """No call takes many times what the median of its neighbours does, or the call ``usual_is``."""
    made = calls(at)
    took = {name: _least_s(at, call, rounds) for name, call in made.items()}
    usual = max(took.get(usual_is, sorted(took.values())[len(took) // 2]), NOTHING_S)
    slow = {name: each for name, each in took.items() if each > times * usual}
    for _ in range(3 if slow else 0):  # other work on the machine may have been in the way
        again = {name: _least_s(at, made[name], 5 * rounds) for name in slow}
        slow = {name: each for name, each in again.items() if each > times * usual}
    beside = usual_is or "the median"
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
    took = _least_s(at, lambda: None, 20)
    at.holds(took <= TIMES * NOTHING_S, f"waiting for a device without work takes {took * 1e3:.3g} ms")


def _small(at: At) -> Calls:
    x = torch.rand(1, 1, device=at.device) + 0.5
    return {
        **{name: getattr(x, name) for name in ("exp", "sum", "clone", "sort", "item", "cpu", "tril")},
        "add": lambda: x + x, "add 1": lambda: x + 1, "mul": lambda: x * x, "mm": lambda: x @ x,
        "cat": lambda: torch.cat([x, x]), "softmax": lambda: x.softmax(-1), "fill_": lambda: x.fill_(1),
        "empty": lambda: torch.empty(1, device=at.device), "zeros": lambda: torch.zeros(1, device=at.device),
        "where": lambda: torch.where(x > 0, x, x), "to": lambda: torch.ones(1).to(at.device),
        "gather": lambda: x.gather(0, x.long() * 0), "embedding": lambda: F.embedding(x.long() * 0, x),
        "linear": lambda: F.linear(x, x), "layer_norm": lambda: F.layer_norm(x, (1,)),
    }  # fmt: skip


def _kinds(at: At, *, gaps: bool) -> Calls:
    """Return calls of all kinds of kernels, each time with another shape; their tensors have gaps, or none."""

    def call(function: Callable[[torch.Tensor], object], sizes: Iterator[int]) -> Callable[[], object]:
        return lambda: function(whole[: next(sizes), 1::2] if gaps else packed[: next(sizes)])

    whole = torch.rand(160, 129, device=at.device)
    packed = whole[:, 1::2].contiguous()
    return {name: call(each, cycle(range(33, 160))) for name, each in CALLS.items()}


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
    }


def _products(at: At) -> Calls:
    a = torch.rand(256, 256, device=at.device)
    image, kernel = a.view(1, 64, 32, 32), torch.rand(64, 64, 3, 3, device=at.device)
    return {
        "mm": lambda: a @ a, "mm of a transposed matrix": lambda: a @ a.mT, "bmm": lambda: a[None] @ a[None],
        "addmm": lambda: torch.addmm(a, a, a), "linear": lambda: F.linear(a, a),
        "conv2d": lambda: F.conv2d(image, kernel[:32], padding=1),
        "attention": lambda: F.scaled_dot_product_attention(*(a.view(1, 4, 256, 64),) * 3),
    }  # fmt: skip


def host_bytes() -> int:
    """Return the memory that this process has of the host's, without what was freed and malloc still holds."""
    give_back()
    return resident_bytes()


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
        kinds["event"] = lambda: at.backend.Event().record()
        kinds["pinned"] = lambda: host.pin_memory().to(at.device, non_blocking=True)
    for call in [*kinds.values()] * 10:
        call()
    kinds["all kinds"] = lambda: [each(x) for each in CALLS.values()]
    kinds["all kinds"]()
    at.wait()
    gc.collect()
    for name, call in kinds.items():
        took: list[float] = []
        for _ in range(3):  # other programs may use the card, or the processor: of several looks the best counts
            wrong = _left_behind(at, name, call, 4 if name == "all kinds" else calls, took)
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
    grown, lost, host_grown = (now - then for now, then in zip(_held(at), before, strict=True))
    limit = 24 * MIB * max(calls, 250) // 1000  # a leak of 64 KiB a call would be 62 MiB after a thousand
    if took[-1] > 3 * took[0] + 0.1:
        return f"of {calls:,} calls of {name} the last quarter takes {took[-1]:.2g} s, the first {took[0]:.2g} s"
    if max(grown, lost) >= MIB // 4:
        return f"{calls:,} calls of {name} leave {max(grown, lost):,} bytes on the device"
    return f"{calls:,} calls of {name} leave {host_grown:,} bytes on the host" if host_grown > limit else ""


def _held(at: At) -> tuple[int, int, int]:
    """Return the bytes that tensors hold, those of the device that its allocator does not, and those of the host."""
    if at.device.type == "cpu":
        return 0, 0, host_bytes()
    free, total = at.backend.mem_get_info()
    return int(at.backend.memory_allocated()), int(total - free - at.backend.memory_reserved()), host_bytes()


def _released(at: At) -> None:
    """What is freed can be had again: by the allocator's figures, and by the device's."""
    backend: Any = at.backend
    backend.empty_cache()
    before, free = backend.memory_allocated(), backend.mem_get_info()[0]
    big = torch.empty(64 * MIB, dtype=torch.uint8, device=at.device)
    taken = backend.memory_allocated() - before
    at.holds(64 * MIB <= taken <= 66 * MIB, f"a tensor of 64 MiB counts as {taken:,} bytes of memory_allocated()")
    at.holds(free - backend.mem_get_info()[0] >= 60 * MIB, "a tensor of 64 MiB takes no memory by mem_get_info()")
    del big
    at.holds(backend.memory_allocated() == before, "freeing a tensor does not free what memory_allocated() counts")
    backend.empty_cache()
    for _ in range(20):  # other processes may use the card: of several looks the best counts
        lost = free - backend.mem_get_info()[0]
        if lost < 8 * MIB:
            break
        time.sleep(0.02)
    at.holds(lost < 8 * MIB, f"{lost:,} bytes are still taken on the device after empty_cache()")
    for _ in range(12):
        torch.empty(64 * MIB, dtype=torch.uint8, device=at.device)
        backend.empty_cache()
    at.holds(free - backend.mem_get_info()[0] < 8 * MIB, "memory that is freed and emptied again and again is lost")
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
        at.holds(peak <= results + 0.6, said)


COSTS: Mapping[str, Row] = {
    "elementwise": (STANDARD, partial(_alike, what="calls that move as much memory", calls=_elementwise, times=40)),
    "small-calls": (SMOKE, _small_calls),
    "new-shapes": (STANDARD, partial(_alike, what="calls with new shapes", calls=partial(_kinds, gaps=False))),
    "gaps": (SMOKE, partial(_alike, what="calls of tensors with gaps", calls=partial(_kinds, gaps=True), rounds=1)),
    "copies": (SMOKE, partial(_alike, what="copies of 16 MiB", calls=_copies, usual_is="within the host")),
    "products": (STANDARD, partial(_alike, what="products of as many terms", calls=_products)),
    "soak-short": (SMOKE, partial(_soak, calls=64)),
    "soak": (STANDARD, partial(_soak, calls=1000)),
    "release": (SMOKE, _released),
    "peaks": (STANDARD, _peaks),
}
