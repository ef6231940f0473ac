"""Stored measurements of one stack on one kind of host: the distributions of several runs of each benchmark.

They are files ``measured/<chip>/<cann>_<torch_npu>/<host>.json`` below a folder of baselines, written only by
``pytest-ascend baseline record``. Differences between a file's runs (A/A) are the noise by which later ones are judged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.performance.settings import Settings, differences
from pytest_ascend.performance.verdict import CANNOT_TELL, SLOWER, Estimate, Gate, Noise, estimate, judge, noise_of
from pytest_ascend.records.case import Stack
from pytest_ascend.records.verdict import Limit, Verdict
from pytest_ascend.runlog import codec
from pytest_ascend.system.errors import GoldenError, as_error, with_type
from pytest_ascend.system.files import read_regular, write_if_new

SCHEMA, FOLDER = 2, "measured"
#: Far above the size of 200 benchmarks in 20 runs; larger files are not read.
LARGEST_BYTES = 64 * 1024 * 1024
#: Each run stores the percentiles 0 to 100 of its latencies: enough for a chart, and of constant size.
PERCENTILES = 101


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """One benchmark in one run: its estimate, and the percentiles 0 to 100 of its latencies in us."""

    estimate: Estimate
    percentiles_us: tuple[float, ...]

    def __post_init__(self) -> None:
        found = self.estimate
        is_known = np.isfinite([found.value, found.pace, *self.percentiles_us]).all()
        if not is_known or found.error < 0 or len(self.percentiles_us) != PERCENTILES:
            raise ValueError("an estimate that is not a number, or not 101 percentiles")

    @classmethod
    def of(cls, latencies_us: Sequence[float], peers_us: Sequence[float] = ()) -> MeasuredRun:
        """Return a run's estimate and percentiles, from its rounds."""
        return cls(estimate=estimate(latencies_us, peers_us), percentiles_us=_percentiles(latencies_us))


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Measurements of one stack: ``benchmarks`` by case id, ``settings`` that affect times.

    ``profiles`` are the microseconds of each benchmark's operators, see :mod:`pytest_ascend.performance.benchmarking`;
    ``work`` is the work of one call of each, see :func:`pytest_ascend.performance.benchmarking.per_call`.
    """

    recorded: str
    stack: Stack
    settings: Settings
    benchmarks: Mapping[str, tuple[MeasuredRun, ...]]
    profiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    work: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def noise(self) -> Mapping[str, Noise]:
        """Return the variation between the runs of each benchmark."""
        return noise_of({name: [run.estimate for run in runs] for name, runs in self.benchmarks.items()})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Baseline:
        """Return the baseline in a file. Raises KeyError, TypeError or ValueError for any other format."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}, and this release reads {SCHEMA}")
        return msgspec.convert(data, cls)


def pooled_us(runs: Sequence[MeasuredRun]) -> tuple[float, ...]:
    """Return the percentiles 0 to 100 of the latencies of several runs, all with the same weight."""
    return _percentiles(np.concatenate([run.percentiles_us for run in runs]))


def _percentiles(times_us: Any) -> tuple[float, ...]:
    return tuple(float(f"{each:.6g}") for each in np.percentile(times_us, np.linspace(0, 100, PERCENTILES)))


def read(path: Path) -> Baseline:
    """Read one file. Raises GoldenError if it is damaged, of another schema, too large or not a file."""
    hint = "delete the file, or record it anew: pytest-ascend baseline record"
    kinds = (OSError, ValueError, TypeError, KeyError, AttributeError)
    raises = partial(GoldenError, path=str(path))
    with as_error(f"{path} is not a baseline", hint, *kinds, why=with_type, raises=raises):
        if path.is_symlink():
            raise ValueError("a link, and no regular file")
        return Baseline.from_dict(codec.loads(read_regular(path, LARGEST_BYTES).decode("utf-8")))


def write(baseline: Baseline, root: Path) -> Path:
    """Write a baseline below the folder ``root`` atomically, and return its path."""
    path = root / FOLDER / place(baseline.stack)
    write_if_new(path, f"{codec.dumps({'schema': SCHEMA, **asdict(baseline)})}\n".encode())
    return path


def place(stack: Stack) -> Path:
    """Return the path of a stack's baseline: chip, versions, host."""
    host = hashlib.sha256(stack.host.encode()).hexdigest()[:12]
    return Path(chip_folder(stack), f"{_slug(stack.cann)}_{_slug(stack.torch_npu or stack.torch)}", f"{host}.json")


