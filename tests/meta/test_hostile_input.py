"""Some hundred malformed logs, goldens, expectations and options: each is refused by name, and nothing is touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ascend.coverage import expectations, shards
from pytest_ascend.device import parse as parse_device
from pytest_ascend.emulator.faults import apply_faults
from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.errors import AscendError, UsageError
from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.golden.files import Provenance
from pytest_ascend.page import html
from pytest_ascend.precision import standard_of
from pytest_ascend.runlog.reading import whole_part
from pytest_ascend.runlog.writing import read
from pytest_ascend.system.files import write_file
from pytest_ascend.system.text import parse_duration, parse_share, parse_size
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog import synthetic

Change = Callable[[Path], None]

DEEP = "[" * 60 + "]" * 60
DEEPER = "[" * 200_000
#: Values that no field takes; the last two are what JSON alone would let through.
ODD: Mapping[str, str] = {
    "null": "null",
    "a negative number": "-1",
    "a huge number": "1" + "0" * 400,
    "a number without end": "1e999",
    "an object": '{"a":1}',
    "deep nesting": DEEP,
    "NaN": "NaN",
    "a key twice": '{"a":1,"a":2}',
}
HEADER_FIELDS = ("schema", "run_id", "started", "stack", "level", "selection", "manifest")
RECORD_FIELDS = (
    "case",
    "node_id",
    "outcome",
    "reason",
    "detail",
    "verdicts",
    "fallbacks",
    "duration_s",
)
FOOTER_FIELDS = ("finished", "records", "verdict")


def with_raw(path: Path, line: int, field: str, raw: str) -> None:
    """Write raw JSON in the place of one field of one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    data = json.loads(lines[line])
    data[field] = "@"
    lines[line] = json.dumps(data).replace('"@"', raw)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lines_changed(change: Callable[[list[bytes]], list[bytes]]) -> Change:
    def apply(path: Path) -> None:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return apply


def replaced(make: Callable[[Path], object]) -> Change:
    """Put something else in the place of the file."""

    def apply(path: Path) -> None:
        path.unlink()
        make(path)

    return apply


#: What can stand where a file is expected.
NO_FILES: Mapping[str, Change] = {
    "nothing": replaced(lambda path: None),
    "a folder": replaced(lambda path: path.mkdir()),
    "a pipe": replaced(os.mkfifo),
    "a link to itself": replaced(lambda path: path.symlink_to(path)),
    "a link to a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "nothing inside": lambda path: path.write_bytes(b"") and None,
    "bytes of no encoding": lambda path: path.write_bytes(b"\xff\xfe\x00{" * 9) and None,
    "UTF-16": lambda path: path.write_bytes(path.read_bytes().decode("latin-1").encode("utf-16")) and None,
    "a mark of byte order": lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()) and None,
    "zeros": lambda path: path.write_bytes(b"\0" * 4096) and None,
    "nesting without end": lambda path: path.write_text(DEEPER + "\n", encoding="utf-8") and None,
    "a list": lambda path: path.write_text("[]\n", encoding="utf-8") and None,
    "a number": lambda path: path.write_text("1\n", encoding="utf-8") and None,
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None,
    "a pickle": lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.\n") and None,
}


def _log_table() -> Iterator[tuple[str, Change]]:
    for line, name, fields in (
        (0, "header", HEADER_FIELDS),
        (1, "record", RECORD_FIELDS),
        (-1, "footer", FOOTER_FIELDS),
    ):
        for field in fields:
            for odd, raw in ODD.items():
                yield f"{name}.{field} is {odd}", lambda path, a=(line, field, raw): with_raw(path, *a)
    yield from NO_FILES.items()
    yield "a case twice", lines_changed(lambda found: [*found[:2], found[1], *found[2:]])
    yield (
        "a case of another run",
        lines_changed(lambda found: [found[0], found[1].replace(b"ops/", b"spo/"), *found[2:]]),
    )
    yield "a line of no type", lines_changed(lambda found: [found[0], b"{}\n", *found[1:]])
    yield "an event of no kind", lines_changed(lambda found: [found[0], b'{"type":"event"}\n', *found[1:]])
    yield (
        "an attempt without a card",
        lines_changed(lambda found: [found[0], b'{"type":"event","kind":"attempt","case":"x"}\n', *found[1:]]),
    )
    yield (
        "a self-test that is no count",
        lines_changed(lambda found: [found[0], b'{"type":"event","kind":"canaries","planted":-1}\n', *found[1:]]),
    )
    yield "something after the footer", lines_changed(lambda found: [*found, found[1]])
    yield "no header", lines_changed(lambda found: found[1:])
    yield "a line of 5 MiB", lines_changed(lambda found: [found[0], b'{"a":"' + b"x" * 5 * 2**20 + b'"}\n'])
    yield "a footer in the middle", lines_changed(lambda found: [found[0], found[-1], *found[1:-1]])


