"""Optimizers, lists of tensors and the tools of mixed precision, compared step by step with their definition."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import cache, partial
from itertools import product
from typing import Any

import torch

from pytest_ascend.device.npu import knows_infinities
from pytest_ascend.parity.training import scaler_of
from pytest_ascend.precision.nested import mapped
from pytest_ascend.run import inputs
from pytest_ascend.system.bundled import beside

from ..runtime.refusals import refuses
from ..runtime.rows import CPU, SMOKE, STANDARD, At, Row, T, alike, fetched, joined

#: Parameter shapes: scalars, tails, vectors, matrices, and one that spans several blocks.
SHAPES = ((), (1,), (7,), (33,), (5, 9), (257,), (4099,), (3, 0), (64, 65))
STEPS = 4
#: Class and settings of optimizers: by name, and one entry for each further option or value of an option.
_TABLE: Mapping[str, Any] = beside(__file__, "optimizers.json")
OPTIMIZERS: Mapping[str, tuple[str, dict[str, Any]]] = _TABLE["usual"]
OPTIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    f"{kind} {how}": (kind, how) for kind, how in _TABLE["options"] if hasattr(torch.optim, kind)
}
#: Settings with which the first step is exact for gradients that are powers of two: short numbers, zero epsilon.
EXACT: Mapping[str, Mapping[str, Any]] = _TABLE["exact"]
#: Optimizers that only add and multiply, without rounding. Where roots and quotients are not correctly rounded,
#: those of powers of two may also be wrong by a unit in the last place.
_NO_ROOTS = ("sgd", "rprop")
FUSED = ("adam", "adam-amsgrad", "adamw", "adamw-amsgrad")


def _parameters(
    key: str, device: torch.device, dtype: torch.dtype, shapes: tuple[Any, ...] = SHAPES, *, turned: bool = False
) -> list[T]:
    made = [inputs.uniform(f"optimizers/{key}/{i}", shape, low=0.5, high=1.5) for i, shape in enumerate(shapes)]
    made = [each.mT.contiguous().mT if turned and each.dim() == 2 else each for each in made]
    return [each.to(dtype).to(device).requires_grad_() for each in made]


def _set_gradients(parameters: list[T], step: int, *, scale: float = 1.0) -> None:
    scale *= (1.0, 2.0, 0.5, 0.25)[step % 4]  # larger, then smaller: amsgrad keeps the largest
    for place, each in enumerate(parameters):
        signs = inputs.uniform(f"optimizers/gradient/{place}/{step}", each.shape, low=0.25, high=1.0)
        # One parameter has tiny gradients, to whose size most optimizers adapt, and one has zeros.
        signs = signs * (1 - 2 * ((place + step // 2) % 2)) * scale * {3: 1e-6, 5: 0.0}.get(place % 9, 1.0)
        # Sometimes a parameter has no gradient: it stays unchanged, as does its state.
        each.grad = None if (place + step) % 5 == 4 else signs.to(each.dtype).to(each.device)


def _trained(
    name: str, device: torch.device, dtype: torch.dtype, shapes: Any = SHAPES, late: int = 0, odd: int = 0, **how: Any
) -> dict[str, T]:
    """Train two groups with a learning rate that changes; ``how`` applies to the device in its dtype.

    With ``late`` the second step is that many steps later, as after a checkpoint. With ``odd``, matrices are stored by
    columns, a group is added, the state is saved and loaded half-way, and captured steps get their rate on the device.
    """
    kind, settings = {**OPTIMIZERS, **OPTIONS}[name]
    parameters = _parameters(name, device, dtype, shapes, turned=bool(odd))
    # The CPU must also use lists: before torch 2.3, ASGD's loop follows another formula.
    how = {"foreach": how.get("foreach", False)} if device.type == "cpu" else how
    if how.get("capturable"):
        settings = {**settings, "lr": torch.tensor(settings["lr"], device=device)}
    groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": settings["lr"] / 4}]
    first = 1 if odd and kind != "Adagrad" else 2  # Adagrad has no state for an added group before torch 2.8
    optimizer = getattr(torch.optim, kind)(groups[:first], **settings, **how)
    for group in groups[first:]:
        optimizer.add_param_group(group)
    for step in range(STEPS):
        if odd and step == STEPS // 2:
            optimizer.load_state_dict(deepcopy(optimizer.state_dict()))
        _set_gradients(parameters, step)
        optimizer.step()
        for each in optimizer.state.values() if late and not step else ():
            each["step"] += late
        for group in optimizer.param_groups:
            group["lr"] *= 0.75
    states = [optimizer.state.get(each, {}) for each in parameters]
    found = {"parameters": joined(parameters)}
    for key in sorted({key for each in states for key in each}):
        kept = [each[key] for each in states if each.get(key) is not None]  # torch 2.1 stores None, too
        if kept:
            found[key] = joined([torch.as_tensor(each).to(dtype).to(device) for each in kept])
    return found


def _steps(at: At, name: str, count: int = 1, **how: Any) -> None:
    at.defined(partial(_trained, name, shapes=SHAPES * count, **how), accumulation=16, scale=1.0)


def _options(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Run every option of every optimizer, with lists and then one by one or, where supported, as captured steps."""
    found = dict[str, T]()
    for name, (kind, settings) in OPTIONS.items():
        known = inspect.signature(getattr(torch.optim, kind)).parameters
        is_captured = "capturable" in known and hasattr(torch, "accelerator")  # before torch 2.6 only CUDA has it
        for odd, how in enumerate(({"foreach": True}, {"capturable" if is_captured else "foreach": is_captured})):
            if known.keys() >= settings.keys():
                made = _trained(name, device, dtype, SHAPES[2:6], odd=odd, **how)
                found[f"{name}, {how}"] = made["parameters"]
    return found


