"""Test versions of torch_npu, chips and CANN releases on the emulated device: docs/evaluation/versions.md.

    python tools/versions.py 2.7.1 2.12.0            # each in an environment of its own, which is removed afterwards
    python tools/versions.py 2.13.0 --here           # the installed version
    python tools/versions.py --here --chip 310P 950 --cann 8.1.RC1     # chips and CANN releases, as installed
    python tools/versions.py --log report/run.jsonl  # an earlier run on an emulated chip
    python tools/versions.py 2.7.1 --keep reports    # with the log and the page of the run
    python tools/versions.py 2.7.1 --check           # only check, as .ci/run does; write nothing
    python tools/versions.py                         # rewrite the page from earlier results

    python tools/versions.py --others op-plugin upstream-report    # a run of third-party tests (pytest-ascend upstream)

The board of third-party tests is on the same page; a file's new results replace its previous ones.
``tools/foreign/set_aside.json`` lists tests that are proven to be faulty themselves, each with its proof.

For each version: whether it starts, which backend runs its operators (the census), outcomes of the cases of a level,
and of training two models. An environment takes 5 GB where the registry has only torch with CUDA, and minutes to
install. Needs uv.
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
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.writing import read
from pytest_ascend.system.files import write_between
from pytest_ascend.verdict.summary import summarise
from tools.evaluation.support import table

ROOT = Path(__file__).resolve().parent.parent
PLAYED = Path(__file__).with_name("versions_played.json")
FOREIGN, ASIDE = (Path(__file__).parent / "foreign" / each for each in ("board.json", "set_aside.json"))
SEEN, PAGE = Path(__file__).with_suffix(".json"), ROOT / "docs" / "evaluation" / "versions.md"
#: Maximum number of causes of third-party test failures listed.
CAUSES = 40

#: Dependencies of the package besides torch, and undeclared ones of torch_npu.
REQUIRED = (
    *("pyyaml", "decorator", "attrs", "psutil", "scipy", "click", "cryptography", "filelock", "jinja2"),
    *("msgspec", "packaging", "platformdirs", "pyelftools", "pytest", "pytest-benchmark", "pytest-html", "rich"),
    *("safetensors", "setuptools", "hatchling", "editables"),
)

COMES_UP = (
    "import torch, torch_npu\n"
    "assert torch.ones(3).npu().add(1).tolist() == [2, 2, 2]\n"
    "said = getattr(torch.npu.utils, 'get_cann_version', str)()\n"
    "print(said, torch.__version__)"
)
OUTCOMES = ("passed", "waived", "unsupported", "fallback", "not-emulated", "failed", "errored", "not-run")
#: Models whose training is on the page: part of level standard, and run separately beside a lower level.
TRAINED = ("resnet50", "vit_b_16")
LIMIT_S = 3000
#: Outcomes of cases that count as success for a version. Flaky cases are reported; they passed when run again.
GOOD = {"passed", "waived", "unsupported", "flaky"}
#: Exit code for a version that cannot be installed here.
LEFT_OUT = 3


def installed(version: str, python: str, folder: Path) -> Path:
    """Create an environment with a torch_npu and the torch it was built for; return its folder of programs."""
    numbers = version.split(".")[:3]
    torch = ".".join(numbers)
    # torch before 2.3 was built for numpy 1, and torch_npu before 2.6 too.
    numpy = "numpy<2" if tuple(map(int, numbers[:2])) < (2, 6) else "numpy"
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    for command in (
        ("venv", "--python", python, str(folder)),
        ("pip", "install", f"torch=={torch}", numpy, *REQUIRED),
        # Its wheels require torch+cpu by name, which not every registry has.
        ("pip", "install", "--no-deps", f"torch_npu=={version}"),
        ("pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)),
    ):
        subprocess.run(["uv", "-q", *command], env=environment, check=True, timeout=LIMIT_S)  # noqa: S603, S607
    return folder / "bin"


def seen(
    programs: Path, level: str, options: tuple[str, ...] = (), keep: Path | None = None, *, cases_only: bool = False
) -> dict[str, Any]:
    """Return the results of the version with these programs.

    With ``cases_only``, or with ``options`` of pytest, no census is taken and no model trained. The report of the run
    is stored in the folder ``keep``.
    """
    cases_only = cases_only or bool(options)
    found: dict[str, Any] = {"day": time.strftime("%Y-%m-%d", time.gmtime()), "level": level}
    with tempfile.TemporaryDirectory() as folder:
        up = _run_in(folder, programs, "pytest-ascend", "emulate", "--", "python", "-c", COMES_UP)
        if up.returncode:
            return {**found, "fails": _last(up)}
        found["cann"], _, found["torch"] = up.stdout.strip().splitlines()[-1].partition(" ")
        census = None if cases_only else _run_in(folder, programs, "pytest-ascend", "census", "--json", "--emulated")
        if census and not census.returncode:
            kinds = Counter(json.loads(census.stdout)["operators"].values())
            found["census"] = dict(sorted(kinds.items()))
        done = _run_cases(folder, programs, f"--ascend-level={level}", *options)
        if not (log := Path(folder, "report", "run.jsonl")).exists():
            return {**found, "fails": f"pytest ends before the first case: {_last(done)}"}
        if keep:
            shutil.copytree(Path(folder, "report"), keep, dirs_exist_ok=True)
        records = _results(log)
        if not (training := trained(records)) and not cases_only:
            _run_cases(folder, programs, "--ascend-suite=models", "-k", f"training and ({' or '.join(TRAINED)})")
            training = trained(_results(log))
        return found | counted(records) | training


def trained(records: Iterable[ResultRecord]) -> dict[str, Any]:
    """Return how often the models' training had each outcome; empty if it was not run."""
    names = re.compile(rf"models/({'|'.join(TRAINED)})/(\w+-)?training/")
    outcomes = Counter(each.outcome_name for each in records if names.match(each.case.id))
    return {"trained": dict(outcomes)} if outcomes else {}