LOGS = dict(_log_table())
WAIVER_FIELDS = ("cases", "outcome", "reason", "source", "expires", "torch", "emulated", "unheard-of")
WAIVER = {"cases": "*", "outcome": "failed", "reason": "r", "source": "s", "expires": "2030-01-01"}


def _waiver(field: str, raw: str) -> Change:
    def apply(path: Path) -> None:
        entry = json.dumps({**WAIVER, field: "@"}).replace('"@"', raw)
        path.write_text(f'{{"schema": 1, "expectations": [{entry}]}}', encoding="utf-8")

    return apply


def _waiver_table() -> Iterator[tuple[str, Change]]:
    bad = {"null": "null", "a number": "7", "an object": "{}", "a list": "[1]", "nothing": '""', "deep nesting": DEEP}
    for field in WAIVER_FIELDS:
        for odd, raw in bad.items():
            if (field, odd) not in {("emulated", "null"), ("torch", "nothing")}:
                yield f"{field} is {odd}", _waiver(field, raw)
    yield "a crash is expected", _waiver("outcome", '"errored"')
    yield "a day that does not exist", _waiver("expires", '"2030-02-31"')
    yield "a week", _waiver("expires", '"2030-W01"')
    yield from NO_FILES.items()
    yield "five megabytes", lambda path: path.write_bytes(b" " * 5 * 2**20) and None


WAIVERS = dict(_waiver_table())


def _manifest(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(path: Path) -> None:
        manifest = path.parent.parent / "manifest.json"
        data = json.loads(manifest.read_text(encoding="utf-8"))
        change(data)
        manifest.write_text(json.dumps(data), encoding="utf-8")

    return apply


def _renamed(name: str) -> Change:
    return _manifest(lambda data: data["goldens"].__setitem__(name, data["goldens"].pop("ops/one")))


def _golden_table() -> Iterator[tuple[str, Change]]:
    yield from NO_FILES.items()
    names = (
        "../one",
        "/etc/passwd",
        "ops/../../one",
        "ops//one",
        "ops/one\0",
        "a" * 400,
        "",
        ".",
        "..",
        "ops/\u202eeno",
        "C:\\one",
    )
    for name in names:
        yield f"a golden called {name[:20]!a}", _renamed(name)
    for field in ("sha256", "size_bytes", "made"):
        for odd in (None, -1, "x", [], {"a": 1}, 10**30):
            yield (
                f"{field} is {odd!r}",
                _manifest(lambda data, a=(field, odd): data["goldens"]["ops/one"].__setitem__(*a)),
            )
    for schema in (None, 0, 2, "1", [1]):
        yield f"schema {schema!r}", _manifest(lambda data, a=schema: data.__setitem__("schema", a))
    yield "a length of 2**63", lambda path: path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:]) and None
    yield "a bit turned", lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01") and None
    yield "more than there was", lambda path: path.write_bytes(path.read_bytes() + b"x") and None
    yield "a link out", replaced(lambda path: path.symlink_to("/etc/hostname"))


GOLDENS = dict(_golden_table())
TEXTS = ("", " ", "-1", "0x10", "1e400", "nan", "\0", "\u0661", "a" * 5000, "../..", "${HOME}", "1;2", "\ud800")
OPTIONS: Mapping[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "--ascend-device": (parse_device, (*TEXTS, "npu:-1", "npu:1.5", "cpu:0", "npu:\u0661", "npu::0")),
    "--ascend-emulate=memory": (parse_size, (*TEXTS, "0", "1Q", "1e9G", "8 G B")),
    "--ascend-baselines=slowdown": (parse_share, (*TEXTS, "0", "100%", "5%%")),
    "--ascend-shard": (shards.parse, (*TEXTS, "0/2", "3/2", "1/0", "1/2/3")),
    "--ascend-deadline": (parse_duration, (*TEXTS, "0", "inf", "1 h m")),
    "--ascend-standard": (standard_of, (*TEXTS[1:], "error-model@99", "__class__")),
    "--ascend-emulate=fault": (
        lambda text: apply_faults(all_kernels(), [text]),
        (
            *TEXTS,
            "os:system",
            "no.such:thing",
            "crash:",
            "crash:after=",
            "crash:after=9" + "9" * 40,
            "slow:seconds=inf",
        ),
    ),
}
WORDS = [(option, text) for option, (_, texts) in OPTIONS.items() for text in texts]


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    found = ((path, path.lstat()) for path in sorted(folder.rglob("*")))
    return {str(path): (status.st_mtime_ns, status.st_size) for path, status in found}


