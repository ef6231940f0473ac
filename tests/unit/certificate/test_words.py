"""What a certificate says, in words and in a workbook's rows, of claims that are made for the test."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.certificate import export
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.certificate.words import NAMES, words
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.system.translation import LANGUAGES
from tests.unit.runlog.synthetic import replace

from . import runs

CLAIMS: dict[str, Any] = {
    "tier": "operators",
    "id": "0123",
    "release": "1.2",
    "means": [TIERS["operators"].means],
    "stack": {name: f"<{name}>" for name in NAMES if name != "driver"},
    "run": {"id": "r1", "started": "S", "finished": "F", "level": "standard", "challenge": ""},
    "counts": {"ops": {"passed": 5, "waived": 1}, "models": {"passed": 2}},
    "figures": {"benchmarks/a": {"latency_us": 1234567.0, "x": 0.5}, "benchmarks/b": {}},
    "not_covered": ["the rest", "any other version of any part"],
    "limits": [{"cause": "c", "reason": "r", "issue": "i", "cases": ["ops/b/forward", "ops/a/x", "ops/a/y"]}],
    "waived": [{"case": "ops/w", "reason": "wr", "issue": "wi", "expires": "we"}],
    "disputed": ["ops/d"],
    "fallbacks": ["ops/f", "ops/g"],
    "issued": "I",
    "expires": "E",
    "issuer": "A Vendor",
    "key": "K",
    "time_stamps": [{"time": "T", "authority": "TSA"}],
    "confirms": {"id": "9", "issuer": "Other", "key": "OK"},
}
NOTHING = {"limits": [], "waived": [], "disputed": [], "fallbacks": [], "time_stamps": [], "confirms": None}
TEXT = """\
CERTIFICATE OF CONFORMANCE, tier: operators
number 0123

By the run r1, which ended on F, pytest-ascend 1.2:
  {means}

WHAT WAS TESTED
{stack}
  level: standard
  challenge: none was given before the run
  ops: 5 passed, 1 waived
  models: 2 passed
  benchmarks/a: latency_us 1.23457e+06, x 0.5
  benchmarks/b: nothing measured

WHAT WAS NOT TESTED, and is not certified
  the rest
  any other version of any part

WHAT THIS torch_npu DOES NOT HAVE, by design: executed, and known to be lacking
  c: 3 cases: r (i)
    a, b

WHAT WAS WAIVED: known defects that were executed
  ops/w: wr (wi), until we

WHAT IS DISPUTED: nobody has found out yet whether the device or the case is wrong
  ops/d

WHAT THE CPU COMPUTED beyond that, with right numbers
  ops/f
  ops/g

HOW LONG IT HOLDS
  until E, or until 4 releases of CANN are newer, or until it is revoked

WHO SAYS SO
  issued on I by A Vendor, with the key K
  the log was time-stamped at T by TSA
  It confirms the certificate 9 by Other, with the key OK:
  both issuers ran the suites, each on a machine of its own, and their runs agree case by case.
  This certificate is independent of Huawei. Huawei has neither issued nor reviewed it.
  It rests on the run log, which is the issuer's own account of one run on one machine:
  if the log is true, the run earns the tier. It is no warranty.
