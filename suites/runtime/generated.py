"""Generated programs, beside the same on the CPU: over several streams, and of views that are read, copied and written.

Each is drawn from a seed, which a failure names with the program's steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from pytest_ascend.run.inputs import Chance

from .rows import CPU, SMOKE, STANDARD, At, Row, T, numbered
from .streams import COUNT, polled

#: Buffers of a program over streams, and its steps.
_BUFFERS, _STEPS = 4, 40


@dataclass(slots=True)
class _Buffer:
    """A tensor, what it should hold, the stream that made it, and by stream the last step that read or wrote it."""

    there: T
    wanted: T
    made_on: int
    read: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)


def _recorded(backend: Any, stream: Any) -> Any:
    event = backend.Event()
    event.record(stream)
    return event


#: How the host waits for a stream, and how a stream waits for another one.
_HOST_WAITS: Mapping[str, Callable[[Any, Any], object]] = {
    "synchronize": lambda backend, _: backend.synchronize(),
    "Stream.synchronize": lambda _, stream: stream.synchronize(),
    "Event.synchronize": lambda backend, stream: _recorded(backend, stream).synchronize(),
    "Stream.query": lambda _, stream: polled(stream.query),
    "Event.query": lambda backend, stream: polled(_recorded(backend, stream).query),
}
_WAITS: Mapping[str, Callable[[Any, Any, Any], object]] = {
    "wait_stream": lambda _, stream, other: stream.wait_stream(other),
    "wait_event": lambda backend, stream, other: stream.wait_event(_recorded(backend, other)),
    "record_event": lambda _, stream, other: stream.wait_event(other.record_event()),
    "Event.wait": lambda backend, stream, other: _recorded(backend, other).wait(stream),
}


class _OverStreams:
    """A program over four streams, in which each step waits for what it needs, in a way that is drawn, and no more.

    ``seen[s][t]`` is the last step of stream t that the next step of stream s comes after.
    """

    def __init__(self, at: At, seed: int) -> None:
        self.at, self.chance, self.steps = at, Chance(f"generated/streams/{seed}"), list[str]()
        new = at.backend.Stream
        self.streams = (at.backend.current_stream(), new(), new(priority=-1), new())
        self.done = [0] * len(self.streams)
        self.seen = [[0] * len(self.streams) for _ in self.streams]
        filled = (numbered(COUNT, 9 * each) for each in range(_BUFFERS))
        self.buffers = [_Buffer(each.to(at.device), each, 0) for each in filled]
        self.copies = list[tuple[T, T, int]]()  # to the host: target, what it should hold, and stream

    def run(self) -> None:
        here = partial(self.at.backend.set_device, self.at.backend.current_device())
        steps = [step for step, often in _OFTEN.items() for _ in range(often)]
        with ThreadPoolExecutor(1, initializer=here) as other:
            self.at.wait()
            for number in range(_STEPS):
                step, place = self.chance.of(steps), self.chance.below(len(self.streams))
                self.steps.append(f"{step.__name__} in stream {place}")
                call = partial(self._on, place, step)
                other.submit(call).result() if number % 8 == 5 else call()
        self.at.wait()
        for buffer in self.buffers:
            self._holds(buffer.there.cpu(), buffer.wanted)
        for target, wanted, _ in self.copies:
            self._holds(target, wanted)

    def _on(self, place: int, step: Callable[[_OverStreams, int], None]) -> None:
        with self.at.backend.stream(self.streams[place]):
            step(self, place)

    def _holds(self, found: T, wanted: T) -> None:
        if not torch.equal(found, wanted):
            self.at.holds(False, f"numbers are wrong, as if a step came too early: {'; '.join(self.steps[-16:])}")

    def _uses(self, place: int, *, reads: tuple[_Buffer, ...] = (), writes: tuple[_Buffer, ...] = ()) -> None:
        """Have a stream wait for what its next step needs, and note what that step uses."""
        for used in [each.written for each in (*reads, *writes)] + [each.read for each in writes]:
            for other, step in used.items():
                if other != place and self.seen[place][other] < step:
                    self._waits(place, other)
        self.done[place] += 1
        for each, used in [(each, each.read) for each in reads] + [(each, each.written) for each in writes]:
            used[place] = self.done[place]
            if each.made_on != place:
                each.there.record_stream(self.streams[place])

    def _waits(self, place: int | None, other: int) -> None:
        """Have a stream, or the host, wait for what another one does so far."""
        if place is None or self.chance.below(3) == 0:
            way, said, later = self.chance.of([*_HOST_WAITS]), "the host", range(len(self.streams))
            _HOST_WAITS[way](self.at.backend, self.streams[other])  # which starts all that follows
        else:
            way, said, later = self.chance.of([*_WAITS]), f"stream {place}", range(place, place + 1)
            _WAITS[way](self.at.backend, self.streams[place], self.streams[other])
        self.steps.append(f"{said} waits for stream {other} by {way}")
        over = range(len(self.streams)) if way == "synchronize" else (other,)
        so_far = [[max(self.seen[each][t], self.done[t] * (t == each)) for t in range(len(self.done))] for each in over]
        for each in later:
            self.seen[each] = [max(some) for some in zip(self.seen[each], *so_far, strict=True)]

    def adds(self, place: int) -> None:
        buffer, more = self.chance.of(self.buffers), 1 + self.chance.below(99)
        self._uses(place, writes=(buffer,))
        buffer.there.add_(more)
        buffer.wanted = buffer.wanted + more

    def copies_between(self, place: int) -> None:
        source, target = self.chance.of(self.buffers), self.chance.of(self.buffers)
        self._uses(place, reads=(source,), writes=(target,))
        target.there.copy_(source.there)
        target.wanted = source.wanted

    def replaces(self, place: int) -> None:
        """Compute a new tensor, and let go of the old one, whose memory is used again."""
        one, other, number = self.chance.of(self.buffers), self.chance.of(self.buffers), self.chance.below(_BUFFERS)
        self._uses(place, reads=(one, other))
        made = _Buffer(one.there * 3 + other.there, one.wanted * 3 + other.wanted, place)
        made.written[place] = self.done[place]
        self.buffers[number] = made

    def loads(self, place: int) -> None:
        target, wanted = self.chance.of(self.buffers), numbered(COUNT, self.chance.below(10**6))
        self._uses(place, writes=(target,))
        target.there.copy_(wanted.pin_memory(), non_blocking=True)
        target.wanted = wanted

    def stores(self, place: int) -> None:
        source, target = self.chance.of(self.buffers), torch.full((COUNT,), -1, dtype=torch.int32).pin_memory()
        self._uses(place, reads=(source,))
        target.copy_(source.there, non_blocking=True)
        self.copies.append((target, source.wanted, place))

    def looks(self, _: int) -> None:
        """Wait for a copy to the host, if there is one, and compare it."""
        if self.copies:
            target, wanted, other = self.copies.pop()
            self._waits(None, other)
            self._holds(target, wanted)

    def fetches(self, place: int) -> None:
        """Copy to the host's pageable memory, for which the host waits."""
        source = self.chance.of(self.buffers)
        self._uses(place, reads=(source,))
        self._holds(source.there.cpu(), source.wanted)

    def nests(self, place: int) -> None:
        """Use another stream within this one: what follows is in this one again."""
        self._on(other := self.chance.below(len(self.streams)), _OverStreams.adds)
        is_back = self.at.backend.current_stream() == self.streams[place]
        self.at.holds(is_back, f"after stream {other}, which was used within another one, that is not current again")
        self.adds(place)

    def works(self, _: int) -> None:
        self.at.busy()


