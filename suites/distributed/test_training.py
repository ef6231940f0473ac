"""Training on several ranks against one process on the whole batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

from pytest_ascend.device import Device
from pytest_ascend.distributed.ranks import Ranks
from pytest_ascend.performance.timing import shares_the_host
from pytest_ascend.precision.kernel_fallbacks import products_in_halves
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.records.verdict import HALVES, as_expected_of

from . import STEP, TRAINING, speed, training

T = torch.Tensor
#: Computes the results of one process on the CPU, by name, in a dtype.
Known: TypeAlias = Callable[[torch.dtype], dict[str, T]]
#: Trains on ranks, with a folder for files; returns the results of each, and the expected ones.
Kind: TypeAlias = Callable[[Ranks, Path], tuple[dict[str, T], Known]]


@pytest.mark.ascend_cases("distributed", TRAINING)
def test_training(case: Case, _ascend_ranks: Ranks, ascend_measure: Measure, tmp_path: Path) -> None:
    found, known = KINDS[case.subject](_ascend_ranks, tmp_path)
    is_rounded = case.subject == "ddp-fp16-hook"
    exact, usual = (_of_each_rank(found, known(dtype)) for dtype in (torch.float64, torch.float32))
    share, where = _worst(found, exact, usual, torch.float16 if is_rounded else torch.float32)
    ascend_measure("error_over_allowed", share)
    said = f"{case.subject} on {_ascend_ranks.count} ranks is off by {share:.3g} times what one process may be: {where}"
    if share > 1:
        with products_in_halves():
            rounded = _of_each_rank(found, known(torch.float32))
        said += f"; {as_expected_of([HALVES])}" if _worst(found, exact, rounded, torch.float16)[0] <= 1 else ""
    assert share <= 1, said


@pytest.mark.ascend_cases("distributed", STEP)
def test_step(case: Case, _ascend_ranks: Ranks, _ascend_device: Device, ascend_measure: Measure) -> None:
    small = shares_the_host(_ascend_device)
    answers = _ascend_ranks.run(speed.steps, name=case.subject, small=small, limit_s=300.0)
    batch = (speed.HOST if small else speed.HARDWARE).batch
    for name, value in speed.figures_of_steps([each.values for each in answers], batch):
        ascend_measure(name, value)


def _worst(
    found: Mapping[str, T], exact: Mapping[str, T], reference_runs: Mapping[str, T], dtype: torch.dtype
) -> tuple[float, str]:
    """Return the largest error as a share of the allowed one, and its tensor; ``dtype`` is the dtype that rounds."""
    shares = []
    for name, actual in found.items():
        right, run = exact[name].double(), reference_runs[name].double()
        share = 0.0 if actual.shape == right.shape else math.inf
        if actual.numel() and not share:
            error = float((actual.double() - right).abs().max())
            # A rank sums gradients in another order than one process, and three steps amplify the difference. A few
            # roundings of the largest element are therefore also allowed.
            rounding = 32 * torch.finfo(dtype).eps * float(right.abs().max())
            allowed = 16 * float((run - right).abs().max()) + rounding
            share = error / allowed if allowed and not math.isnan(error) else (0.0 if error == 0 else math.inf)
        shares.append((share, name))
    return max(shares)


def _numbered(answers: Sequence[Any]) -> dict[str, T]:
    return {f"rank {rank}: {name}": x for rank, each in enumerate(answers) for name, x in each.tensors.items()}


def _of_each_rank(found: Mapping[str, T], known: Mapping[str, T]) -> dict[str, T]:
    return {name: known[name if name in known else name.partition(": ")[2]] for name in found}


def _run(function: Callable[..., Any], known: Known, **arguments: Any) -> Kind:
    return lambda ranks, _: (_numbered(ranks.run(function, **arguments)), known)


def _model(function: Callable[..., Any], name: str, **arguments: Any) -> Kind:
    known = functools.partial(training.reference, name, clip="clip" in arguments)
    return _run(function, known, name=name, **arguments)


def _gradients(dtype: torch.dtype) -> dict[str, T]:
    """Return gradients and loss of one process: the mean over equal parts is the mean over the whole."""
    model, (x, y) = training.make("perceptron").to(dtype), (each.to(dtype) for each in training.inputs("perceptron"))
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {f"gradient {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach().double()} | gradients


def _experts(ranks: Ranks, _: Path) -> tuple[dict[str, T], Known]:
    count, answers, exact = ranks.count, ranks.run(training.experts), dict[str, T]()
    parts = training.inputs("perceptron")[0].double().chunk(count)
    for rank, each in enumerate(answers):
        scale, at = (each["to"] + 2).double().unsqueeze(1), f"rank {rank}:"
        exact |= {f"{at} out": parts[rank] * scale, f"{at} gradient": scale.expand_as(parts[rank])}
        sent = [parts[other][answers[other]["to"] == rank].sum() for other in range(count)]
        exact[f"{at} weight gradient"] = torch.stack(sent).sum()
    found = {name: x for name, x in _numbered(answers).items() if name in exact}
    return found, lambda dtype: {name: x.to(dtype) for name, x in exact.items()}


def _redistributed(ranks: Ranks, _: Path) -> tuple[dict[str, T], Known]:
    def wanted(dtype: torch.dtype) -> dict[str, T]:
        y = training.inputs("perceptron")[0].to(dtype)
        columns = {f"rank {rank}: columns": part for rank, part in enumerate(y.chunk(ranks.count, 1))}
        known = {"whole": y, "product": y @ y.T, "rows": y @ y.T, "partial": y.sum(0), "is partial": torch.tensor(True)}
        return known | columns

    return _numbered(ranks.run(training.redistributed)), wanted


def _checkpoint(ranks: Ranks, folder: Path) -> tuple[dict[str, T], Known]:
    path = str(folder / "saved")
    ranks.run(training.checkpoint, path=path)
    found = _numbered(ranks.run(training.checkpoint, path=path, load=True))
    if ranks.count > 2:
        fewer = _numbered(ranks.run(training.checkpoint, count=2, path=path, load=True))
        found |= {f"two ranks, {name}": x for name, x in fewer.items()}
    exact = _of_each_rank(found, dict(training.make("perceptron").state_dict()))
    for name, x in found.items():
        assert torch.equal(x, exact[name]), f"{name} is not what was saved"
    return found, lambda _: exact


def _vision(name: str, dtype: torch.dtype) -> dict[str, T]:
    model, x, y = training.vision(name)
    nn.functional.mse_loss(model.to(dtype)(x.to(dtype)), y.to(dtype)).backward()  # type: ignore[no-untyped-call]
    return {n: p.grad.flatten()[:4096] for n, p in model.named_parameters() if p.grad is not None}


KINDS: Mapping[str, Kind] = {
    "ddp": _model(training.by_ddp, "perceptron"),
    "ddp-accumulation": _model(training.by_ddp, "perceptron", micro=2),
    "ddp-unused-parameters": _model(training.by_ddp, "unused"),
    "ddp-fp16-hook": _model(training.by_ddp, "perceptron", hook="fp16_compress_hook"),
    "ddp-clipping": _model(training.by_ddp, "perceptron", clip=True),
    "sync-batch-norm": _model(training.by_ddp, "convolution", sync=True),
    "zero": _model(training.by_ddp, "perceptron", zero=True),
    "fsdp1": _model(training.fully_sharded_1, "perceptron"),
    "fsdp2": _model(training.fully_sharded_2, "perceptron"),
    "fsdp2-clipping": _model(training.fully_sharded_2, "perceptron", clip=True),
    "tensor-parallel": _model(training.tensor_parallel, "perceptron"),
    "sequence-parallel": _model(training.tensor_parallel, "perceptron", sequence=True),
    "decoder-fsdp2": _model(training.fully_sharded_2, "decoder"),
    "images-fsdp2": _model(training.fully_sharded_2, "seeing"),
    "decoder-tensor-parallel": _model(training.tensor_parallel, "decoder"),
    **{
        f"pipeline-{name}": _run(training.pipeline, _gradients, name="perceptron", schedule=f"Schedule{schedule}")
        for name, schedule in (("gpipe", "GPipe"), ("1f1b", "1F1B"))
    },
    "expert-parallel": _experts,
    "dtensor-redistribution": _redistributed,
    "checkpoint": _checkpoint,
    **{
        f"{name}-ddp": _run(training.of_torchvision, functools.partial(_vision, name), name=name, limit_s=300.0)
        for name in ("resnet50", "vit_b_16")
    },
}
