"""Manifests, ids, locks and changes of a store, and what the commands print, value by value."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from filelock import FileLock, Timeout
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Console
from rich.progress import Progress

from pytest_ascend.errors import AscendError, GoldenError
from pytest_ascend.golden import Golden, GoldenRecipe, GoldenStore, Provenance, commands
from pytest_ascend.golden import files as stored
from pytest_ascend.golden.files import Entry, decode_manifest, encode_manifest, is_id, locked
from pytest_ascend.golden.store import NAME, Changes
from pytest_ascend.system.files import canonical_json
from tests.unit.options import paths, placeholders, unexplained

MADE = Provenance(how="by hand", generator="ops@1", seed="0", torch="2.13.0", numpy="2.0.0", machine="x86_64 AVX2")
ENTRY = Entry(sha256=hashlib.sha256(b"abc").hexdigest(), size_bytes=3, made=MADE)
MADE_FIELDS = to_builtins(MADE)


def put(root: Path, *values: tuple[str, float], made: Provenance = MADE, remove: tuple[str, ...] = ()) -> Changes:
    store = GoldenStore(root)
    for name, value in values:
        store.stage(Golden(name, {"x": torch.tensor([value])}), made)
    return store.flush(remove=remove)


@pytest.mark.parametrize(
    ("text", "holds"),
    [("x" * 200, True), ("x" * 201, False), ("ops/a.b-c+d_e/1", True), ("a.", False), (".a", False), ("a..b", False),
     ("-a", False), ("a/", False), ("a\n", False), ("a b", False)],
)  # fmt: skip
def test_an_id_is_of_names_and_of_no_more_than_200_characters(text: str, holds: bool) -> None:
    assert is_id(text) is holds


@pytest.mark.parametrize(
    ("field", "is_same"),
    [("how", False), ("generator", False), ("seed", False), ("torch", True), ("numpy", True), ("machine", True)],
)
def test_versions_alone_make_no_other_golden(field: str, is_same: bool) -> None:
    other = replace(ENTRY, made=replace(MADE, **{field: "another"}))
    assert ENTRY.same_but_for_versions(other) is is_same
    assert not ENTRY.same_but_for_versions(replace(other, sha256="0" * 64))


def test_a_manifest_is_read_as_it_was_written() -> None:
    entries = {"b": ENTRY, "a": replace(ENTRY, size_bytes=4)}
    data = encode_manifest(entries)
    assert decode_manifest(data) == entries
    assert data.endswith(b"}\n")
    body = json.loads(data)
    digest = body.pop("sha256")
    assert digest == hashlib.sha256(canonical_json(body).encode()).hexdigest()


def signed(body: dict[str, Any]) -> bytes:
    """Return a manifest with the hash of its content, whatever that is."""
    digest = hashlib.sha256(canonical_json(body).encode()).hexdigest()
    return (canonical_json({**body, "sha256": digest}, indent=1) + "\n").encode()


@pytest.mark.parametrize(
    "change",
    [
        {"size_bytes": "3"},
        {"size_bytes": True},
        {"size_bytes": 3.0},
        {"sha256": 7},
        {"made": {**MADE_FIELDS, "seed": 7}},
        {"made": {**MADE_FIELDS, "more": "x"}},
        {"made": {}},
        {"more": "x"},
    ],
)
def test_an_entry_of_another_form_is_refused(change: dict[str, Any]) -> None:
    body = json.loads(encode_manifest({"a": ENTRY}))
    del body["sha256"]
    assert decode_manifest(signed(body)) == {"a": ENTRY}
    body["goldens"]["a"] |= change
    with pytest.raises(ValueError, match="an entry is malformed"):
        decode_manifest(signed(body))


@pytest.mark.parametrize("body", [{}, {"schema": 2, "goldens": {}}, {"schema": "1", "goldens": {}}])
def test_a_manifest_of_another_schema_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its schema is not 1"):
        decode_manifest(signed(body))
    with pytest.raises(ValueError, match="its schema is not 1"):
        decode_manifest(b"[1]")
    with pytest.raises(ValueError, match="malformed"):
        decode_manifest(signed({"schema": 1}))
    with pytest.raises(ValueError, match="malformed"):
        decode_manifest(signed({"schema": 1, "goldens": []}))


def test_a_manifest_in_another_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="does not match its own hash"):
        decode_manifest(encode_manifest({"a": ENTRY}).replace(b"\n", b"\n "))


def test_a_store_has_one_lock_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with locked(tmp_path / "link"):
        [lock] = (tmp_path / "cache/locks").iterdir()
        with pytest.raises(Timeout), FileLock(lock, timeout=0):
            pass
    with locked(tmp_path / "store"), locked(tmp_path / "other"):
        assert len([*(tmp_path / "cache/locks").iterdir()]) == 2
    with FileLock(lock, timeout=0):
        assert lock.name.startswith("golden-")


def test_a_file_in_the_place_of_the_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(tmp_path))
    (tmp_path / "locks").touch()
    with pytest.raises(GoldenError, match="the store cannot be locked"), locked(tmp_path):
        pass


def test_hints_name_the_golden_to_be_made_anew(tmp_path: Path) -> None:
    one, every = (stored.damaged(tmp_path / "x", "cut", name) for name in ("ops/relu", ""))
    assert "'pytest-ascend baseline build ops/relu'" in one.hint
    assert "delete it and make all anew: 'pytest-ascend baseline build'" in every.hint
    assert (one.path, one.message) == (str(tmp_path / "x"), f"{tmp_path / 'x'} is damaged: cut")


def test_a_file_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    monkeypatch.setattr(stored, "LARGEST_BYTES", 5)
    assert stored.read_bounded(tmp_path, tmp_path / "x", "") == b"12345"
    monkeypatch.setattr(stored, "LARGEST_BYTES", 4)
    with pytest.raises(GoldenError, match="cannot be read"):
        stored.read_bounded(tmp_path, tmp_path / "x", "")


def test_a_flush_says_what_it_did_and_does_no_more(tmp_path: Path) -> None:
    assert put(tmp_path, ("b", 1.0), ("a", 1.0), ("c", 1.0)) == Changes(added=("a", "b", "c"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    found = put(tmp_path, ("b", 2.0), ("a", 1.0), ("d", 1.0), remove=("c", "nothing"))
    assert found == Changes(added=("d",), changed=("b",), unchanged=("a",), removed=("c",))
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [f"{name}.safetensors" for name in "abd"]
    assert (tmp_path / "a.safetensors").stat().st_mtime_ns == before[tmp_path / "a.safetensors"]
    assert put(tmp_path) == Changes()


def test_a_golden_of_the_same_bytes_keeps_the_versions_that_made_it(tmp_path: Path) -> None:
    put(tmp_path, ("a", 1.0))
    assert put(tmp_path, ("a", 1.0), made=replace(MADE, torch="9.9")) == Changes(unchanged=("a",))
    assert GoldenStore(tmp_path).entries()["a"].made.torch == "2.13.0"
    assert put(tmp_path, ("a", 1.0), made=replace(MADE, seed="9")) == Changes(changed=("a",))
    assert GoldenStore(tmp_path).entries()["a"].made.seed == "9"


def test_a_store_in_hand_knows_what_it_wrote(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path)
    store.stage(Golden("a", {"x": torch.ones(1)}), MADE)
    store.flush()
    entries = store.entries()
    entries.clear()
    assert store.ids() == ("a",), "what a caller does to the answer stays with the caller"
    assert store.read("a").tensors["x"].item() == 1
    store.stage(Golden("a", {"x": torch.zeros(1)}), MADE)
    store.flush()
    assert store.read("a").tensors["x"].item() == 0, "nothing old is kept"
    assert store.flush() == Changes(), "what was staged is written once"


def test_an_id_that_is_none_cannot_be_staged(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="is not the id of a golden"):
        GoldenStore(tmp_path).stage(Golden("../a", {}), MADE)


def test_every_problem_of_a_store_is_found(tmp_path: Path) -> None:
    put(tmp_path / "s", ("a", 1.0), ("b", 1.0), ("c", 1.0))
    store = GoldenStore(tmp_path / "s")
    store.revoke("a", "wrong")
    assert list(store.problems()) == []
    (tmp_path / "s" / "b.safetensors").write_bytes(b"")
    (tmp_path / "s" / "folder").mkdir()
    (tmp_path / "s" / "link").symlink_to(tmp_path / "s" / "folder")
    (tmp_path / "s" / "folder" / "stray").touch()
    found = [os.path.relpath(problem.path, tmp_path / "s") for problem in store.problems()]
    assert found == ["b.safetensors", "folder/stray", "link"]
    (tmp_path / "s" / "manifest.json").write_text("{}", encoding="utf-8")
    [problem] = GoldenStore(tmp_path / "s").problems()
    assert "manifest.json is damaged" in problem.message


def test_revocations_are_kept_beside_each_other_while_their_content_is_there(tmp_path: Path) -> None:
    put(tmp_path, ("a", 1.0), ("b", 1.0))
    store = GoldenStore(tmp_path)
    assert store.revoke("a", "first") == store.revoke("b", "second") == tmp_path / NAME
    store.revoke("a", "third")
    assert {name: each.reason for name, each in store.revoked().items()} == {"a": "third", "b": "second"}
    assert store.decoded("a").id == "a", "it can still be looked at"
    put(tmp_path, remove=("b",))
    assert list(GoldenStore(tmp_path).revoked()) == ["a"]


@pytest.mark.parametrize("entry", [{"sha256": "x", "reason": ""}, {"sha256": 7, "reason": "r"}, {"sha256": "x"}, 7])
def test_a_revocation_has_a_hash_and_a_reason(tmp_path: Path, entry: object) -> None:
    put(tmp_path, ("a", 1.0))
    (tmp_path / NAME).write_text(json.dumps({"schema": 1, "revoked": {"a": entry}}), encoding="utf-8")
    with pytest.raises(GoldenError, match=NAME):
        GoldenStore(tmp_path).revoked()


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [2.0, 4.0], 0.5),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0, math.inf], [1.0, math.inf], 0.0),
        ([1.0, math.inf], [1.0, -math.inf], math.inf),
        ([3.0, math.inf], [4.0, math.inf], 0.25),
        ([1.0, math.nan], [1.0, 2.0], math.inf),
        ([1.0], [0.0], 1e300),
        ([math.inf], [math.nan], math.inf),
        ([-8.0], [-4.0], 1.0),
    ],
)
def test_a_difference_is_a_share_of_the_largest_value(old: list[float], new: list[float], share: float) -> None:
    found = commands._share(*(torch.tensor(each, dtype=torch.float64) for each in (old, new)))
    assert found == pytest.approx(share)


def golden(**tensors: torch.Tensor) -> Golden:
    return Golden("a", tensors)


def test_the_tensor_that_changed_most_is_named() -> None:
    ones = torch.ones(2)
    old = golden(a=ones, b=ones, c=ones)
    assert commands.difference(old, golden(a=ones * 1.1, b=ones * 2, c=ones)) == "largest relative difference 0.5, in b"
    for other in (golden(a=ones, b=ones), golden(a=ones, b=ones, c=ones.half()), golden(a=ones, b=ones, d=ones)):
        assert commands.difference(old, other) == "other tensors, shapes or dtypes"
    assert (
        commands.difference(golden(a=torch.ones(2, 1)), golden(a=torch.ones(1, 2))) == "other tensors, shapes or dtypes"
    )


def recipe(name: str = "ops/relu", value: float = 1.0, **more: Any) -> GoldenRecipe:
    return GoldenRecipe(**{"id": name, "make": lambda: {"x": torch.full((2,), value)}, "how": "by hand", **more})


def said_by(
    store: GoldenStore, *recipes: GoldenRecipe, only: tuple[str, ...] = commands.ALL, **console: Any
) -> list[str]:
    text = io.StringIO()
    with Progress(console=Console(file=text, width=200, **console), disable=True) as progress:
        commands.build_goldens(store, recipes, only=only, progress=progress)
    return text.getvalue().splitlines()


def test_a_golden_says_how_it_was_made(tmp_path: Path) -> None:
    content = Golden("ops/relu", {"x": torch.ones(1)}, {"b": 3, "c": 4})
    made = recipe(make=lambda: content, version=7, seed="s", meta={"a": 1, "b": 2})
    said_by(GoldenStore(tmp_path), made)
    store = GoldenStore(tmp_path)
    entry = store.entries()["ops/relu"].made
    assert (entry.how, entry.generator, entry.seed, entry.torch) == ("by hand", "ops@7", "s", torch.__version__)
    assert entry.machine.endswith(torch.backends.cpu.get_cpu_capability())
    assert store.read("ops/relu").meta == {"a": 1, "b": 3, "c": 4}, "what is known afterwards counts"


def test_what_changed_is_told_of_goldens_that_were_there(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path)
    assert said_by(store, recipe(), recipe("ops/gelu")) == ["2 of 2: ops/gelu"]
    again = said_by(store, recipe(value=2.0), recipe("ops/gelu"), recipe("ops/new"))
    assert again == ["ops/relu: largest relative difference 0.5, in x", "3 of 3: ops/new"]
    assert said_by(store, recipe(value=2.0), force_terminal=True) == []
    for value in (1.0, 2.0):
        named = recipe(make=lambda value=value: {"[red]x": torch.full((2,), value)})
        told = said_by(store, named)
    assert told[-1] == "ops/relu: largest relative difference 0.5, in [red]x"


def test_several_prefixes_can_be_asked_for_and_each_is_of_something(tmp_path: Path) -> None:
    given = [recipe(name) for name in ("ops/a", "ops/b", "models/c")]
    said_by(GoldenStore(tmp_path), *given, only=("ops/a", "models"))
    assert GoldenStore(tmp_path).ids() == ("models/c", "ops/a")
    with pytest.raises(AscendError, match="of that name: 'x', 'y'"):
        said_by(GoldenStore(tmp_path), *given, only=("x", "ops", "y"))


def offer(folder: Path, *names: str, built: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "from types import SimpleNamespace",
        f"def goldens(): return [SimpleNamespace(id=name) for name in {names!r}]",
        built,
    ]
    (folder / "goldens.py").write_text("\n".join(lines), encoding="utf-8")


def loaded(root: Path, *only: str) -> list[str]:
    return [each.id for each in commands.load_recipes(root / "suites_of_files", only or commands.ALL)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with suites whose modules are read as they are, and not imported."""

    def read(file: Path) -> Any:
        names: dict[str, Any] = {}
        exec(file.read_text(encoding="utf-8"), names)  # noqa: S102
        return type("Module", (), {name: staticmethod(each) for name, each in names.items() if callable(each)})

    monkeypatch.setattr(commands, "_recipes_in", read)
    offer(tmp_path / "suites_of_files" / "ops", "ops/a")
    offer(tmp_path / "suites_of_files" / "models", "models/b")
    offer(tmp_path / "tools" / "ops", "ops/c")
    return tmp_path


