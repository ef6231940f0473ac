"""Batteries over all ways of drawing: views and sizes, seeds and states, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_ascend.system.dispatching import torch_is_before

from .drawings import BY_THE_CPU, DRAWINGS, unwritten
from .statistics import Finding, chi_square

T = torch.Tensor
#: Elements of small drawings: beside the sizes of vectors and blocks.
SIZES = (0, 1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 64, 65, 127, 129, 257, 511, 513, 1000, 1025, 2049, 4095, 4097)
#: Name of a view -> shape of its memory, and the view.
VIEWS: Mapping[str, tuple[tuple[int, ...], Callable[[T], T]]] = {
    **{f"{size} elements": ((size + 2,), lambda x: x[1:-1]) for size in SIZES},
    "a number": ((3,), lambda x: x[1]),
    "transposed": ((61, 127), torch.t),
    "every second column": ((300, 34), lambda x: x[:, ::2]),
    "channels last": ((3, 17, 15, 16), lambda x: x.permute(0, 3, 1, 2)),
    "five dimensions": ((5, 7, 11, 3, 4), lambda x: x.permute(4, 1, 3, 0, 2)[1:]),
}


def _repeated(numbers: T, length: float) -> int:
    """Return how many runs of at least ``length`` numbers come again at another place."""
    hashed = numbers.double().view(torch.int64) * 0x9E3779B97F4A7C1
    hashed = hashed ^ hashed >> 29
    step = 1
    while step < length:
        hashed = hashed[:-step] * 0x2545F4914F6CDD1D + hashed[step:]
        hashed, step = hashed ^ hashed >> 31, step * 2
    return len(hashed) - len(torch.unique(hashed))


@cache
def _outside(name: str) -> T:
    """Return which elements of a view's memory lie beside it."""
    shape, view = VIEWS[name]
    beside = torch.ones(math.prod(shape), dtype=torch.bool)
    beside[view(torch.arange(len(beside)).view(shape)).flatten()] = False
    return beside


def in_all_views(device: torch.device) -> Iterator[Finding | str]:
    """Draw into views and in all small sizes: each element is drawn, nothing beside it, and no run comes again."""
    # torch_npu's random_() never draws the largest byte, nor True, and some functions fall back to the CPU: all these
    # have cases of their own.
    drawn_here = (each for each in DRAWINGS if each.dtypes[0] not in {"uint8", "bool"} and each.name not in BY_THE_CPU)
    for drawing in drawn_here:
        of, dtype, parts = drawing.distribution, drawing.dtypes[0], list[T]()
        if drawing.draw(whole := unwritten((128, 64), dtype, device)).shape != whole.shape:
            continue  # what it returns has a shape of its own
        for name, (shape, view) in VIEWS.items():
            memory = unwritten(shape, dtype, device)
            found = drawing.draw(view(memory)).cpu()
            beside = memory.cpu().flatten()[_outside(name)]
            if not bool((beside.isnan() | (beside == -11)).all()):
                yield f"{drawing.name}, {name}: what lies beside is written, too"
            if found.shape != view(memory).shape or not bool(of.possible(found).all()):
                yield f"{drawing.name}, {name}: not all of them are drawn"
            else:
                parts.append(found.flatten())
        numbers = torch.cat(parts)
        entropy = -sum(p * math.log2(p) for p in of.probabilities if p)
        if again := _repeated(numbers, 80 / entropy):
            yield f"{drawing.name}: {again:,} runs of numbers come again in other views or sizes"
        counts = torch.bincount(of.cell(numbers), minlength=len(of.probabilities))
        shares = torch.tensor(of.probabilities, dtype=torch.float64)
        yield Finding(f"{drawing.name} in small sizes and views", chi_square(counts[None], shares)[0])


