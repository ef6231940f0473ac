"""What there is to do, as the supervisor knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A test by its ``index`` among those collected, and the seconds that it may take.

    ``is_case`` is false for an ordinary test, whose answer is taken as it comes. The first task of a ``subject`` in a
    process may take ``first_s`` longer: an operator is loaded, and maybe compiled, when it is called first.
    """

    index: int
    limit_s: float
    is_case: bool = True
    subject: str = ""
    first_s: float = 0.0
