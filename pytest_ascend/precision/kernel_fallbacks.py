"""Other ways to compute functions: where the CPU lacks a kernel or a fast one, and by CANN's formulas.

A result that disagrees with PyTorch's is judged again with references by CANN's formula. If it agrees with these, the
deviation is known; if not, the case fails. So a known deviation hides nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from pytest_ascend.environment.chips import multiplies
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.system.dispatching import HALF, EagerDispatchMode, lacks_half, slow_dtypes, without_modes
from pytest_ascend.system.programs import for_now

#: Messages of torch for a kernel that does not support a dtype.
_LACKS = re.compile(r"not implemented for|Double|float64|Could not run|expected .* dtype|to be (Float|BFloat)", re.I)


def grouped_mm(
    left: Tensor, right: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Multiply group by group: the rows of ``left`` up to each offset by the matrix of their group."""
    ends = [] if offs is None else offs.tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=False))
    if offs is None:
        made = left @ right
    elif left.dim() == 2 and right.dim() == 3:
        parts = [left[start:end] @ right[group] for group, (start, end) in enumerate(spans)]
        made = torch.cat([*parts, left.new_zeros(left.shape[0] - ends[-1], right.shape[-1])])
    elif left.dim() == 3:
        made = torch.cat([left[group] @ right[:, start:end] for group, (start, end) in enumerate(spans)], -1)
    else:
        made = torch.stack([left[:, start:end] @ right[start:end] for start, end in spans])
    made = made if bias is None else made + bias
    return made if out_dtype is None else made.to(out_dtype)


def geglu(x: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Tensor, Tensor]:
    """Return one half gated by the GELU of the other, and this GELU, like torch_npu's ``npu_geglu``."""
    left, right = x.chunk(2, dim)
    if activate_left:
        left, right = right, left
    gate = functional.gelu(right, approximate="tanh" if approximate else "none")
    return left * gate, gate


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """Return SiLU of the first half times the second half, like torch_npu's ``npu_swiglu``."""
    left, right = x.chunk(2, dim)
    return functional.silu(left) * right


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the normalized values, and one over the root mean square, like torch_npu's ``npu_rms_norm``."""
    over = (x.square().mean(tuple(range(-gamma.dim(), 0)), keepdim=True) + epsilon).rsqrt()
    return x * over * gamma, over


