"""What the kit collects from the host: npu-smi's output, device files, variables, signs of a container, the clock."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pytest_ascend.doctor.survey import CONTROL_FILES
from pytest_ascend.environment.identity import Identity, identities
from pytest_ascend.environment.machine import this_machine
from pytest_ascend.environment.npu_smi import parse, parse_map
from pytest_ascend.system.programs import Reply, run
from pytest_ascend.system.version import __version__

#: npu-smi queries each device in turn, and hangs if a driver does.
SMI_S = 10.0
#: On a machine with sixteen devices, the first gets every query, the others the most important ones, within this time.
ALL_SMI_S = 60.0
_OF_OTHERS = ("board", "common", "health", "usages", "memory")
_OF_FIRST = (*_OF_OTHERS, *("power", "temp", "product", "ecc", "volt", "flash", "proc-mem", "pcie-err", "topo"))
#: A card raises its clock after some seconds of work; the step "load" works for ten.
_WARM_S = 6.0

_VARIABLES = re.compile(
    r"ASCEND|TORCH|HCCL|LCCL|NPU|CANN|ACL|PYTEST_ASCEND|ATB|OMP_NUM|LD_LIBRARY_PATH|TASK_QUEUE|KUBERNETES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY", re.IGNORECASE)


def cards(environ: Mapping[str, str], numbering: Mapping[str, Any] | None = None) -> tuple[Identity, ...]:
    """Return every card in every numbering, with the runtime's numbers (see the step ``numbering``) if known."""
    here, runtime = this_machine(environ, limit_s=SMI_S), numbering or {}
    names = (re.fullmatch(r"davinci(\d{1,3})", name) for name in here.tree.names("/dev"))
    physical, buses = runtime.get("physical", ()), runtime.get("buses", ())
    numbers = [int(name[1]) for name in names if name] or list(physical)
    table, mapped = parse(here.npu_smi().text), parse_map(here.npu_smi_map().text)
    return identities(environ, numbers, table, mapped, physical=physical, buses=buses)


def npu_smi(environ: Mapping[str, str], files: dict[str, str]) -> dict[str, str]:
    """Run npu-smi in all its forms; return how each ended, and add the raw outputs to ``files`` by name."""
    program = shutil.which("npu-smi", path=environ.get("PATH", ""))
    if program is None:
        return {"npu-smi": "not installed"}
    forms = [["-v"], ["info"], ["info", "-l"], ["info", "-m"], ["info", "-h"]]
    found = list(dict.fromkeys((each.npu, each.chip) for each in cards(environ) if each.npu >= 0))
    for place, (npu, chip) in enumerate(found):
        which = ["-i", str(npu)]
        for what in _OF_OTHERS if place else _OF_FIRST:
            forms.append(["info", "-t", what, *which])
            if not place and chip >= 0:  # the 950 has no -c, other chips need it in some forms
                forms.append(["info", "-t", what, *which, "-c", str(chip)])
    answers, end = {}, time.monotonic() + ALL_SMI_S
    for form in forms:
        limit_s = min(SMI_S, end - time.monotonic())
        reply = run([program, *form], environ, limit_s) if limit_s > 0 else Reply(failure="not asked: no time left")
        name = " ".join(["npu-smi", *form])
        answers[name] = reply.failure or "answered"
        files[f"raw/{name.replace(' ', '_')}.txt"] = reply.text or reply.failure
    return answers


def machine(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a description of the machine: device files, variables, and signs of a container."""
    devices = sorted([*Path("/dev").glob("davinci[0-9]*"), *(Path("/dev", name) for name in CONTROL_FILES)])
    named = {name: value for name, value in sorted(environ.items()) if _VARIABLES.search(name)}
    return {
        "devices": {str(each): _mode(each) for each in devices},
        "variables": {name: "[struck out]" if _SECRET.search(name) else value for name, value in named.items()},
        "container": {
            "dockerenv": Path("/.dockerenv").exists(),
            "containerenv": Path("/run/.containerenv").exists(),
            "cgroup": _read("/proc/1/cgroup"),
            "namespaces": {each.name: str(each.readlink()) for each in Path("/proc/self/ns").iterdir()},
        },
        "groups": os.getgroups(),
        "root": os.geteuid() == 0,
        "system": [platform.system(), platform.release(), platform.machine(), *platform.libc_ver()],
        "os": _read("/etc/os-release"),
        "python": sys.version,
        "cpus": os.cpu_count(),
        "memory": _read("/proc/meminfo")[:200],
        "pytest_ascend": __version__,
    }


def _mode(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return str(error.strerror)
    return f"{stat.filemode(status.st_mode)} group {status.st_gid}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:4000]
    except OSError as error:
        return str(error.strerror)


def clock(environ: Mapping[str, str], work: Callable[[], object]) -> dict[str, Any]:
    """Return the clock of the first card from npu-smi, idle and while ``work`` runs, which takes ten seconds.

    Raises LookupError if npu-smi is missing or knows no card.
    """
    program, first = shutil.which("npu-smi", path=environ.get("PATH", "")), next(iter(cards(environ)), None)
    if program is None or first is None or first.npu < 0:
        raise LookupError("npu-smi is not installed" if program is None else "npu-smi lists no card that torch sees")
    which = ["-i", str(first.npu), *(["-c", str(first.chip)] if first.chip >= 0 else [])]
    command = [program, "info", "-t", "common", *which]
    found = {"card": first.label, "idle": run(command, environ, SMI_S).text}
    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        while not working.done():
            time.sleep(_WARM_S if "loaded" not in found else 1.0)
            text = run(command, environ, SMI_S).text
            if not working.done():  # keep the last output during the work: it imports torch first
                found["loaded"] = text
        working.result()
    return found
