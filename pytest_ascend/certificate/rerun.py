"""Re-execute random cases of a certified run on this machine's device."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

from pytest_ascend.certificate.judgement import disagreements
from pytest_ascend.certificate.recomputed import PLACE
from pytest_ascend.certificate.statement import can_run_again
from pytest_ascend.certificate.words import of_cases
from pytest_ascend.records.case import Stack
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.writing import read
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import AscendError, UsageError
from pytest_ascend.system.text import visible
from pytest_ascend.verdict.summary import NOT_EXECUTED, Summary, summarise


@dataclass(frozen=True, kw_only=True, slots=True)
class Rerun:
    """The result of a re-execution: its stack, how many cases were executed, and which disagree.

    ``of`` counts the cases that can be re-executed, ``never`` those that cannot.
    """

    stack: Stack
    executed: int
    of: int
    disagreements: tuple[str, ...]
    never: int = 0


def rerun(claimed: Summary, count: int, *, device: str = "auto", chance: Random | None = None) -> Rerun:
    """Sample ``count`` executed cases of a run, execute them here, and return the disagreements.

    The calls of sweeps follow from the challenge of the run. Raises UsageError if there is nothing to sample, or the
    device has another chip; AscendError if pytest does not finish.
    """
    eligible = [each for each in claimed.results if _place(each)]
    if not eligible:
        raise UsageError("no case of the run can be executed again", hint="the log names no test of this release")
    sampled = (chance or SystemRandom()).sample(eligible, min(count, len(eligible)))
    with tempfile.TemporaryDirectory(prefix="pytest-ascend-rerun-") as scratch:
        found = _executed(claimed, sampled, device, Path(scratch))
    recorded, mine = claimed.run.header.stack, found.run.header.stack
    if mine.device == "npu" and recorded.chip != mine.chip and not mine.emulated:
        here = f"the run was on {recorded.chip}, and this device is {mine.chip or mine.device}"
        raise UsageError(f"{here}: nothing can be compared", hint="re-execute on any NPU of the same chip")
    known = {each.case.id for each in found.results if each.outcome_name not in NOT_EXECUTED}
    absent = [each.case.id for each in sampled if each.case.id not in known]
    return Rerun(
        stack=mine,
        executed=len(known),
        of=len(eligible),
        never=len(claimed.results) - len(eligible),
        disagreements=(*disagreements(claimed, found), *of_cases(absent, "could not be executed here")),
    )


def _place(result: ResultRecord) -> str:
    """Return the test of a case in this installation, "" for a case that cannot be re-executed."""
    found = PLACE.fullmatch(result.node_id)
    if not found or found[2] != result.case.suite or not can_run_again(result):
        return ""
    place = folder("suites") / found[1].partition("::")[0]
    return f"{folder('suites').resolve()}/{found[1]}" if place.is_file() else ""


def _executed(claimed: Summary, sampled: Sequence[ResultRecord], device: str, scratch: Path) -> Summary:
    header = claimed.run.header
    challenge = header.options.get("challenge")
    line = [sys.executable, "-m", "pytest", "--ascend", f"--ascend-device={device}", f"--ascend-level={header.level}"]
    line += [f"--ascend-report={scratch / 'report'}", "-q", "-p", "no:cacheprovider"]
    line += [f"--ascend-certify=challenge={int(challenge)}"] if challenge is not None else []
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with (scratch / "output").open("wb") as output:
        done = subprocess.run(  # noqa: S603
            [*line, *map(_place, sampled)], cwd=scratch, env=environ, stdout=output, stderr=output, check=False
        )
    if done.returncode not in (0, 1, 5, 7):  # exit codes of a run that finished, with a log of what was executed
        tail = (scratch / "output").read_text("utf-8", "replace").splitlines()[-12:]
        message = "the cases could not be executed again:\n" + "\n".join(f"  {visible(each)}" for each in tail)
        raise AscendError(message, hint="see that 'pytest --ascend' works on this machine")
    return summarise(read(scratch / "report" / "run.jsonl"))
