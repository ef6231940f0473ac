"""Calls refused because of the values in tensors: no data is lost, and later results are right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from .rows import SMOKE, STANDARD, At, Row, T, numbered
from .state import CALLS, FEW, computed

Numbers: TypeAlias = tuple[float, ...]
NAN = float("nan")
#: Calls on ones (5, 4) and a tensor of numbers; the numbers that PyTorch accepts, and those it refuses on the CPU.
#: Where the result is random, the accepted numbers leave only one possible result.
DATA: Mapping[str, tuple[Callable[[T, T], T], Numbers, tuple[Numbers, ...]]] = {
    "nll_loss": (F.nll_loss, (3, 0, 1, 2, 3), ((3, 0, 1, 2, 4), (-1, 0, 1, 2, 3))),
    "nll_loss-images": (lambda x, n: F.nll_loss(x[:, :, None], n[:, None]), (3,) * 5, ((3, 3, 3, 3, 4), (-1,) * 5)),
    "nll_loss-ignored": (partial(F.nll_loss, ignore_index=1), (1, 0, 1, 2, 3), ((1, 0, 1, 2, -100), (4, 1, 1, 1, 1))),
    "cross_entropy": (F.cross_entropy, (0, 1, 2, 3, -100), ((0, 0, 0, 0, 4), (0, 0, 0, 0, -1))),
    "cross_entropy-weights": (lambda x, n: F.cross_entropy(x, n, weight=x[0], label_smoothing=0.25), (0, 1, 2, 3, 0),
        ((0, 0, 0, 0, 4), (0, -1, 0, 0, 0))),
    "multilabel_margin_loss": (lambda x, n: F.multilabel_margin_loss(x[0], n), (0, 3, -1, -1), ((0, 4, -1, -1),)),
    "floor-divide": (lambda _, n: torch.full_like(n, 60) // n, (1, -7), ((1, 0),)),
    "divide-truncated": (lambda _, n: torch.div(torch.full_like(n, 60), n, rounding_mode="trunc"), (1, -7), ((1, 0),)),
    "integer-power": (lambda _, n: torch.full_like(n, 2) ** int(n[0]), (3,), ((-1,),)),
    "multinomial-zeros": (lambda _, n: n.multinomial(1), (0.0, 1.0, 0.0), ((0.0, 0.0, 0.0), (NAN, 1.0, 0.0))),
    "multinomial-negative": (lambda _, n: n.multinomial(1), (0.0, 1.0, 0.0), ((1.0, -1.0, 1.0), (1.0, torch.inf, 0.0))),
    "bernoulli": (lambda _, n: torch.bernoulli(n), (0.0, 1.0), ((0.0, 1.25), (-0.25, 1.0))),
    "masked_scatter": (lambda x, n: x[0].masked_scatter(n > 0, 7 * x[1, :2]), (1, 0, 1, 0), ((1, 0, 1, 1),)),
    "item-of-nothing": (lambda _, n: n[n > 5].max(), (6, 1), ((5, 1),)),
    "repeat_interleave": (lambda x, n: x[0].repeat_interleave(n), (1, 0, 2, 1), ((1, 1, -1, 1), (1, -1, 0, 0))),
    "embedding_bag-offsets": (lambda x, n: F.embedding_bag(n.new_tensor((0, 1, 2)), x, n), (0, 2), ((0, 5), (1, 2))),
    "embedding_bag-weights": (lambda x, n: F.embedding_bag(n[None], x, per_sample_weights=x[:1, :2], mode="sum"),
        (0, 4), ((0, 5), (-1, 0))),
    "max_unpool2d": (lambda x, n: F.max_unpool2d(x[None, :1, :1], n[None, :, None], [2, 2]), (3,), ((4,), (-1,))),
    "max_unpool3d": (lambda x, n: F.max_unpool3d(x[None, :1, :1, None], n[None, :, None, None], [2, 2, 2]), (7,),
        ((8,), (-1,))),
    "bincount": (lambda _, n: torch.bincount(n), (1, 0), ((1, -1),)),
    "take_along_dim": (lambda x, n: x[0].take_along_dim(n), (0, 3), ((0, 4),)),
    "searchsorted": (lambda x, n: torch.searchsorted(x[0], x[1], sorter=n), (0, 1, 2, 3), ((0, 1, 2, 4), (-1,) * 4)),
    "binary_cross_entropy": (lambda x, n: F.binary_cross_entropy(n, x[0, :2]), (0.5, 1.0), ((0.5, 1.25), (-0.25, 1.0))),
    "binary_cross_entropy-targets": (lambda x, n: F.binary_cross_entropy(x[0, :2] / 2, n), (0.5, 1.0), ((0.5, 1.25),)),
    "gaussian_nll_loss": (lambda x, n: F.gaussian_nll_loss(x[0, :2], x[1, :2], n), (0.0, 1.0), ((1.0, -1.0),)),
    "cov": (lambda x, n: torch.cov(x[:, :2], fweights=n), (1, 2), ((1, -1),)),
    "scatter_reduce": (lambda x, n: x.scatter_reduce(0, n.expand(4, 2).mT, x[:2], "amax"), (0, 4), ((0, 5), (-1, 0))),
    "cholesky": (lambda _, n: torch.linalg.cholesky(torch.diag(n)), (1.0, 4.0), ((1.0, -4.0),)),
    "cholesky-batch": (lambda _, n: torch.linalg.cholesky(n[:, None, None]), (1.0, 4.0), ((1.0, -4.0),)),
    "inverse": (lambda _, n: torch.inverse(torch.diag(n)), (1.0, 4.0), ((1.0, 0.0),)),
    "ctc_loss": (lambda x, n: torch.ctc_loss(x[:, None].log_softmax(-1), n[None] * 0 + 1, [int(n)], [1]), (5,),
        ((9,),)),
}  # fmt: skip
#: Calls with indices into a matrix of five rows and columns, in several forms: CANN has an operator for each.
INDEXED: Mapping[str, tuple[Callable[[T, T], T], ...]] = {
    "getitem": (lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, i]),
    "setitem": (lambda x, i: x.index_put_((i,), _ones(x, i)),
        lambda x, i: x.index_put((i,), _ones(x, i), accumulate=True)),
    "index_select": (lambda x, i: x.index_select(0, i), lambda x, i: x.index_select(1, i)),
    "index_copy": (lambda x, i: x.index_copy_(0, i, _ones(x, i)), lambda x, i: x.index_copy(0, i, _ones(x, i))),
    "index_add": (lambda x, i: x.index_add_(0, i, _ones(x, i)), lambda x, i: x.index_add(0, i, _ones(x, i))),
    "index_fill": (lambda x, i: x.index_fill_(0, i, 0), lambda x, i: x.index_fill(0, i, 0)),
    "gather": (lambda x, i: x.gather(0, _rows(i)), lambda x, i: x.gather(1, _rows(i).mT)),
    "scatter": (lambda x, i: x.scatter_(0, _rows(i), _ones(x, i)),
        lambda x, i: x.scatter(0, _rows(i), _ones(x, i)), lambda x, i: x.scatter(0, _rows(i), 2.0)),
    "scatter_add": (lambda x, i: x.scatter_add_(0, _rows(i), _ones(x, i)),
        lambda x, i: x.scatter_add(0, _rows(i), _ones(x, i))),
    "take": (lambda x, i: x[0].take(i),),
    "put": (lambda x, i: x[0].put_(i, _ones(x, i)[:, 0]),),
    "embedding": (lambda x, i: F.embedding(i, x), lambda x, i: F.embedding_bag(i[None], x)),
}  # fmt: skip
#: Calls in which negative indices count from the end, calls that take int32, and the length of a long index list.
_FROM_END, _MANY = ("getitem", "setitem", "index_fill", "take", "put"), 2050
_OF_32_BITS = ("index_select", "index_add", "embedding")
#: Exceptions that PyTorch raises for numbers it refuses.
_RAISED = (RuntimeError, IndexError, ValueError, ZeroDivisionError)


def _ones(x: T, index: T) -> T:
    return torch.ones_like(x[:1]).expand(len(index), -1)


def _rows(index: T) -> T:
    return index.expand(5, len(index)).mT


def _calls_of(name: str) -> dict[str, tuple[Callable[[T, T], T], T, T]]:
    """Return the calls by name: the call, numbers that PyTorch accepts, and numbers that it refuses."""
    if name in DATA:
        call, taken, wrong = DATA[name]
        return {f"{name} of {each}": (call, torch.tensor(taken), torch.tensor(each)) for each in wrong}
    found = dict[str, tuple[Callable[[T, T], T], T, T]]()
    for number, form in enumerate(INDEXED[name], 1):
        right = torch.tensor((0, 4))
        for bad in (5, -6 if name in _FROM_END else -1, 2**32):  # the low 32 bits of 2**32 are those of the first row
            found[f"{name}, form {number}, index {bad}"] = form, right, torch.tensor((0, bad))
        many = torch.arange(_MANY) % 5
        found[f"{name}, form {number}, the last of {_MANY} indices"] = form, many, torch.cat([many[1:], right[-1:] + 1])
        if name in _OF_32_BITS:
            few = right.int()
            found[f"{name}, form {number}, index 5 in int32"] = form, few, few + 1
    return found


def _is_right(at: At, call: Callable[[T, T], T], x: T, numbers: T, cause: str) -> None:
    found, wanted = call(x.clone(), numbers.to(at.device)).cpu(), call(torch.ones(x.shape, dtype=x.dtype), numbers)
    at.holds(found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-3), cause)


@contextlib.contextmanager
def _unharmed(at: At, name: str) -> Iterator[None]:
    """Check that refused calls leave tensors, random state, card, stream and other calls unchanged."""
    # Allocations of the calls fall between two of these guards.
    guards = [numbered(25, place).to(at.device) for place in range(32)][::2]
    y = (numbered(7 * 64) % 64).float().view(7, 64).to(at.device)  # integers: sums are exact in any order
    torch.manual_seed(3)
    drawn = torch.rand(25, device=at.device)
    first = {each: computed(CALLS[each], y) for each in FEW}
    yield
    kept = torch.stack([numbered(25, place) for place in range(0, 32, 2)])
    at.same(torch.stack(guards).cpu(), kept, f"{name}: a call that was refused wrote to the memory of another tensor")
    again = torch.rand(25, device=at.device)
    at.holds(not torch.equal(drawn, again), f"{name}: after a call that was refused, random numbers begin again")
    at.same({each: computed(CALLS[each], y) for each in FEW}, first, f"{name}: other calls are wrong after it")


def refuses(at: At, call: Callable[[], object], kinds: tuple[type[Exception], ...] = _RAISED) -> bool:
    try:
        call()
        at.wait()
    except kinds:
        return True
    return False


def _refused(at: At, name: str, dtype: torch.dtype = torch.float32) -> None:
    base = torch.ones(16, 5 if name in INDEXED else 4, device=at.device, dtype=dtype)
    base[:5], base[10:] = 3, 3
    x = base[5:10]  # the memory around this view belongs to the same tensor
    with _unharmed(at, name):
        for said, (call, right, wrong) in _calls_of(name).items():
            _is_right(at, call, x, right, f"{said}: what is to be taken gives another result")
            target, given = x.clone(), wrong.to(at.device)
            is_refused = refuses(at, lambda: call(target, given).cpu())  # noqa: B023
            at.holds(is_refused, f"{said}: nothing is raised for numbers that PyTorch refuses")
            left, written = target.cpu(), torch.ones(x.shape, dtype=dtype)
            call(written, right)  # in-place calls may write some elements before one is refused
            is_kept = left.shape == x.shape and bool(((left == 1) | (left == written)).all())
            at.holds(is_kept, f"{said}: a call that was refused changed its input, or spoiled its target")
            cause = f"{said}: after a call that was refused, one that is not gives another result"
            _is_right(at, call, x, right, cause)
            with contextlib.suppress(*_RAISED):
                call(x, given).cpu()
            around = torch.cat([base[:5], base[10:]]).cpu()
            at.holds(
                bool((around == 3).all()), f"{said}: a call that was refused wrote around the view that it was given"
            )
            x.fill_(1)


def _of_cards(at: At, one: T, there: int) -> Mapping[str, Callable[[], object]]:
    """Return calls that name a card that does not exist, or tensors on two cards."""
    backend, beyond, here = at.backend, torch.device(at.device.type, there), one.cpu()
    asks = ("set_device", "synchronize", "get_device_properties", "mem_get_info", "memory_allocated", "current_stream",
        "memory_stats", "reset_peak_memory_stats", "default_stream", "get_device_name", "get_rng_state")  # fmt: skip
    return {
        **{name: partial(getattr(backend, name), there) for name in asks},
        "device": lambda: backend.device(there).__enter__(), "Stream": lambda: backend.Stream(beyond),
        "empty": lambda: torch.empty(1, device=beyond), "to": lambda: one.to(beyond), "copy": lambda: here.to(beyond),
        "peer": lambda: backend.can_device_access_peer(0, there),
        "add": lambda: one + here, "mm": lambda: one @ here, "cat": lambda: torch.cat([one, here]),
        "index": lambda: here[one.long()], "out=": lambda: torch.add(one, one, out=here),
        "linear": lambda: F.linear(one, here), "embedding": lambda: F.embedding(one.long(), here),
        "generator": lambda: one.bernoulli(generator=torch.Generator()),
    }  # fmt: skip


def _of_arguments(at: At, one: T, _: int) -> Mapping[str, Callable[[], object]]:
    """Return calls of memory, events and random states with invalid arguments, and errors that end a context."""
    backend, event = at.backend, partial(at.backend.Event, enable_timing=True)
    recorded, last = event(), backend.device_count() - 1
    recorded.record()
    there = torch.ones(2, 2, device=torch.device(at.device.type, last))  # torch_npu 2.13 crashes on an empty card

    def within(context: contextlib.AbstractContextManager[object]) -> None:
        with context:
            there.view(3)

    return {
        "randint": lambda: torch.randint(5, 5, (3,), device=at.device), "exponential_": lambda: one.exponential_(-1),
        "set_rng_state": lambda: backend.set_rng_state(torch.zeros(3, dtype=torch.uint8)),
        "fraction above 1": lambda: backend.set_per_process_memory_fraction(1.5),
        "fraction below 0": lambda: backend.set_per_process_memory_fraction(-0.5),
        "time of events that were not recorded": lambda: event().elapsed_time(event()),
        "time since an event that was not recorded": lambda: event().elapsed_time(recorded),
        "out=, which keeps its numbers": lambda: torch.add(one, torch.ones(3, device=one.device), out=one),
        "beyond its memory": lambda: one.as_strided((9,), (1,)), "numpy": one.numpy, "pin_memory": one.pin_memory,
        "a view on another stream": lambda: within(backend.stream(backend.Stream())),
        "a view on another card": lambda: within(backend.device(last)),
        "a view in inference mode": lambda: within(torch.inference_mode()),
        "a view under autocast": lambda: within(torch.autocast(at.device.type, torch.float16)),
    }  # fmt: skip


def _refused_calls(at: At, of: Callable[[At, T, int], Mapping[str, Callable[[], object]]]) -> None:
    backend, last = at.backend, torch.device(at.device.type, at.backend.device_count() - 1)
    one = torch.ones(2, 2, device=last)  # after an error, some runtimes switch to the first card
    with _unharmed(at, "the last of these calls"), backend.device(last):
        used = backend.current_device(), backend.current_stream()
        for name, call in of(at, one, backend.device_count()).items():
            is_refused = refuses(at, call, (*_RAISED, TypeError, AssertionError))
            at.holds(is_refused, f"{name}: nothing is raised for arguments that are refused elsewhere")
            now = backend.current_device(), backend.current_stream()
            at.holds(now == used, f"{name}: after it was refused, another card or another stream is in use")
            at.same((one + one).cpu(), torch.full((2, 2), 2.0), f"{name}: after it was refused, results are wrong")


def _out_of_memory(at: At) -> None:
    """Check that tensors that do not fit are refused, other tensors keep their values, and no memory is lost."""
    kept = numbered(2**18, 3).to(at.device)
    x = torch.ones(2**22, 1, device=at.device, requires_grad=True)
    doubled, last = x * x, torch.device(at.device.type, at.backend.device_count() - 1)
    elsewhere = numbered(2**10, 5).to(last)
    before = at.backend.memory_allocated()
    free, total = at.backend.mem_get_info()
    for size in (2**50, total + 2**30, free + 2**28):
        try:
            torch.empty(size, dtype=torch.uint8, device=at.device)
            at.holds(size <= free + 2**28, f"{size:,} bytes were allocated on a device of {total:,}")
        except RuntimeError as error:  # noqa: PERF203
            # The error type of all devices, as named in torch 2.1; older torch_npu raises a plain RuntimeError.
            is_named = isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in str(error).lower()
            at.holds(is_named, f"that {size:,} bytes are too many is told by a {type(error).__name__}: {error}"[:400])
    calls: dict[str, Callable[[], T]] = {
        "a product": lambda: x @ x.mT, "a sum": lambda: x + x.mT, "repeat": lambda: x.repeat(1, 2**20),
        "contiguous": lambda: x.expand(-1, 2**20).contiguous(), "pad": lambda: F.pad(x, (0, 2**20)),
    }  # fmt: skip
    with _unharmed(at, "after an out-of-memory error"):
        for name, call in calls.items():
            at.holds(refuses(at, call), f"{name} of 16 TiB is computed on a device of {total:,} bytes")
    at.holds(at.backend.memory_allocated() == before, "memory stays allocated after an out-of-memory error")
    gradient = torch.autograd.grad(doubled.sum(), x)[0]
    at.same(gradient.cpu(), torch.full((2**22, 1), 2.0), "a gradient is wrong after an out-of-memory error")
    at.same(elsewhere.cpu(), numbered(2**10, 5), "a tensor of another card is changed after an out-of-memory error")
    at.same(kept.cpu(), numbered(2**18, 3), "a tensor is changed after an out-of-memory error")
    at.same((kept + 1).cpu(), numbered(2**18, 3) + 1, "results are wrong after an out-of-memory error")
    at.backend.empty_cache()
    at.holds(at.backend.mem_get_info()[0] >= free - 2**26, "memory is lost after an out-of-memory error")
    size = min(2**28, free // 4)
    at.holds(torch.empty(size, dtype=torch.uint8, device=at.device).numel() == size, "no memory can be had any more")
    at.backend.empty_cache()
    size = at.backend.mem_get_info()[0] // 5
    cached = [torch.empty(size, dtype=torch.uint8, device=at.device) for _ in range(4)]
    del cached  # the allocator has to release this for what follows
    try:
        torch.empty(3 * size, dtype=torch.uint8, device=at.device)
    except RuntimeError as error:
        at.holds(False, f"what the allocator keeps is not given back for a tensor that needs it: {error}"[:400])


#: Computed on the host by some versions of torch_npu, so not at level smoke.
_LATER = ("cholesky", "inverse", "ctc_loss", "scatter_reduce")
REFUSALS: Mapping[str, Row] = {
    "out-of-memory": (SMOKE, _out_of_memory),
    "cards": (SMOKE, partial(_refused_calls, of=_of_cards)),
    "arguments": (SMOKE, partial(_refused_calls, of=_of_arguments)),
    **{
        name: (STANDARD if name.startswith(_LATER) else SMOKE, partial(_refused, name=name))
        for name in (*INDEXED, *DATA)
    },
    **{
        f"{name}-{dtype}": (STANDARD, partial(_refused, name=name, dtype=getattr(torch, dtype)))
        for name, dtype in product(INDEXED, ("float16", "int64"))
        if (name, dtype) != ("embedding", "int64")
    },
}