def rotary_mul(x: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Return the result of torch_npu's ``npu_rotary_mul`` in its mode "half"."""
    left, right = x.chunk(2, -1)
    return x * r1 + torch.cat((-right, left), -1) * r2


#: Functions, by name, that exist only on an NPU, or that the CPU lacks in some dtypes.
STAND_INS: Mapping[str, Callable[..., Any]] = {
    "_grouped_mm": grouped_mm,
    "grouped_mm": grouped_mm,
    "npu_geglu": geglu,
    "npu_swiglu": swiglu,
    "npu_rms_norm": rms_norm,
    "npu_rotary_mul": rotary_mul,
}


def without_onednn() -> contextlib.AbstractContextManager[None]:
    """Compute with torch's own kernels instead of oneDNN's."""
    onednn: Any = torch.backends.mkldnn
    return for_now(functools.partial(setattr, onednn, "enabled"), False, onednn.enabled)


class kernel_fallbacks(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which functions that the CPU lacks are computed in other ways; ``notes`` records which.

    Functions without a definition here are computed in float32 instead of float64 or 16 bits; under autocast, in one
    dtype where the CPU refuses two. Raises torch's error if that does not help. With ``wide``, float64 remains float64
    where a model casts to float32, as many do for a norm or a loss.
    """

    def __init__(self, notes: list[str], *, wide: bool = False) -> None:
        super().__init__()
        self.notes, self.wide = notes, wide

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function; compute it in another way if it fails for lack of a kernel."""
        kwargs = kwargs or {}
        if self.wide and args and isinstance(args[0], Tensor) and args[0].dtype is torch.float64:
            if func is Tensor.float:
                return args[0]
            args, kwargs = tree_map(lambda each: torch.float64 if each is torch.float32 else each, (args, kwargs))
        try:
            # oneDNN's LSTM is a single operator, whose order of summation cannot be changed
            is_closed = getattr(func, "__name__", "") == "lstm"
            with without_onednn() if is_closed else contextlib.nullcontext():
                return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            if "could not create a primitive" in str(error):
                # oneDNN lacks a kernel on this processor, such as LSTM's in bfloat16 on some
                with without_onednn():
                    return func(*args, **kwargs)
            name = str(getattr(func, "__name__", func)).partition(".")[0]
            known = STAND_INS.get(name) or _of_one_dtype(func, name, args, kwargs)
            lacking = {each.dtype for each in tensors_in((args, dict(kwargs)))} & {torch.float64, *HALF}
            is_lack = bool(lacking) and bool(_LACKS.search(str(error)) or lacks_half(error))
            if known is None and (not is_lack or writes(name)):
                raise
            if known is not None:
                made = known(*args, **kwargs)
                how = "from its definition" if name in STAND_INS else "in one dtype"
            else:
                dtype = functools.reduce(torch.promote_types, lacking)
                given, named = mapped((args, dict(kwargs)), lambda x: x.float() if x.dtype in lacking else x)
                made = mapped(func(*given, **named), lambda x: x.to(dtype) if x.dtype is torch.float32 else x)
                how = "in float32"
            text = f"the CPU has no kernel of {name} for this: that operator alone is computed {how}"
            if text not in self.notes:
                self.notes.append(text)
            return made


def writes(name: str) -> bool:
    """Return whether a function of this name modifies its first argument."""
    return name.startswith("__set") or (name.endswith("_") and not name.endswith("__"))


def _of_one_dtype(func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return a function that computes in one dtype what mixes two, under autocast or in float64; None otherwise.

    On other devices, autocast casts to the widest dtype (PyTorch's Autocast Op Reference: ``bilinear``, ``dot``,
    ``index_put``), or a kernel accepts both (NPUs: ``index_add``, ``layer_norm``); the CPU refuses them. A model in
    float64 still creates float32 tensors itself. A tensor that is written to keeps its dtype.
    """
    dtypes = {each.dtype for each in tensors_in((args, dict(kwargs))) if each.is_floating_point()}
    if len(dtypes) < 2 or (autocast_of("cpu") is None and torch.float64 not in dtypes):
        return None
    dtype = args[0].dtype if writes(name) else functools.reduce(torch.promote_types, dtypes)

    def compute(*args: Any, **kwargs: Any) -> Any:
        given, named = mapped((args, kwargs), lambda each: each.to(dtype) if each.is_floating_point() else each)
        return func(*given, **named)

    return compute


def autocast_of(device_type: str) -> torch.dtype | None:
    """Return the dtype of the active autocast for a device type; None without autocast."""
    with contextlib.suppress(RuntimeError, TypeError):
        if torch.is_autocast_enabled(device_type):
            return torch.get_autocast_dtype(device_type)
    return None


#: Products whose inputs autocast rounds on NPUs and GPUs, but not on the CPU (PyTorch's Autocast Op Reference).
ROUNDED_ELSEWHERE = frozenset(("addmv", "addr", "mv"))


class autocast_elsewhere(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which autocast on the CPU behaves like on NPUs and GPUs, where their lists of operators differ.

    Some products have rounded inputs. ``pinverse`` is only on the CPU's float32 list; ``linalg.pinv``, the same
    products after a decomposition, is on no list. ``cross_entropy`` takes logarithms in the logits' dtype: torch gives
    the inner softmax the dtype of its input, which the CPU's autocast widens first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call a function, with rounded inputs or as another loss."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ROUNDED_ELSEWHERE and (dtype := autocast_of("cpu")) is not None:
            rounded = mapped((args, dict(kwargs)), lambda each: each.to(dtype) if each.dtype is torch.float32 else each)
            with torch.autocast("cpu", enabled=False):
                return func(*rounded[0], **rounded[1])
        if name == "pinverse":
            # Dispatch modes would hide the inner products from autocast.
            with without_modes():
                return torch.linalg.pinv(*args, **{"rcond": 1e-15, **kwargs} if len(args) == 1 else kwargs)
        dtype = getattr(args[0], "dtype", None) if name == "cross_entropy" and args else None
        if dtype not in (torch.float16, torch.bfloat16):
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs).float()


class without_float64(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which float64 is replaced by float32: NPUs lack most of float64, and models avoid it there.

    The frequencies of diffusers' rotary positions, for example, are float64 on the CPU and float32 on an NPU.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        func = Tensor.float if func is Tensor.double else func
        given = args, dict(kwargs or {})
        args, kwargs = tree_map(lambda each: torch.float32 if each is torch.float64 else each, given)
        return func(*args, **kwargs)


#: Products other than convolutions. Attention is excluded: its kernels round inside, as on chips.
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class products_in_float32(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU computes products in float32 and rounds them once, as a cube unit does.

    This applies to dtypes the CPU would multiply elementwise, in up to 70 times the time, and to 16-bit convolutions:
    oneDNN's (torch 2.13, a CPU with AMX) crash or read uninitialised memory where a window covers only padding.
    """

    def handle(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator."""
        name = str(getattr(function, "overloadpacket", "")).removeprefix("aten.")
        if name == "native_batch_norm_backward":  # torch's kernel misreads a single channels-last sample
            args = [*(each.contiguous() for each in args[:2]), *args[2:]]
        of: Collection[torch.dtype] = slow_dtypes() if name in _PRODUCTS else HALF if "convolution" in name else ()
        dtype = next((each.dtype for each in args if _is_of(of, each)), None) if of else None
        if dtype is None:
            return function(*args, **kwargs)
        args, kwargs = tree_map(lambda each: each.float() if _is_of(of, each) else each, (args, dict(kwargs)))
        made = function(*args, **kwargs)
        return tree_map(lambda each: each.to(dtype) if isinstance(each, Tensor) else each, made)


def _is_of(dtypes: Collection[torch.dtype], value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in dtypes and value.device.type == "cpu"


P = ParamSpec("P")
R = TypeVar("R")

_GELUS = frozenset({"gelu", "gelu_", "gelu_backward"})


class products_in_halves(EagerDispatchMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU rounds the factors of float32 products to half precision, as some chips do.

    ``used`` tells whether it rounded any. How errors of this size grow within a network shows only when it is computed:
    a batch norm over few elements multiplies them.
    """

    way = "halves"

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __enter__(self) -> Any:
        _active.append(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: object) -> None:
        _active.remove(self)
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run one operator."""
        if multiplies(str(func).removeprefix("aten.")):
            args, kwargs = mapped((args, dict(kwargs)), self._rounded)
        return func(*args, **kwargs)

    def _rounded(self, factor: Tensor) -> Tensor:
        if factor.dtype is not torch.float32 or factor.device.type != "cpu":
            return factor
        self.used = True
        return factor.half().float()


class cann_formulas(TorchFunctionMode):  # noqa: N801 - as torch.no_grad
    """A context in which the CPU computes by CANN's formulas; ``used`` tells whether it used any.

    To compare with stored PyTorch results, ``on_device`` has the device compute PyTorch's formula from other operators.
    """

    def __init__(self, *, on_device: bool = False) -> None:
        super().__init__()
        self.on_device, self.used, self._usual = on_device, False, functional.gelu
        self.way = "device" if on_device else "reference"

    def __enter__(self) -> Any:
        _active.append(self)

        # A model may keep this function. It is copied with the model, but must not copy this object.
        def gelu(*args: Any, **kwargs: Any) -> Any:
            return self._call(self._usual, "gelu", *args, **kwargs) if self in _active else self._usual(*args, **kwargs)

        # torch forgets the mode when a reentrant checkpoint recomputes within a backward pass.
        functional.gelu = gelu
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: object) -> None:
        _active.remove(self)
        functional.gelu = self._usual
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        name = str(getattr(func, "__name__", "")).partition(".")[0]
        return self._call(func, name, *args, **(kwargs or {}))

    def _call(self, func: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in _GELUS or not args or not isinstance(args[0], Tensor) or kwargs.get("approximate") == "tanh":
            return func(*args, **kwargs)
        if (args[0].device.type != "cpu") is not self.on_device:
            return func(*args, **kwargs)
        self.used = True
        if self.on_device:
            if name == "gelu_backward":
                return func(*args)
            x = args[0]
            wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            made = (wide * 0.5 * (1 + torch.erf(wide * 0.5**0.5))).to(x.dtype)
            return x.copy_(made) if name == "gelu_" else made
        return func(*args, **{**kwargs, "approximate": "tanh"})


_active: list[cann_formulas | products_in_halves] = []


def active() -> str:
    """Return the active formulas: "reference", "device" or, for the reference, "halves"; "" for the usual ones."""
    return _active[-1].way if _active else ""


def once(function: Callable[P, R], *, of: str = "reference") -> Callable[P, R]:
    """Return a caching form of a function, like functools.cache, with separate results for other formulas.

    ``of`` says whether it computes on the "device" or a "reference": formulas for the other one have no effect. A
    cached result by another formula counts as a use of it, as if it were recomputed.
    """

    ways = (of, "halves") if of == "reference" else (of,)

    def computed(way: str, *args: Any, **kwargs: Any) -> tuple[R, bool]:
        if not way:
            return function(*args, **kwargs), False
        before, _active[-1].used = _active[-1].used, False
        result = function(*args, **kwargs)
        used, _active[-1].used = _active[-1].used, before
        return result, used

    kept: Any = functools.cache(computed)

    @functools.wraps(function)
    def found(*args: P.args, **kwargs: P.kwargs) -> R:
        result, used = kept(active() if active() in ways else "", *args, **kwargs)
        if used:
            _active[-1].used = True
        return result  # type: ignore[no-any-return]

    return found
