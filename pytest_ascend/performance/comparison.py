"""A benchmark of this run against its baseline, as a verdict in the run log like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ascend.performance.baseline import Choice
from pytest_ascend.performance.estimate import Estimate
from pytest_ascend.performance.profiling import became_slower
from pytest_ascend.performance.settings import differences
from pytest_ascend.performance.verdict import CANNOT_TELL, CONFIDENCE, NEGLIGIBLE, SLOWER, Answer, Gate, judge
from pytest_ascend.records.verdict import Limit, Verdict

STANDARD = "slowdown@1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The baseline of a run's benchmarks; ``choice`` is None if there is none."""

    choice: Choice | None
    tolerance: float

    def of_same_work(self, case_id: str, work: Mapping[str, float]) -> Comparison:
        """Return the comparison for a benchmark that does ``work`` per call: times of other work are only shown."""
        then = self.choice.baseline.work.get(case_id, {}) if self.choice else {}
        if self.choice is None or then == work:
            return self
        why = f"shown only: one call did other work: {'; '.join(differences(then, work))}"
        choice = replace(self.choice, description=f"{self.choice.description}, {why}", shown_only=True)
        return replace(self, choice=choice)

    def verdict(
        self,
        case_id: str,
        now: Estimate,
        again: Callable[[], Estimate],
        *,
        remarks: Sequence[str] = (),
        profile: Mapping[str, float] | None = None,
    ) -> Verdict | None:
        """Judge one benchmark; None without a baseline.

        ``profile`` is the time by operator in us, to name the operators that became slower. A slow-down has to be found
        twice: in the rounds at hand, which determine the rate of false alarms, and in those of ``again`` with
        CONFIDENCE, since a disturbance of a second is no regression.
        """
        if self.choice is None or case_id not in self.choice.baseline.noise:
            return None
        baseline = self.choice.baseline
        runs = [run.estimate for run in baseline.benchmarks[case_id]]
        gate = Gate(tolerance=self.tolerance, benchmarks=len(baseline.noise))
        answer = judge(now, runs, baseline.noise[case_id], gate)
        if answer.answer == SLOWER and not self.choice.shown_only:
            answer = _confirmed(answer, judge(again(), runs, baseline.noise[case_id], gate))
        before = baseline.profiles.get(case_id, {})
        grown = became_slower(profile or {}, before) if answer.answer == SLOWER else []
        told = CANNOT_TELL if self.choice.shown_only else answer.answer
        lines = (
            f"compared with {self.choice.description}",
            f"noise of this machine: slow-downs from {_percent(answer.threshold)} on are called slower, "
            f"and from {_percent(answer.detectable)} on it would have been seen with 95 % certainty",
            f"chance of so much by noise alone: {answer.p_value:.2g}",
            *grown,
            *remarks,
        )
        change = f"{_percent(abs(answer.slowdown))} {'slower' if answer.slowdown >= 0 else 'faster'} than the baseline"
        return Verdict(
            path="latency",
            agrees=told != SLOWER,
            standard=STANDARD,
            headline=(f"{told}: {change} (slow-down between {_percent(answer.low)} and {_percent(answer.high)})"),
            message="\n".join(lines),
            metrics=answer.figures(),
            limit=Limit(name="slowdown", value=answer.threshold),
        )


def _confirmed(first: Answer, second: Answer) -> Answer:
    """Combine two answers: the second one if it finds no slow-down, else the smaller of both."""
    if second.p_value > 1 - CONFIDENCE or second.slowdown < NEGLIGIBLE:
        return second
    return replace(min(first, second, key=lambda each: each.slowdown), answer=SLOWER)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
