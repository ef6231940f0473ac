"""Nested arguments and results: tuples, lists and dictionaries, in their order.

torch's own pytrees know more kinds and take ten times as long, which is more than most operators take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: Any) -> Iterator[Any]:
    """Give what is no tuple, list or dictionary, in order."""
    if isinstance(tree, (tuple, list)):
        for each in tree:
            yield from leaves(each)
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from leaves(each)
    else:
        yield tree


def on_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Give the structure with each leaf changed; a named tuple becomes a tuple."""
    if isinstance(tree, tuple):
        return tuple([on_leaves(change, each) for each in tree])
    if isinstance(tree, list):
        return [on_leaves(change, each) for each in tree]
    if isinstance(tree, dict):
        return {key: on_leaves(change, each) for key, each in tree.items()}
    return change(tree)
