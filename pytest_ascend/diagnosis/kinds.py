"""The kinds of errors that a case can end in, how each shows in type and message, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MISSING, DTYPE, MEMORY, LOST = "operator-missing", "dtype", "out-of-memory", "device-lost"
CORE, HCCL, VERSION, TOOL, BUG = "aicore-error", "hccl", "version-mismatch", "tool-missing", "bug"
BUSY, PERMISSION, DEVICE, DRIVER = "device-busy", "no-permission", "no-such-device", "driver-unreachable"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. ``patterns`` are sought in "Type: message"; the first kind in the table that shows is taken."""

    name: str
    says: str
    remedy: str
    patterns: tuple[str, ...] = ()


#: From the most to the least particular. A code of CANN (codes.py) goes before any phrase.
KINDS = (
    Kind(
        BUSY,
        "the card is not free yet: another process has it, or it is being reset after one was killed",
        "wait a minute and try again; look for the process that holds it: `npu-smi info`, also outside of the "
        "container; there is nothing to reset",
        (r"resources? (?:is|are) busy",),
    ),
    Kind(
        DEVICE,
        "there is no device with this index",
        "torch counts the devices of ASCEND_RT_VISIBLE_DEVICES from 0; `pytest-ascend doctor` tells which card is "
        "which",
        (r"[Ii]nvalid device (?:id|ID|ordinal)",),
    ),
    Kind(
        PERMISSION,
        "this user may not use the device",
        "add the user to the group that owns /dev/davinci*; in a container, mount /dev/davinci_manager and the devices",
    ),
    Kind(
        DRIVER,
        "the driver cannot be asked",
        "see that /dev/davinci_manager and the devices are here (in a container: mounted), that the driver is loaded, "
        "and that this user may open them; `pytest-ascend doctor` looks at all of it",
        (r"DrvMngGetConsoleLogLevel",),
    ),
    Kind(
        MEMORY,
        "the device has no memory left for what was asked",
        "a smaller batch, autocast to bfloat16, gradient accumulation or checkpointing; torch.npu.empty_cache() "
        "between cases; where much is reserved and little allocated, PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
        (r"out of memory", r"OutOfMemoryError", r"[Ff]ailed to allocate (?:device )?memory"),
    ),
    Kind(
        LOST,
        "the device does not answer, or was reset under the process",
        "end the process; look at `npu-smi info` and the driver's log (/var/log/npu/slog, `dmesg`); reset the card if "
        "its health is not OK; start again alone on it",
        (
            r"UCE ERROR",
            r"FORCE STOP",
            r"lost heartbeat",
            r"[Dd]evice (?:is )?(?:lost|unavailable|not ready)",
        ),
    ),
    Kind(
        HCCL,
        "a collective failed or never met its partners",
        "look at the first rank that reports, in the logs of all ranks; see that every rank calls the same "
        "collectives in the same order, that ranks reach each other (HCCL_IF_IP, "
        "HCCL_SOCKET_IFNAME), and HCCL_CONNECT_TIMEOUT",
        (r"\bhccl\w*\b.*(?:error|fail|time ?d? ?out)", r"\bERR02\d{3}\b", r"ProcessGroupHCCL", r"\bEI\d{4}\b"),
    ),
    Kind(
        VERSION,
        "parts of the stack do not fit each other",
        "see `pytest-ascend doctor`; install the torch that torch_npu names, and a CANN of its row in the "
        "compatibility table, then source set_env.sh of that CANN",
        (
            r"undefined symbol",
            r"cannot open shared object file",
            r"not in libopapi\.so",
            r"GetWorkspaceSize not (?:found|in)",
            r"version (?:mismatch|does not match|`[^']+' not found)",
            r"requires? (?:driver|CANN|torch)\b.*version",
            r"\bERR99999\b.*version",
        ),
    ),
    Kind(
        DTYPE,
        "the operator exists, but not for this dtype, format or shape",
        "convert to a dtype that the chip has (float32 or float16; bfloat16 from Atlas A2 on, float64 on none), or "
        "compute this operator on the CPU",
        (
            r"not implemented for ['\w]",
            r"[Uu]nsupported (?:data ?type|dtype)",
            r"(?:data ?type|dtype) .{0,80}(?:not|n't) support",
            r"(?:not|n't) support .{0,60}(?:data ?type|dtype|DT_)",
            r"expected .{0,40}\bdtype\b",
            r"expected scalar type",
            r"must have the same dtype",
            r"does not has any binary",
        ),
    ),
    Kind(
        TOOL,
        "a tool of CANN that this takes is not installed",
        "install the CANN toolkit and source its set_env.sh; `pytest-ascend doctor` tells what is there",
        (r"without ATC\b",),
    ),
    Kind(
        MISSING,
        "no kernel for this operator",
        "see who computes it: `pytest-ascend census --show missing`; write it with operators that are native, or let "
        "the CPU compute it; a newer torch_npu may have it: `pytest-ascend census diff`",
        (
            r"Could not run '[^']+' with arguments from",
            r"is not (?:currently )?(?:supported|implemented)",
            r"(?:do|does|are|is)(?:n't| not) support(?:ed)?\b",
            r"'_OpNamespace' '\w+' object has no attribute",
            r"was deprecated .{0,40}and is now removed",
            r"Unsupported op",
            r"NotImplementedError",
            r"\bERR01007\b",
        ),
    ),
    Kind(
        CORE,
        "a kernel raised an exception or ran out of time on the device",
        "run again with ASCEND_LAUNCH_BLOCKING=1, so that the error shows at the operator that caused it; look for "
        "indices out of range and NaN in its inputs; then keep the operator, shapes and ~/ascend/log for a report",
        (r"aicore|ai core|aicpu|aivec|vector core", r"trap .*out-of-bounds"),
    ),
    Kind(
        BUG,
        "an error of the program, of torch or of torch_npu that no table knows",
        "read the message below; the same call on the CPU tells whether the program itself is wrong",
    ),
)

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
