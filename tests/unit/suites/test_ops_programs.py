"""The program of a failing case makes the inputs that the case was asked with, bit for bit, however large they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.calling import tensors, upstream
from pytest_ascend.operators.reproducing import _normal_grad_output, program
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import Target
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run import inputs
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.targets import target_of

CPU = torch.device("cpu")
BY_ID = {case.id: case for case in CASES}


def subject_of(case_id: str) -> Target:
    case = BY_ID[case_id]
    return target_of(case, CPU, GoldenStore(folder("baselines") / "golden"))


def about(subject: Target, sample: Sample) -> Verdict:
    """Return a verdict that names a sample."""
    path = f"{subject.operator.name}[{sample.name!r}][0]"
    return Verdict(path=path, agrees=False, standard="error-model@1", headline="")


def largest(subject: Target, sample: Sample) -> int:
    return max((each.numel() for each in tensors(subject.on_cpu(sample))), default=0)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
        return False
    return torch.equal(one.nan_to_num(7), other.nan_to_num(7)) and torch.equal(one.signbit(), other.signbit())


@pytest.mark.parametrize(
    "case_id",
    [
        "ops/sort/forward/float32",
        "ops/sort/forward/int64",
        "ops/conv2d/forward/float16",
        "ops/exp/forward/bfloat16",
        "ops/sum/forward/float32",
        "ops/linalg.matrix_norm/forward/float32",
    ],
)
def test_inputs_are_those_of_the_case(case_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    subject = subject_of(case_id)
    sample = max(subject.samples, key=lambda each: largest(subject, each))
    held: dict[str, Any] = {}
    with pytest.raises(SystemExit) as left:
        exec(compile(program(subject, about(subject, sample)), "program", "exec"), held)  # noqa: S102
    assert not left.value.code, "the CPU is right"
    assert "largest difference" in capsys.readouterr().out
    expected = tensors(subject.on_cpu(sample))
    assert expected
    for place, each in enumerate(expected):
        assert same_bits(held[f"x{place}"], each)


def test_some_of_these_inputs_are_too_large_to_be_written_down() -> None:
    subject = subject_of("ops/exp/forward/float32")
    sample = max(subject.samples, key=lambda each: largest(subject, each))
    assert "inputs.uniform(" in program(subject, about(subject, sample))


@pytest.mark.parametrize("all_bits", [False, True])
@pytest.mark.parametrize("one_set_of_inputs", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_is_said_of_the_gradient_of_an_output_draws_it_again(
    dtype: str, one_set_of_inputs: bool, all_bits: bool
) -> None:
    subject = subject_of(f"ops/exp/forward/{dtype}")
    sample = replace(subject.samples[0], all_bits=all_bits)
    subject.operator = operator = replace(subject.operator, one_set_of_inputs=one_set_of_inputs)
    output = torch.zeros(3, 5, dtype=subject.dtype, requires_grad=True).exp()
    (drawn,) = upstream(operator, sample, [output], subject.dtype)
    said = _normal_grad_output(subject, sample, f"ops/exp/{sample.name}/up/0", drawn)
    assert same_bits(eval(said, {"inputs": inputs, "torch": torch}), drawn)  # noqa: S307  (our own words)
