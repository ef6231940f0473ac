"""How long a certificate holds, what another run contradicts, and what is executed again, on parts made for it."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from pytest_ascend.certificate import commands, judgement, revocation, signing, statement, timestamp
from pytest_ascend.certificate import rerun as again
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.revocation import Revocations
from pytest_ascend.environment.versions import Version
from pytest_ascend.errors import AscendError, UsageError
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.records.record import CallDigests, ResultRecord
from tests.unit.options import paths, placeholders, unexplained
from tests.unit.runlog.synthetic import replace

from . import runs

ON = date(2026, 9, 2)


@pytest.mark.parametrize(
    ("finished", "last"),
    [
        ("2026-09-01T12:00:00+00:00", date(2027, 9, 1)),
        ("2026-12-31T23:30:00+00:00", date(2027, 12, 31)),
        ("2026-01-01T05:00:00+08:00", date(2026, 12, 31)),
        ("2028-02-29T12:00:00+00:00", date(2029, 2, 28)),
        ("2026-02-28T12:00:00+00:00", date(2027, 2, 28)),
    ],
)
def test_a_certificate_holds_for_twelve_months_of_universal_time(finished: str, last: date) -> None:
    assert statement.expiry(finished) == last


def releases(*names: str) -> Any:
    return SimpleNamespace(cann_releases=tuple(map(Version, names)))


@pytest.mark.parametrize(
    ("cann", "newer"),
    [("8.3.RC1", ("8.5.0", "9.0.0")), ("8.5.0", ("9.0.0",)), ("8.5.1", ("9.0.0",)), ("9.0.0", ()), ("own build", ())],
)
def test_newer_releases_are_those_after_it(cann: str, newer: tuple[str, ...]) -> None:
    assert statement.newer_releases(cann, releases("8.3.RC1", "8.5.0", "9.0.0")) == newer


CLAIMS = {"id": "0" * 32, "issued": "2026-09-02", "expires": "2027-09-01", "stack": {"cann": "8.0.0"}, "release": "1.2"}


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (date(2026, 9, 1), "it was issued on 2026-09-02, which is still to come"),
        (date(2026, 9, 2), ""),
        (date(2027, 9, 1), ""),
        (date(2027, 9, 2), "it expired on 2027-09-01"),
    ],
)
def test_a_certificate_holds_from_its_day_to_its_last(on: date, said: str) -> None:
    found = judgement.ended(CLAIMS, on=on, compatibility=releases(), revocations=None)
    assert list(found) == ([said] if said else [])


@pytest.mark.parametrize(("count", "ends"), [(3, False), (4, True)])
def test_four_newer_releases_end_it(count: int, ends: bool) -> None:
    newer = releases(*(f"9.{each}.0" for each in range(count)))
    found = list(judgement.ended(CLAIMS, on=ON, compatibility=newer, revocations=None))
    assert found == (["4 releases of CANN are newer than 8.0.0: 9.0.0, 9.1.0, 9.2.0, 9.3.0"] if ends else [])


@pytest.mark.parametrize(
    ("name", "stale", "said"),
    [
        ("1" * 32, ON, []),
        ("0" * 32, ON, ["it was revoked on S: R"]),
        ("pytest-ascend 1.2", ON, ["its release was withdrawn on S: R"]),
        ("pytest-ascend 1.3", ON, []),
        ("1" * 32, date(2026, 9, 1),
         ["the list of revocations is stale since 2026-09-01: ask the issuer for a newer one"]),
    ],
)  # fmt: skip
def test_what_a_fresh_list_names_is_revoked(name: str, stale: date, said: list[str]) -> None:
    entry = {"id": name, "since": "S", "reason": "R"}
    known = Revocations("2026-01-01", stale, ({**entry, "id": "2" * 32}, entry))
    assert list(judgement.ended(CLAIMS, on=ON, compatibility=releases(), revocations=known)) == said


def test_a_list_is_fresh_for_its_days_and_names_a_certificate_once(tmp_path: Path) -> None:
    path, key = tmp_path / "list.json", runs.KEY
    assert revocation.add(path, "a", "first", key, on=ON) == 1
    assert revocation.read(path, key.public_key()).stale_after == date(2026, 12, 1), "90 days"
    assert revocation.add(path, "b", "other", key, on=ON) == 2
    assert revocation.add(path, "a", "again", key, on=date(2026, 9, 4), fresh_days=1) == 2
    found = revocation.read(path, key.public_key())
    assert (found.as_of, found.stale_after) == ("2026-09-04", date(2026, 9, 5))
    assert found.entries == (
        {"id": "b", "since": "2026-09-02", "reason": "other"},
        {"id": "a", "since": "2026-09-04", "reason": "again"},
    )
    assert (found.find("a"), found.find("c")) == (found.entries[1], None)


@pytest.mark.parametrize("old", ["again", '"schema": 2', '"reason"', "2026-09-02", "\n}\n"])
def test_a_list_that_was_altered_is_refused(tmp_path: Path, old: str) -> None:
    path = tmp_path / "list.json"
    revocation.add(path, "a", "again", runs.KEY, on=ON)
    text = path.read_text(encoding="utf-8")
    with pytest.raises(CertificateError, match="altered"):
        revocation.read(path, runs.OTHER_KEY.public_key())
    path.write_text(text.replace(old, old.replace("a", "b").replace("2", "1") if old != "\n}\n" else "\n} \n"), "utf-8")
    with pytest.raises(CertificateError):
        revocation.read(path, runs.KEY.public_key())
    with pytest.raises(UsageError, match="cannot read"):
        revocation.read(tmp_path / "none", runs.KEY.public_key())


def digest(inputs: str = "i", outputs: str = "o", *, exact: bool = True) -> CallDigests:
    return CallDigests(inputs=inputs * 64, outputs=outputs * 64, exact=exact)


@pytest.mark.parametrize(
    ("claimed", "mine", "said"),
    [
        ({}, {}, []),
        ({"a": digest()}, {}, []),
        ({}, {"a": digest()}, ["has no digests of its outputs", "a is of other inputs"]),
        ({"a": digest()}, {"a": digest()}, []),
        ({"b": digest()}, {"a": digest()}, ["a is of other inputs"]),
        ({"a": digest("x")}, {"a": digest()}, ["a is of other inputs"]),
        ({"a": digest(outputs="x")}, {"a": digest()}, ["a has other bits than every right device gives"]),
        ({"a": digest(outputs="x")}, {"a": digest(exact=False)}, []),
    ],
)
def test_outputs_that_must_be_equal_are(
    claimed: dict[str, CallDigests], mine: dict[str, CallDigests], said: list[str]
) -> None:
    record = runs.passed(runs.CASES[3])
    theirs, ours = (replace(record, digests=each) for each in (claimed, mine))
    assert list(judgement._differing(theirs, ours, is_npu=True)) == said
    not_run = replace(ours, outcome=OUTCOMES["not-run"](reason="late"))
    assert list(judgement._differing(theirs, not_run, is_npu=True)) == []


@pytest.mark.parametrize(
    ("theirs", "mine", "said"),
    [
        (b'{"a": 1, "c": 3}', b'{"a": 1, "b": 2}', ": b differs"),
        (b'{"a": 1}', b'{"a": 1}', ""),
        (b"[1]", b'{"a": 1}', ""),
        (b"no json", b'{"a": 1}', ""),
        (b"3", b'{"a": 1}', ""),
    ],
)
def test_the_first_file_that_differs_is_named(theirs: bytes, mine: bytes, said: str) -> None:
    assert judgement._first_difference(theirs, mine) == said


def claimed(*results: ResultRecord, chip: str = "Ascend910B3", **header: Any) -> Any:
    stack = replace(runs.STACK, chip=chip, **header.pop("stack", {}))
    run = SimpleNamespace(header=SimpleNamespace(stack=stack, level="full", options=header))
    return SimpleNamespace(results=results, run=run)


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of suites with one module, which is the installed one."""
    for name in ("ops", "distributed", "environment"):
        (tmp_path / "suites" / name).mkdir(parents=True)
        (tmp_path / "suites" / name / f"test_{name}.py").touch()
    monkeypatch.setattr(again, "folder", lambda name: tmp_path / name)
    return tmp_path / "suites"


