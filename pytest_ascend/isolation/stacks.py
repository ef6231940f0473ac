"""Where a process that does not answer is: native stacks from whichever tool is installed, and what the kernel says."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

#: Tools that show native stacks, the best first; {} is the process id.
TOOLS = (
    ("eu-stack", "-p", "{}"),
    ("py-spy", "dump", "--native", "--pid", "{}"),
    ("gdb", "-p", "{}", "-batch", "-nx", "-ex", "thread apply all backtrace 40"),
)
LIMIT_S = 20.0
LIMIT_CHARACTERS = 40_000
LIMIT_THREADS = 64


def native(pid: int) -> str:
    """Return the native stacks of a process, or what its threads wait for where no tool can tell."""
    return next(filter(None, (_by_tool(pid, tool) for tool in TOOLS)), "") or "\n".join(_from_kernel(pid))


def _by_tool(pid: int, tool: tuple[str, ...]) -> str:
    program = shutil.which(tool[0])
    if not program:
        return ""
    command = [program, *(part.format(pid) for part in tool[1:])]
    try:
        done = subprocess.run(  # noqa: S603  (a tool of the table)
            command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = done.stdout.strip() if done.returncode == 0 else ""
    return f"{tool[0]}:\n{found[:LIMIT_CHARACTERS]}" if found else ""


def _from_kernel(pid: int) -> Iterator[str]:
    yield "no tool for native stacks is installed (eu-stack, gdb, py-spy); the kernel says of each thread:"
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"))[:LIMIT_THREADS]:
        parts = (_text(task / name) for name in ("comm", "wchan", "syscall"))
        yield f"  {task.name}: {', '.join(filter(None, parts))}"


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()[:200]
    return ""