def test_recipes_are_in_suites_and_in_tools(root: Path) -> None:
    assert loaded(root) == ["models/b", "ops/a", "ops/c"]
    assert loaded(root, "ops/a", "none") == ["ops/a", "ops/c"], "those of a suite whose ids may begin so"
    assert loaded(root, "mod") == ["models/b"]
    offer(root / "tools" / "ops", "ops/a")
    with pytest.raises(AscendError, match=r"offered twice: 'ops/a'\n"):
        loaded(root)


def test_each_suite_that_wants_to_know_is_told(root: Path) -> None:
    told: list[Any] = []
    (root / "suites_of_files" / "ops" / "goldens.py").write_text(
        "def goldens(): return []\ndef built(store): store.append('ops')", encoding="utf-8"
    )
    commands.tell_suites(root / "suites_of_files", told)  # type: ignore[arg-type]
    assert told == ["ops"]


def run(*line: str) -> Any:
    return CliRunner().invoke(commands.baseline, line, catch_exceptions=False, env={"COLUMNS": "200"})


def test_a_golden_is_shown_with_its_numbers(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path / "golden")
    tensors = {"b": torch.tensor([[1.0, -2.5]], dtype=torch.float64), "a": torch.empty(0, 3)}
    store.stage(Golden("ops/x", tensors, {"many": [1, 2, 3], "one": 4}), MADE)
    store.stage(Golden("ops/y", {}), MADE)
    store.flush()
    shown = run("show", "--baselines", str(tmp_path), "ops/x").output.replace("│", " ")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    entry = store.entries()["ops/x"]
    assert lines[:10] == [
        f"file: {store.path('ops/x')}",
        f"bytes: {entry.size_bytes}",
        f"sha256: {entry.sha256}",
        "how: by hand",
        "generator: ops@1",
        "seed: 0",
        "torch: 2.13.0",
        "numpy: 2.0.0",
        "machine: x86_64 AVX2",
        "meta: {'many': '3 entries', 'one': 4}",
    ]
    assert [line for line in lines if "float" in line] == ["a float32 [0, 3]", "b float64 [1, 2] -2.5 1"]
    assert run("show", "--baselines", str(tmp_path)).output == "ops/x\nops/y\n"
    run("revoke", "--baselines", str(tmp_path), "ops/y", "--reason", "  because ")
    assert run("show", "--baselines", str(tmp_path)).output == "ops/x\nops/y (revoked)\n"
    assert "revoked:   because\n" in run("show", "--baselines", str(tmp_path), "ops/y").output


