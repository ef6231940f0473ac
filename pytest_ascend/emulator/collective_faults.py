"""Faults of the emulated HCCL: ways in which a library of collectives that is otherwise right is wrong.

One is written as its name and, after colons, when and where it happens::

    hccl-tail-not-reduced                              the last elements of every sum stay what the first rank had
    hccl-crash:rank=2:collective=AllReduce:after=10    rank 2 dies in its eleventh AllReduce

The C library reads them from the environment; here they are checked, so that a misspelt one is no silent default.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_ascend.errors import UsageError

PREFIX = "hccl-"

#: Name, without the prefix -> what goes wrong.
COLLECTIVE_FAULTS: Mapping[str, str] = {
    "tail-not-reduced": "the last 16 elements of each rank's share of a sum stay what the first rank had",
    "reduced-in-half": "float32 is summed up in float16",
    "integers-in-float": "int32 is summed up in float32",
    "bfloat16-truncated": "the last bit of bfloat16 is lost",
    "rank-left-out": "the last rank is missing in every reduction",
    "rank-twice": "one rank's data is taken in the place of another's",
    "product-as-sum": "products are sums",
    "min-as-max": "minima are maxima",
    "order-changes": "the order of a sum changes from call to call, whatever HCCL_DETERMINISTIC says",
    "scatter-shifted": "ReduceScatter gives each rank its neighbour's share",
    "root-ignored": "Broadcast sends what the first rank has",
    "ranks-permuted": "what came from the first two ranks is exchanged",
    "block-twice": "what came from the first rank stands in the place of the last rank's",
    "stale-buffer": "the output stays what it was",
    "lost-write": "the last quarter of the output is never written",
    "wrong-above-size": "above 128 KiB, the first chunk is written twice",
    "last-element-lost": "the last element is zero",
    "ranks-differ": "a rank gets another last bit in its first byte; give rank=",
    "at-random": "an element is changed; give rate=",
    "slow": "operations take longer, by seconds=",
    "crash": "the process dies of a segmentation fault",
    "kill": "the process is killed",
    "hang": "the operation never ends",
}

SETTINGS = ("rank", "collective", "after", "times", "rate", "bytes", "seconds")


def is_of_collectives(text: str) -> bool:
    """Whether a fault's name is one of this module's, known or not."""
    return text.startswith(PREFIX)


def check(text: str) -> None:
    """Raise UsageError for a fault, or a setting of one, that does not exist."""
    name, *parts = text.split(":")
    if name.removeprefix(PREFIX) not in COLLECTIVE_FAULTS:
        known = ", ".join(PREFIX + each for each in COLLECTIVE_FAULTS)
        raise UsageError(f"there is no fault {name!r} of collectives", hint=f"choose one of {known}")
    for part in parts:
        setting, equals, value = part.partition("=")
        is_number = value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit()
        if setting not in SETTINGS or not equals or not (is_number or (setting == "collective" and value.isalpha())):
            raise UsageError(
                f"the fault {text!r} has the setting {part!r}",
                hint=f"settings are written name=value, with one of {', '.join(SETTINGS)}",
            )
