"""The commands: keys, certifying, verifying and revoking, as their users call them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_ascend.certificate import commands
from pytest_ascend.certificate.commands import PASSPHRASE
from pytest_ascend.certificate.judgement import Refused
from pytest_ascend.certificate.rerun import Rerun
from pytest_ascend.coverage import expectations
from pytest_ascend.errors import UsageError

from . import runs

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command where the small release is installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "installed", lambda: runs.RELEASE)
    monkeypatch.setattr(commands.expectations, "today", lambda: runs.ISSUED)

    def invoke(name: str, *arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(getattr(commands, name), arguments, env=environ, catch_exceptions=False)

    return invoke


def test_from_keys_to_a_revoked_certificate(call: Call, tmp_path: Path) -> None:
    secret = {PASSPHRASE: "a long one"}
    assert "encrypted" in call("certificate_key", "vendor.key", **secret).output
    assert stat.S_IMODE((tmp_path / "vendor.key").stat().st_mode) == 0o600
    runs.write_log(tmp_path / "report" / "run.jsonl")
    arguments = ("report", "--key=vendor.key", "--tier=models", "--issuer=A Vendor", "--output=certificate")
    assert call("certify", *arguments, **secret).exit_code == 0

    result = call("verify", "certificate", "--key=vendor.key.pub")
    assert result.exit_code == 0
    assert "HOLDS: every byte" in result.output
    assert "If the log is true, the run earns the tier.\n" in result.output
    assert "revocations: not checked" in result.output
    assert "re-execution: none;" in result.output
    assert "time-stamps: not checked" not in result.output, "there are none"

    number = json.loads((tmp_path / "certificate/certificate.json").read_text(encoding="utf-8"))["id"]
    call("revoke", number, "--key=vendor.key", "--reason=faulty device", "--list=revoked.json", **secret)
    result = call("verify", "certificate", "--key=vendor.key.pub", "--revocations=revoked.json")
    assert result.exit_code == 1
    assert "DOES NOT HOLD: it was revoked on 2026-09-02: faulty device" in result.output
    assert call("verify", "certificate", "--key=vendor.key.pub", "--on=2028-01-01").exit_code == 1


@pytest.mark.parametrize(("differing", "emulated"), [(0, False), (0, True), (1, False), (25, False)])
def test_what_a_re_execution_found_is_told(
    call: Call, monkeypatch: pytest.MonkeyPatch, differing: int, emulated: bool
) -> None:
    call("certificate_key", "vendor.key")
    runs.write_log(Path("report/run.jsonl"))
    call("certify", "report", "--key=vendor.key", "--tier=models", "--issuer=A Vendor", "--output=certificate")
    stack = runs.replace(runs.STACK, emulated=emulated, driver="")
    done = Rerun(stack=stack, executed=30, of=1234, disagreements=tuple(f"case {each}" for each in range(differing)))
    monkeypatch.setattr(commands, "rerun", lambda *_, **__: done)
    result = call("verify", "certificate", "--key=vendor.key.pub", "--rerun=30")
    assert (
        f"30 of 1,234 cases, sampled at random, on {stack.chip}, CANN {stack.cann}, driver unknown\n" in result.output
    )
    assert ("THIS IS THE EMULATED DEVICE" in result.output) is emulated
    assert ("what must be equal is, and what is judged agrees" in result.output) is (differing == 0)
    assert result.exit_code == bool(differing)
    told = [line.strip() for line in result.output.splitlines() if "executed again, " in line]
    assert len(told) == min(differing, commands._SHOWN + 1)
    assert all(each in line for each, line in zip(done.disagreements[: commands._SHOWN], told, strict=False))
    assert (f"{25 - commands._SHOWN} more cases disagree" in result.output) is (differing == 25)


def test_today_is_the_day_in_utc() -> None:
    before = datetime.now(timezone.utc).date()
    assert before <= expectations.today() <= datetime.now(timezone.utc).date()


def test_a_run_that_does_not_earn_it_is_refused(call: Call, tmp_path: Path) -> None:
    call("certificate_key", "vendor.key")
    runs.write_log(tmp_path / "report" / "run.jsonl", runs.ended(3, "failed"))
    with pytest.raises(Refused, match="1 case failed"):
        call("certify", "report", "--key=vendor.key", "--tier=operators", "--issuer=A Vendor")


def test_keys_are_never_written_over(call: Call) -> None:
    call("certificate_key", "vendor.key")
    with pytest.raises(UsageError, match="never overwritten"):
        call("certificate_key", "vendor.key")
    Path("other.key.pub").touch()
    with pytest.raises(UsageError, match="never overwritten"):
        call("certificate_key", "other.key")
    assert not Path("other.key").exists(), "without its public key"


@pytest.mark.parametrize("content", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "\0" * 99])
def test_what_is_no_key_is_refused(call: Call, tmp_path: Path, content: str) -> None:
    (tmp_path / "no.key").write_text(content, encoding="utf-8")
    runs.write_log(tmp_path / "report" / "run.jsonl")
    with pytest.raises(UsageError, match="holds no private Ed25519 key"):
        call("certify", "report", "--key=no.key", "--tier=operators", "--issuer=A Vendor")
    with pytest.raises(UsageError, match="holds no public Ed25519 key"):
        call("verify", "report", "--key=no.key")


def test_a_wrong_passphrase_is_refused(call: Call, tmp_path: Path) -> None:
    call("certificate_key", "vendor.key", **{PASSPHRASE: "right"})
    runs.write_log(tmp_path / "report" / "run.jsonl")
    for environ in ({PASSPHRASE: "wrong"}, {}):
        with pytest.raises(UsageError, match="holds no private Ed25519 key"):
            call("certify", "report", "--key=vendor.key", "--tier=operators", "--issuer=A Vendor", **environ)


def test_numbers_and_days_that_are_none_are_refused(call: Call) -> None:
    call("certificate_key", "vendor.key")
    with pytest.raises(UsageError, match="is not a certificate number"):
        call("revoke", "xyz", "--key=vendor.key", "--reason=x", "--list=revoked.json")
    with pytest.raises(UsageError, match="cannot read the certificate"):
        call("verify", "nowhere", "--key=vendor.key.pub")
