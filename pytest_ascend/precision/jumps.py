"""Functions that jump: where a correct device may be on either side, and what it gives on each.

``(x / 0.1).floor()`` is off by 1 where x / 0.1 is rounded across a whole number, and right everywhere else. One such
element among the reference runs says nothing of the others. So the function is computed again in float64 with every
decision (of floor, a comparison, an argmax) moved by what may be off in the number it depends on, and nothing else:
elements that change lie at a jump, and these are their other values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import sub, truediv
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_ascend.system.dispatching import EagerDispatchMode

#: All decisions moved up, all down, and each at random, twice: one that gives a fourth value depends on several jumps.
WAYS = 4
#: A decision is moved by this multiple of the largest error that a reference run has in its number.
REACH = 4.0

#: Gets an operator, its arguments and keywords, the number it decides by, and that number moved.
_Decide: TypeAlias = Callable[..., Any]


def _of_moved(func: Any, args: Any, kwargs: Any, _: Tensor, moved: Tensor) -> Any:
    place = 1 if func.overloadpacket.__name__ == "searchsorted" else 0
    return func(*args[:place], moved, *args[place + 1 :], **kwargs)


def _compared(func: Any, args: Any, kwargs: Any, number: Tensor, moved: Tensor) -> Any:
    other = getattr(torch, func.overloadpacket.__name__)(moved, 0.0)
    return torch.where(number.isfinite(), other, func(*args, **kwargs))


def _frac(func: Any, args: Any, kwargs: Any, number: Tensor, moved: Tensor) -> Any:
    return func(*args, **kwargs) + number.trunc() - moved.trunc()


def _remainder(rounded: Callable[[Tensor], Tensor]) -> _Decide:
    def compute(func: Any, args: Any, kwargs: Any, _: Tensor, moved: Tensor) -> Any:
        usual = func(*args, **kwargs)
        steps = ((args[0] - usual) / args[1]).round() - rounded(moved)
        return usual + torch.where(steps == 0, 0, steps * args[1])

    return compute


def _divided(func: Any, args: Any, kwargs: Any, number: Tensor, moved: Tensor) -> Any:
    rounded = torch.trunc if kwargs.get("rounding_mode") == "trunc" else torch.floor
    if func.overloadpacket.__name__ == "div" and not kwargs.get("rounding_mode"):
        return func(*args, **kwargs)
    return torch.where(number.isfinite(), rounded(moved), func(*args, **kwargs))


#: By operator: the number that decides (an argument by its place, or made of the first two), and how the operator is
#: computed if that number is another.
DECIDING: Mapping[str, tuple[int | Callable[[Any, Any], Any], _Decide]] = {
    **dict.fromkeys(
        ("floor", "ceil", "round", "trunc", "sign", "sgn", "signbit", "heaviside", "bucketize", "argmax", "argmin"),
        (0, _of_moved),
    ),
    "searchsorted": (1, _of_moved),
    "frac": (0, _frac),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), (sub, _compared)),
    "remainder": (truediv, _remainder(torch.floor)),
    "fmod": (truediv, _remainder(torch.trunc)),
    **dict.fromkeys(("floor_divide", "div"), (truediv, _divided)),
    "_to_copy": (0, _of_moved),
}


def deciding(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the real number by which an operator decides between values; None if it makes no such decision."""
    name = func.overloadpacket.__name__
    name = name.removesuffix("_") if not name.startswith("_") else name
    if name not in DECIDING or (name == "div" and not kwargs.get("rounding_mode")):
        return None
    is_conversion = name == "_to_copy" and (kwargs.get("dtype") or torch.float32).is_floating_point
    if is_conversion or not any(isinstance(each, Tensor) and each.is_floating_point() for each in args[:2]):
        return None
    by = DECIDING[name][0]
    found = args[by] if isinstance(by, int) else by(*args[:2])
    return found if isinstance(found, Tensor) and found.is_floating_point() else None


