"""Long sums and chains, large means, wide rows, large and small numbers, for which usual samples are too short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.run import inputs

from ..runtime.rows import SMOKE, STANDARD, At, Row, T, alike

Given = Callable[..., T]
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def _over(call: Callable[[Given], object], *dtypes: torch.dtype, terms: int = 4, level: str = "") -> Row:
    """Return a row. Functions of numbers of all sizes are judged as sums of four, as few large results dominate.

    ``call`` makes its inputs with ``given(rows, columns, mean=, std=)``, in the dtype under test.
    """

    def run(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
        def given(*shape: int, mean: float = 0.0, std: float = 1.0, low: float | None = None, high: float = 1.0) -> T:
            key = f"ranges/{shape}/{mean}"
            if low is not None:
                made = inputs.uniform(key, shape, low=low, high=high)
            else:
                made = inputs.normal(key, shape, std=std) + mean
            for kind in dtypes:  # so that every dtype, and float64, gets the same numbers
                made = made.to(kind).float()
            return made.to(dtype).to(device)

        found = call(given)
        results = found if isinstance(found, tuple) else (found,)
        return {f"result {i}": each for i, each in enumerate(results) if isinstance(each, T)}

    # The CPU of torch 2.1 lacks some functions in half precision.
    level = level or (STANDARD if dtypes else SMOKE)
    return level, lambda at: at.defined(run, *(dtypes or (F32,)), accumulation=terms)


def _backward(call: Callable[[T], T], x: T) -> tuple[T, T]:
    leaf = x.detach().requires_grad_()
    result = call(leaf)
    return result, torch.autograd.grad(result, leaf, torch.ones_like(result))[0]


def _of_weights(given: Given) -> Iterator[T]:
    """Yield gradients of weights, which are sums over 4,099 rows or 33 images."""
    many: tuple[tuple[Callable[..., T], tuple[tuple[int, ...], ...]], ...] = (
        (F.linear, ((4099, 33), (7, 33), (7,))),
        (lambda x, w, b: F.layer_norm(x, (33,), w, b), ((4099, 33), (33,), (33,))),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), ((4099, 3), (3,), (3,))),
        (F.conv2d, ((33, 3, 7, 6), (4, 3, 3, 3), (4,))),
    )
    for call, (of_input, *shapes) in many:
        weights = [given(*shape).detach().requires_grad_() for shape in shapes]
        result = call(given(*of_input), *weights)
        yield from torch.autograd.grad(result, weights, given(*result.shape, mean=0.5))


def _chain(given: Given) -> T:
    x, weight = given(4, 64), given(64, 64, std=0.1)
    for _ in range(48):
        x = F.layer_norm(x + F.silu(F.linear(x, weight)), (64,))
    return x


def _repeated(given: Given) -> T:
    x = given(257)
    y = x.clone()
    for _ in range(200):
        y.mul_(0.99).add_(x, alpha=0.01)
    return y


def _duplicates(device: torch.device) -> dict[str, T]:
    """Accumulate thousands of small integers in seven places; every one must be added, exactly."""
    index = inputs.integers("ranges/duplicates", (4099,), low=0, high=7).to(device)
    x = inputs.integers("ranges/duplicates/source", (4099, 5), low=-3, high=4).float().to(device)
    table, wide = torch.ones(7, 5, device=device), index[:, None].expand(4099, 5)
    found = {
        "index_add": table.index_add(0, index, x),
        "index_put": table.index_put((index,), x, accumulate=True),
        "scatter_add": table.scatter_add(0, wide, x),
        "bincount": torch.bincount(index, minlength=9),
        "index_add, columns": table.mT.index_add(1, index, x.mT),
        "scatter_add, columns": table.mT.scatter_add(1, wide.mT, x.mT),
        "sum": x.sum(0),
        "sum of int32": (index + 2**30).int().sum(),
    }
    ends = torch.tensor([0, 4, 4], device=device)  # bags of 4, of none and of 32
    modes = ("sum", "mean", "max")
    return found | {f"bags, {mode}": F.embedding_bag(index[:36], x[:7], ends, mode=mode) for mode in modes}


def _not_finite(at: At) -> None:
    """Check that one NaN, infinity or large number reaches all results that depend on it, and no others."""
    calls: Mapping[str, Callable[[T], T]] = {
        "max_pool2d": lambda x: F.max_pool2d(x[None], 3, 2), "avg_pool2d": lambda x: F.avg_pool2d(x[None], 3, 2),
        "amax": lambda x: x.amax((0, 2)), "amin": lambda x: x.amin((0, 2)), "sum": lambda x: x.sum((0, 2)),
        "relu": F.relu, "clamp": lambda x: x.clamp(-1, 1), "maximum": lambda x: torch.maximum(x, x.flip(0)),
        "softmax": lambda x: x.softmax(-1), "layer_norm": lambda x: F.layer_norm(x, (9,)),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=-1), "mean": lambda x: x.mean(1),
        "cumsum": lambda x: x.cumsum(1), "max": lambda x: x.max(-1).values, "sort": lambda x: x.sort(-1).values,
        "sign": torch.sign, "mm": lambda x: x[0] @ x[1].mT, "norms": lambda x: torch._foreach_norm([*x])[0],  # noqa: SLF001
    }  # fmt: skip
    is_known = at.device.type != "npu" or knows_infinities()  # some chips use the largest number instead
    for bad in (torch.nan, torch.inf, -torch.inf) if is_known else (1e15, -1e15):
        x = inputs.integers("ranges/special", (3, 7, 9), low=-4, high=5).float()
        x[1, 3, 4] = bad
        for name, call in calls.items():
            found, wanted = (call(each).cpu() for each in (x.to(at.device), x))
            kinds = [[each.isnan(), each > 1e12, each < -1e12] for each in (found, wanted)]
            at.same(kinds[0], kinds[1], f"{name}: {bad} is lost, or is where it does not belong")


def _most(x: T) -> int:
    """Return an integer that the floating-point format of the same width cannot represent."""
    return 2**53 + 1 if x.dtype is torch.int64 else 2**24 + 1


#: Calls on integers and on the same integers in another order.
_WHOLE: Mapping[str, Callable[[T, T], T]] = {
    "mul": lambda x, y: x * (y % 31), "add": torch.add, "sub": torch.sub, "maximum": torch.maximum,
    "eq": lambda x, _: x == x + 1, "lt": lambda x, _: x + 1 < x, "gt": lambda x, _: x + 1 > x,
    "floor_divide": lambda x, y: x // (y % 7 + 1), "floor": lambda x, _: torch.div(x, 3, rounding_mode="floor"),
    "remainder": lambda x, y: x % (y % 1023 + 1), "remainder of a number": lambda x, _: x % 1000,
    "pow": lambda x, _: (x % 10) ** (17 if x.dtype is torch.int64 else 9), "abs": lambda x, _: x.abs(),
    "sort": lambda x, _: x.sort().values, "amax": lambda x, _: x.amax(), "amin": lambda x, _: x.view(7, -1).amin(1),
    "max": lambda x, _: x.max(), "where": lambda x, y: x.where(y > 0, -y), "neg": lambda x, _: -x,
    "bitwise": lambda x, y: (x | x.roll(1)) ^ (x & y), "masked_fill": lambda x, _: x.masked_fill(x < 0, _most(x)),
    "clamp": lambda x, y: x.clamp(y, y + 1), "clamp to numbers": lambda x, _: x.clamp(-_most(x), _most(x) * 64),
    "sum": lambda x, _: x.sum(), "sum of int32": lambda x, _: x.clamp(-(2**31), 2**31 - 1).int().sum(),
    "sum of int8": lambda x, _: (x > 0).to(torch.int8).mul(127).sum(), "prod": lambda x, _: x[:2].prod(),
    "cumsum": lambda x, _: x.cumsum(0), "cumsum of int32": lambda x, _: x[1:2].int().expand(9).cumsum(0),
    "index_add": lambda x, _: x[:9].index_add(0, torch.arange(9, device=x.device), x[9:18]),
    "arange": lambda x, _: torch.arange(_most(x) - 4, _most(x) + 5, device=x.device),
    "full": lambda x, _: torch.full((9,), _most(x), device=x.device), "item": lambda x, _: torch.tensor([x[3].item()]),
}  # fmt: skip


def _whole(device: torch.device) -> dict[str, T]:
    """Compute with integers, which must stay exact: float32 has 24 bits, float64 53, and 64 bits are two words."""
    large = inputs.integers("ranges/whole", (329,), low=-(2**31), high=2**31)
    few = torch.tensor([2**24 + 1, 2**31 - 1, -(2**31) - 1, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 3, 0]).repeat(42)
    given = {"large numbers": large, "some numbers": few, "numbers of int32": (large >> 5).int()}
    made = {said: (x.to(device), x.flip(0).to(device)) for said, x in given.items()}
    return {f"{name} of {said}": call(*both) for name, call in _WHOLE.items() for said, both in made.items()}


def _rows(device: torch.device) -> dict[str, T]:
    """Compute more than 65,535 rows or batches, none of which may be missing."""
    x = inputs.integers("ranges/rows", (70001, 3), low=-4, high=5).float().to(device)
    return {
        "bmm": torch.bmm(x[:, None], x[:, :, None]), "sum": x.sum(-1), "amax": x.amax(-1), "cumsum": x.cumsum(-1),
        "sort": x.sort(-1).values, "flip": x.flip(0), "mm": x @ x[:3], "topk": x.topk(2).values,
        "gather": x.gather(1, (x > 0).long()), "softmax": (x[:, :2] * 0).softmax(-1),
        "layer_norm": F.layer_norm(x * 0, (3,), x.new_ones(3), x.new_tensor([1, 2, 3])),
    }  # fmt: skip


def _beyond(device: torch.device) -> dict[str, Any]:
    """Use indices beyond 2^24 and 2^16, which must be found as integers: float32 cannot count them."""
    count, places = 2**24 + 9, torch.tensor([2**24 + 1, 2**24 + 3, 2**24 + 5], device=device)
    x, ones = torch.zeros(count, dtype=torch.int8, device=device), torch.ones(count, dtype=torch.int8, device=device)
    x[2**24 + 1] = 5
    x[2**24 + 3] = -5
    table = torch.arange(70001.0, device=device)[:, None].expand(70001, 3).contiguous()
    rows = torch.tensor([65535, 65536, 65537, 70000], device=device)
    wide = inputs.integers("ranges/sort", (70001,), low=0, high=1 << 30).to(device)
    return {
        "argmax": x.argmax(), "argmin": x.half().argmin(), "nonzero": x.nonzero(), "a slice": x[-7:],
        "index_select": x.index_select(0, places), "gather": x.gather(0, places),
        "searchsorted": torch.searchsorted(places, places - 1), "bucketize": torch.bucketize(places - 1, places),
        "arange": torch.arange(count, device=device)[-3:], "a sum of integers": ones.sum(),
        "counts": [ones.bool().sum(), ones.count_nonzero()], "a cumulative sum of integers": ones.cumsum(0)[-1],
        "embedding": F.embedding(rows, table)[:, 1], "sort": wide.sort(stable=True), "topk": wide.topk(5).values,
    }  # fmt: skip


def _cancelled(given: Given) -> tuple[T, ...]:
    """Return products whose sums are small but exceed 65,504 on the way."""
    ones, b = given(3, 256, mean=200, std=0), given(511, 5, mean=200, std=0)
    a = torch.cat([ones, -ones[:, 1:]], 1)
    return a @ b, torch.bmm(a[:, None], b.expand(3, 511, 5)), F.linear(a, b.mT), F.conv1d(a[:, None], b.mT[:, None])


def _of_least(given: Given) -> tuple[T, ...]:
    """Attend with the smallest number in a mask instead of -inf: a fully masked row becomes uniform."""
    q, k, v = (given(1, 2, 9, 8, mean=i) for i in range(3))
    mask = torch.zeros_like(q[0, 0, :, :1]).repeat(1, 9)
    mask[:, 5:] = mask[3] = torch.finfo(q.dtype).min
    composed = _backward(lambda x: (x @ k.mT * 8**-0.5 + mask).softmax(-1) @ v, q)
    return *composed, F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


RANGES: Mapping[str, Row] = {
    "var-of-large-mean": _over(lambda g: (g(5, 4097, mean=1000).var(-1), g(5, 4097, mean=1000).std(-1)), terms=4097),
    "layer_norm-of-large-mean": _over(lambda g: F.layer_norm(g(5, 1025, mean=300), (1025,)), terms=1025),
    "batch_norm-of-large-mean": _over(
        lambda g: F.batch_norm(g(17, 5, 9, 9, mean=300), None, None, training=True), terms=1377
    ),
    "group_norm-of-large-mean": _over(lambda g: F.group_norm(g(3, 8, 33, mean=300), 2), terms=132),
    "softmax-2048": _over(lambda g: _backward(lambda x: x.softmax(-1) ** 2, g(5, 2048, std=3)), terms=2048),
    "softmax-32000": _over(lambda g: _backward(lambda x: x.softmax(-1) ** 2, g(3, 32000, std=3)), terms=32000,
        level=STANDARD),
    "softmax-halves": _over(lambda g: g(3, 8195, std=3).softmax(-1), F16, BF16, terms=8195),
    "softmax-first": _over(lambda g: g(4099, 5, std=3).softmax(0), terms=4099),
    "softmax-large": _over(lambda g: (g(5, 129, mean=30000, std=50).softmax(-1), g(5, 129, mean=-30000,
        std=50).log_softmax(-1)), terms=129),
    "log_softmax-65537": _over(lambda g: g(2, 65537, std=3).log_softmax(-1), terms=65537),
    "cross_entropy-32000": _over(lambda g: _backward(lambda x: F.cross_entropy(x, torch.tensor([0, 31999, 20000],
        device=x.device), reduction="none"), g(3, 32000, std=4)), terms=32000, level=STANDARD),
    "logsumexp": _over(lambda g: (g(5, 2049, mean=5000, std=30).logsumexp(-1), g(5, 2049, mean=-5000).logsumexp(-1),
        torch.logaddexp(g(999, std=99), g(999, mean=9, std=99))), terms=2049),
    "sum-200000": _over(lambda g: (g(200003, low=0).sum(), g(200003, mean=0.1).mean(), g(3, 200003).sum(-1)),
        terms=200003),
    "sum-apart": _over(lambda g: (g(129, 3, 65, low=0).sum((0, 2)), g(65, 3, 5, 33, low=0).mean((0, 2)), g(33, 5, 65,
        low=0).var((0, 2))), terms=8385),
    "sum-halves": _over(lambda g: (g(70001, low=0, high=0.5).sum(), g(70001, low=0, high=0.5).mean()), F16,
        terms=70001),
    "sum-bfloat16": _over(lambda g: (g(200003, low=0).sum(), g(200003, low=0).mean(), g(4099, 3, low=0).sum(0)), BF16,
        terms=200003),
    "mean-above-65504": _over(lambda g: (g(4097, low=100, high=900).mean(), g(5, 257, low=900, high=999).mean(-1),
        g(257, 5, low=900, high=999).mean(0)), F16, terms=4097, level=SMOKE),
    "norm-above-65504": _over(lambda g: (torch.linalg.vector_norm(g(513, low=100, high=900)), g(5, 513, low=300,
        high=400).norm(dim=-1), *torch._foreach_norm([*g(4, 513, low=100, high=800)])),  # noqa: SLF001
        F16, terms=513, level=SMOKE),
    "var-above-65504": _over(lambda g: g(257, low=-400, high=400).var() / 4, F16, terms=257),
    "layer_norm-above-65504": _over(lambda g: tuple(norm(g(5, 513, low=-900, high=900), (513,))
        for norm in (F.layer_norm, getattr(F, "rms_norm", F.layer_norm))), F16, terms=513),  # torch 2.1 lacks one
    "loss-above-65504": _over(lambda g: F.mse_loss(g(4097, low=0, high=200), g(4097, low=-50, high=0)), F16,
        terms=4097),
    "prod": _over(lambda g: (g(5, 513, low=0.9, high=1.1).prod(-1), g(5, 129, low=0.9, high=1.1).cumprod(-1)),
        terms=513),
    "cumsum-100000": _over(lambda g: (g(100003, low=0).cumsum(0), g(5, 8193).cumsum(-1)), terms=100003, level=STANDARD),
    "cumsum-halves": _over(lambda g: g(3, 2049, low=0).cumsum(-1), F16, BF16, terms=2049),
    "logcumsumexp": _over(lambda g: g(3, 2049, std=9).logcumsumexp(-1), terms=2049),
    "mm-16384": _over(lambda g: (g(3, 16384) @ g(16384, 5), torch.bmm(g(33, 1, 64), g(33, 5, 64).mT)),
        terms=16384),
    "mm-halves-16384": _over(lambda g: g(3, 16384, low=0, high=0.25) @ g(16384, 5, low=0, high=0.25), F16, BF16,
        terms=16384),
    "linear-4099": _over(lambda g: (F.linear(g(9, 4099), g(7, 4099), g(7)), *_of_weights(g)), terms=4099,
        level=STANDARD),
    "conv2d-1024": _over(lambda g: F.conv2d(g(1, 1024, 5, 5), g(3, 1024, 3, 3)), terms=9216),
    "conv1d-long": _over(lambda g: F.conv1d(g(1, 2, 20011), g(3, 2, 129)), terms=258, level=STANDARD),
    "avg_pool": _over(lambda g: (F.adaptive_avg_pool2d(g(2, 3, 129, 131, low=0), 1), F.avg_pool1d(g(1, 1, 8193,
        mean=5), 4097)), terms=16899),
    "attention-2048": _over(lambda g: F.scaled_dot_product_attention(g(1, 1, 3, 64), g(1, 1, 2049, 64), g(1, 1, 2049,
        64, mean=1)), terms=2049),
    "trigonometry": _over(lambda g: (g(4097, low=-30000, high=30000).sin(), g(4097, low=-30000, high=30000).cos())),
    "ends": _over(lambda g: (g(999, low=-104, high=-80).exp(), g(999, low=80, high=88.5).exp(), g(999, low=-90,
        high=-15).sigmoid(), g(999, low=50, high=150).sigmoid(),
        F.softplus(g(999, low=-30, high=40)), F.logsigmoid(g(999, low=-120, high=20)))),
    "near-zero": _over(lambda g: ((g(999) * 1e-6).log1p(), (g(999) * 1e-6).expm1(), (g(999) * 1e-5).sin(),
        (g(999) * 1e-5).tanh(), (g(999) * 1e-6).erf(), (g(999) * 1e-4).asinh(), (g(999) * 1e-6).atan())),
    "tails": _over(lambda g: (g(999, low=-13, high=-3).exp() * g(999), F.silu(g(999, low=-60, high=-10)), g(999,
        low=2, high=9).erfc(), g(999, low=4, high=9).tanh() - 1)),
    "powers": _over(lambda g: (g(999, low=0.01, high=30) ** 7.5, g(999, low=-9, high=9) ** 3, g(999, low=1e-6,
        high=1e6).rsqrt(), g(999, low=1e-6, high=1e6).log2(), 2 ** g(999, low=-125, high=126))),
    "quotients": _over(lambda g: (torch.atan2(g(999) * 1e20, g(999) * 1e-5),
        torch.linalg.vector_norm(g(99) * 1e15))),
    "chain": _over(_chain, terms=64 * 48, level=STANDARD),
    "steps": _over(_repeated, terms=200, level=STANDARD),
    "arange": _over(lambda g: tuple(
        make(*ends, device=g(1).device, dtype=g(1).dtype)
        for make, ends in ((torch.arange, (0, 50, 0.01)), (torch.arange, (900, -900, -0.7)),
            (torch.linspace, (-3, 7, 1003))))),
    "duplicates": alike(SMOKE, _duplicates, "numbers that are added in one place are not all added"),
    "not-finite": (SMOKE, _not_finite),
    "whole-numbers": alike(SMOKE, _whole, "a result is wrong for large whole numbers"),
    "many-rows": alike(SMOKE, _rows, "a result of 70,001 rows is wrong"),
    "beyond-24-bits": alike(STANDARD, _beyond, "a result is wrong beyond 2^24 elements, or row or element 65,536"),
    "constant-rows": _over(lambda g: tuple((call(g(5, size, mean=mean, std=0)).abs() <= 2).to(g(1).dtype) for call in (
        lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: F.group_norm(x[None], 5), lambda x: x.std(-1),
        lambda x: F.batch_norm(x.mT, None, None, training=True)) for size in (33, 1025) for mean in (1000.1, 3e4)),
        level=STANDARD),
    "ones-33000000": _over(lambda g: (g(1).new_ones(2**25 + 9).mean(), g(1).new_ones(2, 2**24 + 9).mean(-1)), F32, F16,
        terms=4096, level=STANDARD),
    "beyond-halves": _over(lambda g: (g(999, std=0.1) * 1e5, g(999) * 1e4 / 1e5, g(999) * 1e4 * 2e-8, F.leaky_relu(
        g(999) * 1e4, 2e-8), torch._foreach_mul([g(999, std=0.1)], 1e5)[0]), F16),  # noqa: SLF001
    "cancelling-halves": _over(_cancelled, F16, terms=511),
    "attention-above-65504": _over(lambda g: tuple(F.scaled_dot_product_attention(g(1, 2, 8, 64, mean=40, std=0), key,
        g(1, 2, 8, 64), mask) for mask in (None, g(8, 8, std=0) == 0, g(8, 8, std=0)) for key in (g(1, 2, 8, 64,
        mean=40, std=0), g(1, 2, 8, 1, mean=40, std=4).expand(1, 2, 8, 64))), F16, terms=64),
    "attention-least-numbers": _over(_of_least, terms=64),
    "remainders": _over(lambda g: tuple(call(g(257, low=-2e9, high=2e9), y) for y in (3.0, -7.0) for call in (
        torch.fmod, torch.remainder, torch.floor_divide, lambda x, y: x % torch.full_like(x, y))), level=STANDARD),
}  # fmt: skip
