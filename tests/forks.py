"""Programs started as forks of a process that has imported torch: what they cost is what they do, and no start.

    done = run("pytest", "--ascend", "--ascend-device=emulated", "test_my_block.py", where=folder)
    result = apart(pytester, "--ascend", "test_my_block.py")

A fork differs from a process of its own only in what is imported when it begins: torch, and what torch_npu imports of
it. Nothing of torch_npu, CANN, pytest's plugins or pytest-ascend is loaded in the process that is forked, and no device
is activated. Tests of the start itself (``tests/integration/test_emulated_device.py``) run in processes of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

from pytest_ascend.system.bundled import folder
from tests.conftest import AT_START

ROOT = Path(__file__).resolve().parents[1]
#: What is imported before the forks: torch, and the parts of it that torch_npu, optimizers and checks ask for.
IMPORTED = (
    *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.run"),
    *("torch.distributed.tensor.experimental", "torch.export", "torch.nn.attention.flex_attention"),
    *("numpy", "cryptography.x509", "elftools.elf.elffile"),
)
#: Plugins of pytest that no test here is about; they import for a quarter of a second.
PLUGINS_LEFT_OUT = "-p no:hypothesispytest -p no:anyio"


def run(
    module: str, *arguments: str | Path, where: Path = ROOT, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS`` in a folder; return its exit code and what it wrote.

    The environment is that of the tests at their start, with the checkout in PYTHONPATH, unless another is given.
    """
    line = [module, *map(str, arguments)]
    environ = {**AT_START, "PYTHONPATH": str(ROOT)} if environ is None else environ
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        code = _code(line, where, environ, (out, err))
        said = [(file.seek(0), file.read())[1] for file in (out, err)]
    return subprocess.CompletedProcess(line, code, *said)


def emulated(program: str, folder: Path, *arguments: str, **settings: Any) -> str:
    """Run a program on an emulated device with these ``EmulatorSettings``; return what it writes."""
    start = "import sys\nfrom pytest_ascend import emulator\n"
    start += f"emulator.activate(emulator.EmulatorSettings(**{settings!r}))\n"
    (folder / "program_on_the_device.py").write_text(start + program, encoding="utf-8")
    done = run("program_on_the_device", *arguments, where=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apart(pytester: pytest.Pytester, *arguments: str | Path) -> pytest.RunResult:
    """Run pytest in the folder of a test, in a process of its own, as pytester does."""
    began = time.monotonic()
    path = os.pathsep.join(filter(None, (str(pytester.path), os.environ.get("PYTHONPATH", ""))))
    environ = {**os.environ, "PYTHONPATH": path}
    done = run("pytest", f"--basetemp={pytester.path}-tmp", *arguments, where=pytester.path, environ=environ)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    lines = done.stdout.splitlines(), done.stderr.splitlines()
    return pytest.RunResult(done.returncode, *lines, duration=time.monotonic() - began)


def records(report: Path, nodes: Sequence[str], *options: str) -> dict[str, Any]:
    """Run tests of the bundled suites on the emulated device; return the record of each case by its id.

    ``nodes`` are node ids below the folder of the suites, as "ops/test_ops.py::test_forward[...]".
    """
    given = ("--ascend", "--ascend-device=emulated", "-q", "-p", "no:cacheprovider", f"--ascend-report={report}")
    done = run("pytest", *given, *options, *(f"{folder('suites')}/{node}" for node in nodes))
    assert (report / "run.jsonl").exists(), done.stdout + done.stderr
    return recorded(report)


def recorded(report: Path) -> dict[str, Any]:
    """Return the record of each case of a run by its id."""
    lines = [json.loads(line) for line in (report / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    return {line["case"]["id"]: line for line in lines if line["type"] == "record"}


def _code(line: list[str], where: Path, environ: Mapping[str, str], files: tuple[IO[str], IO[str]]) -> int:
    """Have a program run, and return its exit code. What stops the test ends the program, and all that it started."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    said = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in files]
    asked: dict[str, Any] = {"line": line, "where": str(where), "environ": dict(environ), "files": said}
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    child = int(server.stdout.readline())
    try:
        return int(server.stdout.readline())
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        server.stdout.readline()
        raise


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that is forked, once for each worker of pytest-xdist; it ends with the worker."""
    environ = {**AT_START, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "tests.forks"]
    server = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    atexit.register(server.communicate)
    return server


def serve() -> None:
    """Fork for each line of standard input; say the child's process id and, when it ends, its exit code."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            __import__(name)
    gc.set_threshold(7_000)  # with 700, the imports of a run of pytest spend a tenth of their time looking for garbage
    gc.freeze()  # else each child's collector would touch, and so copy, all of this
    asking, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in iter(asking.readline, ""):
        child = os.fork()
        if not child:
            asking.close()
            answers.close()
            _become(**json.loads(line))
        print(child, file=answers, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _become(line: list[str], where: str, environ: dict[str, str], files: list[str]) -> None:
    """Be the program that is asked for, until it exits."""
    os.setsid()
    for number, path in enumerate([os.devnull, *files]):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(where)
    os.environ.clear()
    os.environ.update(environ)
    os.environ.setdefault("PYTEST_ADDOPTS", PLUGINS_LEFT_OUT)
    sys.argv = line
    sys.path[:] = [where, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    runpy.run_module(line[0], run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    serve()
