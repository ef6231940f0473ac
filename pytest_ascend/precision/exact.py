"""Integers, bool and indices: every element equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from pytest_ascend.precision.chunks import pieces
from pytest_ascend.precision.explain import explain
from pytest_ascend.precision.pattern import Sample, pattern_of
from pytest_ascend.precision.standards import Standard
from pytest_ascend.records.verdict import Limit, Verdict, Worst

#: Elements compared at a time, and the most of the unequal ones that are looked at for a pattern.
CHUNK, LOOKED_AT = 1 << 18, 1 << 16


def judge_exact(path: str, actual: torch.Tensor, expected: torch.Tensor, standard: Standard) -> Verdict:
    """Judge tensors of one exact dtype and shape."""
    unequal, start, sample = 0, 0, Sample.of(actual)
    for ours, theirs in pieces([actual, expected], CHUNK):
        differs = torch.nonzero(ours != theirs).reshape(-1)
        unequal += differs.numel()
        if differs.numel() and sample.size < LOOKED_AT:
            sample.add(differs.numpy() + start, ours[differs].numpy(), theirs[differs].numpy())
        start += ours.numel()
    label = f"{standard.label}: exact for {sample.dtype}"
    metrics = {"count": float(start), "mismatches": float(unequal)}
    if not unequal:
        return Verdict(path=path, agrees=True, standard=label, headline="agrees", metrics=metrics)
    sample = sample.of_total(unequal)
    verdict = Verdict(
        path=path,
        agrees=False,
        standard=label,
        headline=f"{unequal} of {start} elements differ, where every one has to be equal",
        metrics={**metrics, "limit_used": float(unequal)},
        worst=_largest(sample),
        limit=Limit(name="elements that are not equal", value=0.0),
        pattern=pattern_of(sample),
    )
    return replace(verdict, message="\n".join(explain(verdict)))


def _largest(sample: Sample) -> Worst:
    """The element that is furthest off; in Python's integers, which do not overflow."""
    shown = min(sample.size, 4096)
    gaps = [abs(int(a) - int(e)) for a, e in zip(sample.actual[:shown], sample.expected[:shown], strict=True)]
    place = int(np.argmax(np.array(gaps, dtype=np.float64)))
    index = tuple(int(each) for each in np.unravel_index(int(sample.places[place]), sample.shape or (1,)))
    return Worst(
        index=index if sample.shape else (),
        actual=str(sample.actual[place]),
        expected=str(sample.expected[place]),
    )
