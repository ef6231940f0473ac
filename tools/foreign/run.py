"""Run other people's operator tests on a device, and make a run log and a page of ours of what becomes of them.

    python tools/foreign/run.py op-plugin/test/test_base_ops -o report                    # on the emulated device
    python tools/foreign/run.py pytorch/test --device npu -o report --part 0/2 --limit 50
    python tools/foreign/run.py pytorch/test/test_torch.py --disabled .../.pytorch-disabled-tests.json
    python tools/foreign/run.py op-plugin/test --write op-plugin    # and into docs/evaluation/versions.md, file by file

Meant for the tests of Ascend/pytorch and of op-plugin, which are files of unittest; any that pytest collects will do.
Of torch's device-generic tests only those for the device are run, and none that is in the list of ``--disabled``.
Each file runs in a process of its own. One that dies, or is at one test for too long, is started again for the tests
that are left, so that each test has an outcome. Skipped tests are counted and are no cases. Exit code 1 where a test
did not pass.

With ``--write`` what became of a file replaces what was known of it in ``board.json``, at once, and the page is written
from all that is known when the run is over. ``set_aside.json`` has the tests whose failures are proven to be their own
fault, each with its proof; the board counts such failures apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_ascend.emulator.bootstrap import environment
from pytest_ascend.emulator.choices import checked_memory
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.environment.stack import collect
from pytest_ascend.errors import UsageError
from pytest_ascend.page import html
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import OUTCOMES, Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.text import parse_size
from pytest_ascend.runlog.contents import SUBSET, Footer, Header, Selection
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.system.files import write_file
from pytest_ascend.verdict.summary import summarise

HERE = Path(__file__).resolve().parent
BOARD, SET_ASIDE = HERE / "board.json", HERE / "set_aside.json"
#: How often a file is started anew for the tests that are left.
STARTS = 12
#: pytest's exit code for a file that has no tests.
_NO_TESTS = 5
SKIPPED, ASIDE = "skipped", "set aside"


def chosen(roots: Iterable[Path], part: str) -> list[Path]:
    """Return the files of tests in folders; ``part`` is K/N: those whose name's SHA-256 is K modulo N."""
    index, count = (int(each) for each in part.split("/"))
    files = [file for root in roots for file in (sorted(root.rglob("test_*.py")) if root.is_dir() else [root])]
    return [each for each in files if int(hashlib.sha256(each.name.encode()).hexdigest(), 16) % count == index]


def run(file: Path, variables: Mapping[str, str], test_s: float, file_s: float) -> dict[str, dict[str, Any]]:
    """Return what became of each test of a file, by its node id."""
    found: dict[str, dict[str, Any]] = {}
    end = time.monotonic() + file_s
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events")
        for _ in range(STARTS):
            events.write_text("", encoding="utf-8")
            code, at = _process(file, {**variables, "FOREIGN_EVENTS": str(events)}, [*found], test_s, end)
            said = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
            for event in said:
                if "outcome" in event and found.get(event["test"], {}).get("outcome", "passed") == "passed":
                    found[event["test"]] = event
            unfinished = [event["test"] for event in said if event["test"] not in found]
            if not unfinished:
                if code not in (0, _NO_TESTS) and not found:
                    found[file.name] = {"outcome": "errored", "reason": f"nothing ran: {_ended(code)}"}
                break
            found[unfinished[-1]] = {"outcome": "errored", "reason": at or f"the process died: {_ended(code)}"}
            if time.monotonic() >= end:
                break
    return found


