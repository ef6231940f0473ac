"""A user's model is looked at from every side by one option, a marker, or a fixture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.forks import apart
from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]
ROOT = Path(__file__).resolve().parents[2]


#: Cases in which torch takes oneDNN's LSTM in bfloat16, which not every processor has.
IN_BFLOAT16 = ("autocast-forward/bfloat16", "autocast-training/bfloat16")


def has_lstm_in_bfloat16() -> bool:
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(4, 4)(torch.zeros(1, 1, 4))
    except RuntimeError:
        return False
    return True


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run ``pytest --ascend`` on the CPU in a process of its own: optimizers load parts of torch only once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return lambda *arguments: apart(pytester, "--ascend", "--ascend-device=cpu", *arguments)


def test_a_model_is_looked_at_from_every_side(run: Callable[..., pytest.RunResult], lines: Lines) -> None:
    name = "tests.architectures:decoder"
    assert run(f"--ascend-model={name}", "--ascend-model=input=tests.architectures:decoder_inputs").ret == 0
    found = {line["case"]["id"].removeprefix(f"user/{name}/"): line for line in lines("record")}
    assert {line["outcome"] for line in found.values()} == {"passed"}
    assert {"forward/float32", "forward/bfloat16", "layers/float32", "gradients/float32", "memory/float32"} <= set(
        found
    )
    assert len(found["training/float32"]["series"]["loss_actual"]) == 6


def test_models_of_other_kinds_and_those_of_the_manual_pass(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester, lines: Lines
) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block
    pytester.makepyfile(
        test_manual=block[1],
        test_kinds="""
        import pytest

        @pytest.mark.ascend_model("tests.architectures:unet")
        def test_unet(ascend_model_case):
            ascend_model_case()

        @pytest.mark.ascend_model("tests.architectures:tagger", inputs="2x5:int64:50")
        def test_lstm(ascend_model_case):
            ascend_model_case()

        @pytest.mark.ascend_model("tests.architectures:experts", inputs="tests.architectures:experts_inputs")
        def test_experts(ascend_model_case):
            ascend_model_case()
        """,
    )
    run("test_manual.py", "test_kinds.py")
    outcomes = [(line["case"]["id"], line["outcome"]) for line in lines("record")]
    lacking = set() if has_lstm_in_bfloat16() else {f"user/tests.architectures:tagger/{each}" for each in IN_BFLOAT16}
    assert [each for each in outcomes if each[1] != "passed" and each[0] not in lacking] == []
    assert len(outcomes) == 4 * 9 + 1


def test_the_first_wrong_layer_of_a_rewritten_model_is_named(pytester: pytest.Pytester, ascend: Run) -> None:
    pytester.makepyfile(
        wrong_somewhere="""
        import torch
        from torch import nn

        class Half(nn.Linear):
            def forward(self, x):
                # On the CPU the device and its reference are told apart by the dtype of the reference.
                return super().forward(x.half().float()) if x.dtype is torch.float32 else super().forward(x)

        def model():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(8, 8), nn.GELU(), Half(8, 4))
        """
    )
    pytester.makepyfile(
        test_wrong="""
        import pytest
        import torch
        from wrong_somewhere import Half, model

        class Fixed(Half):
            forward = torch.nn.Linear.forward

        def test_layers(precision_compare):
            from pytest_ascend import precision
            rewritten, original = model(), model()
            original[2].__class__ = Fixed
            report = precision.models(rewritten, original, torch.randn(5, 8))
            assert report.first.label == "2"
            precision_compare(1, 1)
        """
    )
    pytester.syspathinsert()
    ascend(paths=("test_wrong.py",)).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ascend-model=input=2x3",), "has no effect without a model"),
        (("--ascend-model=tests.nowhere:model",), "cannot be imported"),
        (("--ascend-model=tests.architectures:tagger",), "has no inputs"),
    ],
)
def test_bad_input_is_said(arguments: tuple[str, ...], said: str, run: Callable[..., pytest.RunResult]) -> None:
    result = run(*arguments)
    assert result.ret != 0
    assert said in result.stdout.str() + result.stderr.str()
