"""What pages cost, in small: the benchmark of the pages keeps its promises with a thirtieth of the cases."""

import importlib.util
import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[3] / "tools" / "report.py"


def test_the_benchmark_measures_and_finds_its_promises_kept(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark_of_pages", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, benchmark)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(benchmark, "in_the_browser", lambda page: ())  # tests of the browser have that
    figures = benchmark.measure(cases=300, runs=6)
    assert [each.name for each in figures if each.found > each.promised] == []
    assert len(figures) == 4
