"""Query a machine in child processes that may hang or die, and pack the answers for others to read."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from pytest_ascend.contact.redaction import Redaction
from pytest_ascend.contact.steps import IMPORTING, SCHEMA, Notebook
from pytest_ascend.doctor import examine
from pytest_ascend.doctor.survey import CONTROL_FILES
from pytest_ascend.environment.identity import Identity, of_machine
from pytest_ascend.environment.machine import this_machine
from pytest_ascend.environment.signs import EMULATED_VARIABLE, signs
from pytest_ascend.records.bounds import now
from pytest_ascend.system.errors import DeviceUnavailable, UsageError
from pytest_ascend.system.files import write_file
from pytest_ascend.system.programs import Reply, run
from pytest_ascend.system.templates import templates_of
from pytest_ascend.system.version import __version__

PATH = click.Path(path_type=Path)
_output = partial(click.option, "-o", "--output", type=PATH, show_default=True)
_DEVICES = click.Choice(["auto", "npu", "emulated"])
#: npu-smi queries each device in turn, and hangs if a driver does.
SMI_S = 10.0
#: With sixteen devices, the first gets every query, the others the most important ones, within these seconds.
ALL_SMI_S = 60.0
_OF_OTHERS = ("board", "common", "health", "usages", "memory")
_OF_FIRST = (*_OF_OTHERS, *("power", "temp", "product", "ecc", "volt", "flash", "proc-mem", "pcie-err", "topo"))
#: A card raises its clock after some seconds of work; the step "load" works for ten.
_WARM_S = 6.0
_VARIABLES = re.compile(
    r"ASCEND|TORCH|HCCL|LCCL|NPU|CANN|ACL|PYTEST_ASCEND|ATB|OMP_NUM|LD_LIBRARY_PATH|TASK_QUEUE|KUBERNETES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY", re.IGNORECASE)
#: Steps that use torch, in order, with their limits in seconds. Those that may harm the card's state come last.
DEADLINES_S: Mapping[str, float] = {
    "start-up": 120,
    "numbering": 60,
    "threads": 60,
    "forks": 90,
    "dtypes": 150,
    "determinism": 90,
    "special": 60,
    "ulps": 90,
}
#: Further steps, after the run of level smoke, which is more valuable.
LAST_S: Mapping[str, float] = {
    "recovery": 90,
    **dict.fromkeys(("error-index", "error-memory", "error-dtype", "error-device"), 60),
}
#: The total limit in seconds; steps that do not fit are left out, and marked so.
WHOLE_S = 600.0
#: The limit of the run of level smoke, and the seconds reserved for the steps after it.
SMOKE_S, FOR_LAST_S = 150.0, 110.0
#: How often a list of questions is restarted, each time after the question at which the last process died.
MOST_DEATHS = 10
#: Seconds of a step that are reserved for its end.
ENDING_S = 10.0


@dataclass(kw_only=True)
class Answer:
    """The result of one step: ``status`` is done, failed or late, ``data`` its answer, ``output`` what it printed."""

    name: str
    status: str
    seconds: float = 0.0
    data: Any = None
    output: str = ""


@dataclass
class Kit:
    """The answers so far, and the files packed with them."""

    environ: Mapping[str, str]
    emulated: bool
    say: Callable[[str], None]
    answers: list[Answer] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Return the seconds left of the total limit."""
        return WHOLE_S - (time.monotonic() - self.began)

    def step(self, name: str, limit_s: float) -> Answer:
        """Run one step of :mod:`pytest_ascend.contact.steps` or :mod:`pytest_ascend.contact.questions`."""
        module = f"pytest_ascend.contact.{'steps' if name in IMPORTING else 'questions'}"
        return self.ask(name, [sys.executable, "-m", module, name], limit_s)

    def ask(self, name: str, command: list[str], limit_s: float) -> Answer:
        """Run one step in a child process; however it ends, that is an answer.

        If the process dies at a question of a list, another one continues with the next.
        """
        began, end = time.monotonic(), time.monotonic() + min(limit_s, self.left_s)
        deaths: list[str] = []
        status, data, output = "late", None, "no time was left for it"
        with tempfile.NamedTemporaryFile(prefix="pytest-ascend-contact-") as file:
            while len(deaths) < MOST_DEATHS and (left_s := end - time.monotonic()) > ENDING_S:
                reply = run([*command, file.name, f"{end - ENDING_S:.1f}"], self.environ, left_s)
                data, book = reply.answer, Notebook(Path(file.name))
                printed = f"{reply.failure}\n{reply.text[-20_000:]}".strip()
                status = "late" if reply.late else "done" if data is not None else "failed"
                output = reply.failure if status == "done" else printed
                if status == "done" or not book.asked:
                    break
                book.note(book.asked, f"the process {reply.failure}")
                deaths.append(f"{book.asked}: the process {printed[-2000:]}")
            data = Notebook(Path(file.name)).nested() or data or None
        return self.add(Answer(name=name, status=status, data=data, output="\n".join(deaths) or output), began)

    def look(self, name: str, work: Callable[[], Any]) -> None:
        """Run something that needs no device, and therefore no child process."""
        began = time.monotonic()
        try:
            answer = Answer(name=name, status="done", data=work())
        except Exception as error:  # noqa: BLE001  (a failed step is a finding)
            answer = Answer(name=name, status="failed", output=f"{type(error).__name__}: {error}")
        self.add(answer, began)

    def add(self, answer: Answer, began: float) -> Answer:
        """Store an answer to a question started at ``began`` (``time.monotonic``), and report it."""
        answer.seconds = time.monotonic() - began
        self.answers.append(answer)
        self.say(f"{answer.name}: {answer.status}, {answer.seconds:.1f} s")
        return answer

    def data(self, name: str) -> Mapping[str, Any]:
        """Return the data of a step, empty if it has none."""
        found = next((each.data for each in self.answers if each.name == name), None)
        return found if isinstance(found, dict) else {}


