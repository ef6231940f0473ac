"""Expected results, computed on the CPU in float64."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pytest_ascend.golden import Golden, GoldenStore, Provenance
from pytest_ascend.precision.kernel_fallbacks import autocast_of
from pytest_ascend.precision.reference import Source, plain
from pytest_ascend.system.errors import GoldenError, UsageError


def cpu_reference(subject: Callable[..., Any], *inputs: Any, autocast: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Call ``subject`` on the CPU in float64, and return its outputs, detached.

    A module is copied, so that the original keeps its device, dtype, gradients and statistics; so are tensors, anywhere
    in the arguments. Floating-point tensors become float64, complex ones complex128, others keep their dtype. A
    function that uses captured tensors must take them as arguments instead.

    Each tensor of the result has reference runs: the CPU's results for the same inputs in their own dtype, in two
    orders of summation. If the device computes under autocast, so do the reference runs; give
    ``autocast=torch.bfloat16`` if a function or a later call hides it.

    Raises :class:`UsageError` for a function whose result depends on random numbers.
    """
    return source_of(subject, inputs, kwargs, autocast).exact()


def source_of(
    subject: Callable[..., Any], inputs: Any, kwargs: Mapping[str, Any], autocast: torch.dtype | None = None
) -> Source:
    """Return the :class:`Source` that computes a function on the CPU, in float64 and as reference runs."""
    around = (autocast_of(each) for each in ("npu", "cuda", "cpu"))
    return Source(subject, tuple(inputs), dict(kwargs), autocast or next(filter(None, around), None))


@dataclass(frozen=True, slots=True)
class CpuReference:
    """The fixture ``cpu_reference``: calls :func:`cpu_reference`, or reads what an earlier call stored as a golden.

    ``stores`` is true under ``--ascend-baselines=update=yes``; only then are files written.
    """

    store: GoldenStore
    stores: bool = False

    def __repr__(self) -> str:
        """Return what pytest shows above the traceback of a failing test."""
        return "<cpu_reference>"

    def __call__(
        self,
        subject: Callable[..., Any],
        *inputs: Any,
        golden: str = "",
        autocast: torch.dtype | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the float64 result of ``subject(*inputs, **kwargs)`` on the CPU, with reference runs.

        With ``golden="name"`` it is read from the folder of baselines instead, where a run with
        ``--ascend-baselines=update=yes`` stored it. Raises GoldenError if that golden is missing, damaged, or made from
        other weights or inputs; UsageError if the result is not a tensor or a flat tuple, list or dict of tensors.
        """
        source = source_of(subject, inputs, kwargs, autocast)
        if not golden:
            return source.exact()
        state, digest = subject.state_dict() if isinstance(subject, torch.nn.Module) else {}, hashlib.sha256()
        for tensor in tree_flatten((state, inputs, kwargs))[0]:
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        made_from = digest.hexdigest()
        if not self.stores:
            return source.known(self._read(golden, made_from))
        expected = source.exact()
        form, tensors = _taken_apart(expected)
        how = "cpu_reference: the test's own function, on the CPU in float64"
        made = Provenance(
            how=how, generator="user@1", seed="", torch=str(torch.__version__), numpy="", machine=platform.machine()
        )
        self.store.stage(Golden(id=golden, tensors=tensors, meta={"form": form, "made_from": made_from}), made)
        self.store.flush()
        return expected

    def _read(self, name: str, made_from: str) -> Any:
        try:
            stored = self.store.read(name)
        except GoldenError as error:
            hint = "store it: pytest --ascend --ascend-baselines=update=yes --ascend-baselines=DIR"
            raise GoldenError(error.message, path=error.path, hint=hint) from None
        if stored.meta.get("made_from") != made_from:
            raise GoldenError(
                f"the golden {name!r} was made from other weights or inputs than those of this test",
                path=str(self.store.path(name)),
                hint="seed the generators before weights and inputs are made, or store the golden again",
            )
        form, parts = stored.meta.get("form", "dict"), [tensor for _, tensor in sorted(stored.tensors.items())]
        if form == "dict":
            return dict(stored.tensors)
        return parts[0] if form == "tensor" else tuple(parts) if form == "tuple" else parts


def _taken_apart(expected: Any) -> tuple[str, dict[str, torch.Tensor]]:
    """Return a result's structure ("tensor", "tuple", "list" or "dict"), and its tensors by name."""
    if isinstance(expected, torch.Tensor):
        return "tensor", {"0": plain(expected)}
    form, parts = "dict", expected
    if isinstance(expected, (tuple, list)):
        form = "list" if isinstance(expected, list) else "tuple"
        parts = {f"{place:06}": part for place, part in enumerate(expected)}
    values = parts.values() if isinstance(parts, Mapping) else ()
    if not values or not all(isinstance(each, torch.Tensor) for each in values):
        raise UsageError(
            f"a {type(expected).__name__} cannot be stored as a golden",
            hint="give a tensor, or a flat tuple, list or dictionary of tensors",
        )
    return form, {name: plain(part) for name, part in parts.items()}
