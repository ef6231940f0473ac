"""What there is to do, as the supervisor knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A test by its ``index`` among those collected, and the seconds that it may take.

    ``is_case`` is false for an ordinary test, whose answer is taken as it comes.
    """

    index: int
    limit_s: float
    is_case: bool = True
