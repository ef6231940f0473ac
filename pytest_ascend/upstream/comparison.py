"""Compare test outcomes with a list of the tests that a real NPU does not pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pytest_ascend.environment.cards import is_said
from pytest_ascend.records.outcome import Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system.text import one_line
from pytest_ascend.upstream.lists import Listed, half

SAME, OTHER, PASSES = "does not pass, same reason", "does not pass, another reason", "passes here"
BOTH_PASS, ONLY_HERE, OWN = "passes", "does not pass here", "torch_npu itself refuses"


def cause(outcome: Outcome) -> str:
    """Return the root cause of a failure: the message without its numbers."""
    # The message of CANN's host code about an unsupported dtype or rank takes precedence.
    said = re.search(r"emulated CANN: (.{1,120})|(aclnn\w+: EZ\d+: .{1,120})", outcome.detail)
    text = (said[1] or said[2]) if said else outcome.reason[:120]
    by_itself = r"(?<!\w)[-+]?\d[\d.]*(e[-+]?\d+)?"  # a number that is not within a name
    return f"{outcome.name}: {re.sub(by_itself, 'N', text)}"


#: torch_npu's own errors before it calls CANN, as on a card with the same torch_npu. Lists are of other releases.
_OWN = re.compile(r"scalar_type:\w+ ?is not surpported")


#: Outcome of a test compared with the list: the verdict, the list's reason, and the cause found here.
Key: TypeAlias = tuple[str, str, str]


def compare(rows: Iterable[ResultRecord], listed: Listed, only_half: str = "") -> dict[Key, list[str]]:
    """Compare records with a list, of all tests or of one half, and return the tests by outcome.

    If a test ran several times, the last run counts.
    """
    found: dict[Key, list[str]] = {}
    for row in {row.node_id: row for row in rows}.values():
        file, _, name = row.node_id.partition("::")
        entry = listed.of(file, name)
        if only_half and half(entry.id if entry else row.node_id) != only_half:
            continue
        passes = row.outcome_name in {"passed", "fallback"}
        why = "" if passes else cause(row.outcome)
        if entry:
            agrees = not entry.reason or is_said(entry.reason, f"{row.reason} {row.detail}")
            verdict = PASSES if passes else SAME if agrees else OTHER
        else:
            verdict = BOTH_PASS if passes else OWN if _OWN.search(row.reason) else ONLY_HERE
        found.setdefault((verdict, entry.reason if entry else "", why), []).append(row.node_id)
    return found


def table(found: Mapping[Key, Sequence[str]], known: str) -> str:
    """Return the comparison as Markdown; ``known`` describes the list."""
    total = Counter(verdict for (verdict, _, _), tests in found.items() for _ in tests)
    refused, passing = total[SAME] + total[OTHER] + total[PASSES], total[BOTH_PASS] + total[ONLY_HERE]
    lines = [
        f"Of {refused} tests on {known}, {total[SAME]} do not pass here for the same reason "
        f"({total[SAME] / max(1, refused):.1%}), {total[OTHER]} for another one. "
        f"Of {passing} that are not on it, {total[BOTH_PASS]} pass here "
        f"({total[BOTH_PASS] / max(1, passing):.1%}).",
        "",
        f"| {known} | the list's reason | here | tests | one of them |",
        "|---|---|---|---|---|",
    ]
    for (verdict, there, here), tests in sorted(found.items(), key=lambda each: -len(each[1])):
        if verdict not in {SAME, BOTH_PASS}:
            example = tests[0].rpartition("::")[2]
            lines.append(f"| {verdict} | {_cell(there)} | {_cell(here)} | {len(tests)} | {_cell(example)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return f"`{one_line(text).replace('|', '/').replace('`', chr(39))[:140]}`" if text else ""
