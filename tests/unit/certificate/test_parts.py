"""Time-stamps, releases and statements on parts that are made for the test: what is taken, what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest

from pytest_ascend.certificate import (
    commands,
    package,
    recomputed,
    release,
    requirements,
    statement,
    timestamp,
    words,
)
from pytest_ascend.certificate.judgement import Refused
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.certificate.requirements import Candidate
from pytest_ascend.certificate.tiers import TIERS, included
from pytest_ascend.certificate.timestamp import TimestampError
from pytest_ascend.errors import AscendError, UsageError
from pytest_ascend.golden import Golden, GoldenStore, Provenance
from pytest_ascend.precision import compare
from pytest_ascend.runlog.contents import Quarantined, Resumed, SelfTest, TimeStamped
from pytest_ascend.runlog.reading import read
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import replace

from . import runs

STARTED = datetime(2026, 9, 1, 10, tzinfo=timezone.utc)


def candidate(events: Sequence[object], footer: object = None) -> Any:
    """Return what a requirement reads of a candidate that has only events."""
    run = SimpleNamespace(events=events, footer=footer, header=SimpleNamespace(started=STARTED.isoformat()))
    return SimpleNamespace(summary=SimpleNamespace(run=run))


def finished(after: timedelta) -> Any:
    return SimpleNamespace(finished=(STARTED + after).isoformat())


LINE = b'{"a":1}'
DIGEST = hashlib.sha256(LINE).hexdigest()


class Library:
    """Stands for rfc3161-client: an answer is JSON of a digest, a nonce and minutes after the start."""

    HashAlgorithm = SimpleNamespace(SHA256="SHA256")
    VerificationError = KeyError

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.roots: list[Any] = []

    def TimestampRequestBuilder(self) -> Any:  # noqa: N802
        query = SimpleNamespace(nonce=7, message_imprint=SimpleNamespace(message=bytes.fromhex(DIGEST)))
        query.as_bytes = lambda: b"query"
        builder = SimpleNamespace(build=lambda: query)
        for name in ("data", "hash_algorithm", "nonce", "cert_request"):
            setattr(builder, name, self._keep(name, builder))
        return builder

    def _keep(self, name: str, builder: Any) -> Any:
        def keep(*given: Any, **named: Any) -> Any:
            self.asked.append((name, *given, *named.values()))
            return builder

        return keep

    def decode_timestamp_response(self, content: bytes) -> Any:
        data = json.loads(content)
        imprint = SimpleNamespace(message=bytes.fromhex(data.get("digest", DIGEST)))
        at = STARTED + timedelta(minutes=data.get("minutes", 0))
        return SimpleNamespace(
            tst_info=SimpleNamespace(nonce=data.get("nonce", 7), message_imprint=imprint, gen_time=at)
        )

    def VerifierBuilder(self) -> Any:  # noqa: N802
        def add(root: Any) -> Any:
            self.roots.append(root)
            return builder

        def verify(response: Any, digest: bytes) -> None:
            if response.tst_info.message_imprint.message != digest or "good" not in self.roots:
                raise KeyError("unknown\nroot")

        builder = SimpleNamespace(add_root_certificate=add, build=lambda: SimpleNamespace(verify=verify))
        return builder


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(timestamp, "_library", lambda: made)
    return made


def answer(**data: Any) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()


class Answering:
    """An authority's answer to one request."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, most: int) -> bytes:
        assert most == 1 << 18
        return self.content


