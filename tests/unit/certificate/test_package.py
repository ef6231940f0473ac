"""A certificate is what was signed, to the last byte; whatever is not is found, and named."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ascend.certificate import package, revocation, signing
from pytest_ascend.certificate.judgement import certify, ended, verify
from pytest_ascend.certificate.package import FILES, CertificateError
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.statement import expiry
from pytest_ascend.certificate.words import TEXTS
from pytest_ascend.environment.compatibility import load
from pytest_ascend.errors import UsageError

from . import runs

PUBLIC = runs.KEY.public_key()
FATES = runs.ended(5, "fallback") | runs.ended(7, "waived", waiver=runs.WAIVER)
RELEASE = runs.release_for(FATES)
#: What one may do to a file, given its bytes and a source of chance; never what leaves it as it is.
ALTERATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda data, chance: _at(data, chance, lambda byte: bytes([byte ^ 1 << chance.randrange(8)])),
    lambda data, chance: _at(data, chance, lambda byte: bytes([(byte + chance.randrange(1, 256)) % 256])),
    lambda data, chance: _at(data, chance, lambda _: b""),
    lambda data, chance: _at(data, chance, lambda byte: bytes([byte, chance.randrange(256)])),
    lambda data, chance: data[: chance.randrange(len(data))],
    lambda data, chance: data + bytes([chance.randrange(256)]),
)


def _at(data: bytes, chance: Random, change: Callable[[int], bytes]) -> bytes:
    index = chance.randrange(len(data))
    return data[:index] + change(data[index]) + data[index + 1 :]


def evidence(folder: Path) -> dict[str, bytes]:
    """Return the parts of a certificate."""
    return {name: (folder / name).read_bytes() for name in (package.LOG, *package.EVIDENCE.values())}


def forge(folder: Path, said: Mapping[str, Any], parts: Mapping[str, bytes], key: Ed25519PrivateKey = runs.KEY) -> None:
    """Sign what the issuer wants to say, whatever the evidence."""
    others = {name: content for name, content in parts.items() if name != package.LOG}
    package.write(folder / "forged", said, others, io.BytesIO(parts[package.LOG]), key)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.certificate(tmp_path_factory.mktemp("made"), fates=FATES)


def test_a_certificate_holds(certificate: Path) -> None:
    assert verify(certificate, PUBLIC, RELEASE).claims["tier"] == "performance"


def test_a_thousand_random_alterations_are_all_refused_and_named(certificate: Path, tmp_path: Path) -> None:
    copy, chance = tmp_path / "copy", Random(20260901)  # noqa: S311 (to be repeated, not to be secret)
    shutil.copytree(certificate, copy)
    for number in range(1000):
        name = FILES[number % len(FILES)]
        original = (certificate / name).read_bytes()
        altered = ALTERATIONS[chance.randrange(len(ALTERATIONS))](original, chance)
        (copy / name).write_bytes(altered)
        with pytest.raises(CertificateError) as raised:
            verify(copy, PUBLIC, RELEASE)
        assert raised.value.part == name, (number, raised.value)
        assert name in str(raised.value)
        (copy / name).write_bytes(original)
    verify(copy, PUBLIC, RELEASE)


def test_two_parts_that_change_places_are_found(certificate: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(certificate, tmp_path / "copy")
    (copy / "goldens.json").rename(copy / "x")
    (copy / "rules.json").rename(copy / "goldens.json")
    (copy / "x").rename(copy / "rules.json")
    with pytest.raises(CertificateError, match=r"goldens\.json was altered"):
        verify(copy, PUBLIC, RELEASE)


@pytest.mark.parametrize("name", FILES)
def test_a_part_that_is_missing_or_a_link_is_named(certificate: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(certificate, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(CertificateError, match=f"{name} is missing"):
        verify(copy, PUBLIC, RELEASE)
    (copy / name).symlink_to(certificate / name)
    with pytest.raises(CertificateError, match=f"{name} cannot be read"):
        verify(copy, PUBLIC, RELEASE)
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(CertificateError, match=f"{name} cannot be read: not a regular file"):
        verify(copy, PUBLIC, RELEASE)


def test_what_does_not_belong_there_is_named(certificate: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(certificate, tmp_path / "copy")
    (copy / "readme.txt").touch()
    with pytest.raises(CertificateError, match=r"'readme\.txt' does not belong"):
        verify(copy, PUBLIC, RELEASE)


def test_another_key_is_not_the_issuers(certificate: Path) -> None:
    with pytest.raises(CertificateError, match="signed by another key"):
        verify(certificate, runs.OTHER_KEY.public_key(), RELEASE)


def test_a_certificate_signed_anew_by_somebody_else_is_not_the_issuers(certificate: Path, tmp_path: Path) -> None:
    said = json.loads((certificate / "certificate.json").read_text(encoding="utf-8"))
    parts = evidence(certificate)
    forged = {**said, "tier": "models"}
    forge(tmp_path, forged, parts, runs.OTHER_KEY)
    with pytest.raises(CertificateError):
        verify(tmp_path / "forged", PUBLIC, RELEASE)


def test_a_key_that_is_no_text_is_nobodys(tmp_path: Path) -> None:
    genuine = runs.certificate(tmp_path)
    said = json.loads((genuine / "certificate.json").read_text(encoding="utf-8"))
    del said["id"]
    forge(tmp_path, {**said, "confirms": {"id": "1", "issuer": "A", "key": []}}, evidence(genuine))
    (tmp_path / "forged" / package.CONFIRMED).mkdir()
    with pytest.raises(CertificateError, match="whose key is"):
        verify(tmp_path / "forged", PUBLIC, runs.RELEASE, others=[PUBLIC])


@pytest.mark.parametrize("field", sorted({*package.FIELDS} - {"parts", "id", "key"}))
def test_a_statement_that_lacks_something_is_none_though_it_is_signed(tmp_path: Path, field: str) -> None:
    genuine = runs.certificate(tmp_path)
    said = json.loads((genuine / "certificate.json").read_text(encoding="utf-8"))
    parts = evidence(genuine)
    del said["id"], said[field]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "words", lambda said, language: "")
        forge(tmp_path, said, parts)
    with pytest.raises(CertificateError, match=r"certificate\.json is not a valid statement"):
        verify(tmp_path / "forged", PUBLIC, runs.RELEASE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("means", ["anything"]),
        ("expires", "2099-01-01"),
        ("counts", {}),
        ("not_covered", []),
        ("waived", []),
        ("stack", {}),
    ],
)
def test_the_issuer_cannot_say_more_than_the_run_shows(tmp_path: Path, field: str, value: object) -> None:
    genuine = runs.certificate(tmp_path)
    said = json.loads((genuine / "certificate.json").read_text(encoding="utf-8"))
    parts = evidence(genuine)
    changed = {**said, field: value, "run": {**said["run"]}}
    changed["waived"] = (
        changed["waived"] if field != "waived" else [{"case": "x", "reason": "", "issue": "", "expires": ""}]
    )
    forge(tmp_path, changed, parts)
    with pytest.raises(CertificateError, match=f"has another '{field}'"):
        verify(tmp_path / "forged", PUBLIC, runs.RELEASE)


def test_the_issuer_cannot_certify_a_run_that_does_not_earn_it(tmp_path: Path) -> None:
    genuine = runs.certificate(tmp_path)
    said = json.loads((genuine / "certificate.json").read_text(encoding="utf-8"))
    parts = evidence(genuine)
    parts[package.LOG] = runs.write_log(tmp_path / "bad.jsonl", runs.ended(9, "failed")).read_bytes()
    forge(tmp_path, said, parts)
    with pytest.raises(CertificateError, match=r"run\.jsonl does not earn the certificate: failures: 1 case failed"):
        verify(tmp_path / "forged", PUBLIC, runs.RELEASE)


@pytest.mark.parametrize("part", sorted(runs.RELEASE.parts))
def test_a_release_that_was_altered_is_named(certificate: Path, part: str) -> None:
    altered = Release(version=RELEASE.version, parts={**RELEASE.parts, part: b'{"suites/ops/test_ops.py": ""}'})
    with pytest.raises(CertificateError, match=rf"{part}\.json is not that of pytest-ascend"):
        verify(certificate, PUBLIC, altered)


def test_another_release_says_which_one_is_needed(certificate: Path) -> None:
    with pytest.raises(CertificateError, match="was made by pytest-ascend") as raised:
        verify(certificate, PUBLIC, Release(version="99.0", parts=RELEASE.parts))
    assert "pytest-ascend 0.1.0" in raised.value.message
    assert "that release" in raised.value.hint


@pytest.mark.parametrize("log", [b"", b"{}\n", b"\xff\n"])
def test_a_log_that_is_none_is_no_evidence(tmp_path: Path, log: bytes) -> None:
    genuine = runs.certificate(tmp_path)
    said = json.loads((genuine / "certificate.json").read_text(encoding="utf-8"))
    parts = evidence(genuine)
    forge(tmp_path, said, {**parts, package.LOG: log})
    with pytest.raises(CertificateError, match=r"run\.jsonl does not support"):
        verify(tmp_path / "forged", PUBLIC, runs.RELEASE)


def test_a_certificate_is_never_written_over(certificate: Path) -> None:
    with pytest.raises(UsageError, match="it is there already"):
        certify(**runs.issue(certificate.parent / "run/run.jsonl", certificate), release=RELEASE, on=runs.ISSUED)


def reasons(
    certificate: Path, on: date, revoked: revocation.Revocations | None = None, cann: str = "8.5.0"
) -> list[str]:
    said = verify(certificate, PUBLIC, RELEASE).claims
    said = {**said, "stack": {**said["stack"], "cann": cann}}
    return list(ended(said, on=on, compatibility=load(), revocations=revoked))


def test_it_holds_for_twelve_months_from_the_run(certificate: Path) -> None:
    assert reasons(certificate, date(2027, 9, 1)) == []
    assert reasons(certificate, date(2027, 9, 2)) == ["it expired on 2027-09-01"]
    assert "still to come" in reasons(certificate, date(2026, 9, 1))[0]


def test_twelve_months_from_a_leap_day_are_the_last_of_february() -> None:
    assert expiry("2028-02-29T12:00:00+00:00") == date(2029, 2, 28)


def test_the_fourth_newer_cann_ends_it(certificate: Path) -> None:
    assert reasons(certificate, runs.ISSUED, cann="8.3.RC1") == []
    (reason,) = reasons(certificate, runs.ISSUED, cann="8.2.RC1")
    assert reason == "4 releases of CANN are newer than 8.2.RC1: 8.3.RC1, 8.5.0, 9.0.0, 9.1.0"


def test_a_revoked_certificate_says_since_when_and_why(certificate: Path, tmp_path: Path) -> None:
    number = json.loads((certificate / "certificate.json").read_text(encoding="utf-8"))["id"]
    path = tmp_path / "revoked.json"
    assert revocation.add(path, "0" * 32, "another one", runs.KEY, on=runs.ISSUED) == 1
    assert reasons(certificate, runs.ISSUED, revocation.read(path, PUBLIC)) == []
    assert revocation.add(path, number, "the device was faulty", runs.KEY, on=runs.ISSUED) == 2
    said = reasons(certificate, runs.ISSUED, revocation.read(path, PUBLIC))
    assert said == ["it was revoked on 2026-09-02: the device was faulty"]


def test_a_list_is_stale_after_its_day_and_a_release_can_be_withdrawn(certificate: Path, tmp_path: Path) -> None:
    path = tmp_path / "revoked.json"
    revocation.add(path, revocation.of_release("9.9"), "judges wrongly", runs.KEY, on=runs.ISSUED, fresh_days=10)
    known = revocation.read(path, PUBLIC)
    assert reasons(certificate, date(2026, 9, 12), known) == []
    assert "stale since 2026-09-12" in reasons(certificate, date(2026, 9, 13), known)[0]
    revocation.add(path, revocation.of_release(runs.RELEASE.version), "judges wrongly", runs.KEY, on=runs.ISSUED)
    (reason,) = reasons(certificate, runs.ISSUED, revocation.read(path, PUBLIC))
    assert reason == "its release was withdrawn on 2026-09-02: judges wrongly"


def test_the_same_run_certified_again_is_the_same(certificate: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes((certificate / "run.jsonl").read_bytes())
    said = [
        certify(**runs.issue(log, tmp_path / f"{day}", "performance"), release=RELEASE, on=date(2026, 9, day))
        for day in (2, 9)
    ]
    assert (
        said[0]["id"]
        == said[1]["id"]
        == json.loads((certificate / "certificate.json").read_text(encoding="utf-8"))["id"]
    )


def test_a_list_of_revocations_cannot_be_altered(tmp_path: Path) -> None:
    path, chance = tmp_path / "revoked.json", Random(7)  # noqa: S311 (to be repeated)
    revocation.add(path, "0" * 32, "faulty", runs.KEY, on=runs.ISSUED)
    original = path.read_bytes()
    for number in range(200):
        path.write_bytes(ALTERATIONS[number % len(ALTERATIONS)](original, chance))
        with pytest.raises(CertificateError):
            revocation.read(path, PUBLIC)
    path.write_bytes(original)
    with pytest.raises(CertificateError, match="signed by another key"):
        revocation.read(path, runs.OTHER_KEY.public_key())


def test_the_words_are_there_in_chinese_and_no_word_of_the_certificate_itself_is_left_in_english(
    certificate: Path,
) -> None:
    english, chinese = ((certificate / name).read_text(encoding="utf-8").splitlines() for name in package.WORDS)
    assert len(english) == len(chinese)
    assert TEXTS["en"].keys() == TEXTS["zh"].keys()
    both = [line for line in english if line.strip() and line in chinese]
    # What the run or the release said itself stays as it is: counts of suites, figures, cases and their reasons.
    assert not [line for line in both if line.strip() in TEXTS["en"].values()]
    assert "华为既未签发也未审核" in "".join(chinese)


def test_the_words_say_what_was_tested_waived_and_not_tested(certificate: Path) -> None:
    text = (certificate / "certificate.txt").read_text(encoding="utf-8")
    for said in (
        "chip: Ascend910B3",
        "CANN: 8.5.0",
        "ops: 1 fallback, 118 passed, 1 waived",
        "ops/op6/forward/float32: known (https://example.org/1), until 2026-12-30",
        "ops/op4/forward/float32",
        "communication between devices",
        "independent of Huawei",
        "until 2027-09-01",
    ):
        assert said in text


def test_a_signature_is_for_one_purpose() -> None:
    digest = "0" * 64
    signature = signing.sign(runs.KEY, "certificate", digest)
    assert signing.is_signed(PUBLIC, "certificate", digest, signature)
    assert not signing.is_signed(PUBLIC, "revocations", digest, signature)
    assert not signing.is_signed(PUBLIC, "certificate", digest, f"{signature}\n")
