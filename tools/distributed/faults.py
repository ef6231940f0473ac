"""Plant each fault of the emulated HCCL and say which collectives the suite's checks see it in.

python tools/distributed/faults.py [RANKS] [FAULT ...]; prints a table, of three ranks where no number is given:
two sum to the same in either order. A number in the place of a fault is a seed, by which one is drawn that hits one
collective alone. Exits with 1 where a fault is not seen, or where what it does not hit is accused.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_ascend import emulator

sys.path.insert(0, str(Path(__file__).parents[2]))

#: Faults that need a setting to be faults; those that end a rank are survival.py's.
SETTINGS = {"ranks-differ": ":rank=1", "at-random": ":rate=0.5"}
ENDS = ("slow", "crash", "kill", "hang")


def _copied_densely(correct: Any) -> Any:
    def copy(x: Any, source: Any) -> None:
        is_plain = x.shape != source.shape or x.dtype != source.dtype or source.is_contiguous()
        dense = source if is_plain else source.as_strided(x.shape, x.new_empty(x.shape).stride())
        correct(x, dense)

    return copy


#: Of operators that torch_npu calls around a collective: it divides a sum for a mean, and copies what is strided.
AVERAGE_NOT_DIVIDED = {"aclnnInplaceDivs": lambda _: lambda *_: None}
COPY_IGNORES_STRIDES = {"aclnnInplaceCopy": _copied_densely}
AROUND = ("AVERAGE_NOT_DIVIDED", "COPY_IGNORES_STRIDES")

CHECKS = (
    ("all_reduce.sum", "float32"),
    ("all_reduce.sum", "bfloat16"),
    ("all_reduce.sum", "int32"),
    ("all_reduce.product", "float32"),
    ("all_reduce.min", "float32"),
    ("all_reduce.average", "float32"),
    ("all_reduce.deterministic", "float32"),
    ("reduce_scatter_tensor.sum", "float32"),
    ("all_gather_into_tensor", "float32"),
    ("all_gather.strided", "float32"),
    ("broadcast", "float32"),
    ("all_to_all_single", "float32"),
    ("send_recv.ring", "float32"),
)


#: HCCL's collectives -> what the checks call them.
HIT = {
    "AllReduce": "all_reduce",
    "ReduceScatter": "reduce_scatter_tensor",
    "AllGather": "all_gather",
    "Broadcast": "broadcast",
    "AlltoAll": "all_to_all",
    "SendRecv": "send_recv",
}
#: What a drawn fault may be: those that any collective can have.
DRAWN = ("stale-buffer", "lost-write", "last-element-lost", "ranks-differ", "at-random")


def drawn(seed: int, count: int) -> tuple[str, str]:
    """Return a fault of one rank and one collective, and how the checks of that collective begin."""
    draw = random.Random(seed)  # noqa: S311
    name, collective, rank = draw.choice(DRAWN), draw.choice(list(HIT)), draw.randrange(count)
    return f"hccl-{name}:collective={collective}:rank={rank}", HIT[collective]


def seen(count: int) -> Iterator[str]:
    """Yield the collectives whose cases fail, by the suite's own tests."""
    from pytest_ascend.distributed.ranks import Ranks  # noqa: PLC0415
    from pytest_ascend.records.case import Case  # noqa: PLC0415
    from pytest_ascend.run.comparing import PrecisionCompare  # noqa: PLC0415
    from suites.distributed import test_collectives  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks("npu", within=Path(folder))
        ranks.prepare()
        for subject, dtype in CHECKS:
            case = Case(suite="distributed", subject=subject, property="collective", dtype=dtype)
            try:
                test_collectives.test_collective(
                    case, (ranks, count), PrecisionCompare(lambda _: None), lambda _name, _value: None
                )
            except Exception:  # noqa: BLE001  (a fault is seen by whatever it makes of a case)
                yield f"{subject} {dtype}"
        ranks.close()


def main() -> None:
    """Print a row a fault."""
    count = int(sys.argv[1] if len(sys.argv) > 1 else 3)
    emulator.activate()
    import torch_npu  # noqa: F401, PLC0415

    from pytest_ascend.emulator.faults import COLLECTIVE_FAULTS, PREFIX  # noqa: PLC0415

    names = sys.argv[2:] or ["", *(each for each in COLLECTIVE_FAULTS if each not in ENDS), *AROUND]

    bad = 0
    for name in names:
        planted, of = f"{PREFIX}{name}{SETTINGS.get(name, '')}" if name else "", ""
        if name in AROUND:
            planted = f"tools.distributed.faults:{name}"
        elif name.isdigit():
            planted, of = drawn(int(name), count)
        os.environ["PYTEST_ASCEND_FAULTS"] = planted
        found = list(seen(count))
        bad += bool(found) != bool(name) or not all(each.startswith(of) for each in found)
        print(f"| {planted or 'none'} | {len(found)} | {', '.join(found) or '-'} |", flush=True)  # noqa: T201
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