def test_an_authority_is_asked_for_its_certificate_and_a_nonce(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def opened(request: Any, timeout: float) -> Answering:
        asked.append((request.full_url, request.data, dict(request.header_items()), timeout))
        return Answering(b"{}")

    monkeypatch.setattr(timestamp.urllib.request, "urlopen", opened)
    assert timestamp.take("https://tsa", LINE) == base64.b64encode(b"{}").decode()
    assert library.asked == [("data", LINE), ("hash_algorithm", "SHA256"), ("nonce", True), ("cert_request", True)]
    [(address, data, headers, limit_s)] = asked
    assert (address, data, limit_s) == ("https://tsa", b"query", 20)
    assert headers == {"Content-type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"nonce": 8}', "it stamped something else"),
        (json.dumps({"digest": "0" * 64}).encode(), "it stamped something else"),
        (b"no answer", "Expecting value"),
        (None, "no route"),
    ],
)
def test_what_is_no_stamp_of_the_line_is_refused(
    library: Library, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    def opened(*_: object, **__: object) -> Answering:
        if content is None:
            raise URLError("no route")
        return Answering(content)

    monkeypatch.setattr(timestamp.urllib.request, "urlopen", opened)
    with pytest.raises(TimestampError, match=f"https://tsa gave no time-stamp: {why}"):
        timestamp.take("https://tsa", LINE)


@pytest.mark.parametrize("address", ["file:///etc/passwd", "tsa", "ftp://tsa", ""])
def test_an_authority_has_an_address_of_the_web(library: Library, address: str) -> None:
    with pytest.raises(UsageError, match="is not the address"):
        timestamp.take(address, LINE)
    assert library.asked == []


def test_a_moment_is_of_its_line(library: Library) -> None:
    assert timestamp.moment_of(answer(minutes=5), DIGEST) == STARTED + timedelta(minutes=5)
    with pytest.raises(TimestampError, match="of another line"):
        timestamp.moment_of(answer(), "0" * 64)
    for wrong in ("", "?", base64.b64encode(b"x").decode()):
        with pytest.raises(TimestampError, match="cannot be read"):
            timestamp.moment_of(wrong, DIGEST)


def test_a_stamp_holds_by_one_of_the_roots(library: Library) -> None:
    timestamp.check(answer(), DIGEST, ["bad", "good"])  # type: ignore[list-item]
    assert library.roots == ["bad", "good"]
    library.roots.clear()
    with pytest.raises(TimestampError, match="does not hold"):
        timestamp.check(answer(), DIGEST, ["bad"])  # type: ignore[list-item]
    with pytest.raises(TimestampError, match="does not hold"):
        timestamp.check(answer(), "0" * 64, ["good"])  # type: ignore[list-item]


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rfc3161_client", None)
    with pytest.raises(UsageError, match="need the library rfc3161-client") as caught:
        timestamp._library()
    assert caught.value.hint == "pip install 'pytest-ascend[certificate]'"


def stamp(minutes: float, given: str = "") -> TimeStamped:
    return TimeStamped(authority="tsa", digest=DIGEST, answer=given or answer(minutes=minutes))


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([stamp(0), stamp(60)], 0),
        ([stamp(-10), stamp(70)], 0),
        ([stamp(-10.1)], 1),
        ([stamp(70.1)], 1),
        ([stamp(-11), stamp(30), stamp(71)], 2),
        ([Resumed(at=(STARTED + timedelta(minutes=30)).isoformat(), records=0), stamp(20)], 0),
        ([Resumed(at=(STARTED + timedelta(minutes=30)).isoformat(), records=0), stamp(19.9)], 1),
        ([TimeStamped(authority="tsa", digest=DIGEST, answer="", reason="it was down")], 0),
    ],
)
def test_a_line_was_stamped_within_the_run_but_for_two_clocks(library: Library, events: list[Any], count: int) -> None:
    found = candidate(events=[SimpleNamespace(), *events], footer=finished(timedelta(hours=1)))
    assert len([*recomputed.time_stamps(found)]) == count


