"""Shared by evaluations: the page of results, results of an interrupted evaluation, and tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import click

from pytest_ascend.runlog.contents import Run
from pytest_ascend.runlog.reading import read
from pytest_ascend.system.files import write_between

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "evaluation"


def show(lines: Iterable[str], page: str, mark: str, *, is_written: bool) -> None:
    """Print results and, if requested, write them with date and machine into ``docs/evaluation/PAGE.md``."""
    click.echo(text := "\n".join(lines))
    if is_written:
        import torch  # (after the emulated device)

        cores = f"{os.cpu_count()} cores of {platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"
        machine = f"{cores}, torch {torch.__version__}; no NPU and no GPU"
        write_between(PAGES / f"{page}.md", mark, f"\n{text}\n\n{date.today():%Y-%m-%d}, {machine}.\n\n")


def run_suite(report: Path, *arguments: str) -> Run:
    """Run ``pytest --ascend`` on the emulated device in a separate process, and return its log."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ascend", "--ascend-device=emulated"]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    command += [f"--ascend-report={report}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if not (log := report / "run.jsonl").exists():
        raise click.ClickException(f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return read(log)


def git(repository: Path | str, *arguments: str) -> bytes:
    """Return the output of a git command in a repository."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603  (git itself)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = (heads, ["---"] * len(heads), *rows)
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, ignoring an incomplete last line; return nothing if there is no file."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def least_s(
    call: Callable[[], object], rounds: int, calls: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of one call: the minimum of several rounds, as other work only ever adds to it."""
    return min(timeit.repeat(call, repeat=rounds, number=calls, timer=clock)) / calls
