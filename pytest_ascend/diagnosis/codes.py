"""Codes by which CANN and torch_npu say what happened, and the kind of error that each is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from pytest_ascend.environment import measured

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
            r"do(?:es)? not have aclnn implementation",
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


_RT = "CANN, acl/error_codes/rt_error_codes.h; CANN documentation, aclError"
_ACL = "CANN documentation, aclError"
_NN = "CANN documentation, aclnn return codes"
_HCCL = "CANN documentation, HCCL error codes"
_PTA = "torch_npu/utils/_error_code.py"
_EL = "hicann/runtime@681ef7610, src/dfx/error_manager/error_code.json"
_RULE = "CANN documentation, aclError: rules for return codes"


@dataclass(frozen=True, slots=True)
class Code:
    """One code with its name or meaning, the kind of error, and the source."""

    code: str
    says: str
    kind: str
    source: str


#: Codes by number or name. What is not here falls under a rule of RULES.
CODES = {
    row[0]: Code(*row)
    for row in (
        ("100000", "invalid argument of an ACL call", BUG, _ACL),
        ("100001", "ACL is not initialised", BUG, _ACL),
        ("100039", "linked against CANN's stub libraries", VERSION, _ACL),
        ("107001", "no such device", LOST, _RT),
        ("107002", "no context: the device was not set in this thread", BUG, _RT),
        ("107019", "a task timed out", CORE, _RT),
        ("107020", "a task timed out", CORE, _RT),
        ("107022", "the device's tasks were aborted after an earlier error", LOST, _RT),
        ("148049", "ASCEND_OPP_PATH is not set or wrong", VERSION, _ACL),
        ("161001", "aclnn: a null pointer as argument", BUG, _NN),
        ("161002", "aclnn: invalid arguments, as dtypes that do not go together", DTYPE, _NN),
        ("200000", "memory cannot be allocated", MEMORY, _ACL),
        ("207000", "the feature is not supported", MISSING, _RT),
        ("207001", "memory cannot be allocated", MEMORY, _RT),
        ("207003", "overflow in an AICore operator", CORE, _RT),
        ("207004", "the device is unavailable", LOST, _RT),
        ("207005", "memory cannot be allocated", MEMORY, _RT),
        ("207018", "the device's memory is exhausted", MEMORY, _RT),
        ("361001", "aclnn: a call of the runtime failed", LOST, _NN),
        ("507008", "the chip's version cannot be read, as where its driver is busy, or is not a model's", LOST, _RT),
        ("507010", "the task scheduler lost its heartbeat", LOST, _RT),
        ("507011", "the execution of a model failed", CORE, _RT),
        ("507013", "error of the system's DMA", LOST, _RT),
        ("507014", "AICore timeout", CORE, _RT),
        ("507015", "AICore exception", CORE, _RT),
        ("507016", "AICore trap", CORE, _RT),
        ("507017", "AICPU timeout", CORE, _RT),
        ("507018", "AICPU exception", CORE, _RT),
        ("507033", "the device did not start", LOST, _RT),
        ("507034", "vector core timeout", CORE, _RT),
        ("507035", "vector core exception", CORE, _RT),
        ("507036", "vector core trap", CORE, _RT),
        ("507042", "AICore read out of bounds", CORE, _RT),
        ("507043", "AICore write out of bounds", CORE, _RT),
        ("507044", "vector core read out of bounds", CORE, _RT),
        ("507045", "vector core write out of bounds", CORE, _RT),
        ("507046", "the stream's tasks did not end in time", CORE, _RT),
        ("507048", "an internal task timed out, often a collective", CORE, _RT),
        ("507049", "exception of an internal task", CORE, _RT),
        ("507053", "suspected memory fault of the device (UCE)", LOST, _RT),
        ("507054", "multi-bit ECC error of HBM", LOST, _RT),
        ("507899", "error inside the driver; often what follows an earlier one", LOST, _RT),
        ("507901", "the session between host and device is gone", LOST, _RT),
        ("561001", "aclnn: no output shape for these inputs", DTYPE, _NN),
        ("561002", "aclnn: no tiling for these inputs", DTYPE, _NN),
        ("561003", "aclnn: no kernel found; the operator package may not be installed", VERSION, _NN),
        ("561101", "aclnn: no executor could be created", BUG, _NN),
        ("561103", "aclnn: no kernel for these arguments", DTYPE, _NN),
        ("EI0001", "HCCL: an environment variable is wrong", HCCL, _HCCL),
        ("EI0002", "HCCL: a partner did not come in time", HCCL, _HCCL),
        ("EI0003", "HCCL: invalid argument of a collective", HCCL, _HCCL),
        ("EI0004", "HCCL: a rank table cannot be read", HCCL, _HCCL),
        ("EI0005", "HCCL: ranks disagree on a collective's arguments", HCCL, _HCCL),
        ("EI0006", "HCCL: no connection to a partner in time", HCCL, _HCCL),
        ("EI0007", "HCCL: no resource left", HCCL, _HCCL),
        ("EI0008", "HCCL: versions of the ranks differ", VERSION, _HCCL),
        ("EI0009", "HCCL: a link could not be set up", HCCL, _HCCL),
        ("EI0010", "HCCL: no access from card to card", HCCL, _HCCL),
        ("EI0011", "HCCL: not enough device memory", MEMORY, _HCCL),
        ("EI0012", "HCCL: SDMA error while sending", HCCL, _HCCL),
        ("EI0013", "HCCL: RoCE error while sending", HCCL, _HCCL),
        ("207006", "this user may not use the device", PERMISSION, _RT),
        ("507055", "suspected memory fault of another device (UCE)", LOST, _RT),
        ("EL0001", "the driver finds no device", LOST, _EL),
        ("EL0004", "memory cannot be allocated", MEMORY, _EL),
        ("EL0005", "the card is busy: occupied, being reset, or not ready yet", BUSY, _EL),
        ("EL0007", "this user may not use the device, or somebody else has it", PERMISSION, _EL),
        ("EZ3003", "no operator for these dtypes and formats", DTYPE, "CANN documentation, error codes of AICore"),
        ("EZ9010", "no operator for these dtypes and formats", DTYPE, "CANN documentation, error codes of AICore"),
        ("ERR01001", "torch_npu: invalid parameter of an operator", BUG, _PTA),
        ("ERR01002", "torch_npu: invalid type of an operator's argument", DTYPE, _PTA),
        ("ERR01007", "torch_npu: the operator is not supported", MISSING, _PTA),
    )
}

#: Words of an official name that tell the kind of its code; the first that fits counts.
_NAMED = (
    (r"memory_allocat|bad_alloc|insufficient.host.memory|storage_over_limit", MEMORY),
    (r"busy", BUSY),
    (r"permission", PERMISSION),
    (r"data_?type", DTYPE),
    (r"driver.version|package.error|opp_path|python|soc_version", VERSION),
    (r"no_device|dev_setup|socket_close|device_mem_error|ecc|device_absent|lost_heartbeat|drv_", LOST),
    (r"not.support|unsupported", MISSING),
    (r"exception|trap|timeout|overflow|execution.error|aicore|aicpu|ccu_|vector_core", CORE),
)
_FILE = "cann_codes.json"


def _official() -> Iterator[Code]:
    """Yield every code of CANN's own tables, by its official name; see tools/cann_codes.py."""
    table = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    for code, name, place in table["codes"]:
        words = re.sub(r"^ACL_(ERROR_)?(RT_)?", "", name).replace("_", " ").strip()
        says = words.lower() if words.isupper() or name.startswith("ACL_") else words
        named = (kind for pattern, kind in _NAMED if re.search(pattern, name.replace(" ", "_"), re.IGNORECASE))
        rule = _by_rule(code)
        kind = HCCL if re.match("E[IJ]", code) else next(named, rule.kind if rule else BUG)
        yield Code(code, says, kind, f"{table['source']}, {place}")