#: Up to some version after 2.1, torch keeps states of random numbers only for tensors that are arguments themselves.
_RECOMPUTED: Mapping[str, Callable[[T], T]] = {
    "dropout of a list, recomputed": lambda x: checkpoint(lambda of: F.dropout(of[0], 0.3), [x], use_reentrant=False)
}
#: Functions that multiply each element by a number drawn for it, or for its channel.
_SCALING: Mapping[str, Callable[[T], T]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout in place": lambda x: F.dropout(x * 1, 0.3, inplace=True),
    "dropout1d": lambda x: F.dropout1d(x[0], 0.3),
    "dropout2d": lambda x: F.dropout2d(x, 0.3),
    "dropout3d": lambda x: F.dropout3d(x[None], 0.3),
    "native_dropout": lambda x: torch.native_dropout(x, 0.3, train=True)[0],
    "rrelu": lambda x: F.rrelu(x, 0.125, 0.375, training=True),
    "rrelu in place": lambda x: F.rrelu_(x * 1, 0.125, 0.375, training=True),
    "dropout of a module": nn.Dropout(0.3),
    "dropout, recomputed": lambda x: checkpoint(nn.Dropout(0.3), x, use_reentrant=False),
    **({} if torch_is_before(2, 7) else _RECOMPUTED),
}


def gradients(device: torch.device) -> Iterator[str]:
    """Check that each gradient has the factors of its result, also the second time, and after other draws."""
    for dtype in (torch.float32, torch.float16) if device.type != "cpu" else (torch.float32,):
        dense = -torch.ones(3, 20, 30, 33, device=device, dtype=dtype)
        for how, x in {
            "dense": dense,
            "transposed": dense.mT,
            "channels last": dense.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        }.items():
            for name, function in _SCALING.items():
                leaf = x.detach().requires_grad_()
                found = function(leaf)
                function(x)
                for turn in ("", " the second time"):
                    (gradient,) = torch.autograd.grad(found, leaf, torch.ones_like(found), retain_graph=True)
                    if not torch.equal(-found, gradient[0] if name == "dropout1d" else gradient.view_as(found)):
                        yield f"{name}, {dtype}, {how}: its gradient has other factors than its result{turn}"


def seeds(device: torch.device) -> Iterator[str]:
    """Seed, keep and restore the state in all ways: the same numbers follow, and the CPU's generator is not touched."""
    if device.type == "cpu":
        return
    backend = getattr(torch, device.type)

    def numbers(**how: Any) -> T:
        return torch.rand(99, device=device, **how).cpu()

    own = backend.default_generators[device.index or 0]
    backend.manual_seed(5)
    first, second, state = numbers(), numbers(), backend.get_rng_state(device)
    kept, third = state.clone(), numbers()
    told = {"the module's": backend.initial_seed(), "the generator's": own.initial_seed()}

    ways: Mapping[str, tuple[Callable[[], Any], T]] = {
        "torch.manual_seed()": (lambda: torch.manual_seed(5), first),
        "manual_seed() of the default generator": (lambda: own.manual_seed(5), first),
        "manual_seed() in another thread": (lambda: pool.submit(backend.manual_seed, 5).result(), first),
        "a state that was kept": (lambda: backend.set_rng_state(kept, device), third),
        "a state of the default generator": (lambda: own.set_state(kept), third),
        "a state that was kept and drawn from before": (lambda: backend.set_rng_state(state, device), third),
    }
    with ThreadPoolExecutor(1, initializer=partial(backend.set_device, device)) as pool:
        drawing: Mapping[str, Callable[[], T]] = {
            "": numbers,
            " in another thread": lambda: pool.submit(numbers).result(),
        }
        for name, (prepare, wanted) in ways.items():
            for where, draw in drawing.items():
                torch.manual_seed(8)
                draw()
                prepare()
                if not torch.equal(draw(), wanted):
                    yield f"{name}: other numbers follow{where}"
    backend.manual_seed(5)
    if not torch.equal(torch.stack([numbers(generator=own), numbers()]), torch.stack([first, second])):
        yield "the default generator that is passed draws another sequence"
    yield from (f"{name} initial_seed() is not the seed" for name, seed in told.items() if seed != 5)
    of_cpu = torch.get_rng_state()
    backend.manual_seed(6)
    if not torch.equal(torch.get_rng_state(), of_cpu):
        yield "to seed the device seeds the CPU"
