"""Rules instead of lists: which operators do not pass which tests in which dtypes, why, and by which source.

A rule has patterns instead of names of tests, so that one row stands for hundreds. Rules are derived from lists, and
lists are written from rules and the names of all tests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from pytest_ascend.system.errors import as_error
from pytest_ascend.system.files import read_regular
from pytest_ascend.system.groups import by_key
from pytest_ascend.upstream.lists import LIMIT_BYTES, Listed

#: test_NAME_OPERATOR_npu_DTYPE. The name alone does not separate test and operator, so this matches dtype and rest.
_PARTS = re.compile(
    r"(?P<what>test_\w+?)_(?:npu|privateuse1|cpu)(?:_(?P<dtype>(?:bool|u?int\d+|b?float\d+|complex\d+)\w*))?"
)
ANY = "*"
#: A rule may exclude up to this share of unlisted tests; otherwise, names are written.
SPARED = 0.02
#: Least number of tests that a rule stands for.
FEWEST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Tests that are excluded: of ``classes``, about ``operators``, in ``dtypes``; "*" stands for all.

    ``tests`` are the beginnings of their names, such as "test_out". ``operators`` are written as in names of tests.
    ``count`` is how many listed tests the rule stands for, ``spared`` how many others it would exclude.
    """

    reason: str
    source: str
    tests: tuple[str, ...] = (ANY,)
    classes: tuple[str, ...] = (ANY,)
    operators: tuple[str, ...] = (ANY,)
    dtypes: tuple[str, ...] = (ANY,)
    count: int = 0
    spared: int = 0


def _parsed(ids: Iterable[str], operators: Collection[str]) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Yield the id of each test, and its attributes in rules: class, beginning of the name, operator, dtype.

    The operator is the longest known one that a name ends with.
    """
    for each in ids:
        cls, name = each.split("::")[-2:]
        match = _PARTS.fullmatch(name)
        what, dtype = (match["what"], match["dtype"] or "") if match else (name, "")
        words = what.split("_")
        ends = ("_".join(words[start:]) for start in range(2, len(words)))
        operator = next((end for end in ends if end in operators), "")
        prefix = what.removesuffix(f"_{operator}") if operator else what
        yield each, (re.sub("PRIVATEUSE1|NPU", "", cls), prefix, operator, dtype)


def operators_of_torch() -> dict[str, str]:
    """Return PyTorch's operators and modules by their test names: nn_functional_relu is nn.functional.relu."""
    from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
    from torch.testing._internal.common_modules import module_db

    names = {each.formatted_name: each.full_name for each in (*op_db, *python_ref_db)}
    return names | {each.formatted_name: each.name for each in module_db}


#: What a rule may name of (class, test, operator, dtype), the widest first.
_KINDS = ((2, 3), (0, 1, 3), (0, 2), (0, 1, 2), (0, 1, 2, 3))
_OPERATOR = 2


def derive(listed: Listed, ids: Iterable[str], source: str, operators: Collection[str]) -> list[Rule]:
    """Derive rules from a list, given the names of all tests, so that none excludes many unlisted tests.

    The widest kind of rule comes first: an operator in a dtype, then a test in a dtype, then an operator in a class of
    tests, then one of its tests, and finally single tests.
    """
    every = list(_parsed(ids, operators))
    reasons = {each: entry.reason for each, _ in every if (entry := listed.of(*each.split("::", 1)))}
    left, found = set(reasons), list[tuple[Any, int, int]]()
    for kind in _KINDS:
        fitting = (row for row in every if row[1][_OPERATOR] or _OPERATOR not in kind or len(kind) > 2)
        groups = by_key((tuple(of[at] if at in kind else ANY for at in range(4)), each) for each, of in fitting)
        for named, group in groups.items():
            fresh = [each for each in group if each in left]
            spared = sum(each not in reasons for each in group)
            if fresh and (kind is _KINDS[-1] or (len(fresh) >= FEWEST and spared <= SPARED * len(group))):
                reason = Counter(reasons[each] for each in fresh).most_common(1)[0][0]
                found.append(((reason, *((each,) for each in named)), len(fresh), spared))
                left.difference_update(fresh)
    for place in (_OPERATOR + 1, 4, 2):  # rules that differ only there become one
        alike = by_key(((*row[:place], *row[place + 1 :]), (row[place], count, spared)) for row, count, spared in found)
        found = []
        for rest, those in alike.items():
            several, counts, spares = zip(*those, strict=True)
            values = tuple(sorted(set().union(*several)))
            found.append(((*rest[:place], values, *rest[place:]), sum(counts), sum(spares)))
    made = [
        Rule(reason=reason, classes=cls, tests=tests, operators=of, dtypes=dtypes, source=source, count=n, spared=m)
        for (reason, cls, tests, of, dtypes), n, m in found
    ]
    return sorted(made, key=lambda each: (-each.count, each.reason, each.classes, each.tests))


