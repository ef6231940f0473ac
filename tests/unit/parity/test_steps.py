"""Where a training went wrong: fingerprints hold every element, and the message of a disagreement begins with it."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.migration.target import target_model
from pytest_ascend.parity.ensemble import BUCKETS, KEPT, PERIOD, Reference, fingerprint, first_wrong
from pytest_ascend.parity.model import computed
from pytest_ascend.precision import compare
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_small_tensor_is_its_own_fingerprint() -> None:
    tensor = normal(8, KEPT + BUCKETS)[:, ::8].half()
    assert fingerprint(tensor).equal(tensor.flatten())


@pytest.mark.parametrize("size", [129, PERIOD - 1, PERIOD, PERIOD + 1, 3 * PERIOD + 77])
def test_any_element_changes_the_fingerprint_by_its_size_over_the_root_of_the_number(size: int) -> None:
    tensor = normal(size)
    for place in (1, size // 2, size - 2):
        changed = tensor.clone()
        changed[place] += 100
        gap = (fingerprint(changed).double() - fingerprint(tensor).double())[KEPT:].abs()
        rows = -(-size // BUCKETS)
        assert int((gap > 50 / rows**0.5).sum()) == 1
        assert gap.max() < 300 / rows**0.5


def test_sums_are_about_as_large_as_elements_and_correct_errors_stay_what_they_are() -> None:
    exact = normal(8, 64, 56, 56).double()
    found = fingerprint(exact)
    assert 0.5 < found[KEPT:].std() < 2
    assert compare(fingerprint(exact.float()), found).agrees
    assert not compare(fingerprint((exact * (1 + 1e-5)).float()), found).agrees


def test_images_that_are_exchanged_are_seen() -> None:
    exact = normal(4, 3, 224, 224).double()
    found = fingerprint(exact[[1, 0, 2, 3]].float())
    assert not compare(found[KEPT:], fingerprint(exact)[KEPT:]).agrees


def traced(**loss: float) -> dict[str, dict[str, torch.Tensor]]:
    return {name.replace("_", " ").replace(" loss", ", loss"): {"loss": torch.tensor(x)} for name, x in loss.items()}


def test_the_first_wrong_step_is_the_first_that_reference_runs_do_not_explain() -> None:
    exact = {key: {"loss": each["loss"].double()} for key, each in traced(step_1_loss=2.0, step_2_loss=1.0).items()}
    right = Reference(exact, (traced(step_1_loss=2.0, step_2_loss=1.0001),))
    assert not first_wrong(traced(step_1_loss=2.0, step_2_loss=1.0001), right, branching=False)
    assert (
        first_wrong(traced(step_1_loss=2.1, step_2_loss=3.0), right, branching=False) == "first wrong at step 1, loss"
    )
    assert (
        first_wrong(traced(step_1_loss=2.0, step_2_loss=1.1), right, branching=False) == "first wrong at step 2, loss"
    )


def test_a_disagreement_begins_with_where_it_began() -> None:
    noted: list[object] = []
    judge = PrecisionCompare(note=noted.append)
    with pytest.raises(Disagreement, match=r"^losses: first wrong at step 3, loss; 1 of 2 elements differ"):
        judge(
            torch.tensor([1.0, 2.0]),
            torch.tensor([1.0, 3.0]),
            name="losses",
            locate=lambda _: "first wrong at step 3, loss",
        )
    assert "first wrong at step 3" in str(noted[0])


def test_what_agrees_is_not_located() -> None:
    PrecisionCompare(note=lambda _: None)(1.0, 1.0, locate=lambda _: pytest.fail("asked where nothing is wrong"))


def test_a_model_without_parameters_is_not_trained() -> None:
    with pytest.raises(UsageError, match="has no parameters"):
        computed(target_model(lambda: torch.nn.Softmax(-1), "2x4"), "training", torch.device("cpu"), torch.float32)
