"""Compare what became of tests with a list of those that a real NPU does not pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_ascend.environment.cards import is_said
from pytest_ascend.records.outcome import Outcome
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system.text import one_line
from pytest_ascend.upstream.lists import Listed, half

SAME, OTHER, PASSES = "does not pass, same reason", "does not pass, another reason", "passes here"
BOTH_PASS, ONLY_HERE, OWN = "passes", "does not pass here", "torch_npu itself refuses"


def cause(outcome: Outcome) -> str:
    """Return the root cause of what did not pass: the message with its numbers taken out."""
    # What CANN's host code says of a dtype or rank that it does not take counts before the message.
    said = re.search(r"emulated CANN: (.{1,120})|(aclnn\w+: EZ\d+: .{1,120})", outcome.detail)
    text = (said[1] or said[2]) if said else outcome.reason[:120]
    by_itself = r"(?<!\w)[-+]?\d[\d.]*(e[-+]?\d+)?"  # not a number within a name
    return f"{outcome.name}: {re.sub(by_itself, 'N', text)}"


#: torch_npu's own words, before it calls CANN: the same on a card with the same torch_npu. Lists are of other releases.
_OWN = re.compile(r"scalar_type:\w+ ?is not surpported")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts by (verdict, reason on the list, cause here), each with the first test."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def total(self, *verdicts: str) -> int:
        """Return the number of tests with one of these verdicts."""
        return sum(count for (verdict, _, _), count in self.counts.items() if verdict in verdicts)


def compare(rows: Iterable[ResultRecord], listed: Listed, only_half: str = "") -> Comparison:
    """Compare records with a list, of all tests or of one half. Of a test that ran again, the last one counts."""
    found = Comparison()
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
        key = (verdict, entry.reason if entry else "", why)
        found.counts[key] += 1
        found.examples.setdefault(key, row.node_id)
    return found


def table(found: Comparison, known: str) -> str:
    """Return the comparison as Markdown; ``known`` says what the list is."""
    refused, passing = found.total(SAME, OTHER, PASSES), found.total(BOTH_PASS, ONLY_HERE)
    lines = [
        f"Of {refused} tests on {known}, {found.total(SAME)} do not pass here for the same reason "
        f"({found.total(SAME) / max(1, refused):.1%}), {found.total(OTHER)} for another one. "
        f"Of {passing} that are not on it, {found.total(BOTH_PASS)} pass here "
        f"({found.total(BOTH_PASS) / max(1, passing):.1%}).",
        "",
        f"| {known} | the list's reason | here | tests | one of them |",
        "|---|---|---|---|---|",
    ]
    rows = [(key, count) for key, count in found.counts.most_common() if key[0] not in {SAME, BOTH_PASS}]
    for (verdict, there, here), count in rows:
        example = found.examples[verdict, there, here].rpartition("::")[2]
        lines.append(f"| {verdict} | {_cell(there)} | {_cell(here)} | {count} | {_cell(example)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return f"`{one_line(text).replace('|', '/').replace('`', chr(39))[:140]}`" if text else ""
