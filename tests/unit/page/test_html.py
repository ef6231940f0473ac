"""The page: complete, loading nothing, and harmless whatever stands in the log."""

import json
import re
import tempfile
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from urllib.parse import unquote

import jinja2
import pytest

from pytest_ascend.page import html
from pytest_ascend.page.casedata import details_of
from pytest_ascend.page.page import page_of
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog import codec
from pytest_ascend.runlog.contents import Run, Selection
from pytest_ascend.system.files import write_file
from pytest_ascend.verdict.summary import ORDER, summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

#: Elements that end where they begin.
VOID = {"meta", "link", "input", "br", "img"}
#: A span that holds a phrase is as good as the text in it.
PHRASE = "phrase"


class Reader(HTMLParser):
    """Reads a page as a browser would: its elements, its text, and whether all that was opened was closed."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.words, self.at_start = [], [], [], 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.at_start += "template" not in self.open
        if tag not in VOID:
            self.open.append(PHRASE if "data-say" in dict(attrs) and tag == "span" else tag)

    def handle_endtag(self, tag):
        assert self.open.pop() in ((tag, PHRASE) if tag == "span" else (tag,))

    def handle_data(self, data):
        where = next((tag for tag in reversed(self.open) if tag != PHRASE), "")
        self.words.append((where, data))

    def texts(self, tag):
        return [words for where, words in self.words if where == tag]

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return "".join(words for where, words in self.words if where not in ("script", "style"))


def run(cases, outcomes=("passed",), *, stack=synthetic.EMULATED, selection=None):
    records = tuple(synthetic.records(cases, outcomes, synthetic.Random(5)))
    return Run(header=synthetic.header(cases, stack=stack, selection=selection), records=records)


def page(*args, **kwargs):
    return Reader(html.render(summarise(run(*args, **kwargs))))


@pytest.fixture(scope="module")
def mixed():
    return page([*synthetic.op_cases(60), *synthetic.other_cases()], ORDER)


@pytest.fixture(scope="module")
def hostile():
    return page(synthetic.hostile_cases(), ORDER)


def data_of(found):
    texts = [words for where, words in found.words if where == "script"]
    return json.loads(texts[0])


def test_the_page_names_the_libraries_that_are_installed_and_no_others():
    text = page(synthetic.op_cases(1), stack=synthetic.replace(synthetic.HARDWARE, nnal="8.5.0")).text
    assert ("NNAL (ATB)" in text, "8.5.0" in text, "sgl-kernel-npu" in text) == (True, True, False)


def test_all_elements_are_closed_in_order(mixed):
    assert mixed.open == []


def test_nothing_is_loaded_from_anywhere(mixed):
    addresses = [
        value for _, attributes in mixed.elements for key, value in attributes.items() if key in ("src", "href")
    ]
    assert all(address.startswith(("#", "data:,")) for address in addresses)
    assert not re.search(r"url\(|@import", "".join(mixed.texts("style")))


def test_the_policy_allows_this_style_and_this_script_only(mixed):
    policy = next(each["content"] for each in mixed.all("meta") if each.get("http-equiv"))
    [style], [*_, script] = mixed.texts("style"), mixed.texts("script")

    def source(text):
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    assert policy.startswith("default-src 'none'; ")
    assert f"style-src {source(style)};" in policy
    assert f"script-src {source(script)};" in policy
    assert "unsafe" not in policy


def test_no_element_has_a_style_or_an_action_of_its_own(mixed):
    assert not [key for _, attributes in mixed.elements for key in attributes if key == "style" or key.startswith("on")]


def test_every_inner_link_of_a_section_leads_somewhere(mixed):
    ids = {attributes["id"] for _, attributes in mixed.elements if "id" in attributes}
    targets = {unquote(each["href"][1:]) for each in mixed.all("a") if not re.match("#cases?[=?]", each["href"])}
    assert targets <= ids


def test_no_id_is_given_twice(mixed):
    ids = [attributes["id"] for _, attributes in mixed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_field_to_fill_in_has_a_label(mixed):
    labelled = "".join(mixed.texts("label")) + "".join(mixed.texts("legend"))
    for name in ("Search", "Suite", "Property", "dtype", "Outcome"):
        assert name in labelled


def test_each_suite_and_each_kind_of_absence_has_a_section(mixed):
    titles = [text.strip() for text in mixed.texts("h2") if text.strip()]
    assert titles == [
        "What deviates, by cause", "Passed nearest to their limit", "Combination",
        "What was covered, by stage of a migration", "Deviations",
        "Operators", "Models", "Environment", "Benchmarks", "Your own tests",
        "What did not run", "Known deviations", "All cases", "About this report",
    ]  # fmt: skip


def test_every_section_and_the_dialog_carry_the_label_of_the_emulated_device(mixed):
    labels = [words for _, words in mixed.words if words == "emulated device"]
    sections = len(mixed.all("section"))
    assert len(labels) == sections + len(mixed.all("dialog")) + 1  # and the band above all
    assert mixed.texts("title")[0].startswith("EMULATED DEVICE")
    assert "No NPU computed any of this: it says nothing about any NPU." in mixed.text


def test_on_an_npu_nothing_speaks_of_emulation_but_the_legend():
    found = page(synthetic.op_cases(5), stack=synthetic.HARDWARE)
    assert not [attributes for _, attributes in found.elements if "label" in attributes.get("class", "").split()]
    assert found.texts("h1") == ["Conforms"]


def test_another_device_is_labelled_too():
    found = page(synthetic.op_cases(5), stack=replace(synthetic.HARDWARE, device="cpu"))
    assert found.texts("title")[0].startswith("CPU, NOT AN NPU")
    assert found.texts("h1") == ["Passes"]


def test_the_first_screen_has_the_combination_and_the_verdict(mixed):
    for value in ("Ascend910B1 (emulated)", "9.0.0 (emulated)", "9e73e708a5d8", "3.11.9", "full run", "smoke"):
        assert value in mixed.text
    assert mixed.texts("h1") == ["Does not pass"]


def test_a_version_that_nobody_could_find_out_is_said_to_be_unknown(mixed):
    assert "unknown" in mixed.texts("dd")


def test_a_subset_is_said_to_be_one():
    found = page(synthetic.op_cases(5), selection=Selection("subset", "-k relu"))
    assert found.texts("h1") == ["Selected cases passed"]
    assert "selected: -k relu" in found.texts("dd")


def test_what_did_not_run_is_grouped_by_reason():
    found = page(synthetic.op_cases(12), ["passed", "not-run"])
    assert "6 cases" in found.text
    assert "the worker crashed before this case" in found.text


def test_with_nothing_missing_and_nothing_waived_the_page_says_so():
    found = page(synthetic.op_cases(3))
    assert "Nothing deviates." in found.text
    assert "What did not run" not in found.text
    assert "None: no deviation was excused." in found.text


def test_a_failure_is_shown_by_its_cause_with_the_command_that_runs_it_again():
    found = page(synthetic.op_cases(1), ["failed"])
    assert len([each for each in found.all("details") if "cause" in each["class"].split()]) == 1
    assert "pytest --ascend --ascend-device=emulated 'suites/ops/test_ops.py::test_forward[relu-float32]'" in found.text


def test_many_failures_of_one_operator_are_one_cause_and_one_line():
    cases = [Case(suite="ops", subject="gelu", property=f"p{n}", dtype="float16") for n in range(921)]
    cases += [Case(suite="ops", subject=f"op{n}", property="forward", dtype="float16") for n in range(100)]
    found = page(cases, ["failed"] * 921 + ["passed"] * 100)
    causes = [each for each in found.all("details") if "cause" in each["class"].split()]
    assert len(causes) == 1
    assert found.text.count("921 cases") >= 2
    assert f"#{causes[0]['id']}" in {each["href"] for each in found.all("a")}


def test_a_limit_that_was_loosened_is_listed_among_the_waivers():
    given = run(synthetic.op_cases(1), stack=synthetic.HARDWARE)
    verdict = replace(given.records[0].verdicts[0], waiver="sums of 8192 terms; issue 9")
    given = replace(given, records=(replace(given.records[0], verdicts=(verdict,)),))
    assert "sums of 8192 terms; issue 9" in Reader(html.render(summarise(given))).text


def test_the_script_gets_every_case(mixed):
    data = data_of(mixed)
    fields = data["fields"]
    outcomes = [data["outcomes"][case[fields.index("outcome")]] for case in data["cases"]]
    assert len(outcomes) == 60 + len(synthetic.other_cases())
    assert set(outcomes) == set(ORDER)


def test_hostile_text_adds_no_element(hostile):
    harmless = page(synthetic.op_cases(len(synthetic.hostile_cases())), ORDER)
    assert {name for name, _ in hostile.elements} <= {name for name, _ in harmless.elements} | {"table", "svg"}
    assert len(hostile.all("script")) == 4
    assert not hostile.all("img")
    assert hostile.open == []


def test_hostile_text_adds_no_attribute(hostile):
    assert not [key for _, attributes in hostile.elements for key in attributes if key.startswith("on")]
    assert all(each["href"].startswith("#") for each in hostile.all("a"))


def test_hostile_text_is_shown_for_what_it_is(hostile):
    texts = json.dumps(data_of(hostile)["texts"], ensure_ascii=False)
    assert "<script>document.title='harmed'</script>" in texts
    assert "<script>document.title='harmed'</script>" in hostile.text
    assert "{{ 7 * 7 }}{% raw %}" in texts
    assert "nul\\\\x00 bell\\\\x07 escape\\\\x1b[31m delete\\\\x7f next-line\\\\x85" in texts
    assert "算子 ✗ 🤖" in texts


def test_hostile_text_cannot_end_the_data(hostile):
    raw = hostile.texts("script")[0]
    assert not set("<>&\u2028\u2029") & set(raw)
    assert "</script><img src=x onerror=document.title='harmed'>" in json.loads(raw)["texts"]


def test_a_page_of_hostile_text_can_be_written(tmp_path):
    text = html.render(summarise(run(synthetic.hostile_cases(), ORDER)))
    write_file(tmp_path / "page.html", text)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text


def test_hostile_versions_and_options_are_text_too():
    stack = replace(synthetic.EMULATED, chip="<b onclick=x>", host="</dd><script>", os="\x1b")
    given = run(synthetic.op_cases(1), stack=stack, selection=Selection("subset", "-k '<i>'"))
    given = replace(given, header=replace(given.header, run_id="</script>", options={"<u>": ["</code>"]}))
    found = Reader(html.render(summarise(given)))
    assert found.open == []
    assert not found.all("i")
    assert not found.all("u")


def test_a_typo_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        html._environment().from_string("{{ pgae.title }}").render(page=None)


def test_a_template_of_any_name_is_escaped():
    assert html._environment().from_string("{{ text }}").render(text="<b>") == "&lt;b&gt;"


def test_a_failed_write_leaves_the_earlier_page_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    write_file(path, "earlier")
    with pytest.raises(UnicodeEncodeError):
        write_file(path, "\ud800")
    assert [each.read_text(encoding="utf-8") for each in tmp_path.iterdir()] == ["earlier"]


def test_ten_thousand_cases_make_a_page_below_two_and_a_half_megabytes():
    text = html.render(summarise(run(synthetic.op_cases(10_000), ["passed"] * 9 + list(ORDER))))
    assert len(text.encode()) < 2_500_000
    assert "10,000" in text


def test_long_messages_of_many_failures_do_not_swell_the_page():
    cases = synthetic.op_cases(2_000)
    records = tuple(
        ResultRecord.of(case, "t", Errored(reason="lost", detail=f"{case.id}\n" + "<&>" * 20_000)) for case in cases
    )
    summary = summarise(Run(header=synthetic.header(cases), records=records))
    assert len(html.render(summary).encode()) < 6_000_000
    details = zlib.decompress(b64decode(details_of(summary)))
    assert len(details) < 6_000_000
    assert b"left out to keep this page small" in details


def test_a_long_reason_is_cut_and_a_long_detail_keeps_both_ends():
    case = synthetic.op_cases(1)[0]
    outcome = Failed(reason="r" * 5_000, detail="begin" + "d" * 50_000 + "end")
    record = ResultRecord.of(case, "t", outcome)
    summary = summarise(Run(header=synthetic.header([case]), records=(record,)))
    assert len(page_of(summary).causes[0].finding) < 500
    details = codec.loads(zlib.decompress(b64decode(details_of(summary))).decode())
    [text] = [each for each in details["texts"] if each.startswith("begin")]
    assert text.endswith("end")
    assert len(text) < 7_000


def test_a_page_has_few_elements_at_its_start():
    """What template elements hold is no part of the page until a section is opened."""
    found = page([*synthetic.op_cases(5_000), *synthetic.other_cases()], ["passed"] * 9 + list(ORDER))
    assert found.at_start < 3_000


def test_planted_faults_are_said_on_the_first_screen():
    given = run(synthetic.op_cases(1), ["failed"])
    given = replace(given, header=replace(given.header, options={"faults": ["relu-as-identity"]}))
    assert "Faults are planted on purpose: relu-as-identity" in Reader(html.render(summarise(given))).text


def test_a_footer_that_contradicts_the_records_is_said_on_the_first_screen():
    given = run(synthetic.op_cases(1), ["failed"])
    footer = replace(summarise(given).footer(synthetic.FINISHED), counts={"passed": 1})
    found = Reader(html.render(summarise(replace(given, footer=footer))))
    assert "The footer counts 1 passed; the records give 1 failed." in found.texts("p")


def test_the_census_is_shown_by_kind_and_namespace_and_trusts_no_name():
    of = run(synthetic.op_cases(1))
    counted = replace(
        of, header=replace(of.header, census={"aten": {"native": 1496, "<b>": 1}, "npu": {"native": 420}})
    )
    page = Reader(html.render(summarise(counted)))
    cells = [words for words in page.texts("td") if words in ("1,496", "420", "1")]
    assert cells == ["1,496", "420", "1"]
    assert "<b>" in page.texts("th")
    assert "Census of operators" not in Reader(html.render(summarise(of))).text


def _no_room(*_):
    raise OSError(28, "No space left on device")


def _no_folder(*_):
    raise RuntimeError("Cannot determine safe temp directory.")


@pytest.mark.parametrize(("name", "fails"), [("dump_bytecode", _no_room), ("_get_default_cache_dir", _no_folder)])
def test_a_page_is_made_where_compiled_templates_cannot_be_kept(monkeypatch, tmp_path, name, fails):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    summary = summarise(run(synthetic.op_cases(5), ORDER))
    html._environment.cache_clear()
    usual = html.render(summary)
    kept = [*tmp_path.rglob("pytest-ascend-*.cache")]
    assert kept
    for each in kept:
        each.unlink()
    monkeypatch.setattr(jinja2.FileSystemBytecodeCache, name, fails)
    html._environment.cache_clear()
    assert html.render(summary) == usual
    html._environment.cache_clear()
    assert not [*tmp_path.rglob("pytest-ascend-*.cache")]