#: The steps of programs over streams, and how often each is drawn.
_OFTEN: Mapping[Callable[[_OverStreams, int], None], int] = {
    _OverStreams.adds: 6, _OverStreams.copies_between: 5, _OverStreams.replaces: 5, _OverStreams.loads: 4,
    _OverStreams.stores: 4, _OverStreams.looks: 3, _OverStreams.fetches: 1, _OverStreams.nests: 2,
    _OverStreams.works: 2,
}  # fmt: skip


def _streams(at: At, seeds: range) -> None:
    for seed in seeds:
        _OverStreams(at, seed).run()
    at.holds(True, "generated programs over streams")


#: Views of a tensor along a dimension; the last number is drawn, and less than the size.
_VIEWS: Mapping[str, Callable[[T, int, int], T]] = {
    "permute": lambda x, dim, _: x.movedim(dim, 0),
    "transpose": lambda x, dim, _: x.transpose(dim, -1),
    "narrow": lambda x, dim, start: x.narrow(dim, start, x.shape[dim] - start),
    "narrow from the start": lambda x, dim, stop: x.narrow(dim, 0, stop + 1),
    "every second": lambda x, dim, start: x.movedim(dim, 0)[start % 2 :: 2].movedim(0, dim),
    "select": lambda x, dim, place: x.select(dim, place),
    "unsqueeze": lambda x, dim, _: x.unsqueeze(dim),
    "expand": lambda x, dim, _: x.unsqueeze(dim).expand(*x.shape[:dim], 3, *x.shape[dim:]),
    "unfold": lambda x, dim, start: x.unfold(dim, start + 1, 2),
    "diagonal": lambda x, dim, _: x.diagonal(0, dim - 1, dim) if x.dim() > 1 else x,
    "flatten": lambda x, dim, _: x.flatten(dim),
}
#: How a view is read.
_READS: Mapping[str, Callable[[T], object]] = {
    "clone": torch.clone, "contiguous": T.contiguous, "there and back": lambda x: x.cpu().to(x.device),
    "float64 and back": lambda x: x.to(torch.float32).to(x.dtype), "cat": lambda x: torch.cat([x, x[:1], x]),
    "stack": lambda x: torch.stack([x, x], -1), "flip": lambda x: x.flip(0, -1) if x.dim() > 1 else x.flip(0),
    "roll": lambda x: x.roll(1, -1), "repeat": lambda x: x.repeat(2, *[1] * x.dim()), "add": lambda x: x + x,
    "where": lambda x: torch.where(x > 3, x, 7), "masked_select": lambda x: x[x > 3],
    "sort": lambda x: x.sort(0).values,
    "index_select": lambda x: x.index_select(-1, torch.tensor([x.shape[-1] - 1, 0], device=x.device)),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)), "nonzero": torch.nonzero,
    "sum": lambda x: x.long().sum(-1), "amax": lambda x: x.amax(0),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
    "tolist": lambda x: torch.tensor(x.tolist()),
}  # fmt: skip
#: How it is written to, if no two of its elements have one place.
_WRITES: Mapping[str, Callable[[T], object]] = {
    "fill_": lambda x: x.fill_(7), "add_": lambda x: x.add_(1), "zero_": T.zero_,
    "copy_": lambda x: x.copy_(x.flip(0).clone()), "masked_fill_": lambda x: x.masked_fill_(x > 3, 2),
    "copy_ from the host": lambda x: x.copy_(numbered(x.numel()).remainder(99).view(x.shape)),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 5),
    "setitem": lambda x: x.__setitem__(slice(1, None), x[:1].clone()),
}  # fmt: skip
_USES = {**_READS, **_WRITES}
_DTYPES = (torch.float32, torch.float16, torch.int64, torch.int32)


