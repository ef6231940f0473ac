"""How long a case may take before it is taken for hung."""

from __future__ import annotations

#: A case of which nothing is known: the first one on a fresh NPU may compile its operators for minutes.
UNKNOWN_S = 900.0
#: Machines are shared and kernels are compiled anew: what took t seconds may take this much.
SPARE_S = 60.0
FACTOR = 20.0
#: What the first call of an operator in a process may take more: it is loaded, and one that is called by its name is
#: compiled, which takes a minute or more.
FIRST_CALL_S = 240.0


def limit_s(recorded_s: float | None) -> float:
    """Return the time for a case from what it took in an earlier run of this stack, in seconds; None without one."""
    return UNKNOWN_S if recorded_s is None else SPARE_S + FACTOR * recorded_s
