"""What pages cost, in small: the evaluation of the pages keeps its promises with a tenth of the cases."""

import pytest
from click.testing import CliRunner

from tools.evaluation import costs


def test_the_benchmark_measures_and_finds_its_promises_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_in_the_browser", lambda page: ())  # tests of the browser have that
    done = CliRunner().invoke(costs.main, ["pages"])
    assert done.exit_code == 0, done.output
    assert "2,200 cases" in done.output
    assert [done.output.count(each) for each in ("page from its log", "matrix of 10 runs")] == [2, 2], done.output
