"""What the model suite stores: every case has its goldens, reference runs are finite, and the most wrong ones stay."""

import pytest
import torch
from torch import nn

from pytest_ascend.golden import GoldenStore
from pytest_ascend.system.bundled import folder
from suites.models import CASES, CASES_OF_RUN, PROPERTIES
from suites.models.computation import MODES, Observed
from suites.models.goldens import WAYS, expected, goldens, most_wrong, moved, reference_runs

STORE = GoldenStore(folder("baselines") / "golden")


def observed(value: float) -> Observed:
    return {"loss": {"loss": torch.tensor([value])}}


def test_smoke_is_one_forward_pass_of_the_model_with_fewer_weights() -> None:
    assert [case.id for case in CASES if case.level == "smoke"] == ["models/resnet50/forward/float32"]


def test_autocast_has_cases_of_its_own() -> None:
    ids = {case.id for case in CASES}
    assert {"models/vit_b_16/training/float32", "models/vit_b_16/autocast-training/bfloat16"} <= ids
    assert len(ids) == len(CASES)


def test_every_recipe_is_in_the_bundled_store() -> None:
    assert {recipe.id for recipe in goldens()} == {each for each in STORE.ids() if each.startswith("models/")}


@pytest.mark.parametrize(("model", "mode"), CASES_OF_RUN)
@pytest.mark.parametrize("what", PROPERTIES)
def test_goldens_fit_together(model: str, mode: str, what: str) -> None:
    right, allowed_by = expected(STORE, model, what), reference_runs(STORE, model, mode, what)
    assert right
    assert len(allowed_by) >= 2
    for one in allowed_by:
        assert {name: tensor.shape for name, tensor in one.items()} == {name: t.shape for name, t in right.items()}
        assert all(tensor.isfinite().all() for tensor in one.values())


def test_goldens_of_the_forward_pass_are_float64_and_reference_runs_are_not() -> None:
    assert expected(STORE, "resnet50", "forward")["logits"].dtype is torch.float64
    autocast = reference_runs(STORE, "resnet50", "autocast-bfloat16", "forward")
    assert {one["logits"].dtype for one in autocast} == {torch.bfloat16}


def test_every_run_has_reference_runs_and_a_mode() -> None:
    assert set(WAYS) == set(CASES_OF_RUN)
    assert {mode for _, mode in CASES_OF_RUN} <= set(MODES)


def test_the_most_wrong_results_are_kept_largest_error_first() -> None:
    kept = most_wrong([observed(value) for value in (1.0, 1.5, 0.9, 1.2)], observed(1.0))
    assert [round(float(one["loss"]["loss"]), 3) for one in kept] == [1.5, 1.2, 0.9]


def test_a_reference_run_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        most_wrong([observed(1.0), observed(float("nan"))], observed(1.0))


@pytest.mark.parametrize("by", [1, 2**14])
def test_moving_weights_stays_close_and_leaves_zero_alone(by: int) -> None:
    model = nn.Linear(64, 64)
    with torch.no_grad():
        model.bias.zero_()
        model.weight.uniform_(0.6, 0.9, generator=torch.Generator().manual_seed(0))
    before = model.weight.detach().clone()
    moved("test", by)(model)
    change = (model.weight.detach() - before).abs()
    assert not model.bias.any()
    assert change.max() == by * 2**-24
    assert 0.6 < (change > 0).float().mean() < 0.73
