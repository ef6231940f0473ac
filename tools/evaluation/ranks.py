"""Kill or stop a random rank at a random moment, again and again: is it named, and does the next call work?"""

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

import click
import torch
import torch_npu  # noqa: F401

from pytest_ascend.distributed.rank import Place
from pytest_ascend.distributed.ranks import RankFailed, Ranks

#: For one call, in seconds.
LIMIT_S = 20.0
#: prctl's: orphans among one's descendants become one's children, so that none is overlooked.
PR_SET_CHILD_SUBREAPER = 36


def busy(place: Place, folder: str) -> dict[str, Any]:
    """Say who one is, and sum until somebody fails."""
    Path(folder, f"pid-{place.rank}").write_text(str(os.getpid()), encoding="utf-8")
    x, end = torch.ones(5000, device=place.device), time.monotonic() + 15
    while time.monotonic() < end:
        torch.distributed.all_reduce(x)
        x.cpu()
    return {}


def working(place: Place) -> dict[str, Any]:
    """Sum once."""
    x = torch.ones(3, device=place.device)
    torch.distributed.all_reduce(x)
    return {"sum": x}


def strike(path: Path, by: int, after_s: float) -> None:
    """Wait until the victim has written its process, then a little, and signal it."""
    while not (path.exists() and path.read_text(encoding="utf-8")):
        time.sleep(0.01)
    time.sleep(after_s)
    os.kill(int(path.read_text(encoding="utf-8")), by)


def living() -> list[str]:
    """Return the children that are left, and with them whatever they hold."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
    stats = {each: Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2] for each in children}
    return [each for each, stat in stats.items() if stat.split()[0] != "Z"]


@click.command(help=__doc__)
@click.option("--runs", default=100, show_default=True)
@click.option("--ranks", "count", default=3, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(runs: int, count: int, seed: int) -> None:
    """Kill, call again, and look what is left."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    draw, before, good = random.Random(seed), set(os.listdir("/dev/shm")), 0  # noqa: S108, S311, PTH208
    with tempfile.TemporaryDirectory() as name:
        ranks, folder = Ranks("npu", within=Path(name)), Path(name)
        ranks.prepare()
        for run in range(runs):
            victim, by, after_s = draw.randrange(count), draw.choice([signal.SIGKILL, signal.SIGSTOP]), draw.random()
            for each in folder.glob("pid-*"):
                each.unlink()
            threading.Thread(target=strike, args=(folder / f"pid-{victim}", by, after_s), daemon=True).start()
            began, named = time.monotonic(), -1
            try:
                ranks.run(count, busy, folder=str(folder), limit_s=LIMIT_S)
            except RankFailed as error:
                named = error.rank
            took_s = time.monotonic() - began
            sums = [each["sum"].tolist() for each in ranks.run(count, working, limit_s=LIMIT_S)]
            works = sums == [[float(count)] * 3] * count
            good += named == victim and works
            click.echo(
                f"{run} {by.name} rank {victim}: named {named}, {took_s:.1f} s, next {'works' if works else 'fails'}"
            )
        ranks.close()
    left, alive = set(os.listdir("/dev/shm")) - before, living()  # noqa: S108, PTH208
    click.echo(f"{good} of {runs}: the right rank named and the next call working; left: {len(left)} files of")
    click.echo(f"shared memory, {len(alive)} processes")
    sys.exit(good != runs or bool(left) or bool(alive))