def _together(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Run all optimizers and list functions on a few parameters, for a single comparison."""
    few = SHAPES[2:6] * 5  # so many that some devices need a second call
    trained = {name: _trained(name, device, dtype, shapes=few) for name in OPTIMIZERS}
    found = {f"{name}: {key}": x for name, made in trained.items() for key, x in made.items()}
    for name in _TABLE["lists at smoke"]:
        a, b = ([x.detach() for x in _parameters(key, device, dtype, few)] for key in ("lists/a", "lists/b"))
        found[name] = joined(LISTS[name](a, _of_both_signs(b)))
    return found


def _first_steps(at: At, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check the first step of each optimizer, whose result is known, on a long tensor and on lists with short ones."""
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


def _first_fused_step(at: At) -> None:
    if "fused" not in inspect.signature(torch.optim.SGD).parameters:
        raise NotImplementedError(f"torch {torch.__version__} has no fused SGD; 2.3 has")
    ways = product(({}, {"nesterov": False, "dampening": 0.25}), (False, True), (0.0, 0.5))
    settings = [{**way, "maximize": maximize, "weight_decay": decay} for way, maximize, decay in ways]
    for how, dtype in product(settings, (torch.float32, torch.float16)):
        actual, exact = (_stepped("sgd", "fused", dtype, device, **how) for device in (at.device, CPU))
        at.same(actual, exact, f"not every element of {dtype} takes its step with {how}, or not exactly")


@cache
def _of_few_bits(count: int, *, is_wide: bool) -> tuple[T, T]:
    """Return integers and powers of two in float64; unless ``is_wide``, half precision holds them exactly."""
    bits, largest = (16, 18) if is_wide else (3, 1)
    whole = inputs.integers("optimizers/exact", (count,), low=-(2**bits), high=2**bits + 1)
    powers = inputs.integers("optimizers/exact/power", (count,), low=-1, high=largest + 1)
    return whole.double(), torch.exp2(powers.double()) * (1 - 2 * (whole % 2))


def _stepped(name: str, how: str, dtype: torch.dtype, device: torch.device, **more: Any) -> dict[str, T]:
    """Return parameters and state after a step; the CPU computes it in float64, without rounding."""
    parameters = []
    for place, size in enumerate((1027,) if how == "loop" else (1027, *(3,) * 8)):
        mine = torch.float32 if place % 3 == 2 and how == "foreach" else dtype  # a list may have two dtypes
        whole, powers = (each.to(torch.float64 if device == CPU else mine).to(device)
                         for each in _of_few_bits(size, is_wide=dtype is torch.float32))  # fmt: skip
        parameters.append(whole.clone().requires_grad_())
        parameters[-1].grad = powers
    way = {} if device == CPU else {"foreach": False} if how == "loop" else {how: True}
    settings: dict[str, Any] = {"lr": 0.125, **EXACT[name], **way, **more}
    optimizer = getattr(torch.optim, OPTIMIZERS[name][0])(parameters, **settings)
    optimizer.step()
    states = [optimizer.state[each] for each in parameters]
    found = {key: [torch.as_tensor(each[key]) for each in states] for key, x in states[0].items() if x is not None}
    return {key: joined(each).cpu().to(dtype) for key, each in {"parameters": parameters, **found}.items()}


def _grown(at: At) -> None:
    scale, tracker = (torch.zeros(1, dtype=each, device=at.device) for each in (torch.float32, torch.int32))
    for dtype, large in ((torch.float32, 2.0**30), (torch.float16, 2.0**15)):
        gradients = [torch.full((size,), large, dtype=dtype, device=at.device) for size in (1, 7, 4099)]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, tracker.float(), torch.full_like(scale, 0.25))
        left = [each.cpu() for each in gradients]
        quarters = [torch.full_like(each, large / 4) for each in left]
        at.same(left, quarters, f"gradients in {dtype} are not divided by the scale")
        for odd, place in product((torch.finfo(dtype).max, torch.inf, -torch.inf, torch.nan), (0, 64, 4098, 70000)):
            lists = [torch.zeros(size, dtype=dtype, device=at.device) for size in (0, 70001, 3)]
            lists[1][place] = odd
            infinite = torch.zeros(1, device=at.device)
            for some in (lists, lists[::2]):  # found_inf persists when the next list is finite
                torch._amp_foreach_non_finite_check_and_unscale_(some, infinite, torch.ones_like(infinite))
            is_finite = abs(odd) <= torch.finfo(dtype).max
            if at.device.type != "npu" or knows_infinities() or is_finite:
                said = f"{odd} in place {place} of 70,001 gradients in {dtype} is"
                cause = f"{said} {'taken for an overflow' if is_finite else 'not found, or forgotten'}"
                at.same(float(infinite), float(not is_finite), cause)
    for found_inf, start, (grow, back, interval), wanted in _TABLE["scales"]:
        scale.fill_(8.0), tracker.fill_(start)
        torch._amp_update_scale_(scale, tracker, torch.full_like(scale, float(found_inf)), grow, back, interval)
        said = f"after {start} good steps of {interval}, {'a bad' if found_inf else 'another'} one"
        cause = f"{said}, with factors {grow} and {back}: a scale of 8, or the number of good steps, becomes another"
        at.same([float(scale), int(tracker)], wanted, cause)


