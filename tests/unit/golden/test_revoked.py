"""A revoked golden is judged by no more, says why, and comes back only with other content."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.errors import GoldenError
from pytest_ascend.golden import Golden, GoldenStore, Provenance
from pytest_ascend.golden.commands import baseline
from pytest_ascend.golden.store import NAME

MADE = Provenance(how="by hand", generator="ops@1", seed="0", torch="", numpy="", machine="")


def put(root: Path, value: float) -> GoldenStore:
    store = GoldenStore(root)
    store.stage(Golden("ops/relu", {"x": torch.tensor([value])}), MADE)
    store.flush()
    return GoldenStore(root)


def test_a_revoked_golden_is_refused_with_its_reason(tmp_path: Path) -> None:
    put(tmp_path, 1.0).revoke("ops/relu", "its second sample divides by zero")
    with pytest.raises(GoldenError, match="'ops/relu' is revoked: its second sample divides by zero"):
        GoldenStore(tmp_path).read("ops/relu")


def test_the_store_in_hand_refuses_it_at_once(tmp_path: Path) -> None:
    store = put(tmp_path, 1.0)
    store.read("ops/relu")
    store.revoke("ops/relu", "wrong")
    with pytest.raises(GoldenError, match="revoked"):
        store.read("ops/relu")


def test_a_golden_with_other_content_is_not_revoked(tmp_path: Path) -> None:
    put(tmp_path, 1.0).revoke("ops/relu", "wrong")
    assert put(tmp_path, 2.0).read("ops/relu").tensors["x"].tolist() == [2.0]
    assert GoldenStore(tmp_path).revoked() == {}


def test_what_is_no_golden_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="no golden 'ops/gelu'"):
        put(tmp_path, 1.0).revoke("ops/gelu", "wrong")


def test_a_revoked_golden_is_as_sound_as_before(tmp_path: Path) -> None:
    store = put(tmp_path, 1.0)
    store.revoke("ops/relu", "wrong")
    assert list(store.problems()) == []


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 2, "revoked": {}}', '{"schema": 1, "revoked": {"../x": {}}}'])
def test_a_damaged_list_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    put(tmp_path, 1.0)
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(GoldenError, match=NAME):
        GoldenStore(tmp_path).read("ops/relu")


def test_the_command_revokes_and_shows_it(tmp_path: Path) -> None:
    put(tmp_path / "golden", 1.0)
    run = CliRunner().invoke
    done = run(baseline, ["revoke", "--baselines", str(tmp_path), "ops/relu", "--reason", "disputed"])
    assert (done.exit_code, "ops/relu is revoked" in done.output) == (0, True)
    assert "ops/relu (revoked)" in run(baseline, ["show", "--baselines", str(tmp_path)]).output
    assert "disputed" in run(baseline, ["show", "--baselines", str(tmp_path), "ops/relu"]).output


def test_without_a_reason_nothing_is_revoked(tmp_path: Path) -> None:
    put(tmp_path / "golden", 1.0)
    done = CliRunner().invoke(baseline, ["revoke", "--baselines", str(tmp_path), "ops/relu", "--reason", " "])
    assert done.exit_code != 0
    assert not (tmp_path / "golden" / NAME).exists()
