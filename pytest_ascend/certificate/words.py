"""The certificate in words, for people: made of the statement alone, so that it cannot say anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_ascend.certificate.tiers import NEWER_CANN
from pytest_ascend.records.text import one_line

#: Parts of a stack, as people call them.
NAMES = {
    "chip": "chip",
    "driver": "driver",
    "firmware": "firmware",
    "cann": "CANN",
    "torch": "torch",
    "torch_npu": "torch_npu",
    "torch_npu_commit": "torch_npu commit",
    "python": "Python",
    "os": "OS",
    "host": "host",
}


def words(said: Mapping[str, Any]) -> str:
    """Return the text of ``certificate.txt``."""
    return "\n".join(one_line(line) for line in _lines(said)) + "\n"


def _lines(said: Mapping[str, Any]) -> Iterator[str]:
    yield f"CERTIFICATE OF CONFORMANCE, tier: {said['tier']}"
    yield f"number {said['id']}"
    yield ""
    yield f"By the run {said['run']['id']}, which ended on {said['run']['finished']}, pytest-ascend {said['release']}:"
    yield from (f"  {each}" for each in said["means"])
    yield ""
    yield "WHAT WAS TESTED"
    yield from (f"  {name}: {said['stack'].get(part) or 'not known'}" for part, name in NAMES.items())
    yield f"  level: {said['run']['level']}"
    yield f"  challenge: {said['run'].get('challenge') or 'none was given before the run'}"
    for suite, counts in said["counts"].items():
        yield f"  {suite}: {', '.join(f'{count} {name}' for name, count in counts.items())}"
    yield from _figures(said["figures"])
    yield ""
    yield "WHAT WAS NOT TESTED, and is not certified"
    yield from (f"  {each}" for each in said["not_covered"])
    yield ""
    yield "WHAT THIS torch_npu DOES NOT HAVE, by design: executed, and known to be lacking"
    for each in said["limits"]:
        yield f"  {each['cause']}: {len(each['cases']):,} cases: {each['reason']} ({each['issue']})"
        yield f"    {', '.join(sorted({case.split('/')[1] for case in each['cases']}))}"
    yield from [] if said["limits"] else ["  nothing"]
    yield ""
    yield "WHAT WAS WAIVED: known defects that were executed"
    yield from (
        f"  {each['case']}: {each['reason']} ({each['issue']}), until {each['expires']}" for each in said["waived"]
    )
    yield from [] if said["waived"] else ["  nothing"]
    yield ""
    yield "WHAT IS DISPUTED: nobody has found out yet whether the device or the case is wrong"
    yield from (f"  {each}" for each in said["disputed"] or ["nothing"])
    yield ""
    yield "WHAT THE CPU COMPUTED beyond that, with right numbers"
    yield from (f"  {each}" for each in said["fallbacks"] or ["nothing"])
    yield ""
    yield "HOW LONG IT HOLDS"
    yield f"  until {said['expires']}, or until {NEWER_CANN} releases of CANN are newer, or until it is revoked"
    yield ""
    yield "WHO SAYS SO"
    yield f"  issued on {said['issued']} by {said['issuer']}, with the key {said['key']}"
    for each in said.get("time_stamps", ()):
        yield f"  the log was time-stamped at {each['time']} by {each['authority']}"
    if confirms := said.get("confirms"):
        yield f"  It confirms the certificate {confirms['id']} by {confirms['issuer']}, with the key {confirms['key']}:"
        yield "  both issuers ran the suites, each on a machine of its own, and their runs agree case by case."
    yield "  This certificate is independent of Huawei. Huawei has neither issued nor reviewed it."
    yield "  It rests on the run log, which is the issuer's own account of one run on one machine:"
    yield "  if the log is true, the run earns the tier. It is no warranty."


def _figures(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield what was measured; each name has its unit."""
    for case, measured in figures.items():
        yield f"  {case}: {', '.join(f'{name} {value:.6g}' for name, value in measured.items()) or 'nothing measured'}"


#: How many names a reason gives.
_NAMED = 3


def counted_cases(count: int) -> str:
    """Return a number of cases: "1 case", "2,000 cases"."""
    return "1 case" if count == 1 else f"{count:,} cases"


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{rest}"
