"""What the database cannot say by itself: functions without a public name, what is not recorded and why, families."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import torch

NAMES = Path(__file__).with_name("names.txt")
_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
#: Operators that the database calls by a function of its own: what is called here. "own" is corpus/callables.py.
FUNCTIONS: Mapping[str, str] = _DATA["functions"] | {name: f"torch.Tensor.{name}" for name in _DATA["methods"]}

#: Operators of which something else is looked at than what they give: what does not depend on signs and order.
DECOMPOSED = frozenset(
    ("linalg.eigh", "linalg.eig", "linalg.eigvals", "linalg.svd", "svd", "linalg.qr", "qr", "linalg.lstsq")
)

#: Operators of which only the first result is looked at: the others are for their own gradients to read.
FIRST_RESULT = frozenset(
    (
        *("native_batch_norm", "native_layer_norm", "native_group_norm", "_native_batch_norm_legit"),
        "_batch_norm_with_update",
    )
)

#: Arguments of which samples are left out: torch_npu refuses them, whatever the operator (see left_out.py), or what
#: comes of them is random.
REFUSED = {"memory_format": (torch.channels_last, torch.channels_last_3d), "dropout_p": (0.5,)}

#: Operators of which samples without elements are left out: what there is of them no device promises.
NEVER_EMPTY = DECOMPOSED | {"native_layer_norm"}
#: Parts of names of operators of which samples with NaN are left out: torch's own loops over degrees end before the
#: first turn there, and give memory as it is.
NEVER_NAN = ("_polynomial_",)
#: Operators that give places of maxima: torch_npu gives them as int32 (see left_out.py).
WITHOUT_PLACES = frozenset(("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool3d"))
#: Operators of which ``out=`` is not asked: under the mode that sees fallbacks torch gives it back as it was.
WITHOUT_OUT = frozenset(("linalg.matrix_rank",))
#: Operators whose further tensors have to be on the CPU.
ONE_TENSOR = frozenset(("tensor_split",))

#: Variants that call the same operator as another one, in another way.
VARIANTS_LEFT_OUT = frozenset(
    {
        ("linalg.lstsq", "grad_oriented"),
        ("linalg.pinv", "singular"),
    }
)

#: What is not recorded, and why.
LEFT_OUT: Mapping[str, str] = {name: why for why, names in _DATA["left_out"].items() for name in names}


@functools.cache
def names() -> tuple[str, ...]:
    """Return the operators that are recorded, one in a line of ``names.txt``, by the names that users know, sorted."""
    return tuple(sorted(NAMES.read_text(encoding="utf-8").split()))


def family(name: str, function: str, kind: str) -> str:
    """Return the family of an operator: by the beginning of its name, else by what the database says of it.

    ``kind`` is the class of its entry in the database.
    """
    otherwise: Mapping[str, str] = _DATA["otherwise"]
    if function.startswith("torch.nn.functional."):
        return otherwise["torch.nn.functional."]
    found = next((given for prefix, given in _DATA["families"] if name.startswith(prefix)), "")
    return found or otherwise.get(kind, otherwise["OpInfo"])