def _skipped(at: At) -> None:
    """Check that a scaler skips the step if any of many gradients is Inf or NaN, and unscales all others exactly."""
    for count, bad in ((1, 0), (130, 129), (300, 150), (300, None)):
        shapes = tuple((4099,) if i == bad else (1 + i % 9,) for i in range(count))
        parameters = _parameters("scaler", at.device, torch.float32, shapes)
        before = [each.detach().cpu().clone() for each in parameters]
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=0.5)
        optimizer.state.update({each: {"momentum_buffer": torch.zeros_like(each)} for each in parameters})
        scaler = scaler_of(at.device.type, 1024.0)
        scaler.scale(torch.zeros((), device=at.device))
        for place, each in enumerate(parameters):
            each.grad = torch.full_like(each, 1024.0 * (place % 7 - 3))
        if bad is not None:
            parameters[bad].grad[-1] = float("nan" if bad % 2 else "inf")  # type: ignore[index]
        scaler.step(optimizer)
        scaler.update()
        moved = before if bad is not None else [each - (i % 7 - 3.0) for i, each in enumerate(before)]
        what = f"the step is not skipped for an infinite or NaN gradient in {bad} of {count}"
        at.same([e.detach().cpu() for e in parameters], moved, what if bad is not None else "the step is another")
        moves = any(each["momentum_buffer"].any() for each in optimizer.state.values())
        at.holds(moves == (bad is None), "a step that is skipped changes the momentum, or one that is made does not")
        scale = 512.0 if bad is not None else 1024.0
        at.same(scaler.get_scale(), scale, "the scale is not halved, or is for no reason")
        if at.device.type != "npu" or knows_infinities():  # else a device flag reports any overflow
            torch.zeros(3, device=at.device).log()
    one, off = torch.nn.Parameter(torch.ones(3, device=at.device)), scaler_of(at.device.type, 1024.0, enabled=False)
    one.grad = torch.ones_like(one)
    off.step(torch.optim.SGD([one], lr=0.5))
    at.same(off.scale(one).detach().cpu(), torch.full((3,), 0.5), "a disabled scaler scales, or does not step")


