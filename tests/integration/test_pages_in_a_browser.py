"""The pages as a browser has them: search, filters, links, languages, themes, keys, hostile text, accessibility."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.page import html
from pytest_ascend.page.html import render_diff
from pytest_ascend.page.matrix import render_matrix, scan
from pytest_ascend.runlog.contents import Run
from pytest_ascend.system.files import write_file
from pytest_ascend.verdict.diff import compare
from pytest_ascend.verdict.summary import ORDER, summarise
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra 'test'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
playwright.expect.set_options(timeout=60_000)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

CASES = [*synthetic.op_cases(300), *synthetic.other_cases()]
FINDING = {"severity": "error", "what": "<b>w</b>", "evidence": ["e"], "why": "y", "remedy": "r"}
Open = Callable[..., Any]


def summary_of(cases: list[Any], outcomes: list[str]) -> Any:
    records = list(synthetic.records(cases, outcomes, synthetic.Random(5)))
    curves = {"loss_actual": (3.0, 2.0, 1.0), "loss_expected": (3.0, 2.0, 1.1), "latency_us": (5.0, 6.0, 7.0)}
    records[-1] = replace(records[-1], series=curves)
    header = replace(synthetic.header(cases, stack=synthetic.HARDWARE), doctor={"findings": [FINDING]})
    return summarise(Run(header=header, records=tuple(records)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write every kind of page."""
    folder = tmp_path_factory.mktemp("pages")
    now, before = summary_of(CASES, ["passed"] * 20 + list(ORDER)), summary_of(CASES, ["passed"] * 9 + ["failed"])
    logs = [
        synthetic.write_log(folder / name / "run.jsonl", CASES[:60], outcomes=ORDER, stack=stack)
        for name, stack in (("one", synthetic.HARDWARE), ("other", replace(synthetic.EMULATED, chip="Ascend310P3")))
    ]
    written = {
        "run": html.render(now, against=before),
        "diff": render_diff(compare(before, now)),
        "matrix": render_matrix(map(scan, logs)),
        "hostile": html.render(summary_of(synthetic.hostile_cases(), list(ORDER))),
    }
    for name, text in written.items():
        write_file(folder / f"{name}.html", text)
    return {name: folder / f"{name}.html" for name in written}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # Inside a container Chromium's own sandbox cannot start; the pages are ours.
        yield started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    """Open a page by its name, in a browser that knows of no other; no page may complain or load anything."""
    complaints: list[str] = []
    contexts = []

    def open_page(name: str, link: str = "", **settings: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", **settings})
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("request", lambda asked: None if asked.url.startswith("file:") else complaints.append(asked.url))
        tab.goto(f"{pages[name].as_uri()}{link}")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def count(tab: Any) -> str:
    return str(tab.inner_text("#found"))


def expect(tab: Any, selector: str) -> Any:
    """What an action leads to may come an event later: what is expected of ``selector`` is waited for."""
    return playwright.expect(tab.locator(selector))


def test_a_search_narrows_the_list_and_is_kept_in_the_address(opened: Open) -> None:
    tab = opened("run")
    tab.fill("#find", "softmax backward")
    tab.wait_for_function("() => location.hash.includes('softmax')")
    assert tab.evaluate("location.hash") == "#cases?q=softmax+backward"
    said = count(tab)
    rows = tab.locator("#list tbody tr").count()
    assert said.startswith(f"{rows} of {len(CASES)} cases")
    again = opened("run", "#cases?q=softmax+backward")
    assert count(again) == said


def test_a_link_filters_by_outcome(opened: Open) -> None:
    tab = opened("run", "#cases?outcome=failed&outcome=errored")
    outcomes = set(tab.locator("#list tbody .badge").all_inner_texts())
    assert {each.split()[-1] for each in outcomes} == {"failed", "errored"}
    tab.click("#reset")
    expect(tab, "#found").to_have_text(f"{len(CASES)} of {len(CASES)} cases")


def test_rows_are_made_as_they_are_looked_at(opened: Open) -> None:
    tab = opened("run")
    # 3,003 once all is shown, 2,995 a moment before; 22,000 cases would be hundreds of thousands.
    assert tab.evaluate("document.querySelectorAll('*').length") < 3_100
    first = tab.locator("#list tbody tr").count()
    assert first < len(CASES)
    tab.locator("#list").scroll_into_view_if_needed()
    tab.locator("#list").evaluate("list => { const box = list.closest('.scroll'); box.scrollTop = box.scrollHeight; }")
    tab.wait_for_function(f"() => document.querySelectorAll('#list tbody tr').length > {first}")


def test_a_cause_has_a_link_and_shows_its_simplest_case(opened: Open) -> None:
    tab = opened("run")
    link = tab.locator(".card .causes a").nth(1).get_attribute("href")
    again = opened("run", link)
    cause = again.locator("#deviations details.cause[open]")
    playwright.expect(cause).to_have_count(1)
    playwright.expect(cause.locator(".evidence")).not_to_be_empty()
    cause.locator("a", has_text="all ").click()
    expect(again, "#found").to_contain_text(f" of {len(CASES)} cases")
    assert again.input_value("#pick-cause") != ""


def test_a_search_looks_into_messages_too(opened: Open) -> None:
    tab = opened("run", "#cases?q=golden")
    expect(tab, "#found").not_to_have_text(f"0 of {len(CASES)} cases")


def test_a_diff_can_be_searched(opened: Open) -> None:
    tab = opened("diff")
    tab.fill("#find-change", "no such case")
    expect(tab, "details.changes[open]").to_have_count(0)
    tab.fill("#find-change", "relu")
    tab.wait_for_function("""() => {
        const names = [...document.querySelectorAll("details.changes[open] tbody .id")];
        return names.length > 0 && names.every((each) => each.textContent.includes("relu"));
    }""")


def test_print_is_the_summary_and_the_deviations_on_few_sheets(opened: Open) -> None:
    sheets = re.findall(rb"/Type\s*/Page\b(?!s)", opened("run").pdf(format="A4"))
    assert len(sheets) <= 6


def test_a_heading_sorts_and_says_so(opened: Open) -> None:
    tab = opened("run")
    tab.click("#list th[data-sort=case] button")
    expect(tab, "#list th[data-sort=case]").to_have_attribute("aria-sort", "ascending")
    names = tab.locator("#list tbody a.id").all_inner_texts()
    assert names == sorted(names)


def test_a_case_has_a_link_and_neighbours_and_closes_by_key(opened: Open) -> None:
    tab = opened("run", f"#case={CASES[0].id}")
    expect(tab, "#case-title").to_have_text(CASES[0].id)
    tab.click("#case-on")
    expect(tab, "#case-title").not_to_have_text(CASES[0].id)
    tab.keyboard.press("Escape")
    expect(tab, "#case[open]").to_have_count(0)


def test_a_program_can_be_copied(opened: Open) -> None:
    failed = next(case.id for index, case in enumerate(CASES) if index % 28 == 20 and case.suite == "ops")
    tab = opened("run", f"#case={failed}")
    tab.locator("#case-body .program summary").click()
    assert tab.inner_text("#case-body .program pre").startswith(f"# {failed}\nimport torch")
    tab.click("#case-body .copy")
    expect(tab, "#case-body .copy").to_have_text(re.compile("Copied|Selected"))


def test_arrow_keys_walk_the_grid_and_enter_opens(opened: Open) -> None:
    tab = opened("run", "#ops")
    tab.locator("#grid-ops a.mark").first.focus()
    first = tab.evaluate("document.activeElement.getAttribute('aria-label')")
    tab.keyboard.press("ArrowRight")
    second = tab.evaluate("document.activeElement.getAttribute('aria-label')")
    assert first != second
    tab.keyboard.press("Enter")
    expect(tab, "#case[open]").to_have_count(1)


def test_the_numbers_behind_a_picture_are_a_table_and_a_file(opened: Open) -> None:
    tab = opened("run", "#user")
    picture = tab.locator("figure", has_text="median 6 µs of 3 samples")
    picture.locator(".numbers summary").click()
    rows = picture.locator(".numbers tbody tr")
    playwright.expect(rows.first).to_be_visible()
    with tab.expect_download() as waiting:
        picture.locator("a[download]").click()
    saved = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert saved["columns"] == ["from (µs)", "share of samples"]
    assert len(saved["rows"]) == rows.count()
    assert sum(share for _, share in saved["rows"]) == pytest.approx(1, abs=1e-4)


def test_a_chinese_browser_reads_chinese_and_may_choose(opened: Open) -> None:
    tab = opened("run", locale="zh-CN")
    assert tab.inner_text("h1") == "不符合"
    assert tab.evaluate("document.documentElement.lang") == "zh-CN"
    assert "个用例" in count(tab)
    tab.select_option("#language", "en")
    expect(tab, "h1").to_have_text("Does not conform")
    tab.reload()
    expect(tab, "h1").to_have_text("Does not conform")


def test_the_theme_follows_the_system_until_one_is_chosen(opened: Open) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened("run", color_scheme=each).evaluate(paper) for each in ("light", "dark"))
    assert light != dark
    tab = opened("run", color_scheme="light")
    tab.select_option("#theme", "dark")
    expect(tab, "body").to_have_css("background-color", dark)


