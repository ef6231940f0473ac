"""Kill or stop a random rank at a random moment, again and again: is it named, does the next call work, what is left?

python tools/distributed/survival.py [RUNS] [SEED], on the emulated device; prints a line a run and a sum.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pytest_ascend import emulator
from pytest_ascend.distributed.rank import Place

RANKS = 3
#: For one call, in seconds.
LIMIT_S = 20.0
#: prctl's: orphans among one's descendants become one's children, so that none is overlooked.
PR_SET_CHILD_SUBREAPER = 36


def busy(place: Place, folder: str) -> dict[str, Any]:
    """Say who one is, and sum until somebody fails."""
    import torch  # noqa: PLC0415  (after activation)

    Path(folder, f"pid-{place.rank}").write_text(str(os.getpid()), encoding="utf-8")
    x = torch.ones(5000, device=place.device)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        torch.distributed.all_reduce(x)
        x.cpu()
    return {}


def working(place: Place) -> dict[str, Any]:
    """Sum once."""
    import torch  # noqa: PLC0415

    x = torch.ones(3, device=place.device)
    torch.distributed.all_reduce(x)
    return {"sum": x}


def strike(folder: Path, victim: int, by: int, after_s: float) -> None:
    """Wait until the victim is there, then a little, and signal it."""
    path = folder / f"pid-{victim}"
    while not (path.exists() and path.read_text(encoding="utf-8")):
        time.sleep(0.01)
    time.sleep(after_s)
    os.kill(int(path.read_text(encoding="utf-8")), by)


def living() -> list[str]:
    """Return the processes that are left, and with them whatever they hold: a port is none that nobody listens at."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
    return [
        each
        for each in children
        if Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    ]


def main() -> None:
    """Run, and exit with 1 where any run went otherwise than it has to."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    runs, draw = int(sys.argv[1] if len(sys.argv) > 1 else 100), random.Random(int((sys.argv[2:] or ["0"])[0]))  # noqa: S311
    emulator.activate()
    import torch_npu  # noqa: F401, PLC0415

    from pytest_ascend.distributed.ranks import RankFailed, Ranks  # noqa: PLC0415

    before, good = set(os.listdir("/dev/shm")), 0  # noqa: S108, PTH208
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks("npu", within=Path(folder))
        ranks.prepare()
        for run in range(runs):
            victim, by, after_s = draw.randrange(RANKS), draw.choice([signal.SIGKILL, signal.SIGSTOP]), draw.random()
            for each in Path(folder).glob("pid-*"):
                each.unlink()
            threading.Thread(target=strike, args=(Path(folder), victim, by, after_s), daemon=True).start()
            began, named = time.monotonic(), -1
            try:
                ranks.run(RANKS, busy, folder=folder, limit_s=LIMIT_S)
            except RankFailed as error:
                named = error.rank
            took_s = time.monotonic() - began
            works = [each["sum"].tolist() for each in ranks.run(RANKS, working, limit_s=LIMIT_S)] == [
                [float(RANKS)] * 3
            ] * RANKS
            good += named == victim and works
            said = f"{run} {by.name} rank {victim}: named {named}, {took_s:.1f} s, next {'works' if works else 'fails'}"
            print(said, flush=True)  # noqa: T201
        ranks.close()
    left, alive = set(os.listdir("/dev/shm")) - before, living()  # noqa: S108, PTH208
    said = f"left in /dev/shm: {len(left)}, processes: {len(alive)}"
    print(f"{good} of {runs} ended with the right rank named and the next call working; {said}")  # noqa: T201
    sys.exit(good != runs or bool(left) or bool(alive))


if __name__ == "__main__":
    main()
