"""A log at its limits: how much of it is read, how it is chained, what its events mean, what a writer keeps."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.outcome import Errored
from pytest_ascend.runlog import codec, contents, reading, writing
from pytest_ascend.runlog.contents import (
    EVENTS,
    Attempted,
    Cards,
    Footer,
    FooterVerdict,
    Header,
    LeftBehind,
    Lost,
    Part,
    Quarantined,
    Resumed,
    Run,
    Selection,
    SelfTest,
    Shard,
    TimeStamped,
)
from pytest_ascend.runlog.reading import LogReader, read
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.system import files
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

CASES = synthetic.op_cases(3)


def begun(path: Path, *, records: int = 0, events: tuple[Any, ...] = (), **options: Any) -> RunLog:
    log = RunLog.create(path / "run.jsonl", synthetic.header(CASES), **options)
    for event in events:
        log.note(event)
    for case in CASES[:records]:
        log.append(synthetic.passed(case))
    return log


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    log = begun(tmp_path, records=3)
    log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
    return log.path.read_bytes()


def of(content: bytes) -> Run:
    return LogReader(Path("x"), io.BytesIO(content)).run()


def test_nesting_is_read_up_to_a_limit() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = "[]" if opening == "[" else "{}"
        fits = opening * files.DEPTH_LIMIT + inner + closing * files.DEPTH_LIMIT
        assert codec.loads(fits) is not None
        with pytest.raises(ValueError, match="nested deeper than 32"):
            codec.loads(opening + fits + closing)
    flat = json.dumps([[], {}] * 20)
    assert codec.loads(flat) == [[], {}] * 20, "many brackets are not deep ones"


def test_values_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (codec, files):
        monkeypatch.setattr(each, "VALUES_LIMIT", 4)
    assert codec.loads("[1,2,{}]") == [1, 2, {}]
    with pytest.raises(ValueError, match="more than 4 values"):
        codec.loads("[1,2,[],[]]")
    assert codec.parsed(b"[1,2,3,4]", list, "x") == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="more than 4 values"):
        codec.parsed(b"[1,2,3,4,5]", list, "x")
    assert codec.parsed(b'"aaaaaaaaaaaaaaaa"', str, "x") == "aaaaaaaaaaaaaaaa", "long is not many"


def test_a_line_names_the_one_before_as_its_last_key() -> None:
    digest = codec.digest_of(b"{}")
    line = codec.chained(b'{"a":1}', digest)
    assert line == b'{"a":1,"previous":"%s"}' % digest.encode()
    assert codec.previous_of(line) == digest
    assert codec.previous_of(line + b" \n") == digest
    assert codec.previous_of(b'{"previous":"%s","a":1}' % digest.encode()) == ""
    assert codec.previous_of(b'{"a":1}') == ""
    assert codec.previous_of(b" " * 300 + line) == digest


class Small(msgspec.Struct):
    """A line of two fields."""

    a: int
    b: str = ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a":"x"}', "small.a: expected a whole number, got text"),
        (b"{}", "small.a: missing"),
        (b"[]", "small: expected an object, got a list"),
        (b'{"a":1,"b":null}', "small.b: expected text, got null"),
        (b'{"a":1,"b":true}', "small.b: expected text, got true or false"),
        (b'{"a":1,"a":2}', "an object says the same key twice"),
        (b"\xff", "invalid start byte"),
    ],
)
def test_a_field_of_another_form_is_named(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        codec.parsed(text, Small, "small")


@pytest.mark.parametrize(
    "text", [b'{"a":1}', b'{"a":1,"b":"x"}', b'{ "a": 1 }', b'{"a":1,"later":2}', '{"a":1,"b":"\u8bef"}'.encode()]
)
def test_what_this_version_would_write_and_what_it_would_not_is_read_alike(text: bytes) -> None:
    assert codec.parsed(text, Small, "small") == msgspec.json.decode(text, type=Small)


def test_json_has_no_spaces() -> None:
    assert codec.dumps({"a": [1, float("inf")], "b": "\u8bef"}) == '{"a":[1,{"$float":"inf"}],"b":"\\u8bef"}'


def test_a_line_is_ascii_and_holds_what_json_does_not() -> None:
    assert codec.line(Small(1, "\u8bef\U0001f916")) == b'{"a":1,"b":"\\u8bef\\ud83e\\udd16"}'
    assert json.loads(codec.line(Small(1, "\ud800")))["b"] == "\ud800"
    with pytest.raises(ValueError, match=r"line\.a: expected a whole number"):
        codec.line(Small("x"))  # type: ignore[arg-type]


def test_a_script_cannot_be_ended() -> None:
    assert codec.for_script({"a": "</script>&\u2028\x7f\u8bef"}) == (
        '{"a":"\\u003c/script\\u003e\\u0026\\u2028\\u007f\u8bef"}'
    )


@pytest.mark.parametrize(("limit", "fits"), [("HEADER_LIMIT_BYTES", 0), ("RECORD_LIMIT_BYTES", 1)])
def test_a_line_is_read_up_to_its_limit(whole: bytes, limit: str, fits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(map(len, whole.splitlines(keepends=True)[fits : fits + 1 if not fits else None]))
    monkeypatch.setattr(reading, limit, longest)
    assert len(of(whole).records) == 3
    monkeypatch.setattr(reading, limit, longest - 1)
    with pytest.raises(RunLogError, match=f"longer than {longest - 1} bytes"):
        of(whole)


def test_records_and_events_are_read_up_to_a_limit(whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RECORDS_LIMIT", 4)
    assert len(of(whole).records) == 3
    monkeypatch.setattr(reading, "RECORDS_LIMIT", 3)
    with pytest.raises(RunLogError, match="line 4: more than 3 records and events"):
        of(whole)


def test_a_file_is_read_up_to_a_limit(tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    monkeypatch.setattr(reading, "SIZE_LIMIT_BYTES", len(whole))
    assert read(path).path == str(path)
    monkeypatch.setattr(reading, "SIZE_LIMIT_BYTES", len(whole) - 1)
    with pytest.raises(RunLogError, match="cannot read the run log"):
        read(path)


def test_the_limits_are_these() -> None:
    assert (reading.HEADER_LIMIT_BYTES, reading.RECORD_LIMIT_BYTES) == (64 << 20, 4 << 20)
    assert (reading.RECORDS_LIMIT, reading.SIZE_LIMIT_BYTES) == (200_000, 1 << 31)
    assert (files.DEPTH_LIMIT, files.VALUES_LIMIT, writing.DETAIL_LIMIT_CHARACTERS) == (32, 2_500_000, 200_000)


def test_what_is_read_of_a_whole_log(whole: bytes) -> None:
    found = of(whole)
    lines = whole.splitlines()
    assert (found.lines, found.ended, found.broken) == ((2, 3, 4), True, 0)
    assert found.head == codec.digest_of(lines[-1])
    cut = of(whole[: -len(lines[-1]) - 1])
    assert (cut.ended, cut.footer, cut.head) == (False, None, codec.digest_of(lines[3]))
    assert len(of(b"".join(whole.splitlines(keepends=True)[:3])).records) == 2


def test_an_error_names_the_line_and_what_to_keep(whole: bytes) -> None:
    with pytest.raises(RunLogError, match=r"x, line 1: cut short") as caught:
        of(whole[:40])
    assert "run the suite again" in caught.value.hint
    with pytest.raises(RunLogError, match=r"x, line 5: cut short") as caught:
        of(whole[:-1])
    assert caught.value.hint.startswith("head -n 4 keeps the 4 whole lines")
    with pytest.raises(RunLogError, match=r"x, line 6: something follows the footer"):
        of(whole + b"\n")
    with pytest.raises(RunLogError, match=r"x, line 1: expected the header"):
        of(b"")
    with pytest.raises(RunLogError, match=r"x, line 2: damaged"):
        of(whole.splitlines(keepends=True)[0] + b"\n")


def test_the_first_break_of_a_chain_counts(whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"duration_s":0', b'"duration_s":1', 1)
    lines[3] = lines[3].replace(b'"duration_s":0', b'"duration_s":1', 1)
    assert of(b"".join(lines)).broken == 3


def stamp(line: bytes, **changes: str) -> TimeStamped:
    return TimeStamped(**{"authority": "a", "digest": codec.digest_of(line), "answer": "x", **changes})


@pytest.mark.parametrize("is_of_the_line", [True, False])
def test_a_time_stamp_is_of_the_line_before(tmp_path: Path, is_of_the_line: bool) -> None:
    log = begun(tmp_path)
    log.note(stamp(log.last_line if is_of_the_line else b"another"))
    log.note(stamp(b"and another"))
    log.close()
    found = read(log.path)
    assert found.broken == (3 if is_of_the_line else 2)
    assert [type(each) for each in found.events] == [TimeStamped] * 2


EVENT = [
    Attempted(case="c", card="npu:0", end="hung", outcome="", reason="r", alone=True, detail="d"),
    Lost(cases=("a", "b"), reason="r"),
    SelfTest(planted=15, detected=14, correct=5, missed=("x",)),
    Quarantined(card="npu:0", reason="r"),
    LeftBehind(case="c", card="npu:0", bytes=7),
    Resumed(at=synthetic.STARTED, records=0),
    msgspec.convert({"when": "before", "cards": [{"index": 0, "npu": 1, "chip": 2, "bus": "b"}]}, Cards),
    TimeStamped(authority="a", digest="0" * 64, answer="", reason="r"),
]


@pytest.mark.parametrize("event", EVENT, ids=lambda event: type(event).__name__)
def test_each_event_is_read_as_it_was_written(tmp_path: Path, event: Any) -> None:
    log = begun(tmp_path, events=(event,))
    log.close()
    assert read(log.path).events == log.contents().events == (event,)


def test_every_kind_of_event_is_known_by_its_name() -> None:
    assert {*map(type, EVENT), contents.FormerSelfTest} == set(EVENTS.values())
    assert {"attempt", "lost", "self-test", "canaries", "quarantined", "left-behind", "resumed", "cards",
            "time-stamp"} == EVENTS.keys()  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"event","kind":"news"}', "event.kind: expected one of attempt, lost"),
        (b'{"type":"event","kind":["lost"]}', "event.kind: expected one of"),
        (b'{"type":"event"}', "event.kind: expected one of"),
        (b'{"type":"event","kind":"lost"}', "event.cases: missing"),
        (b'{"type":"other"}', "a line of unknown type 'other'"),
        (b"{}", "a line of unknown type 'None'"),
        (b"[]", "expected an object"),
        (b'{ "type": "record" }', "record.case: missing"),
        (b'{"type":"footer"}', "footer.finished: missing"),
    ],
)
def test_a_line_of_another_kind_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        reading._after_header(line)


def test_the_former_name_of_correct_results_is_read() -> None:
    line = b'{"type":"event","kind":"self-test","planted":1,"detected":1,"honest":5,"missed":[]}'
    assert reading._after_header(line) == SelfTest(planted=1, detected=1, correct=5, missed=())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"type":"header","schema":3}', ("header", 3)),
        (b'{"type":"header","x":"\\ud800","schema":3}', ("header", 3)),
        (b"[1]", (None, None)),
        (b"{}", (None, None)),
    ],
)
def test_the_beginning_tells_a_log(line: bytes, found: tuple[Any, Any]) -> None:
    made = reading._beginning(line)
    assert (made.type, made.schema) == found


@pytest.mark.parametrize(("index", "count", "fits"), [(1, 1, True), (3, 3, True), (0, 3, False), (4, 3, False)])
def test_a_shard_is_one_of_its_count(index: int, count: int, fits: bool) -> None:
    data = {"index": index, "count": count, "cases": 1, "digest": "d", "selection": {"kind": "full"}}
    if fits:
        assert msgspec.convert(data, Shard).index == index
    else:
        with pytest.raises(msgspec.ValidationError, match=f"expected a part of {count}, got {index}"):
            msgspec.convert(data, Shard)


def test_times_have_offsets_wherever_they_are_written() -> None:
    header = synthetic.header(CASES)
    verdict = FooterVerdict(kind="k", conforms=True, sentence="s")
    with pytest.raises(ValueError, match=r"\.started: expected a time"):
        replace(header, started="2026-01-01T00:00:00")
    with pytest.raises(ValueError, match=r"\.finished: expected a time"):
        Footer(finished="now", records=0, counts={}, verdict=verdict)
    with pytest.raises(ValueError, match=r"\.at: expected a time"):
        Resumed(at="now", records=0)


def test_a_header_is_of_a_whole_run_by_itself() -> None:
    made = synthetic.header(CASES)
    assert (made.shard, made.chain, made.merged, made.census, made.used, made.doctor) == (None, "", (), {}, {}, {})
    assert made.schema == contents.SCHEMA
    assert made.each_case_once() is made
    assert Selection("full").reason == ""


def test_a_merged_log_has_a_bounded_number_of_parts() -> None:
    part = Part(run_id="1", started="s", finished="f", host="h", head="0")
    made = msgspec.to_builtins(replace(synthetic.header(CASES), merged=(part,) * 10_000))
    assert len(msgspec.convert(made, Header).merged) == 10_000
    made["merged"] = [*made["merged"], made["merged"][0]]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(made, Header)


def test_a_run_knows_what_was_lost_and_missed() -> None:
    records = (synthetic.passed(CASES[0]),)
    lost = Lost(cases=(CASES[0].id, CASES[1].id), reason="r")
    missed = SelfTest(planted=2, detected=0, correct=0, missed=("x", "y"))
    run = Run(header=synthetic.header(CASES), records=records, events=(lost, missed, replace(missed, missed=("z",))))
    assert run.lost == {CASES[1].id: "r"}
    assert [each.rpartition(": ")[2] for each in summarise(run).contradictions] == ["x.", "y.", "z."]
    assert (summarise(run).lines, summarise(replace(run, lines=(5,))).lines) == ({}, {CASES[0].id: 5})
    assert (run.ended, run.broken, run.head, run.path, run.footer) == (True, 0, "", "", None)


def test_a_log_that_is_not_durable_is_not_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(writing.os, "fsync", forced.append)
    begun(tmp_path / "a", records=2, durable=False).close()
    assert len(forced) == 1, "the folder's name"


@pytest.mark.parametrize(("seconds", "times"), [(-1.0, 5), (1e6, 3)])
def test_lines_that_follow_at_once_are_forced_to_the_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, times: int
) -> None:
    """The folder's name, the header, (two records), and the end."""
    forced: list[int] = []
    monkeypatch.setattr(writing, "SYNC_S", seconds)
    monkeypatch.setattr(writing.os, "fsync", forced.append)
    begun(tmp_path, records=2).close()
    assert len(forced) == times


