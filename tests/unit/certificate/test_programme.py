"""The programme: a case is disputed and decided, and a registry lists who is certified for what."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization as form

from pytest_ascend.certificate import programme, revocation, tiers
from pytest_ascend.coverage import expectations, manifest
from pytest_ascend.errors import UsageError
from pytest_ascend.records.outcome import Failed, Passed
from pytest_ascend.system.bundled import folder

from . import runs

CASE = "ops/relu/forward/float32"
GIVEN = ("--reason=the case asks for too much", "--evidence=https://example.org/1", "--by=A Vendor")


def asked(command: object, *given: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in given])  # type: ignore[arg-type]


def test_a_disputed_case_is_disputed_until_it_is_decided_and_the_record_stays(tmp_path: Path) -> None:
    path = tmp_path / "disputes.json"
    assert asked(programme.dispute, CASE, *GIVEN, f"--list={path}").exit_code == 0
    found = expectations.load([path], runs.STACK).known(CASE)
    assert found is not None
    outcome, waiver = found.judge(Failed(reason="differs"), (), runs.ISSUED)
    assert (outcome.name, outcome.reason, waiver["issue"], waiver["owner"]) == (
        "disputed", "the case asks for too much", "https://example.org/1", "A Vendor",
    )  # fmt: skip
    assert found.judge(Passed(), (), runs.ISSUED)[0].name == "passed"
    decided = ("--decide=device", "--by=The project", f"--list={path}")
    assert "Missing option '--reason'" in asked(programme.dispute, CASE, *decided).output
    assert asked(programme.dispute, CASE, *decided, "--reason=it is off by one").exit_code == 0
    assert expectations.load([path], runs.STACK).known(CASE) is None
    [kept] = json.loads(path.read_text(encoding="utf-8"))["decided"]
    assert (kept["cases"], kept["decision"], kept["by"]) == ([CASE], "the device was wrong", "The project")
    assert kept["because"] == "it is off by one"
    assert asked(programme.dispute, CASE, *GIVEN, f"--list={path}").exit_code == 0, "again, with new evidence"


def test_evidence_in_a_file_is_named_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "shown.txt").write_text("look", encoding="utf-8")
    given = (*GIVEN[::2], f"--evidence={tmp_path / 'shown.txt'}", f"--list={tmp_path / 'list.json'}")
    assert asked(programme.dispute, CASE, *given).exit_code == 0
    assert "shown.txt, SHA-256 " in (tmp_path / "list.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("ops/nothing", *GIVEN), "has no case 'ops/nothing'"),
        ((CASE, *GIVEN[::2]), "needs --evidence"),
        ((CASE, *GIVEN[::2], "--evidence=missing.txt"), "cannot read the evidence"),
        ((CASE, *GIVEN[::2], "--decide=case"), "no open dispute"),
    ],
)
def test_what_is_no_dispute_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = asked(programme.dispute, *given)
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)
    assert not Path("disputes.json").exists()


def test_a_list_that_is_damaged_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[]", encoding="utf-8")
    assert "cannot read" in str(asked(programme.dispute, CASE, *GIVEN, f"--list={path}").exception)
    assert path.read_text(encoding="utf-8") == "[]"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a registry with one certificate."""
    monkeypatch.setattr(programme, "installed", lambda: runs.RELEASE)
    monkeypatch.setattr(programme.expectations, "today", lambda: runs.ISSUED)
    root = tmp_path / "registry"
    for name in ("certificates", "keys", "revocations"):
        (root / name).mkdir(parents=True)
    for name, key in (("vendor", runs.KEY), ("other", runs.OTHER_KEY)):
        shown = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        (root / "keys" / f"{name}.pub").write_bytes(shown)
    shutil.move(runs.certificate(tmp_path), root / "certificates" / "first")
    return root


def test_a_registry_says_who_is_certified_for_what(registry: Path, tmp_path: Path) -> None:
    done = asked(programme.registry, registry, "-o", tmp_path / "page.md")
    assert (done.exit_code, "first: performance for chip Ascend910B3, driver " in done.output) == (0, True)
    assert "| performance | Ascend910B3 |" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_a_submission_is_checked_and_a_revoked_one_is_not_listed(registry: Path, tmp_path: Path) -> None:
    submission = Path(shutil.copytree(registry / "certificates" / "first", tmp_path / "second"))
    assert asked(programme.registry, registry, "--submission", submission).exit_code == 0
    listed = asked(programme.registry, registry, "--submission", registry / "certificates" / "first")
    assert (listed.exit_code, listed.output.count("first: performance")) == (0, 1), "one that is listed is listed once"
    claims = json.loads((submission / "certificate.json").read_text(encoding="utf-8"))
    revocation.add(registry / "revocations" / "vendor.json", claims["id"], "faulty", runs.KEY, on=runs.ISSUED)
    revocation.add(registry / "revocations" / "other.json", "0" * 32, "x", runs.OTHER_KEY, on=runs.ISSUED)
    done = asked(programme.registry, registry, "--submission", submission, "-o", tmp_path / "page.md")
    assert (done.exit_code, "was revoked" in done.output) == (1, True)
    assert "None." in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_a_list_that_was_altered_revokes_nothing_in_silence(registry: Path) -> None:
    path = registry / "revocations" / "vendor.json"
    revocation.add(path, "0" * 32, "faulty", runs.KEY, on=runs.ISSUED)
    path.write_bytes(path.read_bytes().replace(b"faulty", b"fault!"))
    assert "is damaged, or signed by no key" in str(asked(programme.registry, registry).exception)


@pytest.mark.parametrize(
    ("damage", "why"),
    [("key", "is not in"), ("byte", "run.jsonl was altered"), ("window", "accepted until 2026-01-01")],
)
def test_what_does_not_hold_is_named(registry: Path, monkeypatch: pytest.MonkeyPatch, damage: str, why: str) -> None:
    if damage == "key":
        (registry / "keys" / "vendor.pub").unlink()
    elif damage == "byte":
        log = registry / "certificates" / "first" / "run.jsonl"
        log.write_bytes(log.read_bytes().replace(b"0.1", b"0.2", 1))
    else:
        monkeypatch.setitem(tiers.ACCEPTED, runs.RELEASE.version, "2026-01-01")  # type: ignore[arg-type]
    done = asked(programme.registry, registry)
    assert (done.exit_code, why in done.output) == (1, True)


def test_a_folder_that_is_no_registry_is_refused(tmp_path: Path) -> None:
    assert "is no registry" in str(asked(programme.registry, tmp_path).exception)


def test_this_release_is_accepted_and_its_cases_can_be_disputed() -> None:
    assert tiers.ACCEPTED[runs.RELEASE.version] == ""
    assert CASE in {each.id for each in manifest.load(folder("suites"))}