def _scaled_together(at: At) -> None:
    """Check one scaler, saved and loaded, for two optimizers: each skips only its own bad step."""
    # Without infinities, or for torch_npu's own scaler, an overflow concerns all optimizers; then there is none.
    is_apart = hasattr(torch.amp, "GradScaler") and (at.device.type != "npu" or knows_infinities())
    bad_steps = (0, 2, 1, 0, 0, 0) if is_apart else (0,) * 6
    ones = [torch.nn.Parameter(torch.ones(40, device=at.device)) for _ in range(3)]
    optimizers = [torch.optim.SGD(each, lr=1.0) for each in (ones[:2], ones[2:])]
    scaler, found = scaler_of(at.device.type, 8.0, growth_interval=2), list[float]()
    for bad in bad_steps:  # 0 is none: the first parameter is never bad itself
        state, scaler = scaler.state_dict(), scaler_of(at.device.type, 1.0)
        scaler.load_state_dict(state)
        scaler.scale(torch.zeros((), device=at.device))
        for place, each in enumerate(ones):
            each.grad = torch.full_like(each, scaler.get_scale())
            each.grad[-1] *= torch.inf if 0 < place == bad else 1.0
        scaler.unscale_(optimizers[0])
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update(64.0 if len(found) == 15 else None)
        found += [float(ones[0].detach()[0]), float(ones[2].detach()[-1]), scaler.get_scale()]
    cause = "two optimizers of one scaler do not each skip their own bad steps alone, or the scale becomes another one"
    at.same(found, _TABLE["scaler of two" if any(bad_steps) else "scaler of two, good"], cause)


