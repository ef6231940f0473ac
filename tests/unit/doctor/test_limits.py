"""Rules on facts that are made for the test: how much of a foreign text is shown, and where each limit is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pytest_ascend.doctor import cann, combination, commands, devices, examination, files, settings
from pytest_ascend.doctor.findings import ERROR, NOTE, UNKNOWN, WARNING, Check, Diagnosis, Finding, Observation
from pytest_ascend.doctor.settings import SETTINGS
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment import compatibility
from pytest_ascend.environment.machine import copied_machine
from pytest_ascend.environment.npu_smi import Chip
from tests.unit.options import paths, placeholders, unexplained

from .trees import build

LONG = "x" * 2000


class Nothing(str):
    """No text, no number of things, and whatever else it is asked for."""

    __slots__ = ()

    def __getattr__(self, _: str) -> Nothing:
        return self

    def __call__(self, *_: object) -> Nothing:
        return self

    def __getitem__(self, _: object) -> Nothing:
        return self


class Facts(SimpleNamespace):
    """Some facts on a machine; of others there is nothing."""

    def __getattr__(self, _: str) -> Nothing:
        return Nothing()


def survey(**facts: Any) -> Any:
    """Return a machine of which some facts are known."""
    return Facts(**{"environ": {}, "concerns_ascend": True, "family": None, "inner_version": ("", ""), **facts})


def said(check: Check, rule: str, **facts: Any) -> list[Observation]:
    return [each for each in check(survey(**facts)) if each.rule == rule]


def home(path: str, target: str = "", source: str = "found") -> Any:
    return Facts(path=path, target=target or path, source=source)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_told_unless_it_is_at_its_default(name: str) -> None:
    changed, defaults, _ = SETTINGS[name]
    for changes in ("numbers", "order", "speed"):
        check = f"settings.{changes}"
        found = said(settings.changed, check, environ={name: LONG})
        assert len(found) == (changes == changed)
        assert [each.evidence for each in found] == [(f"{name}={LONG[:200]}",)] * len(found)
        assert said(settings.changed, check) == []
        assert said(settings.changed, check, environ={name: LONG}, concerns_ascend=False) == []
        for default in defaults:
            assert said(settings.changed, check, environ={name: default.upper()}) == []
    assert settings.in_force(survey(environ={name: LONG, "HOME": "/"})) == {name: LONG[:200]}


@pytest.mark.parametrize(
    ("environ", "concerns", "count"),
    [
        ({"PYTORCH_NPU_ALLOC_CONF": LONG, "PYTORCH_ALLOC_CONF": "b"}, True, 1),
        ({"PYTORCH_NPU_ALLOC_CONF": "a", "PYTORCH_ALLOC_CONF": "b"}, False, 0),
        ({"PYTORCH_NPU_ALLOC_CONF": "a"}, True, 0),
        ({"PYTORCH_NPU_ALLOC_CONF": "a", "PYTORCH_ALLOC_CONF": ""}, True, 0),
    ],
)
def test_two_allocators_are_one_too_many(environ: dict[str, str], concerns: bool, count: int) -> None:
    found = said(settings.allocators, "settings.two-allocators", environ=environ, concerns_ascend=concerns)
    assert len(found) == count
    if found:
        assert found[0].evidence == (f"PYTORCH_NPU_ALLOC_CONF={LONG[:100]}", "PYTORCH_ALLOC_CONF=b")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("expandable_segments:True, max_split_size_mb:64", 1),
        ("Expandable_Segments: true,garbage_collection_threshold:0.6" + LONG, 1),
        ("expandable_segments:True", 0),
        ("expandable_segments:False,max_split_size_mb:64", 0),
        ("max_split_size_mb:64", 0),
    ],
)
def test_segments_that_expand_go_with_no_limit_of_their_size(text: str, count: int) -> None:
    found = said(settings.allocators, "settings.allocator", environ={"PYTORCH_NPU_ALLOC_CONF": text})
    assert len(found) == count
    if found:
        assert found[0].evidence[0] == f"PYTORCH_NPU_ALLOC_CONF={text.replace(' ', '').lower()[:200]}"


def test_a_variable_that_leads_nowhere_is_shown_in_part() -> None:
    name = cann.VARIABLES[0]
    [found] = said(cann.variables, "cann.home-gone", environ={name: LONG}, homes_of=lambda _: None)
    assert found.evidence == (f"{name}={LONG[:200]}",)
    assert said(cann.variables, "cann.home-gone", environ={name: LONG}, homes_of=lambda _: home("/a")) == []
    assert said(cann.variables, "cann.home-gone", environ={name: ""}, homes_of=lambda _: None) == []


def test_operators_elsewhere_are_shown_in_part() -> None:
    tree = Facts(target=lambda path: path)
    used = home("/opt/cann", source=cann.VARIABLES[0])
    facts = {"machine": Facts(tree=tree), "home": used}
    [found] = said(cann.variables, "cann.other-operators", environ={"ASCEND_OPP_PATH": f"/{LONG}"}, **facts)
    assert found.evidence[0] == f"ASCEND_OPP_PATH=/{LONG[:199]}"
    assert said(cann.variables, "cann.other-operators", environ={"ASCEND_OPP_PATH": "/opt/cann/opp"}, **facts) == []
    assert (
        said(
            cann.variables,
            "cann.other-operators",
            environ={"ASCEND_OPP_PATH": "/else"},
            **{**facts, "home": home("/opt/cann")},
        )
        == []
    )


@pytest.mark.parametrize(("count", "shown"), [(1, 0), (2, 2), (4, 4), (5, 4)])
def test_of_several_canns_four_are_listed(count: int, shown: int) -> None:
    homes = [home(f"/cann{number}", source="a variable") for number in range(count)]
    owners = {f"/cann{number}/lib64": each for number, each in enumerate(homes)}
    paths = {"library_path": tuple(owners), "owner": owners.get, "home": homes[0]}
    found = said(cann.other_canns, "cann.two-in-library-path", **paths)
    assert [len(each.evidence) for each in found] == [shown] * bool(shown)
    assert said(cann.other_canns, "cann.two-in-library-path", **{**paths, "home": home("/other")}) == []
    found = said(cann.other_canns, "cann.several", homes=homes)
    assert [each.what for each in found] == [f"{count} CANNs are installed"] * (count > 1)
    assert [len(each.evidence) for each in found] == [min(count, 5)] * (count > 1)


def test_without_any_folder_in_the_library_path_the_one_in_use_is_missing() -> None:
    used = home("/opt/cann", source=cann.VARIABLES[0])
    facts = {"home": used, "owner": {"/opt/cann/lib64": used}.get}
    [found] = said(cann.other_canns, "cann.library-path", library_path=("/usr/lib",), **facts)
    assert found.what == "LD_LIBRARY_PATH has no folder of the CANN in use"
    assert found.evidence == (f"{cann.VARIABLES[0]}=/opt/cann", "no folder of it in LD_LIBRARY_PATH")
    assert said(cann.other_canns, "cann.library-path", library_path=("/usr/lib", "/opt/cann/lib64"), **facts) == []
    assert said(cann.other_canns, "cann.library-path", library_path=(), **{**facts, "home": home("/opt/cann")}) == []


def packages(*lines: str) -> dict[str, Any]:
    content = Facts(content="\n".join(lines))
    return {
        "cann_packages": {"runtime": "/version.info"},
        "machine": Facts(tree=Facts(read=lambda _: content)),
        "cann_package_version": lambda name: "8.0.0",
    }


def test_constraints_are_read_up_to_a_number_and_shown_in_part() -> None:
    wrong = 'required_package_p{}_version=">=9.0"'
    assert (
        len(said(cann.mixed_parts, "cann.constraint", **packages(*(wrong.format(number) for number in range(70)))))
        == 64
    )
    assert said(cann.mixed_parts, "cann.constraint", **packages('required_package_p_version=">=7.0"')) == []
    assert (
        said(cann.mixed_parts, "cann.constraint", **{**packages(wrong), "cann_package_version": lambda name: ""}) == []
    )
    long = ">=9.0" + ",>=9.0" * 20
    [found] = said(cann.mixed_parts, "cann.constraint", **packages(f'required_package_p_version="{long}"'))
    assert found.evidence[0] == f"/version.info: required_package_p_version={long[:40]}"
    assert found.what == f"CANN's package runtime needs p {long[:40]}, but 8.0.0 is installed"


@pytest.mark.parametrize(("count", "few"), [(19, True), (20, False)])
def test_a_folder_of_few_operators_is_the_toolkits(count: int, few: bool) -> None:
    tree = Facts(
        is_folder=lambda _: True,
        names=lambda path: [f"ascend{n}" for n in range(count if path.endswith("/ascend910b") else 8)],
    )
    facts = {
        "home": home("/c"),
        "family": Facts(kernels="ascend910b", name="910B"),
        "machine": Facts(tree=tree),
    }
    found = said(cann.for_this_machine, "cann.kernels", **facts)
    assert bool(found) is few
    if few:
        assert found[0].evidence[1] == "there are: " + ", ".join(f"ascend{n}" for n in range(6))
    facts["machine"] = Facts(tree=Facts(is_folder=lambda _: True, names=lambda _: []))
    [found] = said(cann.for_this_machine, "cann.kernels", **facts)
    assert found.evidence[1] == "there are: none"


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (4, 4), (5, 4)])
def test_files_that_are_closed_are_listed_up_to_four(count: int, shown: int) -> None:
    facts = {
        "devices": tuple(f"/dev/davinci{n}" for n in range(count)),
        "control_files": (),
        "machine": Facts(is_mine=lambda _: False, tree=Facts(status=lambda _: None)),
    }
    [found] = said(devices.access, "devices.permission", **facts)
    assert len(found.evidence) == shown
    more = f" and {count - 1} more" if count > 1 else ""
    assert found.what == f"this user may not use /dev/davinci0{more}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("0,1", ""),
        (" 1 ", ""),
        ("2", "2"),
        ("0,x", "x"),
        ("", ""),
        ("\u0661", "\u0661"),
        ("10000000000", "1" + "0" * 10),
    ],
)
def test_visible_devices_are_those_that_there_are(text: str, wrong: str) -> None:
    found = said(
        devices.access, "devices.visible", environ={"ASCEND_RT_VISIBLE_DEVICES": text}, devices=("/dev/a", "/dev/b")
    )
    assert bool(found) is (bool(wrong) or not text)
    if wrong:
        assert found[0].what.endswith(repr(wrong))
    assert said(devices.access, "devices.visible", environ={"ASCEND_RT_VISIBLE_DEVICES": text}, devices=()) == []
    assert said(devices.access, "devices.visible", devices=("/dev/a",)) == []


def test_foreign_texts_of_devices_are_shown_in_part() -> None:
    [found] = said(devices.access, "devices.visible", environ={"ASCEND_RT_VISIBLE_DEVICES": LONG}, devices=("/dev/a",))
    assert found.what.endswith(repr(LONG[:20]))
    assert found.evidence[0] == f"ASCEND_RT_VISIBLE_DEVICES={LONG[:80]}"
    reply = Facts(late=False, failure="")
    [found] = said(devices.of_npu_smi, "npu-smi.failed", reply=reply, npu_smi=Facts(failure=LONG))
    assert found.evidence == (f"npu-smi info: {LONG[:200]}",)
    for failure, looked in ((LONG, f"npu-smi ({LONG[:120]})"), ("", "npu-smi info")):
        [found] = said(devices.unknown, "unknown", reply=Facts(failure=failure))
        assert found.evidence[0] == f"chip: looked at {looked}"


def chip(**changes: Any) -> Chip:
    given = {"npu": 0, "chip": 0, "name": "910B3", "bus": "b", "health": "OK"}
    return Chip(**{**given, "memory_used_mb": 5, "memory_total_mb": 9, **changes})


@pytest.mark.parametrize(
    ("health", "rule"),
    [("OK", ""), ("Alarm", "bad"), ("Critical", "bad"), ("Warning", "unsure"), ("UNKNOWN", "unsure")],
)
def test_health_is_good_bad_or_unsure(health: str, rule: str) -> None:
    facts = {"npu_smi": Facts(chips=(chip(health=health),)), "identities": ()}
    for name in ("bad", "unsure"):
        found = said(devices.of_npu_smi, f"health.{name}", **facts)
        assert [each.what for each in found] == [f"NPU 0, which torch does not see, has the health {health}"] * (
            rule == name
        )
        assert [each.card for each in found] == [-1] * (rule == name)


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"name": LONG}, f"{LONG[:20]}, bus b, 5 of 9 MB used"),
        ({"memory_used_mb": 0, "bus": ""}, "910B3, bus unknown, 0 of 9 MB used"),
        ({"memory_used_mb": -1}, "910B3, bus b"),
    ],
)
def test_a_chip_in_a_row_is_named_in_part(changes: dict[str, Any], row: str) -> None:
    told = Facts(chips=(chip(health="Alarm", **changes),))
    [found] = said(devices.of_npu_smi, "health.bad", npu_smi=told)
    assert found.evidence == (f"npu-smi info: NPU 0, {row}",)


def test_a_driver_shows_what_it_accepts_in_part() -> None:
    names = ",".join(f"V100R001C{number}" for number in range(10, 22))
    tree = Facts(read=lambda _: Facts(content=f"compatible_version={names}"))
    facts = {
        "driver_folder": "/d",
        "machine": Facts(tree=tree),
        "cann": "8",
        "inner_version": ("V100R001C99B1", "/r"),
        "compatibility": Facts(hdk=lambda _: ((), "")),
    }
    [found] = said(devices.driver_versions, "driver.cann", **facts)
    assert found.evidence[0].count("V100R001C") == 8
    assert found.what == "CANN 8 (V100R001C99) is of a line that the driver does not accept"
    assert said(devices.driver_versions, "driver.cann", **{**facts, "inner_version": ("V100R001C12SPC9", "/r")}) == []


def test_places_that_disagree_are_listed_up_to_six() -> None:
    evidence = tuple(Facts(source=f"s{n}", value=f"{n}", internal=n == 0) for n in range(9))
    component = Facts(name="driver", disagreeing=evidence[:1], evidence=evidence)
    [found] = said(combination.disagreements, "version.disagreement", components={"driver": component})
    assert found.evidence == tuple(f"s{n}: {n}" for n in range(1, 7))
    component.disagreeing = ()
    assert said(combination.disagreements, "version.disagreement", components={"driver": component}) == []


def test_a_rule_is_listed_twenty_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: object) -> Iterator[Observation]:
        yield from (Observation(name, f"seen {number}") for number in range(30) for name in ("one", "two"))

    rules = tuple(Finding(id=name, severity=NOTE, why="w", remedy="r") for name in ("one", "two"))
    monkeypatch.setattr(examination, "RULES", rules)
    monkeypatch.setattr(examination, "CHECKS", [check])
    found = examination.examine(copied_machine(tmp_path, {}, None)).findings
    assert [each.what for each in found if each.id == "one"] == [f"seen {number}" for number in range(20)]
    assert len(found) == 40


def test_texts_of_a_finding_are_bounded_and_on_one_line() -> None:
    rule = Finding(id="id", severity=ERROR, why="why", remedy="usual")
    one = rule.at(Observation("id", f"\n{LONG}", (LONG, ""), "", card=3))
    other = rule.at(Observation("id", "what", (), LONG))
    assert (one.what, one.evidence, one.remedy, one.card) == (f"\\n{LONG}"[:600], (LONG[:600],), "usual", 3)
    assert (other.remedy, other.card) == (LONG[:600], None)
    both = Diagnosis(machine="", components=(), findings=(one, other), settings={}, devices=(), judged_by="")
    assert [each.get("card", "absent") for each in both.to_dict()["findings"]] == [3, "absent"]


def finding(severity: str, name: str = "x") -> Finding:
    return Finding(id=name, severity=severity, what=f"w {name}", evidence=("e", "f"), why="why", remedy="do")


def diagnosis(*found: Finding) -> Diagnosis:
    return Diagnosis(machine="m", components=(), findings=found, settings={}, devices=(), judged_by="table")


def test_errors_are_told_in_short_and_their_absence() -> None:
    found = diagnosis(finding(ERROR, "a"), finding(WARNING, "b"), finding(NOTE, "c"), finding(UNKNOWN, "d"))
    assert examination.in_short(found) == ("w a; do [a]",)
    assert [each.id for each in found.errors] == ["a"]
    assert [each.id for each in found.grave] == ["a", "b"]
    [nothing] = examination.in_short(diagnosis(finding(WARNING)))
    assert nothing.startswith("nothing that it knows to look for")


@pytest.mark.parametrize(
    ("severities", "said"),
    [
        ((), "nothing wrong was found. Judged by table."),
        ((ERROR,), "1 error. Judged by table."),
        ((NOTE, ERROR, ERROR, WARNING), "2 errors, 1 warning, 1 note. Judged by table."),
        ((UNKNOWN,), "1 unknown. Judged by table."),
        ((UNKNOWN, UNKNOWN, WARNING, WARNING), "2 warnings, 2 unknown. Judged by table."),
    ],
)
def test_findings_are_counted_the_gravest_first(severities: tuple[str, ...], said: str) -> None:
    assert commands.closing(diagnosis(*map(finding, severities))) == said


def component(**changes: Any) -> dict[str, Any]:
    return {"name": "driver", "version": "1", "evidence": [{"source": "s"}] * 3, "disagreeing": [], **changes}


def shown(*findings: Finding, **changes: Any) -> list[str]:
    """Return the lines of what the command prints."""
    console = Console(file=StringIO(), width=200)
    commands.show(console, replace(diagnosis(*findings), components=(component(**changes),)))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_version_is_shown_in_part_and_a_commit_in_less() -> None:
    assert shown(version=LONG)[2] == f"driver  {LONG[:32]}  s and 2 more"
    assert shown(version=LONG, name="torch_npu commit")[2] == f"torch_npu commit  {LONG[:12]}  s and 2 more"


def test_places_are_counted_beside_the_best() -> None:
    for changes, said in (
        ({}, "s and 2 more"),
        ({"evidence": [{"source": "s"}]}, "s"),
        ({"disagreeing": ["t"]}, "1 disagree  s and 1 more"),
        ({"disagreeing": ["t", "u"]}, "2 disagree  s"),
        ({"evidence": [{"source": "x" * 32}]}, "x" * 32),
        ({"evidence": [{"source": f"/{'x' * 20}/{'y' * 20}/z/w"}]}, ".../z/w"),
    ):
        assert shown(**changes)[2] == f"driver  1  {said}"


def test_evidence_has_one_heading() -> None:
    assert shown(finding(ERROR))[4:9] == ["ERROR  w x  [x]", "  seen  e", "        f", "  why   why", "  do    do"]


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ValueError(LONG), LONG[:100]),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_a_library_lists_its_problem_in_part(error: Exception, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> Any:
        raise error

    monkeypatch.setattr(files, "_header", fails)
    path = f"/c/lib64/{files.CANN_LIBRARIES[0]}"
    facts = {"home": home("/c"), "machine": Facts(tree=Facts(exists=path.__eq__, names=lambda _: []))}
    [found] = said(files.loadable, "library.broken", **facts)
    assert (found.what, found.evidence) == (f"{path} is not a loadable library: {problem}", (path,))


def test_of_damaged_output_256_devices_are_kept() -> None:
    assert (examination._MOST_DEVICES, examination.MOST_OF_ONE) == (256, 20)


@pytest.mark.parametrize(("wait", "limit"), [(3.0, 3.0), (0.0, 0.0), (-1.0, 0.0)])
def test_this_machine_is_waited_for_as_long_as_asked(
    wait: float, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "this_machine", lambda *, limit_s: limit_s)
    assert commands._machine(None, None, None, wait) == limit  # type: ignore[comparison-overlap]


def tree_of(files_of: dict[str, str], **folders: list[str]) -> Any:
    return Facts(
        read=lambda path: Facts(content=files_of.get(path, ""), exists=path in files_of),
        exists=files_of.__contains__,
        names=lambda path: folders.get(path.rpartition("/")[2], []),
    )


@pytest.mark.parametrize(
    ("kind", "arch", "inner", "found"),
    [
        ("toolkit", "aarch64", "V100R001C22B123", "V100R001C22B123"),
        ("nnae", "x86_64", "V100R001C22" + LONG, ("V100R001C22" + LONG)[:40]),
        ("nnrt", "aarch64", "V100R001C22", "V100R001C22"),
        ("nnrt", "aarch64", "V100R002C22", ""),
        ("nnrt", "aarch64", "V100R001C2", ""),
        ("other", "aarch64", "V100R001C22", ""),
    ],
)
def test_the_inner_version_is_read_of_each_kind_of_cann(kind: str, arch: str, inner: str, found: str) -> None:
    path = f"/c/{arch}-linux/ascend_{kind}_install.info"
    facts = survey(home=home("/c"), machine=Facts(tree=tree_of({path: f"innerversion={inner}"})))
    assert Survey.inner_version.func(facts) == ((found, path) if found else ("", ""))
    assert Survey.inner_version.func(survey(home=None)) == ("", "")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=8.0.0", "8.0.0"),
        ("Version=8.0.RC1", "8.0.RC1"),
        ("Version=7.6.0.1.220", ""),
        ("Version=7.6.0.1.220\nversion_dir=8.0.RC3", "8.0.RC3"),
        ("", ""),
    ],
)
def test_the_public_version_of_a_package_is_told_from_an_internal_one(text: str, version: str) -> None:
    facts = survey(cann_packages={"op_compiler": "/v"}, machine=Facts(tree=tree_of({"/v": text})))
    for name in ("op_compiler", "op-compiler"):
        assert Survey.cann_package_version(facts, name) == version
    assert Survey.cann_package_version(facts, "runtime") == ""


def surveyed(root: Path, files_of: Iterable[str] = (), **environ: str) -> Survey:
    build(root, dict.fromkeys(files_of, ""))
    return Survey(copied_machine(root, environ, None), compatibility.load())


def test_packages_are_found_in_both_places_the_newer_one_first(tmp_path: Path) -> None:
    known = (
        "share/info/runtime/version.info",
        "runtime/version.info",
        "hccl/version.info",
        "share/info/gone/x",
        "bin/x",
    )
    found = surveyed(tmp_path, [f"c/{each}" for each in known], ASCEND_HOME_PATH="/c").cann_packages
    assert found == {"runtime": "/c/share/info/runtime/version.info", "hccl": "/c/hccl/version.info"}
    (tmp_path / "empty").mkdir()
    assert surveyed(tmp_path / "empty").cann_packages == {}


@pytest.mark.parametrize(
    ("environ", "exists", "is_one"),
    [({}, (), False), ({"KUBERNETES_SERVICE_HOST": "h"}, (), True), ({}, (".dockerenv",), True),
     ({}, ("run/.containerenv",), True)],
)  # fmt: skip
def test_a_container_is_told_by_its_files_or_its_variable(
    environ: dict[str, str], exists: tuple[str, ...], is_one: bool, tmp_path: Path
) -> None:
    assert surveyed(tmp_path, exists, **environ).is_container is is_one


def test_devices_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["davinci10", "davinci2", "davinci_manager", "davinci1000", "xdavinci1"]
    assert surveyed(tmp_path, [f"dev/{each}" for each in names]).devices == ("/dev/davinci2", "/dev/davinci10")


def test_the_950_has_no_file_for_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def control(name: str | None) -> tuple[str, ...]:
        kind = Facts(name=name) if name else None
        monkeypatch.setattr("pytest_ascend.doctor.survey.family", lambda _: kind)
        return surveyed(tmp_path).control_files

    assert control("950") == ("davinci_manager", "hisi_hdc")
    assert control("910B") == control(None) == ("davinci_manager", "devmm_svm", "hisi_hdc")


@pytest.mark.parametrize(
    ("folder", "owner"),
    [
        ("/a/lib64", "/a"),
        ("/a", "/a"),
        ("/link/lib64", "/b"),
        ("/real/b/lib64", "/b"),
        ("/ab/lib64", None),
        ("/", None),
    ],
)
def test_a_folder_belongs_to_the_cann_above_it(folder: str, owner: str | None) -> None:
    tree = Facts(target=lambda path: path.replace("/link", "/real/b"))
    facts = survey(homes=(home("/a"), home("/b", "/real/b")), machine=Facts(tree=tree))
    found = Survey.owner(facts, folder)
    assert (found.path if found else None) == owner


@pytest.mark.parametrize(
    ("numpy", "version", "count"),
    [
        ("2.0.0", "8.1.RC1", 1),
        ("2.0.0", "8.2.RC1", 0),
        ("2.0.0", "8.2.0", 0),
        ("1.26.4", "8.1.RC1", 0),
        ("2.0.0", "own", 0),
        ("", "8.1.RC1", 0),
        ("20.0", "8.1.RC1", 0),
    ],
)
def test_numpy_2_goes_with_the_cann_that_was_made_after_it(numpy: str, version: str, count: int) -> None:
    packages = {"numpy": Facts(version=numpy, path="/p")} if numpy else {}
    assert len(said(combination.packages, "python.numpy", packages=packages, cann=version)) == count


@pytest.mark.parametrize(("there", "packages", "count"), [(True, ("numpy",), 1), (False, ("numpy",), 0), (True, (), 0)])
def test_the_compiler_lacks_packages_where_there_is_a_cann_and_a_python(
    there: bool, packages: tuple[str, ...], count: int
) -> None:
    facts = {"home": home("/c") if there else None, "packages": dict.fromkeys(packages)}
    found = said(combination.packages, "python.compiler-needs", machine=Facts(packages=packages), **facts)
    assert [each.what for each in found] == [
        "CANN's compiler of operators lacks decorator, attrs, psutil, scipy"
    ] * count
    every = dict.fromkeys(("numpy", "decorator", "attrs", "psutil", "scipy"))
    machine = Facts(packages=("x",))
    assert said(combination.packages, "python.compiler-needs", machine=machine, home=home("/c"), packages=every) == []


@pytest.mark.parametrize(
    ("cann_version", "says", "named", "speaks"),
    [
        ("8.5.0", "paired", "8.5.0", True),
        ("8.5.1", "paired", "8.5.0", True),
        ("8.5.1", "incompatible", "8.5.0", False),
        ("8.5.1", "paired", "8.3.0", False),
        ("8.5.0", "paired", "8.5.1", False),
        ("8.5.x", "paired", "8.5.0", False),
        ("8.5.1", "incompatible", "8.5.x", True),
    ],
)
def test_a_statement_speaks_of_the_corrections_of_its_release(
    cann_version: str, says: str, named: str, speaks: bool
) -> None:
    statement: Any = Facts(says=says, cann=("1.0.0", named))
    assert combination.speaks_of(statement, cann_version) is speaks


@pytest.mark.parametrize(
    ("requires", "version", "needed"),
    [
        (("numpy", "torch==2.9.0"), "2.1.0", "2.9.0"),
        (("torch (==2.9)",), "2.1.0", "2.9"),
        (("torch>=2.9",), "2.1.0.post1", "2.1.0"),
        ((), "2.1.0", "2.1.0"),
        ((), "nightly", ""),
    ],
)
def test_the_torch_that_is_needed_is_pinned_or_of_the_same_number(
    requires: tuple[str, ...], version: str, needed: str
) -> None:
    package = Facts(requires=requires)
    facts = {"packages": {"torch-npu": package}, "version": lambda name: version}
    assert combination._needed_torch(survey(**facts)) == needed
    assert combination._needed_torch(survey(**{**facts, "packages": {}})) == combination._needed_torch(
        survey(**{**facts, "packages": {"torch-npu": Facts(requires=())}})
    )


@pytest.mark.parametrize(
    ("torch", "torch_npu", "cann", "offered"),
    [
        # One component changes: CANN to the next release, or torch_npu to the one made for this CANN.
        (
            "2.1.0",
            "2.1.0",
            "7.0.RC1",
            ["2.1.0 + torch_npu 2.1.0.rc1 + CANN 7.0.RC1", "2.1.0 + torch_npu 2.1.0 + CANN 7.0.0"],
        ),
        ("2.9.0+cpu", "2.9.0", "8.3.RC1", ["2.9.0 + torch_npu 2.9.0 + CANN 8.5.0"]),
        ("2.9.0", "", "8.5.0", ["2.9.0 + torch_npu 2.9.0 + CANN 8.5.0"]),
    ],
)
def test_the_nearest_combinations_change_the_fewest_components(
    torch: str, torch_npu: str, cann: str, offered: list[str]
) -> None:
    versions = {"torch": torch, "torch_npu": torch_npu}
    facts = {"version": lambda name: versions[name], "cann": cann, "compatibility": compatibility.load()}
    expected = "; ".join(f"torch {each}" for each in offered)
    assert combination.nearest(survey(**facts)) == f"the nearest official combinations: {expected}"


def test_without_versions_the_table_is_named() -> None:
    facts = {"version": lambda name: "", "cann": "", "compatibility": compatibility.load()}
    assert combination.nearest(survey(**facts)).startswith("choose a row of the table in Ascend")


def test_options_are_explained_and_files_are_paths() -> None:
    assert unexplained(commands.doctor) == []
    files_of = {"root": "DIR", "environ": "FILE", "npu_smi": "FILE", "compatibility": "FILE"}
    assert paths(commands.doctor) == set(files_of)
    assert placeholders(commands.doctor) == files_of