def cards(environ: Mapping[str, str], numbering: Mapping[str, Any] | None = None) -> tuple[Identity, ...]:
    """Return every card in every numbering, with the runtime's numbers (see the step ``numbering``) if known."""
    known = {name: (numbering or {}).get(name, ()) for name in ("physical", "buses")}
    return of_machine(this_machine(environ, limit_s=SMI_S), **known)


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
            if not working.done():  # keep the last output during the work, which begins by importing torch
                found["loaded"] = text
        working.result()
    return found


def gather(kit: Kit) -> None:
    """Run all steps, harmless ones first."""
    kit.look("npu-smi", lambda: npu_smi(kit.environ, kit.files))
    kit.look("machine", lambda: machine(kit.environ))
    kit.look("doctor", lambda: examine(this_machine(kit.environ, limit_s=SMI_S)).to_dict())
    for name, limit_s in DEADLINES_S.items():
        kit.step(name, min(limit_s, kit.left_s - SMOKE_S - FOR_LAST_S - 20))
    kit.look("identity", lambda: [asdict(each) for each in cards(kit.environ, kit.data("numbering"))])
    kit.look("clock", lambda: clock(kit.environ, lambda: kit.step("load", 60)))
    smoke(kit)
    for name, limit_s in LAST_S.items():
        kit.step(name, limit_s)


