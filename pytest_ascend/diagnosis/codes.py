"""Codes by which CANN and torch_npu say what happened, and the kind of error that each is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from pytest_ascend.diagnosis.kinds import BUG, BUSY, CORE, DTYPE, HCCL, LOST, MEMORY, MISSING, PERMISSION, VERSION

_RT = "CANN, acl/error_codes/rt_error_codes.h; CANN documentation, aclError"
_ACL = "CANN documentation, aclError"
_NN = "CANN documentation, aclnn return codes"
_HCCL = "CANN documentation, HCCL error codes"
_PTA = "torch_npu/utils/_error_code.py"
_EL = "hicann/runtime@681ef7610, src/dfx/error_manager/error_code.json"
_RULE = "CANN documentation, aclError: rules for return codes"


@dataclass(frozen=True, slots=True)
class Code:
    """One code with its name or meaning, the kind of error, and where that is written."""

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
        ("507008", "the chip's version cannot be read, as where its driver does not answer", LOST, _RT),
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


#: Kinds by the rule after which codes are numbered, where a code itself is not in the table.
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
        found = CODES.get(code) or _by_rule(code)
        if found and code not in LAYERS:
            yield found


def _by_rule(code: str) -> Code | None:
    for pattern, says, kind, source in RULES:
        if re.fullmatch(pattern, code):
            return Code(code, says, kind, source)
    return None


#: Every code: what is said above in words, and by its official name what is not.
CODES = {**{each.code: each for each in _official()}, **CODES}
