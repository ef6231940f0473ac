"""Inputs of an operator: drawn on the CPU, the same on every machine, in the dtype of the case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_ascend.run import inputs


@dataclass(slots=True)
class Draw:
    """Makes tensors on the CPU. Each draw of one ``key`` gives other numbers, and always the same ones.

    ``dtype`` is the one of the case: tensors of it ask for a gradient unless ``grad=False``. A ``dtype=`` of its own
    makes a tensor that is the same in every case, and that has no gradient. ``sizes`` are put in the place of others.
    """

    key: str
    dtype: torch.dtype
    sizes: Mapping[int, int] = field(default_factory=dict)
    _drawn: int = field(default=0, init=False)
    #: Tensors that were made, by their identity, with the Python that makes them.
    _said: dict[int, tuple[torch.Tensor, str]] = field(default_factory=dict, init=False)

    def normal(
        self, *shape: int, std: float = 1.0, dtype: torch.dtype | None = None, grad: bool = True
    ) -> torch.Tensor:
        """Spread around 0, almost normally."""
        return self._floating("normal", shape, dtype, grad=grad, std=std)

    def uniform(
        self,
        *shape: int,
        low: float = -1.0,
        high: float = 1.0,
        dtype: torch.dtype | None = None,
        grad: bool = True,
    ) -> torch.Tensor:
        """Spread evenly over [low, high)."""
        return self._floating("uniform", shape, dtype, grad=grad, low=low, high=high)

    def integers(self, *shape: int, low: int = 0, high: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers in [low, high): indices, targets, counts."""
        return self._made("integers", shape, dtype, low=low, high=high)

    def mask(self, *shape: int) -> torch.Tensor:
        """True and False, each as often as the other."""
        return self.integers(*shape, high=2, dtype=torch.bool)

    def given(self, numbers: Sequence[Any], dtype: torch.dtype | None = None, *, grad: bool = False) -> torch.Tensor:
        """These numbers, nested as they are."""
        return self._finished(torch.tensor(numbers, dtype=torch.float64).to(dtype or self.dtype), dtype, grad=grad)

    def expression(self, tensor: torch.Tensor) -> str:
        """Return the Python that makes a tensor which was drawn here, "" for any other."""
        return self._said.get(id(tensor), (tensor, ""))[1]

    def _floating(
        self, kind: str, shape: tuple[int, ...], dtype: torch.dtype | None, *, grad: bool, **how: float
    ) -> torch.Tensor:
        return self._finished(self._made(kind, shape, dtype or self.dtype, **how), dtype, grad=grad)

    def _made(self, kind: str, shape: tuple[int, ...], dtype: torch.dtype, **how: float) -> torch.Tensor:
        """Draw with the function of :mod:`pytest_ascend.run.inputs` that is called so."""
        self._drawn += 1
        shape = tuple(self.sizes.get(size, size) for size in shape)
        key = f"{self.key}/{self._drawn}"
        made: torch.Tensor = getattr(inputs, kind)(key, shape, dtype=dtype, **how)
        said = "".join(f", {name}={value!r}" for name, value in how.items())
        self._said[id(made)] = made, f"inputs.{kind}({key!r}, {shape}{said}, dtype={dtype})"
        return made

    def _finished(self, made: torch.Tensor, dtype: torch.dtype | None, *, grad: bool) -> torch.Tensor:
        """Have a tensor of the dtype of the case ask for a gradient."""
        return made.requires_grad_(grad and dtype is None and made.is_floating_point())
