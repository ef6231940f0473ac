"""Planted faults: wrong kernels on the emulated device, to test that a suite notices.

A fault maps names of operators to functions that build a wrong body from the correct one::

    STALE_ADD = {"aclnnAdd": lambda correct: lambda self, other, alpha: correct(self, other, alpha) * 1.001}

It is selected by name if it is built in (see ``FAULTS``), or as ``module:attribute`` if it is the user's own. Faults of
the device as a whole, such as ``crash:after=100``, are in :mod:`pytest_ascend.emulator.device_faults`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map_only

from pytest_ascend.emulator.device_faults import KINDS, inject, is_device_fault
from pytest_ascend.emulator.graphs import BODIES, GRAPHS, Graph, Task, carry_out
from pytest_ascend.emulator.registry import Body, Kernel
from pytest_ascend.emulator.tensors import FOUR_BITS, POWERS
from pytest_ascend.system.bundled import table
from pytest_ascend.system.dispatching import tensors_in
from pytest_ascend.system.errors import UsageError, as_error, choice, with_type


def find_fault(name: str) -> Fault:
    """Return a built-in fault by its name, or a user's by ``module:attribute``. Raises UsageError for others."""
    if name in FAULTS:
        return FAULTS[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        raise UsageError(
            f"there is no fault {name!r} for the emulated device",
            hint=f"{choice(name, sorted({*FAULTS, *KINDS}))} Or {PREFIX}NAME, or your own as module:attribute",
        )
    hint = "is its module on PYTHONPATH, and does it import?"
    with as_error(f"the fault {name!r} cannot be loaded", hint, Exception, why=with_type):
        found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, Mapping):
        raise UsageError(
            f"the fault {name!r} is a {type(found).__name__}",
            hint="expected a mapping from an operator's name (aclnnAdd) to a function that takes the correct body",
        )
    return found


def apply_faults(kernels: Iterable[Kernel], names: Iterable[str]) -> list[Kernel]:
    """Return the kernels with the named faults planted. Raises UsageError for an operator that is not emulated."""
    by_name = {kernel.name: kernel for kernel in kernels}
    for name in names:
        if name.startswith(PREFIX):
            check(name)  # planted in the library of collectives
        elif is_device_fault(name):
            by_name = inject(by_name, name)
        else:
            for operator, plant in find_fault(name).items():
                if operator in by_name:
                    by_name[operator] = replace(by_name[operator], body=_planted(by_name[operator], plant))
                elif operator not in BODIES:
                    message = f"the fault {name!r} replaces {operator}, which is not emulated"
                    raise UsageError(message, hint="check the operator's name")
    return list(by_name.values())


def with_faults(bodies: Mapping[str, Body], names: Iterable[str]) -> dict[str, Body]:
    """Return the operations of captured graphs (``graphs.BODIES``), with the named faults planted."""
    found = dict(bodies)
    for name in names:
        if not is_device_fault(name) and not name.startswith(PREFIX):
            for function, plant in find_fault(name).items():
                if function in found:
                    found[function] = plant(found[function])
    return found


def _planted(kernel: Kernel, plant: Callable[[Body], Body]) -> Body:
    """Return the wrong body. Faults only handle bodies that return their result: others are wrapped."""
    if not kernel.into:
        return plant(kernel.body)

    def body(*arguments: Any, out: Any) -> None:
        def correct(*given: Any) -> Any:
            results = tree_map_only(torch.Tensor, torch.clone, out)
            kernel.body(*given, out=results)
            return results

        for target, value in zip(tensors_in(out), tensors_in(plant(correct)(*arguments)), strict=True):
            target.copy_(value)

    return body


PREFIX = "hccl-"

_EFFECTS = table("emulator/faults.json")
#: Name, without the prefix -> effect.
COLLECTIVE_FAULTS: Mapping[str, str] = _EFFECTS["collectives"]
#: Name -> effect. Planted by the C runtime; with all names that begin with "stream-", streams run asynchronously.
RUNTIME_FAULTS: Mapping[str, str] = _EFFECTS["runtime"]

SETTINGS = ("rank", "collective", "after", "times", "rate", "bytes", "seconds")


