"""Data movement: copies of all kinds and sizes, operators that only move elements, and casts, all bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import permutations, product
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  (as everybody calls it)

from pytest_ascend.run import inputs

from .rows import CPU, MIB, SMOKE, STANDARD, At, Row, T, alike, described, early, numbered, saved

Moves: TypeAlias = dict[str, Callable[[T], T]]
#: Copy sizes in bytes: near what one transfer, staging buffer or driver page may hold, and odd ones.
SIZES = (1, 511, 4097, MIB + 3, 4 * MIB + 5, 16 * MIB + 7)


def copied(at: At, way: Callable[[At, T], T]) -> None:
    for size in SIZES:
        given = numbered(size // 4 + 1, size).view(torch.uint8)[:size].clone()
        for where in (CPU, at.device):  # memory freed here and reused next holds none of these values
            torch.full((size,), 165, dtype=torch.uint8, device=where)
        found = way(at, given)
        wrong = (found != given).nonzero() if found.shape == given.shape else torch.zeros(1, 1)
        first = int(wrong[0]) if len(wrong) else 0
        at.same(len(wrong), 0, f"a copy of {size} bytes is wrong in {len(wrong)} of them, from byte {first} on")


def _pinned(at: At, x: T) -> T:
    target, source = (each if at.device.type == "cpu" else each.pin_memory() for each in (torch.zeros_like(x), x))
    target.copy_(source.to(at.device, non_blocking=True), non_blocking=True)
    at.wait()
    return target


def _odd(at: At, x: T, *, within: bool) -> T:
    """Copy between unaligned offsets on the device and on the host; the bytes around the copy must not change."""
    given = torch.cat([x.new_zeros(3), x])
    there = torch.full((len(x) + 9,), 7, dtype=torch.uint8, device=at.device)
    there[5 : 5 + len(x)].copy_((given.to(at.device) if within else given)[3:])
    back = torch.full((len(x) + 8,), 7, dtype=torch.uint8)
    back[7 : 7 + len(x)].copy_(there[5 : 5 + len(x)])
    around = torch.cat([back[:7], back[-1:], there[:5].cpu(), there[-4:].cpu()])
    return back[7:-1] if bool((around == 7).all()) else back


WAYS: Mapping[str, Callable[[At, T], T]] = {
    "there-and-back": lambda at, x: x.to(at.device).cpu(),
    "odd-places": partial(_odd, within=False),
    "pinned": _pinned,
    "on-the-device": partial(_odd, within=True),
    "clone": lambda at, x: x.to(at.device).clone().cpu(),
}


_SHAPE, _MEMORY = (2, 3, 4), 120
_WITH_CASTS = torch.int32, torch.float16, torch.int64


def _ordered(x: T, order: tuple[int, ...]) -> T:
    """Return a view of this shape, with gaps, whose dimensions lie in memory in the given order."""
    return x[3:51:2].view([_SHAPE[each] for each in order]).permute([order.index(each) for each in range(3)])


#: Views of one shape: in memory order, in other orders, and (sources only) expanded from fewer elements.
_GAPS: Moves = {
    "stepped": partial(_ordered, order=(0, 1, 2)), "a part": lambda x: x.view(4, 5, 6)[1:3, 1:4, 1:5],
    "whole": lambda x: x[9:33].view(_SHAPE), "wide": lambda x: x.view(4, 5, 6)[::2, ::2, 1:5],
}  # fmt: skip
_TURNED: Moves = {str(order): partial(_ordered, order=order) for order in [*permutations(range(3))][1:]}
_EXPANDED: Moves = {
    "one row": lambda x: x[5:9], "one column": lambda x: x[5:8, None].expand(_SHAPE),
    "two numbers": lambda x: x[:2, None, None], "one number": lambda x: x[7],
}  # fmt: skip
_ALL = _GAPS | _TURNED
_SOURCES = _ALL | _EXPANDED


def _copies(
    device: torch.device, targets: Moves, sources: Moves, dtypes: tuple[torch.dtype, ...] = (torch.int32,)
) -> dict[str, T]:
    """Copy between all these views: one dtype within the device, several between host and device. Gaps are kept."""
    found = dict[str, T]()
    ways = {"to host": (device, CPU), "to device": (CPU, device)} if len(dtypes) > 1 else {"there": (device, device)}
    for (target, into), dtype, (way, (source, place)) in product(targets.items(), dtypes, ways.items()):
        for name, of in sources.items():
            x, y = numbered(_MEMORY) % 2039, torch.full((_MEMORY,), 7, dtype=dtype, device=place)
            into(y).copy_(of(x.to(source)))
            found[f"{name} to {target}, {dtype}, {way}"] = y
    return found


def _layouts(device: torch.device) -> dict[str, T]:
    """Copy on the device, and between all offsets at which cache lines and blocks begin."""
    x = torch.full((2, 57), 7, dtype=torch.int32, device=device)
    for place in range(1, 17):
        x[0, place : place + 40].copy_(numbered(40, place))
        x[1, place : place + 9].copy_(x[0, place : place + 40].cpu()[:9])
    return {"lines": x, **_copies(device, _ALL, _SOURCES)}


#: Calls that return views, through which writes reach the tensor, and calls that return copies.
_VIEWS: Moves = {
    "diagonal": torch.diagonal, "unbind": lambda x: x.unbind()[1], "tensor_split": lambda x: x.tensor_split(3)[2],
    "unfold": lambda x: x.unfold(1, 2, 3), "mT": lambda x: x.mT[1:], "movedim": lambda x: x.movedim(0, 1)[1],
    "as_strided": lambda x: x.as_strided((2, 3), (7, 2), 3), "bits": lambda x: x[1:].view(torch.int16)[:, ::4],
    "detach": lambda x: x.detach()[1], "expand_as": lambda x: x[2].expand_as(x)[4], "hsplit": lambda x: x.hsplit(2)[0],
    "reshape": lambda x: x.reshape(3, 12)[2], "contiguous": lambda x: x.contiguous()[4], "t_": lambda x: x[:].t_()[1],
    "imag": lambda x: torch.view_as_complex(x.view(torch.float32).view(6, 3, 2)).imag[2:4],
    "getitem": lambda x: x[torch.tensor([0, 2], device=x.device)], "flip": lambda x: x.flip(0),
    "repeat": lambda x: x.repeat(1, 1), "cat": lambda x: torch.cat([x]), "flatten": lambda x: x.mT.flatten(),
    "ravel": torch.ravel, "dropout": lambda x: F.dropout(x, training=False), "relu": lambda x: F.relu(x, inplace=True),
    "reshape, turned": lambda x: x.mT.reshape(3, 12), "numbers": lambda x: x.int(),
    "bytes": lambda x: x.flatten()[8:21].view(torch.uint8)[3:], "halves": lambda x: x.half()[1:5].view(torch.int32),
    "larger": lambda x: x.view(torch.uint8).flatten()[8:24].view(torch.int64), "narrow": lambda x: x.narrow(1, 2, 2),
    "float32": lambda x: x[1:3].view(torch.float32).view(torch.int64), "select": lambda x: x.select(1, 2),
    "repeated": lambda x: x.repeat_interleave(torch.tensor([2, 0, 0, 1, 0, 3], device=x.device), 1),
    "repeated, first none": lambda x: x.repeat_interleave(torch.tensor([0, 3, 0, 1, 2, 0], device=x.device), 0),
    "set_": lambda x: x.new_empty(0).set_(x.untyped_storage(), 3, (2, 4), (1, 2)), "slice": lambda x: x[..., 1:5:2],
    "conj": lambda x: torch.view_as_real(torch.view_as_complex(x.float().view(6, 3, 2)).conj().clone()),
    "neg": lambda x: torch.view_as_complex(x.float().view(6, 3, 2)).conj().imag.clone(), "new": lambda x: x[None, 2:],
}  # fmt: skip
#: Tensors of all layouts, of 36 elements or some of them, and calls that keep a layout or choose their own.
_LAID: Moves = {
    "dense": lambda x: x.view(2, 3, 2, 3), "channels last": lambda x: x.view(2, 2, 3, 3).permute(0, 3, 1, 2),
    "permuted": lambda x: x.view(2, 3, 2, 3).permute(3, 1, 0, 2), "a column": lambda x: x.view(6, 6)[:, 2],
    "stepped": lambda x: x.view(6, 6)[::2, 1::2], "turned part": lambda x: x.view(6, 6).mT[1:4],
    "expanded": lambda x: x[:6].view(2, 1, 3).expand(2, 4, 3), "one": lambda x: x[5],
    "size 1": lambda x: x.view(6, 1, 6)[2:3], "overlapping": lambda x: x.as_strided((3, 3), (1, 1), 2),
    "none": lambda x: x[:0].view(0, 3),
}  # fmt: skip
_SQUARE: Moves = {"a square": lambda x: x.view(6, 6)}
KEEPS: Moves = {
    "clone": torch.clone, "clone, in order": lambda x: x.clone(memory_format=torch.contiguous_format),
    "contiguous": torch.Tensor.contiguous, "half": torch.Tensor.half, "squeeze": torch.squeeze,
    "to": lambda x: x.to(x.device, x.dtype), "to, copied": lambda x: x.to(x.device, copy=True),
    "to, copied and cast": lambda x: x.to(torch.float16, copy=True), "to another's": lambda x: x.to(x.flatten().long()),
    "to the host, cast": lambda x: x.to("cpu", torch.float16), "back, cast": lambda x: x.cpu().to(x.device, torch.int8),
    "detach": torch.detach, "data": lambda x: x.data, "as_tensor": torch.as_tensor,
    "asarray": lambda x: torch.asarray(x, copy=True), "view_as": lambda x: x.view_as(x), "deepcopy": deepcopy,
    "zeros_like": torch.zeros_like, "full_like": lambda x: torch.full_like(x, 3, dtype=torch.int8),
    "empty_strided": lambda x: torch.empty_strided(x.shape, x.stride(), device=x.device).zero_(),
    "parameter": lambda x: torch.nn.Parameter(x, requires_grad=False), "new_zeros": lambda x: x.new_zeros(x.shape),
    "saved": lambda x: torch.load(saved(x), weights_only=True),
    "saved, to the host": lambda x: torch.load(saved(x), "cpu", weights_only=True),
}  # fmt: skip


def kept(device: torch.device, moves: Moves, layouts: Moves = _LAID) -> dict[str, Any]:
    """Return the properties of inputs of each layout and of results, shared memory included, and both after a write."""
    found = dict[str, Any]()
    for (layout, laid), (name, move) in product(layouts.items(), moves.items()):
        x = laid((numbered(36) % 97).to(device))
        made = move(x)
        found[f"{name} of {layout}"] = [described({"it": x, "result": made})]
        with suppress(RuntimeError):  # elements may overlap in memory
            found[f"{name} of {layout}"] += [made.fill_(1).mul_(3).add_(2), x]
    return found


def _storages(at: At) -> None:
    """Check that storages that are freed and resized again, as in sharded training, hold what is written."""
    x = numbered(MIB).to(at.device)
    view, storage = x[3:].view(-1)[::2], x.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    x.copy_(numbered(MIB, 5))
    there = x.cpu()
    asked = {
        "nbytes() or data_ptr() are wrong": storage.nbytes() == size and storage.data_ptr() == x.data_ptr() != 0,
        "a view is not of the memory had again": torch.equal(view.cpu(), there[3::2]),
        "resize_() that grows loses numbers": torch.equal(x[:9].clone().resize_(99)[:9].cpu(), there[:9]),
    }
    at.same("; ".join(said for said, is_so in asked.items() if not is_so), "", "storages")


def _cat(device: torch.device) -> dict[str, Any]:
    """Join and split up to 257 tensors along each dimension, some of them empty, views, or of other dtypes."""
    found = dict[str, Any]()
    for count in (2, 33, 65, 257):
        here = [numbered(3 * (i % 5) * 2, i).view(3, i % 5, 2) for i in range(count)]
        parts, squares = [each.to(device) for each in here], numbered(20 * count, 3).to(device).view(count, 20)
        found[f"cat of {count} tensors along dimension 1"] = whole = torch.cat(parts, 1)
        found[f"split into {count} tensors"] = torch.split(whole, [each.shape[1] for each in parts], 1)
        found[f"cat of {count} transposed tensors"] = torch.cat([each.transpose(0, 1) for each in parts])
        found[f"stack of {count} tensors"] = torch.stack([each[:, :1] for each in parts if each.shape[1]], -1)
        for join in (torch.stack, torch.cat):  # of one shape, alternately stored by rows and by columns
            turned = [each.view(4, 5) if i % 2 else each.view(5, 4).mT for i, each in enumerate(squares)]
            found[f"{join.__name__} of {count} tensors, each other one transposed"] = join(turned)
        for first in range(3):
            dtypes = [(torch.int64, torch.float32, torch.int8)[(first + i) % 3] for i in range(count)]
            mixed = [(each % 1000 / 8).to(dtype).to(device) for each, dtype in zip(here, dtypes, strict=True)]
            found[f"cat of {count} tensors of int64, float32 and int8, {dtypes[0]} first"] = torch.cat(mixed, 1)
    return found


def _overwritten(x: T) -> T:
    found = x.clone().view(16, -1)
    found[:, 1::3].fill_(1)
    found[3:5, ::2].zero_()
    return found


#: Operators that only move whole elements. Those of the first table move bits and keep NaN payloads; those of the
#: second may return any NaN for a NaN.
MOVES: Moves = {
    "clone": torch.clone, "transposed": lambda x: x.view(16, -1).mT.contiguous(),
    "permuted": lambda x: x.view(4, 8, -1).permute(2, 0, 1).contiguous(), "stepped": lambda x: x[1::3].contiguous(),
    "expanded": lambda x: x[:64, None].expand(64, 5).contiguous(),
    "permuted-6": lambda x: x.view(2, 2, 2, 2, 2, -1).permute(5, 3, 1, 0, 4, 2).contiguous(),
    "cat": lambda x: torch.cat([x[7:], x[:7]]), "cat-64": lambda x: torch.cat([*x.view(64, -1)][::-1]),
    "index_select": lambda x: x.index_select(0, _places(x)),
    "getitem": lambda x: x.view(16, -1)[torch.arange(15, -1, -1, device=x.device)],
    "cat-channels-last": lambda x: torch.cat([x.view(4, 2, -1, 8).permute(0, 3, 1, 2)] * 2, 1),
    "copy_": lambda x: x.new_zeros(16, len(x) // 16).mT.copy_(x.view(-1, 16)),
}  # fmt: skip
_OF_COMPLEX = ("clone", "transposed", "permuted", "stepped", "expanded", "copy_")
OTHER_MOVES: Moves = {
    "flip": lambda x: x.view(16, -1).flip(0, 1), "roll": lambda x: x.view(16, -1).roll((3, -5), (0, 1)),
    "gather": lambda x: x.view(16, -1).gather(0, _places(x).view(16, -1) % 16),
    "gather-narrow": lambda x: x.view(16, -1).gather(0, (_places(x).view(16, -1) % 16)[:9, :7]),
    "scatter-narrow": lambda x: x.view(16, -1).scatter(0, (_places(x).view(16, -1) % 16)[:2, :7], x.view(64, -1)[:3]),
    "scatter": lambda x: torch.zeros_like(x).scatter(0, _places(x), x),
    "where": lambda x: torch.where(_places(x) % 3 == 0, x, x.flip(0)), "pad": lambda x: F.pad(x.view(16, -1), (3, 2)),
    "repeat": lambda x: x[:64].repeat(5), "repeat_interleave": lambda x: x[:64].repeat_interleave(_places(x[:64]) % 3),
    "tril": lambda x: x.view(32, -1).tril(-1), "masked_select": lambda x: x.masked_select(_places(x) % 3 == 0),
    "getitem-mask-transposed": lambda x: x.view(16, -1).mT[(_places(x) % 3 == 0).view(16, -1).mT],
    "nonzero-transposed": lambda x: (_places(x) % 3 == 0).view(16, -1).mT.nonzero().to(x.dtype),
    "getitem-mask": lambda x: x[_places(x) % 3 == 0],
    "setitem": lambda x: torch.zeros_like(x).index_put((_places(x),), x), "fill_": _overwritten,
    "masked_scatter": lambda x: x.flip(0).masked_scatter(_places(x) % 3 == 0, x),
    "take": lambda x: x.take(_places(x)), "unfold": lambda x: x.unfold(0, 5, 3).contiguous(),
}  # fmt: skip
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8)
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _places(x: T) -> T:
    doubled = torch.arange(len(x), device=x.device) * 2
    return doubled % len(x) + doubled // len(x)


def _bits_of(x: T) -> T:
    return x.contiguous().view(INTEGERS[x.itemsize])


def _moved(at: At, table: Moves, *dtypes: torch.dtype, bits: bool = False, count: int = 4096) -> None:
    found, wanted = dict[str, T](), dict[str, T]()
    for dtype in dtypes or DTYPES:
        raw = inputs.integers(f"movement/{dtype}", (count * dtype.itemsize,), low=0, high=256)
        words = raw.to(torch.uint8).view(dtype)
        if dtype.is_floating_point:
            special = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 0.0], dtype=dtype)
            words[:500] = special.repeat(100)
            _bits_of(words)[:500:5] += torch.arange(100, dtype=INTEGERS[dtype.itemsize])
        elif dtype.itemsize == 8:
            words[:3] = torch.tensor([2**53 + 1, -(2**53) - 1, 2**62 + 1])
        any_nan = dtype.is_floating_point and not bits
        x = torch.where(words.isnan(), float("nan"), words) if any_nan else words
        for name, move in table.items():
            for results, given in ((found, x.to(at.device)), (wanted, x)):
                moved = move(given).cpu()
                moved = torch.where(moved.isnan(), float("nan"), moved) if any_nan else moved
                results[f"{name} {dtype}"] = _bits_of(moved)
    at.same(found, wanted, "elements are not moved bit for bit")


def _ties(at: At, dtype: torch.dtype) -> None:
    """Check rounding from float32 at each number of the format, just above it, at ties and just beside them."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    every = every[every.isfinite()]
    upper = torch.nextafter(every.float(), torch.tensor(torch.inf))
    step = (every.double().abs().clamp(torch.finfo(dtype).smallest_normal).frexp().exponent - 1).double().exp2()
    middle = (every.double() + step * torch.finfo(dtype).eps / 2).float()
    beside = (middle.nextafter(torch.tensor(end)) for end in (torch.inf, -torch.inf))
    x = torch.cat([every.float(), upper, middle, *beside])
    x = x[x.abs() >= torch.finfo(torch.float32).smallest_normal]  # a device may flush denormals of float32
    cause = f"float32 is not rounded to the nearest {dtype}, with ties to even"
    at.same(_bits_of(x.to(at.device).to(dtype).cpu()), _bits_of(x.to(dtype)), cause)


