"""The program of a failing case loads the inputs of the case, bit for bit, however large they are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from pytest_ascend.errors import UsageError
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.calling import tensors
from pytest_ascend.operators.failing import SavedCall, bundled_operator, program
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.target import Call, Target
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.bundled import folder
from suites.ops import CASES
from suites.ops.table import target_of

CPU = torch.device("cpu")
BY_ID = {case.id: case for case in CASES}


def subject_of(case_id: str) -> Target:
    case = BY_ID[case_id]
    return target_of(case, CPU, GoldenStore(folder("baselines") / "golden"))


def about(subject: Target, sample: Sample) -> Verdict:
    """Return a verdict that names a sample, which was called."""
    subject.note(Call(sample))
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
def test_inputs_are_those_of_the_case(case_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = subject_of(case_id)
    sample = max(subject.samples, key=lambda each: largest(subject, each))
    text = program(subject, tmp_path, about(subject, sample))
    with pytest.raises(SystemExit) as left:
        exec(compile(text, "program", "exec"), {})  # noqa: S102  (our own words)
    assert not left.value.code, "the CPU is right"
    assert "largest difference" in capsys.readouterr().out
    expected = tensors(subject.on_cpu(sample))
    assert expected
    (file,) = tmp_path.iterdir()
    call = SavedCall.load(file)
    assert all(map(same_bits, tensors((call.args, dict(call.kwargs))), expected))
    assert len(text.splitlines()) <= 12


def test_a_function_without_a_name_is_that_of_the_operator(tmp_path: Path) -> None:
    subject = subject_of("ops/argmax/forward/float32")
    subject.operator = replace(subject.operator, function=partial(torch.argmax))
    assert "bundled_operator('ops/argmax').function" in program(subject, tmp_path, None)
    assert bundled_operator("ops/argmax").name == "argmax"
    assert bundled_operator("ops/linalg.det").function is torch.linalg.det
    with pytest.raises(UsageError, match="no bundled operator"):
        bundled_operator("ops/nothing")
