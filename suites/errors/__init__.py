"""The cases of the suite on errors: an operator refuses what PyTorch refuses, and the device is well afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_ascend.records.case import Case

from .refusals import DATA, REFUSALS, Refusal

REFUSED = "refused"


def _case(refusal: Refusal) -> Case:
    operator, _, what = refusal.name.partition(": ")
    subject = f"{operator}.{re.sub(r'[^a-z0-9]+', '-', what.lower()).strip('-')}"
    # On a chip these may cost the device: they come last, and only where everything is asked for.
    level = "full" if refusal.family == DATA else "standard"
    return Case(suite="errors", subject=subject, property=REFUSED, family=refusal.family, level=level)


BY_CASE: Mapping[Case, Refusal] = {_case(refusal): refusal for refusal in REFUSALS}

CASES: tuple[Case, ...] = tuple(BY_CASE)