def test_a_disk_that_does_not_take_the_end_of_a_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begun(tmp_path, records=2)
    monkeypatch.setattr(writing.os, "fsync", fails)
    with pytest.raises(RunLogError, match="lost"):
        log.close()
    monkeypatch.undo()
    log.close()
    RunLog.resume(log.path, synthetic.header(CASES)).close()


def test_a_continued_log_is_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, records=1, durable=False).close()
    forced: list[int] = []
    monkeypatch.setattr(writing.os, "fsync", forced.append)
    log = RunLog.resume(tmp_path / "run.jsonl", synthetic.header(CASES))
    log.append(synthetic.passed(CASES[1]))
    log.close()
    assert len(forced) == 2, "that it was continued, and the end"


def test_a_writer_knows_what_it_waits_for_and_what_it_wrote(tmp_path: Path) -> None:
    log = begun(tmp_path, records=1)
    assert [each.id in log.waiting for each in CASES] == [False, True, True]
    assert log.waiting == {CASES[1].id, CASES[2].id}
    assert log.last_line + b"\n" == log.path.read_bytes().splitlines(keepends=True)[-1]
    found = log.contents(ended=False)
    assert (found.ended, found.path, len(found.records)) == (False, str(log.path), 1)
    assert log.contents().ended
    log.close()
    log.close()
    with pytest.raises(RunLogError, match="is closed"):
        log.note(EVENT[3])


