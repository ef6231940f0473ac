"""The rows of programs that are asked bit for bit see a front end that is wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from suites.programs import calls, optimizers, parts
from suites.runtime.rows import CPU, At, fetched

#: Of a first use, as detect_anomaly() warns of itself.
pytestmark = pytest.mark.filterwarnings("ignore")


def _of_a_copy(method: str) -> Any:
    """Return a method in place whose step is missing in the history: its gradient is that of the value before."""
    usual = getattr(torch.Tensor, method)

    def wrong(x: torch.Tensor, *given: Any, **how: Any) -> torch.Tensor:
        with torch.no_grad():
            usual(x, *given, **how)
        return x

    return wrong


_backward, _grad = torch.autograd.backward, torch.autograd.grad


def _to_all(*given: Any, inputs: Any = None, **how: Any) -> None:
    _backward(*given, **how)


def _without_zeros(*given: Any, **how: Any) -> Any:
    return _grad(*given, **{**how, "materialize_grads": False, "allow_unused": True})


#: By row, what is replaced while the device computes, and by what.
WRONG: tuple[tuple[str, Any, str, Any], ...] = (
    ("hooked", torch.Tensor, "register_hook", lambda *_: None),
    ("hooked", torch.autograd.graph, "register_multi_grad_hook", lambda *_: None),
    ("hooked", torch.nn.Module, "register_full_backward_pre_hook", lambda *_: None),
    ("graphs", torch.autograd, "detect_anomaly", lambda **_: contextlib.nullcontext()),
    ("graphs", torch.amp, "custom_fwd", lambda function, **_: function),
    *(("changed", torch.Tensor, name, _of_a_copy(name)) for name in ("mul_", "copy_", "index_add_", "lerp_")),
    ("changed", torch.Tensor, "as_strided", lambda x, *_: x.view(-1)[:6].view(2, 3)),
    ("passes", torch.autograd, "backward", _to_all),
    ("passes", torch.autograd, "grad", _without_zeros),
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


def _scaled_to_the_first(self: Any, given: Any, usual: Any = torch.amp.GradScaler.scale) -> Any:
    return [usual(self, given[0]), *given[1:]] if isinstance(given, list) else usual(self, given)


def _kept(self: Any, set_to_none: bool = True) -> None:
    """Zero no gradients, or none of those that should go."""
    for group in self.param_groups if set_to_none else ():
        for each in group["params"]:
            each.grad = None if each.grad is None else each.grad * 0


class _Always(torch.autocast):
    """Autocast that is never off."""

    def __init__(self, device_type: str, dtype: Any = None, **how: Any) -> None:
        super().__init__(device_type, dtype, **{**how, "enabled": device_type == "cpu"})


class _Lower(torch.autocast):
    """Autocast to one dtype."""

    def __init__(self, device_type: str, _: Any = None, **how: Any) -> None:
        super().__init__(device_type, **{**how, "dtype": torch.bfloat16})


def _as_usual(*names: str) -> Any:
    """Return groups of parameters without some of their settings."""
    usual = torch.optim.SGD.__init__

    def made(self: Any, groups: Any, **how: Any) -> None:
        usual(self, [{key: each for key, each in group.items() if key not in names} for group in groups], **how)

    return made


def _twice_promoted(x: Any, y: Any, usual: Any = torch._foreach_add, **how: Any) -> Any:
    return [each.float() if each.dtype is torch.float16 else each for each in usual(x, y, **how)]


#: By function of optimizers, what is replaced while the device computes, and by what.
WRONG_STEPS: tuple[tuple[str, Any, str, Any], ...] = (
    ("grouped", torch.optim.SGD, "zero_grad", _kept),
    ("grouped", torch.optim.SGD, "__init__", _as_usual("momentum")),
    ("grouped", torch.optim.SGD, "__init__", _as_usual("maximize")),
    ("grouped", torch.optim.SGD, "__init__", _as_usual("nesterov")),
    ("grouped", torch.optim.SGD, "load_state_dict", lambda self, _: self.state.clear()),
    ("grouped", torch.optim.lr_scheduler.StepLR, "step", lambda self: None),
    ("grouped", torch.optim.lr_scheduler.ReduceLROnPlateau, "step", lambda self, _: None),
    ("mixed", torch, "_foreach_add", _twice_promoted),
    ("mixed", torch, "_foreach_mul", lambda x, y: [each * 2 for each in x]),
    ("mixed", torch, "_foreach_maximum", lambda x, _: [each.clone() for each in x[:-1]] + [x[-1] * 0]),
)


@pytest.mark.parametrize(("row", "place", "name", "wrong"), WRONG_STEPS)
def test_wrong_steps_and_lists_are_seen(
    row: str, place: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = At(CPU, PrecisionCompare(lambda _: None))

    def run() -> dict[str, Any]:
        return fetched(optimizers._grouped(CPU, float) if row == "grouped" else optimizers._mixed(CPU))

    right = run()
    at.same(run(), right, "the CPU differs from itself")
    with monkeypatch.context() as patched:
        patched.setattr(place, name, wrong)
        found = run()
    with pytest.raises(Disagreement):
        at.same(found, right, "planted")


#: What is replaced, and by what, while mixed precision is asked about.
WRONG_CASTS: tuple[tuple[str, Any, str, Any], ...] = (
    ("casts", torch, "autocast", _Always),
    ("casts", torch, "autocast", _Lower),
    ("casts", torch, "clear_autocast_cache", lambda: None),
    ("scaler_calls", torch.amp.GradScaler, "scale", _scaled_to_the_first),
    ("scaler_calls", torch.amp.GradScaler, "set_growth_factor", lambda *_: None),
    ("scaler_calls", torch.amp.GradScaler, "set_growth_interval", lambda *_: None),
    ("scaler_calls", torch.amp.GradScaler, "unscale_", lambda *_: None),
)


@pytest.mark.parametrize(("row", "place", "name", "wrong"), WRONG_CASTS)
def test_wrong_casts_and_scalers_are_seen(
    row: str, place: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = At(CPU, PrecisionCompare(lambda _: None))
    ask: Any = optimizers._scaler_calls if row == "scaler_calls" else lambda at: optimizers._casts(at, torch.bfloat16)
    ask(at)
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises((Disagreement, AssertionError)):
        ask(at)