def test_what_changed_is_listed_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = Changes(added=("a", "b"), changed=("c",), unchanged=("d", "e", "f"), removed=())
    monkeypatch.setattr(commands, "load_recipes", lambda *_: [])
    monkeypatch.setattr(commands, "build_goldens", lambda *_, **__: changes)
    assert run("build", "--baselines", str(tmp_path)).output.split("\n")[-5:-1] == [
        "added: a", "added: b", "changed: c", "2 added, 1 changed, 3 unchanged, 0 removed",
    ]  # fmt: skip


def test_torch_does_not_load_its_npu_for_goldens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(tmp_path / "golden", ("a", 1.0))
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", found := {})
        commands.baseline.callback()  # type: ignore[misc]
        assert found == {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        found["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
        commands.baseline.callback()  # type: ignore[misc]
        assert found == {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


@pytest.mark.parametrize("name", ["build", "verify", "revoke", "show"])
def test_options_are_explained_and_folders_are_paths(name: str) -> None:
    command = commands.baseline.commands[name]  # type: ignore[attr-defined]
    assert unexplained(command) == []
    assert paths(command) == {"baselines"}
    ids = {"build": {"ids": "[ID]..."}, "revoke": {"golden_id": "ID"}, "show": {"golden_id": "[ID]"}}
    assert placeholders(command) == ids.get(name, {})


def test_foreign_text_in_a_golden_is_shown_as_it_is(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path / "golden")
    store.stage(Golden("a", {"[red]x": torch.ones(1)}, {"b": "[bold]"}), replace(MADE, how="[red]by hand[/red]"))
    store.flush()
    shown = run("show", "--baselines", str(tmp_path), "a").output
    assert "[red]by hand[/red]" in shown
    assert "{'b': '[bold]'}" in shown