def _casts(device: torch.device) -> dict[str, T]:
    ends = (2**24 + 1, 2**31 - 1, -(2**31), 2**53 + 1, 2**62 + 1)
    whole = torch.tensor([0, 1, -1, 127, -128, 255, 256, -32768, 65535, *ends])
    parts = torch.tensor([0.0, -0.0, 0.5, -0.5, 0.999, -1.5, 2.5, 100.7, -100.7, 2.0**20 + 0.5, float(2**30), -1e9])
    found, wide = dict[str, T](), inputs.normal("movement/casts", (4, 1027), std=2.0**20)
    for name, x, kinds in (
        ("float64, of all digits", wide[0].double() * wide[1].double(), (torch.float32, torch.float16, torch.bfloat16)),
        ("float64, small", wide[2].double() / wide[3].double() ** 2, (torch.float32, torch.bfloat16, torch.int64)),
        ("float32, of all digits", wide[0], (torch.float16, torch.bfloat16, torch.int32, torch.int16)),
        ("int64, of all digits", wide[0].long() * wide[1].long(), (torch.float32, torch.int32)),
        ("int32, of all digits", (wide[0] * 64).int(), (torch.float32, torch.bfloat16, torch.int8)),
        ("int64", whole, (torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float32)),
        ("int32", whole[:12].int(), (torch.int64, torch.int16, torch.int8, torch.uint8, torch.float32, torch.bool)),
        ("float32", parts, (torch.int64, torch.int32, torch.bool, torch.float16, torch.bfloat16)),
        ("float32, not finite", torch.tensor([torch.nan, torch.inf, -torch.inf, 1e-45]), (torch.bool, torch.float16)),
        ("float16", parts[:9].half(), (torch.int64, torch.int32, torch.bool, torch.float32, torch.bfloat16)),
    ):
        for kind in kinds:
            found[f"{name} to {kind}"] = x.repeat(9).to(device).to(kind)
    return found


