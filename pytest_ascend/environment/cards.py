"""What real cards were seen to refuse: rules made of published lists of tests, by operator and dtype.

``card_rules.json`` is what ``pytest-ascend upstream import`` made of the even half of the list that Ascend/pytorch's CI
keeps for an Atlas A3. Each row has its source, with the day.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pytest_ascend.system.bundled import PACKAGE, table

#: The file of rules.
RULES = PACKAGE / "environment" / "card_rules.json"
#: What CANN says where a list of tests says it in these words.
_SAID = (
    (r"DT_(\w+)", r"DT_{0}"),
    (r"larger than (\d+) dimensions", r"[Dd]im\w* .{{0,40}}\b{0}\b|\b{0}\b.{{0,40}}dim"),
    (r"(contiguous_format)", r"{0}"),
    (r"acl not supported: (?:aclnn)?(\w+)", r"(?i)aclnn(Inplace)?{0}"),
)


def is_said(reason: str, message: str) -> bool:
    """Whether a message says what a list of tests gives as the reason of an entry."""
    for there, here in _SAID:
        if match := re.search(there, reason):
            return bool(re.search(here.format(match[1]), message))
    return False


@functools.cache
def _rules() -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for rule in table("environment/card_rules.json"):
        for operator in map(_plain, rule.get("operators", ())):
            for dtype in filter(None, rule.get("dtypes", ())):
                found.setdefault((operator, dtype), []).append(rule)
    return found


def _plain(operator: str) -> str:
    """Return an operator's name without where Python has it: relu of _refs_nn_functional_relu and of nn.ReLU."""
    return re.sub(r"^(_refs_)?(nn_functional_|nn_|special_)?", "", operator.replace(".", "_")).lower()


def seen(operator: str, dtype: str, message: str) -> str:
    """Return where a test of an operator, such as "nn.functional.relu", failed on a real card for the same reason.

    The test is of the same ``dtype``; ``message`` is what the device under test said. "" where no list has one.
    """
    known = _rules().get((_plain(operator), dtype), ())
    return next((rule["source"] for rule in known if is_said(rule["reason"], message)), "")