@pytest.mark.parametrize("differing", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_a_comparison_that_was_made_does_not_contradict_itself(dtype: str, differing: int) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.ones(4, dtype=getattr(torch, dtype))
    actual = expected.clone()
    actual[:differing] = 0
    verdict = compare(actual, expected, standard="binary")
    assert verdict.agrees is (differing == 0)
    assert not [*recomputed.judged(verdict)]


def verified(*events: Any) -> Any:
    return SimpleNamespace(summary=SimpleNamespace(run=SimpleNamespace(events=[SimpleNamespace(), *events])))


@pytest.mark.parametrize(
    ("events", "roots", "count"),
    [
        ([stamp(0)], ["good"], 0),
        ([stamp(0)], [], 0),
        ([stamp(0)], ["bad"], 1),
        ([], [], 0),
        ([], ["good"], 1),
        ([TimeStamped(authority="tsa", digest=DIGEST, answer="")], ["good"], 1),
        ([TimeStamped(authority="tsa", digest=DIGEST, answer=""), stamp(0)], ["good"], 0),
    ],
)
def test_stamps_are_checked_where_there_is_a_root(
    library: Library, events: list[Any], roots: list[Any], count: int
) -> None:
    assert len([*commands._stamps_that_do_not_hold(verified(*events), roots)]) == count


def test_stamps_are_stated_to_the_second(library: Library) -> None:
    run: Any = SimpleNamespace(events=[SimpleNamespace(), stamp(0.5), stamp(0, given="")])
    run.events[2] = TimeStamped(authority="tsa", digest=DIGEST, answer="")
    assert statement.time_stamps(run) == [{"authority": "tsa", "time": "2026-09-01T10:00:30+00:00"}]


def test_an_altered_golden_is_named(tmp_path: Path) -> None:
    made = Provenance(how="h", generator="g", seed="s", torch="t", numpy="n", machine="m")
    store = GoldenStore(tmp_path)
    for name in ("a", "b"):
        store.stage(Golden(name, {}), made)
    store.flush()
    manifest = store.manifest.read_bytes()
    assert list(release.altered_goldens(tmp_path, manifest)) == []
    store.path("b").write_bytes(store.path("a").read_bytes())
    [problem] = release.altered_goldens(tmp_path, manifest)
    assert f"the golden {store.path('b')} was altered" in problem.message
    [problem] = release.altered_goldens(tmp_path, b"{}")
    assert "manifest.json is damaged" in problem.message


def test_the_files_of_a_release_are_those_that_somebody_wrote(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.json", "b/d.pyc", "b/e.so", "b/f.o", ".git/x", "__pycache__/y.py", "b/.hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert [each for each in json.loads(release.rules(tmp_path)) if each.startswith("suites/")] == [
        "suites/a.py", "suites/b/c.json",
    ]  # fmt: skip


def test_the_rules_are_the_package_and_the_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("package/a.py", "package/suites/b.py", "package/baselines/c.json", "suites/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(release, "PACKAGE", tmp_path / "package")
    found = json.loads(release.rules(tmp_path / "suites"))
    assert found == {
        "pytest_ascend/a.py": hashlib.sha256(b"package/a.py").hexdigest(),
        "suites/d.py": hashlib.sha256(b"suites/d.py").hexdigest(),
    }


def test_what_is_missing_has_no_bytes_for_a_run_and_is_an_error_for_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "PACKAGE", tmp_path / "package")
    nothing = hashlib.sha256(b"").hexdigest()
    found = release.used(tmp_path, tmp_path, [tmp_path / "none"])
    assert [found[name] for name in ("manifest", "goldens", "expectations")] == [nothing] * 3
    monkeypatch.setattr(release, "folder", lambda name: tmp_path / name)
    with pytest.raises(AscendError, match=r"this installation cannot judge: .*manifest.json"):
        release.installed()


@pytest.mark.parametrize(
    ("tier", "names"),
    [("operators", 1), ("models", 2), ("graphs", 3), ("inference", 4), ("performance", 5), ("distributed", 6)],
)
def test_a_tier_includes_those_before_it(tier: str, names: int) -> None:
    assert [each.name for each in included(TIERS[tier])] == list(TIERS)[:names]
    assert TIERS[tier].quiet is (names > 4)
    assert TIERS[tier].level == "standard"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Any:
    waiver = {**runs.WAIVER, "kind": "limit"}
    fates = {
        **runs.ended(5, "fallback"),
        **runs.ended(6, "waived", waiver=runs.WAIVER),
        **runs.ended(7, "waived", waiver=waiver),
        **runs.ended(8, "disputed"),
    }
    return summarise(read(runs.write_log(tmp_path_factory.mktemp("run") / "run.jsonl", fates)))


def stated(summary: Any, tier: str = "operators", **more: Any) -> dict[str, Any]:
    made = Candidate(summary=summary, tier=TIERS[tier], release=runs.RELEASE, on=date(2026, 9, 5))
    return statement.statement(made, issuer="I", key="K", **more)


def test_a_statement_says_what_became_of_each_case(summary: Any) -> None:
    found = stated(summary)
    assert (found["schema"], found["kind"], found["tier"]) == (1, "pytest-ascend certificate", "operators")
    assert (found["issued"], found["issuer"], found["key"], found["expires"]) == ("2026-09-05", "I", "K", "2027-09-01")
    assert found["fallbacks"] == ["ops/op4/forward/float32"]
    assert found["waived"] == [{"case": "ops/op5/forward/float32", **runs.WAIVER}]
    assert found["disputed"] == ["ops/op7/forward/float32"]
    assert found["limits"] == [
        {"cause": "made-up", "reason": "known", "issue": "https://example.org/1", "cases": ["ops/op6/forward/float32"]}
    ]
    assert found["counts"]["ops"] == {"disputed": 1, "fallback": 1, "passed": 116, "waived": 2}
    assert found["run"] == {
        "id": "20260901-run", "started": runs.STARTED, "finished": runs.FINISHED, "level": "standard", "challenge": "",
    }  # fmt: skip
    assert "confirms" not in found
    assert stated(summary, confirms={"id": "x"})["confirms"] == {"id": "x"}


def test_figures_are_stated_of_the_tier_that_has_them(summary: Any) -> None:
    assert stated(summary)["figures"] == {}
    assert stated(summary, "performance")["figures"] == {
        "benchmarks/resnet50/inference/float32": {"latency_us": 1234.5}
    }


@pytest.mark.parametrize(("tier", "outside"), [("operators", 5), ("performance", 1), ("distributed", 0)])
def test_what_is_not_covered_is_stated(summary: Any, tier: str, outside: int) -> None:
    found = stated(summary, tier)["not_covered"]
    assert len([each for each in found if each.startswith("the tier ")]) == outside
    assert "cases of higher levels than standard" in found
    between = "machines" if tier == "distributed" else "devices, and between machines"
    assert found[-2:] == [f"communication between {between}", "any other version of any part"]
    assert {*found[-2:]} <= words._TRANSLATED["zh"].keys()
    whole = replace(summary.run.header, level="full")
    full: Any = SimpleNamespace(tier=TIERS[tier], summary=SimpleNamespace(run=SimpleNamespace(header=whole)))
    assert len(statement.not_covered(full)) == outside + 2


@pytest.mark.parametrize(("given", "said"), [(None, ""), (0, "0"), (77, "77"), ("5", "5")])
def test_a_challenge_is_a_whole_number(summary: Any, given: object, said: str) -> None:
    header = replace(summary.run.header, options={} if given is None else {"challenge": given})
    assert stated(replace(summary, run=replace(summary.run, header=header)))["run"]["challenge"] == said


def test_a_number_is_of_the_content_and_not_of_the_day() -> None:
    content = {"a": 1, "issued": "2026-01-01"}
    number = statement.identity(content)
    assert (len(number), set(number) <= set("0123456789abcdef")) == (32, True)
    assert statement.identity({**content, "issued": "2027-01-01", "id": "x"}) == number
    assert statement.identity({**content, "a": 2}) != number


def test_a_run_without_an_end_is_dated_by_its_start(summary: Any) -> None:
    cut = SimpleNamespace(**{name: getattr(summary.run, name) for name in ("header", "events")}, footer=None)
    made: Any = SimpleNamespace(
        summary=SimpleNamespace(run=cut),
        release=runs.RELEASE,
        tier=TIERS["operators"],
        on=date(2026, 9, 5),
        results=(),
        of=lambda _: [],
    )
    assert statement.statement(made, issuer="I", key="K")["run"]["finished"] == runs.STARTED


@pytest.mark.parametrize(
    ("planted", "detected", "missed", "said"),
    [
        (15, 15, (), 0),
        (15, 14, (), 1),
        (0, 0, (), 1),
        (15, 15, ("x",), 1),
        (15, 16, (), 0),
    ],
)
def test_a_judge_has_seen_every_planted_error(planted: int, detected: int, missed: tuple[str, ...], said: int) -> None:
    event = SelfTest(planted=planted, detected=detected, correct=5, missed=missed)
    found: Any = candidate(events=[SimpleNamespace(), event])
    assert len([*requirements.blind(found)]) == said
    quarantined: Any = candidate(events=[event, Quarantined(card="npu:1", reason="wrong")])
    assert [*requirements.blind(quarantined)][said:] == ["the device npu:1 was taken out: wrong"]


def test_what_does_not_hold_ends_with_1_and_what_is_asked_wrongly_with_another_code() -> None:
    assert {each.exit_code for each in (CertificateError, TimestampError, Refused)} == {1}
    assert UsageError.exit_code != 1
    assert CertificateError("x").part == ""
    assert CertificateError("x", part="p").part == "p"


def test_a_statement_that_is_signed_and_no_statement_is_refused() -> None:
    for content in (b"[", b"[]", b"{}", b'{"a": NaN}'):
        with pytest.raises(CertificateError, match="is not a valid statement, although it is signed"):
            package._statement(content)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_file_is_copied_to_its_last_byte(tmp_path: Path, size: int) -> None:
    content = bytes(size)
    (tmp_path / "a").write_bytes(content)
    with (tmp_path / "a").open("rb") as file, (tmp_path / "b").open("wb") as copy:
        file.seek(min(size, 1))
        found = package._listed(file, copy)
        assert package._listed(file) == found
    assert found == {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": size}
    assert (tmp_path / "b").read_bytes() == content