def test_the_detail_of_an_attempt_is_cut(tmp_path: Path) -> None:
    log = begun(tmp_path, events=(replace(EVENT[0], detail="x" * 200_001),))
    log.close()
    [event] = read(log.path).events
    assert len(event.detail) == 200_000  # type: ignore[attr-defined]


def test_an_event_that_a_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    log = begun(tmp_path)
    before = log.path.read_bytes()
    with pytest.raises(RunLogError, match=r"line\.bytes"):
        log.note(LeftBehind(case="c", card="npu:0", bytes=-1))
    assert log.path.read_bytes() == before
    assert log.contents().events == ()
    log.close()


@pytest.mark.parametrize(("over", "fits"), [(0, True), (1, False)])
def test_a_record_is_written_up_to_the_limit_of_its_line(
    tmp_path: Path, over: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, log = synthetic.passed(CASES[0]), begun(tmp_path)
    monkeypatch.setattr(writing, "RECORD_LIMIT_BYTES", len(codec.line(record)) + 1 - over)
    written = log.append(record)
    log.close()
    assert (written is record) is fits
    if not fits:
        assert isinstance(written.outcome, Errored)
        assert "a line of" in written.outcome.reason
        assert (written.case, written.node_id) == (record.case, record.node_id)


def test_names_of_earlier_logs_are_free_ones(tmp_path: Path) -> None:
    for name in ("run", "previous-run", "previous-run-2", "previous-run-3", "previous-run-5"):
        (tmp_path / f"{name}.jsonl").write_text(name, encoding="utf-8")
    begun(tmp_path).close()
    assert (tmp_path / "previous-run-4.jsonl").read_text(encoding="utf-8") == "previous-run"
    assert (tmp_path / "previous-run.jsonl").read_text(encoding="utf-8") == "run"


@pytest.mark.parametrize(("name", "step"), [("create", "_set_aside"), ("resume", "refuse_another")])
def test_a_log_that_cannot_be_opened_is_not_kept_locked(tmp_path: Path, name: str, step: str) -> None:
    begun(tmp_path, records=1).close()
    path, header = tmp_path / "run.jsonl", synthetic.header(CASES)
    locks = []
    lock = writing.FileLock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "FileLock", lambda path: locks.append(lock(path)) or locks[-1])
        patch.setattr(writing, step, fails)
        with pytest.raises(RunLogError, match=r"cannot write the run log .*: lost"):
            getattr(RunLog, name)(path, header)
        patch.undo()
        patch.setattr(writing, "FileLock", lambda path: locks.append(lock(path)) or locks[-1])
        with pytest.raises(RunLogError, match=r"run\.level"):
            RunLog.resume(path, replace(header, level="full"))
        RunLog.resume(path, header).close()
    assert [each.is_locked for each in locks] == [False] * 3


