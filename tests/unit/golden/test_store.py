"""The store gives back what was put in, refuses what was tampered with, and names the file."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch

from pytest_ascend.errors import GoldenError
from pytest_ascend.golden import Golden, GoldenStore, Provenance
from pytest_ascend.golden.files import decode, encode, locked
from pytest_ascend.system.files import canonical_json

MADE = Provenance(how="by hand", generator="ops@1", seed="0", torch="2.13.0", numpy="2.0.0", machine="x86_64 AVX2")


def relu(value: float = 2.5) -> Golden:
    tensors = {
        "output": torch.tensor([[0.0, value], [float("nan"), -0.0]], dtype=torch.float64),
        "half": torch.tensor([1.5, float("inf")], dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "empty": torch.empty(0, 3),
    }
    return Golden(id="ops/relu", tensors=tensors, meta={"dtypes": ["float32"], "shape": [2, 2]})


@pytest.fixture
def store(tmp_path: Path) -> GoldenStore:
    filled = GoldenStore(tmp_path / "golden")
    filled.stage(relu(), MADE)
    filled.stage(Golden(id="models/net/forward", tensors={"x": torch.ones(3)}), MADE)
    filled.flush()
    return GoldenStore(tmp_path / "golden")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_reading_gives_every_bit_dtype_and_shape_back(store: GoldenStore) -> None:
    golden = store.read("ops/relu")
    for name, tensor in relu().tensors.items():
        assert golden.tensors[name].dtype == tensor.dtype
        assert golden.tensors[name].shape == tensor.shape
        assert golden.tensors[name].flatten().view(torch.uint8).equal(tensor.flatten().view(torch.uint8))
    assert golden.meta == relu().meta


def test_tensors_that_share_memory_or_have_strides_are_stored_by_value(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3).requires_grad_()
    store = GoldenStore(tmp_path)
    store.stage(Golden(id="a", tensors={"x": base, "transposed": base.t(), "row": base[1]}), MADE)
    store.flush()
    assert store.read("a").tensors["transposed"].equal(base.detach().t())


def test_order_of_names_does_not_change_the_bytes() -> None:
    tensors = relu().tensors
    backwards = Golden(id="ops/relu", tensors=dict(reversed(tensors.items())), meta=relu().meta)
    assert encode(backwards) == encode(relu())


def test_what_a_reader_does_to_its_tensors_does_not_reach_the_next(store: GoldenStore) -> None:
    store.read("ops/relu").tensors["output"].zero_()
    assert store.read("ops/relu").tensors["output"][0, 1] == 2.5


def test_a_golden_is_read_from_disk_once(store: GoldenStore) -> None:
    store.read("ops/relu")
    store.path("ops/relu").unlink()
    assert store.read("ops/relu").id == "ops/relu"


def test_flushing_the_same_again_changes_no_byte(store: GoldenStore) -> None:
    before = contents(store.root)
    times = {path: path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file()}
    store.stage(relu(), MADE)
    changes = store.flush()
    assert contents(store.root) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert changes.unchanged == ("ops/relu",)


def test_another_torch_that_makes_the_same_bytes_changes_nothing(store: GoldenStore) -> None:
    before = contents(store.root)
    newer = Provenance(
        how="by hand", generator="ops@1", seed="0", torch="9.9.9", numpy="9.9.9", machine="aarch64 DEFAULT"
    )
    store.stage(relu(), newer)
    store.flush()
    assert contents(store.root) == before


def test_another_generator_is_a_change_even_with_the_same_bytes(store: GoldenStore) -> None:
    store.stage(relu(), Provenance(how="", generator="ops@2", seed="0", torch="", numpy="", machine=""))
    assert store.flush().changed == ("ops/relu",)


def test_flush_says_what_it_added_changed_and_removed(store: GoldenStore) -> None:
    store.stage(relu(3.0), MADE)
    store.stage(Golden(id="ops/gelu", tensors={"x": torch.ones(1)}), MADE)
    changes = store.flush(remove=["models/net/forward"])
    assert (changes.added, changes.changed, changes.removed) == (("ops/gelu",), ("ops/relu",), ("models/net/forward",))
    assert store.ids() == ("ops/gelu", "ops/relu")
    assert not store.path("models/net/forward").exists()


def test_two_writers_keep_each_others_goldens(tmp_path: Path) -> None:
    first, second = GoldenStore(tmp_path), GoldenStore(tmp_path)
    first.stage(Golden(id="a", tensors={}), MADE)
    second.stage(Golden(id="b", tensors={}), MADE)
    first.flush()
    second.flush()
    assert GoldenStore(tmp_path).ids() == ("a", "b")


def test_a_sound_store_has_no_problems(store: GoldenStore) -> None:
    assert list(store.problems()) == []


def test_every_flipped_bit_of_every_file_is_found_and_the_file_named(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path)
    store.stage(Golden(id="ops/tiny", tensors={"x": torch.ones(1)}), MADE)
    store.flush()
    for path in (store.path("ops/tiny"), store.manifest):
        sound = path.read_bytes()
        for position in range(len(sound) * 8):
            path.write_bytes(flipped(sound, position))
            problems = list(store.problems())
            assert str(path) in [problem.path for problem in problems], position
        path.write_bytes(sound)
    assert list(store.problems()) == []


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position // 8] ^= 1 << position % 8
    return bytes(changed)


@pytest.mark.parametrize("length", [0, 7, 8, 100, -1])
def test_a_golden_cut_short_is_an_error_that_names_it(store: GoldenStore, length: int) -> None:
    path = store.path("ops/relu")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(GoldenError, match="instead of") as caught:
        store.read("ops/relu")
    assert caught.value.path == str(path)


def test_a_missing_file_is_an_error_that_names_it_and_says_what_to_do(store: GoldenStore) -> None:
    store.path("ops/relu").unlink()
    with pytest.raises(GoldenError, match=r"relu\.safetensors is missing") as caught:
        store.read("ops/relu")
    assert "baseline build ops/relu" in caught.value.hint


def test_a_golden_that_nobody_made_is_an_error_that_says_what_to_do(store: GoldenStore) -> None:
    with pytest.raises(GoldenError, match="no golden 'ops/nothing'") as caught:
        store.read("ops/nothing")
    assert "baseline build ops/nothing" in caught.value.hint


def test_a_missing_manifest_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match=r"manifest\.json is missing"):
        GoldenStore(tmp_path).ids()


def test_a_golden_under_anothers_name_is_refused(store: GoldenStore) -> None:
    data = store.path("ops/relu").read_bytes()
    entries = json.loads(store.manifest.read_text(encoding="utf-8"))
    forged = GoldenStore(store.root)
    forged.stage(Golden(id="ops/fake", tensors={}), MADE)
    forged.flush()
    store.path("ops/fake").write_bytes(data)
    body = json.loads(store.manifest.read_text(encoding="utf-8"))
    body["goldens"]["ops/fake"] = entries["goldens"]["ops/relu"]
    write_manifest(store, body)
    with pytest.raises(GoldenError, match="it holds the golden 'ops/relu'"):
        GoldenStore(store.root).read("ops/fake")


def write_manifest(store: GoldenStore, body: dict[str, object]) -> None:
    said = {key: value for key, value in body.items() if key != "sha256"}
    digest = hashlib.sha256(canonical_json(said).encode()).hexdigest()
    store.manifest.write_text(canonical_json({**said, "sha256": digest}, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "golden_id",
    ["../escape", "ops/../../escape", "/etc/passwd", "ops//relu", "", ".hidden", "ops/.", "a\0b", "x" * 201],
)
def test_ids_that_could_lead_out_are_refused(store: GoldenStore, golden_id: str) -> None:
    with pytest.raises(GoldenError, match="is not the id of a golden"):
        store.read(golden_id)


def test_a_manifest_with_an_id_that_leads_out_is_refused(store: GoldenStore) -> None:
    body = json.loads(store.manifest.read_text(encoding="utf-8"))
    body["goldens"]["../escape"] = body["goldens"]["ops/relu"]
    write_manifest(store, body)
    with pytest.raises(GoldenError, match=r"manifest\.json is damaged"):
        store.read("ops/relu")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_out_of_the_store_is_refused(store: GoldenStore, tmp_path: Path, kind: str) -> None:
    inside = store.path("ops/relu") if kind == "file" else store.root / "ops"
    outside = tmp_path / "outside"
    inside.rename(outside)
    inside.symlink_to(outside)
    with pytest.raises(GoldenError, match="leads out of the store"):
        store.read("ops/relu")


def test_a_pipe_in_place_of_a_golden_is_refused_without_waiting(store: GoldenStore) -> None:
    store.path("ops/relu").unlink()
    os.mkfifo(store.path("ops/relu"))
    with pytest.raises(GoldenError, match="not a regular file"):
        store.read("ops/relu")


def test_a_file_that_nobody_listed_is_a_problem(store: GoldenStore) -> None:
    stray = store.root / "ops" / "stray.safetensors"
    stray.write_bytes(b"")
    assert [problem.path for problem in store.problems()] == [str(stray)]


def test_a_golden_with_a_meta_that_json_lacks_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        GoldenStore(tmp_path).stage(Golden(id="a", tensors={}, meta={"limit": float("nan")}), MADE)


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\xff" * 16, b"\x02" + b"\x00" * 7 + b"{}"])
def test_bytes_that_are_no_golden_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no golden"):
        decode(data)


def test_a_store_is_locked_in_the_folder_that_a_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(tmp_path / "made" / "cache"))
    with locked(tmp_path):
        assert len([*(tmp_path / "made/cache/locks").iterdir()]) == 1


def test_where_no_store_can_be_locked_one_line_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(GoldenError, match=r"cannot be locked: .*file") as caught, locked(tmp_path):
        pass
    assert "set PYTEST_ASCEND_CACHE" in caught.value.hint
