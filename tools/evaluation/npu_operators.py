"""torch_npu's own operators that the suite fused calls, counted by the dispatcher: those that serving needs, and all.

Each operator of the suite is called once, and its backward, on the emulated chip (PYTEST_ASCEND_EMULATED_CHIP).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pytest_ascend.operators import InputFactory
from suites.fused import OPERATORS

#: What carries the serving of language models, by the number of calls in vLLM Ascend (August 2026).
SERVING = frozenset(json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))


class _Called(TorchDispatchMode):
    """Notes the operators of torch_npu that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.namespace in ("npu", "atb"):
            self.names.add(func.name().partition("::")[2])
        return made


def called() -> set[str]:
    """Call each operator once, and return the names of those that arrive at the dispatcher."""
    with _Called() as mode:
        for operator in OPERATORS:
            dtype = getattr(torch, operator.dtypes[0])
            sample = next(iter(operator.inputs(InputFactory(operator.name, dtype))))
            args, kwargs = tree_map(
                lambda x: x.detach().npu().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x,
                (sample.args, sample.kwargs),
            )
            try:
                made = operator.function(*args, **kwargs)
                if operator.grad:
                    first = made if isinstance(made, torch.Tensor) else made[0]
                    first.float().sum().backward()
            except (NotImplementedError, RuntimeError) as error:
                click.echo(f"{operator.name}: {str(error).splitlines()[0][:120]}")
    return mode.names


@click.command(help=__doc__)
def main() -> None:
    """Call, and print both numbers."""
    names = called()
    click.echo(f"{len(names)} operators of torch_npu, {len(names & SERVING)} of {len(SERVING)} that serving needs")
    click.echo(f"of those not: {' '.join(sorted(SERVING - names)) or 'none'}")
