"""What a runtime guarantees: state between calls, streams, data movement, refusals, time and memory."""

from __future__ import annotations

from collections.abc import Mapping

from .costs import COSTS
from .generated import GENERATED
from .movement import MOVEMENT
from .refusals import REFUSALS
from .rows import Row, cases_of
from .soaks import SOAKS
from .state import STATE
from .streams import STREAMS

TABLES: Mapping[str, Mapping[str, Row]] = {
    "state": STATE,
    "streams": {**STREAMS, **GENERATED},
    "movement": MOVEMENT,
    "costs": {**COSTS, **SOAKS},
    "refusals": REFUSALS,  # last: on some chips these may break the device
}
CASES = tuple(cases_of("runtime", TABLES))