def test_a_phone_needs_no_sideways_scrolling(opened: Open) -> None:
    for name in ("run", "matrix"):
        tab = opened(name, viewport={"width": 360, "height": 740})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_matrix_is_filtered_by_chip_and_kept_in_the_address(opened: Open) -> None:
    tab = opened("matrix")
    assert tab.locator("#table thead th").count() == 3
    tab.select_option("#chip", "Ascend310P3")
    tab.wait_for_function("() => location.hash.includes('310P3')")
    expect(tab, "#table thead th").to_have_count(2)
    expect(tab, "#runs tbody tr:visible").to_have_count(1)
    again = opened("matrix", "#matrix?chip=Ascend310P3")
    expect(again, "#table thead th").to_have_count(2)


def test_nothing_hostile_acts_whatever_is_opened(opened: Open) -> None:
    tab = opened("hostile")
    for place in range(tab.locator("#list tbody tr").count()):
        tab.locator("#list tbody a.id").nth(place).evaluate("link => { location.hash = new URL(link.href).hash; }")
        expect(tab, "#case[open]").to_have_count(1)
    assert "harmed" not in tab.title()
    assert tab.locator("img, iframe, object, b[onmouseover]").count() == 0


def faults(tab: Any) -> list[tuple[str, str]]:
    found = axe.Axe().run(tab).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("name", "scheme"), [("run", "light"), ("run", "dark"), ("diff", "dark"), ("matrix", "light")])
def test_axe_finds_no_serious_fault(opened: Open, name: str, scheme: str) -> None:
    assert faults(opened(name, color_scheme=scheme)) == []


def test_axe_finds_no_serious_fault_in_a_case_but_one_that_is_planted(opened: Open) -> None:
    failed = next(case.id for index, case in enumerate(CASES) if index % 28 == 20)
    tab = opened("run", f"#case={failed}")
    expect(tab, "#case-body").to_contain_text("Worst elements")
    assert faults(tab) == []
    tab.evaluate("document.querySelector('#case-body').append(document.createElement('input'))")
    assert [name for name, _ in faults(tab)] == ["label"]
