"""More faults by class, invented without a look at the cases; each beside the call that shows it.

Most follow what public reports say of other accelerators: plans kept for too few of the arguments, numbers that are not
reset, indices of 15, 16 or 31 bits, sums over whole blocks alone, what only one form of an operator refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pytest_ascend.emulator.faults import RUNTIME_FAULTS, Body, Fault, _argument, _given, instead
from pytest_ascend.emulator.system import runtime
from tests.meta import shown_by_class
from tests.meta.shown_by_class import MIB, Call, _graph, _here, _i, _last, _moved, _raises, _repeated, _takes, _x
from tests.meta.spoiled_by_class import _after

T = torch.Tensor
Plant = Callable[[Body], Body]


def _n(*shape: int, seed: int = 0) -> T:
    """Return small integers: products of them are exact."""
    return (_x(*shape, seed=seed) * 3).round()


def _with(made: Callable[..., Any], kept: Any) -> Plant:
    """The wrong body gets what is kept from call to call before the correct body and the arguments."""
    return lambda correct: lambda *given: made(kept, correct, *given)


# --- state between calls ---


def _plan_of_shape(kept: dict[Any, int], correct: Body, left: T, right: T, *rest: Any) -> Any:
    terms = kept.setdefault((left.shape[0], right.shape[-1], left.dtype), left.shape[-1])
    return correct(left[:, :terms], right[:terms], *rest)


def _plan_of_convolution(kept: dict[Any, Any], correct: Body, x: T, w: T, b: Any, stride: Any, *how: Any) -> Any:
    shapes = (x.shape, w.shape, correct(x, w, b, stride, *how).shape)
    return correct(x, w, b, stride, *kept.setdefault(shapes, how[:2]), *how[2:])


def _whole_part(kept: dict[int, Any], correct: Body, x: T, number: Any) -> Any:
    return correct(x, kept.setdefault(int(number), number) if abs(number) < 1e9 else number)


def _nan_stays(kept: list[bool], correct: Body, x: T, *rest: Any) -> Any:
    found = correct(x, *rest)
    if kept and found.numel() and found.is_floating_point():
        found = found.clone()
        found.view(-1)[0] = torch.nan
    kept[:] = [True] if x.is_floating_point() and not bool(x.isfinite().all()) else []
    return found


def _drifts(kept: list[None], correct: Body, *given: Any) -> Any:
    kept.append(None)
    return correct(*given) * (1 + 2e-5 * len(kept))


def _of_first_card(kept: list[Any], correct: Body, x: T, other: T, alpha: Any) -> Any:
    card = ctypes.c_int32(0)
    runtime().aclrtGetDevice(ctypes.byref(card))
    kept[:] = kept if card.value else [alpha]
    return correct(x, other, kept[0] if kept else alpha)


def _every_fourth_lost(kept: list[None], correct: Body, *given: Any) -> None:
    kept.append(None)
    correct(*given) if len(kept) % 4 else None


# --- data movement ---


def _of_middle(x: T) -> T:
    """Of what is expanded within, use the first row for all."""
    return x[:1].expand(x.shape) if x.dim() > 2 and 0 in x.stride()[1:-1] and x.numel() else x


def _without_offset(x: T) -> T:
    return x if x.is_contiguous() or x.is_complex() else x.as_strided(x.shape, x.stride(), 0)


def _by_whole(x: T) -> T:
    return x.trunc() if x.is_floating_point() else x


def _bool_cast(correct: Body, x: T, dtype: Any) -> Any:
    return correct(_by_whole(x) if dtype is torch.bool else x, dtype)


def _bool_copy(correct: Body, target: T, x: T) -> None:
    correct(target, _by_whole(x) if target.dtype is torch.bool else x)


def _in_order_of_memory(correct: Body, x: T, source: T) -> None:
    order = sorted(range(x.dim()), key=lambda each: -x.stride(each))
    if x.dim() == 3 and source.is_contiguous() and 0 not in x.stride() and x.numel() and order != [0, 1, 2]:
        x.permute(order).copy_(source.reshape([x.shape[each] for each in order]))
    else:
        correct(x, source)


def _wraps(place: int, at: int) -> Plant:
    return _given(lambda x: torch.where(x >= at, x - at, x), place)


# --- time and memory ---


def _new_shapes(kept: set[Any], correct: Body, x: T, *rest: Any) -> Any:
    time.sleep(0 if x.shape in kept else 0.05)
    kept.add(x.shape)
    return correct(x, *rest)


def _slower(kept: list[None], correct: Body, *given: Any) -> Any:
    kept.append(None)
    time.sleep(3e-5 * len(kept))
    return correct(*given)


def _takes_memory(*_: Any) -> None:
    runtime().aclrtMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 16), 0)


def _took(function: Callable[[T], object], x: T) -> float:
    torch.npu.synchronize()
    start = time.perf_counter()
    function(x)
    torch.npu.synchronize()
    return time.perf_counter() - start


def _grows(d: torch.device) -> bool:
    took = [_took(torch.exp, _x(8, 8).to(d)) for _ in range(300)]
    return sorted(took[-50:])[25] < 5 * sorted(took[:50])[25]


def _taken(function: Callable[[torch.device], object], low: int, high: int) -> Call:
    """Whether the device's memory says that so many bytes were taken while this is kept."""

    def call(d: torch.device) -> bool:
        torch.zeros(1, device=d).softmax(0)
        before = torch.npu.mem_get_info()[0]
        kept = [function(d)]
        torch.npu.synchronize()
        return low <= before - torch.npu.mem_get_info()[0] <= high and bool(kept)

    return _here(call)


