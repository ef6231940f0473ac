"""A log that was cut anywhere is continued, and no other run than its own may do it."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.outcome import Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Header, Lost, Resumed
from pytest_ascend.runlog.reading import recorded
from pytest_ascend.runlog.writing import RunLog, read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import header, op_cases, replace


@pytest.fixture
def wanted() -> Header:
    return header(op_cases(8))


def record(header: Header, index: int) -> ResultRecord:
    return ResultRecord.of(header.manifest[index], f"t::{index}", Passed(), measurements={"x_us": 1.0})


@pytest.fixture
def begun(tmp_path: Path, wanted: Header) -> Path:
    """A log with three records, which nobody ended."""
    log = RunLog.create(tmp_path / "run.jsonl", wanted)
    for index in range(3):
        log.append(record(wanted, index))
    log.close()
    return log.path


def test_a_cut_at_any_byte_of_the_last_lines_loses_nothing_before(begun: Path, wanted: Header) -> None:
    whole = begun.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(ends[-3], len(whole) + 1, 7):
        begun.write_bytes(whole[:cut])
        log = RunLog.resume(begun, wanted)
        done = sum(end <= cut for end in ends) - 1
        assert len(wanted.manifest) - len(log.waiting) == done
        for index in range(done, 3):
            log.append(record(wanted, index))
        log.close()
        assert len(read(begun).records) == 3


def test_the_footer_of_a_run_with_something_left_is_taken_off(begun: Path, wanted: Header) -> None:
    log = RunLog.resume(begun, wanted)
    log.finish(summarise(log.contents()).footer("2026-01-01T00:00:00+00:00"))
    log = RunLog.resume(begun, wanted)
    log.append(record(wanted, 3))
    log.close()
    found = read(begun)
    assert len(found.records) == 4
    assert found.footer is None
    assert [type(event) for event in found.events] == [Resumed, Resumed]


@pytest.mark.parametrize("left", [b"", b'{"type":"hea'])
def test_where_nothing_whole_stands_the_run_begins(tmp_path: Path, wanted: Header, left: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(left)
    log = RunLog.resume(path, wanted)
    log.close()
    assert len(log.waiting) == len(wanted.manifest)
    assert not read(path).events


def test_where_there_is_no_log_the_run_begins(tmp_path: Path, wanted: Header) -> None:
    RunLog.resume(tmp_path / "new" / "run.jsonl", wanted).close()
    assert (tmp_path / "new" / "run.jsonl").exists()


def test_what_differs_is_named_and_the_log_is_left_alone(begun: Path, wanted: Header) -> None:
    before = begun.read_bytes()
    others = {
        "stack.torch": replace(wanted, stack=replace(wanted.stack, torch="0.1")),
        "used.rules": replace(wanted, used={"rules": "of another release"}),
        "run.level": replace(wanted, level="full" if wanted.level != "full" else "smoke"),
        "options.standard": replace(wanted, options={**wanted.options, "standard": "another"}),
        "manifest: the case": replace(wanted, manifest=wanted.manifest[1:]),
    }
    for named, other in others.items():
        with pytest.raises(RunLogError, match=named):
            RunLog.resume(begun, other)
    assert begun.read_bytes() == before


def test_damage_before_the_end_is_refused(begun: Path, wanted: Header) -> None:
    data = begun.read_bytes()
    begun.write_bytes(data.replace(b'"record"', b'"recrod"', 1))
    with pytest.raises(RunLogError, match="line 2"):
        RunLog.resume(begun, wanted)


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(begun: Path, wanted: Header) -> None:
    log = RunLog.resume(begun, wanted)
    before = begun.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40, limits[1]))
    try:
        with pytest.raises(RunLogError, match="File too large"):
            log.append(record(wanted, 3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.close()
    assert begun.stat().st_size == before


def test_a_lost_case_is_not_run_and_says_why_until_it_is_recorded(begun: Path, wanted: Header) -> None:
    log = RunLog.resume(begun, wanted)
    log.note(Lost(cases=(wanted.manifest[3].id,), reason="the card was lost"))
    log.close()
    assert "the card was lost" in summarise(read(begun)).results[3].outcome.reason
    log = RunLog.resume(begun, wanted)
    log.append(record(wanted, 3))
    log.close()
    assert summarise(read(begun)).results[3].outcome.name == "passed"


def test_a_continued_log_continues_its_chain(begun: Path, wanted: Header) -> None:
    log = RunLog.resume(begun, wanted)
    for index in range(3, 8):
        log.append(record(wanted, index))
    log.finish(summarise(log.contents()).footer("2026-01-01T00:00:00+00:00"))
    assert read(begun).broken == 0


def test_a_log_that_was_altered_is_not_continued(begun: Path, wanted: Header) -> None:
    begun.write_bytes(begun.read_bytes().replace(b'"x_us":1.0', b'"x_us":2.0', 1))
    with pytest.raises(RunLogError, match="Line 3 does not continue the chain"):
        RunLog.resume(begun, wanted)


def test_how_long_cases_took_is_known_of_a_log_that_can_be_read_from_the_same_stack(
    begun: Path, wanted: Header, tmp_path: Path
) -> None:
    took = {case.id: 0.0 for case in wanted.manifest[:3]}
    assert recorded(begun.parent) == recorded(begun.parent, wanted.stack) == took
    assert recorded(begun.parent, replace(wanted.stack, cann="9.9.9")) == {}
    assert recorded(tmp_path / "nowhere") == {}
    begun.write_text("no log\n", encoding="utf-8")
    assert recorded(begun.parent) == {}
