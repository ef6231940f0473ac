"""How torch dispatches: modes that intercept each operator at the cost of a Python call, and slow dtypes."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch._C._dynamo import eval_frame
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from pytest_ascend.system.programs import for_now

T = TypeVar("T")
HALF = (torch.float16, torch.bfloat16)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return all tensors anywhere in arguments or results."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def uncompiled(function: Callable[..., T]) -> Callable[..., T]:
    """Return the function, skipped by torch's compiler, without loading the compiler, which takes seconds.

    The compiler inspects each Python frame that a compiled function enters, including those of modes and kernels.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        before = eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            eval_frame.set_eval_frame(before)

    code = call.__code__  # type: ignore[attr-defined]
    if hasattr(eval_frame, "skip_code"):  # until torch 2.6
        eval_frame.skip_code(code)
    elif hasattr(eval_frame, "set_code_exec_strategy"):
        skipped = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)  # noqa: SLF001
        eval_frame.set_code_exec_strategy(code, skipped)
    return call


class EagerDispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that torch's compiler does not compile, and within which torch.compile still compiles."""

    # These two only give the methods of torch's class the types that mypy expects.

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operator that is called."""
        return func(*args, **kwargs)

    @uncompiled
    def __torch_dispatch__(self, func: Any, _: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        return self.handle(func, args, kwargs or {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler only to exclude this class from it."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile: by default, it calls functions eagerly within a mode."""
        return True


class Watch(EagerDispatchMode):
    """Passes each operator and its positional arguments to ``look`` before it runs."""

    def __init__(self, look: Callable[[Any, Sequence[Any]], object]) -> None:
        super().__init__()
        self.look = look

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Pass the operator on to ``look``, and run it."""
        self.look(func, args)
        return func(*args, **kwargs)


def without_modes() -> contextlib.AbstractContextManager[None]:
    """Disable every mode of this thread within the context: torch's tracer loses track of tensors behind a mode."""
    return _python_dispatch._disable_current_modes()  # noqa: SLF001


def no_dispatch() -> contextlib.AbstractContextManager[object]:
    """Disable every dispatch mode: for bookkeeping on the CPU that modes need not see, which is also faster.

    Only copies may run on a device within: the emulated device computes by such a mode, too.
    """
    guard: contextlib.AbstractContextManager[object] = torch._C._DisableTorchDispatch()  # noqa: SLF001
    return guard


def with_autograd() -> contextlib.AbstractContextManager[None]:
    """Record gradients also within a mode, which is called below autograd."""
    keys = [torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView]  # noqa: SLF001
    excluded = [key for key in keys if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]  # noqa: SLF001

    def exclude(is_so: bool) -> None:
        for key in excluded:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, is_so)  # noqa: SLF001

    return for_now(exclude, False, True)


def torch_is_before(major: int, minor: int) -> bool:
    """Return whether the installed torch is older than a version."""
    return tuple(int(each) for each in torch.__version__.split(".")[:2]) < (major, minor)


#: Operators that torch before 2.7 computes in half precision with internal rounding: of the sums in their gradients.
ROUNDED_INSIDE = frozenset(
    f"{each}{part}" for each in ("_softmax", "_log_softmax") for part in ("", "_backward_data") if torch_is_before(2, 7)
)

#: The last: filling float16 with a number such as -1e9, which CANN makes infinite (opbase aa3cd74, fp16_t.cpp).
_NO_KERNEL = re.compile(
    r"not implemented for '?(Half|BFloat16)|Unsupported input type .*: (Half|BFloat16)"
    r"|::(Half|BFloat16) without overflow"
)


def lacks_half(error: Exception) -> bool:
    """Return whether torch reports that it has no CPU kernel in half precision, or none for a number out of range."""
    return _NO_KERNEL.search(str(error)) is not None


class _StepsOfFloat32(EagerDispatchMode):
    """A mode that replaces operators without a half-precision kernel, or that round inside, by those of float32."""

    def __init__(self) -> None:
        super().__init__()
        #: Refused operators with dtypes: torch takes milliseconds to refuse, and some gradients ask thousands of times.
        self.refused: set[tuple[Any, ...]] = set()

    def handle(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = (args, dict(kwargs))
        if is_composed(func):  # torch_npu has kernels for such operators too, which hide their gradients
            with self, with_autograd():
                return func.decompose(*args, **given[1])
        call = (func, *(getattr(each, "dtype", None) for each in args))
        if func.overloadpacket.__name__ not in ROUNDED_INSIDE and call not in self.refused:
            try:
                return func(*args, **given[1])
            except RuntimeError as error:
                if not lacks_half(error):
                    raise
            self.refused.add(call)
        wide = tree_map(in_float32, given)
        found = func(*wide[0], **wide[1])
        pairs = zip(tree_flatten(given)[0], tree_flatten(wide)[0], strict=True)
        half = [(mine, theirs) for mine, theirs in pairs if mine is not theirs and isinstance(mine, torch.Tensor)]
        if func._schema.is_mutable:  # noqa: SLF001 - public under no other name
            for mine, theirs in half:
                mine.copy_(theirs)
            changed = {id(theirs): mine for mine, theirs in half}
            return tree_map(lambda value: changed.get(id(value), value), found)
        asked = given[1].get("dtype") or (half[0][0].dtype if half else None)
        kind = asked if asked in HALF else torch.float32
        return tree_map_only(torch.Tensor, lambda x: x.to(kind) if x.dtype is torch.float32 else x, found)


@functools.cache
def is_composed(operator: Any) -> bool:
    """Return whether torch composes the operator, and so its gradient, of others."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001
    return bool(has_kernel(operator.name(), "CompositeImplicitAutograd"))


def in_float32(value: Any) -> Any:
    """Return a half-precision tensor, or dtype, as float32; other values unchanged."""
    if isinstance(value, torch.Tensor):  # comparing others with a dtype takes torch longer than an addition
        return value.float() if value.dtype in HALF else value
    return torch.float32 if value in HALF else value


def in_rounded_steps(compute: Callable[[], T]) -> T:
    """Return the result when each operator that lacks a half-precision kernel rounds float32's result instead.

    The same applies to operators whose kernels round inside.

    It runs in a thread of its own, which has none of this thread's modes, and is not subject to :func:`no_dispatch`.
    """

    def run() -> T:
        with _StepsOfFloat32():
            return compute()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Compute in one thread: small tensors take longer in several, much longer on a busy machine."""
    return for_now(torch.set_num_threads, 1, torch.get_num_threads())


@functools.cache
def slow_dtypes() -> frozenset[torch.dtype]:
    """Return the dtypes that this CPU multiplies elementwise, ten to seventy times slower than float32."""
    questions = {torch.float16: "_is_mkldnn_fp16_supported", torch.bfloat16: "_is_mkldnn_bf16_supported"}
    fast = {dtype: getattr(torch.ops.mkldnn, name, None) for dtype, name in questions.items()}  # torch 2.1 has one
    return frozenset(dtype for dtype, is_fast in fast.items() if is_fast is None or not is_fast())
