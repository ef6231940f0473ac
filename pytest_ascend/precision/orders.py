"""The CPU's operators with other orders of summation, for more correct results in the same dtype.

The inputs of a sum are reversed or shuffled, and its result is restored; functions such as exp are rounded faithfully,
not to nearest. A correct device may do both. Several such results show the size of errors better than a single one,
whose errors may be small by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from pytest_ascend.precision.choices import deciding
from pytest_ascend.precision.formats import INTEGERS
from pytest_ascend.system.dispatching import HALF, EagerDispatchMode

#: Another way to compute an operator; takes the operator, its positional and keyword arguments.
Reordering: TypeAlias = Callable[..., Any]
#: The number of the current order: 0 reverses the terms, others shuffle them.
_order: ContextVar[int] = ContextVar("order", default=0)


@lru_cache(maxsize=64)
def _places(size: int, order: int) -> tuple[Tensor, Tensor]:
    """Return a permutation of ``size`` elements and its inverse, the same for every tensor of this size."""
    taken = torch.randperm(size, generator=torch.Generator().manual_seed(order), device="cpu")
    return taken, taken.argsort()


def _flipped(value: Any, dims: Sequence[int] | None = None, *, back: bool = False) -> Any:
    """Reorder a tensor along some dimensions (or all) by the current order, or restore it (``back``)."""
    order = _order.get()
    if not isinstance(value, Tensor) or not value.dim() or (dims is not None and not dims):
        return value
    dims = range(value.dim()) if dims is None else dims
    if not order:
        return value.flip(list(dims))
    for dim in dims:
        value = value.index_select(dim, _places(value.shape[dim], order)[back])
    return value


_back = partial(_flipped, back=True)


def _product(left: int, right: int, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Reverse the contracted dimension of two factors; ``left`` and ``right`` are their argument indices."""
    given = list(args)
    given[left] = _flipped(args[left], [-1])
    given[right] = _flipped(args[right], [-1] if args[right].dim() == 1 else [-2])
    return func(*given, **kwargs)


