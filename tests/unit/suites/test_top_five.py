"""Top-5 agreement: classes may change places where correct logits may, and nowhere else."""

from __future__ import annotations

import torch

from suites.models.test_models import agreement, lost

EXACT = torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0, 4.9995, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=torch.float64)
RIGHT = EXACT.topk(5).indices


def lost_with(classes: torch.Tensor, off: float) -> torch.Tensor:
    return lost(classes, EXACT, [(EXACT + off).float()], torch.float32)


def test_the_right_classes_agree_in_any_order() -> None:
    assert agreement(RIGHT.flip(1), EXACT) == 1.0
    assert not lost_with(RIGHT.flip(1), 0.0).any()


def test_neighbours_may_change_places_where_correct_logits_are_as_far_off() -> None:
    classes = RIGHT.clone()
    classes[0, 4] = 5
    assert agreement(classes, EXACT) == 0.9
    assert not lost_with(classes, 1e-4).any()
    assert lost_with(classes, 0.0)[0, 4] > 0


def test_a_class_that_is_none_of_the_best_is_lost() -> None:
    classes = RIGHT.clone()
    classes[1, 0] = 0
    assert int((lost_with(classes, 1e-3) > 0).sum()) == 1


def test_a_class_that_is_named_twice_is_lost() -> None:
    classes = RIGHT.clone()
    classes[0, 3] = classes[0, 0]
    assert lost_with(classes, 1e-3)[0].isinf().sum() == 1
