"""Ask a machine everything, in processes that may hang or die, and pack the answers for somebody else to read."""

from __future__ import annotations

import html
import json
import os
import platform
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from getpass import getuser
from pathlib import Path
from typing import Any

from pytest_ascend import __version__
from pytest_ascend.contact.questions import STEPS
from pytest_ascend.contact.steps import MARK
from pytest_ascend.doctor import examine
from pytest_ascend.doctor.survey import CONTROL_FILES
from pytest_ascend.environment.identity import identities
from pytest_ascend.environment.machine import this_machine
from pytest_ascend.environment.npu_smi import parse, parse_map
from pytest_ascend.system.programs import run

#: Form of the kit, raised whenever an older reader would misread it.
SCHEMA = 1

#: Steps through torch, in their order, and the seconds that each may take. Those that may spoil the card come last.
DEADLINES_S: Mapping[str, float] = {
    "start-up": 120,
    "numbering": 60,
    "threads": 60,
    "forks": 90,
    "times": 90,
    "dtypes": 150,
    "determinism": 90,
    "special": 60,
    "ulps": 90,
    "error-dtype": 60,
    "error-device": 60,
    "error-index": 60,
    "error-memory": 60,
    "recovery": 90,
}
#: Everything together; what does not fit is left out, and said to be.
WHOLE_S = 600.0
SMOKE_S = 180.0
SMI_S = 10.0

#: What npu-smi is asked for each card, beside its tables.
_OF_A_CARD = ("board", "common", "health", "usages", "memory", "power", "temp", "product", "ecc", "volt")
_VARIABLES = re.compile(
    r"ASCEND|TORCH|HCCL|LCCL|NPU|CANN|ACL|PYTEST_ASCEND|ATB|OMP_NUM|LD_LIBRARY_PATH|TASK_QUEUE|KUBERNETES"
)


@dataclass(kw_only=True)
class Answer:
    """What came of one step: ``status`` is done, failed or late, ``data`` what it said, ``output`` what it printed."""

    name: str
    status: str
    seconds: float = 0.0
    data: Any = None
    output: str = ""


