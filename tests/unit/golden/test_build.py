"""The build command makes what recipes say, reports it, and touches nothing else."""

import io
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from rich.progress import Progress

from pytest_ascend.errors import AscendError, GoldenError, UsageError
from pytest_ascend.golden import Changes, Golden, GoldenRecipe, GoldenStore
from pytest_ascend.golden.commands import EVERY, baseline, difference, load_recipes, reproducible
from pytest_ascend.golden.commands import build_goldens as build


def recipe(golden_id: str = "ops/relu", value: float = 1.0) -> GoldenRecipe:
    return GoldenRecipe(id=golden_id, make=lambda: {"x": torch.full((2,), value)}, how="by hand")


def made(store: GoldenStore, *recipes: GoldenRecipe, only: str = "") -> Changes:
    with Progress(disable=True) as progress:
        return build(store, recipes, only=(only,), progress=progress)


def test_a_second_build_changes_no_byte(tmp_path: Path) -> None:
    store = GoldenStore(tmp_path)
    made(store, recipe(), recipe("ops/gelu"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changes = made(GoldenStore(tmp_path), recipe("ops/gelu"), recipe())
    assert changes.unchanged == ("ops/gelu", "ops/relu")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_only_the_chosen_goldens_are_made(tmp_path: Path) -> None:
    assert made(GoldenStore(tmp_path), recipe(), recipe("ops/gelu"), only="ops/g").added == ("ops/gelu",)


def test_a_prefix_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AscendError, match="no recipe makes a golden of that name: 'nets'"):
        made(GoldenStore(tmp_path), recipe(), only="nets")


def test_what_no_recipe_makes_any_more_is_removed_but_a_users_golden_stays(tmp_path: Path) -> None:
    made(GoldenStore(tmp_path), recipe(), recipe("ops/old"), recipe("user/block"))
    changes = made(GoldenStore(tmp_path), recipe())
    assert changes.removed == ("ops/old",)
    assert GoldenStore(tmp_path).ids() == ("ops/relu", "user/block")


def test_a_prefix_limits_what_is_removed(tmp_path: Path) -> None:
    made(GoldenStore(tmp_path), recipe(), recipe("ops/old"))
    assert made(GoldenStore(tmp_path), recipe(), only="ops/relu").removed == ()


def test_a_recipe_that_fails_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    bad = GoldenRecipe(id="ops/bad", make=lambda: {"x": 1 / 0}, how="")  # type: ignore[dict-item]
    with pytest.raises(AscendError, match="'ops/bad' could not be made: ZeroDivisionError"):
        made(GoldenStore(tmp_path), recipe(), bad)
    assert list(tmp_path.iterdir()) == []


def test_making_uses_one_thread_and_leaves_the_number_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with reproducible():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("before", [True, False])
def test_making_uses_deterministic_algorithms_and_leaves_the_setting_as_it_was(before: bool) -> None:
    usual = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(before)
        with reproducible():
            assert torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled() == before
    finally:
        torch.use_deterministic_algorithms(usual)


def test_where_nobody_watches_a_bar_some_lines_tell_the_progress(tmp_path: Path) -> None:
    said = io.StringIO()
    with Progress(console=Console(file=said, width=200), disable=True) as progress:
        build(GoldenStore(tmp_path), [recipe(f"ops/{i:04}") for i in range(2 * EVERY + 1)], progress=progress)
    lines = [line.split(":")[0] for line in said.getvalue().splitlines() if " of " in line]
    assert lines == [f"{number} of {2 * EVERY + 1}" for number in (EVERY, 2 * EVERY, 2 * EVERY + 1)]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ([1.0, 2.0], [1.0, 2.5], "largest relative difference 0.2, in x"),
        ([1.0, float("nan")], [1.0, float("nan")], "other meta"),
        ([1.0, float("nan")], [1.0, 2.0], "largest relative difference inf, in x"),
        ([1.0], [1.0, 2.0], "other tensors, shapes or dtypes"),
    ],
)
def test_a_change_is_described_by_how_much(old: list[float], new: list[float], line: str) -> None:
    goldens = [Golden(id="a", tensors={"x": torch.tensor(values)}) for values in (old, new)]
    assert difference(*goldens) == line


