"""What the database cannot express: functions without a public name, operators not recorded and why, families."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from suites.ops.table import without_holes

NAMES = Path(__file__).with_name("names.txt")
_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
#: Functions called here for operators that the database calls through its own. "own" is corpus/callables.py.
FUNCTIONS: Mapping[str, str] = _DATA["functions"] | {name: f"torch.Tensor.{name}" for name in _DATA["methods"]}

#: Operators that need special treatment, with the reason and their names.
_APART = {kind: frozenset(names) for kind, (_, names) in _DATA["apart"].items()}
DECOMPOSED, FIRST_RESULT, NEVER_NAN = _APART["decomposed"], _APART["first_result"], _APART["never_nan"]
WITHOUT_PLACES, WITHOUT_OUT, ONE_TENSOR = _APART["without_places"], _APART["without_out"], _APART["one_tensor"]
NEVER_EMPTY = DECOMPOSED | _APART["never_empty"]

#: Arguments whose samples are left out: torch_npu refuses them for every operator (see left_out.py), or their
#: results are random.
REFUSED = {"memory_format": (torch.channels_last, torch.channels_last_3d), "dropout_p": (0.5,)}

#: Conditions on an operator's samples: CANN's host code refuses all others on an A2 and A3, or on every chip
#: (ops-nn, commit e5c3fa9: aclnn_max_pool3d_with_argmax.cpp, aclnn_group_norm.cpp).
TAKEN: Mapping[str, Callable[..., bool]] = {
    "max_pool3d": without_holes,
    "group_norm": lambda *_, eps=1e-5, **__: eps > 0,
    "native_group_norm": lambda *given: given[-1] > 0,
}

#: Variants that call the same operator as another variant in another way.
VARIANTS_LEFT_OUT = frozenset({("linalg.lstsq", "grad_oriented"), ("linalg.pinv", "singular")})

#: Operators that are not recorded, by reason.
LEFT_OUT: Mapping[str, str] = {name: why for why, names in _DATA["left_out"].items() for name in names}


@functools.cache
def names() -> tuple[str, ...]:
    """Return the recorded operators by the names that users know, sorted; ``names.txt`` has one per line."""
    return tuple(sorted(NAMES.read_text(encoding="utf-8").split()))


def family(name: str, function: str, kind: str) -> str:
    """Return the family of an operator: from its name's prefix, else from its class in the database.

    ``kind`` is the class of its entry in the database.
    """
    otherwise: Mapping[str, str] = _DATA["otherwise"]
    if function.startswith("torch.nn.functional."):
        return otherwise["torch.nn.functional."]
    found = next((given for prefix, given in _DATA["families"] if name.startswith(prefix)), "")
    return found or otherwise.get(kind, otherwise["OpInfo"])
