"""A log in outline says what the whole log says, and refuses what the whole reader refuses."""

import json

import pytest

from pytest_ascend.errors import RunLogError
from pytest_ascend.page.matrix import scan, tallies
from pytest_ascend.runlog.contents import SCHEMA
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.summary import ORDER, summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.test_reading import changed

CASES = [*synthetic.op_cases(24), *synthetic.other_cases()]


@pytest.fixture
def log(tmp_path):
    return synthetic.write_log(tmp_path / "run.jsonl", CASES, outcomes=ORDER, stack=synthetic.HARDWARE)


@pytest.mark.parametrize("stack", [synthetic.HARDWARE, synthetic.EMULATED], ids=["npu", "emulated"])
@pytest.mark.parametrize("shape", [{}, {"recorded": 5}, {"recorded": 5, "finish": False}])
@pytest.mark.parametrize("outcomes", [ORDER, ["passed"], ["passed", "waived"]])
def test_the_verdict_is_that_of_the_whole_log(tmp_path, stack, shape, outcomes):
    path = synthetic.write_log(tmp_path / "run.jsonl", CASES, outcomes=outcomes, stack=stack, **shape)
    whole, found = summarise(read(path)), scan(path)
    assert (found.verdict, found.counts, found.executed) == (whole.verdict, whole.counts, whole.executed)
    assert [each for each in whole.results if each in found.results] == [*found.results]
    kept = tuple(each for each in whole.run.records if each in found.run.records)
    assert found.run == synthetic.replace(whole.run, records=kept, lines=())


def test_a_subject_is_tallied_over_all_its_cases(log):
    found = tallies(scan(log))["ops", "activation", "relu"]
    whole = [each for each in summarise(read(log)).results if each.case.subject == "relu"]
    assert sum(found) == len(whole)
    assert found[ORDER.index("failed")] == sum(each.outcome.name == "failed" for each in whole)


def test_figures_are_kept_by_case(log):
    found = {each.case.id: each.measurements for each in scan(log).run.records}
    assert "latency_us" in found["benchmarks/resnet50/inference-batch1/float32"]


def without_evidence(data):
    return {**data, "verdicts": [], "measurements": {}}


def disagreeing(data):
    return {**data, "verdicts": [{**each, "agrees": False} for each in data["verdicts"]]}


def from_the_cpu(data):
    return {**data, "fallbacks": ["aten::relu"]}


@pytest.mark.parametrize("spoil", [without_evidence, disagreeing, from_the_cpu])
def test_a_pass_that_its_record_does_not_bear_out_is_none(tmp_path, spoil):
    path = synthetic.write_log(tmp_path / "run.jsonl", CASES[:3], stack=synthetic.HARDWARE)
    changed(path, 2, **spoil(json.loads(path.read_text(encoding="utf-8").splitlines()[1])))
    whole, found = summarise(read(path)), scan(path)
    assert found.counts == whole.counts
    assert not found.verdict.conforms


def twice(lines):
    return [lines[0], lines[1], *lines[1:]]


def unknown(lines):
    return [lines[0].replace('"relu"', '"other"').replace("ops/relu/", "ops/other/"), *lines[1:]]


def cut(lines):
    return [*lines[:-1], lines[-1][:-5]]


def more(lines):
    return [*lines, lines[1]]


@pytest.mark.parametrize(
    "spoil",
    [
        twice,
        unknown,
        cut,
        more,
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[1].replace('"passed"', '"better"'), *lines[2:]],
        lambda lines: [lines[0].replace(f'"schema":{SCHEMA}', '"schema":99'), *lines[1:]],
        lambda lines: [lines[0], "[]\n", *lines[2:]],
        lambda lines: [lines[0], lines[1].replace('"agrees":true', '"agrees":1'), *lines[2:]],
        lambda lines: ["{}\n"],
        lambda lines: [],
        lambda lines: ["\xff\n"],
    ],
)
def test_what_the_whole_reader_refuses_is_refused(tmp_path, spoil):
    path = synthetic.write_log(tmp_path / "run.jsonl", CASES[:3])
    path.write_text("".join(spoil(path.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="latin-1")
    for reader in (read, scan):
        with pytest.raises(RunLogError) as caught:
            reader(path)
        assert str(path) in str(caught.value)


def test_a_missing_log_is_one_clear_message(tmp_path):
    with pytest.raises(RunLogError, match="nowhere"):
        scan(tmp_path / "nowhere")


def test_events_beside_the_records_count_as_in_the_whole_log(tmp_path):
    path = synthetic.write_log(tmp_path / "run.jsonl", CASES[:3], stack=synthetic.HARDWARE)
    event = {"type": "event", "kind": "canaries", "planted": 2, "detected": 1, "honest": 3, "missed": ["relu"]}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], json.dumps(event) + "\n", *lines[1:]]), encoding="utf-8")
    whole, found = summarise(read(path)), scan(path)
    assert found.contradictions == whole.contradictions != ()
    assert found.verdict == whole.verdict