def _neighbours(d: torch.device) -> bool:
    those = [torch.full((6 * MIB,), 1.0, device=d) for _ in range(6)]
    del those[1::2]
    torch.npu.empty_cache()
    return all(bool((each[:200].cpu() == 1).all()) for each in those)


# --- refusals ---


def _from_end(place: int, dim: int | None = None) -> Plant:
    """Negative indices count from the end, where they are refused."""

    def counted(correct: Body, *given: Any) -> Any:
        size, index = given[0].shape[given[1] if dim is None else dim], given[place]
        return correct(*given[:place], torch.where(index < 0, index + size, index), *given[place + 1 :])

    return instead(counted)


def _clamped(index: Any, size: int) -> Any:
    is_index = isinstance(index, T) and index.dtype is torch.int64 and index.numel() and size
    return index.clamp(-size, size - 1) if is_index else index


def _indices_clamped(correct: Body, x: T, indices: Any, *rest: Any) -> Any:
    return correct(x, [_clamped(each, size) for each, size in zip(indices, x.shape, strict=False)], *rest)


def _targets_clamped(correct: Body, x: T, target: T, weight: Any, how: int, ignored: int) -> Any:
    return correct(x, torch.where(target == ignored, ignored, _clamped(target, x.shape[-1])), weight, how, ignored)


def _first_told(kept: list[None], correct: Body, x: T, dim: int, index: T) -> Any:
    try:
        return correct(x, dim, index)
    except Exception:
        if not kept:
            kept.append(None)
            raise
        return correct(x, dim, _clamped(index, x.shape[dim]))


def _twice(call: Call) -> Call:
    return lambda d: [call(d), call(d)]


# --- autograd ---


