"""The cases of the training suite: loss curves and resulting states, autocast's lists, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytest_ascend.records.case import Case
from pytest_ascend.system.bundled import beside


class Run(NamedTuple):
    """Twelve training steps. ``optimizer`` is a key of ``recipes.OPTIMIZERS``, ``mode`` a key of its MODES."""

    model: str
    optimizer: str
    mode: str
    level: str


_DATA = beside(__file__, "cases.json")
RUNS = tuple(Run(*row) for row in _DATA["runs"])
#: The compared results of a training run; only batch normalisation has statistics.
KINDS = {"small-resnet": ("curve", "weights", "state", "statistics"), "small-vit": ("curve", "weights", "state")}

#: Operators by their dtype under autocast, from torch.amp's documented lists for CUDA, which torch_npu follows;
#: those in CPU_FLOAT32 are also on the CPU's list.
_LISTS = "float32", "cpu float32", "cpu unlisted", "lower"
FLOAT32, CPU_FLOAT32, CPU_UNLISTED, LOWER = (tuple(_DATA[each]) for each in _LISTS)
AUTOCAST = (*FLOAT32, *LOWER, "add", "cat", "stack", "addcmul")

CHECKPOINTS = ("map-location", "other-device", "resumed-curve", "resumed-curve-scaled")


def _runs() -> Iterator[tuple[Case, Run, str]]:
    for run in RUNS:
        autocast, dtype = run.mode.rpartition("-")[::2]
        name = "-".join(part for part in (run.optimizer, autocast) if part)
        for kind in KINDS[run.model]:
            how = {"property": f"{name}-{kind}", "dtype": dtype, "family": "training", "level": run.level}
            yield Case(suite="training", subject=run.model, **how), run, kind


#: Case id -> its training run, and which result of the run is compared.
RUN_OF = {case.id: (run, kind) for case, run, kind in _runs()}
RUN_PROPERTIES = tuple(dict.fromkeys(case.property for case, _, _ in _runs()))
CASES = (
    *(case for case, _, _ in _runs()),
    *(
        Case(suite="training", subject=subject, property=name, family=subject, level="standard")
        for subject, names in (("autocast", AUTOCAST), ("checkpoint", CHECKPOINTS))
        for name in names
    ),
)
