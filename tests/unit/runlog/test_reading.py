"""The reader: a log that cannot be trusted is refused by file and line."""

import json

import pytest
from msgspec import to_builtins

from pytest_ascend.errors import RunLogError
from pytest_ascend.page.matrix import scan
from pytest_ascend.runlog import reading
from pytest_ascend.runlog.contents import SCHEMA, SelfTest
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic


@pytest.fixture
def path(tmp_path):
    return synthetic.write_log(tmp_path / "run.jsonl", synthetic.op_cases(4))


def changed(path, number, **fields):
    """Write the log anew with fields of line ``number`` replaced."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **fields}) + "\n"
    path.write_text("".join(lines), encoding="utf-8")


def refusal(path):
    with pytest.raises(RunLogError) as caught:
        read(path)
    assert caught.value.path == str(path)
    assert caught.value.hint
    return str(caught.value)


def test_a_whole_log_has_ended_and_its_chain_holds(path):
    run = read(path)
    assert (len(run.records), run.ended, run.broken) == (4, True, 0)


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_a_log_without_its_footer_is_readable_and_says_so(path, lines):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
    run = read(path)
    assert (len(run.records), run.ended, summarise(run).verdict.kind) == (lines - 1, False, "incomplete")


def test_a_log_with_fewer_records_than_its_manifest_says_so(tmp_path):
    found = summarise(read(synthetic.write_log(tmp_path / "run.jsonl", synthetic.op_cases(4), recorded=3)))
    assert (found.missing, found.verdict.kind) == (1, "incomplete")


def test_every_cut_within_a_line_is_refused(path):
    whole = path.read_bytes()
    ends = {index + 1 for index, byte in enumerate(whole) if byte == ord("\n")}
    for size in range(1, len(whole), 97):
        if size not in ends:
            path.write_bytes(whole[:size])
            assert "cut short" in refusal(path)


def test_the_hint_on_a_cut_line_keeps_what_came_before(path):
    path.write_bytes(path.read_bytes()[:-5])
    assert "line 6: cut short" in refusal(path)
    assert "head -n 5" in refusal(path)


def test_a_missing_file_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "run.jsonl")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "run.jsonl").touch()
    assert "line 1: expected the header" in refusal(tmp_path / "run.jsonl")


def test_another_schema_is_refused(path):
    changed(path, 1, schema=SCHEMA + 1)
    assert f"line 1: a log of schema {SCHEMA + 1}; this version reads schemas up to {SCHEMA}" in refusal(path)


def test_a_case_twice_is_refused(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))
    assert "line 4: the case" in refusal(path)


def test_a_case_twice_in_the_manifest_is_refused(path):
    manifest = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["manifest"]
    changed(path, 1, manifest=[*manifest, manifest[0]])
    assert "twice" in refusal(path)


def test_a_record_that_the_manifest_lacks_is_refused(path):
    manifest = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["manifest"]
    changed(path, 1, manifest=manifest[1:])
    assert "line 2: the case 'ops/relu/forward/float32' is not in the manifest" in refusal(path)


def test_an_id_that_its_fields_do_not_give_is_refused(path):
    case = json.loads(path.read_text(encoding="utf-8").splitlines()[1])["case"]
    changed(path, 2, case={**case, "id": "ops/other"})
    assert "record.case.id: expected 'ops/relu/forward/float32'" in refusal(path)


def test_a_footer_that_counts_other_records_is_refused(path):
    changed(path, 6, records=3)
    assert "line 6: the footer counts 3 records, the log holds 4" in refusal(path)


def test_anything_after_the_footer_is_refused(path):
    path.write_bytes(path.read_bytes() + b"\n")
    assert "line 7: something follows the footer" in refusal(path)


@pytest.mark.parametrize(
    ("number", "fields", "problem"),
    [
        (1, {"stack": {"device": "npu", "emulated": "no"}}, "header.stack.emulated: expected true or false"),
        (1, {"stack": {"device": "npu", "emulated": True, "torch": 2}}, "header.stack.torch: expected text"),
        (1, {"level": "thorough"}, "header.level: expected one of smoke, standard, full"),
        (1, {"started": "yesterday"}, "header.started: expected a time"),
        (1, {"started": "2026-01-02T03:04:05"}, "header.started: expected a time in ISO 8601 with its offset"),
        (1, {"selection": {"kind": "most", "reason": ""}}, "header.selection.kind: expected one of full, subset"),
        (1, {"manifest": {}}, "header.manifest: expected a list"),
        (2, {"outcome": "faild"}, "record.outcome: expected one of"),
        (2, {"node_id": None}, "record.node_id: expected text"),
        (2, {"measurements": {"latency_us": "1"}}, "record.measurements[...]: expected a number"),
        (2, {"verdicts": [{}]}, "record.verdicts[0].path: missing"),
        (2, {"duration_s": True}, "record.duration_s: expected a number"),
        (6, {"counts": {"passed": -1}}, "footer.counts[...]: expected a whole number >= 0"),
        (2, {"type": "recrod"}, "a line of unknown type 'recrod'"),
        (1, {"type": "record"}, "expected the header"),
    ],
)
def test_a_field_of_another_form_is_refused_by_its_path(path, number, fields, problem):
    changed(path, number, **fields)
    assert f"line {number}: " in refusal(path)
    assert problem in refusal(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\n", "Expecting value"),
        (b"[]\n", "expected an object"),
        (b"\xff\n", "utf-8"),
        (b"[" * 9999 + b"\n", "damaged"),
    ],
)
def test_a_line_that_is_no_object_is_refused(path, line, problem):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    assert problem in refusal(path)
    assert "line 3: " in refusal(path)


def test_a_line_without_end_is_not_read_into_memory(path, monkeypatch):
    monkeypatch.setattr(reading, "RECORD_LIMIT_BYTES", 100)
    assert "line 2: longer than 100 bytes" in refusal(path)


def test_more_records_than_anybody_runs_are_refused(path, monkeypatch):
    monkeypatch.setattr(reading, "RECORDS_LIMIT", 3)
    assert "more than 3 records" in refusal(path)


def test_fields_of_later_versions_are_left_alone(path):
    changed(path, 2, attachments=["plog"])
    assert len(read(path).records) == 4


@pytest.mark.parametrize("series", [{"latency_us": ["fast"]}, {"latency_us": [0] * 10_001}, {"a": 1}, []])
def test_a_series_of_another_form_or_beyond_bounds_is_refused(path, series):
    changed(path, 2, series=series)
    assert "record.series" in refusal(path)


def test_a_census_is_read_and_checked(path):
    changed(path, 1, census={"aten": {"native": 1496}, "npu": {"native": 420}})
    assert read(path).header.census["aten"] == {"native": 1496}
    changed(path, 1, census={"aten": {"native": "many"}})
    assert "header.census[...][...]" in refusal(path)


def test_a_log_of_schema_1_is_read_by_its_own_manifest(path):
    """Up to schema 1, cases of operators without a kernel stood in the header and did not run."""
    [first, *_] = read(path).header.manifest
    more = {**to_builtins(first), "subject": "other", "id": first.id.replace("relu", "other")}
    before = read(path)
    changed(path, 1, schema=1, left_to_cpu=[{"asked": first.id, "operators": [], "reason": "r", "cases": [more]}])
    assert read(path).header == synthetic.replace(before.header, schema=1)
    assert read(path).records == before.records


@pytest.mark.parametrize(("schema", "kind"), [(2, "canaries"), (3, "self-test")])
def test_the_self_test_of_earlier_logs_is_read_by_its_former_names(path, schema, kind):
    changed(path, 1, schema=schema)
    header, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
    event = {"type": "event", "kind": kind, "planted": 15, "detected": 14, "honest": 5, "missed": ["relu"]}
    path.write_text("".join((header, json.dumps(event) + "\n", *rest)), encoding="utf-8")
    test = next(each for each in read(path).events if isinstance(each, SelfTest))
    assert (test.missed, test.correct) == (("relu",), 5)


def test_what_the_doctor_found_is_read_and_checked(path):
    finding = {"severity": "error", "what": "w", "evidence": ["e"], "why": "y", "remedy": "r"}
    changed(path, 1, doctor={"findings": [finding]})
    assert read(path).header.doctor["findings"] == [finding]
    changed(path, 1, doctor={"findings": [{**finding, "evidence": "e"}]})
    assert "header.doctor.findings[0].evidence" in refusal(path)


@pytest.mark.parametrize("line", [1, 2, 4, 5])
def test_an_altered_line_breaks_the_chain_at_the_next_one(path, line):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b":", b": ", 1)
    path.write_bytes(b"".join(lines))
    run = read(path)
    assert run.broken == line + 1
    assert f"Line {line + 1} does not continue the chain" in summarise(run).contradictions[0]
    assert scan(path).run.broken == run.broken
    assert summarise(run).verdict.kind == scan(path).verdict.kind == "incomplete"


@pytest.mark.parametrize("change", [lambda lines: lines.pop(2), lambda lines: lines.insert(1, lines.pop(3))])
def test_a_line_that_is_gone_or_moved_breaks_the_chain(path, change):
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    lines[-1] = lines[-1].replace(b'"records":4', f'"records":{len(lines) - 2}'.encode())
    path.write_bytes(b"".join(lines))
    assert read(path).broken


def test_a_log_of_an_earlier_version_is_read_and_is_not_chained(path):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    del lines[0]["chain"]
    for each in lines[1:]:
        del each["previous"]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    run = read(path)
    assert (run.header.chain, run.broken) == ("", 0)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"type":"header","schema":3,"x":"\\ud800"}', "header"),  # half a character, which JSON may hold
        (b'{"type":"header","schema":3,"x":"y"}', "header"),
        (b"[3]", None),
    ],
)
def test_the_kind_of_a_file_is_told_whatever_its_texts_hold(line: bytes, kind: str | None) -> None:
    assert reading._beginning(line).type == kind
