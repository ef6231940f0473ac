"""Generated programs over several streams, compared with the CPU. A failure names the program's last steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import torch

from pytest_ascend.run.inputs import Chance

from .rows import SMOKE, STANDARD, At, Row, T, numbered
from .streams import COUNT, ORDERS, WAITS

#: Number of buffers and of steps in a program over streams.
_BUFFERS, _STEPS = 4, 40


@dataclass(slots=True)
class _Buffer:
    """A tensor, its expected value, the stream that made it, and the last step per stream that read or wrote it."""

    there: T
    wanted: T
    made_on: int
    read: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)


class _OverStreams:
    """A program over several streams in which each step waits, in a random way, for what it needs and for nothing else.

    ``seen[s][t]`` is the last step of stream t that is complete before the next step of stream s.
    """

    def __init__(self, at: At, seed: int) -> None:
        self.at, self.chance, self.steps = at, Chance(f"generated/streams/{seed}"), list[str]()
        new = at.backend.Stream
        more = 35 if seed % 4 == 1 else 3  # more than the device has
        self.streams = (at.backend.current_stream(), *(new(priority=-(each % 2)) for each in range(more)))
        self.done = [0] * len(self.streams)
        self.seen = [[0] * len(self.streams) for _ in self.streams]
        self.count = 2**18 + 3 if seed % 4 == 3 else COUNT  # above a MiB, which allocators handle separately
        filled = (numbered(self.count, 9 * each) for each in range(_BUFFERS))
        self.buffers = [_Buffer(each.to(at.device), each, 0) for each in filled]
        self.copies = list[tuple[T, T, int]]()  # copies to the host: target, expected value, stream

    def run(self) -> None:
        here = partial(self.at.backend.set_device, self.at.backend.current_device())
        with ThreadPoolExecutor(1, initializer=here) as other:
            self.at.wait()
            for number in range(_STEPS):
                step, place = self.chance.of(_DRAWN), self.chance.below(len(self.streams))
                self.steps.append(f"{step.__name__} in stream {place}")
                call = partial(self._on, place, step)
                other.submit(call).result() if number % 8 == 5 else call()
        self.at.wait()
        copied = ((target, wanted) for target, wanted, _ in self.copies)
        for pair in (*((each.there.cpu(), each.wanted) for each in self.buffers), *copied):
            self._holds(*pair)

    def _on(self, place: int, step: Callable[[_OverStreams, int], None]) -> None:
        with self.at.backend.stream(self.streams[place]):
            step(self, place)

    def _holds(self, found: T, wanted: T) -> None:
        cause = f"numbers are wrong, as if a step came too early: {'; '.join(self.steps[-16:])}"
        self.at.holds(torch.equal(found, wanted), cause)

    def _uses(self, place: int, *, reads: tuple[_Buffer, ...] = (), writes: tuple[_Buffer, ...] = ()) -> None:
        """Have a stream wait for what its next step needs, and record what that step uses."""
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
        """Have a stream, or the host (``place`` None), wait for the work enqueued so far on another stream."""
        if place is None or self.chance.below(3) == 0:
            way, said, later = self.chance.of([*WAITS]), "the host", range(len(self.streams))
            waits, event = WAITS[way][1], self.streams[other].record_event()
            waits(self.streams[other], event) if waits else self.at.wait()  # for all later work
        else:
            way, said, later = self.chance.of([*ORDERS]), f"stream {place}", range(place, place + 1)
            ORDERS[way][0](self.at, self.streams[other], self.streams[place])
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
        """Compute a new tensor and release the old one, whose memory is reused."""
        one, other, number = self.chance.of(self.buffers), self.chance.of(self.buffers), self.chance.below(_BUFFERS)
        self._uses(place, reads=(one, other))
        made = _Buffer(one.there * 3 + other.there, one.wanted * 3 + other.wanted, place)
        made.written[place] = self.done[place]
        self.buffers[number] = made

    def loads(self, place: int) -> None:
        target, wanted = self.chance.of(self.buffers), numbered(self.count, self.chance.below(10**6))
        self._uses(place, writes=(target,))
        target.there.copy_(wanted.pin_memory(), non_blocking=True)
        target.wanted = wanted

    def stores(self, place: int) -> None:
        """Copy to the host, and sometimes wait for one of these copies and compare it."""
        source, target = self.chance.of(self.buffers), torch.full_like(self.buffers[0].wanted, -1).pin_memory()
        self._uses(place, reads=(source,))
        target.copy_(source.there, non_blocking=True)
        self.copies.append((target, source.wanted, place))
        if self.chance.below(2):
            target, wanted, other = self.copies.pop(self.chance.below(len(self.copies)))
            self._waits(None, other)
            self._holds(target, wanted)

    def works(self, _: int) -> None:
        self.at.busy()


#: The steps of programs over streams; frequent ones are listed several times.
_DRAWN: Sequence[Callable[[_OverStreams, int], None]] = (
    *(_OverStreams.adds,) * 6, *(_OverStreams.copies_between,) * 5, *(_OverStreams.replaces,) * 5,
    *(_OverStreams.loads,) * 4, *(_OverStreams.stores,) * 6, *(_OverStreams.works,) * 2,
)  # fmt: skip


def _streams(at: At, seeds: range) -> None:
    for seed in seeds:
        _OverStreams(at, seed).run()


GENERATED: Mapping[str, Row] = {
    "generated": (SMOKE, partial(_streams, seeds=range(2))),
    "generated-more": (STANDARD, partial(_streams, seeds=range(2, 14))),
}
