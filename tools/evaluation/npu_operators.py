"""Operators of torch_npu that the suite fused calls, counted by the dispatcher: those that serving needs, and all.

Each operator of the suite is called once, forward and backward, on the emulated chip (PYTEST_ASCEND_EMULATED_CHIP).
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import torch

from pytest_ascend.device.dispatcher import OperatorWatch
from pytest_ascend.operators import InputFactory
from pytest_ascend.operators.calling import on_tensors
from suites.fused import OPERATORS

#: Operators that carry the serving of language models, by number of calls in vLLM Ascend (August 2026).
SERVING = frozenset(json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))


@click.command(help=__doc__)
def main() -> None:
    """Call each operator once, and print both numbers of operators that reach the dispatcher."""
    with OperatorWatch("npu") as watch:
        for operator in OPERATORS:
            dtype = getattr(torch, operator.dtypes[0])
            sample = next(iter(operator.inputs(InputFactory(operator.name, dtype))))
            args, kwargs = on_tensors(
                lambda each: each.detach().npu().requires_grad_(each.requires_grad), (sample.args, sample.kwargs)
            )
            try:
                made = operator.function(*args, **kwargs)
                if operator.grad:
                    first = made if isinstance(made, torch.Tensor) else made[0]
                    first.float().sum().backward()
            except (NotImplementedError, RuntimeError) as error:
                click.echo(f"{operator.name}: {str(error).splitlines()[0][:120]}")
    names = {name.partition("::")[2] for name in watch.called if name.startswith(("npu::", "atb::"))}
    click.echo(f"{len(names)} operators of torch_npu, {len(names & SERVING)} of {len(SERVING)} that serving needs")
    click.echo(f"of those not: {' '.join(sorted(SERVING - names)) or 'none'}")
