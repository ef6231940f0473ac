"""Training: its loss curve and weights, bit-exact checkpoints, and resumed training with identical results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import StepLR

from pytest_ascend.parity.ensemble import Observed, Reference, first_wrong, reference, trace
from pytest_ascend.parity.model import Computation
from pytest_ascend.parity.training import Batch, make_step, scaler_of, train
from pytest_ascend.precision.kernel_fallbacks import once
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.case_context import Reproduce
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.dispatching import one_thread

from ..runtime.rows import CPU, saved
from . import CHECKPOINTS, RUN_OF, RUN_PROPERTIES, Run
from .recipes import MODES, OPTIMIZERS, batches, cross_entropy, make, recipe

HALF = 6


class Training:
    def __init__(self, device: torch.device, *, scaled: bool = False) -> None:
        self.device = device
        self.model = make("small-vit").to(device)
        self.optimizer = OPTIMIZERS["adamw"].torch(self.model.parameters())
        self.schedule = StepLR(self.optimizer, 4, 0.5)
        self.scaler = scaler_of(device.type, 1024.0, growth_interval=4) if scaled else None
        self.batches = [Batch((each.args[0].to(device),), {}, each.target.to(device)) for each in batches()]
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}
        self.parts: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}

    def steps(self, first: int, last: int) -> Iterator[Tensor]:
        for step in range(first, last):
            batch = self.batches[step % len(self.batches)]
            images = batch.args[0] + 0.1 * torch.randn(batch.args[0].shape, device=self.device)
            self.optimizer.zero_grad()
            with torch.autocast(self.device.type, dtype=torch.float16, enabled=self.scaler is not None):
                output = self.model(images)
            loss = cross_entropy(output, batch)
            make_step(loss, self.optimizer, self.scaler)
            self.schedule.step()
            yield loss.detach().cpu()

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        return {**state, "generator": module_of(self.device).get_rng_state()}

    def load(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        module_of(self.device).set_rng_state(state["generator"].cpu())


def module_of(device: torch.device) -> Any:
    return torch if device.type == "cpu" else getattr(torch, device.type)


Check = Callable[[torch.device, PrecisionCompare], object]


def _map_location(device: torch.device, compare: PrecisionCompare, *, last: bool = False) -> None:
    values = torch.arange(6.0).reshape(2, 3)
    given = {"on device": values, "on cpu": values}
    file = saved(given | {"on device": values.to(device)})
    last_card = device if device == CPU else torch.device(device.type, module_of(device).device_count() - 1)
    here, card = (device, device), str(device)
    named = ((device, here), (card, here), ("cpu", (CPU, CPU)), (lambda storage, _: storage, (CPU, CPU)),
        ({card: "cpu", "cpu": card}, (CPU, device)))  # fmt: skip
    for location, places in ((last_card, (last_card, last_card)),) if last else named:
        file.seek(0)
        loaded = torch.load(file, map_location=location, weights_only=True)
        compare(loaded, given, standard="binary", name=f"map_location {location!s:.20}")
        wanted = {key: str(each) for key, each in zip(given, places, strict=True)}
        compare({key: str(x.device) for key, x in loaded.items()}, wanted)


def _resumed(device: torch.device, compare: PrecisionCompare, *, scaled: bool = False) -> None:
    whole = Training(device, scaled=scaled)
    start = module_of(device).get_rng_state()
    expected = torch.stack(list(whole.steps(0, 2 * HALF)))
    first = Training(device, scaled=scaled)
    module_of(device).set_rng_state(start.cpu())  # making a model uses random numbers on the CPU
    losses = list(first.steps(0, HALF))
    file = saved(first.state())
    del first
    torch.randn(3, device=device)
    second = Training(device, scaled=scaled)
    second.load(torch.load(file, map_location="cpu", weights_only=True))
    losses += second.steps(HALF, 2 * HALF)
    compare(torch.stack(losses), expected, standard="binary", name="losses")
    weights = {name: each.detach().cpu() for name, each in whole.model.named_parameters()}
    compare({name: each.detach() for name, each in second.model.named_parameters()}, weights, standard="binary")


CHECKS: dict[str, Check] = {
    "map-location": _map_location,
    "other-device": partial(_map_location, last=True),
    "resumed-curve": _resumed,
    "resumed-curve-scaled": lambda device, compare: _resumed(device, compare, scaled=True),
}


@pytest.mark.ascend_cases("training", *CHECKPOINTS)
def test_checkpoint(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    with one_thread():
        CHECKS[case.property](npu_device, precision_compare)


Trained: TypeAlias = Callable[[Run], tuple[Observed, Reference]]
Train: TypeAlias = Callable[..., Observed]


@pytest.fixture(scope="module")
def trained(npu_device: torch.device) -> Trained:
    by_device, by_cpu = once(on_device, of="device"), once(on_cpu)
    return lambda run: (by_device(run, train, npu_device), by_cpu(run, train))


def on_device(run: Run, by: Train, device: torch.device) -> Observed:
    with one_thread():
        return by(make(run.model), recipe(run.optimizer, run.mode, on_device=True), device)


def on_cpu(run: Run, by: Train) -> Reference:
    exactly, in_dtype = (partial(by, recipe=recipe(run.optimizer, mode)) for mode in ("float32", run.mode))
    with one_thread():
        return reference(make(run.model), exactly, in_dtype, MODES[run.mode], orders=by is trace)


@pytest.mark.ascend_cases("training", *RUN_PROPERTIES)
def test_training(
    case: Case,
    trained: Trained,
    npu_device: torch.device,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
    _ascend_reproduce: Callable[[Reproduce], None],
) -> None:
    run, kind = RUN_OF[case.id]
    _ascend_reproduce(computation(run).reproduce(case.id, npu_device))
    actual, right = trained(run)
    for name, values in right.losses(actual[kind]["losses"]) if kind == "curve" else ():
        ascend_measure(name, values)
    found, wanted = actual[kind], right.expected(kind)
    shared = found.keys() & wanted.keys()
    # Rounding moves some values across the kink of a ReLU, which affects some gradients but no sum.
    branching = run.model == "small-resnet"
    precision_compare(
        {name: found[name] for name in sorted(found) if name in shared or kind != "state"},
        {name: wanted[name] for name in sorted(wanted) if name in shared or kind != "state"},
        reference_runs=right.samples(kind),
        name=kind,
        branching=branching and kind in {"weights", "state"},
        locate=lambda _: (
            first_wrong(on_device(run, trace, npu_device), on_cpu(run, trace), branching=branching)
            or "trained again to find the first wrong step, none is further off by itself than reference runs"
        ),
    )


def computation(run: Run) -> Computation:
    in_mode = f"{run.optimizer!r}, {run.mode!r}"
    return Computation(
        imports=("from pytest_ascend.parity.training import train", "from pytest_ascend.system.bundled import module"),
        setup=("suite = module('suites.training.recipes')",),
        actual=f"train(suite.make({run.model!r}), suite.recipe({in_mode}, on_device=True), device)",
        exact=f"train(suite.make({run.model!r}).double(), suite.recipe({run.optimizer!r}), cpu)",
        reference_runs=f"train(suite.make({run.model!r}), suite.recipe({in_mode}), cpu)",
    )
