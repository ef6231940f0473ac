"""The compact form of all cases: nothing that matters is lost, and nothing is said twice."""

import zlib
from base64 import b64decode

from pytest_ascend.page import casedata
from pytest_ascend.page.casedata import DETAIL_FIELDS, INDEX_FIELDS, VERDICT_FIELDS, details_of, index_of
from pytest_ascend.records.case import Case
from pytest_ascend.records.verdict import Worst
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import Run
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

RELU = Case(suite="ops", subject="relu", property="forward", dtype="float32")
RESNET = Case(suite="models", subject="resnet50", property="gradients", dtype="float32")


def details(run):
    return codec.loads(zlib.decompress(b64decode(details_of(summarise(run)))).decode())


def packed(case, outcome="passed", *, leaves=0, **changes):
    random = synthetic.Random(4)
    record = replace(synthetic.record(case, outcome, random), **changes)
    if leaves:
        verdict = synthetic.verdict(case, agrees=outcome == "passed", random=random, leaves=leaves)
        record = replace(record, verdicts=(verdict,))
    data = details(Run(header=synthetic.header([case]), records=(record,)))
    found = dict(zip(DETAIL_FIELDS, data["cases"][0], strict=True))
    found["verdicts"] = [dict(zip(VERDICT_FIELDS, each, strict=True)) for each in found["verdicts"]]
    return found, data


def test_texts_stand_once():
    _, data = packed(RELU)
    assert len(set(data["texts"])) == len(data["texts"])


def test_metrics_stand_beside_their_names():
    found, data = packed(RELU)
    [verdict] = found["verdicts"]
    assert len(data["shapes"][verdict["shape"]]) == len(verdict["values"])


def test_the_tensors_of_a_model_are_all_there():
    found, _ = packed(RESNET, leaves=12)
    assert len(found["verdicts"][0]["leaves"]) == 12


def test_the_tensors_of_an_operator_are_there_when_it_failed():
    assert packed(RELU, leaves=3)[0]["verdicts"][0]["leaves"] == 0
    assert len(packed(RELU, "failed", leaves=3)[0]["verdicts"][0]["leaves"]) == 3


def test_a_single_tensor_is_not_said_twice():
    assert packed(RELU, "failed", leaves=1)[0]["verdicts"][0]["leaves"] == 0


def test_the_node_id_can_be_put_together_again():
    found, data = packed(RELU, node_id="suites/a.py::test[x[1]-'y']")
    assert data["texts"][found["file"]] + data["texts"][found["parameters"]] == "suites/a.py::test[x[1]-'y']"


def test_non_finite_figures_travel_by_name():
    found, _ = packed(RELU, "failed")
    assert "inf" in found["verdicts"][0]["values"]


def test_a_case_without_a_record_has_no_line():
    data = details(Run(header=synthetic.header([RELU]), records=()))
    assert data["cases"][0][DETAIL_FIELDS.index("line")] is None


def test_the_index_has_what_the_list_shows_of_every_case_and_its_cause():
    records = tuple(synthetic.record(each, "failed", synthetic.Random(4)) for each in (RELU, RESNET))
    summary = summarise(Run(header=synthetic.header([RELU, RESNET]), records=records))
    index = index_of(summary, {RELU.id: 3})
    rows = [dict(zip(INDEX_FIELDS, row, strict=False)) for row in index["cases"]]
    assert [index["texts"][row["subject"]] for row in rows] == ["relu", "resnet50"]
    assert [row["cause"] for row in rows] == [3, -1]
    cells = sum(2 if column["number"] else 1 for column in index["columns"])
    assert {len(row) for row in index["cases"]} == {len(INDEX_FIELDS) + cells}
    codec.for_script(index)


def test_the_worst_elements_stand_beside_what_was_expected():
    worst = tuple(Worst(index=(n, 2), actual=f"{n}.5", expected="1") for n in range(20))
    record = replace(synthetic.record(RELU, "failed", synthetic.Random(4)))
    verdict = replace(record.verdicts[0], worst_elements=worst, where=("09<",))
    [found] = packed(RELU, "failed", verdicts=(verdict,))[0]["verdicts"]
    assert found["elements"][0] == ["[0, 2]", "0.5", "1"]
    assert len(found["elements"]) == 8
    assert found["where"] == ["090"]


def test_a_program_stands_beside_a_case_that_failed_and_beside_no_other():
    found, data = packed(RELU, "failed", snippet="import torch\nprint(1)")
    assert data["texts"][found["snippet"]] == "import torch\nprint(1)"
    found, data = packed(RELU, snippet="")
    assert data["texts"][found["snippet"]] == ""


def test_a_program_hides_nothing_from_who_copies_it():
    found, data = packed(RELU, "failed", snippet="x = 1\u202e # 2")
    assert data["texts"][found["snippet"]] == "x = 1\\u202e # 2"


def test_a_program_is_whole_or_left_out(monkeypatch):
    monkeypatch.setattr(casedata, "SNIPPETS_BUDGET_BYTES", {False: 10, True: 10})
    found, data = packed(RELU, "failed", snippet="print('more than ten bytes')")
    assert data["texts"][found["snippet"]].startswith("# (left out")


def test_a_long_message_of_many_parts_is_kept_as_it_is():
    detail = "0: 1, " * 2_000
    found, data = packed(RELU, "errored", detail=detail, diagnosis={"kind": "bug"})
    assert data["texts"][found["detail"]].startswith(detail[:1_000])