def test_goldens_without_tensors_differ_in_their_meta_alone() -> None:
    assert (
        difference(Golden(id="a", tensors={}, meta={"x": 1}), Golden(id="a", tensors={}, meta={"x": 2})) == "other meta"
    )


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of suites under a name that no other package has."""
    folder = tmp_path / "suites_of_test"
    (folder / "ops").mkdir(parents=True)
    for package in (folder, folder / "ops"):
        (package / "__init__.py").touch()
    monkeypatch.setattr("pytest_ascend.golden.commands.folder", lambda name: folder if name == "suites" else tmp_path)
    yield folder
    # Only what this folder brought: others, such as torch's libraries of operators, do not bear a second import.
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def offer(suites: Path, *ids: str) -> None:
    lines = [
        "import torch",
        "from pytest_ascend.golden import GoldenRecipe",
        "def goldens():",
        f"    for name in {ids!r}:",
        "        yield GoldenRecipe(id=name, make=lambda: {'x': torch.ones(2)}, how='ones', seed='s')",
    ]
    (suites / "ops" / "goldens.py").write_text("\n".join(lines), encoding="utf-8")


def test_recipes_are_found_in_the_suites(suites: Path) -> None:
    offer(suites, "ops/relu", "ops/gelu")
    assert [each.id for each in load_recipes(suites)] == ["ops/relu", "ops/gelu"]


def test_only_suites_that_can_have_such_ids_are_asked(suites: Path) -> None:
    (suites / "ops" / "goldens.py").write_text("raise RuntimeError", encoding="utf-8")
    assert load_recipes(suites, ("models/",)) == []


def test_a_suite_cannot_offer_goldens_of_another(suites: Path) -> None:
    offer(suites, "models/net")
    with pytest.raises(AscendError, match="another suite: 'models/net'"):
        load_recipes(suites)


def test_an_id_cannot_be_offered_twice(suites: Path) -> None:
    offer(suites, "ops/relu", "ops/relu")
    with pytest.raises(AscendError, match="offered twice: 'ops/relu'"):
        load_recipes(suites)


def test_the_commands_build_show_and_verify(suites: Path, tmp_path: Path) -> None:
    offer(suites, "ops/relu")
    run = CliRunner().invoke
    assert "1 added, 0 changed, 0 unchanged, 0 removed" in run(baseline, ["build"]).output
    assert "0 added, 0 changed, 1 unchanged, 0 removed" in run(baseline, ["build"]).output
    assert run(baseline, ["show"]).output == "ops/relu\n"
    shown = run(baseline, ["show", "ops/relu"]).output
    assert all(each in shown for each in ("ops@1", torch.__version__, "float32", "[2]", "sha256"))
    result = run(baseline, ["verify"])
    assert (result.exit_code, result.output) == (0, f"1 golden is in {tmp_path / 'golden'}, as the manifest says\n")
    (tmp_path / "golden" / "ops" / "relu.safetensors").write_bytes(b"")
    result = run(baseline, ["verify"])
    assert result.exit_code == 1
    assert "relu.safetensors is damaged" in result.output


def test_a_suite_is_told_when_its_bundled_goldens_were_built(suites: Path, tmp_path: Path) -> None:
    offer(suites, "ops/relu")
    file = suites / "ops" / "goldens.py"
    tells = "\n\ndef built(store):\n    (store.root / 'told').write_text(' '.join(store.ids()))\n"
    file.write_text(file.read_text(encoding="utf-8") + tells, encoding="utf-8")
    (tmp_path / "mine").mkdir()
    CliRunner().invoke(baseline, ["build", "--baselines", str(tmp_path / "mine")])
    assert not list(tmp_path.rglob("told")), "a user's goldens are nothing that a suite keeps"
    CliRunner().invoke(baseline, ["build"], catch_exceptions=False)
    assert (tmp_path / "golden" / "told").read_text(encoding="utf-8") == "ops/relu"


def test_the_folder_of_baselines_can_be_chosen(suites: Path, tmp_path: Path) -> None:
    offer(suites, "ops/relu")
    (tmp_path / "mine").mkdir()
    CliRunner().invoke(baseline, ["build", "--baselines", str(tmp_path / "mine")])
    assert GoldenStore(tmp_path / "mine" / "golden").ids() == ("ops/relu",)


def test_a_folder_that_does_not_exist_is_one_clear_error(suites: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(baseline, ["verify", "--baselines", str(tmp_path / "nowhere")])
    assert isinstance(result.exception, UsageError)


def test_showing_an_unknown_id_is_one_clear_error(suites: Path) -> None:
    offer(suites, "ops/relu")
    CliRunner().invoke(baseline, ["build"])
    assert isinstance(CliRunner().invoke(baseline, ["show", "ops/none"]).exception, GoldenError)
