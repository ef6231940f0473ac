"""Short programs: autograd, optimizers, long sums and wide ranges, parts of models with unusual settings."""

from __future__ import annotations

from collections.abc import Mapping

from ..runtime.rows import Row, cases_of
from .autograd import AUTOGRAD
from .calls import CALLS
from .optimizers import OF_LISTS
from .parts import PARTS
from .ranges import RANGES

TABLES: dict[str, Mapping[str, Row]] = {
    "autograd": AUTOGRAD, "calls": CALLS, "optimizers": OF_LISTS, "ranges": RANGES, "parts": PARTS,
}  # fmt: skip
CASES = tuple(cases_of("programs", TABLES))
