"""The largest batch whose memory fits: by tracing, as a peak has its place in another phase at another batch."""

from __future__ import annotations

from collections.abc import Callable

#: Steps of the search, and the share of the batch that it need not be more exact than.
STEPS, EXACTNESS = 8, 0.02

#: Where memory does not grow from one batch to the next, something that does not depend on it is larger: look far.
FAR = 1024

#: No tensor has more rows.
LARGEST = 2**31


def largest_batch(peak: Callable[[int], int], capacity_bytes: int, start: int = 1) -> int | None:
    """Return the largest batch whose ``peak(batch)`` bytes fit; 0 where not even 1 does; None if memory never grows.

    A peak is the largest of several phases that grow with the batch each in its own way: convex, so that the line
    through two points leads to where it is crossed in a few steps.
    """
    points = {batch: peak(batch) for batch in (start, 2 * start)}
    for _ in range(STEPS):
        fits, fails = _around(points, capacity_bytes)
        if fails is not None and fails - fits <= max(1, EXACTNESS * fits):
            break
        if fits == LARGEST:
            return None
        guess = _next(points, capacity_bytes, fits, fails)
        if guess is None:
            return None
        points[guess] = peak(guess)
    return _around(points, capacity_bytes)[0]


def _around(points: dict[int, int], capacity_bytes: int) -> tuple[int, int | None]:
    fits = max((batch for batch, size in points.items() if size <= capacity_bytes), default=0)
    return fits, min((batch for batch, size in points.items() if size > capacity_bytes), default=None)


def _next(points: dict[int, int], capacity_bytes: int, fits: int, fails: int | None) -> int | None:
    """Follow a line: through both ends of what is not known yet, else through the two largest batches that fit.

    The first leads to a batch that fits, at a kink or at the crossing: whichever it is, a little more tells.
    """
    beside = fits + max(1, int(EXACTNESS * fits))
    if fails is not None and fits in points:
        chord = _crossing(points, fits, fails, capacity_bytes)
        return chord if chord is not None and beside < chord < fails else beside
    first, last = sorted(points)[-2:] if fails is None else sorted(points)[:2]
    guess = _crossing(points, first, last, capacity_bytes)
    if guess is None:
        return None if fails is not None else min(last * FAR, LARGEST)
    return min(max(guess, fits + 1), LARGEST if fails is None else fails - 1)


def _crossing(points: dict[int, int], first: int, last: int, capacity_bytes: int) -> int | None:
    growth = (points[last] - points[first]) / (last - first)
    return first + int((capacity_bytes - points[first]) / growth) if growth > 0 else None
