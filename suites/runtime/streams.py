"""Streams and events: waiting ends only when work is done, order is kept, memory in use is not reused.

The checks follow PyTorch's documentation of streams (notes/cuda, "CUDA semantics"), which torch_npu's page on
multi-stream use repeats: work in a stream is carried out in order; ``wait_stream`` and ``wait_event`` order streams;
``synchronize`` returns when the work is done; ``record_stream`` keeps memory until that stream is done with it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from typing import Any

import torch

from .rows import BUSY_S, SMOKE, STANDARD, At, Row, T, early, forked, numbered

COUNT = 4099
#: Seconds to wait for an event before giving up.
PATIENCE_S = 10.0


def _host(count: int = COUNT) -> T:
    return torch.full((count,), -1, dtype=torch.int32).pin_memory()


def _made(at: At, start: int) -> T:
    base = numbered(COUNT, start).to(at.device)
    at.busy()
    return base + 1


def _wanted(start: int) -> T:
    return numbered(COUNT, start) + 1


def _polled(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.0005)
    return True


#: Ways to wait for a stream or an event (None: for the device), each with the name of what returns too early.
WAITS: Mapping[str, tuple[str, Callable[[Any, Any], object] | None]] = {
    "synchronize": ("torch.npu.synchronize()", None),
    "stream-synchronize": ("Stream.synchronize()", lambda stream, _: stream.synchronize()),
    "event-synchronize": ("Event.synchronize()", lambda _, event: event.synchronize()),
    "event-query": ("Event.query() says that it is over: it", lambda _, event: _polled(event.query)),
    "stream-query": ("Stream.query() says that it is over: it", lambda stream, _: _polled(stream.query)),
}


def _arrives(at: At, way: str) -> None:
    """Copy to pinned memory without blocking, on a stream of its own, wait in the given way, and compare."""
    what, wait = WAITS[way]
    stream, event, target = at.backend.Stream(), at.backend.Event(), _host()
    call = at.wait if wait is None else partial(wait, stream, event)
    here = partial(at.backend.set_device, at.backend.current_device())
    for start in range(3):
        stream.wait_stream(at.backend.current_stream())
        with at.backend.stream(stream):
            base = numbered(COUNT, start).to(at.device)
            event.record(stream)  # only the later record counts
            at.busy()
            target.copy_(base + 1, non_blocking=True)
            event.record(stream)
        with ThreadPoolExecutor(1, initializer=here) as other:  # once, another thread of the program waits
            is_over = other.submit(call).result() if start == 1 else call()
        at.holds(is_over is not False, f"after {PATIENCE_S:g} s, {way} has not told that work is over")
        cause = f"{what} returns before the work and the copy in the stream are done"
        at.same(target.clone(), _wanted(start), cause)
        target.fill_(-1)


def _blocking_copy(at: At) -> None:
    """Check that transfers to the host wait for the work of the current stream, not of the default one."""
    ways: dict[str, Callable[[T], T]] = {
        "cpu": torch.Tensor.cpu,
        "to": lambda x: x.to("cpu", torch.int64).int(),
        "copy_": lambda x: torch.empty(COUNT, dtype=torch.int32).copy_(x),
        "copy_ to pinned memory": lambda x: _host().copy_(x).clone(),
        "tolist": lambda x: torch.tensor(x.tolist(), dtype=torch.int32),
        "item": lambda x: torch.tensor([x[i].item() for i in range(3)], dtype=torch.int32),
        "nonzero": lambda x: x.nonzero().flatten().cpu().int(),
    }
    for number, (name, way) in enumerate(ways.items()):
        with forked(at.backend, at.backend.Stream()):
            found = way(_made(at, number))
        wanted = {"item": _wanted(number)[:3], "nonzero": _wanted(number).nonzero().flatten().int()}
        at.same(found, wanted.get(name, _wanted(number)), f"{name}() does not wait for its stream: it copies too early")


def _in_order(at: At, count: int = COUNT, steps: int = 20) -> None:
    source, target, held = _host(count), _host(count), list[bool]()
    for _ in range(3):
        with forked(at.backend, stream := at.backend.Stream()):
            x = torch.zeros(count, dtype=torch.int32, device=at.device)
            at.busy()
            source.copy_(numbered(count, 5))
            before = stream.record_event()
            is_busy = not before.query()
            x.copy_(source, non_blocking=True)
            y = x * 2
            for step in range(steps):
                y.add_(step).mul_(3).remainder_(0x1000000)
            x.zero_()
            target.copy_(y, non_blocking=True)
            y.fill_(7)
            held.append(is_busy and before.query())
        at.backend.synchronize()
        wanted = numbered(count, 5) * 2
        for step in range(steps):
            wanted.add_(step).mul_(3).remainder_(0x1000000)
        at.same(target.clone(), wanted, "copies and kernels of one stream are not carried out in their order")
    at.holds(not all(held), "copies from or to pinned memory that need not block, or kernels, hold the program up")


def _in_use(at: At) -> None:
    """Check that freed memory is not reused before a stream that reads it is done."""
    side = at.backend.Stream()
    for turn in range(4):
        x = numbered(COUNT, 3).to(at.device)
        at.wait()
        at.busy()
        time.sleep(1.5 * BUSY_S)  # a stream may start its work late: this one must start before the other
        with at.backend.stream(side):
            for _ in range(3):
                at.busy()
            y = x * 2
        x[9 * (turn % 2) :].record_stream(side)
        del x
        _ = [torch.full((COUNT,), -1, dtype=torch.int32, device=at.device) for _ in range(9)]
        at.wait()
        cause = "memory is used again while a stream reads it, as record_stream() told of the tensor or a part of it"
        at.same(y.cpu(), numbered(COUNT, 3) * 2, cause)


def _by_event(at: At, first: Any, second: Any) -> None:
    event = at.backend.Event()
    with at.backend.stream(first):
        event.record()
    with at.backend.stream(second):
        event.wait()


def _by_event_reused(at: At, first: Any, second: Any) -> None:
    """Record an event again after waiting for it: the wait is for the earlier record."""
    event = at.backend.Event()
    event.record(second)
    event.record(first)
    event.wait(second)
    event.record(second)


def _by_many_events(at: At, first: Any, second: Any) -> None:
    """Wait for many events: one, behind others, is late and has another waiter, too; one was never recorded."""
    late, never = first.record_event(), at.backend.Event()
    at.backend.Stream().wait_event(late)
    never.synchronize()
    at.holds(never.query(), "an event that was never recorded is not over")
    for each in (*(second.record_event() for _ in range(17)), late, *(late for _ in range(23)), never):
        second.wait_event(each)


def _by_plain_event(at: At, first: Any, second: Any) -> None:
    """Use the device-independent torch.Event (torch 2.6 and later) with this device's streams."""
    event = torch.Event(at.device) if hasattr(torch, "accelerator") else at.backend.Event()
    event.record(first)
    second.wait_event(event)