def _reduction(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Reverse the dimensions that are reduced: those given, or all."""
    place = 1 if "norm" in func.overloadpacket.__name__ else 0  # for norms, after the order
    dims = args[place] if len(args) > place else kwargs.get("dim")
    return func(_flipped(x, [dims] if isinstance(dims, int) else dims or None), *args, **kwargs)


def _variance(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Sum the squared deviations from the mean in float32; the CPU does so in float64."""
    if func._overloadname != "correction" or x.dtype is torch.float64:  # noqa: SLF001 - no public name exists
        return _reduction(func, x, *args, **kwargs)
    dims, wide = (args[0] if args else kwargs.get("dim")) or list(range(x.dim())), x.float()
    squares = _flipped(wide - wide.mean(dims, keepdim=True), dims).square()
    made = squares.mean(dims, keepdim=kwargs.get("keepdim", False))
    count = wide.numel() // max(made.numel(), 1)
    correction = kwargs.get("correction")
    left = count - (1 if correction is None else correction)
    if left <= 0:
        return func(x, *args, **kwargs)
    made = made * (count / left)
    return (made.sqrt() if func.overloadpacket.__name__ == "std" else made).to(x.dtype)


def _cumulative(func: Any, x: Tensor, dim: int, **kwargs: Any) -> Any:
    """Add or multiply cumulatively in float32, one by one or by doubling steps; the CPU does so in float64."""
    if x.dtype is torch.float64 or not x.is_floating_point() or kwargs.get("dtype") not in (None, x.dtype):
        return func(x, dim, **kwargs)
    join = np.multiply if func.overloadpacket.__name__ == "cumprod" else np.add
    values, step = np.moveaxis(np.atleast_1d(x.detach().float().numpy()), dim, 0), 1
    if not _order.get() % 2:
        values, step = join.accumulate(values, 0, dtype=np.float32), len(values)
    while step < len(values):
        values = np.concatenate([values[:step], join(values[step:], values[:-step])])
        step *= 2
    return torch.from_numpy(np.moveaxis(values, 0, dim).copy()).reshape(x.shape).to(x.dtype)


def _softmax(func: Any, *args: Any) -> Any:
    """Reverse the leading tensor arguments (the input, or a gradient and the output) along the following dimension."""
    tensors = [each for each in args if isinstance(each, Tensor)]
    dim, *rest = args[len(tensors) :]
    return _back(func(*(_flipped(each, [dim]) for each in tensors), dim, *rest), [dim])


def _layer_norm(func: Any, x: Tensor, shape: Sequence[int], weight: Any, *rest: Any) -> Any:
    dims = range(-len(shape), 0)
    rest = tuple(_flipped(each, dims) for each in rest)
    output, *others = func(_flipped(x, dims), shape, _flipped(weight, dims), *rest)
    return (_back(output, dims), *others)


#: Norms whose statistics the CPU stores in the dtype of the input, and other devices in float32.
IN_FLOAT32 = frozenset(f"native_{each}_norm{back}" for each in ("layer", "group") for back in ("", "_backward"))


def _statistics_in_float32(func: Any, *args: Any) -> Any:
    """Compute a norm in float32: in float16, the reciprocal root of a row of equal numbers is infinite."""
    made = func(*(each.float() if _is_short(each) else each for each in args))
    kept = 1 if "backward" not in func.overloadpacket.__name__ else len(made)
    return (*(each if each is None else each.to(args[0].dtype) for each in made[:kept]), *made[kept:])


def _normalization(inputs: int, func: Any, *args: Any, batch: bool) -> Any:
    """Reverse positions, and with ``batch`` the batch, of the first ``inputs`` arguments; restore the first result."""
    dims = [*([0] if batch else []), *range(2, args[0].dim())]
    turned = [_flipped(each, dims) for each in args[:inputs]]
    turned = turned if batch else [each.contiguous() for each in turned]  # required by group norm kernels
    made, *others = func(*turned, *args[inputs:])
    return (_back(made, dims), *others)


def _convolution(func: Any, x: Tensor, weight: Tensor, *settings: Any) -> Any:
    is_transposed, groups = settings[4], settings[6]
    if groups != 1:
        bias, *others = settings
        return _by_taps(lambda part, first: func(x, part, bias if first else None, *others), weight)
    if x.dim() < 3:
        return func(x, weight, *settings)
    return func(_flipped(x, [1]), _flipped(weight, [0 if is_transposed else 1]), *settings)


def _by_taps(convolve: Callable[[Tensor, bool], Tensor], weight: Tensor) -> Tensor:
    """Add two parts of a grouped convolution, with weights split at random: the CPU has one order for its taps."""
    if weight.dtype in HALF:  # the parts would be rounded
        return convolve(weight, True)
    chosen = _by_chance(weight)
    made = convolve(weight.where(chosen, 0), True) + convolve(weight.where(~chosen, 0), False)
    return made if made.isfinite().all() else convolve(weight, True)  # zero times infinity is NaN


def _convolution_backward(func: Any, grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
    """Reverse the batch and, without groups, the channels of the output.

    Gradients of weights and biases are also sums over positions of the output: orders other than 0 add two parts, with
    positions split at random, and order 0 reverses the terms of a bias.
    """
    *settings, wanted = rest
    parts: list[Any] = []
    if _order.get():
        chosen = _by_chance(grad[:, :1])
        only = [False, *wanted[1:]]
        parts = [func(grad.where(each, 0), x, weight, *settings, only)[1:] for each in (chosen, ~chosen)]
        wanted = [wanted[0], False, False]
    made = 1 if settings[4] else 0
    if settings[6] != 1:
        turned, only = (_flipped(grad, [0]), _flipped(x, [0])), [True, False, False]
        grad_input, *others = func(*turned, weight, *settings, wanted)
        if wanted[0]:
            grad_input = _by_taps(lambda part, _: func(*turned, part, *settings, only)[0], weight)
    else:
        turned = func(_flipped(grad, [0, 1]), _flipped(x, [0]), _flipped(weight, [made]), *settings, wanted)
        grad_input, *others = turned[0], _back(turned[1], [made]), _back(turned[2], [0])
    if parts:
        others = [None if one is None else one + other for one, other in zip(*parts, strict=True)]
    elif wanted[2]:
        summed = [0, *range(2, grad.dim())]
        others[1] = _flipped(grad, summed).sum(summed)
    return (_back(grad_input, [0]), *others)


def _attention(func: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
    """Reverse the keys; causal attention becomes an explicit mask."""
    dropout, is_causal = (*rest, 0.0, False)[:2]
    mask = _mask(q, k, is_causal, kwargs.pop("attn_mask", None))
    return func(q, _flipped(k, [-2]), _flipped(v, [-2]), dropout, False, attn_mask=_flipped(mask, [-1]), **kwargs)


def _attention_backward(func: Any, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
    out, logsumexp, dropout, is_causal = rest
    mask = _mask(q, k, is_causal, kwargs.pop("attn_mask", None))
    turned = (_flipped(each, [-2]) for each in (grad, q, k, v, out))
    made = func(*turned, _flipped(logsumexp, [-1]), dropout, False, attn_mask=_flipped(mask, [-2, -1]), **kwargs)
    return tuple(_back(each, [-2]) for each in made)


def _mask(q: Tensor, k: Tensor, is_causal: bool, mask: Any) -> Any:
    if not is_causal:
        return mask
    sees = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return torch.zeros(sees.shape, dtype=q.dtype).masked_fill(~sees, -torch.inf)


def _faithful(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute in float64, and round some results to the farther of their two neighbours.

    This is a faithful rounding, the best that most libraries promise for such functions (Muller et al., *Handbook of
    Floating-Point Arithmetic*, chapter 10).
    """
    usual = func(*args, **kwargs)
    if kwargs.get("out") is not None or not any(map(_is_short, tree_flatten((args, kwargs))[0])):
        return usual
    exact = func(*(each.double() if _is_short(each) else each for each in args), **kwargs)
    return tree_map(_rounded, usual, exact)


def _is_short(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64


def _rounded(usual: Any, exact: Any) -> Any:
    """Round to a result's usual dtype, some to the farther neighbour, by last bits or, in late orders, at random."""
    # bfloat16 is computed in float32 everywhere and rounded once; but models differ in where that happens, so other
    # orders round some values to the other side.
    order = _order.get()
    if not _is_short(usual) or usual.element_size() == 1 or (usual.dtype is torch.bfloat16 and not order):
        return usual
    nearest = exact.to(usual.dtype)
    bits = nearest.view(INTEGERS[usual.element_size()])
    outwards = (exact.abs() - nearest.double().abs()).sign().to(bits.dtype)
    chosen = _by_chance(bits) if order > EARLY else bits & 3 == order % 4 if order else bits & 1 == 1
    if order > EARLY and not order % 2 and usual.dtype is torch.float16:
        # A chip that computes in float16 itself may be wrong by a unit either way, and 1 - sigmoid multiplies that.
        outwards = -outwards
    moves = chosen & nearest.isfinite() & (nearest != 0)
    return torch.where(moves, bits + outwards, bits).view(nearest.dtype)


def _by_chance(like: Tensor) -> Tensor:
    """Return True for about half of the elements, different ones in each order."""
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(_order.get()), device="cpu") < 0.5


#: Orders up to this one are used first; later ones only before a narrow rejection.
EARLY = 6
#: Four orders cover all elements of results saved for a gradient.
FAITHFUL_UP_TO = 4


def _saved(compute: Reordering, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Round faithfully what is saved for the gradient: always in float16, where one unit more is an error of its own.

    Other dtypes are rounded so in four orders, which together cover all elements, and in every second late one, since
    exponentials and roots need not be rounded to nearest either. The other late ones change the order of summation.
    """
    order = _order.get()
    is_late = order > EARLY and order % 2 == 1
    is_faithful = x.dtype is torch.float16 or 1 <= order <= FAITHFUL_UP_TO or is_late
    return (_faithful if is_faithful else compute)(func, x, *args, **kwargs)


def _normalized(compute: Reordering, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """In later orders, change the reciprocal root saved for the gradient by two units in the last place.

    CUDA documents this error for its ``rsqrtf`` (C++ Programming Guide, mathematical functions); CANN documents none.
    """
    *others, over = _saved(compute, func, x, *args, **kwargs)
    if _order.get() > FAITHFUL_UP_TO and over.dtype is torch.float32:
        over = _units_off(over)
    return (*others, over)


def _batch_norm_backward(func: Any, *args: Any) -> Any:
    """In later orders, also change the reciprocal root in evaluation mode, where the gradient computes it itself."""
    *given, mean, var, saved_mean, saved_root, is_training, eps, wanted = args
    if _order.get() > FAITHFUL_UP_TO and not is_training and var.dtype is torch.float32:
        var = _units_off(var, 4.0)
    rest = (mean, var, saved_mean, saved_root, is_training, eps, wanted)
    return _normalization(2, func, *given, *rest, batch=True)


def _power(func: Any, base: Any, exponent: Any) -> Tensor:
    """Round faithfully; in late orders, change powers with varying exponents by two units in the last place.

    CUDA documents 4 for its ``powf``. A few such powers are the frequencies of an entire table of positions.
    """
    made: Tensor = _faithful(func, base, exponent)
    is_off = _order.get() > EARLY and isinstance(exponent, Tensor) and made.dtype is torch.float32
    return torch.where(exponent == 0, made, _units_off(made)) if is_off else made


def _off_late(units: float, compute: Reordering, func: Any, *args: Any, **kwargs: Any) -> Any:
    """In late orders, change float32 results by this many units in the last place."""
    made = compute(func, *args, **kwargs)
    return _units_off(made, units) if _order.get() > EARLY and made.dtype is torch.float32 else made


def _units_off(value: Tensor, units: float = 2.0) -> Tensor:
    share = units * 2.0**-23
    return value * torch.where(_by_chance(value), 1 + share, 1 - share)


def _distances(_: Any, left: Tensor, right: Tensor) -> Tensor:
    """Compute distances from differences, as an NPU does; for many rows, the CPU computes them from a product."""
    wide = torch.float64 if left.dtype is torch.float64 else torch.float32
    made = torch.cdist(left.to(wide), right.to(wide), compute_mode="donot_use_mm_for_euclid_dist")
    return made.to(left.dtype)


#: Most points that one product transforms. torch_npu has no Fourier kernel: it computes sines and cosines, and calls
#: aclnnMatmul. Its errors are up to 2.5 times the CPU's, which uses another algorithm.
POINTS = 128


def _points(x: Tensor, way: float) -> Tensor:
    """Transform the last dimension by products with sines and cosines of float32 angles, as torch_npu does.

    For more than :data:`POINTS` points, transform each of several parts first, then across the parts.
    """
    n = x.shape[-1]
    first = next(each for each in range(min(n, POINTS), 0, -1) if not n % each) if n > POINTS else n
    if first == 1:
        raise ValueError("a large prime")  # then computed as usual
    if first < n:
        parts = _points(x.reshape(*x.shape[:-1], first, -1).transpose(-1, -2), way).transpose(-1, -2)
        return _points(parts * _turns(first, n // first, n, way), way).transpose(-1, -2).flatten(-2)
    made: Tensor = _flipped(x, [-1]) @ _flipped(_turns(n, n, n, way), [0])
    return made


def _turns(rows: int, columns: int, n: int, way: float) -> Tensor:
    """Return the powers of a root of unity whose exponents are the products of row and column indices."""
    exponents = torch.outer(torch.arange(rows, device="cpu"), torch.arange(columns, device="cpu")) % n
    angles = exponents.float() * (way * 2 * math.pi / n)
    return torch.complex(angles.cos(), angles.sin())


def _fourier(func: Any, x: Tensor, dims: Sequence[int], scale: int, last: Any) -> Any:
    """Compute a Fourier transform by dimensions; ``last`` is its direction, a size, or whether it is one-sided."""
    name = func.overloadpacket.__name__
    way = -1.0 if name == "_fft_r2c" or (last is True and name == "_fft_c2c") else 1.0
    if x.dtype not in (torch.float32, torch.complex64):
        return func(x, dims, scale, last)
    made = x.to(torch.complex64)
    count = math.prod(x.shape[dim] for dim in dims)
    for dim in dims[:-1] if name == "_fft_c2r" else dims:
        made = _points(made.movedim(dim, -1), way).movedim(-1, dim)
    if name == "_fft_c2r":  # the other half is conjugate; imaginary parts of the first and the middle are ignored
        made, count = made.movedim(dims[-1], -1), count // x.shape[dims[-1]] * last
        rest = made[..., 1 : (last + 1) // 2].flip(-1).conj()
        made = torch.cat((made[..., : last // 2 + 1], rest), -1)
        made[..., :: last // 2 if last % 2 == 0 else last].imag.zero_()
        made = _points(made, way).real.movedim(-1, dims[-1])
    elif name == "_fft_r2c" and last:
        made = made.narrow(dims[-1], 0, x.shape[dims[-1]] // 2 + 1)
    return made * (1.0, count**-0.5, 1.0 / count)[scale]


def _weight_norm(_: Any, v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Compute with simple operators, as torch does on every device except the CPU and CUDA."""
    summed = [each for each in range(v.dim()) if each != dim]
    norms = torch.norm_except_dim(_flipped(v, summed), 2, dim)
    return v * (g / norms), norms


def _weight_norm_backward(_: Any, grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of these operators, rounded after each."""
    norms, share = norms.to(v.dtype), g / norms.to(v.dtype)
    summed = [each for each in range(v.dim()) if each != dim]
    of_share = _flipped(grad * v, summed).sum(summed, keepdim=True)
    of_norms = -of_share * (share / norms)
    return grad * share + v * (of_norms / norms), of_share / norms


#: Functions that reference runs need not round to nearest.
FAITHFUL = (
    "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
    "acos", "atan", "erf", "erfc", "sigmoid", "gelu", "gelu_backward", "silu", "silu_backward",
    "softplus", "softplus_backward", "mish", "elu", "elu_backward", "tanh_backward", "sigmoid_backward",
)  # fmt: skip

#: Operators that decompose, invert or solve with the matrix given as their first argument.
MATRICES = (
    "linalg_eig", "_linalg_eigh", "_linalg_eigvals", "linalg_eigvals", "_linalg_svd", "linalg_qr", "linalg_lu",
    "linalg_lu_factor_ex", "linalg_inv_ex", "_linalg_solve_ex", "linalg_cholesky_ex",
)  # fmt: skip

#: How close to a kink, as a share of the RMS of all inputs, a correct device may be on the other side: some tens of
#: earlier float32 roundings, or one of a shorter format. In ResNet50 they amount to up to 4e-6.
NEAR = 64 * 2.0**-23


def _near(x: Tensor) -> Tensor:
    return max(NEAR, torch.finfo(x.dtype).eps) * x.float().square().mean().sqrt()


def _across(place: int, kinks: Sequence[float] | slice, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Move values near a kink to its other side: this decides whether a gradient passes and hardly changes the value.

    ``place`` is the input's position; kinks are given, or are among the arguments.
    """
    given, x = list(args), args[place]
    if _order.get() or not x.numel() or x.dtype is torch.float64 or not x.is_floating_point():
        return func(*args, **kwargs)
    for kink in args[kinks] if isinstance(kinks, slice) else kinks:
        x = torch.where((x - kink).abs() <= _near(x), (2 * kink - x).to(x.dtype), x)
    given[place] = x
    return func(*given, **kwargs)


def _extreme(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Choose the index at random among those of values close to the largest (or smallest)."""
    found = func(x, *args, **kwargs)
    if isinstance(found, Tensor) or x.dtype is torch.float64 or not x.is_floating_point() or not x.numel():
        return found
    chance = torch.Generator().manual_seed(_order.get())
    noise = torch.rand(x.shape, generator=chance, dtype=torch.float32, device="cpu").to(x.dtype)
    return found[0], func(x + noise * _near(x), *args, **kwargs)[1]


def _among_equals(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Take equal elements in another order, which PyTorch leaves open except for a stable sort."""
    places = [each.name for each in func._schema.arguments]  # noqa: SLF001 - no public name exists
    if not x.dim() or kwargs.get("stable") or "dim" not in places:
        return func(x, *args, **kwargs)
    place = places.index("dim") - 1
    dim = kwargs["dim"] if "dim" in kwargs else args[place] if place < len(args) else -1
    values, indices = func(_flipped(x, [dim]), *args, **kwargs)
    taken = _flipped(torch.arange(x.shape[dim]), [0])
    return values, taken[indices]


def _nearby(func: Any, a: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Decompose a matrix whose elements are changed by up to a rounding of the largest one.

    Algorithms of LAPACK and other libraries give the exact result for such a matrix (LAPACK Users' Guide, chapter 4).
    """
    if not _order.get() or not a.numel() or not _is_short(a):
        return func(a, *args, **kwargs)
    chance = torch.Generator().manual_seed(_order.get())
    off = torch.rand(a.shape, generator=chance, dtype=a.dtype, device="cpu") * 2 - 1
    largest = a.abs().amax((-2, -1), keepdim=True)
    return func(a + off * largest * torch.finfo(a.dtype).eps / 2, *args, **kwargs)


def _is_in_backward() -> bool:
    return torch._C._current_graph_task_id() >= 0  # noqa: SLF001 - no public name exists


def _decision(func: Any, x: Tensor, *others: Any, **kwargs: Any) -> Any:
    """In a backward pass, reverse decisions whose deciding difference or sign is close to zero, but not zero.

    The gradients of abs, clamp, maximum and amax are affected.
    """
    found = func(x, *others, **kwargs)
    if _order.get() or not _is_short(x) or not x.numel() or not _is_in_backward():
        return found
    number = x - others[0] if others else x
    size = torch.maximum(_near(x), _near(others[0])) if others and isinstance(others[0], Tensor) else _near(x)
    near = (number != 0) & (number.abs() <= size)
    return torch.where(near, ~found if found.dtype is torch.bool else -found, found)


#: Operators with a kink, by the operator that computes their gradient.
KINKED: Mapping[str, Reordering] = {
    "relu": partial(_across, 0, (0.0,)),
    "leaky_relu_backward": partial(_across, 1, (0.0,)),
    "_prelu_kernel_backward": partial(_across, 1, (0.0,)),
    "hardtanh_backward": partial(_across, 1, slice(2, 4)),
    "hardswish_backward": partial(_across, 1, (-3.0, 3.0)),
    "hardsigmoid_backward": partial(_across, 1, (-3.0, 3.0)),
    **dict.fromkeys(("max", "min", "max_pool2d_with_indices", "max_pool3d_with_indices"), _extreme),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "sgn"), _decision),
}

REORDERINGS: Mapping[str, Reordering] = {
    **KINKED,
    **dict.fromkeys(("sort", "topk", "kthvalue", "median", "nanmedian", "mode"), _among_equals),
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), partial(_product, 0, 1)),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), partial(_product, 1, 2)),
    **dict.fromkeys(("sum", "mean", "var_mean", "logsumexp", "prod", "norm", "linalg_vector_norm"), _reduction),
    **dict.fromkeys(("var", "std"), _variance),
    **dict.fromkeys(("cumsum", "cumprod"), _cumulative),
    **dict.fromkeys(("_softmax", "_log_softmax"), partial(_saved, _softmax)),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax),
    "native_layer_norm": partial(_normalized, _layer_norm),
    # The shape of a row is not a tensor, so it stays.
    "native_layer_norm_backward": lambda func, *args: tuple(map(_back, func(*map(_flipped, args)))),
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit"),
        partial(_normalized, partial(_normalization, 1, batch=True)),
    ),
    "native_batch_norm_backward": _batch_norm_backward,
    "native_group_norm": partial(_normalized, partial(_normalization, 1, batch=False)),
    "native_group_norm_backward": partial(_normalization, 2, batch=False),
    "_weight_norm_interface": _weight_norm,
    "_weight_norm_interface_backward": _weight_norm_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "embedding_dense_backward": lambda func, grad, i, *rest: func(_flipped(grad, range(i.dim())), _flipped(i), *rest),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    **dict.fromkeys(FAITHFUL, _faithful),
    **dict.fromkeys(MATRICES, _nearby),
    **dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), _fourier),
    "_euclidean_dist": _distances,
    "pow": _power,
    # As for norms that compute it, and as CUDA documents for its ``lgammaf``.
    "rsqrt": partial(_off_late, 2.0, _faithful),
    "lgamma": partial(_off_late, 6.0, lambda func, *args, **kwargs: func(*args, **kwargs)),
}


class other_order(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which operators on the CPU sum in another order: reversed, or shuffled by ``number``.

    ``decided_by`` collects the numbers by which operators such as floor decided, in the reversed order.
    """

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number
        self.decided_by: list[Tensor] = []

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator; unchanged if its reordering does not apply."""
        _order.set(self.number)
        name = func.overloadpacket.__name__
        if not self.number and (number := deciding(func, args, kwargs)) is not None:
            self.decided_by.append(number.detach().clone())
        if name == "relu_":
            return args[0].copy_(KINKED["relu"](torch.ops.aten.relu.default, *args))
        way = REORDERINGS.get(name)
        if way is None or func._schema.is_mutable:  # noqa: SLF001 - no public name exists
            return func(*args, **kwargs)
        has_short = any(isinstance(each, Tensor) and each.dtype in HALF for each in args)
        # A float32 sum may lose more by cancellation than a faithful rounding to 16 bits; so may a 16-bit norm in the
        # gradients of float32 weights.
        is_mixed = any(isinstance(each, Tensor) and each.dtype is torch.float32 for each in args)
        is_summed = (way is _reduction or is_mixed) and self.number > EARLY and self.number % 2 == 1
        if self.number and has_short and way is not _among_equals and not is_summed:
            way = _faithful
        if self.number % 2 and name in IN_FLOAT32 and args[0].dtype is torch.float16:
            way = _statistics_in_float32
        if self.number % 2 and way is _reduction and _is_in_backward() and args[0].dtype is torch.float32:
            # torch's gradient of renorm, for example, adds float32 in float64 on the CPU, and in float32 elsewhere.
            kwargs = {**kwargs, "dtype": torch.float32} if kwargs.get("dtype") is torch.float64 else kwargs
        try:
            return way(func, *args, **kwargs)
        except (TypeError, RuntimeError, IndexError, ValueError):
            return func(*args, **kwargs)
