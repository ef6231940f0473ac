"""The writer: nothing earlier is destroyed, nothing is written that the reader would refuse."""

import json
import math
import os
from hashlib import sha256

import pytest

from pytest_ascend.errors import RunLogError
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import writing
from pytest_ascend.runlog.contents import Resumed, digest
from pytest_ascend.runlog.writing import DETAIL_LIMIT_CHARACTERS, RunLog, read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

RELU = Case(suite="ops", subject="relu", property="forward", dtype="float32")
GELU = Case(suite="ops", subject="gelu", property="forward", dtype="float32")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ascend-report" / "run.jsonl"


@pytest.fixture
def log(path):
    log = RunLog.create(path, synthetic.header([RELU, GELU]))
    yield log
    log.close()


def test_a_log_is_read_back_as_it_was_written(log, path):
    records = (log.append(synthetic.passed(RELU)), log.append(synthetic.passed(GELU)))
    log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
    run = read(path)
    assert (run.header, run.records, run.broken) == (log.header, records, 0)
    assert run.footer is not None
    assert run.footer.verdict.kind == "conforms"


def test_the_name_of_a_new_log_is_forced_to_the_disk(path, monkeypatch):
    forced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (forced.append(os.fstat(file).st_ino), fsync(file))[1])
    RunLog.create(path, synthetic.header([RELU])).close()
    assert path.parent.stat().st_ino in forced


def test_shards_know_each_other_by_their_cases_in_whatever_order():
    assert digest(["b", "a"]) == digest(["a", "b"]) == sha256(b"a\nb").hexdigest()
    assert digest(["a", "\ud800"]) != digest(["a"])


def test_what_is_empty_is_written_where_readers_expect_it(log, path):
    log.append(ResultRecord.of(RELU, "t", Errored(reason="lost")))
    said = json.loads(path.read_text(encoding="utf-8").splitlines()[1])
    assert said.pop("previous")
    assert list(said) == [
        *("type", "case", "node_id", "outcome", "reason", "detail", "verdicts", "measurements", "fallbacks"),
        "duration_s",
    ]
    assert said["case"] | {"id": "ops/relu/forward/float32", "dtype": "float32"} == said["case"]


def test_each_line_is_on_the_disk_before_the_next(log, path):
    log.append(synthetic.passed(RELU))
    assert len(path.read_bytes().splitlines()) == 2


def test_non_finite_figures_survive(log, path):
    record = replace(synthetic.passed(RELU), measurements={"a_us": math.nan, "b_us": -math.inf})
    log.append(record)
    assert repr(dict(read(path).records[0].measurements)) == "{'a_us': nan, 'b_us': -inf}"


def test_earlier_logs_are_all_kept(path):
    for run_id in ("first", "second", "third"):
        RunLog.create(path, replace(synthetic.header([RELU]), run_id=run_id)).close()
    kept = {each.name: read(each).header.run_id for each in path.parent.glob("*.jsonl")}
    assert kept == {"run.jsonl": "third", "previous-run.jsonl": "second", "previous-run-2.jsonl": "first"}


def test_a_header_that_cannot_be_written_leaves_the_earlier_log_alone(path):
    RunLog.create(path, synthetic.header([RELU])).close()
    before = path.read_bytes()
    with pytest.raises(RunLogError, match="twice"):
        RunLog.create(path, synthetic.header([GELU, GELU]))
    assert path.read_bytes() == before


def test_options_that_are_no_builtins_are_one_clear_message(path):
    with pytest.raises(RunLogError, match="PosixPath is unsupported"):
        RunLog.create(path, replace(synthetic.header([RELU]), options={"folder": path}))


def test_two_runs_cannot_write_one_log(log, path):
    with pytest.raises(RunLogError, match=r"another run is writing(.|\n)*--ascend-report"):
        RunLog.create(path, synthetic.header([RELU]))


def test_a_closed_log_can_be_followed_by_the_next_run(log, path):
    log.close()
    RunLog.create(path, synthetic.header([RELU])).close()


@pytest.mark.parametrize("case", [RELU, replace(RELU, subject="unknown")], ids=["twice", "unknown"])
def test_a_case_that_is_not_waited_for_is_refused(log, case):
    log.append(synthetic.passed(RELU))
    with pytest.raises(RunLogError, match="already, or is not in the manifest"):
        log.append(synthetic.passed(case))


def test_waiting_names_the_cases_without_a_record(log):
    log.append(synthetic.passed(RELU))
    assert log.waiting == {GELU.id}


@pytest.mark.parametrize(
    "change",
    [
        {"verdicts": ({"agrees": "yes"},)},
        {"measurements": {"latency_us": "fast"}},
        {"measurements": {"latency_us": object()}},
        {"fallbacks": ("x" * 5_000_000,)},
        {"duration_s": -1.0},
    ],
    ids=["verdict", "text", "object", "too long", "duration"],
)
def test_a_record_that_cannot_be_written_is_errored_and_never_a_pass(log, path, change):
    written = log.append(replace(synthetic.passed(RELU), **change))
    assert written.outcome.name == "errored"
    assert "cannot be written" in written.outcome.reason
    assert read(path).records == (written,)


def test_both_ends_of_a_very_long_detail_are_kept(log, path):
    record = synthetic.passed(RELU)
    long = replace(record, outcome=replace(record.outcome, detail="begin" + "x" * 1_000_000 + "end"))
    log.append(long)
    detail = read(path).records[0].outcome.detail
    assert detail.startswith("begin")
    assert detail.endswith("end")
    assert len(detail) < 201_000


def test_a_folder_that_cannot_be_made_is_one_clear_message(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunLogError, match="cannot write the run log"):
        RunLog.create(tmp_path / "file" / "run.jsonl", synthetic.header([RELU]))


def test_a_full_disk_is_one_clear_message(log, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(writing, "SYNC_S", -1.0)
    with pytest.raises(RunLogError, match="No space left on device"):
        log.append(synthetic.passed(RELU))


def test_nothing_is_written_after_the_end(log):
    log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
    with pytest.raises(RunLogError, match="is closed"):
        log.append(synthetic.passed(RELU))


def test_the_line_of_each_record_is_that_of_the_file(log, path):
    log.note(Resumed(at=synthetic.STARTED, records=0))
    log.append(synthetic.passed(RELU))
    log.note(Resumed(at=synthetic.STARTED, records=1))
    log.append(synthetic.passed(GELU))
    lines = path.read_text(encoding="utf-8").splitlines()
    run = read(path)
    assert ["relu" in lines[run.lines[0] - 1], "gelu" in lines[run.lines[1] - 1]] == [True, True]


def test_a_long_detail_keeps_both_ends_and_says_how_much_is_missing(log, path):
    length = DETAIL_LIMIT_CHARACTERS + 10
    log.append(
        replace(synthetic.passed(RELU), outcome=Errored(reason="r", detail="a" * (length // 2) + "b" * (length // 2)))
    )
    detail = read(path).records[0].outcome.detail
    assert (detail[0], detail[-1], "… 10 characters left out …" in detail) == ("a", "b", True)
    log.append(replace(synthetic.passed(GELU), outcome=Errored(reason="r", detail="c" * DETAIL_LIMIT_CHARACTERS)))
    assert read(path).records[1].outcome.detail == "c" * DETAIL_LIMIT_CHARACTERS