"""


def test_the_words_are_these() -> None:
    stack = "\n".join(f"  {name}: {CLAIMS['stack'].get(part, 'not known')}" for part, name in NAMES.items())
    assert words(CLAIMS) == TEXT.format(means=CLAIMS["means"][0], stack=stack)


def test_where_there_is_nothing_the_words_say_so() -> None:
    lines = words({**CLAIMS, **NOTHING}).splitlines()
    for heading in ("WHAT THIS torch_npu", "WHAT WAS WAIVED", "WHAT IS DISPUTED", "WHAT THE CPU"):
        [place] = [place for place, line in enumerate(lines) if line.startswith(heading)]
        assert lines[place + 1 : place + 3] == ["  nothing", ""]
    assert lines[-4].endswith("with the key K")
    given = words({**CLAIMS, "run": {**CLAIMS["run"], "challenge": "77"}})
    assert "\n  challenge: 77\n" in given


def test_the_other_language_has_the_same_lines_and_translates_what_is_the_releases() -> None:
    assert LANGUAGES == ("en", "zh")
    english, chinese = (words(CLAIMS, language).splitlines() for language in LANGUAGES)
    assert len(english) == len(chinese)
    assert [not each for each in english] == [not each for each in chinese]
    same = {one.strip() for one, other in zip(english, chinese, strict=True) if one == other}
    kept = {f"{name}: <{part}>" for part, name in NAMES.items()} & same
    assert same == {"", "ops: 5 passed, 1 waived", "models: 2 passed", "benchmarks/a: latency_us 1.23457e+06, x 0.5",
                    "the rest", "a, b", "ops/d", "ops/f", "ops/g", *kept}  # fmt: skip
    assert 0 < len(kept) < len(NAMES) - 3, "names of programs are names"


def test_names_that_differ_only_in_case_are_two() -> None:
    limits = [{**CLAIMS["limits"][0], "cases": ["ops/a/x", "ops/B/x", "ops/b/x", "ops/A/y"]}]
    assert "\n    A, B, a, b\n" in words({**CLAIMS, "limits": limits})


def test_lines_are_lines() -> None:
    text = words({**CLAIMS, "issuer": "A\nVendor\x1b[2J"})
    assert len(text.splitlines()) == len(words(CLAIMS).splitlines())
    assert "\x1b" not in text


FACTS = """\
What|Value
certificate|0123
tier|operators
means|{means}
{stack}
pytest-ascend|1.2
run|r1
started|S
finished|F
level|standard
challenge|none
time-stamp|T by TSA
issuer|A Vendor
key|K
issued|I
expires|E
confirms|the certificate 9 by Other
not covered|the rest
not covered|any other version of any part
note|If the log is true, the run earns the tier. Independent of Huawei, who has neither issued nor reviewed it."""


def test_the_facts_of_a_workbook() -> None:
    stack = "\n".join(f"{name}|{CLAIMS['stack'].get(part, 'not known')}" for part, name in NAMES.items())
    none: Any = SimpleNamespace(results=(), run=SimpleNamespace(header=SimpleNamespace(doctor={})))
    rows = ["|".join(row) for row in export._sheets(CLAIMS, none)["Certificate"]]
    assert rows == FACTS.format(means=CLAIMS["means"][0], stack=stack).splitlines()
    few = {**CLAIMS, **NOTHING, "run": {**CLAIMS["run"], "challenge": "7"}}
    bare = dict(export._sheets(few, none)["Certificate"])
    assert (bare["challenge"], "confirms" in bare, "time-stamp" in bare) == ("7", False, False)


def test_the_rows_of_the_other_sheets() -> None:
    waiver = {**runs.WAIVER, "kind": "limit"}
    fates = {
        **runs.ended(5, "fallback"),
        **runs.ended(6, "waived", waiver=runs.WAIVER),
        **runs.ended(7, "waived", waiver=waiver),
        **runs.ended(8, "disputed"),
    }
    results = [runs.passed(runs.CASES[4]), *fates.values(), runs.passed(runs.CASES[124])]
    found = dict.fromkeys(("value", "source"), "x")
    doctor = {"components": [{"name": "CANN", "version": "8", "evidence": [found, found]}, {}]}
    summary: Any = SimpleNamespace(results=results, run=SimpleNamespace(header=SimpleNamespace(doctor=doctor)))
    sheets = {
        name: list(map(tuple, rows))
        for name, rows in export._sheets({**CLAIMS, "counts": {"ops": {"passed": 1, "waived": 2}}}, summary).items()
    }
    assert sheets["Summary"] == [("Suite", "Outcome", "Cases"), ("ops", "passed", 1), ("ops", "waived", 2)]
    assert [row[0] for row in sheets["Cases"]] == ["Case", *(each.case.id for each in results[:-1])]
    assert sheets["Cases"][1] == (
        "ops/op3/forward/float32", "ops", "op3", "forward", "float32", "passed", 0.5, "error-model@1", 0.1, "",
    )  # fmt: skip
    assert sheets["Deviations"] == [
        ("Case", "Outcome", "Kind", "Reason", "Source", "Until"),
        ("ops/op4/forward/float32", "fallback", "computed by the CPU", "made up", "", ""),
        ("ops/op5/forward/float32", "waived", "defect", "known", "https://example.org/1", "2026-12-30"),
        ("ops/op6/forward/float32", "waived", "lacking by design", "known", "https://example.org/1", "2026-12-30"),
        ("ops/op7/forward/float32", "disputed", "computed by the CPU", "made up", "", ""),
    ]
    assert sheets["Machine"] == [("Component", "Version", "Seen in"), ("CANN", "8", "x: x; x: x"), ("", "", "")]
    bare = replace(runs.passed(runs.CASES[4]), verdicts=(), outcome=OUTCOMES["failed"](reason="r"))
    summary.results = [bare]
    assert export._sheets({**CLAIMS, "counts": {"ops": {"failed": 1}}}, summary)["Cases"][1][5:8] == ("failed", "", "")


def test_a_cell_is_a_number_or_a_text_and_the_heading_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    rows = [("a", "b"), (1, 2.5), (float("nan"), float("-inf")), ("=1+1", "http://x"), ("x" * 3000, True)]
    monkeypatch.setattr(export, "_sheets", lambda *_: {"Only": rows})
    none: Any = None
    sheet = openpyxl.load_workbook(io.BytesIO(export.workbook({}, none)))["Only"]
    values = [[cell.value for cell in row] for row in sheet.rows]
    assert values[:4] == [["a", "b"], [1, 2.5], ["nan", "-inf"], ["=1+1", "http://x"]]
    assert values[4] == ["x" * 2000, 1]
    assert [[cell.font.bold for cell in row] for row in sheet.rows] == [[True] * 2, *[[False] * 2] * 4]
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:B5")
    assert sheet["A1"].border.bottom.style == "thin"
    assert sheet["A4"].data_type == "s"
    assert not sheet["B4"].hyperlink
