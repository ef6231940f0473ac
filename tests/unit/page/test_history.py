"""The history: runs in order, causes with their first and last day, and nothing that foreign text could do."""

import json
from dataclasses import replace as with_

from click.testing import CliRunner

from pytest_ascend.cli import cli
from pytest_ascend.errors import UsageError
from pytest_ascend.page import history as of
from pytest_ascend.page.history import Point, _combination, cases_of
from pytest_ascend.page.matrix import scan
from pytest_ascend.page.page import by_family
from tests.unit.runlog import synthetic

from .test_html import Reader

CASES = synthetic.op_cases(40)


def logs(folder, *runs):
    """Write a log for each (day, outcomes)."""
    for day, outcomes in runs:
        synthetic.write_log(folder / day / "run.jsonl", CASES, outcomes=outcomes, stack=synthetic.HARDWARE)
        log = folder / day / "run.jsonl"
        text = log.read_text(encoding="utf-8").replace(synthetic.STARTED, f"{day}T00:00:00+00:00")
        first = json.loads(text.splitlines()[0])
        log.write_text(text.replace(first["run_id"], f"run-{day}"), encoding="utf-8")


def history(folder):
    done = CliRunner().invoke(cli, ["report", "history", str(folder), "-o", str(folder / "site")])
    assert done.exit_code == 0, done.output
    return json.loads((folder / "site" / "history.json").read_text(encoding="utf-8")), Reader(
        (folder / "site" / "index.html").read_text(encoding="utf-8")
    )


def test_causes_are_first_and_last_seen_on_their_days(tmp_path):
    logs(tmp_path, ("2026-01-03", ["passed"]), ("2026-01-01", ["failed"]), ("2026-01-02", ["failed"]))
    found, page = history(tmp_path)
    [combination] = found["combinations"]
    assert [each["started"][:10] for each in combination["runs"]] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert [each["passed"] for each in combination["runs"]] == [0, 0, 40]
    assert [bool(each["causes"]) for each in combination["runs"]] == [True, True, False]
    cells = page.texts("td")
    assert "2026-01-01 00:00" in cells
    assert "2 / 3" in cells
    assert "not in the latest run" in page.text
    assert "0.00 % in the first, 100.00 % in the latest" in page.text


def test_a_site_reads_again_what_has_changed_alone(tmp_path, monkeypatch):
    logs(tmp_path, ("2026-01-01", ["failed"]), ("2026-01-02", ["passed"]))
    before, _ = history(tmp_path)
    read = []
    monkeypatch.setattr(of, "scan", lambda log, *which: read.append(log.parent.name) or scan(log, *which))
    assert history(tmp_path)[0] == before
    assert read == []
    logs(tmp_path, ("2026-01-01", ["passed", "failed"]), ("2026-01-03", ["passed"]))
    [combination] = history(tmp_path)[0]["combinations"]
    assert (read, [each["passed"] for each in combination["runs"]]) == (["2026-01-01", "2026-01-03"], [20, 40, 40])
    index = tmp_path / "site" / of.INDEX
    unknown = index.read_bytes().replace(b"verdict.", b"nowhere.")
    assert unknown != index.read_bytes()
    for damaged in (b"\xff", unknown):
        index.write_bytes(damaged)
        assert history(tmp_path)[0]["combinations"] == [combination]


def test_a_log_that_is_named_twice_counts_once(tmp_path, monkeypatch):
    logs(tmp_path, ("2026-01-01", ["passed"]))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["report", "history", "2026-01-01", str(tmp_path)], catch_exceptions=False)
    assert done.output == "1 runs: ascend-history/index.html\n"


def test_combinations_stand_apart(tmp_path):
    logs(tmp_path, ("2026-01-01", ["passed"]))
    other = with_(synthetic.HARDWARE, cann="9.1.0")
    synthetic.write_log(tmp_path / "other" / "run.jsonl", CASES, outcomes=["passed"], stack=other)
    found, _ = history(tmp_path)
    assert [len(each["runs"]) for each in found["combinations"]] == [1, 1]