def check(text: str) -> None:
    """Raise UsageError for an unknown fault, or an unknown setting of one."""
    name, *parts = text.split(":")
    if name.removeprefix(PREFIX) not in COLLECTIVE_FAULTS:
        known = ", ".join(PREFIX + each for each in COLLECTIVE_FAULTS)
        raise UsageError(f"there is no fault {name!r} of collectives", hint=f"choose one of {known}")
    for part in parts:
        setting, equals, value = part.partition("=")
        is_number = value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit()
        if setting not in SETTINGS or not equals or not (is_number or (setting == "collective" and value.isalpha())):
            raise UsageError(
                f"the fault {text!r} has the setting {part!r}",
                hint=f"settings are written name=value, with one of {', '.join(SETTINGS)}",
            )


T: TypeAlias = torch.Tensor
Fault: TypeAlias = Mapping[str, Callable[[Body], Body]]
Change: TypeAlias = Callable[[Any], Any]


# --- changes to a tensor on its way in or out; other values stay unchanged ---


def _densely(x: T) -> T:
    """Read memory in order, ignoring the strides."""
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride(), x.storage_offset())


def _from_line_start(x: T) -> T:
    """Read from the start of the element's 32-byte line, to which most allocations of torch_npu are aligned."""
    offset = x.storage_offset()
    return torch.as_strided(x, x.shape, x.stride(), offset - offset % max(1, 32 // x.itemsize))


def _without_nan(x: T) -> T:
    return torch.where(x.isnan(), torch.full_like(x, float("-inf")), x) if x.is_floating_point() else x


def _flushed(x: T) -> T:
    if not x.is_floating_point():
        return x
    return torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, torch.zeros_like(x), x)


def _in_eleven_bits(x: T) -> T:
    """Round float32 to the significand of HF32 although it is not allowed."""
    return ((x.contiguous().view(torch.int32) + 0x800) & ~0xFFF).view(torch.float32) if x.dtype is torch.float32 else x


def _through(dtype: torch.dtype, *of: torch.dtype) -> Change:
    """Convert tensors of some dtypes to another one, and back."""
    return lambda x: x.to(dtype).to(x.dtype) if x.dtype in of else x


_in_half = _through(torch.float16, torch.float32)
_in_32_bits = _through(torch.int32, torch.int64)


# --- functions that make a body wrong ---


def instead(wrong: Callable[..., Any], *changes: Change) -> Callable[[Body], Body]:
    """Replace the computation; the wrong body takes the changes, if any, and the correct body before its arguments."""
    return partial(partial, wrong, *changes)


def _given(change: Change, *places: int) -> Callable[[Body], Body]:
    """Change input tensors: those at these argument positions, or all."""

    def wrong(correct: Body, *arguments: Any) -> Any:
        chosen = places or range(len(arguments))
        return correct(*(change(x) if i in chosen and isinstance(x, T) else x for i, x in enumerate(arguments)))

    return instead(wrong)


def _outputs_of(change: Change, correct: Body, *arguments: Any) -> Any:
    """Change output tensors."""
    found = correct(*arguments)
    return tuple(map(change, found)) if isinstance(found, tuple) else change(found)


def _argument(place: int, value: Any) -> Callable[[Body], Body]:
    """Ignore an argument and use a fixed value."""
    return instead(lambda correct, *given: correct(*given[:place], value, *given[place + 1 :]))


def _of_next_block(scale: T) -> T:
    return scale.view(torch.uint8).roll(1, 0).view(scale.dtype) if scale.dtype is POWERS else scale


def _nibbles_of_bytes_swapped(x: T) -> T:
    if x.dtype is not FOUR_BITS:
        return x
    found = x.view(torch.uint8)
    return (found >> 4 | found << 4).view(x.dtype)


def _largest_for_nan(correct: Body, x: T, dtype: Any) -> Any:
    made = correct(x, dtype)
    return made.nan_to_num(torch.finfo(dtype).max) if str(dtype).startswith("torch.float8_e4") else made


def _cast(correct: Body, self: T, source: T) -> None:
    if source.dtype is torch.float32 and self.dtype in (torch.bfloat16, torch.float16):
        # Convert float32 to a shorter format by truncation.
        bits = {torch.bfloat16: 16, torch.float16: 13}[self.dtype]
        kept = source.contiguous().view(torch.int32) >> bits << bits
        source = kept.view(torch.float32).to(self.dtype)
    correct(self, source)


def _sum_in_sixteens(correct: Body, x: T, dims: Any, keepdim: bool, dtype: Any) -> Any:
    """Accumulate a sum along the last dimension in the input's dtype, sixteen terms at a time."""
    if x.dtype not in (torch.float16, torch.bfloat16) or list(dims) not in ([-1], [x.dim() - 1]) or not x.numel():
        return correct(x, dims, keepdim, dtype)
    total = torch.zeros_like(x[..., 0])
    for part in torch.split(x, 16, -1):
        total = total + part.float().sum(-1).to(x.dtype)
    return (total.unsqueeze(-1) if keepdim else total).to(dtype)


def _product_in_half(correct: Body, left: T, right: T, *rest: Any) -> Any:
    """Accumulate a product in the input's dtype, sixteen terms at a time."""
    if left.dtype not in (torch.float16, torch.bfloat16):
        return correct(left, right, *rest)
    total = torch.zeros(left.shape[0], right.shape[1], dtype=left.dtype)
    for a, b in zip(torch.split(left, 16, 1), torch.split(right, 16, 0), strict=True):
        total = total + (a.float() @ b.float()).to(left.dtype)
    return total


def _exp(correct: Body, x: T) -> Any:
    """Compute eight halvings, a polynomial of degree four and eight squarings: fast and inaccurate."""
    if x.dtype is not torch.float32:
        return correct(x)
    y = x.clamp(-80, 80) / 256
    small = 1 + y * (1 + y * (0.5 + y * (1 / 6 + y / 24)))
    for _ in range(8):
        small = small * small
    return torch.where(x.abs() < 80, small, correct(x))


def _only_dense(correct: Body, self: T, *rest: Any) -> None:
    """Compute, but do not write back if the target is a view with gaps."""
    correct(self if self.is_contiguous() else self.clone(), *rest)


def _twice(correct: Body, *given: Any) -> None:
    correct(*given)
    correct(*given)


def _half_away(correct: Body, x: T) -> Any:  # noqa: ARG001
    return torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor()) if x.is_floating_point() else x


