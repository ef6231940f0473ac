"""Classify an exception as the outcome of its case, by tables of phrases: devices report much in prose."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_ascend.environment.chips import family, undocumented
from pytest_ascend.records.outcome import Errored, Failed, NotEmulated, Outcome, Unsupported
from pytest_ascend.system.errors import AscendError, FailedElsewhere

#: Messages of torch, torch_npu and CANN for an operator that is missing, or missing for these arguments.
UNSUPPORTED = (
    r"not in libopapi\.so",
    r"GetWorkspaceSize not (found|in)",
    r"GetApiFuncAddr not found",  # an operator of ATB
    r"does not has any binary",
    r"Could not run '[^']+' with arguments from",
    r"not implemented for ['\w]",
    r"'_OpNamespace' '\w+' object has no attribute",  # torch.ops.aten.X of another version of torch
    r"was deprecated .{0,40}and is now removed",
    r"is not (currently )?(supported|implemented)",
    r"is not differentiable with respect to",
    r"DispatchStub: missing kernel for",
    r"(do|does|are|is)(n't| not) support(ed)?\b",
    r"\bonly support(s|ed)?\b|\bnot support\b",
    r"\binput must be half\b|[Dd]ata ?type should not be\b",  # torch_npu's own kernels
    r"[Uu]nsupported (data ?type|dtype|op)|is not surpported\b",  # the latter are torch_npu's words
    r"tensor cannot be larger than \d+ dimensions",  # CANN's macro OP_CHECK_MAX_DIM
    r"do(es)? not have aclnn implementation",  # torch_npu on a chip that has no operators of the older kind
    r"\bERR01007\b",  # torch_npu: OPS feature not supported
    r"\b561103\b",  # aclnn: no kernel for these arguments
    r"\bEZ3003\b|\bEZ9010\b",  # no operator for these dtypes and formats
)
#: Messages of the emulated device, and of torch_npu, for operators that are not emulated.
NOT_EMULATED = (
    r"(?:\b(?P<name>\w+) )?is not emulated|(?P<operator>aclnn\w+) or \w+ not (?:in libopapi\.so|found)"
    r"|GetApiFuncAddr not found (?P<atb>Atb\w+?)(?:GetWorkspaceSize)?\b"
)


def classify(error: BaseException, *, emulated: bool, missing: Sequence[str] = (), chip: str = "") -> Outcome:
    """Return the outcome that an exception means.

    ``emulated`` is true on the emulated device; ``missing`` are operators that the case called and the device lacks.
    Operators that CANN lacks on the emulated ``chip`` too are unsupported. Only a comparison or an assertion means that
    the device computes incorrectly.
    """
    text = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, AssertionError):
        return Failed(reason=_headline(str(error)) or "an assertion failed", detail=str(error))
    said = error.said if isinstance(error, FailedElsewhere) else text
    is_ours = isinstance(error, AscendError) and not isinstance(error, FailedElsewhere)
    if is_ours or "out of memory" in said:
        return Errored(reason=_headline(text), detail=text)
    if emulated:
        match, kind = re.search(NOT_EMULATED, said), family(chip)
        named = [match["name"] or match["operator"] or match["atb"] or "an operator"] if match else []
        absent = dict.fromkeys(missing or named)
        lacks = [each for each in absent if not kind or not undocumented(each.removeprefix("aclnn"), kind.name)]
        if lacks:
            return NotEmulated(reason=f"not emulated: {', '.join(lacks)}", detail=text)
    if any(re.search(pattern, said) for pattern in UNSUPPORTED) or isinstance(error, NotImplementedError):
        return Unsupported(reason=_headline(text), detail=text)
    return Errored(reason=_headline(text), detail=text)


def _headline(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 300 else f"{line[:299]}…"