#: Kinds by the numbering of codes, for codes that are not in the table.
RULES = (
    (r"ERR02\d{3}", "torch_npu: error of the distributed module", HCCL, _PTA),
    (r"E[IJ]\d{4}", "HCCL error", HCCL, _HCCL),
    (r"1\d{5}", "the program uses CANN wrongly, or its environment is not set up", BUG, _RULE),
    (r"2\d{5}", "a resource is short, or the hardware lacks what is asked", MISSING, _RULE),
    (r"3\d{5}", "a service is busy or empty", BUG, _RULE),
    (r"507\d{3}", "error of the device or its runtime", CORE, _RULE),
    (r"5\d{5}", "error inside CANN or the device", BUG, _RULE),
)

#: Codes that tell what lies above another one: they name the layer that noticed, not the cause.
LAYERS = {"ERR00100", "ERR01100", "ERR02200", "EZ9999", "EE9999", "EI9999", "EH9999", "500000", "500002", "500003"}

#: Numbers count only where the message calls them codes; they may be anything else.
_FOUND = re.compile(
    r"(?:error code(?: is)?|errno|error|ret(?:code)?|result|return(?:ed)?)\s*[:=]?\s*(?P<number>[1-5]\d{5})\b"
    r"|\b(?P<named>[EW][A-Z]\d{4}|[EW]\d{5}|ERR\d{5})\b"
)


def codes_in(text: str) -> Iterator[Code]:
    """Yield what the codes of a message mean, in their order, each once; names of layers are left out."""
    seen = dict.fromkeys(match["number"] or match["named"] for match in _FOUND.finditer(text))
    for code in seen:
        found = CODES.get(code) or _seen(code) or _by_rule(code)
        if found and code not in LAYERS:
            yield found


def _seen(code: str) -> Code | None:
    """Return a code that no table has and that a contact kit brought, with the words in which a chip said it."""
    said, chip = measured.codes().get(code, ("", ""))
    rule = _by_rule(code)
    return Code(code, said, rule.kind if rule else BUG, f"contact kit of an {chip}") if said else None


def _by_rule(code: str) -> Code | None:
    for pattern, says, kind, source in RULES:
        if re.fullmatch(pattern, code):
            return Code(code, says, kind, source)
    return None


#: Every code: with the meaning above, or else with its official name.
CODES = {**{each.code: each for each in _official()}, **CODES}