#: Ways in which the second stream waits for the first, and what is wrong if it does not.
ORDERS: Mapping[str, tuple[Callable[[At, Any, Any], None], str]] = {
    "wait-stream": (lambda _, a, b: b.wait_stream(a), "Stream.wait_stream() does not wait for the other stream's work"),
    "wait-event": (_by_event, "Event.wait() does not have the current stream wait for what it was recorded after"),
    "plain-event": (_by_plain_event, "Stream.wait_event() does not wait for a torch.Event"),
    "many-waits": (_by_many_events, "of many events that a stream waits for, one of which is late, not all count"),
    "event-again": (_by_event_reused, "an event that is recorded again loses what is waited for"),
}


def _across(at: At, way: str) -> None:
    order, cause = ORDERS[way]
    one, two = at.backend.Stream(), at.backend.Stream()
    x, found, stood, early = torch.zeros(COUNT, dtype=torch.int32, device=at.device), [], [], []
    at.backend.synchronize()
    for turn in range(4):
        first, second = (one, two) if turn % 2 else (two, one)
        late = (0, 0, 1, 6)[turn]
        with at.backend.stream(first):
            for _ in range(1 + late // 2):
                at.busy()
            x.add_(numbered(COUNT, turn).to(at.device) if not turn else 3)
        start = time.perf_counter()
        order(at, first, second)
        early.append((second.query(), first.query()) == (True, False))
        stood.append(time.perf_counter() - start)
        time.sleep(late * BUSY_S / 3)  # later work arrives late, on a stream that is already waiting
        with at.backend.stream(second):
            found.append(x * 2)
        order(at, second, first)
    at.backend.synchronize()
    at.same([each.cpu() for each in found], [(numbered(COUNT) + 3 * i) * 2 for i in range(4)], cause)
    at.holds(not any(early), "Stream.query() says that a stream is done which waits for one that is not")
    at.holds(min(stood) < BUSY_S / 2, "the program stands still while it orders streams, or asks whether they are done")


def _waits_apart(at: At) -> None:
    """Check that waiting for a stream or an event does not wait for other streams or for later work.

    The host waits, and so does the busy stream: the quiet one has work before and after what is waited for.
    """
    busy, quiet, held, orders = at.backend.Stream(), at.backend.Stream(), list[tuple[bool, bool]](), [*ORDERS]
    for turn in range(3):
        with at.backend.stream(busy):
            events = [(at.busy(), busy.record_event())[1] for _ in range(6)]  # type: ignore[func-returns-value]
        is_busy = not busy.query()
        quiet.synchronize()
        events[0].synchronize()
        holds_host = is_busy and busy.query()
        at.wait()
        with at.backend.stream(quiet):
            at.busy()
        time.sleep(1.5 * BUSY_S)  # a stream may start its work late: the quiet one starts before the other
        with at.backend.stream(busy):
            for _ in range(6):
                at.busy()
            done = busy.record_event()
        is_busy = not done.query()
        for each in orders[turn::3]:
            ORDERS[each][0](at, quiet, busy)
        with at.backend.stream(quiet):
            at.busy()
        quiet.synchronize()
        held.append((holds_host, is_busy and done.query()))
        at.wait()
    hosts, streams = (all(each) for each in zip(*held, strict=True))
    at.holds(not hosts, "to wait for a quiet stream, or for an event, is to wait for other or later work, too")
    at.holds(not streams, "a stream that another one waits for waits for that one, too")


def _deep(at: At, tasks: int = 600) -> None:
    """Check that ``tasks`` tasks queued on a stream are all carried out, and before an event behind them.

    torch_npu's queue has 4,096 places (``kQueueCapacity`` in NPUQueue.cpp). Small copies are among the tasks.
    """
    stream, event, target, small = at.backend.Stream(), at.backend.Event(), _host(), []
    x = torch.zeros(COUNT, dtype=torch.int32, device=at.device)
    stream.wait_stream(at.backend.current_stream())
    with at.backend.stream(stream):
        for _ in range(10):  # some 100 ms
            at.busy()
        for task in range(tasks):
            x[: COUNT - task % 64].add_(1)
            if task % 3 == 0:
                small.append(torch.tensor([task, -task], device=at.device))
        target.copy_(x, non_blocking=True)
        event.record(stream)
    event.synchronize()
    wanted = torch.full((COUNT,), tasks, dtype=torch.int32)
    for place in range(1, 64):
        wanted[COUNT - place] = sum(task % 64 < place for task in range(tasks))
    at.same(target.clone(), wanted, f"of {tasks:,} tasks in a stream, not all are over")
    at.backend.synchronize()
    numbers = torch.arange(0, tasks, 3)
    cause = "of small copies to the device that follow one another, one has the numbers of another one"
    at.same(torch.stack(small).cpu(), torch.stack([numbers, -numbers], 1), cause)


def _source_changed(at: At) -> None:
    """Check that host memory read by a call, and device memory read by a copy, may change once the call returns."""
    x = torch.arange(64.0, device=at.device).view(8, 8)
    calls: dict[str, Callable[..., T]] = {
        "mul": lambda n, *_: x * n, "sub": lambda n, *_: n - x, "fill_": lambda n, *_: torch.empty_like(x).fill_(n),
        "masked_fill": lambda n, *_: x.masked_fill(x > 9, n), "double": lambda n, *_: x + n.double(),
        "foreach": lambda n, *_: torch._foreach_mul([x], n)[0], "getitem": lambda _, i, *__: x[i],  # noqa: SLF001
        "index_put": lambda _, i, *__: x.index_put((i,), x[0]), "mask": lambda _, __, m, ___: x[m],
        "to": lambda *given: given[-1].to(at.device), "copy_": lambda *given: x.new_empty(COUNT).copy_(given[-1]),
        "to, non_blocking": lambda *given: given[-1].to(at.device, non_blocking=True),
    }  # fmt: skip
    for name, call in calls.items():
        # The number has a storage of its own and is not its first element.
        given = [torch.tensor([9.0, 0.5])[1], torch.tensor([5, 2]), torch.arange(8) % 3 == 0, numbered(COUNT, 1)]
        wanted = call(*(each.clone() for each in given)).cpu()
        at.busy()
        found = call(*given)
        for each in given:
            each.zero_()
        back = found.cpu()
        found.fill_(-1)
        at.same(back, wanted, f"{name} reads the host's memory after it has returned, or cpu() the device's")


#: Views of a matrix in pinned memory, as copied to a device.
_PINNED: Mapping[str, Callable[[T], T]] = {
    "whole": lambda x: x, "a part": lambda x: x[1:], "with gaps": lambda x: x[:, 1], "turned": lambda x: x.mT,
    "expanded": lambda x: x[:1].expand(5, 2),
}  # fmt: skip


def _pinned(at: At, names: Iterable[str], *dtypes: torch.dtype) -> None:
    """Check that non-blocking copies from and to pinned memory are in order, and that it is not reused too early.

    Some tensors are above a MiB, which allocators handle separately; copies use two streams and the last card.
    """
    last = torch.device(at.device.type, at.backend.device_count() - 1)
    for turn, (name, dtype) in enumerate(product((*names, *names), dtypes)):
        given = numbered(2 * COUNT if turn % 2 else 2**19 + 6, turn).view(-1, 2) % 2**20
        source, target = given.pin_memory(), torch.full(given.shape, -1, dtype=dtype).pin_memory()
        at.holds(source[1:].is_pinned() and not source.clone().is_pinned(), "is_pinned() is wrong")
        with forked(at.backend, at.backend.Stream() if turn % 3 else at.backend.current_stream()):
            at.busy()
            found = _PINNED[name](source).to(last if turn % 4 == 3 else at.device, dtype, non_blocking=True)
            x = given.to(at.device)
            target[:-3].copy_(x[3:], non_blocking=True)
        del source
        torch.full((given.numel(),), -5, dtype=torch.int32).pin_memory().fill_(-7)
        x.fill_(-2)
        at.backend.synchronize()
        at.backend.synchronize(last)
        said = f"a copy of {dtype}, {name}, {{}} pinned memory is not made in its order, or what it reads is used again"
        at.same(found.cpu(), _PINNED[name](given).to(dtype), said.format("from"))
        at.same(target[:-3].clone(), given[3:].to(dtype), said.format("to"))


def _elapsed(at: At, slept_s: float = 0.0) -> None:
    """Check the time between two events: at most that of the host's clock, and equal to the sum of its parts.

    ``slept_s`` adds seconds of sleep, whose count of microseconds or nanoseconds overflows a narrow integer.
    """
    ends = [at.backend.Event(enable_timing=True) for _ in range(4)]
    for each in ends:  # recording an event again replaces its time
        each.record()
    at.busy()
    at.backend.synchronize()
    start = time.perf_counter()
    ends[0].record()
    ends[1].record()
    for _ in range(4):
        at.busy()
    time.sleep(slept_s)
    ends[2].record()
    side = at.backend.Stream()
    side.wait_event(ends[2])
    side.record_event(ends[3])
    at.backend.synchronize()
    host_ms = (time.perf_counter() - start) * 1e3
    nothing, work = ends[0].elapsed_time(ends[1]), ends[0].elapsed_time(ends[2])
    said = f"events measure {work:.3g} ms for work that takes {host_ms:.3g} ms by the host's clock"
    is_plausible = 0 <= nothing <= work <= host_ms * 1.05 + 1 and work >= host_ms / 3
    at.holds(is_plausible, f"{said}, and {nothing:.3g} ms for none")
    across = ends[0].elapsed_time(ends[3])
    said = f"{said}, and {across:.3g} to the event of a stream that waits for it"
    at.holds(work <= across <= host_ms * 1.05 + 1, said)
    many, x = [at.backend.Event(enable_timing=True) for _ in range(300)], torch.zeros(COUNT, device=at.device)
    for each in many:
        x.add_(1)
        each.record()
    at.backend.synchronize()
    whole, parts = many[0].elapsed_time(many[-1]), [one.elapsed_time(two) for one, two in pairwise(many)]
    said = f"times of {min(parts):.3g} ms and more make {sum(parts):.3g} ms, where the whole is {whole:.3g}"
    at.holds(min(parts) >= 0 and abs(sum(parts) - whole) <= 0.1 * whole + 0.2, said)
    step = min((each for each in parts if each > 0), default=whole)
    at.holds(0 < step <= 1, f"of 299 times between two events the shortest is {step:.3g} ms: they are told in steps")


def _of_current(at: At) -> None:
    before, side = at.backend.current_stream(), at.backend.Stream()
    with at.backend.stream(side):
        inside = at.backend.current_stream()
        with at.backend.stream(None):
            unchanged = at.backend.current_stream()
        with at.backend.stream(before):
            pass
        with at.backend.device(at.backend.device_count() - 1):
            torch.ones(9, device=at.device.type)
        again = at.backend.current_stream()
    is_set = inside == side == again == unchanged and at.backend.current_stream() == before and side != before
    at.holds(is_set, "the context of a stream does not set the current stream, or does not set it back")
    with contextlib.suppress(KeyError), ThreadPoolExecutor(1) as other, at.backend.stream(side):
        elsewhere = other.submit(at.backend.current_stream).result()
        at.holds(elsewhere == at.backend.default_stream(), "a thread gets the current stream of another one")
        raise KeyError
    at.backend.set_stream(side)
    is_set = at.backend.current_stream() == side
    at.backend.set_stream(before)
    at.holds(is_set and at.backend.current_stream() == before, "set_stream(), or an error, leaves another stream")
    here, last = at.backend.current_device(), at.backend.device_count() - 1
    used = at.backend.current_stream(last)
    with at.backend.stream(at.backend.Stream(torch.device(at.device.type, last))):
        at.holds(at.backend.current_device() == last, "the context of another card's stream does not set the card")
    at.backend.synchronize(last)
    is_back = (at.backend.current_device(), at.backend.current_stream(last)) == (here, used)
    at.holds(is_back, "the context of a stream, or waiting for a card, leaves another card or stream in use")


def _backward(at: At) -> None:
    side, seen = at.backend.Stream(), set[bool]()
    weight = torch.ones(COUNT, device=at.device, requires_grad=True)
    for turn in range(1, 4):
        weight.grad = None
        side.wait_stream(at.backend.current_stream())
        with at.backend.stream(side):
            at.busy()
            product = weight * turn
        product.register_hook(lambda _: seen.add(at.backend.current_stream() == side))  # type: ignore[no-untyped-call]
        at.busy()
        torch.autograd.backward(product, torch.full((COUNT,), 3.0, device=at.device))
        is_old = not hasattr(torch, "accelerator")  # torch_npu 2.1 calls hooks on the default stream
        at.holds(is_old or seen == {True}, "a hook is called on another stream than that of its forward pass")
        assert weight.grad is not None
        found = weight.grad * 2
        at.same(found.cpu(), torch.full((COUNT,), 6.0 * turn), "gradients are read before a stream computes them")
    weight.grad, sides = torch.zeros_like(weight), [at.backend.Stream() for _ in range(3)]
    for turn in range(1, 3):
        with forked(at.backend, sides[0]):
            at.busy()
            loss = (weight * 2).sum()
        with forked(at.backend, sides[1]):
            loss = loss + (weight * 3).sum()
        with forked(at.backend, sides[2]):
            torch.autograd.backward(loss)
            found = torch.clone(weight.grad)
        cause = "gradients of two streams, asked for in a third, are not all added, or read too early"
        at.same(found.cpu(), torch.full((COUNT,), 5.0 * turn), cause)

    def back(number: int) -> None:
        at.backend.set_device(at.device)
        torch.autograd.backward((weight * number).sum())

    weight.grad = torch.zeros_like(weight)
    with ThreadPoolExecutor(4) as pool:
        [*pool.map(back, range(9))]
    at.same(weight.grad.cpu(), torch.full((COUNT,), 36.0), "gradients that several threads ask for are not all added")


def across_cards(at: At) -> None:
    """Check that a copy to another card is ordered with the streams of both."""
    other = torch.device(at.device.type, at.backend.device_count() - 1)
    x = _made(at, 3)
    there = x.to(other, non_blocking=True)
    turned = x[1:].view(2, -1)
    views = [(turned[:, ::3], torch.int32), (turned, torch.float32), (x[:1].expand(9), torch.int32)]
    wanted = [view.to(dtype).cpu() for view, dtype in views]
    at.busy()
    moved = [view.to(other, dtype, non_blocking=True, copy=True) for view, dtype in views]
    x.fill_(-1)
    back = (there * 2).to(at.device)
    at.same([each.cpu() for each in moved], wanted, "a copy to another card, of a view or a cast, is not in order")
    at.same(back.cpu(), _wanted(3) * 2, "a copy to another card is not in the order of its streams")
    x, y = _made(at, 4), torch.zeros(COUNT, dtype=torch.int32, device=other)
    at.backend.synchronize(other)
    event = at.backend.current_stream().record_event()
    with at.backend.device(other), at.backend.stream(at.backend.Stream(other)):
        event.wait()
        y.copy_(x, non_blocking=True).add_(1)
        event = at.backend.current_stream().record_event()
    event.wait()
    at.same(y.to(at.device).cpu(), _wanted(4) + 1, "an event of one card is not waited for by a stream of another one")
    for target in (_host(), _host()):
        at.busy(other)
        with at.backend.device(other):
            target.copy_(y, non_blocking=True)
        at.backend.synchronize(other)
        at.same(target.clone(), _wanted(4) + 1, "synchronize() of another card returns before the work of that card")


STREAMS: Mapping[str, Row] = {
    **early({name: partial(_arrives, way=name) for name in WAITS}, "synchronize", "stream-query"),
    "blocking-copy": (STANDARD, _blocking_copy),
    "order": (SMOKE, _in_order),
    "order-large": (STANDARD, partial(_in_order, count=2**20 + 3, steps=1)),
    **early({name: partial(_across, way=name) for name in ORDERS}, "many-waits"),
    "deep": (SMOKE, _deep),
    "deeper": (STANDARD, partial(_deep, tasks=10_007)),
    "source-changed": (SMOKE, _source_changed),
    "waits-apart": (SMOKE, _waits_apart),
    "in-use": (SMOKE, _in_use),
    "pinned-memory": (SMOKE, lambda at: _pinned(at, ("a part", "with gaps"), torch.int32)),
    "pinned-more": (STANDARD, lambda at: _pinned(at, _PINNED, torch.int32, torch.float32)),
    "elapsed-time": (SMOKE, _elapsed),
    "elapsed-second": (STANDARD, partial(_elapsed, slept_s=1.1)),
    "elapsed-seconds": ("full", partial(_elapsed, slept_s=4.4)),
    "current-stream": (STANDARD, _of_current),
    "backward": (SMOKE, _backward),
}
