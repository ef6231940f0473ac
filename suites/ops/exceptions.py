"""What is special about testing single operators, and why: from ``exceptions.json``, one line per operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Exceptions:
    """What is special about one operator. A text is the reason.

    Of recorded operators are ``at_smoke``: generated calls at level smoke, since they reach kernels that no operator of
    the catalogue does; ``calls``: generated ones although the family has none, ``no_calls``: none; ``one_dtype``: in a
    first dtype only, ``no_integers``: not in integers; ``not_repeated``: need not repeat bit for bit, since PyTorch
    does not promise it. Of all operators are ``no_gradients``: generated calls do not run backward, and ``settings`` of
    :class:`~pytest_ascend.operators.Operator` that are other in generated calls: layouts in which torch_npu refuses or
    miscomputes the gradient, or on which the result depends; distances and means that are infinite or NaN by the way
    of computing them; places of equal elements, any of which may be given; means over windows, which are sums.
    ``left_out``: what is not tested, and what torch_npu 2.13.0 does instead.
    """

    at_smoke: bool = False
    calls: bool = False
    no_calls: str = ""
    one_dtype: str = ""
    no_integers: str = ""
    no_gradients: str = ""
    not_repeated: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> Mapping[str, Any]:
        """The settings, with that of gradients."""
        given = {key: tuple(each) if isinstance(each, list) else each for key, each in self.settings.items()}
        return {**given, "grad": False} if self.no_gradients else given


def _load(name: str) -> Any:
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


#: By the operator's name.
EXCEPTIONS: Mapping[str, Exceptions] = {name: Exceptions(**row) for name, row in _load("exceptions.json").items()}
_USUAL = Exceptions()


def exceptions(name: str) -> Exceptions:
    """Return what is special about an operator."""
    return EXCEPTIONS.get(name, _USUAL)


_REACH = _load("kernel_reach.json")
#: Operators with more generated calls than others: each makes a fifth or more of the calls of a kernel that fewer than
#: sixty different calls reached. And recorded ones with fewer, which make less than a twentieth of the calls of each of
#: their kernels. Counted by the evaluation ``operator-reach`` while each operator had 24 calls, or 42 in few dtypes.
RARE, SHARED = frozenset(_REACH["rare"]), frozenset(_REACH["shared"])
