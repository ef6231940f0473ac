"""Plant each fault of the emulated HCCL and say which collectives the suite's checks see it in.

python tools/distributed/faults.py [RANKS] [FAULT ...]; prints a table. Exits with 1 where a fault is not
seen, or an honest library is accused.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_ascend import emulator
from pytest_ascend.emulator.faults import COLLECTIVE_FAULTS, PREFIX

sys.path.insert(0, str(Path(__file__).parents[2]))

#: Faults that need a setting to be faults; those that end a rank are survival.py's.
SETTINGS = {"ranks-differ": ":rank=1", "at-random": ":rate=0.5"}
ENDS = ("slow", "crash", "kill", "hang")
CHECKS = (
    ("all_reduce.sum", "float32"),
    ("all_reduce.sum", "bfloat16"),
    ("all_reduce.sum", "int32"),
    ("all_reduce.product", "float32"),
    ("all_reduce.min", "float32"),
    ("all_reduce.deterministic", "float32"),
    ("reduce_scatter_tensor.sum", "float32"),
    ("all_gather_into_tensor", "float32"),
    ("broadcast", "float32"),
    ("all_to_all_single", "float32"),
    ("send_recv.ring", "float32"),
)


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
    count = int(sys.argv[1] if len(sys.argv) > 1 else 2)
    names = sys.argv[2:] or ["", *(each for each in COLLECTIVE_FAULTS if each not in ENDS)]
    emulator.activate()
    import torch_npu  # noqa: F401, PLC0415

    bad = 0
    for name in names:
        os.environ["PYTEST_ASCEND_FAULTS"] = f"{PREFIX}{name}{SETTINGS.get(name, '')}" if name else ""
        found = list(seen(count))
        bad += bool(found) != bool(name)
        print(f"| {name or 'none'} | {len(found)} | {', '.join(found) or '-'} |", flush=True)  # noqa: T201
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
