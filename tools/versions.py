"""How versions of torch_npu fare on the emulated device: the table in docs/versions.md.

    python tools/versions.py 2.7.1 2.12.0            # each in an environment of its own, which is removed afterwards
    python tools/versions.py 2.13.0 --here           # what is installed here
    python tools/versions.py                         # write the page again from what was seen before

For each version: does it come up, who computes its operators (the census), and what becomes of the cases of a level. An
environment takes 5 GB where the registry has only torch with CUDA, and minutes to install. Needs uv.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEEN, PAGE = Path(__file__).with_suffix(".json"), ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- versions -->\n", "<!-- end -->"

#: What the package needs beside torch, and torch_npu without saying so.
REQUIRED = (
    *("pyyaml", "decorator", "attrs", "psutil", "scipy", "click", "cryptography", "filelock", "jinja2", "mpmath"),
    *("msgspec", "packaging", "platformdirs", "pyelftools", "pytest", "pytest-benchmark", "pytest-html", "rich"),
    *("safetensors", "hatchling", "editables"),
)
#: torch before 2.3 was built for numpy 1, and torch_npu before 2.6 too.
OLD_NUMPY = ((2, 6), "numpy<2")

COMES_UP = (
    "import torch, torch_npu\n"
    "assert torch.ones(3).npu().add(1).tolist() == [2, 2, 2]\n"
    "said = getattr(torch.npu.utils, 'get_cann_version', str)()\n"
    "print(said, torch.__version__)"
)
OUTCOMES = ("passed", "waived", "unsupported", "fallback", "not-emulated", "failed", "errored")
LIMIT_S = 3000


def installed(version: str, python: str, folder: Path) -> Path:
    """Make an environment with a torch_npu and the torch that it was made for; return its programs' folder."""
    torch = ".".join(version.split(".")[:3])
    numbers = tuple(int(each) for each in version.split(".")[:2])
    numpy = OLD_NUMPY[1] if numbers < OLD_NUMPY[0] else "numpy"
    _run(["uv", "venv", "-q", "--python", python, str(folder)])
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    _run(["uv", "pip", "install", "-q", f"torch=={torch}", numpy, *REQUIRED], environment)
    # Its wheels ask for torch+cpu by name, which not every registry has.
    _run(["uv", "pip", "install", "-q", "--no-deps", f"torch_npu=={version}"], environment)
    _run(["uv", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", str(ROOT)], environment)
    return folder / "bin"


def seen(programs: Path, level: str) -> dict[str, Any]:
    """Return what becomes of the version whose programs these are."""
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(  # noqa: S603
                command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )

        found: dict[str, Any] = {"day": time.strftime("%Y-%m-%d", time.gmtime()), "level": level}
        up = run("pytest-ascend", "emulate", "--", "python", "-c", COMES_UP)
        if up.returncode:
            return {**found, "fails": _last(up)}
        found["cann"], _, found["torch"] = up.stdout.strip().splitlines()[-1].partition(" ")
        census = run("pytest-ascend", "census", "--json", "--emulated")
        if not census.returncode:
            kinds = Counter(json.loads(census.stdout)["operators"].values())
            found["census"] = dict(sorted(kinds.items()))
        run("pytest", "--ascend", "--ascend-device=emulated", f"--ascend-level={level}", "-q", "--ascend-report=report")
        records = list(_records(Path(folder, "report", "run.jsonl")))
        found["outcomes"] = dict(Counter(each["outcome"] for each in records))
        found["causes"] = dict(Counter(_cause(each) for each in records if each["outcome"] not in OUTCOMES[:2]))
        return found


def _records(log: Path) -> Iterator[Mapping[str, Any]]:
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        entry = json.loads(line)
        if entry["type"] == "record":
            yield entry


def _cause(record: Mapping[str, Any]) -> str:
    """Return what a record that did not pass comes to: the message of the emulated CANN where there is one."""
    said = re.search(r"emulated CANN: (.{1,140})", record.get("detail", ""))
    reason = said[1] if said and record["outcome"] != "not-emulated" else record.get("reason", "")
    return f"{record['outcome']}: {reason.split(chr(10))[0][:160]}"


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("[W", "[ERROR"))]
    code = f"signal {-done.returncode}: " if done.returncode < 0 else ""
    return code + (lines[-1].strip()[:300] if lines else "no message")


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, env=environment, check=True, timeout=LIMIT_S)  # noqa: S603


def page(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of the page."""
    heads = ("torch_npu", "torch", "CANN", "native", "left to the CPU", *OUTCOMES, "seen")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    ordered = sorted(known, key=lambda each: [int(part) for part in re.findall(r"\d+", each)])
    for version in ordered:
        its = known[version]
        if "fails" in its:
            lines.append(f"| {version} | does not come up: {its['fails']} |{' |' * (len(heads) - 3)} {its['day']} |")
            continue
        census, outcomes = its.get("census", {}), its["outcomes"]
        cells = [version, its["torch"], its["cann"] or "not told", census.get("native", ""), census.get("fallback", "")]
        cells += [outcomes.get(each, 0) for each in OUTCOMES]
        lines.append(f"| {' | '.join(map(str, cells))} | {its['day']}, {its['level']} |")
    lines += ["", "What did not pass, by cause:", ""]
    for version in ordered:
        lines += [f"- {version}: {text} ({count})" for text, count in sorted(known[version].get("causes", {}).items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the versions, keep what was seen, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--level", default="smoke")
    parser.add_argument("--python", default=sys.executable, help="the Python to make environments of")
    parser.add_argument("--here", action="store_true", help="take the environment that runs this, and make none")
    parser.add_argument("--environment", type=Path, help="take an environment that is there")
    given = parser.parse_args()
    known = json.loads(SEEN.read_text(encoding="utf-8")) if SEEN.exists() else {}
    for version in given.versions:
        made = None if given.here or given.environment else Path(tempfile.mkdtemp(prefix=f"torch_npu-{version}-"))
        try:
            ready = Path(sys.executable).parent if given.here else given.environment and given.environment / "bin"
            known[version] = seen(ready or installed(version, given.python, made or Path()), given.level)
        finally:
            if made:
                shutil.rmtree(made, ignore_errors=True)
        SEEN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + page(known) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
