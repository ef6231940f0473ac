"""Faults that no kernel by itself has, by class: what real accelerators had, as kernels that are wrong in that way.

Each is a fault by its name in this module (``tests.meta.spoiled_by_class:NAME``), as ``--ascend-emulate=fault=`` takes
it. Those of streams, events and copies are of the runtime, in C. Where a fault follows a public report, it is named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from pytest_ascend.emulator.faults import RUNTIME_FAULTS, Body, Fault, _densely, _given, instead
from pytest_ascend.records.case import Case

T = torch.Tensor


def _stale(every: int, when: Callable[..., bool] = lambda *_: True) -> Callable[[Body], Body]:
    """Every so-many-th call gives the result of the call before, where it has the same shape."""
    kept: list[T] = []  # (a body that writes into its output is planted at each call)
    calls: list[None] = []

    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            found = correct(*given)
            calls.append(None)
            last, kept[:] = (kept[0] if kept else None), [found.clone()]
            fits = last is not None and last.shape == found.shape and last.dtype is found.dtype
            return last if fits and len(calls) % every == 0 and when(*given) else found

        return body

    return plant


def _first_argument(place: int) -> Callable[[Body], Body]:
    """Use an argument of the first call in all later ones."""
    kept: list[Any] = []

    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            kept.append(given[place]) if not kept else None
            return correct(*given[:place], kept[0], *given[place + 1 :])

        return body

    return plant


def _after(change: Callable[..., None]) -> Callable[[Body], Body]:
    """Change inputs, or what was changed in place, after the call."""

    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            found = correct(*given)
            change(found, *given)
            return found

        return body

    return plant


def _into_range(place: int, of: int = 0) -> Callable[[Body], Body]:
    """Clamp indices: an access out of range is not noticed."""

    def clamped(correct: Body, *given: Any) -> Any:
        index, size = given[place], given[of].shape[given[1]] if place == 2 else len(given[of])
        return correct(*given[:place], index.clamp(0, max(size - 1, 0)), *given[place + 1 :])

    return instead(clamped)


def _keeps(every: list[T]) -> Callable[[Body], Body]:
    return _after(lambda *_: every.append(torch.ones(1 << 14)))


def _slowly(seconds: float) -> Callable[[Body], Body]:
    return _after(lambda *_: time.sleep(seconds))


def _by_squares(_: Body, x: T, dim: Any, correction: Any, keepdim: Any) -> Any:
    where = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[each] for each in where)
    found = (x * x).mean(where, keepdim=bool(keepdim)) - x.mean(where, keepdim=bool(keepdim)) ** 2
    return found * count / max(count - correction, 1)


def _carry_lost(correct: Body, x: T, dim: int, dtype: Any) -> Any:
    """Begin anew after 4,096 elements; of huge tensors, each part would be a copy of the whole."""
    is_asked = x.dim() and x.numel() < 1 << 20
    return (
        torch.cat([correct(each, dim, dtype) for each in x.split(4096, dim)], dim)
        if is_asked
        else correct(x, dim, dtype)
    )


def _zeros_for(correct: Body, x: T, other: Any, *rest: Any) -> Any:
    if x.is_floating_point() or not isinstance(other, T):
        return correct(x, other, *rest)
    found = correct(x, other.masked_fill(other == 0, 1), *rest)
    return torch.where(other == 0, 0, found) if isinstance(found, T) else found


def _not_beyond(count: int) -> Callable[[Body], Body]:
    """Tensors of a list beyond so many are given back as they came."""

    def plant(correct: Body) -> Body:
        def body(*given: Any) -> Any:
            found = correct(*given)
            return [*found[:count], *(each.clone() for each in given[0][count:])] if isinstance(found, list) else found

        return body

    return plant


def _first_elements(correct: Body, gradients: list[T], found: T, scale: T) -> None:
    """Look for overflows in the first 1,024 elements of a tensor alone."""
    before, is_seen = found.clone(), any(not bool(each.flatten()[:1024].isfinite().all()) for each in gradients)
    correct(gradients, found, scale)
    found.copy_(found if is_seen else before)


def _first_rows(correct: Body, gradient: T, x: T, shape: Any, *rest: Any) -> Any:
    """Sum the gradients of weights over 64 rows."""
    few = gradient.clone()
    few.view(-1, *shape)[64:] = 0
    return correct(gradient, x, shape, *rest)[0], *correct(few, x, shape, *rest)[1:]


def _with_gaps(x: T) -> T:
    """Return all memory from a view's first element to its last."""
    span = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((span,), (1,)) if x.numel() else x


