"""How goldens are declared: a suite's ``goldens.py`` lists recipes, and the build command follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Content:
    """What a golden holds, for a recipe that knows only afterwards what to say of it: ``meta`` adds to its own."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenRecipe:
    """One golden to be made.

    ``id`` begins with the suite's name ("ops/relu"). ``make`` takes nothing and gives the tensors by name, or
    :class:`Content`; it is called only when the golden is built, and must give the same values each time. ``how`` says
    in one sentence how the values are computed. ``version`` is raised whenever the same recipe is to give other
    values. ``seed`` names the inputs. ``meta`` holds builtins that JSON knows, for the test that reads the golden.
    """

    id: str
    make: Callable[[], Mapping[str, Tensor] | Content]
    how: str
    version: int = 1
    seed: str = "0"
    meta: Mapping[str, Any] = field(default_factory=dict)
