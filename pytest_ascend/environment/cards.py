"""What real cards rejected: rules made from published lists of tests, by operator and dtype.

``card_rules.json`` was made by ``pytest-ascend upstream import`` from the even half of the list that Ascend/pytorch's
CI keeps for an Atlas A3. Each row has its source, with the day.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pytest_ascend.system.bundled import PACKAGE, table

#: The file of rules.
RULES = PACKAGE / "environment" / "card_rules.json"
#: CANN's messages for which a list of tests uses these words.
_SAID = (
    (r"DT_(\w+)", r"DT_{0}"),
    (r"larger than (\d+) dimensions", r"[Dd]im\w* .{{0,40}}\b{0}\b|\b{0}\b.{{0,40}}dim"),
    (r"(contiguous_format)", r"{0}"),
    (r"acl not supported: (?:aclnn)?(\w+)", r"(?i)aclnn(Inplace)?{0}"),
)


def is_said(reason: str, message: str) -> bool:
    """Return whether a message matches the reason that a list of tests gives for an entry."""
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
    """Return an operator's name without its Python prefix: relu for _refs_nn_functional_relu and for nn.ReLU."""
    return re.sub(r"^(_refs_)?(nn_functional_|nn_|special_)?", "", operator.replace(".", "_")).lower()


def seen(operator: str, dtype: str, message: str) -> str:
    """Return where a test of an operator, such as "nn.functional.relu", failed on a real card for the same reason.

    The test has the same ``dtype``; ``message`` is that of the device under test. "" if no list has such a test.
    """
    known = _rules().get((_plain(operator), dtype), ())
    return next((rule["source"] for rule in known if is_said(rule["reason"], message)), "")
