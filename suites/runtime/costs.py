"""Time and memory, compared within the run: with other operators that do the same work, and with a plain copy.

The limits are wide: they catch a device on which something takes a hundred times too long; this is no benchmark.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch import nn
from torch.utils.checkpoint import checkpoint

from .rows import MIB, NOTHING_S, SMOKE, STANDARD, TIMES, At, Row, least_s
from .soaks import ALL, GRADIENTS, Calls, Kind, Kinds, host_bytes, kinds, of_new_shapes, of_runtime
from .state import CALLS

#: Calls on 16 MiB, with the peak memory each needs and the memory it keeps for its results, in multiples of 16 MiB.
Needs: TypeAlias = Mapping[str, tuple[Callable[[], object], float, float]]
#: Rows of 64 columns; products and calls that sort or add serially, not comparable with others; calls of all dtypes.
_LARGE, _PRODUCTS = 4096, ("mm", "bmm", "matmul", "addmm", "einsum", "attention", "conv2d")
_SORTS = ("sort", "scatter", "gather", "multinomial", "topk", "unique", "median", "cumsum, long")
#: For each of these calls torch_npu allocates a mask of 2,048 x 2,048, however short the sequences.
_WITH_MASKS = "attention, causal"
_IN_ALL_DTYPES = ("add", "mul", "where", "amax", "argmax", "cat", "transposed", "index_select", "logical", "repeat")


def _alike(at: At, what: str, made: Calls, *, usual_is: str = "", times: int = TIMES, part: int = 2) -> None:
    """Check that no call takes many times the median (``part`` 2) or other quantile of its peers, or ``usual_is``."""
    asked = {name: call for name, call in made.items() if usual_is or not name.startswith(_WITH_MASKS)}
    took = {name: least_s(at.wait, call, 1) for name, call in asked.items()}
    usual = max(took.get(usual_is, sorted(took.values())[len(took) // part]), NOTHING_S)
    slow = {name: each for name, each in took.items() if each > times * usual}
    for _ in range(3 if slow else 0):  # other work on the machine may have interfered
        # A call that becomes slower and slower must not hold up the run.
        again = {name: least_s(at.wait, made[name], 2 if took_s > 0.05 else 10) for name, took_s in slow.items()}
        slow = {name: each for name, each in again.items() if each > times * usual}
    beside = usual_is or ("the median" if part == 2 else "the quicker ones")
    said = ", ".join(f"{name} takes {each / usual:.0f} times {beside}" for name, each in slow.items())
    at.same(said, "", f"of {what}, {said or 'all take about as long'}")


def _large(at: At) -> Calls:
    """Return calls on a large matrix in several dtypes, without products and sorts."""
    calls = {name: call for name, call in ALL.items() if not name.startswith(_PRODUCTS + _SORTS)}
    found = kinds(at, calls, rows=_LARGE)
    for dtype in (torch.float16, torch.int32, torch.int64):
        found |= kinds(at, {name: ALL[name] for name in _IN_ALL_DTYPES}, dtype, rows=_LARGE)
    return found


def _small_calls(at: At) -> None:
    """Check that no small call takes long, nor does synchronizing with an idle device, which is part of each."""
    _alike(at, "calls of little", _small(at), times=30)
    x, took = torch.rand(1, 1, device=at.device), least_s(at.wait, lambda: None, 20)
    if at.device.type != "cpu":

        def some(x: torch.Tensor = x) -> None:
            for _ in range(100):
                torch.empty_like(x).copy_(x.exp())

        with ThreadPoolExecutor(1) as other:
            ways: Calls = {
                "the usual stream": some, "another stream": partial(_within, at, at.backend.Stream(), some),
                "a stream of high priority": partial(_within, at, at.backend.Stream(priority=-1), some),
                "another thread": lambda: other.submit(some).result(),
                "the last card": partial(some, x.to(torch.device(at.device.type, at.backend.device_count() - 1))),
                "a stream for each call": lambda: [_within(at, at.backend.Stream(), x.exp) for _ in range(200)],
            }  # fmt: skip
            _alike(at, "calls in other streams, threads and cards", ways, usual_is="the usual stream", times=8)
    at.holds(took <= TIMES * NOTHING_S, f"waiting for a device without work takes {took * 1e3:.3g} ms")


def _within(at: At, stream: Any, call: Callable[[], object]) -> object:
    with at.backend.stream(stream):
        return call()


def _small(at: At) -> Calls:
    x = torch.rand(1, 1, device=at.device)
    return {
        **of_runtime(at), **kinds(at, rows=4), **kinds(at, CALLS, torch.float16, rows=4),
        "empty": lambda: torch.empty(1, device=at.device), "zeros": lambda: torch.zeros(1, device=at.device),
        "to": lambda: torch.ones(1).to(at.device), "one number": x.exp, "a product of one": lambda: x @ x,
        "cat of 64": lambda: torch.cat([x] * 64), "stack of 64": lambda: torch.stack([x] * 64),
        "foreach of 64": lambda: torch._foreach_add([x] * 64, 1),  # noqa: SLF001
    }  # fmt: skip


def _shapes(at: At) -> None:
    """Check that calls take about as long along rows as along columns, for one long row, few rows or many short."""
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
        made: Calls = {
            f"{rows} x {2**16 // rows}, dimension {dim}": partial(call, x.view(rows, -1), dim)
            for rows in (1, 16, 256, 4096, 2**14)
            for dim in (0, 1)
        }
        # Half of the calls are along one dimension.
        _alike(at, f"{name} of one size", made, times=15, part=4)


def _places(at: At) -> None:
    """Check that equal, ordered and mixed indices take about as long in kernels that accumulate or look up."""
    count = 4096
    x, table = torch.ones(count, 4, device=at.device), torch.ones(count, 4, device=at.device, requires_grad=True)
    ordered = torch.arange(count, device=at.device)
    given = {"mixed": ordered * 1021 % count, "ordered": ordered, "equal": ordered * 0}
    calls: dict[str, Callable[[torch.Tensor], object]] = {
        "index_add": lambda i: x.index_add(0, i, x), "index_put": lambda i: x.index_put((i,), x, accumulate=True),
        "scatter_add": lambda i: x.scatter_add(0, i[:, None].expand(count, 4), x),
        "index_select": lambda i: x.index_select(0, i), "getitem": lambda i: x[i], "bincount": torch.bincount,
        "embedding backward": lambda i: torch.autograd.grad(F.embedding(i, table), table, x),
        "sort": torch.sort, "unique": torch.unique,
    }  # fmt: skip
    for name, call in calls.items():
        made: Calls = {f"{kind} indices": partial(call, each) for kind, each in given.items()}
        _alike(at, f"{name} of one size", made, times=2 * TIMES, part=4)


def _values(at: At, calls: Mapping[str, Kind] = ALL) -> None:
    """Check that a call takes about as long whatever the values and the memory layout."""
    x, wide = torch.rand(400, 64), torch.rand(401, 129)
    ordered = x.flatten().sort()[0].view_as(x)
    whole = {
        "zeros": x * 0, "equal numbers": x * 0 + 0.7, "ordered numbers": ordered, "falling numbers": ordered.flip(0, 1),
        "negative numbers": -x, "large numbers": x * 1e30, "tiny numbers": x * 1e-40, "infinities": x / 0,
        "NaN": x / 0 * 0, "whole numbers": (x * 64).floor(), "few large numbers": x + (x > 0.999) * 1e3,
    }  # fmt: skip
    if at.device.type != "cpu":  # the CPU has no units for half precision, or torch does not use them
        whole |= {"float16": x.half(), "bfloat16": x.bfloat16()}
    there = wide.to(at.device)
    given = {name: (each, each.to(at.device)) for name, each in whole.items()}
    places = {  # the first element, and the strides of rows and columns
        "a part of a tensor": (132, (129, 1)), "every second column": (130, (129, 2)), "columns": (0, (1, len(x))),
        "an odd place": (1, (64, 1)), "a repeated row": (0, (0, 1)),
    }  # fmt: skip
    for name, (first, steps) in places.items():
        given[name] = wide.as_strided(x.shape, steps, first), there.as_strided(x.shape, steps, first)
    usual = x.to(at.device)
    for name, call in calls.items():
        made: Calls = {"usual": partial(call, usual)}
        for said, (here, each) in given.items():
            with contextlib.suppress(RuntimeError, IndexError, ValueError):  # only calls that both devices accept
                call(here), call(each)
                made[f"{name} of {said}"] = partial(call, each)
        _alike(at, "calls of one shape", made, usual_is="usual", times=15)


def _copies(at: At) -> Calls:
    host, there = torch.zeros(16 * MIB, dtype=torch.uint8), torch.zeros(16 * MIB, dtype=torch.uint8, device=at.device)
    pinned = host if at.device.type == "cpu" else host.clone().pin_memory()
    return {
        "within the host": host.clone,
        "pin_memory": host.clone if at.device.type == "cpu" else host.pin_memory,
        "to the device": lambda: there.copy_(host),
        "to the host": lambda: host.copy_(there),
        "from pinned memory": lambda: there.copy_(pinned, non_blocking=True),
        "to pinned memory": lambda: pinned.copy_(there, non_blocking=True),
        "on the device": there.clone,
        "to the device, from an odd place": lambda: there[1:].copy_(host[1:]),
        "to the host, from an odd place": lambda: host[1:].copy_(there[1:]),
        "on the device, from an odd place": there[1:].clone,
        "on the device, with gaps": there[::2].clone,
        "to the host, with gaps": there[::2].cpu,
        "to the device, with gaps": lambda: host[::2].to(at.device),
        "to another dtype": there.half,
        "zeros": there.zero_,
    }


def _products(at: At, dtype: torch.dtype = torch.float32) -> Calls:
    if dtype != torch.float32 and at.device.type == "cpu":
        raise NotImplementedError("the CPU has no units for half precision, or torch does not use them")
    whole = torch.rand(256, 256, device=at.device)
    a = whole.to(dtype)
    image, kernel = a.view(1, 64, 32, 32), torch.rand(64, 64, 3, 3, device=at.device).to(dtype)
    odd = a[:251, :253].contiguous()
    return {
        "mm in float32": lambda: whole @ whole, "mm": lambda: a @ a, "mm of a transposed matrix": lambda: a @ a.mT,
        "bmm": lambda: a[None] @ a[None],
        "addmm": lambda: torch.addmm(a, a, a), "linear": lambda: F.linear(a, a),
        "conv2d": lambda: F.conv2d(image, kernel[:32], padding=1),
        "conv2d of 64 groups": lambda: F.conv2d(image, kernel[:, :1], padding=1, groups=64),
        "conv2d, channels last": lambda: F.conv2d(a.view(1, 32, 32, 64).permute(0, 3, 1, 2), kernel[:32], padding=1),
        "conv2d in steps": lambda: F.conv2d(image, kernel[:32], stride=2, dilation=2, padding=2),
        "mm of odd sizes": lambda: odd @ odd.mT,
        "attention": lambda: F.scaled_dot_product_attention(*(a.view(1, 4, 256, 64),) * 3),
    }  # fmt: skip


def _released(at: At) -> None:
    """Check that freed memory is available again, according to the allocator and to the device."""
    backend: Any = at.backend
    here, last = backend.current_device(), backend.device_count() - 1
    backend.empty_cache()
    before, (free, total) = backend.memory_allocated(), backend.mem_get_info()
    for size, place in ((70, here), (384, here), (70, last)):
        for _ in range(20):  # other processes may use the card, and torch_npu may free what earlier calls took
            held, left = backend.memory_allocated(place), backend.mem_get_info(place)[0]
            big = torch.empty(size * MIB, dtype=torch.uint8, device=torch.device(at.device.type, place))
            taken, gone = backend.memory_allocated(place) - held, (left - backend.mem_get_info(place)[0]) / MIB
            at.same(backend.mem_get_info(here)[1], total, "all memory, by mem_get_info(), is less while some is taken")
            del big
            backend.empty_cache()
            if size - 4 <= gone <= size + 34 and 0 <= taken - size * MIB <= 2 * MIB:
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
    for _ in range(20):  # other processes may use the card: the best of several readings counts
        lost = free - backend.mem_get_info()[0]
        if lost < 8 * MIB:
            break
        time.sleep(0.02)
    at.holds(lost < 8 * MIB, f"{lost:,} bytes are still taken on the device after empty_cache()")
    if empty := getattr(backend, "host_empty_cache", None):  # torch_npu 2.7 and later
        host, held = torch.ones(40 * MIB, dtype=torch.uint8), host_bytes()  # above 32 MiB malloc returns blocks
        for _ in range(3):
            host.pin_memory()
            empty()
        lost = host_bytes() - held
        at.holds(lost < 60 * MIB, f"pinned memory is kept: {lost:,} bytes of 120 MiB after host_empty_cache()")


def _needs(at: At, made: Callable[[torch.Tensor], Needs]) -> None:
    """Check that calls need memory for their results and hardly more, and that unreferenced memory is freed."""
    backend: Any = at.backend
    for name, (call, needs, keeps) in made(torch.ones(16 * MIB // 4, device=at.device)).items():
        for pause_s in (0, 0.001, 0.1, 1):  # backward() has a thread of its own, which may free memory slightly later
            backend.reset_peak_memory_stats()
            before, result = backend.memory_allocated(), call()
            time.sleep(pause_s)
            looks = [backend.max_memory_allocated(), backend.memory_allocated()]
            del result
            time.sleep(pause_s)
            peak, kept, left = ((each - before) / (16 * MIB) for each in (*looks, backend.memory_allocated()))
            if is_right := needs <= peak <= needs + 0.6 and abs(kept - keeps) < 0.1 and abs(left) < 0.05:
                break
        said = f"{name} takes {peak:.2f} times 16 MiB at its peak, not {needs:g}, and keeps {kept:.2f}, not {keeps:g}"
        at.holds(is_right, f"{said}; {left:.2f} are left when nothing refers to it")


def _simple(x: torch.Tensor) -> Needs:
    host, rows, is_large = x.cpu(), torch.arange(512, device=x.device), x > 0
    return {
        "add": (lambda: x + 1, 1, 1), "add_": (lambda: x.add_(0), 0, 0), "mul_": (lambda: x.mul_(1), 0, 0),
        "clone": (x.clone, 1, 1), "relu": (x.relu, 1, 1), "half": (x.half, 0.5, 0.5), "item": (x.exp()[9].item, 0, 0),
        "view": (lambda: x.view(512, -1).mT, 0, 0), "contiguous": (x.view(512, -1).mT.contiguous, 1, 1),
        "cpu": (x.cpu, 0, 0), "copy_": (lambda: x.copy_(host), 0, 0), "to": (lambda: host.to(x.device), 1, 1),
        "sum": (x.sum, 0, 0), "zeros": (lambda: torch.zeros_like(x), 1, 1), "cat": (lambda: torch.cat([x, x]), 2, 2),
        "expand": (lambda: x[:1].expand(len(x)), 0, 0), "add of two": (lambda: x + x, 1, 1), "exp": (x.exp, 1, 1),
        "where": (lambda: torch.where(is_large, x, x), 1, 1), "bool": (lambda: x > 0, 0.25, 0.25),
        "index_select": (lambda: x.view(512, -1).index_select(0, rows), 1, 1), "fill_": (lambda: x.fill_(1), 0, 0),
        "outer": (lambda: x[:2048, None] * x[None, :2048], 1, 1), "a part": (lambda: (x + 1)[:9], 1, 1),
        "columns": (lambda: x.view(512, -1)[:, ::2].add_(0), 0, 0), "out=": (lambda: torch.add(x, 0, out=x), 0, 0),
        "masked_fill_": (lambda: x.masked_fill_(is_large, 1), 0, 0), "expanded sum": (x[:1].expand(2**22).sum, 0, 0),
        "sum of rows": (lambda: x.view(512, -1).sum(0), 0, 0), "softmax": (lambda: x.view(512, -1).softmax(-1), 1, 1),
        "four in a row": (lambda: x.exp().relu().exp().relu(), 2, 1),
        "what is so already": (lambda: [x.contiguous(), x.float(), x.to(x.device), x.reshape(4, -1)], 0, 0),
        "memory given up": (lambda: [y := x + 1, y.untyped_storage().resize_(0)], 1, 0),
        "memory had again": (lambda: [y := x + 1, *map(y.untyped_storage().resize_, (0, 16 * MIB))], 1, 1),
    }  # fmt: skip


def _trained(x: torch.Tensor) -> Needs:
    """Return calls on a parameter that has or receives a gradient, and on a chain of sixteen sines of 1 MiB each."""

    def weight(rows: int = 1) -> nn.Parameter:
        return nn.Parameter(x.view(rows, -1).clone())

    def after(call: Callable[[nn.Parameter], object], times: int = 1) -> object:
        parameter = weight()
        for _ in range(times):
            torch.autograd.backward((parameter * 2).sum())
        return parameter, call(parameter)

    back, chain = torch.autograd.backward, x[: MIB // 4].clone().requires_grad_()
    autocast, sgd = torch.autocast(x.device.type, torch.float16), partial(torch.optim.SGD, lr=0.5, momentum=0.5)
    return {
        "a chain": (lambda: _deep(chain), 1, 1), "no_grad": (lambda: torch.no_grad()(_deep)(chain), 0.1, 0.06),
        "checkpoint": (lambda: checkpoint(_deep, chain, use_reentrant=False), 0.1, 0.06),
        "grad of a chain": (lambda: torch.autograd.grad(_deep(chain).sum(), chain), 1, 0.06),
        "backward()": (lambda: [loss := weight().exp().sum(), back(loss)], 3, 2),
        "backward(retain_graph=True)": (lambda: [loss := weight().exp().sum(), back(loss, retain_graph=True)], 3, 3),
        "detach": (lambda: weight().exp().detach(), 2, 1), "a gradient": (lambda: after(id), 2, 2),
        "autocast": (lambda: autocast(F.linear)(x[:2048], weight(2048)).detach(), 1.5, 0),
        "a second gradient": (lambda: after(id, times=2), 3, 2),
        "load_state_dict": (lambda: after(lambda each: nn.ParameterList([each]).load_state_dict({"0": x[None]})), 2, 2),
        "zero_grad()": (lambda: after(lambda each: sgd([each]).zero_grad()), 2, 1),
        "zero_grad() of a module": (lambda: after(lambda each: nn.ParameterList([each]).zero_grad()), 2, 1),
        "zero_grad(set_to_none=False)": (lambda: after(lambda each: sgd([each]).zero_grad(set_to_none=False)), 2, 2),
        "a step": (lambda: after(lambda each: [optimizer := sgd([each]), optimizer.step()]), 3, 3),
        "clip_grad_norm_": (lambda: after(lambda each: nn.utils.clip_grad_norm_([each], 1.0)), 2, 2),
        "to the host": (lambda: after(lambda each: nn.ParameterList([each]).cpu()), 2, 0),
    }  # fmt: skip


def _deep(x: torch.Tensor) -> torch.Tensor:
    for _ in range(16):
        x = x.sin()
    return x


def _blocks(at: At) -> None:
    """Check that tensors at allocator size thresholds have memory of their own, which is counted and can be limited."""
    backend: Any = at.backend
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
            held[place] += turn  # read and write only its own memory
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
    last = torch.device(at.device.type, places[-1])
    torch.empty(9 * MIB, dtype=torch.uint8, device=last)
    peak = backend.max_memory_allocated(last)
    backend.reset_peak_memory_stats()
    is_kept = len(places) == 1 or backend.max_memory_allocated(last) == peak >= 9 * MIB
    asked["a card has no peak, or loses it by reset_peak_memory_stats() of another one"] = is_kept
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
            asked[f"a third of the memory is given, where {share:.0%} may be used"] = share == 1
    backend.empty_cache()
    at.same("; ".join(said for said, is_so in asked.items() if not is_so), "", "figures of memory are wrong")


def _row(what: str, calls: Kinds, level: str = SMOKE, **how: Any) -> Row:
    return level, lambda at: _alike(at, what, calls(at), **how)


_IN_FLOAT16, _IN_BFLOAT16 = (partial(_products, dtype=dtype) for dtype in (torch.float16, torch.bfloat16))
COSTS: Mapping[str, Row] = {
    "elementwise": _row("calls that move as much memory", _large, times=60),
    "small-calls": (SMOKE, _small_calls),
    "new-shapes": _row("calls with new shapes", partial(of_new_shapes, calls=ALL)),
    "shapes": (SMOKE, _shapes),
    "indices": (SMOKE, _places),
    "values": (STANDARD, _values),
    "values-backward": (STANDARD, partial(_values, calls=GRADIENTS)),
    "gradients": _row("calls with gradients", partial(kinds, calls=GRADIENTS), times=2 * TIMES),
    "gaps": _row("calls of tensors with gaps", partial(of_new_shapes, gaps=True)),
    "copies": _row("copies of 16 MiB", _copies, usual_is="within the host"),
    "products": _row("products of as many terms", _products),
    "products-float16": _row("products in float16", _IN_FLOAT16, STANDARD, usual_is="mm in float32"),
    "products-bfloat16": _row("products in bfloat16", _IN_BFLOAT16, STANDARD, usual_is="mm in float32"),
    "release": (SMOKE, _released),
    "peaks": (SMOKE, partial(_needs, made=_simple)),
    "peaks-gradients": (STANDARD, partial(_needs, made=_trained)),
    "blocks": (STANDARD, _blocks),
}