#: Operators that write a number into a tensor: at every third element, or everywhere.
_PUT: Mapping[str, Callable[[T, T, float], T]] = {
    "masked_fill": lambda x, m, n: x.masked_fill(m, n), "masked_fill_": lambda x, m, n: x.clone().masked_fill_(m, n),
    "where": lambda x, m, n: torch.where(m, x, n), "fill_": lambda x, _, n: x[:, 1:5].clone().fill_(n),
    "setitem": lambda x, m, n: x.clone().index_put_((m,), torch.tensor(n, dtype=x.dtype, device=x.device)),
    "full_like": lambda x, _, n: torch.full_like(x, n), "new_full": lambda x, _, n: x.new_full((3, 5), n),
    "index_fill": lambda x, _, n: x.index_fill(1, torch.tensor([2, 0], device=x.device), n),
    "scatter": lambda x, m, n: x.scatter(0, m.long(), n), "pad": lambda x, _, n: F.pad(x, (1, 2), value=n),
    "tensor": lambda x, _, n: torch.tensor([n, 1.0], dtype=x.dtype, device=x.device),
}  # fmt: skip


def _put(device: torch.device) -> dict[str, T]:
    """Write infinities, NaN, signed zeros and the format's limits, which must arrive unchanged and nowhere else."""
    found = dict[str, T]()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        ends = torch.finfo(dtype)
        x = inputs.normal("movement/put", (9, 7)).to(dtype).to(device)
        mask = (torch.arange(63).view(9, 7) % 3 == 1).to(device)
        numbers = (torch.inf, -torch.inf, torch.nan, -0.0, ends.max, ends.min, ends.smallest_normal)
        for name, put in _PUT.items():
            made = torch.cat([put(x, mask, n).flatten() for n in numbers]).cpu()
            found[f"{name} of {dtype}"] = _bits_of(made.where(~made.isnan(), torch.nan))  # any NaN is accepted
    return found