def test_a_folder_without_runs_is_one_clear_message(tmp_path):
    done = CliRunner().invoke(cli, ["report", "history", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "no run log in" in str(done.exception)


def point(day, causes=(), benchmarks=(), label="", outcomes=(), manifest="same"):
    """Return a run in short: ``causes`` are (id, cases), ``benchmarks`` (name, us), ``outcomes`` (case, outcome)."""
    return Point(
        run_id=day,
        started=f"2026-01-{day}T00:00:00+00:00",
        combination="",
        level="smoke",
        label=label,
        opening="",
        kind="conforms",
        passed=1,
        total=1,
        causes={name: (cases, f"title of {name}", "failed") for name, cases in causes},
        benchmarks={(name, "latency_us"): (value, "slower") for name, value in benchmarks},
        outcomes=dict(outcomes),
        families={},
        manifest=manifest,
        page="",
    )


def test_causes_of_the_latest_run_come_first_and_then_the_larger():
    runs = [
        point("01", [("gone", 90), ("small", 1)]),
        point("02", [("also gone", 100), ("small", 3)]),
        point("03", [("small", 2), ("large", 7), ("as large", 7)]),
    ]
    assert [
        (each.title, each.cases, each.runs, each.first[8:10], each.last[8:10], each.is_gone)
        for each in _combination(0, "", runs).causes
    ] == [
        ("title of as large", "7", "1 / 3", "03", "03", False),
        ("title of large", "7", "1 / 3", "03", "03", False),
        ("title of small", "2", "3 / 3", "01", "03", False),
        ("title of also gone", "100", "1 / 3", "02", "02", True),
        ("title of gone", "90", "1 / 3", "01", "01", True),
    ]


def test_the_last_ten_runs_of_a_case_stand_beside_each_other():
    runs = [point("01", outcomes=[("early", "failed")])]
    runs += [point(f"{day:02}", outcomes=[("often", "failed"), ("known", "waived")]) for day in range(2, 6)]
    runs += [point(f"{day:02}") for day in range(6, 10)]
    runs += [point("10", outcomes=[("new", "flaky")], manifest="larger"), point("11", manifest="larger")]
    found = dict(cases_of(runs))
    assert list(found) == ["often", "new"]
    assert found["often"] == ("failed",) * 4 + ("passed",) * 4 + ("", "")
    assert found["new"] == ("",) * 8 + ("flaky", "passed")


def test_cases_and_families_are_on_the_page_and_on_the_terminal(tmp_path):
    logs(tmp_path, ("2026-01-01", ["passed"]), ("2026-01-02", ["passed", "failed"]))
    done = CliRunner().invoke(cli, ["report", "history", str(tmp_path), "-o", str(tmp_path / "site")])
    bad = CASES[1].id
    assert any(line.strip().startswith(f"✓✗  {bad} ") for line in done.output.splitlines())
    page = Reader((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert bad in page.texts("th")
    found = json.loads((tmp_path / "site" / "history.json").read_text(encoding="utf-8"))
    assert found["combinations"][0]["runs"][-1]["families"] == {"ops/activation": [20, 40]}
    assert dict(by_family({"ops/activation": (20, 40)})) == {"ops/activation": "50.0 % (20 / 40)"}


def test_benchmarks_of_two_runs_are_drawn_and_no_emulated_ones():
    runs = [
        point("01", benchmarks=[("add", 0.5), ("once", 1.0), ("odd", 1.0), ("below", -1.0)]),
        point("02", benchmarks=[("add", 7.0)], label="emulated"),
        point("03", benchmarks=[("add", 2.0), ("odd", float("inf")), ("below", 1.0), ("none", 0.0)]),
        point("04", benchmarks=[("none", 0.0)]),
    ]
    drawn = {each.title: each for each in _combination(0, "", runs).charts}
    assert list(drawn) == ["add", "none"]
    assert [row[1] for row in json.loads(drawn["add"].numbers)["rows"]] == [0.5, 2.0]
    assert str(drawn["add"].caption).startswith("latency")
    assert [each.words for each in drawn["add"].texts][-2:] == ["01-01", "01-03"]
