"""Optimizers, lists of tensors and the tools of mixed precision, step by step, against their definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import product
from typing import Any

import torch

from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.parity.training import scaler_of
from pytest_ascend.precision.nested import mapped
from pytest_ascend.run import inputs

from ..runtime.rows import CPU, SMOKE, STANDARD, At, Row, T, early, joined

#: Shapes of parameters: scalars, tails, vectors, matrices, and one of several blocks.
SHAPES = ((), (1,), (7,), (33,), (5, 9), (257,), (4099,), (3, 0), (64, 65))
STEPS = 4
OPTIMIZERS: Mapping[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "sgd-nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd-maximize": (torch.optim.SGD, {"lr": 0.1, "maximize": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "adam-amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "eps": 1e-3, "betas": (0.9, 0.5)}),
    "adam-maximize": (torch.optim.Adam, {"lr": 0.01, "maximize": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw-amsgrad": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "maximize": True, "betas": (0.9, 0.5)}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01}),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.5, "eps": 1e-3}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True, "eps": 1e-3}),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "asgd": (torch.optim.ASGD, {"lr": 0.1, "t0": 2}),
}
#: Settings with which the first step is exact where gradients are powers of two: of few bits, and without an epsilon.
_FEW: Mapping[str, Any] = {"betas": (0.5, 0.75), "eps": 0.0}
EXACT: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"momentum": 0.5, "nesterov": True, "weight_decay": 0.5},
    "adam": _FEW,
    "adamw": {**_FEW, "weight_decay": 0.5},
    "adamw-amsgrad": {**_FEW, "weight_decay": 0.5, "amsgrad": True, "maximize": True},
    "rmsprop": {"alpha": 0.75, "eps": 0.0},
    "adagrad": {"eps": 0.0},
    "adamax": _FEW,
    "rprop": {},
}
#: Those that only add and multiply, so that nothing is rounded. Where roots and quotients are not rounded correctly,
#: those of powers of two may be a unit in the last place off, too.
_NO_ROOTS = ("sgd", "rprop")
FUSED = ("adam", "adam-amsgrad", "adamw", "adamw-amsgrad")


def _parameters(key: str, device: torch.device, dtype: torch.dtype, shapes: tuple[Any, ...] = SHAPES) -> list[T]:
    made = [inputs.uniform(f"optimizers/{key}/{i}", shape, low=0.5, high=1.5) for i, shape in enumerate(shapes)]
    return [each.to(dtype).to(device).requires_grad_() for each in made]


def _set_gradients(parameters: list[T], step: int, *, scale: float = 1.0) -> None:
    scale *= (1.0, 2.0, 0.5, 0.25)[step % 4]  # larger ones, then smaller ones: what amsgrad keeps are the largest
    for place, each in enumerate(parameters):
        signs = inputs.uniform(f"optimizers/gradient/{place}/{step}", each.shape, low=0.25, high=1.0)
        # One parameter has tiny ones, to whose size most optimizers adapt.
        signs = signs * (1 - 2 * ((place + step // 2) % 2)) * scale * (1e-6 if place % 9 == 3 else 1.0)
        # Now and then a parameter has no gradient: it stays, with its state.
        each.grad = None if (place + step) % 5 == 4 else signs.to(each.dtype).to(each.device)


def _trained(
    name: str, device: torch.device, dtype: torch.dtype, shapes: tuple[Any, ...] = SHAPES, late: int = 0, **how: Any
) -> dict[str, T]:
    """Train two groups with a learning rate that changes; ``how`` is for the device in its dtype.

    With ``late`` the second step is that many steps later, as after a checkpoint.
    """
    kind, settings = OPTIMIZERS[name]
    parameters = _parameters(name, device, dtype, shapes)
    groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": settings["lr"] / 4}]
    optimizer = kind(groups, **settings, **({"foreach": False} if device.type == "cpu" else how))
    for step in range(STEPS):
        _set_gradients(parameters, step)
        optimizer.step()
        for each in optimizer.state.values() if late and not step else ():
            each["step"] += late
        for group in optimizer.param_groups:
            group["lr"] *= 0.75
    states = [optimizer.state.get(each, {}) for each in parameters]
    found = {"parameters": joined(parameters)}
    for key in sorted({key for each in states for key in each}):
        kept = [each[key] for each in states if each.get(key) is not None]  # torch 2.1 keeps None, too
        if kept:
            found[key] = joined([torch.as_tensor(each).to(dtype).to(device) for each in kept])
    return found


def _steps(at: At, name: str, count: int = 1, **how: Any) -> None:
    at.defined(partial(_trained, name, shapes=SHAPES * count, **how), accumulation=16, scale=1.0)


def _together(at: At) -> None:
    """All optimizers and functions of lists in one comparison, with few parameters."""

    def run(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
        few = SHAPES[2:6] * 5  # so many that some devices need a second call
        found = dict[str, T]()
        for name in OPTIMIZERS:
            found |= {f"{name}: {key}": x for key, x in _trained(name, device, dtype, shapes=few).items()}
        for name, function in LISTS.items():
            a, b = ([x.detach() for x in _parameters(key, device, dtype, few)] for key in ("lists/a", "lists/b"))
            found[name] = joined(function(a, b))
        return found

    at.defined(run, orders=4, accumulation=16, scale=1.0)


def _first_steps(at: At, dtypes: tuple[torch.dtype, ...]) -> None:
    """The first step of each optimizer, whose result is known: of a long tensor, and of lists with short ones."""
    ways = [(n, how) for n in EXACT for how in ("foreach", "loop", "fused") if how != "fused" or n.startswith("adamw")]
    for dtype in dtypes:
        actual, exact = (
            {f"{name}, {how}": _stepped(name, how, dtype, device) for name, how in ways} for device in (at.device, CPU)
        )
        cause = f"not every element of {dtype} takes its step, or not exactly"
        mine, known = ({key: x for key, x in each.items() if key.startswith(_NO_ROOTS)} for each in (actual, exact))
        at.same(mine, known, cause)
        mine, known = ({key: x for key, x in each.items() if not key.startswith(_NO_ROOTS)} for each in (actual, exact))
        at.judge(mine, mapped(known, torch.Tensor.double), name=cause)
    norms = torch._foreach_norm([torch.full((4,), 2.0**i, device=at.device) for i in range(12)])  # noqa: SLF001
    at.same([float(each) for each in norms], [2.0 ** (i + 1) for i in range(12)], "norms of a list are not its own")


def _first_fused_step(at: At) -> None:
    if "fused" not in inspect.signature(torch.optim.SGD).parameters:
        raise NotImplementedError(f"torch {torch.__version__} has no fused SGD; 2.3 has")
    ways: tuple[dict[str, Any], ...] = ({}, {"nesterov": False, "dampening": 0.25})
    for way, maximize, decay in product(ways, (False, True), (0.0, 0.5)):
        how = {**way, "maximize": maximize, "weight_decay": decay}
        for dtype in (torch.float32, torch.float16):
            actual, exact = (_stepped("sgd", "fused", dtype, device, **how) for device in (at.device, CPU))
            at.same(actual, exact, f"not every element of {dtype} takes its step with {how}, or not exactly")


@cache
def _of_few_bits(count: int, *, is_wide: bool) -> tuple[T, T]:
    """Return integers and powers of two, in float64; half precision holds those that are not wide."""
    bits, largest = (16, 18) if is_wide else (3, 1)
    whole = inputs.integers("optimizers/exact", (count,), low=-(2**bits), high=2**bits + 1)
    powers = inputs.integers("optimizers/exact/power", (count,), low=-1, high=largest + 1)
    return whole.double(), torch.exp2(powers.double()) * (1 - 2 * (whole % 2))


def _stepped(name: str, how: str, dtype: torch.dtype, device: torch.device, **more: Any) -> dict[str, T]:
    """Return parameters and state after a step; on the CPU it is made in float64, where nothing is rounded."""
    parameters = []
    for size in (1027,) if how == "loop" else (1027, *(3,) * 8):
        whole, powers = (each.to(torch.float64 if device == CPU else dtype).to(device)
                         for each in _of_few_bits(size, is_wide=dtype is torch.float32))  # fmt: skip
        parameters.append(whole.clone().requires_grad_())
        parameters[-1].grad = powers
    way = {} if device == CPU else {"foreach": False} if how == "loop" else {how: True}
    settings: dict[str, Any] = {"lr": 0.125, **EXACT[name], **way, **more}
    optimizer = OPTIMIZERS[name][0](parameters, **settings)
    optimizer.step()
    states = [optimizer.state[each] for each in parameters]
    found = {key: [torch.as_tensor(each[key]) for each in states] for key, x in states[0].items() if x is not None}
    return {key: joined(each).cpu().to(dtype) for key, each in {"parameters": parameters, **found}.items()}


def _grown(at: At) -> None:
    scale = torch.full((1,), 1024.0, device=at.device)
    tracker, found = torch.zeros(1, dtype=torch.int32, device=at.device), []
    for bad in (0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, *(1,) * 11):
        torch._amp_update_scale_(scale, tracker, torch.full((1,), float(bad), device=at.device), 2.0, 0.5, 3)
        found.append(float(scale))
    wanted = [1024.0, 1024.0, 2048.0, 1024.0, 1024.0, 1024.0, 512.0, 512.0, 512.0, 1024.0, 1024.0]
    wanted += [512.0 / 2**i for i in range(11)]
    at.same(found, wanted, "the scale does not grow after three steps without an overflow, or is not halved by one")
    for dtype, large in ((torch.float32, 2.0**30), (torch.float16, 2.0**15)):
        gradients = [torch.full((size,), large, dtype=dtype, device=at.device) for size in (1, 7, 4099)]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, tracker.float() * 0, scale / 2)
        left = [each.cpu() for each in gradients]
        quarters = [torch.full_like(each, large / 4) for each in left]
        at.same(left, quarters, f"gradients in {dtype} are not divided by the scale")


def _skipped(at: At) -> None:
    """A scaler skips the step where any of many gradients is infinite or NaN, and unscales all others exactly."""
    for count, bad in ((1, 0), (130, 129), (300, 150), (300, None)):
        shapes = tuple((4099,) if i == bad else (1 + i % 9,) for i in range(count))
        parameters = _parameters("scaler", at.device, torch.float32, shapes)
        before = [each.detach().cpu().clone() for each in parameters]
        optimizer = torch.optim.SGD(parameters, lr=1.0)
        scaler = scaler_of(at.device.type, 1024.0)
        scaler.scale(torch.zeros((), device=at.device))
        for place, each in enumerate(parameters):
            each.grad = torch.full_like(each, 1024.0 * (place % 7 - 3))
        if bad is not None:
            parameters[bad].grad[-1] = float("nan" if bad % 2 else "inf")  # type: ignore[index]
        scaler.unscale_(optimizer)
        unscaled = [each.grad.cpu() for i, each in enumerate(parameters) if i != bad and each.grad is not None]
        wanted = [torch.full_like(e, i % 7 - 3.0) for i, e in enumerate(before) if i != bad]
        at.same(unscaled, wanted, f"of {count} gradients not all are divided by the scale")
        scaler.step(optimizer)
        scaler.update()
        moved = before if bad is not None else [each - (i % 7 - 3.0) for i, each in enumerate(before)]
        what = f"the step is not skipped for an infinite or NaN gradient in {bad} of {count}"
        at.same([e.detach().cpu() for e in parameters], moved, what if bad is not None else "the step is not made")
        scale = 512.0 if bad is not None else 1024.0
        at.same(scaler.get_scale(), scale, "the scale is not halved, or is for no reason")


def _clipped(at: At) -> None:
    for count, norm in ((3, 2.0), (70, 2.0), (70, float("inf")), (70, 1.0), (259, 2.0)):

        def clip(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
            parameters = _parameters("clip", device, dtype, tuple((1 + i % 40,) for i in range(count)))  # noqa: B023
            _set_gradients(parameters, 0, scale=3.0)
            total = torch.nn.utils.clip_grad_norm_(parameters, 2.0, norm)  # noqa: B023
            once = joined([each.grad for each in parameters if each.grad is not None])
            loose = torch.nn.utils.clip_grad_norm_(parameters, 1e6, norm)  # noqa: B023
            torch.nn.utils.clip_grad_value_(parameters, 0.01)
            twice = joined([each.grad for each in parameters if each.grad is not None])
            return {"norm": total, "norm afterwards": loose, "clipped": once, "clipped by value": twice}

        at.defined(clip, accumulation=8192)
        for bad in ("inf", "-inf", "nan") if at.device.type != "npu" or knows_infinities() else ():
            parameters = _parameters("clip", at.device, torch.float32, tuple((1 + i % 40,) for i in range(count)))
            _set_gradients(parameters, 0)
            parameters[count // 2].grad = torch.full_like(parameters[count // 2], float(bad))
            total = float(torch.nn.utils.clip_grad_norm_(parameters, 2.0, norm))
            at.same(str(abs(total)), bad.strip("-"), f"of {count} gradients, one is {bad}, and their norm is {total}")


def _changed(change: Callable[..., object], *lists: list[T]) -> list[T]:
    change(*lists)
    return lists[0]


#: Functions of lists of tensors: each gets lists ``a`` and ``b`` and returns a list.
LISTS: Mapping[str, Callable[[list[T], list[T]], Any]] = {
    "add": lambda a, b: torch._foreach_add(a, b, alpha=0.5),  # noqa: SLF001
    "mul": torch._foreach_mul,  # noqa: SLF001
    "div": torch._foreach_div,  # noqa: SLF001
    "scalar": lambda a, _: torch._foreach_mul(torch._foreach_add(a, 1.5), 3.0),  # noqa: SLF001
    "scalars": lambda a, _: torch._foreach_mul(a, [float(i % 5) for i in range(len(a))]),  # noqa: SLF001
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, 0.5),  # noqa: SLF001
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, a, b, [0.25] * len(a)),  # noqa: SLF001
    "lerp": lambda a, b: torch._foreach_lerp(torch._foreach_lerp(a, b, 0.25), a, 0.75),  # noqa: SLF001
    "sqrt": lambda a, _: torch._foreach_sqrt(a),  # noqa: SLF001
    "norm": lambda a, _: torch._foreach_norm(a),  # noqa: SLF001
    "maximum": torch._foreach_maximum,  # noqa: SLF001
    "neg": lambda a, _: torch._foreach_neg(a),  # noqa: SLF001
    "in-place": lambda a, b: (torch._foreach_add_(a, b), torch._foreach_mul_(a, 0.5), a)[-1],
    "copy": lambda a, b: _changed(torch._foreach_copy_, a, b),
    "zero": lambda a, _: _changed(torch._foreach_zero_, a),
}


def _lists(at: At) -> None:
    """Of lists that one kernel takes, with a tensor of several blocks, and of others, laid out in turn."""
    for count, turned in ((1, False), (33, False), (33, True), (259, False)):
        for name, function in LISTS.items() if count == 33 else [*LISTS.items()][::4]:

            def run(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
                shapes = tuple((i % 13,) if i % 7 else (3, 1 + i % 5) for i in range(1, count + 1))  # noqa: B023
                shapes += () if turned or count == 1 else ((70001,),)  # noqa: B023
                keys = ("lists/a", "lists/b")
                a, b = ([each.detach() for each in _parameters(key, device, dtype, shapes)] for key in keys)
                if turned:  # noqa: B023
                    b = [each.mT.contiguous().mT if each.dim() == 2 and i % 2 else each for i, each in enumerate(b)]
                said = f"{name} of {count}, laid out in turn" if turned else f"{name} of {count}"  # noqa: B023
                return {said: joined(function(a, b))}  # noqa: B023

            at.defined(run, accumulation=16)


def _fused_skip(at: At) -> None:
    """A fused optimizer takes the scaler's verdict: it divides by the scale, and does nothing after an overflow."""
    for bad in (False, True):
        ends = []
        for device in (at.device, CPU):
            parameters = _parameters("fused", device, torch.float32, ((33,), (257,)))
            optimizer = torch.optim.AdamW(parameters, lr=0.125, weight_decay=0.0, fused=True)
            for each in parameters:
                each.grad = torch.full_like(each, 64.0)
            optimizer.grad_scale = torch.tensor(64.0, device=device)  # type: ignore[attr-defined]
            optimizer.found_inf = torch.tensor(float(bad), device=device)  # type: ignore[attr-defined]
            optimizer.step()
            ends.append([each.detach().cpu() for each in parameters])
        at.judge(ends[0], [each.double() for each in ends[1]], reference_runs=ends[1], accumulation=1,
                 name="fused AdamW after an overflow" if bad else "fused AdamW with a scale")  # fmt: skip


