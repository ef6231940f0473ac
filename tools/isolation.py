"""What running cases in child processes costs on a device that is well, in CPU time, as a share of a run without.

    python tools/isolation.py                         level standard, all of it, twice each
    python tools/isolation.py --rounds 1 -k relu      a part of it

Both ways run in turns, and the smallest of the rounds counts. CPU time includes all children; exits with 1 above 10 %.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile

import click

LIMIT = 0.10


def cpu_s(isolation: str, keyword: str, level: str) -> float:
    """Run the bundled suites, and return the CPU time of the whole run in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "--ascend", "--ascend-device=emulated", "-q", "-k", keyword]
        command += [f"--ascend-isolation={isolation}", f"--ascend-level={level}", f"--ascend-report={folder}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603  (ourselves)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--rounds", default=2, show_default=True)
@click.option("-k", "keyword", default="", help="As pytest has it.")
@click.option("--level", default="standard", show_default=True)
def main(rounds: int, keyword: str, level: str) -> None:
    """Run both ways in turns, and print the figures."""
    found: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(rounds):
        for isolation, times in found.items():
            times.append(cpu_s(isolation, keyword, level))
            click.echo(f"isolation {isolation}: {times[-1]:.1f} s of CPU time")
    share = min(found["on"]) / min(found["off"]) - 1
    click.echo(f"isolation costs {share:+.1%}")
    sys.exit(share > LIMIT)


if __name__ == "__main__":
    main()