class moved_decisions(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which operators decide by other numbers, in one of :data:`WAYS`.

    ``seen`` are the numbers by which a reference run decided, one after another, in ``dtype``. Those that it knew
    exactly are not moved.
    """

    def __init__(self, way: int, dtype: torch.dtype, seen: Sequence[Tensor]) -> None:
        super().__init__()
        self.way, self.dtype, self.seen = way, dtype, [*seen]

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute one operator."""
        number = deciding(func, args, kwargs)
        own = self.seen.pop(0) if number is not None and self.seen else None
        if number is None or (own is not None and own.shape != number.shape):
            return func(*args, **kwargs)
        # Whether the dtype holds the numbers of the call exactly, as it does not hold 0.1.
        exactly = all(not isinstance(x, float) or x == float(torch.tensor(x, dtype=self.dtype)) for x in args[:2])
        reach = self._reach(number, own, exactly=exactly)
        if reach is None:
            return func(*args, **kwargs)
        name, is_inplace = func.overloadpacket.__name__, func._schema.is_mutable  # noqa: SLF001 - no public name
        if is_inplace:
            name = name.removesuffix("_")
            func = getattr(getattr(torch.ops.aten, name), func._overloadname)  # noqa: SLF001
        if self.way < 2 and not name.startswith("arg"):  # the largest stays the largest if all are moved
            signs: Any = 1 - 2 * self.way
        else:
            chance = torch.Generator().manual_seed(self.way)
            signs = torch.rand(number.shape, generator=chance, dtype=number.dtype, device="cpu").sub_(0.5).sign_()
        found = DECIDING[name][1](func, args, kwargs, number, number + reach * signs)
        return args[0].copy_(found) if is_inplace else found

    def _reach(self, number: Tensor, own: Tensor | None, *, exactly: bool) -> Tensor | None:
        """Return how far each number may be off; None if a reference run knew all of them exactly."""
        finite = number.isfinite()
        usual = number.where(finite, 0).square().mean().sqrt() if number.numel() else 0.0
        size = number.abs().clamp_min(usual).where(finite, 0)
        share = torch.finfo(self.dtype).eps / 2
        if own is not None:
            error = torch.where(finite & own.isfinite(), (own.double() - number).abs(), 0)
            if exactly and not error.any():
                return None
            share = max(share, float((error / size.clamp_min(torch.finfo(number.dtype).tiny)).max()))
        return REACH * share * size


def without_jumps(
    actual: Tensor, expected: Tensor, runs: Sequence[Tensor], moved: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """Return what is expected on the side of each jump that ``actual`` took, and runs with no errors but those there.

    ``moved`` are the results of all :data:`WAYS`. None if no element lies at a jump, or if some depend on several, as a
    sum of rounded numbers does: then reference runs alone say how far off a device may be.
    """
    if len(moved) != WAYS or not actual.is_floating_point():
        return None
    wide = [_number(each) for each in (expected, *moved)]
    jumps = torch.stack([each != wide[0] for each in wide]).any(0)
    if not jumps.any():
        return None
    sides = torch.stack([each[jumps] for each in wide[:3]])
    if any((sides != each[jumps]).all(0).any() for each in wide[3:]):
        return None
    own, found = _side(_number(actual)[jumps], sides), expected.clone()
    found[jumps] = sides.gather(0, own[0].unsqueeze(0))[0].to(expected.dtype)
    apart = (sides - sides[0]).abs()
    gap = apart.where(apart > 0, torch.inf).min(0).values
    kept, ulp = [], torch.finfo(actual.dtype).eps * sides.abs().max()
    for each in runs:
        numbers = _number(each)
        side, error = _side(numbers[jumps], sides)
        elsewhere = (numbers - wide[0]).abs()[~jumps]
        usual = REACH * (ulp + (elsewhere.max() if elsewhere.numel() else 0.0))
        if (error > (gap / 4).clamp_min(usual)).any():
            return None
        run = each.clone()
        off = numbers[jumps] - sides.gather(0, side.unsqueeze(0))[0]
        run[jumps] = torch.where(side == own[0], each[jumps], (found[jumps] + off).to(each.dtype))
        kept.append(run)
    return found, tuple(kept)


def _number(values: Tensor) -> Tensor:
    """Return finite float64 numbers: infinity and NaN are judged elsewhere."""
    return values.detach().cpu().double().nan_to_num(0.0, 0.0, 0.0)


def _side(values: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
    """Return which side each value is nearest to, and how far from it."""
    error, side = (sides - values).abs().min(0)
    return side, error
