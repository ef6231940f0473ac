"""Run the cases that compute with correct chip numerics, one seed after another, and count false alarms.

python tools/distributed/false_alarms.py [RUNS] [RANKS] [LEVEL] [SEED], on the emulated device; by default 20 runs on
4 ranks at level standard. A run is all float cases of sums, of products with collectives and of parallel training, with
products, sums and functions of each rank's device and the order of ranks in a sum as chip:SEED has them. The ranks are
started once and take each seed in turn. Exits with 1 where a correct run is rejected.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pytest_ascend import emulator
from pytest_ascend.distributed.rank import Place

sys.path.insert(0, str(Path(__file__).parents[2]))


def reseeded(place: Place, seed: int) -> dict[str, Any]:
    """Have a rank compute as another chip from now on."""
    from pytest_ascend.emulator import dispatch  # noqa: PLC0415  (after activation)
    from pytest_ascend.emulator.choices import NUMERICS  # noqa: PLC0415

    os.environ[NUMERICS] = f"chip:{seed}"
    dispatch.install(again=True)
    return {"rank": place.rank}


def judged(level: str) -> Iterator[tuple[Any, Callable[..., None]]]:
    """Yield the cases of a level that compute in floating point, with the test of each but for its case."""
    from pytest_ascend.run.comparing import PrecisionCompare  # noqa: PLC0415
    from suites.distributed import CASES, FLOATS, REDUCTIONS, test_collectives, test_training  # noqa: PLC0415

    compare = PrecisionCompare(lambda _: None)

    def measure(_name: str, _value: object) -> None:
        pass

    tests: dict[str, Callable[..., None]] = {
        "collective": lambda case, ranks, _: test_collectives.test_collective(case, ranks, compare, measure),
        "product": lambda case, ranks, _: test_collectives.test_product(case, ranks, measure),
        "training": lambda case, ranks, folder: test_training.test_training(case, ranks, measure, folder),
    }
    for case in CASES:
        computes = case.property != "collective" or case.subject in REDUCTIONS
        if case.property in tests and case.is_in(level) and case.dtype in FLOATS and computes:
            yield case, tests[case.property]


def accusation(test: Callable[[], None]) -> str:
    """Return the first line of what a test raises, whatever it is; empty where it passes."""
    try:
        test()
    except Exception as error:  # noqa: BLE001
        return f"{error}".partition("\n")[0] or type(error).__name__
    return ""


def main() -> None:
    """Print a line a run, and a sum."""
    runs, count, level, first = [*sys.argv[1:], *("20", "4", "standard", "0")[len(sys.argv) - 1 :]]
    emulator.activate()
    import torch_npu  # noqa: F401, PLC0415

    from pytest_ascend.distributed.ranks import Ranks  # noqa: PLC0415

    accused, cases, begin = 0, list(judged(level)), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks("npu", within=Path(folder))
        ranks.prepare()
        for seed in range(int(first), int(first) + int(runs)):
            ranks.run(int(count), reseeded, seed=seed)
            found = [
                f"{case.id}: {said}"
                for number, (case, test) in enumerate(cases)
                if (said := accusation(lambda: test(case, (ranks, int(count)), Path(folder, f"{seed}-{number}"))))  # noqa: B023
            ]
            accused += len(found)
            print(f"chip:{seed} {'; '.join(found) or 'nothing'}, {time.monotonic() - begin:.0f} s", flush=True)  # noqa: T201
        ranks.close()
    print(f"{runs} runs on {count} ranks, {len(cases)} cases each: {accused} accusations")  # noqa: T201
    sys.exit(accused > 0)


if __name__ == "__main__":
    main()