def _zeroed(at: At) -> None:
    """zero_grad() leaves zeros or nothing, and the learning rate may be a tensor."""
    parameters = _parameters("zero", at.device, torch.float32, ((33,),) * 40)
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    for step in range(3):
        for each in parameters:
            each.grad = torch.ones_like(each) if each.grad is None else each.grad.add_(1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=step == 1)
        left = [each.grad.cpu() for each in parameters if each.grad is not None]
        at.holds(step != 1 or not left, "zero_grad() leaves gradients")
        at.same(left, [torch.zeros(33)] * len(left), "not all zero")
    start = [each.detach() - 1.5 for each in _parameters("zero", CPU, torch.float32, ((33,),) * 40)]
    at.judge([e.detach().cpu() for e in parameters], [e.double() for e in start], reference_runs=start, name="steps")


_WAYS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((name, name, {}) for name in OPTIMIZERS),
    *((f"{name}-fused", name, {"fused": True}) for name in FUSED),
    *((f"{name}-late", name, {"late": 300}) for name in ("adam", "adamw", "nadam")),
    ("adamw-fused-late", "adamw", {"late": 300, "fused": True}),
    *((f"{name}-loop", name, {"foreach": False}) for name in ("adamw-amsgrad", "sgd")),
    *((f"{name}-lists", name, {"foreach": True, "count": 8}) for name in ("adamw", "sgd", "rmsprop")),
)
OF_LISTS: Mapping[str, Row] = {
    **early(
        {way: partial(_steps, name=name, **how) for way, name, how in _WAYS},
        "adamw",
        "adamw-fused-late",
        "adamw-amsgrad-fused",
    ),
    "together": (SMOKE, _together),
    "first-steps": (SMOKE, partial(_first_steps, dtypes=(torch.float32, torch.float16))),
    "first-steps-bfloat16": (SMOKE, partial(_first_steps, dtypes=(torch.bfloat16,))),  # which not every chip has
    "first-step-fused-sgd": (STANDARD, _first_fused_step),  # of halves, the CPU of torch 2.7 gets some steps wrong
    "scale": (SMOKE, _grown),
    "scaler": (SMOKE, _skipped),
    "fused-scaler": (STANDARD, _fused_skip),
    "clipping": (STANDARD, _clipped),
    "foreach": (STANDARD, _lists),
    "zero-grad": (STANDARD, _zeroed),
}
