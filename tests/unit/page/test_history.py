"""The history: runs in order, causes with their first and last day, and nothing that foreign text could do."""

import json
from dataclasses import replace as with_

from click.testing import CliRunner

from pytest_ascend.cli import cli
from pytest_ascend.errors import UsageError
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
