"""Checks of several cards in one process: that of rank 0, which sees the cards of all ranks.

A run gives each worker one card only, so that what other suites ask of the last card, they ask of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pytest_ascend.distributed.ranks import Place
from pytest_ascend.run.comparing import PrecisionCompare
from suites.random.batteries import BATTERIES
from suites.runtime import TABLES
from suites.runtime.movement import copied
from suites.runtime.rows import At
from suites.runtime.state import other_arguments
from suites.runtime.streams import across_cards


def _drawn(at: At, battery: str) -> None:
    at.same("; ".join(map(str, BATTERIES[battery][1](at.device))), "", "random numbers of several cards are wrong")


CHECKS: Mapping[str, Callable[[At], None]] = {
    "streams": across_cards,
    "movement": partial(
        copied, way=lambda at, x: x.to(at.device).to(f"{at.device.type}:{at.backend.device_count() - 1}").cpu()
    ),
    "refusals": TABLES["refusals"]["cards"][1],
    "random-numbers": partial(_drawn, battery="streams-and-cards"),
    "generators": partial(_drawn, battery="sure-events"),
    "state": partial(other_arguments, on_cards=True),
    **{name: TABLES["streams"][name][1] for name in ("current-stream", "pinned-more")},
    **{name: TABLES["costs"][name][1] for name in ("release", "blocks", "small-calls")},
}


def run(place: Place, *, check: str) -> dict[str, str]:
    """Return what a check says of the cards, "" for nothing; only rank 0 runs it."""
    try:
        if not place.rank:
            CHECKS[check](At(place.device, PrecisionCompare(note=lambda _: None, device=str(place.device))))
    except AssertionError as error:
        return {"said": str(error)}
    return {"said": ""}
