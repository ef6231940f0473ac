"""Compare what the emulated chips refuse with what real ones are known to refuse, by the lists of Ascend/pytorch's CI.

    python tools/real_npus.py CHECKOUT --half even

CHECKOUT is a git repository of Ascend/pytorch with its branch ``ci-test``, whose ``disabled_testcases.json`` names
tests of PyTorch that an Atlas A3 does not pass, with the reason. Nothing of it is kept. A test is about an operator and
a dtype; the question is whether the data of the emulated chip refuse it for that reason. Tests whose name tells neither
are counted apart. ``--half`` takes the tests whose id has an even or odd SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from cann_sources import git

from pytest_ascend.environment import chips
from pytest_ascend.environment.chips import limits, name_in_cann

LIST = ".github/config/disabled_testcases.json"
_DTYPE = re.compile(r"_(complex\d+|float\d+|bfloat16|u?int\d+|bool)$")
_FUNCTION = re.compile(r"acl not supported: aclnn(\w+)")
AGREES, TAKES = "refused here", "taken here"
COMPARED, UNKNOWN, OWN = "refused in its comparison", "no operator or dtype in its name", "torch_npu's own refusal"


def functions_of(name: str) -> tuple[str, ...]:
    """Return the functions of CANN that the operator calls whose name a test's name ends in, the longest such name."""
    callers = chips.callers()
    words = re.sub(r"_(executor_aten|npu)$", "", re.sub(r"_npu$", "", name)).split("_")
    for start in range(len(words)):
        rest = "_".join(words[start:])
        for operator in (rest, rest.removeprefix("nn_functional_"), rest.removeprefix("special_")):
            if operator in callers or f"{operator}.Tensor" in callers:
                return tuple(callers.get(operator, ())) + tuple(callers.get(f"{operator}.Tensor", ()))
    return ()


def verdict(test: str, reason: str, family: str) -> str:
    """Return whether the emulated chip refuses what a test is about, for the reason that a real one gave."""
    if "contiguous" in reason:
        return OWN
    name = test.rpartition("::")[2]
    found = _DTYPE.search(name)
    dtype = name_in_cann(found[1]) if found else ""
    named = _FUNCTION.search(reason)
    functions = (named[1],) if named else functions_of(_DTYPE.sub("", name))
    compared = limits("IsClose", family).refused()  # PyTorch's tests compare by torch.isclose, on the device
    if "DT_COMPLEX" in reason and (dtype in compared or not dtype):
        return COMPARED
    if not functions:
        return UNKNOWN
    known = [limits(each, family) for each in functions]
    if "dimensions" in reason:
        return AGREES if any(each.ranked for each in known) else TAKES
    kind = next((each for each in ("COMPLEX", "DOUBLE") if f"DT_{each}" in reason), "")
    asked = [dtype] if dtype.startswith(kind or dtype) else [each for each in chips.DTYPES if each.startswith(kind)]
    if not dtype and not kind:
        return UNKNOWN
    # What is computed in a floating dtype is written in it.
    written = [each for each in asked if each.startswith(("FLOAT", "BFLOAT", "DOUBLE", "COMPLEX"))]
    refused = any(
        each.refused().intersection(asked) or set(written) - set(each.takes.get("out", chips.DTYPES)) for each in known
    )
    return AGREES if refused else TAKES


def rows(listed: Iterable[tuple[str, str]], family: str) -> dict[str, Counter[str]]:
    """Count verdicts by reason."""
    found: dict[str, Counter[str]] = {}
    for test, reason in listed:
        found.setdefault(reason, Counter())[verdict(test, reason, family)] += 1
    return found


def main() -> None:
    """Print a table by reason."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--revision", default="ci-test")
    parser.add_argument("--half", choices=("even", "odd", "both"), default="both")
    parser.add_argument("--examples", type=int, default=0, help="tests that are taken here, by reason")
    given = parser.parse_args()
    listed = json.loads(git(given.checkout, "show", f"{given.revision}:{LIST}"))
    wanted = {"even": (0,), "odd": (1,), "both": (0, 1)}[given.half]
    tests = [
        (test, entry["reason"])
        for test, entry in listed.items()
        if int(hashlib.sha256(test.encode()).hexdigest()[-1], 16) % 2 in wanted
    ]
    columns = (AGREES, COMPARED, OWN, TAKES, UNKNOWN)
    print(f"| reason on an A3 | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")  # noqa: T201
    total: Counter[str] = Counter()
    for reason, counts in sorted(rows(tests, "A3").items(), key=lambda each: -each[1].total()):
        total += counts
        print(f"| {reason} | {' | '.join(str(counts[each]) for each in columns)} |")  # noqa: T201
        taken = [test for test, why in tests if why == reason and verdict(test, why, "A3") == TAKES]
        for test in taken[: given.examples]:
            sys.stderr.write(f"{reason}: {test}\n")
    refused = total[AGREES] + total[COMPARED] + total[OWN]
    asked = refused + total[TAKES]
    print(f"\n{refused} of {asked} refusals whose subject is told: {refused / max(1, asked):.1%}")  # noqa: T201


if __name__ == "__main__":
    main()
