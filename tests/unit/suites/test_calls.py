"""The rows of programs that are asked bit for bit see a front end that is wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.programs import calls, parts
from suites.runtime.rows import CPU, At, fetched

#: Of a first use, as detect_anomaly() warns of itself.
pytestmark = pytest.mark.filterwarnings("ignore")


#: By row, what is replaced while the device computes, and by what.
WRONG: tuple[tuple[str, Any, str, Any], ...] = (
    ("hooked", torch.Tensor, "register_hook", lambda *_: None),
    ("hooked", torch.autograd.graph, "register_multi_grad_hook", lambda *_: None),
    ("hooked", torch.nn.Module, "register_full_backward_pre_hook", lambda *_: None),
    ("graphs", torch.autograd, "detect_anomaly", lambda **_: contextlib.nullcontext()),
    ("graphs", torch.amp, "custom_fwd", lambda function, **_: function),
    ("told", torch.Tensor, "__repr__", lambda *_, **__: "tensor([...])"),
    ("indexed", torch.Tensor, "__setitem__", lambda *_: None),
)


@pytest.mark.parametrize(("row", "place", "name", "wrong"), WRONG, ids=[f"{row}-{name}" for row, _, name, _ in WRONG])
def test_a_wrong_front_end_is_seen(
    row: str, place: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, at = getattr(calls, f"_{row}"), At(CPU, PrecisionCompare(lambda _: None))
    right = fetched(run(CPU))
    at.same(fetched(run(CPU)), right, "the CPU differs from itself")
    with monkeypatch.context() as patched:
        patched.setattr(place, name, wrong)
        found = fetched(run(CPU))
    with pytest.raises(Disagreement):
        at.same(found, right, "planted")


@pytest.mark.parametrize("setting", ["label_smoothing", "ignore_index", "weight", "reduction"])
def test_a_setting_of_a_module_that_is_lost_is_seen(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, lost = (
        torch.nn.functional.cross_entropy,
        {"label_smoothing": 0.0, "ignore_index": -100, "weight": None, "reduction": "mean"},
    )

    def run() -> dict[str, Any]:
        return fetched(parts._of_torch(CPU, torch.float32, "CrossEntropyLoss"))

    right = run()
    monkeypatch.setattr(
        torch.nn.functional, "cross_entropy", lambda x, y, **how: usual(x, y, **{**how, setting: lost[setting]})
    )
    with pytest.raises(Disagreement):
        PrecisionCompare(lambda _: None)(
            run(), {name: each.double() for name, each in right.items()}, reference_runs=right, scale=1.0
        )
