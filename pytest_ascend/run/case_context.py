"""The data collected while a case runs, and its outcome at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeGuard

from pytest_ascend.coverage.expectations import Known, today
from pytest_ascend.device import Device
from pytest_ascend.records.case import Case
from pytest_ascend.records.outcome import Errored, Failed, Fallback, NotJudged, Outcome, Passed, Waived
from pytest_ascend.records.record import CallDigests, ResultRecord
from pytest_ascend.records.verdict import GELU_BY_TANH, HALVES, Verdict, as_expected_of, named_in
from pytest_ascend.system.errors import UsageError, answered
from pytest_ascend.system.suites import describe
from pytest_ascend.system.text import one_line

#: Note for a case that failed on a chip with an overflow status instead of Inf and NaN.
OVERFLOWED = "the NPU's status says that something overflowed in this case"
#: Note for a case on a chip that multiplies in half precision, with a larger error than reference runs that do so too.
MORE_THAN_HALVES = "more than products of float32 in half precision explain"
#: Longest reason kept for a missing program.
REASON_CHARACTERS = 200
#: Takes the disagreeing verdict, or None, and returns a program. May raise ValueError saying why there is none.
Reproduce: TypeAlias = Callable[[Verdict | None], str]


@dataclass(kw_only=True, slots=True)
class CaseContext:
    """A case during its test. ``error_outcome`` is the outcome of the exception that ended the test early.

    ``is_own`` is true for a user's test, in which pytest's conventions hold: a skip is a skip, an assertion is a check,
    and a disagreement that the test catches does not fail it. ``known`` are the known deviations of the case, None if
    it should pass. ``reproduce`` writes a program that reproduces a failure, and is called only after one.
    ``multiplied`` tells whether the device computed a matrix product or a convolution, None if that was not observed;
    ``overflowed`` tells whether its overflow status was set.
    """

    case: Case
    node_id: str
    verdicts: list[Verdict] = field(default_factory=list)
    measurements: dict[str, float] = field(default_factory=dict)
    series: dict[str, tuple[float, ...]] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    multiplied: bool | None = None
    overflowed: bool = False
    error_outcome: Outcome | None = None
    is_own: bool = False
    known: Known | None = None
    duration_s: float = 0.0
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    reproduce: Reproduce | None = None
    digests: dict[str, CallDigests] = field(default_factory=dict)
    #: Kinds of wrong results that its judgement accepts (:mod:`pytest_ascend.precision.canaries`).
    blind: list[str] = field(default_factory=list)

    def note(self, verdict: Verdict) -> None:
        """Record a comparison with all its metrics, which are computed now, before the tensors are freed."""
        self.verdicts.append(verdict.in_full())

    def measure(self, name: str, value: float | Sequence[float]) -> None:
        """Record a metric or a series. Raises UsageError if it is not numeric, or the name exists already.

        A series is a list of samples, or one of the two lines of a curve: ``loss_actual`` and ``loss_expected``.
        """
        kept: Mapping[str, Any] = self.measurements if _is_number(value) else self.series
        if name in kept:
            raise UsageError(f"the measurement {name!r} is taken twice in one test", hint="name each by what it is")
        if _is_number(value):
            self.measurements[name] = float(value)
        elif isinstance(value, (list, tuple)) and all(_is_number(each) for each in value):
            self.series[name] = tuple(float(each) for each in value)
        else:
            message = f"the measurement {name!r} is {value!r:.200}"
            raise UsageError(message, hint="give one int or float, or a list of them")

    def judge_again(self, test: Callable[[], object], message: str) -> str:
        """Repeat a test whose results disagree, with CANN's formulas in place of PyTorch's; return its message.

        If no such formulas apply, and the chip multiplies float32 in half precision, so do reference runs. If it then
        agrees, or the chip's documented deviations explain all that is left, the verdicts and the message say so.
        Otherwise they are those of the run by other formulas, which also searches for where the disagreement begins.
        """
        from pytest_ascend.precision.diagnosis import of_chip
        from pytest_ascend.precision.kernel_fallbacks import cann_formulas, products_in_halves

        first, kept = self.verdicts, (self.measurements, self.series)
        named = self._named()
        by_size = all(named)
        names, how = {GELU_BY_TANH}, cann_formulas()
        error = self._run_again(test, how)
        if not how.used:
            error = self._run_again(test, how := cann_formulas(on_device=True))
        found = self._explained(error) if how.used else None
        if not how.used and HALVES in of_chip()[0] and (not by_size or HALVES in frozenset().union(*named)):
            usual, blind, rounds = self.verdicts, list(self.blind), products_in_halves()
            halved = self._run_again(test, rounds)
            self.blind[:] = blind  # limits for half precision are wider
            names, found = {HALVES}, self._explained(halved) if rounds.used else None
            if found is None and rounds.used and by_size and isinstance(halved, AssertionError) and self.is_wrong():
                self.measurements, self.series = kept
                self.verdicts = [_with(each, MORE_THAN_HALVES) for each in self.verdicts]
                return f"{message}\n  {MORE_THAN_HALVES}"
            self.verdicts = usual if found is None else self.verdicts
        self.measurements, self.series = kept
        if found is not None:
            self.verdicts = [_explained(each, sorted(names | found)) for each in first]
            return f"{message}\n  {as_expected_of(sorted(names | found))}"
        if isinstance(error, AssertionError) and self.is_wrong():
            return str(error)
        self.verdicts = first
        return message

    def _run_again(self, test: Callable[[], object], how: AbstractContextManager[Any]) -> Exception | None:
        """Repeat a test with empty evidence; return what it raised."""
        self.verdicts, self.measurements, self.series = [], {}, {}
        with how:
            try:
                test()
            except Exception as raised:  # noqa: BLE001  (a disagreement, or an error that explains nothing)
                return raised
        return None

    def _explained(self, error: Exception | None) -> frozenset[str] | None:
        """Return the documented deviations that explain everything wrong; None if something is left."""
        named = self._named()
        is_told = bool(self.verdicts) and all(named) and (not error or bool(named))
        return frozenset().union(*named) if is_told else None

    def is_wrong(self) -> bool:
        """Return whether a result disagrees."""
        return any(not each.agrees for each in self.verdicts)

    def has_wrong_numbers(self) -> bool:
        """Return whether numbers disagree, which other formulas may explain, unlike messages or times."""
        return any(leaf.metrics and not leaf.agrees for each in self.verdicts for leaf in each.leaves)

    def outcome(self) -> Outcome:
        """Return the outcome given by the evidence and the known deviations."""
        return self._judged()[0]

    def _judged(self) -> tuple[Outcome, dict[str, str]]:
        """Return the outcome and its waiver, which is empty if there is none."""
        found = self._found()
        if self.overflowed and isinstance(found, Failed):
            found = replace(found, detail=f"{found.detail}\n{OVERFLOWED}".lstrip())
        if not self.known:
            return found, {}
        # Documented deviations of chips must explain every disagreement together, or none counts; products in half
        # precision explain nothing if nothing was multiplied, in this case or before it.
        named = self._named()
        explained = frozenset().union(*named) if all(named) else frozenset()
        if HALVES in explained and self.multiplied is False and not describe(self.case.suite).computed_once:
            explained = frozenset()
        return self.known.judge(found, self.fallbacks, today(), explained)

    def _named(self) -> list[frozenset[str]]:
        """Return the documented deviations that the pattern of each wrong part names."""
        leaves = (leaf for each in self.verdicts for leaf in each.leaves or (each,))
        return [named_in(leaf.pattern) for leaf in leaves if not leaf.agrees]

    def _found(self) -> Outcome:
        """Return the outcome without waivers. A test passes only if it compared or measured something on the device."""
        disagreeing = next((each for each in self.verdicts if not each.agrees), None)
        has_evidence = bool(self.measurements) or any(each.is_evidence for each in self.verdicts)
        computed = f"computed on the CPU: {', '.join(self.fallbacks)}" if self.fallbacks else ""
        if self.error_outcome:
            return self.error_outcome
        if self.is_own and (disagreeing or not has_evidence):  # the success of a user's own test is no evidence
            caught = f"passed; the test caught a disagreement: {disagreeing.headline}" if disagreeing else ""
            alone = "; ".join(filter(None, ("passed by its own assertions, without a comparison", computed)))
            return NotJudged(reason=caught or alone)
        if disagreeing:
            return Failed(reason=disagreeing.headline, detail=disagreeing.message)
        if not has_evidence:
            return Errored(reason="the test passed without comparing or measuring anything")
        if computed:
            return Fallback(reason=computed)
        waivers = self._waivers()
        return Waived(reason=f"judged by looser limits than the standard's: {waivers}") if waivers else Passed()

    def _waivers(self) -> str:
        return "; ".join(dict.fromkeys(verdict.waiver for verdict in self.verdicts if verdict.waiver))

    def record(self) -> ResultRecord:
        """Return the case's line of the run log."""
        outcome, waiver = self._judged()
        if isinstance(outcome, Waived) and not waiver:
            waiver = {"reason": self._waivers()}
        snippet = ""
        if self.reproduce is not None and outcome.name != Passed.name:
            try:
                snippet = self.reproduce(next((verdict for verdict in self.verdicts if not verdict.agrees), None))
            except Exception as error:  # noqa: BLE001  (no failure here may lose the record)
                snippet = f"# no program: {one_line(str(error))[:REASON_CHARACTERS]}"
        return ResultRecord.of(
            self.case,
            self.node_id,
            outcome,
            waiver=waiver,
            verdicts=tuple(self.verdicts),
            measurements=dict(self.measurements),
            fallbacks=tuple(self.fallbacks),
            duration_s=self.duration_s,
            diagnosis=self.diagnosis,
            series=dict(self.series),
            snippet=snippet,
            digests=dict(self.digests),
            blind=tuple(self.blind),
        )


