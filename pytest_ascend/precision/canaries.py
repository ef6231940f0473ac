"""Canaries: corrupted copies of the device's result, which a case's judgement has to reject.

A limit that accepts zeros, or another call's result, proves nothing when it accepts the device's. A case that accepts
one of its canaries is reported as blind.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.system.dispatching import no_dispatch

T = TypeVar("T")
#: The share of cases that plant canaries, by level; cases are selected by their IDs.
SHARES = {"smoke": 0.0, "standard": 0.004, "full": 1.0}
#: A change below this share of the largest number, or below this many of its ulp, is not a canary.
LEAST, LEAST_ULPS = 2.0**-6, 16
#: The next shorter format. The other short formats are as close to float16 as its functions are to correct results.
_SHORTER = {torch.float64: torch.float32, torch.float32: torch.float16}
#: The latest tensor of each shape and dtype from earlier comparisons.
_last: dict[tuple[torch.Size, torch.dtype], Tensor] = {}


def _one_of(right: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    alike = (x for x in others if x.shape == right.shape and x.dtype is right.dtype)
    return next((each for each in alike if is_wrong(each, right)), None)


def _one_element(right: Tensor, draw: random.Random) -> Tensor:
    wrong = right.clone(memory_format=torch.contiguous_format)
    flat, size = wrong.view(-1), _size(wrong).reshape(-1)
    large = (size >= size.square().mean().sqrt()).nonzero().reshape(-1)
    at = int(large[draw.randrange(len(large))]) if len(large) else 0
    is_inexact = wrong.is_floating_point() or wrong.is_complex()
    flat[at] = ~flat[at] if wrong.dtype is torch.bool else -flat[at] if is_inexact else flat[at] ^ 1
    return wrong


def _one_row(right: Tensor) -> Tensor | None:
    if right.dim() < 2 or min(right.shape[-2:]) < 2:
        return None
    wrong = right.clone()
    wrong[..., 0, :] = right[..., 1, :]
    return wrong


def _half(right: Tensor) -> Tensor | None:
    shorter = _SHORTER.get(right.dtype)
    rounded = right.to(shorter).to(right.dtype) if shorter else None
    return rounded if rounded is not None and bool(rounded.isfinite().equal(right.isfinite())) else None


#: Kinds of canaries. Each function takes a tensor, the inputs, the other results and a random generator, and returns
#: a wrong result to put in the tensor's place, or None if there is none.
CANARIES: Mapping[str, Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], random.Random], Tensor | None]] = {
    "zeros": lambda right, *_: torch.zeros_like(right),
    "ones": lambda right, *_: torch.ones_like(right),
    "an input": lambda right, inputs, *_: _one_of(right, inputs),
    "a neighbour's result": lambda right, _, neighbours, __: _one_of(right, neighbours),
    "the last call's result": lambda right, *_: _one_of(right, [*_last.values()]),
    "one element": lambda right, _, __, draw: _one_element(right, draw),
    "one row": lambda right, *_: _one_row(right),
    "half precision": lambda right, *_: _half(right),
    "shuffled": lambda x, _, __, draw: x.reshape(-1)[draw.sample(range(x.numel()), x.numel())].reshape(x.shape),
}
#: Larger tensors are not altered: they would show nothing new.
_LARGEST = 1 << 16


def _size(tensor: Tensor) -> Tensor:
    return (tensor.abs() if tensor.is_complex() else tensor.double().abs()).nan_to_num(0.0, 0.0, 0.0)


def is_wrong(tensor: Tensor, right: Tensor, least: float = LEAST) -> bool:
    """Return whether a result differs from the correct one by more than rounding."""
    if not (right.is_floating_point() or right.is_complex()):
        return not tensor.equal(right)
    finite = right.isfinite() & tensor.isfinite()
    largest = _size(right.where(finite, torch.zeros_like(right))).max()
    off = _size((tensor - right).where(finite, torch.zeros_like(right))).max()
    info = torch.finfo(right.dtype)
    return bool(off > max(least, LEAST_ULPS * info.eps) * max(float(largest), info.tiny))


@dataclass(frozen=True, slots=True)
class Canaries:
    """Plants canaries in the results of one case; ``accepted`` collects the kinds that its judgement accepts."""

    case: str
    accepted: list[str]
    planted: list[int] = field(default_factory=lambda: [0])

    @staticmethod
    def of(case: str, level: str, accepted: list[str]) -> Canaries | None:
        """Return the canaries of a case at a level; None if the case plants none."""
        return Canaries(case, accepted) if zlib.crc32(case.encode()) < SHARES[level] * 2**32 else None

    def one_of(self, places: Sequence[T]) -> T:
        """Return the one of several results in which canaries are planted, chosen by the case's ID."""
        return random.Random(self.case).choice(places)  # noqa: S311 - no secret

    def plant(self, actual: Any, accepts: Callable[[Any], bool], inputs: Any = ()) -> None:
        """Pass wrong variants of the device's correct result ``actual``, one of each kind, to ``accepts``."""
        with no_dispatch():
            right = mapped(actual, lambda each: each.detach().cpu())
            for kind, wrong in self._altered(right, tensors_in(inputs)):
                self.planted[0] += 1
                if kind not in self.accepted and accepts(wrong):
                    self.accepted.append(kind)

    def _altered(self, right: Any, inputs: Sequence[Tensor]) -> Iterator[tuple[str, Any]]:
        """Yield each kind of canary, with the correct result in which one tensor is replaced by it."""
        draw, tensors = random.Random(self.case), tensors_in(right)  # noqa: S311 - no secret
        places = [place for place, each in enumerate(tensors) if 0 < each.numel() <= _LARGEST]
        given = [each.detach().cpu() for each in inputs] if places else []
        for kind, make in CANARIES.items():
            for place in draw.sample(places, len(places)):
                before, (tensor, *after) = tensors[:place], tensors[place:]
                wrong = make(tensor, given, [*before, *after], draw)
                least = 2.0**-18 if kind == "half precision" else LEAST  # as small as the rounding of another format
                if wrong is not None and is_wrong(wrong, tensor, least):
                    every = iter([*before, wrong, *after])
                    yield kind, mapped(right, lambda _: next(every))  # noqa: B023 - called at once
                    break
        _last.update(((tensors[place].shape, tensors[place].dtype), tensors[place]) for place in places[:64])
        while len(_last) > 64:
            del _last[next(iter(_last))]
