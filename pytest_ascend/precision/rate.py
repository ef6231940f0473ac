"""Pass rate over the samples of a data set, with how the figures are distributed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.nested import kind
from pytest_ascend.records.verdict import Verdict

#: Figures whose distribution is told, and at which percentiles.
TOLD = ("limit_used", "max_abs", "rmse", "ulp_mean", "ulp_max", "cosine")
#: What a sample is to be.
SAMPLE = "give (actual, expected) or (actual, expected, honest) for each"
PERCENTILES = (0, 50, 90, 99, 100)


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRate:
    """``verdicts`` go by sample. ``figures`` gives, for each figure, its value at each of :data:`PERCENTILES`."""

    verdicts: tuple[Verdict, ...]
    figures: Mapping[str, tuple[float, ...]]

    @property
    def passed(self) -> int:
        """How many samples agree."""
        return sum(verdict.agrees for verdict in self.verdicts)

    @property
    def rate(self) -> float:
        """The share of the samples that agree, from 0 to 1."""
        return self.passed / len(self.verdicts)

    def explain(self) -> Iterator[str]:
        """Yield the rate, the distributions, and the first samples that differ."""
        yield f"{self.passed} of {len(self.verdicts)} samples agree ({100 * self.rate:.4g} %)"
        yield f"{'figure':12}" + "".join(f"{f'p{each}':>12}" for each in PERCENTILES)
        for name, values in self.figures.items():
            yield f"{name:12}" + "".join(f"{value:12.3e}" for value in values)
        wrong = [(place, verdict) for place, verdict in enumerate(self.verdicts) if not verdict.agrees]
        for place, verdict in wrong[:8]:
            yield f"sample {place}: {verdict.headline}"


def pass_rate(samples: Iterable[Sequence[Any]], **settings: Any) -> PassRate:
    """Judge every sample: pairs of actual and expected, or triples with an honest result.

    ``settings`` are those of :func:`pytest_ascend.precision.compare`. Raises :class:`UsageError` without any sample.
    """
    if not isinstance(samples, Iterable):
        raise UsageError(f"{samples!r:.80} holds no samples", hint=SAMPLE)
    verdicts = tuple(_judge(sample, settings) for sample in samples)
    if not verdicts:
        raise UsageError("there are no samples to judge", hint="give pairs of actual and expected results")
    figures = {}
    for name in TOLD:
        values = [verdict.metrics[name] for verdict in verdicts if name in verdict.metrics]
        if values:
            figures[name] = tuple(np.percentile(values, PERCENTILES, method="nearest").tolist())
    return PassRate(verdicts=verdicts, figures=figures)


def _judge(sample: Sequence[Any], settings: Mapping[str, Any]) -> Verdict:
    if not isinstance(sample, tuple | list):
        raise UsageError(f"a sample is {kind(sample)}", hint=SAMPLE)
    if len(sample) == 2:
        return compare(sample[0], sample[1], **settings)
    if len(sample) == 3:
        return compare(sample[0], sample[1], honest=sample[2], **settings)
    raise UsageError(f"a sample has {len(sample)} parts", hint=SAMPLE)
