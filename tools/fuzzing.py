"""What others may have written, fuzzed: every reader takes it or refuses it in words, for a stated time each.

    python tools/fuzzing.py --files 2000               hostile files for every command, a seed each
    python tools/fuzzing.py --files 1 --first 1234     one of them again
    pip install atheris
    python tools/fuzzing.py                            every reader for two minutes
    python tools/fuzzing.py --target log --seconds 600

Hostile files must end in an exit code and words: no traceback, no hang of more than 20 seconds, no more than 500 MiB,
no raw escape on the terminal, no foreign text in a hint.

atheris (libFuzzer) changes bytes of files that are well, guided by the branches of pytest-ascend that they reach. A
finding is whatever is neither taken nor an error of ours: a traceback, more than 2 GiB of memory, more than 20 seconds
for one input. The input is kept, its path is printed, and the exit code is 1.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
MEMORY_MIB, SECONDS_AN_INPUT, LONGEST_BYTES = 2048, 20, 1 << 16

#: The targets of ``fuzz_targets``, which is imported by the process that fuzzes one.
NAMES = (
    *("log", "torn-log", "matrix", "golden", "manifest", "expectations"),
    *("baseline", "revocations", "census", "npu-smi", "source"),
)


def fuzz(name: str, seconds: int, findings: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris  # noqa: PLC0415  (only here; what is to be instrumented is imported after it)

    sys.path.insert(0, str(ROOT))
    with atheris.instrument_imports(include=["pytest_ascend"]):
        from fuzz_targets import TARGETS  # noqa: PLC0415

        from pytest_ascend.errors import AscendError  # noqa: PLC0415
    target, folder = TARGETS[name], Path(tempfile.mkdtemp(prefix=f"fuzzing-{name}-"))
    seeds, given = folder / "seeds", folder / "given"
    seeds.mkdir()
    given.mkdir()
    target.seed(seeds / "well")
    path = given / ("given.py" if name == "source" else "given")
    target.use(Path(path.write_bytes((seeds / "well").read_bytes()) and path))  # what is well must be taken

    def once(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(AscendError):
            target.use(path)

    limits = [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={SECONDS_AN_INPUT}", f"-max_len={LONGEST_BYTES}"]
    kept = f"-artifact_prefix={findings}/{name}-"
    atheris.RunSetup(
        [sys.argv[0], f"-max_total_time={seconds}", *limits, kept, "-print_final_stats=1", str(seeds)], once
    )
    atheris.Fuzz()


def _attack(files: int, first: int, commands: tuple[str, ...]) -> None:
    sys.path.insert(0, str(ROOT))
    from fuzz_commands import attack, table  # noqa: PLC0415  (loads torch)

    began = time.monotonic()
    tried, beside, most = attack(files, commands, first)
    found = [*(each for one in tried for each in one.found), *beside]
    click.echo("\n".join([*found, *table(tried)]))
    click.echo(f"{files} hostile files in {time.monotonic() - began:.0f} s, {most} MiB at most: {len(found)} findings")
    sys.exit(bool(found))


@click.command(help=__doc__)
@click.option("--target", "names", type=click.Choice(NAMES), multiple=True, help="Only this reader; repeatable.")
@click.option("--seconds", default=120, show_default=True, help="For each target.")
@click.option("--findings", default="fuzzing", type=click.Path(path_type=Path), help="Where inputs are kept.")
@click.option("--files", type=int, help="Give the commands so many hostile files, and nothing else.")
@click.option("--first", default=0, help="With --files: the first seed.")
@click.option("--command", "commands", multiple=True, help="With --files: only this command; repeatable.")
@click.option("--here", is_flag=True, hidden=True)
def main(
    *,
    names: tuple[str, ...],
    seconds: int,
    findings: Path,
    files: int | None,
    first: int,
    commands: tuple[str, ...],
    here: bool,
) -> None:
    """Give each target a process of its own, as libFuzzer ends the one that it runs in."""
    if files:
        _attack(files, first, commands)
    findings.mkdir(parents=True, exist_ok=True)
    if here:
        fuzz(names[0], seconds, findings.resolve())
        return
    failed = []
    for name in names or NAMES:
        command = [sys.executable, __file__, "--here", "--target", name, f"--seconds={seconds}"]
        began = time.monotonic()
        done = subprocess.run([*command, f"--findings={findings}"], capture_output=True, text=True, check=False)  # noqa: S603
        runs = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        said = f"{runs[-1]} inputs" if runs else "did not start"
        click.echo(f"{name}: {said} in {time.monotonic() - began:.0f} s, exit code {done.returncode}")
        if done.returncode or not runs:
            failed.append(name)
            click.echo("\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()][-40:]))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