_OTHER_PLACES = "a copy fills gaps, or gives elements other places"
MOVEMENT: Mapping[str, Row] = {
    **early({name: partial(copied, way=way) for name, way in WAYS.items()}, "there-and-back", "odd-places"),
    "gaps": alike(SMOKE, partial(_copies, targets=_GAPS, sources=_GAPS, dtypes=_WITH_CASTS), _OTHER_PLACES),
    "turned": alike(STANDARD, partial(_copies, targets=_ALL, sources=_SOURCES, dtypes=_WITH_CASTS), _OTHER_PLACES),
    "views": alike(STANDARD, partial(kept, moves=_VIEWS, layouts=_SQUARE), "what is written to a view is elsewhere"),
    "kept": alike(STANDARD, partial(kept, moves=KEEPS), "a layout, a dtype or memory that is shared is not kept"),
    "storages": (STANDARD, _storages),
    "cat": alike(SMOKE, _cat, "tensors are joined or split in another way"),
    "layouts": alike(SMOKE, _layouts, "a copy between views is wrong, or changes what lies around it"),
    "bits": (SMOKE, lambda at: _moved(at, MOVES, bits=True)),
    "complex": (SMOKE, lambda at: _moved(at, {name: MOVES[name] for name in _OF_COMPLEX}, torch.complex64, bits=True)),
    "elements": (STANDARD, lambda at: _moved(at, OTHER_MOVES)),
    "elements-first": (SMOKE, lambda at: _moved(at, OTHER_MOVES, torch.float32)),
    "many-elements": (STANDARD, lambda at: _moved(at, MOVES | OTHER_MOVES, torch.int32, count=2**17)),
    "to-bfloat16": (SMOKE, partial(_ties, dtype=torch.bfloat16)),
    "to-float16": (STANDARD, partial(_ties, dtype=torch.float16)),
    "casts": alike(SMOKE, _casts, "a cast gives other numbers than PyTorch defines"),
    "special-numbers": alike(SMOKE, _put, "a number, such as -inf, is not put there as it is, or elsewhere too"),
}