def chip_folder(stack: Stack) -> str:
    """Return the folder of a chip; the name says whether it is emulated."""
    return ("emulated-" if stack.emulated else "") + _slug(stack.chip or stack.device)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.") or "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The baseline of a run, with a description; with ``shown_only``, it must not decide."""

    baseline: Baseline
    description: str
    shown_only: bool = False


def choose(root: Path, stack: Stack, settings: Settings) -> Choice | None:
    """Return the baseline for exactly this combination, host and settings, else the nearest older one.

    Failing that, return one recorded with other settings or on another host, which is only displayed. Raises
    GoldenError for a damaged file of the chip.
    """
    found = [read(path) for path in sorted((root / FOLDER / chip_folder(stack)).glob("*/*.json"))]
    here = [each for each in found if each.stack.host == stack.host]
    if fit := _nearest([each for each in here if not any(differences(each.settings, settings))], stack):
        return Choice(baseline=fit, description=_standing(fit, stack))
    if nearest := _nearest(here, stack):
        changed = "; ".join(differences(nearest.settings, settings))
        description = f"{_standing(nearest, stack)}, shown only: it was recorded with other settings: {changed}"
    elif elsewhere := [each for each in found if each not in here]:
        nearest = max(elsewhere, key=lambda each: _order(each.stack))
        description = f"a baseline of another host ({nearest.stack.host}), shown only: {_named(nearest.stack)}"
    return Choice(baseline=nearest, description=description, shown_only=True) if nearest else None


def _nearest(baselines: Sequence[Baseline], stack: Stack) -> Baseline | None:
    """Return the last baseline of this combination, else of the newest that is not newer; None without any."""
    exact = [each for each in baselines if _versions(each.stack) == _versions(stack)]
    older = [each for each in baselines if _order(each.stack) <= _order(stack)]
    return exact[-1] if exact else max(older, key=lambda each: _order(each.stack), default=None)


def _standing(baseline: Baseline, stack: Stack) -> str:
    if _versions(baseline.stack) == _versions(stack):
        return f"the baseline of exactly this combination, of {baseline.recorded}"
    return f"the nearest older baseline: {_named(baseline.stack)}, of {baseline.recorded}"


def _versions(stack: Stack) -> tuple[str, ...]:
    return (stack.cann, stack.torch, stack.torch_npu, stack.driver)


def _named(stack: Stack) -> str:
    named = {"CANN": stack.cann, "torch": stack.torch, "torch_npu": stack.torch_npu, "driver": stack.driver}
    return ", ".join(f"{name} {version}" for name, version in named.items() if version)


def _order(stack: Stack) -> tuple[Version, ...]:
    """Return the versions of a stack without their builds ("+cpu"); invalid ones sort below all others."""
    plain = [each.partition("+")[0] for each in (stack.cann, stack.torch_npu or stack.torch, stack.driver)]
    return tuple(Version(each if is_version(each) else "0") for each in plain)


STANDARD = "slowdown@1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The baseline of a run's benchmarks; ``choice`` is None if there is none."""

    choice: Choice | None
    tolerance: float

    def of_same_work(self, case_id: str, work: Mapping[str, float]) -> Comparison:
        """Return the comparison for a benchmark that does ``work`` per call: times of other work are only displayed."""
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

        ``profile`` is the time by operator in us, to name the operators that became slower. A slow-down must be found
        twice: in the given rounds, which determine the rate of false alarms, and in those of ``again`` with CONFIDENCE,
        since a disturbance of a second is not a regression.
        """
        if self.choice is None or case_id not in self.choice.baseline.noise:
            return None
        baseline = self.choice.baseline
        runs = [run.estimate for run in baseline.benchmarks[case_id]]
        gate = Gate(tolerance=self.tolerance, benchmarks=len(baseline.noise))
        answer = judge(now, runs, baseline.noise[case_id], gate)
        if answer.answer == SLOWER and not self.choice.shown_only:
            answer = answer.confirmed_by(judge(again(), runs, baseline.noise[case_id], gate))
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


def became_slower(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return a line for each operator that takes longer than before, worst first.

    If the profiles are by different clocks, only the current one is listed.
    """
    if before and now and not set(now) & set(before):
        why = "the baseline has no profile of this kind"
        return [f"operator {name}: {taken:.0f} us; {why}" for name, taken in now.items()]
    grown = {name: now[name] - before.get(name, 0.0) for name in now}
    worst = sorted((name for name in grown if before and grown[name] > 0), key=grown.__getitem__, reverse=True)
    return [f"operator {name}: {before.get(name, 0.0):.0f} -> {now[name]:.0f} us" for name in worst]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
