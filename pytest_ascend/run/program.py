"""How a program that reproduces a failure sets modes, judges and exits: by the deciding rule and its limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from pytest_ascend.device import npu
from pytest_ascend.environment.chips import PRECISION_MODE, pinned
from pytest_ascend.records.verdict import Rule, Verdict

#: The index of an element, None if the judge reported none.
Index: TypeAlias = tuple[int, ...] | None
Tensor = torch.Tensor
#: The judge's rules without an error model -> the value compared with the limit, from the differences of all elements.
_RULES: Mapping[str, Callable[[Tensor, Index], Tensor]] = {
    Rule.ELEMENT: lambda apart, index: apart[index],
    Rule.ZERO: lambda apart, index: apart[index],
    Rule.RMS: lambda apart, _: apart.square().mean().sqrt(),
    Rule.UNEQUAL: lambda apart, _: (apart != 0).sum(),
    Rule.UNEQUAL_BITS: lambda apart, _: (apart != 0).sum(),
}


def pinning(device: torch.device) -> list[str]:
    """Return the lines of Python that set an NPU's modes as a run does; none for other devices."""
    if device.type != "npu":
        return []
    return [
        "torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # the modes of the run: float32 as float32",
        "torch.npu.config.allow_internal_format = False",
        "torch.npu.set_compile_mode(jit_compile=False)",
        f'torch.npu.set_option({{"{PRECISION_MODE}": "{pinned(npu.chip())[PRECISION_MODE]}"}})',
    ]


def difference(one: Tensor, other: Tensor) -> Tensor:
    """Return the absolute difference of each element, in float64. Equal infinities agree, and so do NaN."""
    same = (one == other) | (one.isnan() & other.isnan())
    return torch.where(same, 0.0, (_wide(one) - _wide(other)).abs().nan_to_num(torch.inf, torch.inf))


def passes(
    one: Tensor,
    other: Tensor,
    rule: tuple[str, float],
    index: Index = None,
    reference: Callable[[], Tensor | None] = lambda: None,
) -> bool:
    """Return whether a result agrees by the deciding rule; print the rule's value and limit.

    A rule that needs an error model is replaced by the root mean square error, limited to ten times that of
    ``reference``, the CPU's result in the dtype.
    """
    if one.shape != other.shape or not one.numel():
        return one.shape == other.shape
    apart, (name, allowed) = difference(one, other), rule
    if name in _RULES and (index is not None or name not in (Rule.ELEMENT, Rule.ZERO)):
        found = float(_RULES[name](apart, index))
    elif "where" in name and "is expected" in name:
        near = other.to(one.dtype)
        misplaced = (one.isnan() != near.isnan()) | (one.isinf() != near.isinf()) | (near.isinf() & (one != near))
        found = float(misplaced.sum() if index is None else misplaced[index])
    else:
        name, usual = "root mean square error, beside ten times the CPU's own", reference()
        own = 0.0 if usual is None else float(difference(usual, other).square().mean().sqrt())
        found = float(apart.square().mean().sqrt())
        allowed = 10 * own + 1e-12 * float(_wide(other).abs().nan_to_num(0, 0, 0).max())
    agrees = found <= allowed
    print(f"{name}: {found:.6g}, allowed {allowed:.6g}: {'passed' if agrees else 'FAILED'}")  # noqa: T201
    return agrees


def compare_named(  # noqa: PLR0917 - both sides, and the judge's finding
    actual: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    reference: Callable[[], Mapping[str, Tensor]],
    name: str,
    index: Index,
    rule: tuple[str, float],
) -> bool:
    """Return whether tensors agree by the rule that decided on the one called ``name``; print the ten worst."""
    actual = {key: each.detach().cpu() for key, each in actual.items()}
    shares: dict[str, tuple[float, float]] = {}
    for key, wanted in expected.items():
        if wanted.numel() and key in actual and actual[key].shape == wanted.shape:
            most = float(difference(actual[key], wanted).max())
            shares[key] = most / (float(wanted.abs().max()) or 1.0), most
    for key, (share, most) in sorted(shares.items(), key=lambda each: each[1], reverse=True)[:10]:
        print(f"{key}: largest difference {most:.6g}, {share:.2%} of its largest value")  # noqa: T201
    return passes(actual[name], expected[name], rule, index, lambda: reference()[name])


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def worst_leaf(verdict: Verdict) -> Verdict:
    """Return the part whose metrics the verdict repeats."""
    wrong = [each for each in verdict.leaves if not each.agrees]
    return next((each for each in wrong if each.worst == verdict.worst), wrong[0] if wrong else verdict)
