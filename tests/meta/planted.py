"""Faults planted one after another, each in a fork of one process that has imported the suites and not used the device.

A fork begins where a run of pytest has ended its collection, so that a fault costs what its cases cost. A fault is
anything that ``--ascend-emulate=fault=`` takes; it, and what it left behind, ends with its fork.

    python -m tests.meta.planted JOBS CHIP     JOBS: a JSON file with a list of {"faults", "cases", "level"}

A job with "shows", names of ``shown_by_class.CALLS``, says of each, made before the cases, whether it shows a fault.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.distributed.ranks import Place
from pytest_ascend.records.case import SWEEP_SEED, Case

#: Seconds of wall time that a job may take: a fault that makes the device wait for ever was noticed.
TIMEOUT_S = 600


def complaints(jobs: Sequence[Mapping[str, Any]], folder: Path, chip: str = "") -> list[dict[str, str]]:
    """Run jobs in a process of their own; return, for each, what every case says, "" where it says nothing.

    A case that a job did not reach because the device broke, or never answered, says so.
    """
    from tests.forks import run

    (folder / "jobs.json").write_text(json.dumps(list(jobs)), encoding="utf-8")
    done = run("tests.meta.planted", folder / "jobs.json", chip)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(jobs: Path, chip: str) -> None:
    """Run the jobs in the file, and print what their cases say as one line of JSON."""
    from pytest_ascend import emulator

    emulator.activate(emulator.EmulatorSettings(**({"chip": chip} if chip else {})))
    import torch
    import torch_npu  # noqa: F401

    from pytest_ascend.coverage import manifest
    from pytest_ascend.emulator.kernels import all_kernels
    from pytest_ascend.system.bundled import folder

    torch.set_num_threads(1)
    all_kernels()
    cases = {case.id: case for case in manifest.load(folder("suites"))}
    asked = [(job, [cases[each] for each in job["cases"]]) for job in json.loads(jobs.read_text(encoding="utf-8"))]
    for case in {case.suite: case for _, chosen in asked for case in chosen}.values():
        test_of(case)  # imports its suite
    print(json.dumps([_in_a_fork(job, chosen) for job, chosen in asked]))  # noqa: T201


def _in_a_fork(job: Mapping[str, Any], cases: Iterable[Case]) -> dict[str, str]:
    import torch

    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["PYTEST_ASCEND_FAULTS"] = ",".join(job["faults"])
        os.dup2(2, 1)
        torch.set_num_threads(1)  # mends the pool that a fork breaks, before two threads try at once, and abort
        with os.fdopen(writes, "w", encoding="utf-8") as lines:
            for name in job.get("shows", ()):
                print(json.dumps([name, _shown(name)]), file=lines, flush=True)
            for case in cases:
                complaint = said(case, job.get("level", "standard"))
                print(json.dumps([case.id, complaint]), file=lines, flush=True)
                if complaint and job.get("until_first"):
                    break
        os._exit(0)
    os.close(writes)
    return _answers(child, reads, job)


def _shown(name: str) -> str:
    """Return "shown" where a call shows its fault; a call that cannot be made shows nothing."""
    from tests.meta.shown_by_class import shows

    try:
        return "shown" if shows(name) else ""
    except Exception as error:  # noqa: BLE001  (a fault that cannot be planted raises as well)
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        return ""


def _answers(child: int, reads: int, job: Mapping[str, Any]) -> dict[str, str]:
    until, text = time.monotonic() + TIMEOUT_S, b""
    os.set_blocking(reads, False)
    while time.monotonic() < until:
        try:
            part = os.read(reads, 1 << 16)
        except BlockingIOError:
            time.sleep(0.005)
            continue
        if not part:
            break
        text += part
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(reads)
    _, status = os.waitpid(child, 0)
    found = dict(map(json.loads, text.decode().splitlines()))
    if status:  # the case that ran when the device broke says so, and those after it were not asked
        for each in job["cases"]:
            found.setdefault(each, f"the process ended with {os.waitstatus_to_exitcode(status)}")
    return found


class _Here:
    """Ranks for a check that rank 0 makes alone, in this process."""

    count = 2

    def run(self, function: Callable[..., Any], **arguments: Any) -> list[Any]:
        import torch

        return [function(Place(0, self.count, torch.device("npu", 0), Path()), **arguments)]


def said(case: Case, level: str) -> str:
    """Run a case on the emulated device as a level does; return what is said against it, "" where nothing is."""
    from pytest_ascend.device.npu import Npu
    from pytest_ascend.run.comparing import PrecisionCompare

    device = Npu()
    device.pin_numerics()
    known: dict[str, Any] = {
        "case": case,
        "npu_device": device.torch_device(),
        "precision_compare": PrecisionCompare(note=lambda _: None, device=str(device.torch_device())),
        "ascend_measure": lambda *_: None,
        "_ascend_ranks": _Here(),
        "_ascend_device": device,
        "_ascend_reproduce": lambda *_, **__: None,
        "_ascend_sweep_seed": SWEEP_SEED,
        "monkeypatch": pytest.MonkeyPatch(),
        "request": None,
    }
    try:
        if case.suite == "ops":
            from pytest_ascend.golden import GoldenStore
            from pytest_ascend.system.bundled import folder
            from suites.ops.table import target_of

            store = GoldenStore(folder("baselines") / "golden")
            known["target"] = target_of(case, known["npu_device"], store, level=level)
        test = test_of(case)
        test(**{name: known[name] for name in inspect.signature(test).parameters})
    except BaseException as error:  # noqa: BLE001  (pytest's own failures are none of Exception)
        return str(error) or type(error).__name__
    return ""


def test_of(case: Case) -> Callable[..., Any]:
    """Return the test function of a case."""
    from pytest_ascend.system.bundled import folder

    files = sorted(folder("suites").joinpath(case.suite).glob("test_*.py"))
    names = (f"test_{case.property.replace('-', '_')}", f"test_{case.suite}")
    modules = [import_module(f"suites.{case.suite}.{file.stem}") for file in files]
    return next(getattr(module, name) for name in names for module in modules if hasattr(module, name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3] or [""])