def of(node_id: str, outcome: str = "passed", place: int = 3) -> ResultRecord:
    return replace(runs.passed(runs.CASES[place]), node_id=node_id, outcome=OUTCOMES[outcome](reason="r"))


NODE = "suites/ops/test_ops.py::test_forward[relu-float32]"


@pytest.mark.parametrize(
    ("node_id", "outcome", "is_eligible"),
    [
        (NODE, "passed", True),
        (f"/opt/{NODE}", "failed", True),
        (f"my{NODE}", "passed", False),
        (NODE, "not-run", False),
        (NODE, "not-emulated", False),
        (NODE.replace("ops", "distributed"), "passed", False),
        (NODE.replace("ops", "environment"), "passed", False),
        (NODE.replace("test_ops", "test_gone"), "passed", False),
        ("suites/ops/test_ops.py::test_forward[a\nb]", "passed", False),
    ],
)
def test_what_can_be_executed_again_is_a_test_of_this_release(
    suites: Path, node_id: str, outcome: str, is_eligible: bool
) -> None:
    found = again._place(of(node_id, outcome))
    assert found == (f"{suites.parent.resolve()}/{NODE}" if is_eligible else "")


@pytest.fixture
def executed(suites: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Execute nothing, and keep what would be executed."""
    asked: list[Any] = []
    found = claimed(of(NODE), of(NODE, "not-run", 4), of(NODE, "not-emulated", 5))

    def run(_: object, sampled: Sequence[ResultRecord], device: str, __: Path) -> Any:
        asked.append((sampled, device))
        return found

    monkeypatch.setattr(again, "_executed", run)
    monkeypatch.setattr(again, "disagreements", lambda *_: ["they disagree"])
    return asked


def test_a_sample_is_drawn_of_what_can_be_executed_and_what_was_not_is_said(executed: list[Any]) -> None:
    run = claimed(*(of(NODE, place=place) for place in range(3, 9)), of("", place=9))
    found = again.rerun(run, 4, device="npu:1", chance=random.Random(0))  # noqa: S311
    [(sampled, device)] = executed
    assert device == "npu:1"
    assert len({each.case.id for each in sampled}) == 4
    assert {each.case.id for each in sampled} <= {each.case.id for each in run.results[:-1]}
    assert (found.executed, found.of, found.stack.chip) == (1, 6, "Ascend910B3")
    missed = [each.case.id for each in sampled if each.case.id != runs.CASES[3].id]
    assert found.disagreements[0] == "they disagree"
    assert found.disagreements[1].startswith(f"{len(missed)} cases could not be executed here: {missed[0]}, ")


def test_all_are_executed_where_there_are_fewer_than_asked_for(executed: list[Any]) -> None:
    found = again.rerun(claimed(of(NODE)), 100)
    assert (found.executed, found.of, found.disagreements) == (1, 1, ("they disagree",))
    assert executed[0][1] == "auto"


def test_without_a_test_of_this_release_nothing_is_executed(executed: list[Any]) -> None:
    with pytest.raises(UsageError, match="no case of the run can be executed again"):
        again.rerun(claimed(of("")), 1)
    assert executed == []


@pytest.mark.parametrize(("emulated", "is_refused"), [(False, True), (True, False)])
def test_another_chip_shows_nothing(
    executed: list[Any], monkeypatch: pytest.MonkeyPatch, emulated: bool, is_refused: bool
) -> None:
    other = claimed(of(NODE), chip="Ascend310P3", stack={"emulated": emulated})
    monkeypatch.setattr(again, "_executed", lambda *_: other)
    if is_refused:
        with pytest.raises(UsageError, match="was on Ascend910B3, and this device is Ascend310P3"):
            again.rerun(claimed(of(NODE)), 1)
    else:
        assert again.rerun(claimed(of(NODE)), 1).stack.emulated


@pytest.mark.parametrize(("code", "ended"), [(0, True), (1, True), (5, True), (7, True), (2, False), (-9, False)])
@pytest.mark.parametrize("challenge", [None, 0, 77])
def test_cases_are_executed_as_the_run_was(
    suites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, ended: bool, challenge: int | None
) -> None:
    asked: list[Any] = []

    def run(line: list[str], *, cwd: Path, env: dict[str, str], stdout: Any, stderr: Any, check: bool) -> Any:
        asked.append((line, cwd, env))
        assert stdout is stderr
        stdout.write(b"\n".join(b"line %d \x1b" % each for each in range(20)))
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(again.subprocess, "run", run)
    monkeypatch.setattr(again, "read", lambda path: path)
    monkeypatch.setattr(again, "summarise", lambda path: path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    monkeypatch.setenv("ASCEND_HOME", "/opt")
    given = claimed(**({} if challenge is None else {"challenge": challenge}))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    if ended:
        assert again._executed(given, [of(NODE)], "npu:1", scratch) == scratch / "report" / "run.jsonl"
    else:
        with pytest.raises(AscendError) as raised:
            again._executed(given, [of(NODE)], "npu:1", scratch)
        lines = raised.value.message.splitlines()[1:]
        assert lines == [f"  line {each} \\x1b" for each in range(8, 20)]
    [(line, cwd, env)] = asked
    assert line[:4] == [sys.executable, "-m", "pytest", "--ascend"]
    assert {"--ascend-device=npu:1", "--ascend-level=full", f"--ascend-report={scratch / 'report'}"} <= set(line)
    assert [each for each in line if "challenge" in each] == (
        [] if challenge is None else [f"--ascend-certify=challenge={challenge}"]
    )
    assert line[-1] == f"{suites.resolve()}/ops/test_ops.py::test_forward[relu-float32]"
    assert cwd == scratch
    assert (env.get("PYTEST_ADDOPTS"), env.get("ASCEND_HOME")) == (None, "/opt")


def test_a_release_is_known_by_the_hash_of_each_part() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    found = Release(version="1", parts={"a": b"", "b": b"x"}).hashes()
    assert (found["a"], len(found["b"])) == (empty, 64)


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    key, pem = generate_private_key(SECP256R1()), serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "a").write_bytes(private)
    (tmp_path / "a.pub").write_bytes(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(UsageError, match="key of another kind"):
        signing.private_key(tmp_path / "a", "")
    with pytest.raises(UsageError, match="key of another kind"):
        signing.public_key(tmp_path / "a.pub")
    for read in (signing.public_key, lambda path: signing.private_key(path, "")):
        with pytest.raises(UsageError, match="cannot read the key"):
            read(tmp_path / "none")


def test_a_signature_is_of_its_purpose_and_its_digest() -> None:
    made, public = signing.sign(runs.KEY, "one", "0" * 64), runs.KEY.public_key()
    assert signing.is_signed(public, "one", "0" * 64, made)
    assert not signing.is_signed(public, "other", "0" * 64, made)
    assert not signing.is_signed(public, "one", "1" * 64, made)
    assert not signing.is_signed(runs.OTHER_KEY.public_key(), "one", "0" * 64, made)
    for altered in (f"{made}\n", made[:-1], made[1:], "", "é"):
        assert not signing.is_signed(public, "one", "0" * 64, altered)


@pytest.mark.parametrize(
    ("text", "holds"), [("0" * 64, True), ("f" * 64, True), ("F" * 64, False), ("0" * 63, False), (7, False)]
)
def test_a_digest_is_64_small_hexadecimal_digits(text: object, holds: bool) -> None:
    assert signing.is_digest(text) is holds
    assert not signing.is_digest(f"{text}\n")


def test_a_file_without_a_root_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing", encoding="utf-8")
    for name in ("no.pem", "none"):
        with pytest.raises(UsageError, match="holds no certificate in PEM"):
            timestamp.roots_of(tmp_path / name)


def invoked(name: str, *line: str) -> Any:
    return CliRunner().invoke(getattr(commands, name), line, catch_exceptions=False)


@pytest.mark.parametrize("given", [["--confirms=a"], ["--confirms-key=b"]])
def test_a_confirmation_needs_the_other_key(given: list[str]) -> None:
    with pytest.raises(UsageError, match="belong together"):
        invoked("certify", "run", "--key=k", "--tier=operators", "--issuer=A", *given)


@pytest.mark.parametrize("given", [[], ["0" * 32, "--release=1.2"]])
def test_one_thing_is_revoked_at_a_time(given: list[str]) -> None:
    with pytest.raises(UsageError, match="nothing to revoke, or two things"):
        invoked("revoke", *given, "--key=k", "--reason=r", "--list=l")


@pytest.mark.parametrize("number", ["0" * 31, "0" * 33, "g" + "0" * 31])
def test_a_number_has_32_hexadecimal_digits(number: str) -> None:
    with pytest.raises(UsageError, match="is not a certificate number"):
        invoked("revoke", number, "--key=k", "--reason=r", "--list=l")


def test_a_release_is_withdrawn_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.expectations, "today", lambda: ON)
    assert "not encrypted; PYTEST_ASCEND_PASSPHRASE would" in invoked("certificate_key", str(tmp_path / "k")).output
    line = ("--release=1.2", f"--key={tmp_path / 'k'}", "--reason=r", f"--list={tmp_path / 'l'}", "--fresh-days=7")
    assert invoked("revoke", *line).output == f"{tmp_path / 'l'}: 1 revoked; publish it where the public key is\n"
    found = revocation.read(tmp_path / "l", signing.public_key(tmp_path / "k.pub"))
    assert (found.entries[0]["id"], found.stale_after) == ("pytest-ascend 1.2", date(2026, 9, 9))


def test_a_day_that_is_none_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match=r"--on=31.12.2026 is no day"):
        invoked("verify", "none", "--key=none", "--on=31.12.2026")


@pytest.mark.parametrize(
    ("name", "files", "others"),
    [
        ("certify", {"key": "FILE", "output": "DIR", "confirms": "DIR", "confirms_key": "FILE", "run": ""},
         {"issuer": "NAME"}),
        ("verify", {"keys": "FILE", "revocations": "FILE", "compatibility": "FILE", "authority": "FILE",
                    "certificate": ""}, {"day": "YYYY-MM-DD", "count": "N", "rerun_device": "DEVICE"}),
        ("revoke", {"key": "FILE", "path": "FILE"}, {"release": "VERSION"}),
        ("certificate_export", {"key": "FILE", "output": "FILE", "certificate": ""}, {}),
        ("certificate_key", {"private": ""}, {}),
    ],
)  # fmt: skip
def test_options_are_explained_and_files_are_paths(name: str, files: dict[str, str], others: dict[str, str]) -> None:
    command = getattr(commands, name)
    assert unexplained(command) == []
    assert paths(command) == set(files)
    assert placeholders(command) == {**{each: said for each, said in files.items() if said}, **others}
    needed = {each.name for each in command.params if each.required and not isinstance(each, click.Argument)}
    assert needed == {"certify": {"key", "tier", "issuer"}, "verify": {"keys"}, "revoke": {"key", "reason", "path"},
                      "certificate_export": {"form", "output", "key"}}.get(name, set())  # fmt: skip
