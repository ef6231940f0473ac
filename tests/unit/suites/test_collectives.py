"""What ranks say is judged: whether a barrier waits, and what operators give beside a product."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.distributed.ranks import Answer
from suites.distributed import CASES, products
from suites.distributed.test_collectives import test_collective as judge_collective
from suites.distributed.test_collectives import test_product as judge_product


class Said:
    def __init__(self, *answers: Answer) -> None:
        self.answers, self.count = answers, len(answers)

    def run(self, *_: Any, **__: Any) -> tuple[Answer, ...]:
        return self.answers


def judged(by: Callable[..., None], subject: str, *answers: Answer) -> None:
    case = next(each for each in CASES if each.subject == subject and each.dtype in ("float16", ""))
    given: tuple[Any, ...] = (None, lambda *_: None) if by is judge_collective else (lambda *_: None,)
    by(case, Said(*answers), *given)


@pytest.mark.parametrize(("left", "early"), [((2.5, 2.1), ""), ((1.1, 2.1), r"\[0\]"), ((1.1, 1.9), r"\[0, 1\]")])
def test_no_rank_leaves_a_barrier_before_the_last_one_has_come(left: tuple[float, float], early: str) -> None:
    answers = [Answer({}, {"found": list(each)}) for each in zip((1.0, 2.0), left, strict=True)]
    expected = pytest.raises(AssertionError, match=f"ranks {early} of 2 leave") if early else contextlib.nullcontext()
    with expected:
        judged(judge_collective, "barrier", *answers)


@pytest.mark.parametrize("how", products.EXCHANGED)
def test_what_was_exchanged_is_judged_beside_the_product(how: str) -> None:
    answers = [
        Answer({"product": products.expected(how, "float16", rank, 2)[0].half(),
                "factor": products.factor(how, "float16", rank, 2)}, {})
        for rank in range(2)
    ]  # fmt: skip
    judged(judge_product, how, *answers)
    stale = Answer({**answers[1].tensors, "factor": torch.zeros_like(answers[1]["factor"])}, {})
    with pytest.raises(AssertionError, match="another factor on rank 1"):
        judged(judge_product, how, answers[0], stale)
