"""Error codes of CANN and torch_npu, and the kind of error that each one means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ascend.environment import measured
from pytest_ascend.records import record
from pytest_ascend.system.bundled import table

DTYPE, MEMORY, LOST, MISMATCH = "dtype", "out-of-memory", "device-lost", "device-mismatch"
HCCL, VERSION, BUG = "hccl", "version-mismatch", record.BUG
BUSY, PERMISSION, DEVICE = "device-busy", "no-permission", "no-such-device"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. ``patterns`` are searched for in "Type: message"; the first kind in the table that matches is taken."""

    name: str
    says: str
    remedy: str
    patterns: tuple[str, ...] = ()


_DATA: Mapping[str, Any] = table("environment/kinds.json")

#: From the most to the least specific. A code of CANN takes precedence over any phrase.
KINDS = tuple(Kind(**{**row, "patterns": tuple(row["patterns"])}) for row in _DATA["kinds"])

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Code:
    """One code with its name or meaning, the kind of error, and the source."""

    code: str
    says: str
    kind: str
    source: str


def _official() -> Iterator[Code]:
    """Yield every code of CANN's own tables, by its official name; see tools/cann_codes.py."""
    official = table("environment/cann_codes.json")
    for code, name, place in official["codes"]:
        words = re.sub(r"^ACL_(ERROR_)?(RT_)?", "", name).replace("_", " ").strip()
        says = words.lower() if words.isupper() or name.startswith("ACL_") else words
        sought, rule = name.replace(" ", "_"), _by_rule(code)
        named = (kind for pattern, kind in _DATA["official_names"] if re.search(pattern, sought, re.IGNORECASE))
        kind = HCCL if re.match("E[IJ]", code) else next(named, rule.kind if rule else BUG)
        yield Code(code, says, kind, f"{official['source']}, {place}")


#: Codes that only name the layer that noticed an error, not its cause.
LAYERS = frozenset(_DATA["layers"])

#: Numbers only count if the message calls them codes; otherwise they may be anything.
_FOUND = re.compile(
    r"(?:error code(?: is)?|errno|error|ret(?:code)?|result|return(?:ed)?)\s*[:=]?\s*(?P<number>[1-5]\d{5})\b"
    r"|\b(?P<named>[EW][A-Z]\d{4}|[EW]\d{5}|ERR\d{5})\b"
)


def codes_in(text: str) -> Iterator[Code]:
    """Yield the meanings of a message's codes, in order, each once; codes that only name layers are omitted."""
    for code in dict.fromkeys(match["number"] or match["named"] for match in _FOUND.finditer(text)):
        found, rule = CODES.get(code), _by_rule(code)
        if found is None:
            # A contact kit may have collected it, with the message of a chip.
            said, chip = measured.codes().get(code, ("", ""))
            kind = rule.kind if rule else BUG
            found = Code(code, said, kind, f"contact kit of an {chip}") if said else rule
        if found and code not in LAYERS:
            yield found


def _by_rule(code: str) -> Code | None:
    for pattern, says, kind, source in _DATA["numbering"]:
        if re.fullmatch(pattern, code):
            return Code(code, says, kind, _DATA["sources"][source])
    return None


#: Every code by number or name: with our meaning or else its official name. Other codes follow a rule of the numbering.
CODES = {each.code: each for each in _official()}
CODES |= {code: Code(code, says, kind, _DATA["sources"][source]) for code, says, kind, source in _DATA["codes"]}