def _clipped(at: At) -> None:
    norms = (float("inf"), 1.0, 0.5, 1.5, 4.0)
    for count, norm in ((3, 2.0), (70, 2.0), *((70 if each >= 1 else 3, each) for each in norms), (259, 2.0)):

        def clip(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
            parameters = _parameters("clip", device, dtype, tuple((1 + i % 40,) for i in range(count)))  # noqa: B023
            _set_gradients(parameters, 0, scale=3.0)
            total = torch.nn.utils.clip_grad_norm_(parameters, 2.0, norm)  # noqa: B023
            once = joined([each.grad for each in parameters if each.grad is not None])
            loose = torch.nn.utils.clip_grad_norm_(parameters, 1e6, norm)  # noqa: B023
            torch.nn.utils.clip_grad_value_(parameters, 0.01)
            twice = joined([each.grad for each in parameters if each.grad is not None])
            for each in parameters:
                each.grad = torch.zeros_like(each)
            torch.nn.utils.clip_grad_norm_(parameters[:5], 2.0, norm)  # noqa: B023
            none = joined([each.grad for each in parameters[:5] if each.grad is not None])
            return {"norm": total, "norm afterwards": loose, "clipped": once, "clipped by value": twice, "zeros": none}

        at.defined(clip, accumulation=8192)
        for bad in ("inf", "-inf", "nan") if at.device.type != "npu" or knows_infinities() else ():
            parameters = _parameters("clip", at.device, torch.float32, tuple((1 + i % 40,) for i in range(count)))
            _set_gradients(parameters, 0)
            parameters[count // 2].grad = torch.full_like(parameters[count // 2], float(bad))
            total = float(torch.nn.utils.clip_grad_norm_(parameters, 2.0, norm))
            at.same(str(abs(total)), bad.strip("-"), f"of {count} gradients, one is {bad}, and their norm is {total}")
            strict = partial(torch.nn.utils.clip_grad_norm_, parameters, 2.0, norm, error_if_nonfinite=True)
            at.holds(refuses(at, strict, (RuntimeError,)), f"a norm of {bad} is taken where error_if_nonfinite=True")


def _called(said: str, a: list[T], b: list[T]) -> list[T]:
    """Call a list function as its name in ``LISTS`` describes."""
    known: dict[str, Any] = {"a": a, "b": b, "n": [1.0 + i % 5 for i in range(len(a))]}
    first, name, *rest = said.split()
    given = [known.get(each) or json.loads(each) for each in rest if "=" not in each]
    more = {key: json.loads(value) for key, _, value in (each.partition("=") for each in rest) if value}
    some = [x for x in known[first] if x.numel() or name not in ("norm", "max")]
    found = getattr(torch, f"_foreach_{name}")(some, *given, **more)
    return some if name.endswith("_") else found


def _of_both_signs(x: list[T]) -> list[T]:
    return [-each if i % 2 else each for i, each in enumerate(x)]


#: Calls of list functions on positive ``a``, ``b`` of both signs, numbers, and ``n``, one number per tensor.
#: With the functions of the first table quarters stay exact, with its first eight also in half precision.
_EXACT, _ROUNDED = _TABLE["lists"], _TABLE["rounded lists"]
#: Available since torch 2.4 at the latest.
LISTS: Mapping[str, Callable[[list[T], list[T]], Any]] = {
    said: partial(_called, said) for said in (*_ROUNDED, *_EXACT) if hasattr(torch, f"_foreach_{said.split()[1]}")
}


def _lists(at: At) -> None:
    """Check lists that fit one kernel and much longer ones, with empty tensors, several dtypes and mixed layouts."""
    for dtype, count, names in (
        (torch.float32, 260, _EXACT),
        *((torch.float32, count, _EXACT[4:9]) for count in (24, 48, 50, 64, 128, 256, 1, 1024, 1030)),
        (torch.float16, 70, _EXACT[:8]),
        (torch.int32, 70, [each for each in _EXACT[:12] if "." not in each and "div" not in each]),
    ):
        sizes = [1 + (i * 7 + 12 * (count > 1)) % 13 - (i % 50 == 49) for i in range(count)]
        sizes[count // 2] = 70001
        powers, whole = (inputs.integers(f"lists/{n}", (sum(sizes),), low=-n, high=n + 1) for n in (2, 32))
        unit = 1.0 if dtype is torch.int32 else 0.25
        base = [(2 ** (powers + 2) * unit).to(dtype), (whole * unit).to(dtype)]
        found, wanted = (
            {name: joined(LISTS[name](*([*torch.split(each.clone(), sizes)] for each in some))).cpu()
             for name in names if name in LISTS} for some in ([each.to(at.device) for each in base], base)
        )  # fmt: skip
        at.same(found, wanted, f"of lists of {count} tensors of {dtype}, not all are computed, or not exactly")
    shapes = ((70_001,), *((i % 13,) if i % 7 else (3, 1 + i % 5) for i in range(1, 34)), (4099,))
    given = [_parameters(key, CPU, torch.float32, shapes) for key in ("lists/a", "lists/b")]

    def run(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
        found = dict[str, T]()
        for turned in (False, True):
            a, b = ([x.detach().to(dtype).to(device) for x in each[: 33 if turned else None]] for each in given)
            if turned:
                b = [each.mT.contiguous().mT if each.dim() == 2 and i % 2 else each for i, each in enumerate(b)]
            b = _of_both_signs(b)
            for name in (*_ROUNDED, *_EXACT[:8]) if turned else LISTS:
                if name in LISTS:
                    some = ([x.clone() for x in each] if "_ " in f"{name} " else each for each in (a, b))
                    found[f"{name}, laid out in turn" if turned else name] = joined(LISTS[name](*some))
        return found

    at.defined(run, accumulation=16)


def _fused_skip(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Run a fused optimizer with the scaler's result: it divides by the scale and does nothing after an overflow."""
    found = dict[str, T]()
    for bad, said in enumerate(("fused AdamW with a scale", "fused AdamW after an overflow")):
        parameters = _parameters("fused", device, dtype, ((33,), (257,)))
        optimizer = torch.optim.AdamW(parameters, lr=0.125, weight_decay=0.0, fused=True)
        for each in parameters:
            each.grad = torch.full_like(each, 64.0)
        optimizer.grad_scale = torch.tensor(64.0, device=device)  # type: ignore[attr-defined]
        optimizer.found_inf = torch.tensor(float(bad), device=device)  # type: ignore[attr-defined]
        optimizer.step()
        found[said] = joined(parameters)
    return found


def _combined(device: torch.device, dtype: torch.dtype) -> dict[str, T]:
    """Run torch_npu's own optimizers, which merge parameters into one tensor and clip that."""
    if device.type not in ("cpu", "npu"):
        raise NotImplementedError(f"{device.type} has no NpuFused optimizers")
    library, found = importlib.import_module("torch.optim" if device == CPU else "torch_npu.optim"), dict[str, T]()
    for name in ("sgd-nesterov", "adam", "adamw", "adadelta", "rmsprop"):
        kind, settings = OPTIMIZERS[name]
        parameters = _parameters(name, device, dtype, SHAPES[2:6])
        optimizer = getattr(library, kind if device == CPU else f"NpuFused{kind}")(parameters, **settings)
        for step in range(STEPS):
            optimizer.zero_grad()
            torch.autograd.backward(
                [(each * (place - 1.5) * 2**step).square().sum() for place, each in enumerate(parameters)]
            )
            if step == 2:
                clip = partial(torch.nn.utils.clip_grad_norm_, parameters)
                (clip if device == CPU else optimizer.clip_grad_norm_fused_)(2.0)
            optimizer.step()
        found[name] = joined(parameters)
    return found


def _casts(at: At, low: torch.dtype) -> None:
    """Check what autocast casts, what it leaves alone, where it ends, and that it notices modified weights."""
    x, w = (inputs.integers(f"optimizers/casts/{key}", (4, 4), low=-2, high=3).float().to(at.device) for key in "xw")
    leaf, high, other = w.clone().requires_grad_(), torch.float32, "cuda" if at.device == CPU else "cpu"

    def product(of: str = at.device.type, **how: Any) -> T:
        return torch.autocast(of, **how)(torch.mm)(x, w) if how else x @ leaf

    with torch.autocast(at.device.type, low), ThreadPoolExecutor(1) as pool:
        found = {
            "a product": (product(), low), "of both": (product() + w, high), "of two": (product() + product(), low),
            "joined": (torch.cat([product(), w]), high), "in place": (x.clone().addmm_(x, w), high), "+": (x + w, high),
            "off": (product(enabled=False), high), "into another": (torch.mm(x, w, out=torch.zeros_like(x)), high),
            "halves": (product(dtype=torch.float16), torch.float16), "off there": (product(other, enabled=False), low),
            "in another thread": (pool.submit(product).result(), high), "integers": (x.long() + 1, torch.int64),
            "without gradients": (torch.inference_mode()(product)(), low), "after others": (product(), low),
        }  # fmt: skip
    found |= {"outside": (product(), high), "a function": (product(dtype=low), low)}
    for name, (each, wanted) in found.items():
        at.same(each.detach().cpu(), each.detach().cpu().to(wanted), f"autocast gives another dtype: {name}")

    def trained(x: T, leaf: T, *, cast: bool) -> Iterator[T]:
        for turn in range(3):
            with torch.no_grad():
                leaf.add_(turn)
            with torch.autocast(at.device.type, low, enabled=cast, cache_enabled=turn != 1):
                total = (x @ leaf).float() + (leaf @ x).float() * 2
            yield from (total.detach().cpu(), torch.autograd.grad(total.sum(), leaf)[0].cpu())

    there, here = trained(x, leaf, cast=True), trained(x.cpu(), w.cpu().requires_grad_(), cast=False)
    at.same([*there], [*here], "autocast computes with old weights, or not all gradients of its casts are added")


def _scaler_calls(at: At) -> None:
    """Check that a scaler scales nested tensors, follows factors set later, and refuses calls out of order."""
    taken, ones = list[str](), torch.ones(3, device=at.device)
    scaler = scaler_of(at.device.type, 8.0, growth_interval=1)
    scaled = mapped(scaler.scale([ones, (ones.half(), [ones * 2])]), torch.Tensor.tolist)
    at.same(scaled, [[8.0] * 3, ([8.0] * 3, [[16.0] * 3])], "scale() leaves some of what it is given as it is")
    usual, halves = (torch.optim.SGD([torch.nn.Parameter(each)], lr=1.0) for each in (ones, ones.half()))
    for optimizer in (usual, halves):
        optimizer.param_groups[0]["params"][0].grad = optimizer.param_groups[0]["params"][0].detach() * 1

    def out_of_turn(name: str, *given: Any, **how: Any) -> None:
        kinds = RuntimeError, ValueError, TypeError, AssertionError
        if not refuses(at, partial(getattr(scaler, name), *given, **how), kinds):
            taken.append(name)

    out_of_turn("unscale_", halves)
    scaler.unscale_(usual)
    out_of_turn("unscale_", usual)
    scaler.step(usual)
    for late in ("unscale_", "step"):
        out_of_turn(late, usual)
    out_of_turn("step", usual, closure=float)
    at.same(taken, [], "a scaler takes calls out of turn, gradients of halves, or a closure")
    scaler.update()
    scaler.set_growth_factor(4.0)
    scaler.set_growth_interval(2)
    found = [scaler.step(usual) or scaler.update() or scaler.get_scale() for _ in range(4)]
    at.same(found, [16.0, 64.0, 64.0, 256.0], "the scale does not follow factors that are set later")


def _grouped(device: torch.device, busy: Callable[[], object]) -> dict[str, Any]:
    """Train groups with their own settings, schedules and closures in a model moved later; loaded states are cast."""
    own: tuple[dict[str, Any], ...] = (
        {"momentum": 0.5}, {"weight_decay": 0.5, "maximize": True}, {"lr": torch.tensor(0.5)},
        {"momentum": 0.5, "nesterov": True, "foreach": False}, {"lr": torch.tensor(0.5, device=device)},
        {"lr": 0.125, "momentum": 0.25, "dampening": 0.5},
    )  # fmt: skip
    some = torch.nn.ParameterList(inputs.integers(f"groups/{i}", (2, 5), low=-4, high=5).float() for i in range(48))
    found, of = dict[str, Any](), torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([{"params": some[i :: len(own)], **how} for i, how in enumerate(own)], lr=0.5)
    steps, plateau = of.StepLR(optimizer, 2, 0.5), of.ReduceLROnPlateau(optimizer, "min", 0.5, 0, 0.0)
    some.to(device)

    def loss() -> Any:
        optimizer.zero_grad(set_to_none=len(found) % 2 == 0)
        found[f"zeros {len(found)}"] = [each.grad * 1 for each in some if each.grad is not None]
        losses = [(each * (i % 9 - 4)).sum() + each[0].square().sum() for i, each in enumerate(some)]
        torch.autograd.backward(losses)
        busy()
        return losses[0].detach()

    for step in range(3):  # a fourth step would be rounded
        found[f"loss {step}"] = optimizer.step(loss)
        steps.step()
        plateau.step(torch.tensor(step // 2, device=device))
        state = mapped(deepcopy(optimizer.state_dict()), lambda x: x.cpu().half() if x.dim() else x)
        if step == 1:  # as saved from a half-precision model on the host
            optimizer.load_state_dict(state)
        found[f"step {step}"] = [*(each.detach() * 1 for each in some), state]
    return found


def _groups(at: At) -> None:
    found, wanted = (fetched(_grouped(*each)) for each in ((at.device, at.busy), (CPU, float)))
    at.same(found, wanted, "settings, schedules, closures or states of an optimizer are not its own")


def _mixed(device: torch.device) -> dict[str, Any]:
    """Apply list functions to mixed dtypes, shapes and layouts, with a repeated tensor, and return gradients, too."""
    x = inputs.integers("lists/mixed", (6, 7), low=-4, high=5).to(device)
    shapes = [x, x[0], x.mT, x[:, :0], x[1].expand(6, 7), x[0, 0], x > 0]
    some = [each.to(dtype) for each in shapes for dtype in (torch.float32, torch.float16, torch.int32)]
    some, call = [*some, some[0]], {name: getattr(torch, f"_foreach_{name}") for name in ("add", "mul", "maximum")}
    found = {name: function(some, some) for name, function in call.items()}
    found |= {f"{name} {number}": call[name](some, number) for name in ("add", "mul") for number in (3, 1.5, True)}
    leaves = [each.detach().requires_grad_() for each in some if each.is_floating_point()]
    results = call["add"](call["mul"](leaves, leaves), leaves, alpha=2)
    return {**found, "gradients": torch.autograd.grad([each.float().sum() for each in results], leaves)}


_WAYS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((name, name, {}) for name in OPTIMIZERS),
    *((f"{name}-fused", name, {"fused": True}) for name in FUSED),
    *((f"{name}-late", name, {"late": 300}) for name in ("adam", "adamw", "nadam")),
    ("adamw-fused-late", "adamw", {"late": 300, "fused": True}),
    *((f"{name}-loop", name, {"foreach": False}) for name in ("adamw-amsgrad", "sgd")),
    *((f"{name}-lists", name, {"foreach": True, "count": 8}) for name in ("adamw", "sgd", "rmsprop")),
)
OF_LISTS: Mapping[str, Row] = {
    **{way: (STANDARD, partial(_steps, name=name, **how)) for way, name, how in _WAYS},
    "together": (SMOKE, lambda at: at.defined(_together, orders=4, accumulation=16, scale=1.0)),
    "first-steps": (SMOKE, partial(_first_steps, dtypes=(torch.float32, torch.float16))),
    "first-steps-bfloat16": (SMOKE, partial(_first_steps, dtypes=(torch.bfloat16,))),  # not available on every chip
    "first-step-fused-sgd": (STANDARD, _first_fused_step),  # the CPU of torch 2.7 gets some half-precision steps wrong
    "scale": (SMOKE, _grown),
    "scaler": (SMOKE, _skipped),
    "fused-scaler": (STANDARD, lambda at: at.defined(_fused_skip, accumulation=1)),
    "combined": (STANDARD, lambda at: at.defined(_combined, accumulation=64, scale=1.0)),
    "clipping": (STANDARD, _clipped),
    "foreach": (STANDARD, _lists),
    "scaler-of-two": (STANDARD, _scaled_together),
    "casts": (SMOKE, partial(_casts, low=torch.float16)),
    "casts-bfloat16": (SMOKE, partial(_casts, low=torch.bfloat16)),
    "scaler-calls": (SMOKE, _scaler_calls),
    "groups": (STANDARD, _groups),
    "mixed-lists": alike(STANDARD, _mixed, "lists of several dtypes and layouts give other results than their tensors"),
    "options": (STANDARD, lambda at: at.defined(_options, accumulation=64, scale=1.0)),
}