def _last_row_left(found: T) -> T:
    """Leave the last element unwritten, like the tail of a vectorised loop."""
    if found.numel() > 16 and found.numel() % 16:
        found = found.clone(memory_format=torch.contiguous_format)
        found.view(-1)[-1] = 0
    return found


def _last_expert_dropped(correct: Body, *given: Any) -> Any:
    rows, index, counts, scale = correct(*given)
    end = int(counts.sum())
    rows = rows.clone()
    rows[end - int(counts[-1]) : end] = 0
    return rows, index, counts, scale


def _wrapped(correct: Body, x: T, scales: T, *rest: Any) -> Any:
    """Wrap values out of range: keep only the lowest eight bits."""
    return correct(x - ((x.float() / scales.float()).round() / 256).round() * 256 * scales, scales, *rest)


def _last_of_equals(correct: Body, x: T, *rest: Any) -> Any:
    values, experts, *others = correct(x.flip(-1), *rest)
    return values, torch.where(experts < x.shape[-1], x.shape[-1] - 1 - experts, experts), *others


_MASK, _KEY_LENGTHS, _TABLE, _NEXT_TOKENS, _MODE = 4, 6, 14, 3, 6


def _in_inference(change: Callable[[list[Any], int], None]) -> Fault:
    """Change the arguments of attention for inference: a list, and the position of the number of heads."""

    def body(heads: int, correct: Body, *given: Any) -> Any:
        arguments = list(given)
        change(arguments, heads)
        return correct(*arguments)

    return {
        f"aclnnFusedInferAttentionScore{version}": instead(partial(body, heads))
        for version, heads in {"V2": 24, "V3": 27, "V4": 29, "V5": 31}.items()
    }


def _first_page_again(given: list[Any], _: int) -> None:
    if given[_TABLE] is not None:
        given[_TABLE] = given[_TABLE][:, :1].expand_as(given[_TABLE])


