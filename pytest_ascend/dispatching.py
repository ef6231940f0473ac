"""How torch dispatches: modes that see each operator for the price of a Python call, and slow dtypes."""

from __future__ import annotations

import contextlib
import functools
import re

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode


class EagerDispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode for which torch does not load its compiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, which takes seconds, just to keep it away from this class."""
        return False


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Put away every mode of this thread for a while: torch's tracer loses sight of tensors behind a mode."""
    return _python_dispatch._disable_current_modes()  # noqa: SLF001


def unseen() -> contextlib.AbstractContextManager[object]:
    """Keep operators from every such mode: for work on the CPU that is no business of theirs, which it makes faster.

    On a device nothing may be computed within, only copied: the emulated one computes by such a mode too.
    """
    guard: contextlib.AbstractContextManager[object] = torch._C._DisableTorchDispatch()  # noqa: SLF001
    return guard


_NO_KERNEL = re.compile("not implemented for '(Half|BFloat16)'")


def lacks_half(error: RuntimeError) -> bool:
    """Whether torch says that it has no CPU kernel in half precision; old versions lack many."""
    return _NO_KERNEL.search(str(error)) is not None


@functools.cache
def slow_dtypes() -> frozenset[torch.dtype]:
    """Return the dtypes that this CPU multiplies element by element, ten to seventy times slower than float32."""
    questions = {torch.float16: "_is_mkldnn_fp16_supported", torch.bfloat16: "_is_mkldnn_bf16_supported"}
    fast = {dtype: getattr(torch.ops.mkldnn, name, None) for dtype, name in questions.items()}  # torch 2.1 has one
    return frozenset(dtype for dtype, is_fast in fast.items() if is_fast is None or not is_fast())