def _mirrored(_: Any, x: T, mean: Any, std: Any, *__: Any) -> None:
    """The second half is the first with the other sign, as of a transform that loses one of two numbers."""
    flat, half = x.view(-1), x.numel() // 2
    if half > 64 and isinstance(mean, float | int):
        flat[half : 2 * half] = 2 * mean - flat[:half]


def _repeated(_: Any, x: T, *__: Any) -> None:
    """What follows 2^16 numbers are the same once more: offsets of a generator that wrap."""
    if x.numel() > 1 << 16:
        flat = x.view(-1)
        flat[1 << 16 :] = flat[: flat.numel() - (1 << 16)].clone()


def _upper_end(_: Any, x: T, low: Any, high: Any, *__: Any) -> None:
    """The upper end of the range is drawn (PyTorch's issue 16706: rand that gives 1)."""
    x.view(-1)[x.view(-1) > high - (high - low) / 4096] = high


def _last_stays(correct: Body, n: int, *rest: Any) -> T:
    found = correct(n, *rest)
    return torch.cat([found[found != n - 1], found.new_tensor([n - 1])]) if n else found


def _ordered(found: T) -> T:
    return found.sort(-1).values


BANK: Mapping[str, Mapping[str, Fault]] = {
    "state between calls": {
        "MM_STALE": dict.fromkeys(("aclnnMm", "aclnnMatmul"), _stale(8)),
        "EXP_STALE": {"aclnnExp": _stale(5)},
        "SOFTMAX_STALE": {"aclnnSoftmax": _stale(16)},
        "ADD_KEEPS_ALPHA": {"aclnnAdd": _first_argument(2)},
        "MUL_STALE": {"aclnnMul": _stale(64)},
        "SUM_STALE": {"aclnnReduceSum": _stale(32)},
    },
    "autograd": {
        "SAVED_SOFTMAX_CHANGED": {"aclnnSoftmaxBackward": _after(lambda _, grad, output, *__: output.mul_(0.5))},
        "GRADIENT_CHANGED": {"aclnnTanhBackward": _after(lambda _, grad, *__: grad.zero_())},
        "INPUT_CHANGED": dict.fromkeys(("aclnnMm", "aclnnMatmul"), _after(lambda _, left, *__: left.mul_(0.5))),
        "SIGMOID_SAVED_CHANGED": {"aclnnSigmoidBackward": _after(lambda _, grad, output, *__: output.mul_(0.5))},
        "LAYER_NORM_GRADIENT_CHANGED": {"aclnnLayerNormBackward": _after(lambda _, grad, *__: grad.mul_(2))},
        "GELU_INPUT_CHANGED": {"aclnnGeluBackward": _after(lambda _, grad, x, *__: x.mul_(0.5))},
    },
    "optimizers": {
        "LERP_NOT_BEYOND_8": {"aclnnForeachLerpScalar": _not_beyond(8)},
        "ADDCDIV_NOT_BEYOND_4": {f"aclnnForeachAddcdivScalar{each}": _not_beyond(4) for each in ("", "List", "V2")},
        "NORM_OF_FIRST": {
            "aclnnForeachNorm": instead(lambda correct, x, *a: [f * (i == 0) for i, f in enumerate(correct(x, *a))])
        },
        "SQRT_NOT_BEYOND_8": {"aclnnForeachSqrt": _not_beyond(8)},
        "MAXIMUM_KEEPS_FIRST": {"aclnnForeachMaximumList": _not_beyond(0)},
        "OVERFLOW_OF_FIRST_1024": {"aclnnForeachNonFiniteCheckAndUnscale": instead(_first_elements)},
        "SCALE_GROWS_EARLY": {"aclnnAmpUpdateScale": instead(lambda correct, *a: correct(*a[:5], max(a[5] - 1, 1)))},
    },
    "random numbers": {
        "NORMAL_MIRRORED": {"aclnnInplaceNormal": _after(_mirrored)},
        "UNIFORM_REPEATS": {"aclnnInplaceUniform": _after(_repeated)},
        "UNIFORM_INTO_GAPS": {"aclnnInplaceUniform": _given(_densely, 0)},
        "UNIFORM_TAKES_END": {"aclnnInplaceUniform": _after(_upper_end)},
        "PERMUTATION_LAST_STAYS": {"aclnnRandperm": instead(_last_stays)},
        "MULTINOMIAL_SORTED": {"aclnnMultinomial": instead(lambda correct, *a: _ordered(correct(*a)))},
        "MASK_IGNORES_OFFSET": {
            f"aclnnDropoutGenMask{each}": instead(lambda correct, *a: correct(*a[:3], 0, *a[4:])) for each in ("", "V2")
        },
        "INTEGERS_TO_THE_END": {
            "aclnnInplaceRandom": instead(lambda correct, x, low, high, *a: correct(x, low, high + 1, *a))
        },
    },
    "long chains, ranges": {
        "VARIANCE_BY_SQUARES": {"aclnnVarCorrection": instead(_by_squares)},
        "MEAN_IN_HALF": {
            "aclnnMean": instead(
                lambda correct, x, *a: correct(
                    x.clamp(-512, 512) if x.numel() > 4096 and x.dtype is torch.float16 else x, *a
                )
            )
        },
        "SOFTMAX_OF_1024": {
            "aclnnSoftmax": _given(lambda x: torch.cat([x[..., :1024], torch.full_like(x[..., 1024:], -1e4)], -1))
        },
        "CARRY_LOST": {"aclnnCumsum": instead(_carry_lost)},
        "NORM_OVERFLOWS": {
            "aclnnLinalgVectorNorm": _given(
                lambda x: torch.where(x.abs() > 256, torch.inf, x) if x.dtype is torch.float16 else x
            )
        },
        "WEIGHTS_OF_64_ROWS": {"aclnnLayerNormBackward": instead(_first_rows)},
        "EXPONENTS_CUT": {"aclnnLogSumExp": _given(lambda x: x.clamp(-80, 80))},
    },
    "parts of models": {
        "PADDING_0_IGNORED": {
            "aclnnEmbeddingDenseBackward": instead(
                lambda correct, g, i, n, p, s: correct(g, i, n, -1 if p == 0 else p, s)
            )
        },
        "NORM_EPS_FIXED": {"aclnnBatchNorm": instead(lambda correct, *a: correct(*a[:7], 1e-5))},
        "GROUP_EPS_FIXED": {"aclnnGroupNorm": instead(lambda correct, *a: correct(*a[:7], 1e-5))},
        "LAYER_EPS_FIXED": {"aclnnLayerNorm": instead(lambda correct, *a: correct(*a[:4], 1e-5))},
        "SMOOTHING_IN_HALF": {"aclnnLogSoftmax": _given(lambda x: x.half().to(x.dtype))},
    },
    "refusals": {
        "SELECT_CLAMPS": {"aclnnIndexSelect": _into_range(2)},
        "GATHER_CLAMPS": {"aclnnGather": _into_range(2)},
        "EMBEDDING_CLAMPS": {"aclnnEmbedding": _into_range(1)},
        "SCATTER_ADD_CLAMPS": {"aclnnScatterAdd": _into_range(2)},
        "INDEX_ADD_CLAMPS": {"aclnnIndexAdd": _into_range(2)},
        "FLOOR_BY_ZERO": {"aclnnFloorDivide": instead(_zeros_for), "aclnnDivMod": instead(_zeros_for)},
    },
    "data movement": {
        "CAT_NOT_BEYOND_16": {
            "aclnnCat": instead(
                lambda correct, x, dim: correct([*x[:16], *(torch.zeros_like(each) for each in x[16:])], dim)
            )
        },
        "CAST_BY_FLOAT": {
            "aclnnCast": _given(lambda x: x.float().to(x.dtype) if x.dtype is torch.int64 else x, 0),
            "aclnnInplaceCopy": _given(lambda x: x.float().to(x.dtype) if x.dtype is torch.int64 else x, 1),
        },
        "ROLL_POSITIVE": {
            "aclnnRoll": instead(lambda correct, x, shifts, dims: correct(x, [abs(each) for each in shifts], dims))
        },
        "FILL_OF_GAPS": {"aclnnInplaceFillScalar": _given(_with_gaps, 0)},
        "FLIP_FIRST": {"aclnnFlip": instead(lambda correct, x, dims: correct(x, dims[:1]))},
        "COPY_OF_FIVE": {"aclnnInplaceCopy": _given(lambda x: x.contiguous().flip(-1) if x.dim() > 5 else x, 1)},
        "MASK_OF_65536": {
            "aclnnMaskedSelect": instead(
                lambda correct, x, mask: correct(x, mask & (torch.arange(mask.numel()).view(mask.shape) < 65536))
            )
        },
    },
    "time and memory": {
        "ADD_SLOW": {"aclnnAdd": _slowly(0.005)},
        "MM_SLOW": dict.fromkeys(("aclnnMm", "aclnnMatmul"), _slowly(0.05)),
        "MUL_KEEPS": {"aclnnMul": _keeps([])},
        "ADD_KEEPS": {"aclnnAdd": _keeps([])},
        "EXP_SLOW": {"aclnnExp": _slowly(0.02)},
    },
}
#: Class -> the beginnings of its faults of the runtime.
OF_RUNTIME: Mapping[str, tuple[str, ...]] = {
    "streams and events": ("stream-", "event-"),
    "data movement": ("copy-cut", "copy-repeats", "copy-loses", "copy-between", "copy-to", "copy-from", "copy-within"),
    "time and memory": ("copy-is-slow", "copy-small", "memory-"),
}
#: Class -> the cases that could see its faults, by suite and property.
CASES: Mapping[str, tuple[str, str]] = {
    "state between calls": ("runtime distributed", "state cards"),
    "streams and events": ("runtime distributed", "streams cards"),
    "data movement": ("runtime distributed", "movement cards"),
    "time and memory": ("runtime", "costs refusals"),
    "refusals": ("runtime errors", "refusals refused"),
    "autograd": ("programs", "autograd"),
    "optimizers": ("programs", "optimizers"),
    "long chains, ranges": ("programs", "ranges"),
    "parts of models": ("programs", "parts"),
    "random numbers": ("random distributed", "battery seed distribution state cards"),
}


def faults_of(name: str) -> dict[str, str]:
    """Return the faults of a class, each with the text that plants it."""
    of_runtime = {each: each for each in RUNTIME_FAULTS if each.startswith(OF_RUNTIME.get(name, ("?",)))}
    return of_runtime | {each: f"{__name__}:{each}" for each in BANK.get(name, {})}


def cases_of(name: str, cases: Iterable[Case]) -> dict[str, str]:
    """Return the cases that could see the faults of a class, each with its level: those of smoke, then of standard."""
    suites, properties = map(str.split, CASES[name])
    those = [each for each in cases if each.suite in suites and each.property in properties]
    return {each.id: level for level in ("smoke", "standard") for each in those if each.level == level}


globals().update({name: fault for each in BANK.values() for name, fault in each.items()})