def _whole_blocks(correct: Body, x: T, dims: Any, *rest: Any) -> Any:
    is_hit = list(dims) == [0] and x.dim() == 2 and len(x) > 64
    return correct(x[: len(x) // 64 * 64] if is_hit else x, dims, *rest)


def _at_most_one(correct: Body, grad: T, *rest: Any) -> Any:
    """Where windows overlap, the sum ends at the greatest gradient."""
    most = float(grad.abs().max()) if grad.numel() else 0.0
    return correct(grad, *rest).clamp(-most, most)


def _last_wins(correct: Body, x: T, dim: int, index: T, source: T) -> Any:
    if index.numel() <= 64:
        return correct(x, dim, index, source)
    return x.scatter(dim, index, source[tuple(map(slice, index.shape))] + x.gather(dim, index))


def _last_dim(correct: Body, grad: T, output: T, dim: int) -> Any:
    return correct(grad, output, -1 if grad.dim() > 2 else dim)


def _eight_samples(correct: Body, grad: T, x: T, *rest: Any) -> Any:
    dx, dw, db = correct(grad, x, *rest)
    return dx, dw if dw is None else correct(grad[:8], x[:8], *rest)[1], db


def _of_weights(d: torch.device) -> T:
    w = _n(3, 2, 3, 3).to(d).requires_grad_()
    return torch.autograd.grad(F.conv2d(_n(12, 2, 6, 6, seed=1).to(d), w).sum(), w)[0]


def _accumulated(d: torch.device) -> Any:
    x = _x(4).to(d).requires_grad_()
    for _ in range(9):
        (x * x).sum().backward()
    return x.grad


# --- optimizers ---


def _as_long_as_first(correct: Body, *lists: Any) -> list[T]:
    found, count = correct(*lists), lists[0][0].numel()
    pairs = zip(found, lists[0], strict=True)
    return [torch.cat([new.flatten()[:count], old.flatten()[count:]]).view(new.shape) for new, old in pairs]


def _not_in_half(correct: Body, grads: list[T], *rest: Any) -> None:
    before = [each.clone() for each in grads]
    correct(grads, *rest)
    for now, old in zip(grads, before, strict=True):
        now.copy_(old if now.dtype is torch.float16 else now)


def _without_inf(correct: Body, x: list[T], order: Any) -> Any:
    return correct([each.nan_to_num(posinf=0.0, neginf=0.0) for each in x], order)


def _growth_kept(correct: Body, scale: T, tracker: T, found: T, *rest: Any) -> Any:
    new, count = correct(scale, tracker, found, *rest)
    return new, tracker.clone() if bool(found.any()) else count


def _scaled(*found: int) -> Call:
    def call(d: torch.device) -> list[T]:
        scale, tracker = torch.tensor([8.0], device=d), torch.zeros(1, dtype=torch.int32, device=d)
        for each in found:
            torch._amp_update_scale_(scale, tracker, torch.full((1,), float(each), device=d), 2.0, 0.5, 3)
        return [scale, tracker]

    return call


def _unscaled(d: torch.device) -> T:
    grad = torch.full((40,), 8.0, dtype=torch.float16, device=d)
    torch._amp_foreach_non_finite_check_and_unscale_([grad], torch.zeros(1, device=d), torch.full((1,), 0.25, device=d))
    return grad


def _zeroed(d: torch.device) -> list[T]:
    those = [torch.ones(3, device=d) for _ in range(20)]
    torch._foreach_zero_(those)
    return those


def _amsgrad(d: torch.device) -> list[T]:
    those = [nn.Parameter(_x(n).to(d)) for n in (5, 40)]
    optimizer = torch.optim.AdamW(those, amsgrad=True, betas=(0.9, 0.1), fused=True)
    for i in range(4):
        for each in those:
            each.grad = _x(len(each), seed=100 + i).to(d)
        optimizer.step()
    return [each.detach() for each in those]


# --- long chains, ranges ---


def _cumsum_in_half(correct: Body, x: T, dim: int, dtype: Any) -> Any:
    if x.dtype is not torch.float16 or not x.numel() or x.shape[dim] > 3000:
        return correct(x, dim, dtype)
    return torch.stack([*accumulate(x.unbind(dim))], dim).to(dtype)


def _rows_by_squares(correct: Body, x: T, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    y, *rest = correct(x, shape, None, None, eps)
    dims = tuple(range(-len(shape), 0))
    centre = x.float().mean(dims, keepdim=True)
    spread = (x.float().square().mean(dims, keepdim=True) - centre.square()).clamp(min=0) + eps
    made = (x.float() - centre) * spread.rsqrt() * (1 if weight is None else weight.float())
    return (made if bias is None else made + bias.float()).to(y.dtype), *rest


def _of_32_bits_at_most(correct: Body, x: T, *rest: Any) -> Any:
    found = correct(x, *rest)
    return found.int().long() if found.dtype is torch.int64 else found


def _unshifted(correct: Body, x: T, dim: int) -> Any:
    return x.exp() / x.exp().sum(dim, keepdim=True) if x.dtype is torch.float32 else correct(x, dim)


def _stepwise(correct: Body, start: Any, end: Any, step: Any) -> Any:
    """Add the step each time, in float32."""
    found = correct(start, end, step)
    steps = np.full(found.numel(), float(step), np.float32)
    steps[:1] = start
    return torch.from_numpy(np.add.accumulate(steps)).to(found.dtype) if found.is_floating_point() else found


def _of_4096(correct: Body, x: T, k: int, dim: int, *rest: Any) -> Any:
    is_wide = x.dim() and x.shape[dim] > 4096 >= k
    return correct(x.narrow(dim, 0, 4096) if is_wide else x, k, dim, *rest)


# --- parts of models ---


def _ignored_counted(correct: Body, x: T, target: T, weight: Any, how: int, ignored: int) -> Any:
    loss, total = correct(x, target, weight, how, ignored)
    count = float(total) + float((target == ignored).sum())
    return (loss * float(total) / count if how == 1 and count else loss), total


def _gamma_of_group(correct: Body, x: T, gamma: Any, *given: Any) -> Any:
    channels, groups = given[2], given[4]
    if gamma is not None and channels > groups > 1:
        gamma = gamma.view(groups, -1)[:, :1].expand(groups, channels // groups).reshape(-1)
    return correct(x, gamma, *given)


def _of_16_steps(correct: Body, *given: Any, **how: Any) -> Any:
    y, *rest = correct(*given, **how)
    return torch.cat([y[:16], y[15:16].expand(max(len(y) - 16, 0), *y.shape[1:])]), *rest


def _one_dilation(correct: Body, *given: Any) -> Any:
    """With groups, all dimensions are dilated as the first one."""
    found = correct(*given)
    if given[8] == 1 or len({*given[5]}) == 1:
        return found
    with contextlib.suppress(RuntimeError):
        other = correct(*given[:5], [given[5][0]] * len(given[5]), *given[6:])
        return other if other.shape == found.shape else found * 0
    return found * 0


def _long_lstm(d: torch.device) -> T:
    layer = nn.LSTM(4, 4).to(d)
    with torch.no_grad():
        for i, each in enumerate(layer.parameters()):
            each.copy_(_x(*each.shape, seed=i) * 0.3)
        found: T = layer(_x(20, 2, 4).to(d))[0]
    return found


def _running(d: torch.device) -> Any:
    layer = nn.BatchNorm1d(3, momentum=0.3).to(d)
    layer(_x(5, 3).to(d))
    return layer.running_mean


# --- random numbers ---


def _again(_: Any, *given: Any) -> None:
    flat = given[-1].view(-1)
    for start in range(128, flat.numel(), 128):
        flat[start : start + 128] = flat[: min(128, flat.numel() - start)].clone()


def _doubled(correct: Body, n: int, *rest: Any) -> T:
    found = correct(n, *rest).clone()
    found[-1:] = found[: 1 if n > 5000 else 0] if n > 5000 else found[-1:]
    return found


def _in_10_bits(_: Any, x: T, low: float, high: float, *__: Any) -> None:
    if x.is_floating_point():
        x.sub_(low).mul_(1024 / (high - low)).floor_().mul_((high - low) / 1024).add_(low)


def _without_tails(_: Any, x: T, mean: Any, std: Any, *__: Any) -> None:
    x.clamp_(mean - 3 * std, mean + 3 * std) if isinstance(mean, float | int) else None


def _of_32_bits(correct: Body, x: T, low: float, high: float, seed: int, offset: int) -> None:
    correct(x, low, high, seed & 0xFFFFFFFF, offset)


def _of_31_bits(correct: Body, x: T, low: int, high: int, *rest: Any) -> None:
    correct(x, low, min(high, low + (1 << 31) - 1), *rest)


def _of_first(x: T) -> T:
    return x.reshape(-1)[:1].expand(x.shape).contiguous()


def _seeds_differ(d: torch.device) -> bool:
    torch.manual_seed(5)
    first = torch.rand(16, device=d)
    torch.manual_seed(5 + (1 << 33))
    return not torch.equal(first, torch.rand(16, device=d))


# --- streams and events ---


def _after_a_stream(d: torch.device) -> bool:
    """Whether a stream that waits for another one finds what that one made of a tensor after other work."""
    before, after = torch.npu.Stream(), torch.npu.Stream()
    x = torch.ones(4096, device=d)
    torch.npu.synchronize()
    with torch.npu.stream(before):
        for _ in range(100):
            x.add_(1).sub_(1)
        x.mul_(3)
    after.wait_stream(before)
    with torch.npu.stream(after):
        found = x.clone()
    torch.npu.synchronize()
    return bool((found.cpu() == 3).all())


def _event(right: Callable[[Any, Any, float], bool]) -> Call:
    """Ask of the events before and after some products, in a stream of their own, and of the milliseconds they took."""

    def call(d: torch.device) -> bool:
        stream, ends = torch.npu.Stream(), [torch.npu.Event(enable_timing=True) for _ in range(2)]
        x = torch.rand(600, 600, device=d)
        torch.npu.synchronize()
        with torch.npu.stream(stream):
            ends[0].record()
            for _ in range(20):
                x @ x
            start = time.perf_counter()
            ends[1].record()
        stream.synchronize()
        return right(*ends, (time.perf_counter() - start) * 1e3)

    return _here(call)


_CONV, _EACH = "aclnnConvolution", dict.fromkeys
_MM, _LSTM = ("aclnnMm", "aclnnMatmul"), ("DynamicRNN", "DynamicRNNV2")
_POOL = ("aclnnMaxPool2dWithMask", "aclnnMaxPool2dWithIndices")
#: Class -> fault -> what is planted, "" for one of the runtime, and the call that shows it.
FAULTS: Mapping[str, Mapping[str, tuple[Fault | str, Call]]] = {
    "state between calls": {
        "MM_PLAN_OF_SHAPE": (_EACH(_MM, _with(_plan_of_shape, {})),
            lambda d: [_n(4, k).to(d) @ _n(k, 4).to(d) for k in (8, 33)]),
        "CONV_PLAN_OF_SHAPE": ({_CONV: _with(_plan_of_convolution, {})}, lambda d: [
            F.conv2d(_n(1, 2, 8, 8).to(d), _n(2, 2, 3, 3, seed=1).to(d), padding=i, dilation=i) for i in (1, 2)]),
        "MULS_OF_WHOLE_PART": ({"aclnnMuls": _with(_whole_part, {})}, lambda d: [_x(4).to(d) * i for i in (2.0, 2.5)]),
        "SUM_NAN_STAYS": ({"aclnnReduceSum": _with(_nan_stays, [])},
            lambda d: [torch.tensor([[1.0, i]]).to(d).sum(-1) for i in (torch.nan, 2)]),
        "MM_DRIFTS": (_EACH(_MM, _with(_drifts, [])), _repeated(lambda x: x @ x, 200)),
        "ADD_OF_FIRST_CARD": ({"aclnnAdd": _with(_of_first_card, [])}, lambda d: [
            torch.add(_x(4).to(at), _x(4).to(at), alpha=i).cpu() for at, i in ((d, 2), (_last(d), 3))]),
    },
    "streams and events": {
        "stream-default-waits-instead": ("", _here(_after_a_stream)),
        "stream-event-query-is-stuck": ("", _event(lambda _, end, __: end.query())),
        "stream-event-measures-the-host": ("", _event(lambda a, b, waited: a.elapsed_time(b) > 0.3 * waited)),
    },
    "data movement": {
        "COPY_WITHOUT_OFFSET": ({"aclnnInplaceCopy": _given(_without_offset, 1)},
            lambda d: _x(8, 8).to(d)[2:, 1:].t().contiguous()),
        "COPY_OF_FIRST_ROWS": ({"aclnnInplaceCopy": _given(_of_middle, 1)},
            lambda d: _x(3, 1, 4).to(d).expand(3, 5, 4).contiguous()),
        "COPY_IN_ORDER_OF_MEMORY": ({"aclnnInplaceCopy": instead(_in_order_of_memory)}, lambda d: [
            x := torch.zeros(2, 3, 4).to(d), x.permute(2, 0, 1).copy_(_x(4, 2, 3).to(d)), x]),
        "BOOL_BY_WHOLE": ({"aclnnCast": instead(_bool_cast), "aclnnInplaceCopy": instead(_bool_copy)},
            lambda d: torch.tensor([0.5, 2.0, 0.0]).to(d).bool()),
        "SELECT_OF_15_BITS": ({"aclnnIndexSelect": _wraps(2, 32768)},
            lambda d: torch.arange(50000).to(d).index_select(0, _i(d, 3, 40000))),
        "copy-to-view-loses-start": ("", lambda d: [x := torch.zeros(40, device=d), x[1:].copy_(_x(39))]),
        "copy-from-line-start": ("", lambda d: _x(40).to(d)[3:].cpu()),
        "copy-within-ends-at-8-mib": ("", _moved(4 * MIB, torch.int32, lambda x, d: x.to(d).to(_last(d)))),
    },
    "time and memory": {
        "ADD_NEW_SHAPES_SLOW": ({"aclnnAdd": _with(_new_shapes, set())},
            _here(lambda d: min(_took(lambda x: x + x, _x(i).to(d)) for i in range(4, 20)) < 0.02)),
        "MUL_GAPS_SLOW": ({"aclnnMul": _after(lambda _, x, *__: time.sleep(0 if x.is_contiguous() else 0.02))},
            _takes(lambda x: x.t() * x.t(), lambda x: x + x, 16)),
        "SOFTMAX_TAKES_MEMORY": ({"aclnnSoftmax": _after(_takes_memory)},
            _taken(lambda d: [torch.zeros(9, device=d).softmax(0) for _ in range(300)], 0, 8 * MIB)),
        "CUMSUM_ONE_BY_ONE": ({"aclnnCumsum": _after(lambda _, x, *__: time.sleep(2e-6 * x.numel()))},
            _takes(lambda x: x.cumsum(0), lambda x: x * x, 128)),
        "EXP_SLOWER_AND_SLOWER": ({"aclnnExp": _with(_slower, [])}, _here(_grows)),
        "copy-small-is-slow": ("", _takes(lambda x: x.cpu(), lambda x: x * x, 4)),
        "memory-info-is-constant": ("",
            _taken(lambda d: torch.empty(256 * MIB, dtype=torch.uint8, device=d), 256 * MIB, 999 * MIB)),
        "memory-free-hits-neighbour": ("", _here(_neighbours)),
    },
    "refusals": {
        "TARGET_CLAMPS": ({"aclnnNLLLoss": instead(_targets_clamped)},
            _raises(lambda d: F.nll_loss(_x(2, 3).to(d), _i(d, 0, 3)))),
        "INDEX_CLAMPS": ({"aclnnIndex": instead(_indices_clamped)},
            _raises(lambda d: torch.ones(3, device=d)[_i(d, 0, 5)])),
        "PUT_CLAMPS": ({"aclnnIndexPutImpl": instead(_indices_clamped)},
            _raises(lambda d: torch.ones(3, device=d).index_put_((_i(d, 0, 5),), torch.ones(2, device=d)))),
        "SCATTER_CLAMPS": ({"aclnnScatter": instead(lambda c, x, dim, i, *a: c(x, dim, _clamped(i, x.shape[dim]), *a))},
            _raises(lambda d: torch.ones(3, device=d).scatter(0, _i(d, 0, 5), torch.ones(2, device=d)))),
        "ONLY_FIRST_TOLD": ({"aclnnIndexSelect": _with(_first_told, [])},
            _twice(_raises(lambda d: torch.ones(3, device=d).index_select(0, _i(d, 0, 5))))),
        "GATHER_FROM_END": ({"aclnnGather": _from_end(2)},
            _raises(lambda d: torch.ones(3, device=d).gather(0, _i(d, 0, -1)))),
        "EMBEDDING_FROM_END": ({"aclnnEmbedding": _from_end(1, 0)},
            _raises(lambda d: F.embedding(_i(d, 0, -1), torch.ones(3, 2, device=d)))),
        "MULTINOMIAL_OF_NAN": ({"aclnnMultinomial": _given(lambda x: x.nan_to_num(1.0), 0)},
            _raises(lambda d: torch.tensor([0.5, torch.nan]).to(d).multinomial(1))),
    },
    "autograd": {
        "SUM_OF_WHOLE_BLOCKS": ({"aclnnReduceSum": instead(_whole_blocks)},
            _graph(lambda b: _x(100, 4).to(b.device) + b, 4)),
        "POOL_GRADIENT_NOT_ADDED": (_EACH([f"{each}Backward" for each in _POOL], instead(_at_most_one)),
            _graph(lambda x: F.max_pool2d(x, 3, 1), 1, 1, 6, 6)),
        "GATHER_GRADIENT_NOT_ADDED": ({"aclnnScatterAdd": instead(_last_wins)},
            _graph(lambda x: x.gather(0, (torch.arange(100) % 4).to(x.device)), 5)),
        "SOFTMAX_GRADIENT_LAST_DIM": ({"aclnnSoftmaxBackward": instead(_last_dim)},
            _graph(lambda x: x.softmax(1), 2, 3, 4)),
        "TANH_GRADIENT_SATURATES": (
            {"aclnnTanhBackward": instead(lambda c, grad, y: torch.where(y.abs() > 0.99, 0, c(grad, y)))},
            _graph(lambda x: (x * 3).tanh(), 40)),
        "CONV_WEIGHTS_OF_8": ({"aclnnConvolutionBackward": instead(_eight_samples)}, _of_weights),
        "ACCUMULATION_LOST": ({"aclnnInplaceAdd": _with(_every_fourth_lost, [])}, _accumulated),
    },
    "optimizers": {
        "NORM_WITHOUT_INF": ({"aclnnForeachNorm": instead(_without_inf)},
            lambda d: torch._foreach_norm([torch.tensor([1.0, torch.inf]).to(d)])[0]),
        "GROWTH_KEPT": ({"aclnnAmpUpdateScale": instead(_growth_kept)}, _scaled(0, 0, 1, 0)),
        "NO_BACKOFF": ({"aclnnAmpUpdateScale": _argument(4, 1.0)}, _scaled(0, 1)),
        "MUL_AS_LONG_AS_FIRST": ({f"aclnnForeachMulScalar{v}": instead(_as_long_as_first) for v in ("", "V2")},
            lambda d: list(torch._foreach_mul([_x(n).to(d) for n in (5, 40)], 3.0))),
        "UNSCALE_NOT_IN_HALF": ({"aclnnForeachNonFiniteCheckAndUnscale": instead(_not_in_half)}, _unscaled),
        "NO_AMSGRAD": ({"aclnnApplyAdamWV2": _argument(11, False)}, _amsgrad),
        "LERP_LARGE_WEIGHT": ({"aclnnForeachLerpScalar": instead(lambda c, x, y, w: c(x, y, min(w, 1 - w)))},
            shown_by_class._of_list(lambda x: torch._foreach_lerp(x, x[::-1], 0.75), 3)),
        "ZERO_OF_16": ({"aclnnForeachZeroInplace": instead(lambda c, x: c(x[:16]))}, _zeroed),
    },
    "long chains, ranges": {
        "CUMSUM_IN_HALF": ({"aclnnCumsum": instead(_cumsum_in_half)}, lambda d: _x(2000).abs().half().to(d).cumsum(0)),
        "SUM_OF_32_BITS": ({"aclnnReduceSum": instead(_of_32_bits_at_most)},
            lambda d: torch.full((4,), (1 << 31) - 1, dtype=torch.int32).to(d).sum() // 1024),
        "MM_OF_2048_TERMS": (_EACH(_MM, instead(lambda c, a, b, *r: c(a[..., :2048], b[..., :2048, :], *r))),
            lambda d: torch.ones(2, 3000).to(d) @ torch.ones(3000, 2).to(d)),
        "LAYER_NORM_BY_SQUARES": ({"aclnnLayerNorm": instead(_rows_by_squares)},
            lambda d: F.layer_norm((_x(4, 512) + 2000).to(d), (512,))),
        "ARGMAX_OF_16_BITS": ({"aclnnArgMax": instead(lambda c, *a: c(*a) % 65536)},
            lambda d: torch.arange(70000.0).to(d).argmax()),
        "SOFTMAX_UNSHIFTED": ({"aclnnSoftmax": instead(_unshifted)},
            lambda d: torch.tensor([[100.0, 99.0]]).to(d).softmax(-1)),
        "ARANGE_STEPWISE": ({"aclnnArange": instead(_stepwise)},
            lambda d: torch.arange(0, 1000, 0.01, device=d)[-1] - 999.99),
        "TOPK_OF_4096": (_EACH(("aclnnTopk", "aclnnTopkV2"), instead(_of_4096)),
            lambda d: torch.arange(5000.0).to(d).topk(3)[0]),
        "EMBEDDING_OF_15_BITS": ({"aclnnEmbedding": _wraps(1, 32768)},
            lambda d: F.embedding(_i(d, 3, 40000), torch.arange(50000.0).view(-1, 1).to(d))),
    },
    "parts of models": {
        "IGNORED_COUNTED": ({"aclnnNLLLoss": instead(_ignored_counted)},
            lambda d: F.cross_entropy(_x(4, 5).to(d), _i(d, 0, -100, 2, -100))),
        "NORM_MOMENTUM_FIXED": ({"aclnnBatchNorm": _argument(6, 0.1)}, _running),
        "GAMMA_OF_GROUP": ({"aclnnGroupNorm": instead(_gamma_of_group)},
            lambda d: F.group_norm(_x(2, 4, 6).to(d), 2, _x(4).to(d))),
        "LSTM_OF_16_STEPS": (_EACH(_LSTM, instead(_of_16_steps)), _long_lstm),
        "CONV_ONE_DILATION": ({_CONV: instead(_one_dilation)},
            lambda d: F.conv2d(_n(1, 2, 9, 9).to(d), _n(2, 1, 3, 3, seed=1).to(d), dilation=(1, 2), groups=2)),
        "POOL_DROPS_NAN": (_EACH(_POOL, _given(lambda x: x.nan_to_num(-9e9, torch.inf, -torch.inf), 0)),
            lambda d: F.max_pool2d(torch.tensor([[[[1.0, torch.nan], [2.0, 3.0]]]]).to(d), 2)),
        "POOL_COUNTS_PADDING": ({"aclnnAvgPool2d": _argument(5, True)},
            lambda d: F.avg_pool2d(_x(1, 1, 4, 4).to(d), 2, 2, 1, count_include_pad=False)),
        "CORNERS_NOT_ALIGNED": ({"aclnnUpsampleBilinear2d": _argument(2, False)},
            lambda d: F.interpolate(_x(1, 1, 4, 4).to(d), (7, 7), mode="bilinear", align_corners=True)),
        "FREQUENCY_IGNORED": ({"aclnnEmbeddingDenseBackward": _argument(4, False)},
            _graph(lambda w: F.embedding(_i(w.device, 0, 2, 0), w, scale_grad_by_freq=True), 4, 3)),
    },
    "random numbers": {
        "MASK_EVERY_1024": ({f"aclnnDropoutGenMask{v}": _after(_again) for v in ("", "V2")},
            _here(lambda d: not torch.equal(*F.dropout(torch.ones(2048, device=d), 0.5).chunk(2)))),
        "PERMUTATION_DOUBLED": ({"aclnnRandperm": instead(_doubled)},
            lambda d: len(torch.randperm(10000, device=d).unique()) == 10000),
        "MULTINOMIAL_REPLACES": ({"aclnnMultinomial": _argument(2, True)},
            lambda d: all(len(torch.ones(20, device=d).multinomial(18).unique()) == 18 for _ in range(4))),
        "BERNOULLI_OF_FIRST": ({"aclnnInplaceBernoulliTensor": _given(_of_first, 1)},
            lambda d: torch.bernoulli(torch.tensor([0.0, 1.0]).to(d))),
        "NORMAL_OF_FIRST": ({"aclnnNormalTensorFloat": _given(_of_first, 0)},
            lambda d: torch.normal(torch.tensor([0.0, 1000.0]).to(d), 0.1) > 500),
        "SEED_OF_32_BITS": ({"aclnnInplaceUniform": instead(_of_32_bits)}, _here(_seeds_differ)),
        "NORMAL_WITHOUT_TAILS": ({"aclnnInplaceNormal": _after(_without_tails)},
            lambda d: bool((torch.randn(1 << 16, device=d).abs() > 3.01).any())),
        "UNIFORM_OF_10_BITS": ({"aclnnInplaceUniform": _after(_in_10_bits)},
            lambda d: len(torch.rand(1 << 14, device=d).unique()) > 2000),
        "INTEGERS_OF_31_BITS": ({"aclnnInplaceRandom": instead(_of_31_bits)},
            lambda d: bool((torch.randint(0, 1 << 40, (1000,), device=d) > 1 << 32).any())),
    },
}  # fmt: skip


def more_of(name: str) -> dict[str, str]:
    """Return these faults of a class, each with the text that plants it."""
    return {each: each if each in RUNTIME_FAULTS else f"{__name__}:{each}" for each in FAULTS.get(name, {})}


globals().update({name: fault for each in FAULTS.values() for name, (fault, _) in each.items() if fault})
