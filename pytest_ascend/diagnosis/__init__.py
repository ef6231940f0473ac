"""Classify errors: from type, code and message to kind, meaning and remedy. The message itself is not changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pytest_ascend.environment.codes import (
    BUG,
    BUSY,
    BY_NAME,
    DEVICE,
    DTYPE,
    HCCL,
    KINDS,
    LOST,
    MEMORY,
    MISMATCH,
    PERMISSION,
    VERSION,
    Code,
    Kind,
    codes_in,
)

#: Kinds whose codes take precedence, most specific first, as errors often contain a code of a second kind.
FIRST = (BUSY, PERMISSION, MEMORY, VERSION, DTYPE, HCCL, LOST)
#: Kinds whose phrases override any code: the driver gives the reason, the code only the failed call; torch_npu uses one
#: code, ERR01002, both for a wrong dtype and for a wrong device.
PLAIN = (BUSY, DEVICE, MISMATCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The meaning of an error. ``codes`` are CANN's, with meaning and source; ``findings`` are lines of evidence."""

    kind: str
    says: str
    remedy: str
    codes: tuple[Code, ...] = ()
    findings: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the diagnosis as readable lines."""
        yield f"{self.kind}: {self.says}"
        for code in self.codes:
            yield f"  {code.code}: {code.says} ({code.source})"
        yield f"  remedy: {self.remedy}"
        yield from (f"  {finding}" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as builtins, as stored in a run log."""
        codes = [{"code": each.code, "says": each.says, "source": each.source} for each in self.codes]
        said = {"kind": self.kind, "says": self.says, "remedy": self.remedy}
        return {**said, "codes": codes, "findings": list(self.findings)}


def diagnose(type_name: str, message: str, findings: tuple[str, ...] = ()) -> Diagnosis:
    """Classify an error by its codes, then by its type and phrases; ``findings`` are kept with it."""
    codes = tuple(codes_in(message))
    of_codes = [code.kind for code in codes if code.kind != BUG]
    first = [BY_NAME[name] for name in (*FIRST, *of_codes) if name in of_codes]
    kind = _by_phrase((BY_NAME[name] for name in PLAIN), message) or next(iter(first), None)
    kind = kind or _by_phrase(KINDS, f"{type_name}: {message}") or BY_NAME[BUG]
    return Diagnosis(kind=kind.name, says=kind.says, remedy=kind.remedy, codes=codes, findings=findings)


def _by_phrase(kinds: Iterable[Kind], text: str) -> Kind | None:
    for kind in kinds:
        flags = 0 if kind.name == DTYPE else re.IGNORECASE
        if any(re.search(pattern, text, flags) for pattern in kind.patterns):
            return kind
    return None
