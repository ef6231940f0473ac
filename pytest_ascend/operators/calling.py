"""Calling an operator, forward and backward, in the same way on the CPU and the device; limits on a call's cost."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_ascend.operators.operator import ALL_OUTPUTS, MOVE, Operator
from pytest_ascend.operators.samples import CHANGES, EXACT, Sample, Variant, leaves, on_leaves
from pytest_ascend.precision.formats import REAL_PARTS
from pytest_ascend.precision.nested import widened
from pytest_ascend.run import inputs
from pytest_ascend.system.dispatching import EagerDispatchMode, is_composed, no_dispatch, with_autograd, without_modes

#: Most elements of a result, and most results: a row split into single elements takes as long as all other calls.
LARGEST_RESULT, _MOST = 1 << 19, 1 << 10
#: Shape inference takes longer than most calls. It is skipped up to this many input elements, if results have at most
#: one element for each pair of these.
_SMALL = 1 << 10
#: Most elements of the inputs if the size of the result depends on their values; torch's tags for such operators.
_UNKNOWN = 1 << 13
_DEPENDS_ON_NUMBERS = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
#: Up to this bound on the elements of results, by all pairs and the numbers among the arguments, the CPU computes the
#: call under supervision: inferring its shapes first takes longer.
_TRIED = 1 << 24
#: Operators whose time grows with the product of the sizes of their first two tensors, and the limit of that product.
_PRODUCTS = (torch.ops.aten.convolution.default, torch.ops.aten._trilinear.default)  # noqa: SLF001
_MULTIPLIED = 1 << 24


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested structure, in order."""
    if isinstance(tree, torch.Tensor):  # as in most results
        return [tree]
    return [leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def on_tensors(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return the structure with ``change`` applied to each tensor."""
    return on_leaves(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def forward(
    operator: Operator, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """Call ``function``, which is the operator or its definition, and return the outputs that are compared."""
    found = tensors(function(*args, **kwargs))
    return found[: len(operator.outputs)] if operator.outputs else found


def differentiated_outputs(operator: Operator, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs that receive an incoming gradient."""
    if operator.grad_outputs != ALL_OUTPUTS:
        outputs = [each for each in outputs if each.is_floating_point() or each.is_complex()][: operator.grad_outputs]
    return [each for each in outputs if each.requires_grad]


def moves_gradients(operator: Operator) -> bool:
    """Return whether gradients only move or add up elements of the incoming gradients, so that NaN stays NaN."""
    return operator.exactness == MOVE and operator.traits.moves_elements


def upstream(
    operator: Operator, sample: Sample, outputs: Sequence[torch.Tensor], dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return the incoming gradients of a backward pass: a CPU tensor for each output that receives one."""
    attached = differentiated_outputs(operator, outputs)
    keyed = [(f"{sample.stream(operator.name)}/up/{position}", each) for position, each in enumerate(attached)]
    if sample.group == EXACT:
        # If gradients of 64 rows are added, float32 represents their sums exactly and half precision does not.
        low, high = (-127, 256) if dtype is torch.float32 else (-1, 2)
        return [inputs.integers(f"{key}/whole", each.shape, low=low, high=high).to(dtype) for key, each in keyed]
    if operator.one_set_of_inputs:
        # Random, and exact in all of these dtypes: the same in the cases of each.
        held_by = (REAL_PARTS.get(dtype, dtype),) if sample.all_bits else (torch.bfloat16, torch.float16)
        found = []
        for key, each in keyed:
            normal = _drawn(key, (*each.shape, 2) if each.is_complex() else each.shape, torch.float32)
            for held in held_by:
                normal = normal.to(held)
            normal = normal.double()
            found.append((torch.view_as_complex(normal) if each.is_complex() else normal).to(each.dtype))
        return found
    changes = [change for each in sample.values() if isinstance(each, Variant) for change in each.changes]
    special = [change for change in changes if change.startswith("special")]
    sampled = [(key, _drawn(key, each.shape, dtype)) for key, each in keyed]
    if special and moves_gradients(operator):
        return [CHANGES[special[0]](each, key) if each.numel() else each for key, each in sampled]
    return [each for _, each in sampled]


@functools.lru_cache(maxsize=4)
def _drawn(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a random tensor, to be left unmodified: the device, the CPU and float64 use it in turn."""
    return inputs.normal(key, shape, dtype=dtype)


def with_grad(sample: Sample, args: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """Set requires_grad on those tensors of ``args`` (made from the sample) that have gradients, and return them."""
    wanted = [each.wants_grad(dtype) for each in sample.values()]
    return [each.requires_grad_() for each, wants in zip(tensors(args), wanted, strict=True) if wants]


def back(
    operator: Operator, outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], grad_outputs: Any
) -> list[torch.Tensor | None]:
    """Differentiate outputs: return the gradient of each leaf, None if the result does not depend on it.

    ``grad_outputs`` takes the outputs and returns the gradients of those that receive one.
    """
    attached = differentiated_outputs(operator, outputs)
    if not attached:
        return [None for _ in leaves]
    incoming = [up.to(out.dtype) for up, out in zip(grad_outputs(outputs), attached, strict=True)]
    return list(torch.autograd.grad(attached, leaves, incoming, allow_unused=True))


def magnitude(tensor: torch.Tensor) -> torch.Tensor:
    """Return the magnitudes of a floating-point tensor in float64; other tensors unchanged."""
    return widened(tensor).abs() if tensor.is_floating_point() else tensor


def directions(key: str, like: torch.Tensor) -> torch.Tensor:
    """Return 1 or -1 for each element, at random."""
    return inputs.signs(key, max(like.numel(), 1))[: like.numel()].reshape(like.shape)


#: Elements before the first one of a strided tensor, and its step.
OFFSET, STEP = 3, 2

Layout: TypeAlias = Callable[[torch.Tensor, torch.device], torch.Tensor]


def contiguous(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place the tensor contiguously; an expanded tensor stays expanded, with stride 0."""
    if tensor.ndim > 1 and tensor.stride(0) == 0:
        return tensor[:1].to(device).expand(tensor.shape)
    return tensor.to(device).contiguous()


def preserve_layout(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place the tensor with its own strides, gaps included."""
    return map_storage(lambda memory: memory.to(device), tensor)


def map_storage(change: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with ``change`` applied to its memory: its strides, zeros among them, and its gaps are kept."""
    if tensor.is_contiguous() or not tensor.numel():
        return change(tensor)
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return change(tensor.as_strided((span,), (1,))).as_strided(tensor.shape, tensor.stride())


def transposed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place the tensor with its first and last dimension swapped in memory."""
    return tensor.transpose(0, -1).contiguous().to(device).transpose(0, -1) if tensor.ndim > 1 else tensor.to(device)


def stepped(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place the tensor as every other element of a larger one, after an offset."""
    if not tensor.ndim:
        return shifted(tensor, device)
    return steps(surrounded(tensor).to(device))


def surrounded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a larger tensor that holds ``tensor`` in steps along its last dimension, and poison elsewhere."""
    whole = poisoned((*tensor.shape[:-1], OFFSET + STEP * tensor.shape[-1]), tensor.dtype)
    steps(whole).copy_(tensor)
    return whole


def out_targets(like: torch.Tensor, device: torch.device) -> dict[str, torch.Tensor]:
    """Return tensors to pass as ``out``, filled with poison: of the right shape, with gaps, and empty to be resized."""
    with no_dispatch():
        ready = poisoned(tuple(like.shape), like.dtype)
        targets = {"ready": ready.to(device), "to be resized": torch.empty(0, dtype=like.dtype, device=device)}
        return targets | ({"stepped": surrounded(ready).to(device)} if like.ndim else {})


def steps(whole: torch.Tensor) -> torch.Tensor:
    """Return the elements within a surrounding tensor."""
    return whole[..., OFFSET::STEP]


def shifted(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place the tensor without gaps, but not at the start of its storage."""
    whole = poisoned((OFFSET + tensor.numel(),), tensor.dtype)
    whole[OFFSET:] = tensor.reshape(-1)
    return whole.to(device)[OFFSET:].view(tensor.shape)


def channels_last(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Place an image channels-last: by permuting, since torch_npu refuses the memory format."""
    if tensor.ndim != 4:
        return tensor.to(device)
    return tensor.permute(0, 2, 3, 1).contiguous().to(device).permute(0, 3, 1, 2)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor filled with a value that no result has: NaN, or 77 for integers, which have no NaN."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else 77, dtype=dtype)


#: Layouts, by their names in verdicts.
LAYOUTS: Mapping[str, Layout] = {
    "transposed": transposed,
    "stepped": stepped,
    "shifted": shifted,
    "channels-last": channels_last,
}


def onto(device: torch.device, layout: Layout = contiguous) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that places a tensor on a device, in a layout."""
    return lambda tensor: layout(tensor, device)


def changes(layout: Layout, tensor: torch.Tensor) -> bool:
    """Return whether a layout changes the placement of this tensor."""
    if layout is channels_last:
        return tensor.ndim == 4 and tensor.numel() > 0
    return tensor.numel() > 0 and (tensor.ndim > 1 if layout is transposed else tensor.ndim > 0)


class TooMuchError(Exception):
    """A call that takes too much memory or time."""


class Bounded(EagerDispatchMode):
    """Stops a call that has large results or intermediate results, or takes long.

    ``knows_sizes`` is false if operators whose sizes depend on values are to be refused.
    """

    def __init__(self, *, knows_sizes: bool = True) -> None:
        super().__init__()
        self._knows_sizes = knows_sizes

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator. Raises TooMuchError."""
        if is_composed(func):  # torch_npu has kernels for some of these, which hide their gradients
            with self, with_autograd():
                return func.decompose(*args, **kwargs)
        if func in _PRODUCTS and args[0].numel() * args[1].numel() > _MULTIPLIED:
            raise TooMuchError
        if not self._knows_sizes and any(tag in _DEPENDS_ON_NUMBERS for tag in func.tags):
            raise TooMuchError
        found = func(*args, **kwargs)
        has_many = isinstance(found, (list, tuple)) and len(found) > _MOST
        if has_many or sum(each.numel() for each in tensors(found)) > LARGEST_RESULT:
            raise TooMuchError
        return found


@contextlib.contextmanager
def bounded(operator: Operator, given: Any) -> Iterator[None]:
    """Let the CPU compute a call within this context, if its results and intermediate results are small enough.

    Raises TooMuchError, at once or during the call, if they are not, as with all pairs of a long row.
    """
    shapes = [tuple(each.shape) for each in tensors(given)]
    is_small = _is_small(operator, shapes)
    if is_small is None and not operator.grows and _most_results(operator, given) <= _TRIED:
        with without_modes(), Bounded(knows_sizes=not operator.one_set_of_inputs or _elements(shapes) <= _UNKNOWN):
            yield
        return
    if not is_affordable(operator, given):
        raise TooMuchError
    with no_dispatch():
        yield


def is_affordable(operator: Operator, given: Any) -> bool:
    """Return whether all results and intermediate results of a call are small enough, without computing them."""
    shapes = [tuple(each.shape) for each in tensors(given)]
    is_small = _is_small(operator, shapes)
    if is_small is not None:
        return is_small
    try:  # by shape inference
        with without_modes(), Bounded():
            forward(operator, operator.function, *on_tensors(lambda each: each.to("meta"), given))
    except TooMuchError:
        return False
    except Exception:  # noqa: BLE001 - data-dependent sizes are not known beforehand
        return not operator.one_set_of_inputs or _elements(shapes) <= _UNKNOWN
    return True


def _is_small(operator: Operator, shapes: Sequence[tuple[int, ...]]) -> bool | None:
    """Return whether all results are small enough, judged by the operator's family; None if that is not enough."""
    elements = _elements(shapes)
    # For a list, there is one result for each tensor.
    if operator.traits.takes_lists or (operator.traits.pairs_tensors and elements <= _SMALL):
        return elements <= LARGEST_RESULT
    if operator.traits.never_grows or _is_pointwise(operator.name):
        return most_elements(shapes) <= LARGEST_RESULT
    return None


def _elements(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def _most_results(operator: Operator, given: Any) -> float:
    """Return an upper bound of a result's elements: all pairs of elements, times the numbers among the arguments."""
    *others, largest = sorted(max(each.numel(), 1) for each in tensors(given)) or [1]
    if operator.traits.pairs_tensors:
        partner = others[-1] if others else largest if operator.traits.pairs_with_itself else 1
    else:
        partner = max(math.prod(others), largest)
    numbers = (abs(leaf) for leaf in leaves(given) if isinstance(leaf, (int, float)) and math.isfinite(leaf))
    return largest * partner * math.prod(max(each, 1) for each in numbers)


def most_elements(shapes: Sequence[tuple[int, ...]]) -> int:
    """Return the elements of the largest shape, or of all broadcast together: a gradient's sum has no more terms."""
    try:  # with numpy: torch would import its compiler for this
        together = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:  # a weight per channel, or an illegal call
        together = 0
    return max((together, *map(math.prod, shapes)))


@functools.cache
def _is_pointwise(name: str) -> bool:
    """Return whether torch tags an operator as pointwise: its result has the broadcast shape of its inputs."""
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, each).tags for each in packet.overloads())