def _run_in(folder: str, programs: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with a version's programs first in PATH and one thread per process."""
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(  # noqa: S603
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


def _run_cases(folder: str, programs: Path, *chosen: str) -> subprocess.CompletedProcess[str]:
    """Run selected cases, and write a report to the folder."""
    always = ("--ascend-device=emulated", "-q", "--ascend-report=report")
    return _run_in(folder, programs, "pytest", "--ascend", *always, *chosen)


def counted(records: Collection[ResultRecord]) -> dict[str, Any]:
    """Count cases by outcome, by known deviation, and (if they did not pass) by cause."""
    known = (each.waiver["cause"] for each in records if each.waiver.get("cause"))
    causes = (_cause(each) for each in records if each.outcome_name not in OUTCOMES[:2])
    outcomes = Counter(each.outcome_name for each in records)
    return {"known": dict(Counter(known)), "outcomes": dict(outcomes), "causes": dict(Counter(causes))}


def played(log: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the results of an earlier run on an emulated chip, from its log."""
    header = read(log).header
    timing: Any = header.options.get("timing", {})
    numerics = timing.get("emulated_numerics", "exact")
    chip, cann = header.stack.chip.removeprefix("Ascend"), header.stack.cann.removeprefix("emulated ")
    name = f"chip {chip}, CANN {cann}, {header.level}" + ("" if numerics == "exact" else f", {numerics}")
    found = {"day": header.started[:10], "level": header.level, **counted(_results(log))}
    return f"{name} ({header.selection.reason})" if header.selection.reason else name, found


def _results(log: Path) -> tuple[ResultRecord, ...]:
    """Return the records of a run, including cases that were not run; empty without a log."""
    return summarise(read(log)).results if log.exists() else ()


def _cause(record: ResultRecord) -> str:
    """Return the cause of a record that did not pass: the emulated CANN's message if there is one."""
    said = re.search(r"emulated CANN: (.{1,140})", record.detail)
    reason = said[1] if said and record.outcome_name != "not-emulated" else record.reason
    return f"{record.outcome_name}: {reason.split(chr(10))[0][:160]}"


def _last(done: subprocess.CompletedProcess[str]) -> str:
    aside = ("[W", "[ERROR", "hint:")
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.strip().startswith(aside)]
    code = f"signal {-done.returncode}: " if done.returncode < 0 else ""
    return code + (lines[-1].strip()[:300] if lines else "no message")


def page(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of the page."""
    heads = ("torch_npu", "torch", "CANN", "native", "left to the CPU", *OUTCOMES, "trained", "seen")
    rows, ordered = [], sorted(known, key=lambda each: [int(part) for part in re.findall(r"\d+", each)])
    for version in ordered:
        its = known[version]
        if "fails" in its:
            empty = [""] * (len(heads) - 3)
            rows.append([version, f"does not come up: {its['fails']}", *empty, its["day"]])
            continue
        census, training = its.get("census", {}), its.get("trained", {})
        cells = [version, its["torch"], its["cann"] or "not told", census.get("native", ""), census.get("fallback", "")]
        cells += [its["outcomes"].get(each, 0) for each in OUTCOMES]
        cells += [f"{training.get('passed', 0)} of {sum(training.values())}" if training else ""]
        rows.append([*cells, f"{its['day']}, {its['level']}"])
    causes = [(each, text, count) for each in ordered for text, count in sorted(known[each].get("causes", {}).items())]
    return _section(heads, rows, "What did not pass, by cause:", causes)


def page_of_played(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of chips and CANN releases."""
    rows = []
    for name, its in sorted(known.items()):
        waived = ", ".join(f"{count} {cause}" for cause, count in sorted(its["known"].items()))
        rows.append([name, its["level"], *(its["outcomes"].get(each, 0) for each in OUTCOMES), waived, its["day"]])
    causes = sorted((name, text, count) for name, its in known.items() for text, count in its["causes"].items())
    title = "What did not pass, by cause:" if causes else "Nothing failed or was missing."
    return _section(("emulated", "level", *OUTCOMES, "waived for", "seen"), rows, title, causes)


def _section(
    heads: Sequence[str], rows: Iterable[Sequence[object]], title: str, causes: Iterable[tuple[str, str, object]]
) -> str:
    """Return a table, followed by causes: subject, cause, and count."""
    lines = [*table(heads, rows), "", title, "", *(f"- {name}: {text} ({count})" for name, text, count in causes)]
    return "\n".join(lines).rstrip() + "\n"


def others(report: Path, aside: Mapping[str, str]) -> dict[str, Any]:
    """Return the results of third-party tests by file: outcomes, causes, and reasons for skips."""
    run, skipped = read(report / "run.jsonl"), _kept(report / "skipped.json")
    records: dict[str, list[ResultRecord]] = {each: [] for each in skipped}
    for row in run.records:
        records.setdefault(row.node_id.partition("::")[0], []).append(row)
    found: dict[str, dict[str, Any]] = {}
    for file, rows in records.items():
        name = "/".join(file.split("/")[-2:])
        own = [each for each in rows if each.outcome_name != "passed" and each.node_id.replace(file, name, 1) in aside]
        rest = [each for each in rows if each not in own]
        found[name] = {
            "day": run.header.started[:10],
            "outcomes": dict(Counter(each.outcome_name for each in rest)) | ({"set aside": len(own)} if own else {}),
            "causes": dict(Counter(_cause(each) for each in rest if each.outcome_name != "passed")),
            "skipped": skipped.get(file, {}),
        }
    return found


#: Columns of the board of third-party tests, and the outcome that each counts.
BOARD = {"passed": "passed", "CPU": "fallback", "refused": "unsupported", "not emulated": "not-emulated"}
BOARD |= {"wrong": "failed", "crashed": "errored"}


def page_of_foreign(board: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the board of third-party tests: by repository and device, then failures and crashes."""
    rows, causes = [], []
    for name, files in sorted(board.items()):
        counts = sum((Counter(each["outcomes"]) for each in files.values()), Counter())
        aside = counts.pop("set aside", 0)
        days = sorted({each["day"] for each in files.values()})
        cells = [name, len(files), sum(not each["outcomes"] for each in files.values())]
        cells += [f"{sum(counts.values())}, {aside} set aside" if aside else sum(counts.values())]
        rows.append(
            [*cells, *(counts[each] for each in BOARD.values()), " to ".join(dict.fromkeys((days[0], days[-1])))]
        )
        said = sum((Counter(each["causes"]) for each in files.values()), Counter())
        worse = [each for each in _ordered(said) if not each[0].startswith(("unsupported", "fallback"))]
        causes += [(name, _inert(text), count) for text, count in worse[:CAUSES]]
        whole = (Counter(list(each["skipped"])[:1]) for each in files.values() if not each["outcomes"])
        skipped = _ordered(sum(whole, Counter()))
        causes += [(f"{name}: skipped whole", _inert(text), f"{count} files") for text, count in skipped]
    heads = ("tests of", "files", "skipped whole", "executed", *BOARD, "seen")
    return _section(heads, rows, "What was not emulated, wrong, or crashed, by cause:", causes)


def _ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


def _inert(text: str) -> str:
    """Return a third-party message as inert text."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _kept(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def _keep(file: Path, known: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check(version: str, python: str, level: str) -> int:
    """Report on a version: 0 if nothing is wrong, 1 if something is, LEFT_OUT if it cannot be installed here."""
    with tempfile.TemporaryDirectory(prefix=f"torch_npu-{version}-") as folder:
        try:
            programs = installed(version, python, Path(folder))
        except (OSError, subprocess.SubprocessError) as error:
            sys.stdout.write(f"torch_npu {version}: left out, cannot be installed here: {error}\n")
            return LEFT_OUT
        found = seen(programs, level, cases_only=True)
    counts = found.get("outcomes", {})
    said = found.get("fails") or ", ".join(f"{count} {each}" for each, count in sorted(counts.items()))
    sys.stdout.write(f"torch_npu {version}, {level}: {said}\n")
    sys.stdout.writelines(f"  {cause} ({count})\n" for cause, count in found.get("causes", {}).items())
    return int("fails" in found or not GOOD.issuperset(counts))


def main() -> int:
    """Test the versions, chips and CANN releases, store the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--level", default="smoke")
    parser.add_argument("--python", default=sys.executable, help="the Python to make environments of")
    parser.add_argument("--here", action="store_true", help="take the environment that runs this, and make none")
    parser.add_argument("--chip", nargs="*", default=[], help="chips to be, as pytest-ascend emulate --chip has them")
    parser.add_argument("--cann", nargs="*", default=[], help="releases of CANN to answer as")
    parser.add_argument("--keep", type=Path, help="a folder to keep the reports of versions in")
    parser.add_argument("--log", nargs="*", default=[], type=Path, help="logs of runs on emulated chips to add")
    parser.add_argument("--others", nargs=2, metavar=("NAME", "REPORT"), help="a run of pytest-ascend upstream to add")
    parser.add_argument("--check", action="store_true", help="only say how versions fare: exit code 1 if badly")
    given = parser.parse_args()
    if given.check:
        return max(check(version, given.python, given.level) for version in given.versions)
    here, known, emulated = Path(sys.executable).parent, _kept(SEEN), _kept(PLAYED)
    chips = [(f"chip {each}", f"--ascend-emulate=chip={each}") for each in given.chip]
    for name, option in [*chips, *((f"CANN {each}", f"--ascend-emulate=cann={each}") for each in given.cann)]:
        emulated[f"{name}, {given.level}"] = seen(here, given.level, (option,))
        _keep(PLAYED, emulated)
    _keep(PLAYED, emulated | dict(map(played, given.log)))
    for version in given.versions:
        with tempfile.TemporaryDirectory(prefix=f"torch_npu-{version}-", ignore_cleanup_errors=True) as folder:
            programs = here if given.here else installed(version, given.python, Path(folder))
            found = seen(programs, given.level, keep=given.keep and given.keep / version)
        known = {**_kept(SEEN), version: found}  # another run of this command may have added a version
        _keep(SEEN, known)
    board = _kept(FOREIGN)
    if given.others:
        found = others(Path(given.others[1]), _kept(ASIDE))
        board.setdefault(f"{given.others[0]}, emulated", {}).update(found)
        _keep(FOREIGN, board)
    write_between(PAGE, "versions", page(known))
    write_between(PAGE, "chips", page_of_played(_kept(PLAYED)))
    write_between(PAGE, "foreign", page_of_foreign(board))
    return 0


if __name__ == "__main__":
    sys.exit(main())
