"""Nested arguments and results: tuples, lists and dictionaries, in their order.

torch's own pytrees know more kinds and take ten times as long, which is more than most operators take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_CONTAINERS = (tuple, list, dict)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield what is no tuple, list or dictionary, in order."""
    if not isinstance(tree, _CONTAINERS):
        yield tree
    else:
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(each)


def on_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return the structure with each leaf changed; a named tuple becomes a tuple."""
    if not isinstance(tree, _CONTAINERS):
        return change(tree)
    if isinstance(tree, dict):
        return {key: on_leaves(change, each) for key, each in tree.items()}
    changed = [on_leaves(change, each) for each in tree]
    return tuple(changed) if isinstance(tree, tuple) else changed
