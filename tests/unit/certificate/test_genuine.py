"""Certificates of real runs: a genuine log earns its tier, and whatever a forger changes in it is refused by name."""

from __future__ import annotations

import re
import shlex
from datetime import date
from pathlib import Path

import pytest

from pytest_ascend.certificate import tiers
from pytest_ascend.certificate.judgement import certify, disagreements, verify
from pytest_ascend.certificate.requirements import REQUIREMENTS
from pytest_ascend.coverage import manifest
from pytest_ascend.runlog.reading import read
from pytest_ascend.system.bundled import folder
from pytest_ascend.verdict.summary import Summary, summarise
from tests import forks

from . import genuine, runs
from .forgeries import BEFORE, REVEALED, ROLES, UNSEEN, of
from .genuine import Log

#: Runs of a minute, on a busy machine of several.
pytestmark = pytest.mark.timeout(900)

#: With one known defect, which is a twentieth of them.
FUSED = sorted(
    (case.id for case in manifest.load(folder("suites"))
     if (case.suite, case.level, case.dtype) == ("fused", "smoke", "float32") and "ptiou" not in case.id),
    key=lambda name: "npu_iou" not in name,
)  # fmt: skip
#: A run of a few seconds with a record for each role.
SHORT = (
    "environment/test_environment.py",
    *(f"fused/test_fused.py::test_fused[{name}]" for name in FUSED[:20]),
    *(f"ops/test_ops.py::test_forward[ops/{name}/forward/{dtype}]" for name, dtype in (
      *((name, "float32") for name in ("softmax", "gelu", "exp", "sin", "ctc_loss", "relu", "argsort", "add")),
      ("exp", "bfloat16"), ("relu", "bfloat16"))),
    "ops/test_ops.py::test_sweep[ops/argsort/sweep/float32]",
    "benchmarks/test_benchmarks.py::test_launch",
)  # fmt: skip
#: Requirement -> a forgery that it refuses, and what it says of it.
SAID = {
    "device": ("an emulated stack", "the emulated device"),
    "subset": ("a subset", "the run was a subset (-k relu)"),
    "incomplete": ("no footer", "stopped before its end"),
    "missing": ("a case that was not run", "1 case did not run"),
    "failures": ("a failure", "1 case failed"),
    "fallbacks": ("fallbacks of a whole suite", "of ops computed by the CPU"),
    "waivers": ("a waiver that is over", "expired on 2026-01-01"),
    "limits": ("370 limits of design that the release does not have", "of ops lacking by design"),
    "release": ("other judges", "the suites and judges of the run are not those of this release"),
    "tampered": ("a planted fault", "faults were planted"),
    "unhealthy": ("no devices", "npu-smi did not answer"),
    "mixed": ("no driver", "it is not known which driver was tested"),
    "disturbed": ("a latency that is no number", "without a figure that is a number"),
    "blind": ("one of 15 planted errors", "1 planted errors and 5 correct results"),
    "header": ("one invented case", "1 case that this release does not have: ops/new0/forward/float32"),
    "records": ("a limit used 1.5 times", "the log says it agrees: True, and False follows from the rest"),
    "attempts": ("failed, then passed", "1 case whose outcome does not follow from the attempts"),
    "known-deviations": ("a longer waiver", "waived otherwise than this release does"),
    "chain": ("a line that was changed after it was written", "does not continue the chain of hashes"),
    "clock": ("a run resumed over five years", "14 at most are one run"),
    "options": ("forced precision", "the log says the setting ACL_PRECISION_MODE 'force_fp16'"),
    "versions": ("CANN 99.0.0", "this release knows no CANN 99.0.0"),
    "machine": ("torch_npu 2.1 in what the doctor saw", "and the doctor saw 2.1.0"),
    "devices": ("another card after the run", "which npu-smi did not list"),
}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return a short run whose figures are not the CPU's own, as an NPU's log."""
    options = ("--ascend-emulate=numerics=chip:7", "--ascend-certify=challenge=77")
    where = [f"{folder('suites')}/{each}" for each in SHORT]
    return genuine.as_npu(genuine.parsed(genuine.run(tmp_path_factory.mktemp("short"), *options, *where).read_bytes()))


def test_the_genuine_log_is_not_refused(short: Log, tmp_path: Path) -> None:
    assert genuine.refused(tmp_path / "run.jsonl", short) == {}
    assert not [role for role in ROLES if not of(short, role)]


@pytest.mark.drawn(60)
@pytest.mark.parametrize("name", sorted(BEFORE.keys() - {"a time without an offset"}))
def test_a_forgery_is_refused_by_name(short: Log, tmp_path: Path, name: str) -> None:
    found = genuine.refused(tmp_path / "run.jsonl", short, BEFORE[name])
    assert found
    for requirement, (forgery, words) in SAID.items():
        assert forgery != name or words in found[requirement]


@pytest.mark.parametrize("name", UNSEEN)
def test_what_a_log_cannot_show_is_not_refused_and_another_run_reveals_it(
    short: Log, tmp_path: Path, name: str
) -> None:
    assert genuine.refused(tmp_path / "run.jsonl", short, UNSEEN[name]) == {}

    def made(change: object) -> Summary:
        log = genuine.copied(short)
        if callable(change):
            change(log)
        return summarise(read(genuine.finished(tmp_path / "other.jsonl", log)))

    def truth(log: Log) -> None:
        if name.startswith("a failed case"):
            of(log, "rounded").update(outcome="failed", reason="differs")
        if name.startswith("a fallback"):
            of(log, "by the CPU").update(outcome="fallback")

    said = disagreements(made(UNSEEN[name]), made(truth))
    assert bool(said) == (name in REVEALED)
    assert REVEALED.get(name, "") in "".join(said)


#: A run of two seconds: cases that pass, and some that the release waives on one chip or the other.
FEW = (SHORT[0], SHORT[2], *SHORT[21:24], SHORT[-1], *(
    f"ops/test_ops.py::test_forward[ops/{name}]" for name in ("exp/forward/bfloat16", "matmul/forward/float32")
))  # fmt: skip


def few(report: Path, *options: str) -> Path:
    return genuine.run(report, "--ascend-level=smoke", *options, *(f"{folder('suites')}/{each}" for each in FEW))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("chip", ["910_93", "310P", "950"])
def test_a_genuine_log_of_each_chip_is_not_refused(tmp_path: Path, chip: str) -> None:
    log = genuine.as_npu(genuine.parsed(few(tmp_path / "report", f"--ascend-emulate=chip={chip}").read_bytes()))
    assert genuine.refused(tmp_path / "run.jsonl", log) == {}


def test_a_genuine_log_that_was_continued_on_fewer_cards_is_not_refused(tmp_path: Path) -> None:
    log = few(tmp_path / "report", "-n2")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-4]))  # as a kill leaves it
    found = genuine.parsed(few(tmp_path / "report", "-n1", "--ascend-resume").read_bytes())
    assert [len(each["cards"]) for each in found["events"] if each["kind"] == "cards"] == [2, 1, 1]
    assert genuine.refused(tmp_path / "run.jsonl", genuine.as_npu(found)) == {}


def test_the_sample_of_the_documentation_is_made_verified_executed_again_and_revoked(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/certification.md").read_text(encoding="utf-8").partition("## Try it")[2]
    lines = [each.split() for each in text.partition("## The programme")[0].splitlines() if each.startswith("    ")]
    number, codes = "", []
    for program, *given in (shlex.split(" ".join(each)) for each in lines):
        module = {"pytest": "pytest", "pytest-ascend": "pytest_ascend.cli"}[program]
        done = forks.run(module, *(number if each == "NUMBER" else each for each in given), where=tmp_path)
        number = number or (re.findall("certificate ([0-9a-f]{32}):", done.stdout) or [""])[0]
        codes.append(done.returncode)
    assert codes == [0, 0, 0, 0, 0, 1], done.stdout + done.stderr
    assert f"it was revoked on {date.today()}: a test" in done.stdout


def test_every_requirement_is_seen_at_work_and_few_forgeries_are_unseen() -> None:
    assert {*SAID, "time-stamps"} == {*REQUIREMENTS}  # test_timestamp.py sees that one at work
    assert len(BEFORE) > 190
    text = (Path(__file__).parents[3] / "docs/certification.md").read_text(encoding="utf-8")
    assert not [name for name in UNSEEN if f"| {name} |" not in text]


def test_an_emulated_log_is_refused_for_its_device_alone(short: Log, tmp_path: Path) -> None:
    log = genuine.copied(short)
    log["header"]["stack"]["emulated"] = True
    assert [*genuine.refused(tmp_path / "run.jsonl", log)] == ["device"]


def test_a_run_of_level_smoke_is_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the log that the run wrote, but for the label of the emulated device."""
    # All suites; of operators the stored samples, for the short run has generated calls.
    suites = [each.parent for each in folder("suites").glob("*/suite.json") if each.parent.name not in {"ops", "user"}]
    where = (
        *map(str, sorted(suites)),
        *(f"{folder('suites')}/ops/test_ops.py::test_{each}" for each in ("forward", "exact")),
    )
    log = genuine.as_npu(genuine.parsed(genuine.run(tmp_path, "--ascend-level=smoke", *where).read_bytes()))
    release, path = genuine.release_of(log), genuine.finished(tmp_path / "npu.jsonl", log)
    for name, tier in genuine.tiers("smoke").items():
        monkeypatch.setitem(tiers.TIERS, name, tier)  # type: ignore[arg-type]
        monkeypatch.setitem(tiers.ALL, name, tier)  # type: ignore[arg-type]
    on = date.fromisoformat(log["footer"]["finished"][:10])
    to = tmp_path / "certificate"
    said = certify(path, tiers.TIERS["distributed"], release, issuer="X", key=runs.KEY, folder=to, on=on)
    assert verify(to, runs.KEY.public_key(), release).claims == said
    assert {*said["not_again"]} == {"distributed"}