def _up_to_a_page(given: list[Any], _: int) -> None:
    if given[_TABLE] is not None:
        given[_KEY_LENGTHS] = [-(-length // 128) * 128 for length in given[_KEY_LENGTHS]]


def _one_key_more(given: list[Any], heads: int) -> None:
    if given[heads + _MODE] == 3:
        given[heads + _MODE], given[heads + _NEXT_TOKENS] = 4, 1


def _mask_beyond(change: Change, given: list[Any], _: int) -> None:
    """Change a mask from key 512 on, if it has one entry for each score."""
    mask = given[_MASK]
    if mask is not None and 512 < mask.shape[-1] < 2048:
        given[_MASK] = torch.cat((mask[..., :512], change(mask)[..., 512:]), -1)


# --- captured graphs: these replace the functions in ``graphs.BODIES`` ---

_FILLS = ("MEMSET_ASYNC", "aclnnInplaceZero", "aclnnInplaceFillScalar")


def _outputs(task: Task) -> list[torch.Tensor]:
    """Return the tensors that an operator writes, as far as they are declared as outputs."""
    return tensors_in(task.given[2]) if len(task.given) > 2 else []


def _replayed(change: Callable[[Graph], list[Task]], _: Body, graph: Graph) -> None:
    """Execute other tasks than the captured ones."""
    graph.replays += 1
    for task in change(graph):
        carry_out(task)


def _keep(task: Task, which: Callable[[torch.Tensor], bool]) -> None:
    """Make an operator read copies of some of its inputs."""
    kept = [each.clone() if isinstance(each, torch.Tensor) and which(each) else each for each in task.given[1]]
    task.given = (task.given[0], kept, *task.given[2:])


def _frozen(correct: Body, graph: Graph, task: Task) -> None:
    """Keep copies of tensors that the graph does not write itself: the capture's inputs."""
    if len(task.given) > 2:
        written = {each.data_ptr() for other in graph.tasks for each in _outputs(other)}
        written |= {each.data_ptr() for each in tensors_in(task.given[1][:1]) if "Inplace" in task.name}
        _keep(task, lambda each: each.data_ptr() not in written)
    correct(graph, task)


def _at_capture(correct: Body, graph: Graph, task: Task) -> None:
    correct(graph, task)
    carry_out(task)


def _over_the_others(correct: Body, graph: Graph) -> None:
    """Write to the results of other graphs too, as if all graphs shared one private pool."""
    correct(graph)
    mine = [each for task in graph.tasks for each in _outputs(task)]
    for other in [each for each in GRAPHS.values() if each is not graph]:
        theirs = [each for task in other.tasks for each in _outputs(task)]
        for target, value in zip(theirs, mine, strict=False):
            if target.shape == value.shape and target.dtype == value.dtype:
                target.copy_(value)


def _same_random_numbers(correct: Body, graph: Graph, task: Task) -> None:
    """Draw from the generator state at capture: seed and offset are tensors that each replay should read."""
    if len(task.given) > 2 and task.name.endswith("Tensor"):
        _keep(task, lambda each: each.dtype is torch.int64 and each.numel() == 1)
    correct(graph, task)


def _without_last_copy(graph: Graph) -> list[Task]:
    places = [place for place, task in enumerate(graph.tasks) if task.name in ("MEMCPY_ASYNC", "aclnnInplaceCopy")]
    return [task for place, task in enumerate(graph.tasks) if not places or place != places[-1]]


def _without(*names: str) -> Callable[[Body], Body]:
    return instead(_replayed, lambda graph: [task for task in graph.tasks if task.name not in names])


def _by_stream(graph: Graph) -> list[Task]:
    """Put tasks captured from other streams first, regardless of dependencies."""
    return sorted(graph.tasks, key=lambda task: bool(graph.tasks) and task.stream == graph.tasks[0].stream)


#: Name -> the wrong CANN operators, and how each is wrong.
FAULTS: dict[str, Fault] = {
    # wrong formulas
    "gelu-by-sigmoid": {"aclnnGelu": instead(lambda _, x: x * torch.sigmoid(1.702 * x))},
    "exp-by-polynomial": {"aclnnExp": instead(_exp)},
    "mm-rounds-to-hf32": {"aclnnMm": _given(_in_eleven_bits)},
    "bmm-in-half": {"aclnnBatchMatMul": _given(_in_half)},
    "cast-cuts-bits": {"aclnnInplaceCopy": instead(_cast)},
    "round-halves-away": {"aclnnRound": instead(_half_away)},
    # sums with too few bits
    "sum-in-half": {"aclnnReduceSum": instead(_sum_in_sixteens)},
    "matmul-sums-in-half": {"aclnnMatmul": instead(_product_in_half), "aclnnMm": instead(_product_in_half)},
    # NaN, infinities, zeros, denormals
    "maximum-drops-nan": {"aclnnMaximum": _given(_without_nan)},
    "amax-drops-nan": {"aclnnAmax": _given(_without_nan)},
    "clamp-drops-nan": {"aclnnClamp": instead(_outputs_of, _without_nan)},
    "sort-drops-nan": {"aclnnSort": _given(_without_nan)},
    "exp2-saturates": {"aclnnExp2": instead(_outputs_of, torch.nan_to_num)},
    "reciprocal-saturates": {"aclnnReciprocal": instead(_outputs_of, torch.nan_to_num)},
    "mul-flushes-denormals": {"aclnnMul": instead(_outputs_of, _flushed)},
    "neg-loses-zero-sign": {"aclnnNeg": instead(_outputs_of, lambda x: x + 0)},
    # layout
    "tanh-ignores-strides": {"aclnnTanh": _given(_densely)},
    "sigmoid-ignores-offset": {"aclnnSigmoid": _given(_from_line_start)},
    "sub-ignores-stride-0": {"aclnnSub": _given(lambda x: _densely(x) if 0 in x.stride() and x.dim() > 3 else x)},
    "mm-ignores-transposition": {"aclnnMm": _given(_densely, 1)},  # like a kernel that only knows the sizes
    "erf-leaves-tail": {"aclnnErf": instead(_outputs_of, _last_row_left)},
    # arguments
    "leaky_relu-ignores-slope": {"aclnnLeakyRelu": _argument(1, 0.01)},
    "sort-ignores-descending": {"aclnnSort": _argument(3, False)},
    "div-floor-truncates": {"aclnnDivMod": instead(lambda correct, x, y, mode: correct(x, y, 1 if mode else mode))},
    "var-ignores-correction": {"aclnnVarCorrection": _argument(2, 1)},
    "addcmul-ignores-value": {"aclnnAddcmul": _argument(3, 1)},
    # gradients
    "tanh-gradient-unsquared": {"aclnnTanhBackward": instead(lambda _, grad, y: grad * (1 - y))},
    "silu-gradient-halved": {"aclnnSiluBackward": instead(_outputs_of, lambda x: x / 2)},
    # targets
    "add-forgets-views": {"aclnnInplaceAdd": instead(_only_dense)},
    "mul-in-place-twice": {"aclnnInplaceMul": instead(_twice)},
    # integers
    "cumsum-in-32-bits": {"aclnnCumsum": instead(_outputs_of, _in_32_bits)},
    "eq-in-float32": {"aclnnEqTensor": _given(_through(torch.float32, torch.int64, torch.int32))},
    "bitwise_or-in-32-bits": {"aclnnBitwiseOrTensor": instead(_outputs_of, _in_32_bits)},
    # captured graphs: what a capture records, a replay executes and an update changes
    "graph-reads-old-inputs": {"aclmdlRICaptureBegin": instead(_frozen)},
    "graph-runs-at-capture": {"aclmdlRICaptureBegin": instead(_at_capture)},
    "graph-loses-a-copy": {"aclmdlRIExecuteAsync": instead(_replayed, _without_last_copy)},
    "graph-loses-a-fill": {"aclmdlRIExecuteAsync": _without(*_FILLS)},
    "graph-shares-its-pool": {"aclmdlRIExecuteAsync": instead(_over_the_others)},
    "graph-is-stale-twice": {
        "aclmdlRIExecuteAsync": instead(_replayed, lambda graph: graph.tasks[: -1 if graph.replays > 1 else None])
    },
    "graph-repeats-random-numbers": {"aclmdlRICaptureBegin": instead(_same_random_numbers)},
    "graph-ignores-updates": {"aclmdlRICaptureTaskUpdateEnd": instead(lambda *_: None)},
    "graph-ignores-waits": {"aclmdlRIExecuteAsync": instead(_replayed, _by_stream)},
    "graph-ignores-external-waits": {"aclmdlRIExecuteAsync": _without("EVENT_WAIT", "VALUE_WAIT")},
    "graph-forgets-last-task": {"aclmdlRIExecuteAsync": instead(_replayed, lambda graph: graph.tasks[:-1])},
    "graph-ends-at-1024": {"aclmdlRIExecuteAsync": instead(_replayed, lambda graph: graph.tasks[:1024])},
    "graph-replays-twice": {"aclmdlRIExecuteAsync": instead(_replayed, lambda graph: graph.tasks * 2)},
    "graph-loses-host-calls": {"aclmdlRIExecuteAsync": _without("HOST_FUNC")},
    **{name: {} for name in RUNTIME_FAULTS},
    # serving: pages, masks, lengths, quantized weights, experts
    "attention-reads-first-page": _in_inference(_first_page_again),
    "attention-reads-padding": _in_inference(_up_to_a_page),
    "causal-mask-off-by-one": _in_inference(_one_key_more),
    "mask-ignored-beyond-512": _in_inference(partial(_mask_beyond, torch.zeros_like)),
    "mask-all-beyond-512": _in_inference(partial(_mask_beyond, torch.ones_like)),
    "mask-inverted-beyond-512": _in_inference(partial(_mask_beyond, torch.logical_not)),
    "mask-repeated-beyond-512": _in_inference(partial(_mask_beyond, lambda mask: mask.roll(512, -1))),
    "cache-slot-off-by-one": {"aclnnScatterPaKvCache": _given(lambda slots: (slots - 1).clamp(min=-1), 2)},
    "mrope-takes-neighbours": dict.fromkeys(
        ("aclnnRopeWithSinCosCache", "aclnnRopeWithSinCosCacheV2"),
        instead(lambda correct, *a: correct(*a[:6], not a[6], *a[7:])),
    ),
    "int4-nibbles-swapped": dict.fromkeys(
        ("aclnnWeightQuantBatchMatmulV2", "aclnnWeightQuantBatchMatmulV3"),
        _given(lambda x: (x & 0x0F0F0F0F) << 4 | (x >> 4) & 0x0F0F0F0F if x.dtype is torch.int32 else x, 1),
    ),
    "scale-of-next-group": dict.fromkeys(
        ("aclnnWeightQuantBatchMatmulV2", "aclnnWeightQuantBatchMatmulV3"),
        _given(lambda scale: scale.roll(1, 0) if scale.dim() > 1 else scale, 2),
    ),
    "weights-of-next-expert": dict.fromkeys(
        ("aclnnGroupedMatmulV4", "aclnnGroupedMatmulV5"),
        instead(lambda correct, x, w, *rest: correct(x, [each.roll(1, 0) for each in w], *rest)),
    ),
    "quantize-rounds-half-away": {"aclnnQuantize": _given(lambda x: x + torch.sign(x) * 2.0**-12, 0)},
    "quantize-wraps-around": {"aclnnQuantize": instead(_wrapped)},
    "gating-takes-last-of-equals": dict.fromkeys(
        ("aclnnMoeGatingTopKSoftmax", "aclnnMoeGatingTopKSoftmaxV2"), instead(_last_of_equals)
    ),
    "last-expert-dropped": {"aclnnMoeInitRoutingV3": instead(_last_expert_dropped)},
    "prolog-writes-slot-before": {"aclnnMlaPrologV3WeightNz": _given(lambda slots: (slots - 1).clamp(min=0), 11)},
    "indexer-takes-scale-of-next-key": {"aclnnQuantLightningIndexer": _given(lambda scale: scale.roll(1, 1), 4)},
    # formats of eight and four bits, on an Ascend 950
    "mx-scale-of-next-block": {"aclnnQuantMatmulV5": _given(_of_next_block, 3)},
    "mx-rounds-half-away": {"aclnnDynamicMxQuantV3": _argument(2, "round")},
    "mx-nibbles-swapped": {"aclnnDynamicMxQuantV3": instead(_outputs_of, _nibbles_of_bytes_swapped)},
    "float8-saturates-nan": {"aclnnCast": instead(_largest_for_nan)},
    "logits-in-bfloat16": {"aclnnMm": instead(_outputs_of, _through(torch.bfloat16, torch.float32))},
}
