"""A second issuer confirms a certificate by a run of its own: both are listed, and both are checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ascend.certificate import commands, package
from pytest_ascend.certificate.judgement import certify, verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.certificate.words import words

from . import runs
from .runs import replace

THEIRS, MINE = runs.KEY, runs.OTHER_KEY


def log(path: Path, *, times: float = 0.2, fates: runs.Fates | None = None, **stack: Any) -> Path:
    """Write the log of another run on the same stack."""
    other = {
        case.id: replace(runs.passed(case), duration_s=times + index / 1e6) for index, case in enumerate(runs.CASES)
    }

    def change(header: Any) -> Any:
        stacked = replace(header.stack, **stack)
        return replace(header, run_id="another", stack=stacked, doctor=runs.doctor_of(stacked))

    return runs.write_log(path, other | dict(fates or {}), change=change)


def confirmed(tmp_path: Path, path: Path, **changes: Any) -> Path:
    theirs = tmp_path / "certificate"
    if not theirs.exists():
        runs.certificate(tmp_path)
    certify(
        path,
        TIERS["performance"],
        runs.RELEASE,
        issuer="Second",
        key=changes.pop("key", MINE),
        folder=tmp_path / "both",
        on=runs.ISSUED,
        confirms=(theirs, THEIRS.public_key()),
    )
    return tmp_path / "both"


def test_both_issuers_are_listed_and_checked(tmp_path: Path) -> None:
    both = confirmed(tmp_path, log(tmp_path / "run.jsonl"))
    found = verify(both, MINE.public_key(), runs.RELEASE, others=[THEIRS.public_key()])
    assert (
        found.claims["confirms"]["issuer"]
        == json.loads((tmp_path / "certificate/certificate.json").read_text(encoding="utf-8"))["issuer"]
    )
    text = words(found.claims)
    assert f"It confirms the certificate {found.claims['confirms']['id']}" in text
    assert "by Second" in text


def test_without_the_other_key_it_is_not_checked(tmp_path: Path) -> None:
    both = confirmed(tmp_path, log(tmp_path / "run.jsonl"))
    with pytest.raises(CertificateError, match="whose key is"):
        verify(both, MINE.public_key(), runs.RELEASE)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"times": 0.1}, "same run"),
        ({"driver": "25.5.2"}, "another stack: driver"),
        ({"nnal": "8.5.0", "vllm_ascend": "0.23.0"}, "another stack: nnal, vllm_ascend"),
    ],
)
def test_a_run_that_is_no_other_one_on_the_same_stack_confirms_nothing(
    tmp_path: Path, given: dict[str, Any], why: str
) -> None:
    fates = {case.id: runs.passed(case) for case in runs.CASES} if "times" in given else {}
    with pytest.raises(CertificateError, match=why):
        confirmed(tmp_path, log(tmp_path / "run.jsonl", fates=fates, **given))
    assert not (tmp_path / "both").exists()


def test_the_same_key_is_no_second_issuer(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="same issuer's key"):
        confirmed(tmp_path, log(tmp_path / "run.jsonl"), key=THEIRS)


def using(share: float) -> runs.Fates:
    """Let a case use a share of its limit, in another time than otherwise."""
    case = runs.CASES[3]
    [verdict] = runs.passed(case).verdicts
    data = msgspec.to_builtins(verdict)
    for each in (data, data["leaves"][0]):
        each["metrics"] |= {"limit_used": share, "ulp_max": 1.9 * share, "max_abs": 1e-7 * share}
    made = replace(runs.passed(case), duration_s=share, verdicts=(msgspec.convert(data, type(verdict)),))
    return {case.id: made}


def test_figures_that_another_run_does_not_find_are_named(tmp_path: Path) -> None:
    runs.certificate(tmp_path, "performance", using(0.1))
    with pytest.raises(CertificateError, match=r"the two runs disagree: .*says that it used"):
        confirmed(tmp_path, log(tmp_path / "run.jsonl", fates=using(0.9)))


@pytest.mark.parametrize("damage", ["altered", "exchanged", "gone", "added"])
def test_the_certificate_inside_is_bound_to_the_one_around_it(tmp_path: Path, damage: str) -> None:
    both = confirmed(tmp_path, log(tmp_path / "run.jsonl"))
    inner = both / package.CONFIRMED
    if damage == "altered":
        (inner / "run.jsonl").write_bytes((inner / "run.jsonl").read_bytes().replace(b"0.1", b"0.2", 1))
    elif damage == "exchanged":
        shutil.rmtree(inner)
        (tmp_path / "later").mkdir()
        shutil.copytree(runs.certificate(tmp_path / "later", "models"), inner)
    elif damage == "gone":
        shutil.rmtree(inner)
    else:
        shutil.copytree(tmp_path / "certificate", inner / package.CONFIRMED)
    with pytest.raises(CertificateError) as caught:
        verify(both, MINE.public_key(), runs.RELEASE, others=[THEIRS.public_key()])
    assert caught.value.part.startswith(package.CONFIRMED)


def pem(path: Path, key: Ed25519PrivateKey) -> Path:
    path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    shown = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    path.with_name(f"{path.name}.pub").write_bytes(shown)
    return path


def test_the_commands_make_and_check_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "installed", lambda: runs.RELEASE)
    monkeypatch.setattr(commands.expectations, "today", lambda: runs.ISSUED)
    runs.certificate(tmp_path)
    mine, theirs = pem(tmp_path / "mine", MINE), pem(tmp_path / "theirs", THEIRS)
    path = log(tmp_path / "run" / "run.jsonl")
    given = [str(path), "--key", str(mine), "--tier", "performance", "--issuer", "Second", "-o", str(tmp_path / "both")]
    beside = ["--confirms", str(tmp_path / "certificate"), "--confirms-key", f"{theirs}.pub"]
    CliRunner().invoke(commands.certify, [*given, *beside], catch_exceptions=False)
    asked = [str(tmp_path / "both"), "--key", f"{theirs}.pub", "--key", f"{mine}.pub"]
    done = CliRunner().invoke(commands.verify, asked, catch_exceptions=False)
    assert (done.exit_code, "It confirms the certificate" in done.output) == (0, True)
