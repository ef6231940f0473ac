"""Programs of bundled models: each is Python, and the one of a training ends by what it finds and what is allowed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from pytest_ascend.records.verdict import Limit, Verdict, Worst
from suites.models import test_models
from suites.models.variants import VARIANTS
from suites.training import RUNS
from suites.training import test_training as training

CPU = torch.device("cpu")


def verdict(path: str, allowed: float) -> Verdict:
    leaf = Verdict(
        path=path,
        agrees=False,
        standard="error-model@1",
        headline="1 of 20 elements differs",
        worst=Worst(index=(3,), actual="1.0", expected="2.0"),
        limit=Limit(name="error of one element", value=allowed),
    )
    return Verdict(
        path="curve", agrees=False, standard=leaf.standard, headline=leaf.headline, worst=leaf.worst, leaves=(leaf,)
    )


@pytest.mark.parametrize(
    "computation",
    [
        test_models.computation_of_run("resnet50", "autocast-bfloat16", "gradients"),
        test_models.computation(VARIANTS[0]),
        test_models.computation(VARIANTS[-1], alone=True),
    ],
)
def test_the_program_of_a_bundled_model_is_python(computation) -> None:
    program = computation.reproduce("models/x", CPU)(verdict("gradients['fc.weight']", 0.0))
    compile(program, "program.py", "exec")
    assert "torch_npu" not in program


@pytest.mark.parametrize(("allowed", "code"), [(1e-3, 0), (0.0, 1)])
def test_the_program_of_a_training_ends_by_what_is_allowed(
    allowed: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(each for each in RUNS if (each.model, each.optimizer, each.mode) == ("small-vit", "adamw", "float32"))
    path = tmp_path / "program.py"
    path.write_text(
        training.computation(run).reproduce("training/x", CPU)(verdict("curve['losses']", allowed)), encoding="utf-8"
    )
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path))
    assert int(ended.value.code) == code
    said = capsys.readouterr().out
    assert "losses: largest difference" in said
    assert f"allowed {allowed:.6g}: {'passed' if code == 0 else 'FAILED'}" in said


def test_without_a_tensor_there_is_no_program() -> None:
    write = test_models.computation_of_run("resnet50", "float32", "loss").reproduce("models/x", CPU)
    for said in (None, verdict("", 0.0)):
        with pytest.raises(ValueError, match="no tensor"):
            write(said)
