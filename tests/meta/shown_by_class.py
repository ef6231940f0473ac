"""Calls that show the faults of ``spoiled_by_class``: each is made on a device with its fault, and on the CPU.

A fault whose call gives the same as the CPU, or cannot be made, does not count. What is asked of streams, clocks,
memory and random numbers is whether something holds; the CPU, for which most has no meaning, gives the right answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from suites.runtime.soaks import host_bytes

T = torch.Tensor
Call = Callable[[torch.device], Any]
MIB = 1 << 20


def shows(name: str) -> bool:
    """Whether the device differs from the CPU in the call for this fault."""
    npu, cpu = (_fetched(_call_of(name)(torch.device(each))) for each in ("npu", "cpu"))
    try:
        torch.testing.assert_close(npu, cpu, rtol=1e-3, atol=1e-5, equal_nan=True)
    except AssertionError:
        return True
    return False


def _call_of(name: str) -> Call:
    from tests.meta.invented_by_class import FAULTS

    return CALLS.get(name) or next(each[name][1] for each in FAULTS.values() if name in each)


def _fetched(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return [_fetched(each) for each in found]
    return found.detach().cpu() if isinstance(found, T) else found


def _x(*shape: int, seed: int = 0) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _repeated(function: Callable[[T], T], times: int) -> Call:
    return lambda d: [function(_x(4, 4, seed=i).to(d)).cpu() for i in range(times)]


def _after_backward(function: Callable[[T], T], what: str) -> Call:
    """Return what the input, the result, or the gradient of the result is after a backward pass."""

    def call(d: torch.device) -> T:
        x = _x(4, 8).to(d).requires_grad_()
        y = function(x)
        above = _x(4, 8, seed=1).to(d)
        torch.autograd.grad(y, x, above)
        return {"input": x, "result": y, "gradient": above}[what]

    return call


def _of_list(function: Callable[[list[T]], Any], count: int) -> Call:
    return lambda d: list(function([(_x(5, seed=i).abs() + i + 1).to(d) for i in range(count)]))


def _scaled(d: torch.device) -> T:
    scale, tracker = torch.tensor([8.0], device=d), torch.zeros(1, dtype=torch.int32, device=d)
    for _ in range(2):
        torch._amp_update_scale_(scale, tracker, torch.zeros(1, device=d), 2.0, 0.5, 3)
    return scale


def _unscaled(d: torch.device) -> T:
    gradient, found = torch.ones(2048, device=d), torch.zeros(1, device=d)
    gradient[-1] = torch.inf
    torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, torch.ones(1, device=d))
    return found


def _between(change: Callable[[T], object]) -> Call:
    """Change the odd columns, and return the even ones."""

    def call(d: torch.device) -> T:
        x = torch.zeros(8, 2, device=d)
        change(x[:, 1])
        return x[:, 0]

    return call


def _graph(function: Callable[[T], T], *shape: int) -> Call:
    def call(d: torch.device) -> list[T]:
        x = _x(*shape).to(d).requires_grad_()
        y = function(x)
        return [y, *torch.autograd.grad(y.square().sum(), x)]

    return call


def _raises(function: Callable[[torch.device], Any]) -> Call:
    def call(d: torch.device) -> bool:
        try:
            function(d).cpu()
        except (RuntimeError, IndexError):
            return True
        return False

    return call


def _i(d: torch.device, *values: int) -> T:
    return torch.tensor(values, device=d)


def _here(function: Callable[[torch.device], bool]) -> Call:
    """Return a call that asks whether the device is right; the CPU is."""
    return lambda d: d.type == "cpu" or function(d)


def _late(*ways: str) -> Call:
    """Compute in a stream of its own, copy to pinned memory, wait in one way, and look at once."""

    def call(d: torch.device) -> bool:
        stream, event = torch.npu.Stream(), torch.npu.Event()
        x, host = torch.ones(4096, device=d), torch.zeros(4096).pin_memory()
        torch.npu.synchronize()
        with torch.npu.stream(stream):
            y = x + 1
            for _ in range(40):
                y.add_(1).sub_(1)
            host.copy_(y, non_blocking=True)
            event.record(stream)
        for way in ways:
            owner, name = way.split(".")
            asked = getattr({"stream": stream, "event": event, "npu": torch.npu}[owner], name)
            while asked() is False:
                time.sleep(0.001)
        return bool((host == 2).all())

    return _here(call)


def _second(turns: int, *, early: bool = False) -> Call:
    """A second stream waits for an event of the first, which may have been recorded before."""

    def call(d: torch.device) -> bool:
        one, two, event = torch.npu.Stream(), torch.npu.Stream(), torch.npu.Event()
        found = []
        for _ in range(turns):
            x = torch.ones(1 << 20, device=d)
            torch.npu.synchronize()
            event = event if early else torch.npu.Event()
            if early:
                event.record(one)
            with torch.npu.stream(one):
                for _ in range(40):
                    x.add_(1).sub_(1)
                x.mul_(3)
            event.record(one)
            two.wait_event(event)
            with torch.npu.stream(two):
                found.append(x * 2)
            torch.npu.synchronize()
        return all(bool((each.cpu() == 6).all()) for each in found)

    return _here(call)


def _ordered(pinned: bool) -> Call:
    """Copies and kernels take turns in one stream, all given before any of them is done."""

    def call(d: torch.device) -> list[T]:
        x, target = torch.zeros(4096, device=d), torch.zeros(4096)
        source = torch.ones(4096)
        if d.type == "npu" and pinned:
            target, source = target.pin_memory(), source.pin_memory()
            torch.npu.synchronize()
        x.copy_(source, non_blocking=True)
        y = x * 2
        for _ in range(40):
            y.add_(1).sub_(1)
        y.add_(1)
        target.copy_(y, non_blocking=True)
        if d.type == "npu":
            torch.npu.synchronize()
        return [y, target.clone()]

    return call


def _counted(d: torch.device) -> T:
    x = torch.ones(64, device=d)
    for _ in range(400):
        x.mul_(0.5).add_(1).mul_(2).sub_(1)
    return x


def _timed(right: Callable[[float, float], bool]) -> Call:
    def call(d: torch.device) -> bool:
        x, ends = torch.rand(1024, 1024, device=d), [torch.npu.Event(enable_timing=True) for _ in range(2)]
        torch.npu.synchronize()
        start = time.perf_counter()
        ends[0].record()
        for _ in range(8):
            x @ x
        ends[1].record()
        torch.npu.synchronize()
        return right(ends[0].elapsed_time(ends[1]), (time.perf_counter() - start) * 1e3)

    return _here(call)


def _takes(function: Callable[[T], T], like: Callable[[T], T], size: int = 1) -> Call:
    """Whether one call takes no more than ten times what another does: the least of nine each."""

    def least(call: Callable[[T], T], x: T) -> float:
        took = []
        for _ in range(9):
            start = time.perf_counter()
            call(x)
            torch.npu.synchronize()
            took.append(time.perf_counter() - start)
        return min(took)

    return _here(lambda d: least(function, _x(size, size).to(d)) < 10 * least(like, _x(size, size).to(d)))


def _keeps(function: Callable[[T], object], calls: int = 1000) -> Call:
    """Whether the process holds at most 16 MiB more after so many calls."""

    def call(d: torch.device) -> bool:
        x, before = _x(8, 8).to(d), 0
        for i in range(calls + 50):
            before = host_bytes() if i == 50 else before
            function(x)
        torch.npu.synchronize()
        return host_bytes() - before < 16 * MIB

    return _here(call)


def _pins(_: T) -> None:
    torch.ones(4 * MIB).pin_memory()
    torch.npu.synchronize()
    torch.npu.host_empty_cache()


def _freed(d: torch.device) -> bool:
    torch.zeros(1, device=d)
    before = torch.npu.mem_get_info()[0]
    torch.empty(256 * MIB, dtype=torch.uint8, device=d)
    torch.npu.empty_cache()
    return bool(before - torch.npu.mem_get_info()[0] < 64 * MIB)


def _after_none_left(d: torch.device) -> bool:
    x = torch.ones(4096, device=d)
    with contextlib.suppress(RuntimeError):
        torch.empty(1 << 50, dtype=torch.uint8, device=d)
    try:
        return bool((x.cpu() == 1).all()) and torch.empty(64 * MIB, device=d).numel() > 0
    except RuntimeError:
        return False


def _moved(count: int, dtype: torch.dtype, way: Callable[[T, torch.device], T]) -> Call:
    def call(d: torch.device) -> T:
        for where in (d, torch.device("cpu")):
            torch.full((count,), 7, dtype=dtype, device=where)  # what memory holds that is used again
        return way((torch.arange(count) % 97 + 1).to(dtype), d).cpu()

    return call


def _last(d: torch.device) -> torch.device:
    return d if d.type == "cpu" else torch.device("npu", torch.npu.device_count() - 1)


def _masks_agree(d: torch.device) -> bool:
    one, two = (F.dropout(torch.ones(1000, device=d), 0.5) for _ in range(2))
    return bool((one == two).all())


CALLS: Mapping[str, Call] = {
    "MM_STALE": _repeated(lambda x: x @ x, 20),
    "EXP_STALE": _repeated(torch.exp, 20),
    "SOFTMAX_STALE": _repeated(lambda x: x.softmax(-1), 40),
    "ADD_KEEPS_ALPHA": lambda d: [torch.add(_x(4).to(d), _x(4, seed=1).to(d), alpha=i).cpu() for i in (1, 2)],
    "MUL_STALE": _repeated(lambda x: x * x, 200),
    "SUM_STALE": _repeated(lambda x: x.sum(-1), 80),
    "SAVED_SOFTMAX_CHANGED": _after_backward(lambda x: x.softmax(-1), "result"),
    "GRADIENT_CHANGED": _after_backward(torch.tanh, "gradient"),
    "INPUT_CHANGED": lambda d: [x := _x(4, 4).to(d), x @ _x(4, 4).to(d)],
    "SIGMOID_SAVED_CHANGED": _after_backward(torch.sigmoid, "result"),
    "LAYER_NORM_GRADIENT_CHANGED": _after_backward(lambda x: F.layer_norm(x, (8,)), "gradient"),
    "GELU_INPUT_CHANGED": _after_backward(lambda x: F.gelu(x, approximate="tanh"), "input"),
    "LERP_NOT_BEYOND_8": _of_list(lambda x: torch._foreach_lerp(x, x[::-1], 0.5), 24),
    "ADDCDIV_NOT_BEYOND_4": _of_list(lambda x: torch._foreach_addcdiv(x, x, x, 0.5), 40),
    "NORM_OF_FIRST": _of_list(torch._foreach_norm, 3),
    "SQRT_NOT_BEYOND_8": _of_list(torch._foreach_sqrt, 24),
    "MAXIMUM_KEEPS_FIRST": _of_list(lambda x: torch._foreach_maximum(x, x[::-1]), 3),
    "OVERFLOW_OF_FIRST_1024": _unscaled,
    "SCALE_GROWS_EARLY": _scaled,
    "NORMAL_MIRRORED": lambda d: bool((x := torch.randn(1024, device=d))[512:].add(x[:512]).abs().max() < 1e-3),
    "UNIFORM_REPEATS": lambda d: bool(((x := torch.rand(1 << 17, device=d))[1 << 16 :] == x[: 1 << 16]).all()),
    "UNIFORM_INTO_GAPS": _between(lambda x: x.uniform_(1, 2)),
    "UNIFORM_TAKES_END": lambda d: bool((torch.rand(1 << 16, device=d) == 1).any()),
    "PERMUTATION_LAST_STAYS": lambda d: all(int(torch.randperm(50, device=d)[-1]) == 49 for _ in range(5)),
    "MULTINOMIAL_SORTED": lambda d: all(
        bool((torch.ones(50, device=d).multinomial(8).diff() > 0).all()) for _ in range(5)
    ),
    "MASK_IGNORES_OFFSET": _masks_agree,
    "INTEGERS_TO_THE_END": lambda d: bool((torch.empty(999, device=d).random_(0, 4) == 4).any()),
    "VARIANCE_BY_SQUARES": lambda d: (_x(4, 4097) + 1000).to(d).var(-1),
    "MEAN_IN_HALF": lambda d: torch.full((8192,), 700.0, dtype=torch.float16).to(d).mean(),
    "SOFTMAX_OF_1024": lambda d: torch.zeros(2, 4096).to(d).softmax(-1),
    "CARRY_LOST": lambda d: torch.ones(10000).to(d).cumsum(0),
    "NORM_OVERFLOWS": lambda d: torch.linalg.vector_norm(torch.full((4,), 300.0, dtype=torch.float16).to(d)),
    "WEIGHTS_OF_64_ROWS": _graph(lambda w: F.layer_norm(_x(200, 8).to(w.device), (8,), w), 8),
    "EXPONENTS_CUT": lambda d: torch.tensor([100.0, 90.0]).to(d).logsumexp(-1),
    "PADDING_0_IGNORED": _graph(lambda w: F.embedding(_i(w.device, 0, 2, 0), w, padding_idx=0), 4, 3),
    "NORM_EPS_FIXED": _graph(lambda x: F.batch_norm(x, None, None, training=True, eps=1.0), 8, 3),
    "GROUP_EPS_FIXED": _graph(lambda x: F.group_norm(x, 2, eps=1.0), 2, 4, 6),
    "LAYER_EPS_FIXED": _graph(lambda x: F.layer_norm(x, (8,), eps=1.0), 2, 8),
    "SMOOTHING_IN_HALF": lambda d: (_x(4, 9) * 300).to(d).log_softmax(-1),
    "SELECT_CLAMPS": _raises(lambda d: torch.ones(3, device=d).index_select(0, _i(d, 0, 5))),
    "GATHER_CLAMPS": _raises(lambda d: torch.ones(3, device=d).gather(0, _i(d, 0, 5))),
    "EMBEDDING_CLAMPS": _raises(lambda d: F.embedding(_i(d, 0, 5), torch.ones(3, 2, device=d))),
    "SCATTER_ADD_CLAMPS": _raises(
        lambda d: torch.ones(3, device=d).scatter_add(0, _i(d, 0, 5), torch.ones(2, device=d))
    ),
    "INDEX_ADD_CLAMPS": _raises(lambda d: torch.ones(3, device=d).index_add(0, _i(d, 0, 5), torch.ones(2, device=d))),
    "FLOOR_BY_ZERO": _raises(lambda d: _i(d, 5, 6) // _i(d, 1, 0)),
    "CAT_NOT_BEYOND_16": lambda d: torch.cat([torch.ones(3, device=d)] * 20),
    "CAST_BY_FLOAT": lambda d: torch.tensor([(1 << 24) + 1]).to(d).int().cpu() - (1 << 24),
    "ROLL_POSITIVE": lambda d: torch.arange(9).to(d).roll(-1),
    "FILL_OF_GAPS": _between(lambda x: x.fill_(1)),
    "FLIP_FIRST": lambda d: _x(3, 4).to(d).flip(0, 1),
    "COPY_OF_FIVE": lambda d: _x(2, 2, 2, 2, 2, 3).to(d).transpose(0, 5).contiguous(),
    "MASK_OF_65536": lambda d: torch.ones(70000).to(d).masked_select(torch.ones(70000).bool().to(d)),
    "ADD_SLOW": _takes(lambda x: x + x, lambda x: x * x),
    "MM_SLOW": _takes(lambda x: x @ x, lambda x: x * x, 16),
    "EXP_SLOW": _takes(torch.exp, lambda x: x * x),
    "MUL_KEEPS": _keeps(lambda x: x * x),
    "ADD_KEEPS": _keeps(lambda x: x + x),
    "stream-synchronize-returns": _late("stream.synchronize"),
    "stream-device-waits-for-one": _late("npu.synchronize"),
    "stream-event-returns": _late("event.synchronize"),
    "stream-query-lies": _late("stream.query"),
    "stream-event-query-lies": _late("event.query"),
    "stream-copies-overtake": _ordered(pinned=True),
    "stream-wait-is-ignored": _second(1),
    "stream-third-wait-is-ignored": _second(6),
    "stream-event-keeps-first": _second(2, early=True),
    "stream-paged-copies-overtake": _ordered(pinned=False),
    "stream-kernels-overtake": _ordered(pinned=True),
    "stream-loses-tasks": _counted,
    "stream-swaps-tasks": _counted,
    "event-measures-nothing": _timed(lambda took, _: took > 0),
    "event-measures-twice": _timed(lambda took, host: took < 1.3 * host),
    "copy-cut-at-4-mib": _moved(2 * MIB, torch.int32, lambda x, d: x.to(d)),
    "copy-repeats-16-mib": _moved(8 * MIB, torch.int32, lambda x, d: x.to(d)),
    "copy-loses-odd-bytes": _moved(1003, torch.uint8, lambda x, d: x.to(d)),
    "copy-between-loses-end": _moved(4000, torch.int32, lambda x, d: x.to(d).to(_last(d))),
    "copy-to-device-loses-page": _moved(2 * MIB, torch.int32, lambda x, d: x.to(d)),
    "copy-is-slow": _takes(lambda x: x.cpu(), lambda x: x * x, 1024),
    "memory-is-not-freed": _here(_freed),
    "memory-pinned-is-kept": _keeps(_pins, 20),
    "memory-host-leak": _keeps(lambda x: x.cpu()),
    "memory-is-lost-with-none-left": _here(_after_none_left),
    "memory-stays-out": _here(_after_none_left),
}