def excluded(rules: Iterable[Rule], ids: Iterable[str], operators: Collection[str]) -> dict[str, Rule]:
    """Return the tests that rules exclude, each with the first rule that does."""
    every = list(_parsed(ids, operators))
    found: dict[str, Rule] = {}
    for rule in rules:
        wanted = [None if ANY in each else each for each in (rule.classes, rule.tests, rule.operators, rule.dtypes)]
        for each, of in every:
            if all(want is None or one in want for want, one in zip(wanted, of, strict=True)):
                found.setdefault(each, rule)
    return found


def as_list(out: Mapping[str, Rule], form: str) -> str:
    """Return a list: "lines" of node ids, by "ids" with the reasons, or "disabled" for torch's DISABLED_TESTS_FILE."""
    if form == "lines":
        return "".join(f"{json.dumps({'nodeid': each})}\n" for each in out)
    rows: dict[str, Any] = {}
    for each, rule in out.items():
        cls, test = each.split("::")[-2:]
        if form == "disabled":
            rows[f"{test} (__main__.{cls})"] = ["", [""]]
        else:
            rows[each] = {"category": rule.source, "reason": rule.reason, "issue": ""}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


_CONFIGS = """# Written by pytest-ascend upstream export. Import it before the tests, with torch 2.13 or later.
import unittest

import torch
from torch.testing._internal.common_device_type import PrivateUse1TestBase
from torch.testing._internal.opinfo.core import DecorateInfo

# operators, class, test, dtypes, reason
RULES = {rules}
OVERRIDES = {{}}
for operators, cls, test, dtypes, reason in RULES:
    kinds = dtypes and tuple(getattr(torch, each) for each in dtypes)
    for operator in operators:
        OVERRIDES.setdefault(operator, []).append(DecorateInfo(unittest.skip(reason), cls, test, dtypes=kinds))
PrivateUse1TestBase.set_test_configs(op_overrides=OVERRIDES, test_exclusions={exclusions})
"""


def as_configs(rules: Iterable[Rule], operators: Mapping[str, str]) -> str:
    """Return a program that calls PrivateUse1TestBase.set_test_configs.

    Its overrides are by operator, its exclusions whole tests of a class. A rule without an operator that names dtypes
    can be neither, and is omitted.
    """
    rows: list[tuple[Any, ...]] = []
    exclusions: dict[str, list[str]] = {}
    for rule in rules:
        named = [operators[each] for each in rule.operators if each in operators]
        for cls in rule.classes:
            if not named and ANY in rule.dtypes and cls != ANY:
                exclusions.setdefault(cls, []).extend(rule.tests)
            for test in rule.tests if named else ():
                dtypes = None if ANY in rule.dtypes else tuple(filter(None, rule.dtypes))
                rows.append((named, *(None if each == ANY else each for each in (cls, test)), dtypes, rule.reason))
    text = "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]"
    return _CONFIGS.format(rules=text, exclusions=repr(exclusions))


def write(rules: Iterable[Rule]) -> str:
    """Return the text of a file of rules."""
    rows = [{name: value for name, value in asdict(each).items() if value not in ((ANY,), [ANY])} for each in rules]
    return "[\n" + ",\n".join(" " + json.dumps(each, ensure_ascii=False) for each in rows) + "\n]\n"


def read(path: Path) -> list[Rule]:
    """Read a file of rules. Raises UsageError."""
    hint = "give a file that upstream import wrote"
    with as_error(f"{path} has no rules", hint, OSError, ValueError, RecursionError, why=str):
        return msgspec.json.decode(read_regular(path, LIMIT_BYTES), type=list[Rule])