def _process(file: Path, variables: Mapping[str, str], done: list[str], test_s: float, end: float) -> tuple[int, str]:
    """Run the tests of a file that are not done; return the exit code, and why it was killed."""
    known = Path(variables["FOREIGN_EVENTS"]).with_suffix(".done")
    known.write_text("\n".join(done), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reporter", "-p", "no:cacheprovider", "--rootdir", "."]
    command += ["-o", "addopts=", "-k", variables.get("FOREIGN_CHOSEN", ""), file.name]
    child = subprocess.Popen(  # noqa: S603
        command,
        cwd=file.parent,
        env={**os.environ, **variables, **_paths(), "FOREIGN_DONE": str(known)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    events, size, since = Path(variables["FOREIGN_EVENTS"]), 0, time.monotonic()
    while child.poll() is None:
        time.sleep(0.1)
        now = time.monotonic()
        if (grown := events.stat().st_size) != size:
            size, since = grown, now
        if (size and now - since > test_s) or now > end:  # until the first test begins, only the file's time counts
            os.killpg(child.pid, signal.SIGKILL)
            return child.wait(), f"slow: no end within {test_s:g} s" if now <= end else "slow: the file's time was up"
    return child.returncode, ""


def _paths() -> dict[str, str]:
    """Return where tests find the reporter, and this Python's programs, as some start ``python`` or ``torchrun``."""
    before = {"PYTHONPATH": str(HERE), "PATH": str(Path(sys.executable).parent)}
    return {name: f"{first}{os.pathsep}{os.environ.get(name, '')}" for name, first in before.items()}


def _ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def records(file: Path, found: Mapping[str, Mapping[str, Any]]) -> Iterator[ResultRecord]:
    """Yield a record for each test that was executed."""
    place = Path(file.parent.name, file.name)
    for node, event in found.items():
        if event["outcome"] == SKIPPED:
            continue
        names = node.split("::")[1:] or ["(file)"]
        case = Case(suite="user", subject=_plain(place.with_suffix("")), property=_plain("-".join(names)))
        yield ResultRecord.of(
            case,
            f"{place}::{'::'.join(names)}",
            _outcome(event),
            duration_s=float(event.get("seconds", 0.0)),
        )


def _plain(text: object) -> str:
    return re.sub(r"[^\w.\[\]-]+", ".", str(text))


def _outcome(event: Mapping[str, Any]) -> Outcome:
    kind = OUTCOMES[event["outcome"]]
    return (
        kind(reason=event.get("reason", ""), detail=event.get("detail", "")) if event["outcome"] != "passed" else kind()
    )


def write(report: Path, device: str, rows: list[ResultRecord], reason: str) -> Counter[str]:
    """Write run log and page; return how often each outcome occurred."""
    unique = {row.case.id: row for row in rows}
    header = Header(
        run_id=uuid.uuid4().hex,
        started=_now(),
        stack=collect("npu", emulated=device == "emulated", chip=""),
        level="full",
        selection=Selection(SUBSET, reason),
        manifest=tuple(row.case for row in unique.values()),
    )
    report.mkdir(parents=True, exist_ok=True)
    log = RunLog.create(report / "run.jsonl", header, durable=False)
    for row in unique.values():
        log.append(row)
    counts = Counter(row.outcome.name for row in unique.values())
    verdict = summarise(log.contents()).verdict
    log.finish(Footer(finished=_now(), records=len(unique), counts=dict(counts), verdict=verdict.in_footer()))
    log.close()
    write_file(report / "conformance.html", html.render(summarise(read(report / "run.jsonl"))))
    return counts


#: A number by itself, not one within a name.
_NUMBER = re.compile(r"(?<!\w)[-+]?\d[\d.]*(e[-+]?\d+)?")


def causes(rows: list[ResultRecord]) -> Counter[str]:
    """Count what did not pass by its root cause: the message with its numbers taken out."""
    found: Counter[str] = Counter()
    for row in rows:
        if row.outcome.name != "passed":
            said = re.search(r"emulated CANN: (.{1,120})", row.outcome.detail)
            text = said[1] if said else row.outcome.reason[:120]
            found[f"{row.outcome.name}: {_NUMBER.sub('N', text)}"] += 1
    return found


def seen(rows: list[ResultRecord], found: Mapping[str, Mapping[str, Any]], aside: Mapping[str, str]) -> dict[str, Any]:
    """Return what the board keeps of a file: how often each outcome occurred, causes, and why tests were skipped."""
    own = [each for each in rows if each.node_id in aside and each.outcome.name != "passed"]
    rest = [each for each in rows if each not in own]
    reasons = Counter(_reason(each["reason"]) for each in found.values() if each["outcome"] == SKIPPED)
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "outcomes": dict(Counter(each.outcome.name for each in rest)) | ({ASIDE: len(own)} if own else {}),
        "causes": dict(causes(rest)),
        "skipped": dict(reasons),
    }


def _reason(said: str) -> str:
    """Return why a test was skipped, from pytest's triple of file, line and reason."""
    return said.rpartition("Skipped: ")[2].strip("')\" ")[:120] or "no reason"


def keep(repository: str, device: str, file: str, entry: Mapping[str, Any]) -> None:
    """Put what was seen of a file into the board, beside what it has."""
    board = json.loads(BOARD.read_text(encoding="utf-8")) if BOARD.exists() else {}
    board.setdefault(f"{repository}, {device}", {})[file] = entry
    beside = BOARD.with_suffix(".new")
    beside.write_text(json.dumps(board, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(BOARD)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _size(text: str) -> int:
    try:
        return checked_memory(parse_size(text))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main() -> int:
    """Run the files and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tests", type=Path, nargs="+", help="folders and files")
    parser.add_argument("--device", choices=("emulated", "npu"), default="emulated")
    parser.add_argument("-o", "--report", type=Path, default=Path("foreign-report"))
    parser.add_argument("--part", default="0/1", metavar="K/N", help="files whose name's SHA-256 is K modulo N")
    parser.add_argument("--limit", type=int, default=0, help="so many files at most")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="for a test")
    parser.add_argument("--file-deadline", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--memory", type=_size, default="4GiB", metavar="SIZE", help="of the emulated device")
    parser.add_argument(
        "-k", dest="chosen", default="", metavar="EXPRESSION", help="choose tests by name, as pytest does"
    )
    parser.add_argument("--disabled", type=Path, metavar="FILE", help="torch_npu's list of torch's tests that fail")
    parser.add_argument("--write", metavar="REPOSITORY", help="write the board in docs/evaluation/versions.md")
    given = parser.parse_args()
    files = chosen([each.resolve() for each in given.tests], given.part)[: given.limit or None]
    if not files:
        parser.error(f"there are no files test_*.py in {given.tests} for part {given.part}")
    variables = environment(EmulatorSettings(memory_bytes=given.memory)) if given.device == "emulated" else {}
    variables |= {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1", "FOREIGN_CHOSEN": given.chosen}
    if given.disabled:
        variables["FOREIGN_DISABLED"] = str(given.disabled.resolve(strict=True))
    os.environ.update(variables)  # the report names the CANN that was told
    rows: list[ResultRecord] = []
    aside = json.loads(SET_ASIDE.read_text(encoding="utf-8"))
    skipped = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        results = pool.map(lambda each: run(each, variables, given.deadline, given.file_deadline), files)
        for file, found in zip(files, results, strict=True):
            mine = list(records(file, found))
            skipped += len(found) - len(mine)
            rows += mine
            if given.write:
                keep(given.write, given.device, f"{file.parent.name}/{file.name}", seen(mine, found, aside))
            counted = Counter(row.outcome.name for row in mine)
            sys.stdout.write(f"{file.name}: {', '.join(f'{n} {name}' for name, n in counted.items())}\n")
            sys.stdout.flush()
            if not mine:
                said = Counter(_reason(each["reason"]) for each in found.values()).most_common(1)
                sys.stdout.write(f"  skipped whole: {said[0][0] if said else 'it has no tests'}\n")
    counts = write(given.report, given.device, rows, f"{len(files)} files of others' tests, part {given.part}")
    if given.write:
        subprocess.run([sys.executable, HERE.parent / "versions.py"], check=True)  # noqa: S603
    total = sum(counts.values())
    for cause, count in causes(rows).most_common(60):
        sys.stdout.write(f"{count:5}  {cause}\n")
    share = 100 * counts["passed"] / max(1, total)
    line = f"{len(files)} files, {total} tests executed, {share:.1f} % pass, {skipped} skipped"
    sys.stdout.write(f"{line}; {given.report / 'conformance.html'}\n")
    return int(counts["passed"] != total)


if __name__ == "__main__":
    sys.exit(main())