@dataclass
class Kit:
    """The answers so far, and files to go beside them."""

    environ: Mapping[str, str]
    emulated: bool
    say: Callable[[str], None]
    answers: list[Answer] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left of the whole."""
        return WHOLE_S - (time.monotonic() - self.began)

    def ask(self, name: str, command: list[str], limit_s: float) -> Answer:
        """Run one step in a process of its own; whatever becomes of it is an answer."""
        began = time.monotonic()
        if self.left_s < 5:
            answer = Answer(name=name, status="late", output="the ten minutes were over")
        else:
            reply = run(command, self.environ, min(limit_s, self.left_s))
            data = _marked(reply.text)
            status = "late" if reply.late else "done" if data is not None else "failed"
            answer = Answer(
                name=name, status=status, data=data, output=f"{reply.failure}\n{reply.text[-20_000:]}".strip()
            )
            if data is not None:
                answer.output = reply.failure
        answer.seconds = time.monotonic() - began
        self.answers.append(answer)
        self.say(f"{name}: {answer.status}, {answer.seconds:.1f} s")
        return answer

    def look(self, name: str, work: Callable[[], Any]) -> None:
        """Ask something that needs no device, and so no process of its own."""
        began = time.monotonic()
        try:
            answer = Answer(name=name, status="done", data=work())
        except Exception as error:  # noqa: BLE001  (a failed step is a finding)
            answer = Answer(name=name, status="failed", output=f"{type(error).__name__}: {error}")
        answer.seconds = time.monotonic() - began
        self.answers.append(answer)
        self.say(f"{name}: {answer.status}, {answer.seconds:.1f} s")


def _marked(text: str) -> Any:
    line = next((line for line in reversed(text.splitlines()) if line.startswith(MARK)), "")
    try:
        return json.loads(line.removeprefix(MARK)) if line else None
    except ValueError:
        return None


def gather(kit: Kit) -> None:
    """Ask everything, the harmless first."""
    kit.look("npu-smi", lambda: npu_smi(kit))
    kit.look("machine", lambda: machine(kit.environ))
    kit.look("doctor", lambda: examine(this_machine(limit_s=SMI_S)).to_dict())
    kit.look("identity", lambda: [each.to_dict() for each in _cards()])
    for name, limit_s in DEADLINES_S.items():
        kit.ask(name, [sys.executable, "-m", "pytest_ascend.contact.steps", name], limit_s)
    if "load" in STEPS and shutil.which("npu-smi"):
        kit.look("clock", lambda: clock(kit))
    smoke(kit)


def npu_smi(kit: Kit) -> dict[str, Any]:
    """Ask npu-smi in all its forms, and keep what it prints as it is."""
    program = shutil.which("npu-smi", path=kit.environ.get("PATH", ""))
    if program is None:
        return {"npu-smi": "not installed"}
    forms = [["-v"], ["info"], ["info", "-l"], ["info", "-m"]]
    for card in {each.npu for each in _cards() if each.npu >= 0}:
        forms += [["info", "-t", what, "-i", str(card)] for what in _OF_A_CARD]
    said = {}
    for form in forms:
        reply = run([program, *form], kit.environ, SMI_S)
        name = " ".join(["npu-smi", *form])
        kit.files[f"raw/{name.replace(' ', '_')}.txt"] = reply.text
        said[name] = reply.failure or "answered"
    return said


def _cards() -> Any:
    here = this_machine(limit_s=SMI_S)
    names = (re.fullmatch(r"davinci(\d{1,3})", name) for name in here.tree.names("/dev"))
    numbers = sorted(int(name[1]) for name in names if name)
    return identities(here.environ, numbers, parse(here.npu_smi().text), parse_map(here.npu_smi_map().text))


def machine(environ: Mapping[str, str]) -> dict[str, Any]:
    """Tell what the machine is: its files of devices, variables, and signs of a container."""
    devices = sorted([*Path("/dev").glob("davinci*"), *(Path("/dev", name) for name in CONTROL_FILES)])
    return {
        "devices": {str(each): _mode(each) for each in devices},
        "variables": {name: value for name, value in sorted(environ.items()) if _VARIABLES.search(name)},
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


def clock(kit: Kit) -> dict[str, Any]:
    """Ask npu-smi for the clock of each card, idle and while one works."""
    from concurrent.futures import ThreadPoolExecutor

    program, found = shutil.which("npu-smi") or "", {}
    for card in _cards()[:1]:
        which = ["-i", str(card.npu), *(["-c", str(card.chip)] if card.chip >= 0 else [])]
        command = [program, "info", "-t", "common", *which]
        found["idle"] = run(command, kit.environ, SMI_S).text
        with ThreadPoolExecutor(1) as executor:
            working = executor.submit(
                kit.ask, "load", [sys.executable, "-m", "pytest_ascend.contact.steps", "load"], 60
            )
            time.sleep(8)
            found["loaded"] = run(command, kit.environ, SMI_S).text
            working.result()
    return found


def smoke(kit: Kit) -> None:
    """Run level smoke, and keep its log."""
    with tempfile.TemporaryDirectory(prefix="pytest-ascend-contact-") as folder:
        device = "emulated" if kit.emulated else "npu"
        limit_s = min(SMOKE_S, kit.left_s - 10)
        command = [sys.executable, "-m", "pytest", "--ascend", f"--ascend-device={device}", "--ascend-level=smoke"]
        command += [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--ascend-report={folder}/report",
            f"--ascend-deadline={max(limit_s, 10):.0f}",
        ]
        answer = kit.ask("smoke", command, limit_s + 30)
        log = Path(folder, "report", "run.jsonl")
        if log.exists():
            kit.files["smoke/run.jsonl"] = log.read_text(encoding="utf-8", errors="replace")
            answer.status, answer.data = "done", {"log": "smoke/run.jsonl"}


class Redaction:
    """Strikes out names and addresses: of this machine, its user, its folders and whatever looks like one."""

    def __init__(self) -> None:
        own = {"[host]": {socket.gethostname(), platform.node()}, "[user]": {_user()}, "[home]": {str(Path.home())}}
        self._own = [
            (re.compile(rf"(?<![\w-]){re.escape(each)}(?![\w-])"), name)
            for name, texts in own.items()
            for each in sorted(texts, key=len, reverse=True)
            if len(each) > 2 and each not in ("root", "localhost", "/root")
        ]

    def __call__(self, text: str) -> str:
        """Return the text without names and addresses."""
        for pattern, name in self._own:
            text = pattern.sub(name, text)
        for pattern, name in _ADDRESSES:
            text = pattern.sub(name, text)
        return text


_ADDRESSES = (
    (
        re.compile(
            r"(?i)(serial[ _-]?number|uuid|v?die[ _-]?id|asset[ _-]?tag)(\\?[\"']?\s*[:=]\s*\\?[\"']?)[^\s\"',\\]+"
        ),
        r"\1\2[struck out]",
    ),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "[address]"),
    # Versions of drivers have four numbers too, the first of which is below 30; 10 is that of a private network.
    (re.compile(r"(?<![\d.])(?:10|[3-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.\d{1,3}){3}(?![\d.])"), "[address]"),
    (re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?=[:/]\d)"), "[address]"),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])"), "[address]"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"), "[address]"),
    (re.compile(r"/home/[^/\s\"':]+"), "/home/[user]"),
)


def _user() -> str:
    try:
        return getuser()
    except (OSError, KeyError):
        return ""


def pack(kit: Kit, path: Path) -> None:
    """Write the kit, beside first, then in its place."""
    strike = Redaction()
    about = {
        "schema": SCHEMA,
        "pytest_ascend": __version__,
        "emulated": kit.emulated,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - kit.began, 1),
        "steps": {each.name: each.status for each in kit.answers},
    }
    texts = {"about.json": json.dumps(about, indent=1)}
    texts |= {f"steps/{each.name}.json": json.dumps(asdict(each), indent=1, default=str) for each in kit.answers}
    texts |= kit.files
    texts = {name: strike(text) for name, text in texts.items()}
    texts["summary.html"] = "".join(
        summary(about, [Answer(**json.loads(texts[f"steps/{a.name}.json"])) for a in kit.answers])
    )
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def summary(about: Mapping[str, Any], answers: list[Answer]) -> Iterator[str]:
    """Make the page: what was asked, what came of it, and the answers themselves."""
    yield "<!doctype html><meta charset='utf-8'><title>pytest-ascend contact</title>"
    yield "<style>body{font:15px sans-serif;margin:2em;max-width:70em}pre{background:#f4f4f4;padding:1em;overflow:auto}"
    yield "td,th{padding:.2em 1em;text-align:left}.failed,.late{color:#a00}</style><h1>One machine</h1>"
    what = "THE EMULATED DEVICE: says nothing about any NPU. " if about["emulated"] else ""
    made = f"Made {about['made']} in {about['seconds']:.0f} s by pytest-ascend {about['pytest_ascend']}."
    yield f"<p><b>{what}</b>{html.escape(made)}</p>"
    yield "<p>Names and addresses are struck out. Look through it before you send it.</p>"
    yield "<table><tr><th>step<th>status<th>seconds</tr>"
    for each in answers:
        link = f"<a href='#{each.name}'>{each.name}</a>"
        yield f"<tr class='{each.status}'><td>{link}<td>{each.status}<td>{each.seconds:.1f}</tr>"
    yield "</table>"
    for each in answers:
        shown = json.dumps(each.data, indent=1) if each.data is not None else ""
        yield f"<h2 id='{each.name}'>{each.name}</h2><pre>{html.escape(shown[:200_000])}</pre>"
        if each.output:
            yield f"<pre>{html.escape(each.output)}</pre>"
