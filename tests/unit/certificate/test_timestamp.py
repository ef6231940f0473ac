"""Time-stamps of RFC 3161 over the lines of a log, by an authority of the tests' own."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

pytest.importorskip("rfc3161_client")

from pytest_ascend.certificate import timestamp
from pytest_ascend.certificate.requirements import Candidate, refusals
from pytest_ascend.certificate.statement import statement
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.errors import UsageError
from pytest_ascend.runlog.contents import TimeStamped
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.verdict.summary import summarise

from . import runs
from .authority import OPENSSL, authority

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the tests' authority is OpenSSL's")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with authority(tmp_path_factory.mktemp("authority")) as found:
        yield found


def stamped(path: Path, address: str, *, started: datetime | None = None) -> Path:
    """Write a log that is stamped at its start and at its end."""
    began = (started or datetime.now(timezone.utc)).isoformat(timespec="seconds")
    runs.write_log(path, finish=False, change=lambda header: runs.replace(header, started=began))
    header = read(path).header
    log = RunLog.create(path, header)

    def stamp() -> None:
        line = log.last_line
        answer = timestamp.take(address, line)
        log.note(TimeStamped(authority=address, digest=hashlib.sha256(line).hexdigest(), answer=answer))

    stamp()
    for event in runs.SELF_TEST:
        log.note(event)
    for case in header.manifest:
        log.append(runs.passed(case))
    stamp()
    log.finish(summarise(log.contents()).footer(datetime.now(timezone.utc).isoformat(timespec="seconds")))
    log.close()
    return path


def subject(path: Path) -> Candidate:
    on = datetime.now(timezone.utc).date()
    return Candidate(summary=summarise(read(path)), tier=TIERS["performance"], release=runs.RELEASE, on=on)


def test_what_was_stamped_is_said_and_can_be_checked_by_openssl_too(tmp_path: Path, ours: tuple[str, Path]) -> None:
    found = subject(stamped(tmp_path / "run.jsonl", ours[0]))
    assert "time-stamps" not in {each.id for each in refusals(found)}
    assert not found.summary.run.broken
    said = statement(found, issuer="me", key="0")["time_stamps"]
    assert [each["authority"] for each in said] == [ours[0], ours[0]]
    event = next(each for each in found.summary.run.events if isinstance(each, TimeStamped))
    timestamp.check(event.answer, event.digest, timestamp.roots_of(ours[1]))
    (tmp_path / "answer").write_bytes(base64.b64decode(event.answer))
    line = ["ts", "-verify", "-digest", event.digest, "-in", "answer", "-CAfile", str(ours[1])]
    done = subprocess.run([str(OPENSSL), *line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verification: OK" in done.stdout + done.stderr


def test_another_authority_is_found(tmp_path: Path, ours: tuple[str, Path]) -> None:
    line = b"{}"
    answer, digest = timestamp.take(ours[0], line), hashlib.sha256(line).hexdigest()
    with authority(tmp_path / "other") as (_, root), pytest.raises(timestamp.TimestampError, match="does not hold"):
        timestamp.check(answer, digest, timestamp.roots_of(root))


def test_a_stamp_of_another_line_is_refused_by_name(tmp_path: Path, ours: tuple[str, Path]) -> None:
    path = stamped(tmp_path / "run.jsonl", ours[0])
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    other = timestamp.take(ours[0], b"another line")
    lines[1]["answer"] = other
    from .genuine import chained

    path.write_bytes(chained(lines))
    # The line before the stamp is the one that it names, and all is chained anew: the stamp alone shows it.
    assert "time-stamps" in {each.id for each in refusals(subject(path))}


def test_a_stamp_at_another_time_than_the_run_is_refused_by_name(tmp_path: Path, ours: tuple[str, Path]) -> None:
    path = stamped(tmp_path / "run.jsonl", ours[0])
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[-1]["finished"] = "2026-09-01T10:00:02+00:00"
    lines[0]["started"] = "2026-09-01T10:00:00+00:00"
    from .genuine import chained

    for each in (each for each in lines if each.get("kind") == "time-stamp"):
        each["digest"] = "0" * 64
    path.write_bytes(chained(lines))
    assert {"time-stamps", "chain"} <= {each.id for each in refusals(subject(path))}


@pytest.mark.parametrize("address", ["ftp://x", "file:///etc/passwd", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address"):
        timestamp.take(address, b"line")


def test_an_authority_that_is_not_there_is_said() -> None:
    with pytest.raises(timestamp.TimestampError, match="gave no time-stamp"):
        timestamp.take("http://127.0.0.1:9/", b"line")


@pytest.mark.parametrize("answer", ["", "AAAA", "no base64", base64.b64encode(b"\x30\x80" * 100).decode()])
def test_an_answer_that_is_none_is_refused(answer: str) -> None:
    with pytest.raises(timestamp.TimestampError, match="cannot be read"):
        timestamp.moment_of(answer, "0" * 64)