def _explained(verdict: Verdict, names: Sequence[str]) -> Verdict:
    """Return a disagreeing verdict whose parts name the deviations that explain it."""
    if verdict.agrees:
        return verdict
    leaves = tuple(each if each is verdict else _explained(replace(each, leaves=()), names) for each in verdict.leaves)
    return _with(replace(verdict, pattern=as_expected_of(names), leaves=leaves), as_expected_of(names))


def _with(verdict: Verdict, line: str) -> Verdict:
    """Return the verdict, with a line appended to its message if it disagrees."""
    return verdict if verdict.agrees else replace(verdict, message=f"{verdict.message}\n  {line}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@contextlib.contextmanager
def watching(context: CaseContext, device: Device, *, timed: bool) -> Iterator[None]:
    """Record operators that fall back to the CPU, and synchronise, so that device errors are raised within the test.

    A ``timed`` test is not watched: that takes microseconds per operator. An earlier case's overflow status is cleared.
    """
    from pytest_ascend.device.dispatcher import FallbackWatch

    device.overflowed()
    watch = FallbackWatch(device.kind) if device.falls_back and not timed else None
    with watch or contextlib.nullcontext():
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # from a device that has failed already
                context.overflowed = device.overflowed()
            if watch:
                context.fallbacks.extend(watch.seen)
                context.multiplied = watch.multiplied
        device.synchronize()


def lost(device: Device) -> str:
    """Check the device's health after it raised an error: return "" if it is fine, else the problem."""
    from pytest_ascend.device.probe import known_answer

    return str(answered(lambda: known_answer(device.torch_device()), None))