def fails(*_: object) -> None:
    raise OSError(5, "lost")


def test_a_continued_log_says_so_and_knows_its_records(tmp_path: Path) -> None:
    begun(tmp_path, records=2).close()
    log = RunLog.resume(tmp_path / "run.jsonl", synthetic.header(CASES))
    [event] = log.contents().events
    assert isinstance(event, Resumed)
    assert (event.records, log.waiting) == (2, {CASES[2].id})
    log.append(synthetic.passed(CASES[2]))
    log.close()
    assert read(log.path).lines == (2, 3, 5)


@pytest.mark.parametrize("option", writing.DECIDING_OPTIONS)
def test_each_option_that_decides_results_keeps_runs_apart(option: str) -> None:
    header = synthetic.header(CASES)
    other = replace(header, options={**header.options, option: "x"})
    assert list(writing._differences(header, other)) == [f"options.{option}: None in that run, 'x' in this one"]
    assert list(writing._differences(other, header)) == [f"options.{option}: 'x' in that run, None in this one"]
    assert list(writing._differences(other, other)) == []


def test_what_only_one_run_was_judged_by_is_a_difference_and_three_cases_are_named() -> None:
    header = synthetic.header(CASES)
    used = replace(header, used={"rules": "r"})
    assert list(writing._differences(header, used)) == ["used.rules: '' in that run, 'r' in this one"]
    many = replace(header, manifest=(*CASES, *synthetic.other_cases()[:4]))
    said = list(writing._differences(header, many))
    assert len(said) == 3
    assert all(each.endswith("is only in this run") for each in said)
    assert next(writing._differences(many, header)).endswith("is only in that run")


def test_eight_differences_are_named() -> None:
    run = Run(header=synthetic.header(CASES), records=())
    other = replace(run.header, options=dict.fromkeys(writing.DECIDING_OPTIONS, "x"))
    assert len(writing.DECIDING_OPTIONS) == 9
    with pytest.raises(RunLogError) as caught:
        writing.refuse_another(Path("x"), run, other)
    assert len(caught.value.message.splitlines()) == 1 + 8
    writing.refuse_another(Path("x"), run, run.header)
    with pytest.raises(RunLogError, match="Line 7 does not continue the chain"):
        writing.refuse_another(Path("x"), replace(run, broken=7), run.header)


def test_a_log_is_read_line_by_line(whole: bytes) -> None:
    reader = LogReader(Path("x"), io.BytesIO(whole))
    assert reader.number == 1
    records = reader.outlines()
    next(records)
    assert (reader.number, reader.lines, reader.footer) == (2, [2], None)
    assert len(list(records)) == 2
    assert reader.footer is not None


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match="cannot read the run log") as caught:
        read(tmp_path)
    assert "run.jsonl" in caught.value.hint
    assert os.listdir(tmp_path) == []  # noqa: PTH208