def smoke(kit: Kit) -> None:
    """Run level smoke, and keep its log."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pytest-ascend-contact-") as folder:
        limit_s = max(min(SMOKE_S, kit.left_s - FOR_LAST_S), 10)
        command = [sys.executable, "-m", "pytest", "--ascend", "--ascend-level=smoke", "-q", "-p", "no:cacheprovider"]
        command += [f"--ascend-device={'emulated' if kit.emulated else 'npu'}", f"--ascend-report={folder}/report"]
        reply = run([*command, f"--ascend-deadline={limit_s:.0f}"], kit.environ, limit_s + 20)
        log = Path(folder, "report", "run.jsonl")
        if has_log := log.exists():
            kit.files["smoke/run.jsonl"] = log.read_text(encoding="utf-8", errors="replace")
    status = "done" if has_log else "late" if reply.late else "failed"
    data = {"log": "smoke/run.jsonl", "ended": reply.failure or "exit code 0"} if has_log else None
    kit.add(Answer(name="smoke", status=status, data=data, output=reply.text[-20_000:] or reply.failure), began)


def pack(kit: Kit, path: Path) -> None:
    """Write the kit to ``path`` atomically."""
    about = {
        "schema": SCHEMA,
        "pytest_ascend": __version__,
        "emulated": kit.emulated,
        "made": now(),
        "seconds": round(time.monotonic() - kit.began, 1),
        "steps": {each.name: each.status for each in kit.answers},
    }
    strike = Redaction([*kit.files.values(), *(_json(asdict(each)) for each in kit.answers)])
    answers = [{**strike.in_data(asdict(each)), "name": each.name, "status": each.status} for each in kit.answers]
    texts = {"about.json": _json(about)}
    texts |= {f"steps/{each['name']}.json": _json(each) for each in answers}
    texts |= {name: (strike.in_lines if name.endswith(".jsonl") else strike)(text) for name, text in kit.files.items()}
    texts["summary.html"] = page(about, answers, texts.get("smoke/run.jsonl", ""))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    write_file(path, packed.getvalue())


def page(about: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], log: str = "") -> str:
    """Return the page: ``about`` describes the kit, ``answers`` are its steps, ``log`` is that of the run."""
    steps = []
    for each in answers:
        # The beginning of an answer; the result of level smoke; without either, the last line that was printed.
        last = (line.strip() for line in reversed(each["output"].splitlines()))
        beginning, whole = next(filter(None, last), "")[:400], ""
        if each["data"] is not None:
            data = json.dumps(each["data"], ensure_ascii=False).replace('"', "")[:400]
            beginning = _smoke(log) if each["name"] == "smoke" else data
            whole = json.dumps(each["data"], indent=1, ensure_ascii=False)
        whole += f"\n\n{each['output']}" if each["output"] else ""
        steps.append((each, beginning, whole[:400_000]))
    return templates_of("pytest_ascend.contact", "").get_template("summary.html").render(about=about, steps=steps)


def _smoke(log: str) -> str:
    outcomes: Counter[str] = Counter()
    planned = 0
    for line in log.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            kind = record.get("type") if isinstance(record, dict) else ""
            planned = len(record.get("manifest", ())) if kind == "header" else planned
            outcomes.update([str(record.get("outcome"))] if kind == "record" else [])
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    return f"{counts}, of {planned} cases" if counts else "did not run"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False)


@click.group(invoke_without_command=True)
@_output(default=Path("contact.zip"), help="The file to write.")
@click.option("--device", type=_DEVICES, default="auto", show_default=True, help="As --ascend-device.")
@click.pass_context
def contact(context: click.Context, output: Path, device: str) -> None:
    """Collect what the project needs to know about an NPU from this machine, and pack it in one file.

    Takes at most ten minutes and needs no root; each step runs in a process of its own with a deadline, and a failed
    step is a finding, too. Names and addresses are removed. Look at summary.html inside before you send the file.
    """
    if context.invoked_subcommand:
        return
    if not output.parent.is_dir():
        hint = "name a file in a folder that is there: -o contact.zip"
        raise UsageError(f"the folder of {output} does not exist", hint=hint)
    if output.is_dir() or not os.access(output if output.exists() else output.parent, os.W_OK):
        raise UsageError(f"{output} cannot be written", hint="name a file in a folder of yours: -o contact.zip")
    if device == "npu" and not signs():
        hint = "to see the kit at work: --device emulated"
        raise DeviceUnavailable("this machine shows no sign of Ascend", hint=hint)
    is_active = os.environ.get(EMULATED_VARIABLE) == "1"
    emulated = device == "emulated" or (device == "auto" and (is_active or not signs()))
    # torch must not autoload torch_npu, which would hide failures.
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if emulated:
        from pytest_ascend.emulator.bootstrap import environment

        environ |= environment()
    kit = Kit(environ, emulated, lambda line: click.echo(f"contact: {line}"))
    gather(kit)
    pack(kit, output)
    where = ", on the emulated device" if emulated else ""
    click.echo(f"{output}: {len(kit.answers)} steps{where}; look at summary.html inside")


@contact.command()
@click.argument("kit", type=PATH)
@_output(default=Path("baselines"), help="The folder of baselines to write into.")
def apply(kit: Path, output: Path) -> None:
    """Turn a kit into data: dtypes, confirmed expectations, the chip's clock and memory, durations, error codes."""
    from pytest_ascend.contact.data import confirm, data_of, read_kit, write
    from pytest_ascend.coverage.expectations import today

    data = data_of(read_kit(kit))
    target = write(data, output)
    taken = [by for row in data["dtypes"]["operators"].values() for by in row.values()]
    unknown = [code for code, seen in data["codes"].items() if not seen["known"]]
    operators = len(data["dtypes"]["operators"])
    click.echo(f"{target}: {operators} operators, of which the NPU took {taken.count('npu')} dtypes")
    click.echo(f"{len(data['deviations'])} known deviations seen, {len(data['durations'])} durations")
    click.echo(f"{len(data['codes'])} error codes{', unknown: ' + ', '.join(unknown) if unknown else ', all known'}")
    if data["chip"]["emulated"]:
        click.echo("THE EMULATED DEVICE: none of this says anything about an NPU, or is used")
        return
    count, better = confirm(data, output, today())
    click.echo(f"{output / 'expectations.json'}: {count} cases confirmed on hardware")
    for each in better:
        click.echo(f"better than expected; check whether its expectation can be removed: {each}")
