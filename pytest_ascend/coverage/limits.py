"""What the installed torch_npu and CANN do not have by design, by their own tables, whatever their versions.

Each source is asked about a case that deviates, with what the case itself showed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pytest_ascend.records.census import FALLBACK
from pytest_ascend.records.outcome import Outcome

#: How CANN's operators refuse a dtype (the macro OP_CHECK_DTYPE_NOT_SUPPORT of its operator sources).
_REFUSED = re.compile(r"Tensor \w+ not implemented for DT_(\w+), should be in dtype support list")
_OPERATOR = re.compile(r"\b(aclnn\w+)")


def lacking(source: str, found: Outcome, fallbacks: Sequence[str]) -> str:
    """Return what the stack lacks that explains the outcome of a case, "" for nothing.

    ``source`` is one of ``SOURCES``; ``fallbacks`` are the operators that the CPU computed, as "aten::lcm".
    """
    return SOURCES[source](found, fallbacks)


def _kernels(_: Outcome, fallbacks: Sequence[str]) -> str:
    """Name the operators that the CPU computed, where torch's dispatcher has no kernel of torch_npu's for any."""
    from pytest_ascend.device import dispatcher  # noqa: PLC0415  (loads torch)

    is_without = fallbacks and all(dispatcher.kind_if_known(each) == FALLBACK for each in fallbacks)
    return ", ".join(sorted(fallbacks)) if is_without else ""


def _dtypes(found: Outcome, _: Sequence[str]) -> str:
    """Name CANN's operator and the dtype that it refuses, where CANN's own list has not got it."""
    from pytest_ascend.emulator import taken  # noqa: PLC0415  (loads torch)

    text = f"{found.reason}\n{found.detail}"
    refused, operators = _REFUSED.search(text), _OPERATOR.findall(text)
    names = [each for each in dict.fromkeys(operators) if refused and taken.refuses(each, refused[1])]
    return f"{names[0]} of {refused[1].lower()}" if refused and names else ""


#: Whom to ask: torch's dispatcher about kernels of torch_npu, CANN's lists of dtypes about an operator of its own.
SOURCES: Mapping[str, Callable[[Outcome, Sequence[str]], str]] = {"dispatcher": _kernels, "dtypes": _dtypes}