@dataclass(frozen=True, slots=True)
class _View:
    """A view of a tensor, by the names of steps with a dimension and a number each, and what is done with it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    steps: tuple[tuple[str, int, int], ...]
    use: str

    @classmethod
    def drawn(cls, seed: int) -> _View:
        chance = Chance(f"generated/views/{seed}")
        shape = tuple(1 + chance.below(9) for _ in range(1 + chance.below(4)))
        steps = ((chance.of([*_VIEWS]), chance.below(4), chance.below(9)) for _ in range(chance.below(5)))
        return cls(chance.of(_DTYPES), shape, tuple(steps), chance.of([*_USES]))

    def of(self, x: T) -> T:
        for name, place, number in self.steps:
            if x.numel() and x.dim():
                dim = place % x.dim()
                x = _VIEWS[name](x, dim, number % x.shape[dim])
        return x if x.dim() else x[None]

    def __call__(self, device: torch.device) -> tuple[T, T]:
        """Return what is read, and the whole tensor, on the CPU."""
        base = (numbered(math.prod(self.shape)) % 99).view(self.shape).to(self.dtype).to(device)
        x = self.of(base)
        made = _USES[self.use](x)
        return (made if isinstance(made, T) else x).cpu(), base.cpu()

    @property
    def is_legal(self) -> bool:
        places = self.of(torch.arange(math.prod(self.shape)).view(self.shape))
        return self.use in _READS or len({*places.flatten().tolist()}) == places.numel()


def _views(at: At, seeds: range) -> None:
    wrong, views = [], [each for each in map(_View.drawn, seeds) if each.is_legal]
    for view in views:
        pairs = zip(view(at.device), view(CPU), strict=True)
        if not all(one.dtype is other.dtype and torch.equal(one, other) for one, other in pairs):
            wrong.append(str(view))
    at.same(len(wrong), 0, f"of {len(views)} views that are read or written, {len(wrong)} are wrong: {wrong[:3]}")


GENERATED: Mapping[str, Row] = {
    "first-streams": (SMOKE, partial(_streams, seeds=range(2))),
    "first-views": (SMOKE, partial(_views, seeds=range(100))),
    "streams": (STANDARD, partial(_streams, seeds=range(2, 14))),
    "views": (STANDARD, partial(_views, seeds=range(100, 1000))),
}