def refused(folder: Path, act: Callable[[], object]) -> None:
    """See that something raises what the user can act on, in few words, and leaves every file as it is."""
    before = contents(folder)
    with pytest.raises(AscendError) as caught:
        act()
    assert caught.value.hint
    assert len(str(caught.value)) < 6000
    assert contents(folder) == before


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, a store of goldens and expectations that are well."""
    folder = tmp_path_factory.mktemp("good")
    synthetic.write_log(folder / "run.jsonl", synthetic.op_cases(3))
    store = GoldenStore(folder / "goldens")
    made = Provenance(how="h", generator="g@1", seed="0", torch="2", numpy="2", machine="m")
    store.stage(Golden("ops/one", {"x": torch.ones(3)}, {"a": 1}), made)
    store.flush()
    (folder / "expectations.json").write_text(json.dumps({"schema": 1, "expectations": [WAIVER]}), encoding="utf-8")
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "given"))


def use_log(path: Path) -> None:
    html.render(summarise(read(path)))


def test_there_are_more_than_enough_of_them() -> None:
    assert len(LOGS) + len(WAIVERS) + len(GOLDENS) + len(WORDS) >= 200


def test_what_is_well_is_taken(folder: Path) -> None:
    use_log(folder / "run.jsonl")
    assert GoldenStore(folder / "goldens").read("ops/one").meta == {"a": 1}
    assert expectations.load([folder / "expectations.json"], synthetic.EMULATED).entries


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_is_malformed_is_refused(name: str, folder: Path) -> None:
    LOGS[name](folder / "run.jsonl")
    refused(folder, lambda: use_log(folder / "run.jsonl"))


@pytest.mark.parametrize("text", [r"\ud800", r"\u0000", r"\u202e", r"</script><script>", r"\u001b[2J"])
def test_a_page_of_a_log_with_odd_characters_can_be_written(folder: Path, text: str) -> None:
    with_raw(folder / "run.jsonl", 1, "reason", f'"{text}"')
    with contextlib.suppress(AscendError):
        write_file(folder / "page.html", html.render(summarise(read(folder / "run.jsonl"))))
        assert "<script>alert" not in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NO_FILES if name not in {"nothing", "nothing inside", "half of it"}])
def test_what_is_no_log_is_not_continued(name: str, folder: Path) -> None:
    NO_FILES[name](folder / "run.jsonl")
    before = contents(folder)
    with contextlib.suppress(AscendError, OSError):
        assert whole_part(folder / "run.jsonl") is None
    assert contents(folder) == before


@pytest.mark.parametrize("name", GOLDENS)
def test_a_golden_that_is_malformed_is_refused(name: str, folder: Path) -> None:
    GOLDENS[name](folder / "goldens" / "ops" / "one.safetensors")
    refused(folder, lambda: GoldenStore(folder / "goldens").read("ops/one"))


@pytest.mark.parametrize("name", WAIVERS)
def test_expectations_that_are_malformed_are_refused(name: str, folder: Path) -> None:
    WAIVERS[name](folder / "expectations.json")
    refused(folder, lambda: expectations.load([folder / "expectations.json"], synthetic.EMULATED))


@pytest.mark.parametrize(("option", "text"), WORDS)
def test_an_option_that_makes_no_sense_is_refused(option: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        OPTIONS[option][0](text)
    assert caught.value.hint


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=4)
FUZZED = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edited(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for share, length, instead in edits:
        place = int(share * len(data))
        data = data[:place] + instead + data[place + length :]
    return data


@FUZZED
@given(edits=EDITS)
def test_whatever_is_done_to_a_log_it_is_taken_or_refused(folder: Path, good: Path, edits: Any) -> None:
    path = folder / "run.jsonl"
    path.write_bytes(edited((good / "run.jsonl").read_bytes(), edits))
    with contextlib.suppress(AscendError):
        use_log(path)


@FUZZED
@given(edits=EDITS)
def test_whatever_is_done_to_a_golden_it_is_refused(folder: Path, good: Path, edits: Any) -> None:
    before = (good / "goldens/ops/one.safetensors").read_bytes()
    after = edited(before, edits)
    (folder / "goldens/ops/one.safetensors").write_bytes(after)
    if after != before:
        with pytest.raises(AscendError):
            GoldenStore(folder / "goldens").read("ops/one")


@FUZZED
@given(edits=EDITS)
def test_whatever_is_done_to_expectations_they_are_taken_or_refused(folder: Path, good: Path, edits: Any) -> None:
    path = folder / "expectations.json"
    path.write_bytes(edited((good / "expectations.json").read_bytes(), edits))
    with contextlib.suppress(AscendError):
        expectations.load([path], synthetic.EMULATED)
