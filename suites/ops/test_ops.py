"""Every operator against its golden: one test for each operator, dtype and property, all samples inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import pytest
import torch

from pytest_ascend.dispatching import unseen
from pytest_ascend.golden import GoldenStore
from pytest_ascend.operators.layouts import LAYOUTS, changes, contiguous, poisoned, steps, surrounded
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare

from .catalogue import is_recorded
from .corpus.subject import RecordedSubject
from .evaluate import forward, on_tensors, tensors
from .judging import alike, expected, honest_twin, settings, signs
from .operator import LAYOUT, USUAL_TERMS
from .reproducing import program
from .stored import Results
from .subject import Subject

#: Families of functions of one number.
_OF_ONE = ("activation", "elementwise")

#: Results by the name of the sample, and of the layout where there are several.
Found: TypeAlias = dict[str, list[Any]]


def of(property_: str) -> pytest.MarkDecorator:
    """Ask a test for every case of a property."""
    return pytest.mark.ascend_cases("ops", property_)


@pytest.fixture
def subject(
    case: Case, npu_device: torch.device, golden_store: GoldenStore, ascend_reproduce: Callable[..., None]
) -> Subject:
    """Return what a case is about."""
    kind = RecordedSubject if is_recorded(case.subject, case.dtype) else Subject
    made = kind(case, npu_device, golden_store)
    ascend_reproduce(partial(program, made))
    return made


def judge(
    subject: Subject,
    compare: PrecisionCompare,
    actual: Found,
    results: Mapping[str, Results],
    *,
    backward: bool = False,
) -> None:
    """Compare all results of a case: first those that are an honest one to the last bit, which need no judging."""
    with unseen():
        _judge(subject, compare, actual, results, backward=backward)


def _judge(
    subject: Subject, compare: PrecisionCompare, actual: Found, results: Mapping[str, Results], *, backward: bool
) -> None:
    settled = {name: each.honest[0] for name, each in results.items()}
    pair = alike(actual, settled)
    if pair is None:
        settled = {
            name: each for name, found in results.items() if (each := honest_twin(actual[name], found)) is not None
        }
        pair = alike({name: actual[name] for name in settled}, settled)
    if settled and pair:
        compare(*pair, standard="binary", name=f"{subject.operator.name}, {len(settled)} as an honest device")
    open_ = {name: each for name, each in results.items() if name not in settled}
    _judge_values(subject, compare, actual, open_, backward=backward)


def same(compare: PrecisionCompare, actual: Found, wanted: Found, name: str, **settings: Any) -> None:
    """Compare what has to be equal to the last bit: where it is, all at once."""
    with unseen():
        pair = alike(actual, wanted)
        if actual and pair:
            compare(*pair, standard="binary", name=name)
        else:
            compare(actual, wanted, name=name, **settings)


def _judge_values(
    subject: Subject, compare: PrecisionCompare, actual: Found, results: Mapping[str, Results], *, backward: bool
) -> None:
    """Compare results by value, first those with short sums: what is allowed depends on their length."""
    operator = subject.operator
    long = {name for name in results if operator.terms > USUAL_TERMS and subject.is_long(name)}
    for names, terms in ((results.keys() - long, USUAL_TERMS), (long, operator.terms)):
        part = {name: each for name, each in results.items() if name in names}
        if part:
            wanted = {name: each.expected if backward else expected(operator, each) for name, each in part.items()}
            how = settings(operator, part, terms=min(terms, operator.terms), backward=backward)
            compare({name: actual[name] for name in part}, wanted, name=operator.name, **how)


@of("forward")
def test_forward(subject: Subject, precision_compare: PrecisionCompare) -> None:
    results = {each.name: subject.stored(each) for each in subject.samples}
    judge(subject, precision_compare, {each.name: subject.run(each) for each in subject.samples}, results)


@of("shapes")
def test_shapes(subject: Subject, precision_compare: PrecisionCompare) -> None:
    test_forward(subject, precision_compare)


@of("promotion")
def test_promotion(subject: Subject, precision_compare: PrecisionCompare) -> None:
    test_forward(subject, precision_compare)


@of("special")
def test_special(subject: Subject, precision_compare: PrecisionCompare) -> None:
    results = {each.name: subject.stored(each) for each in subject.samples}
    actual = {each.name: subject.run(each) for each in subject.samples}
    judge(subject, precision_compare, actual, results)
    if subject.operator.signed_zero:
        negative = {name: signs(each.expected) for name, each in results.items()}
        found = {name: signs(each) for name, each in actual.items()}
        same(precision_compare, found, negative, f"{subject.operator.name}: is negative")


@of("layout")
def test_layout(subject: Subject, precision_compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    for sample in subject.samples:
        given = tensors(subject.on_cpu(sample))
        usual = {"": contiguous} if sample.group == LAYOUT else {}
        stored = subject.stored(sample)
        for layout, placing in (usual or subject.placings()).items():
            if usual or any(changes(placing, each) for each in given):
                name = f"{sample.name}, {layout}" if layout else sample.name
                actual[name], results[name] = subject.run(sample, placing), stored
    judge(subject, precision_compare, actual, results)
    if subject.operator.strides:
        here, wanted = _strides(subject, subject.device), _strides(subject, torch.device("cpu"))
        same(precision_compare, here, wanted, f"{subject.operator.name}: strides of its results")


def _strides(subject: Subject, device: torch.device) -> Found:
    """Return the strides of the results, of inputs in every layout, as tensors of integers."""
    found: Found = {}
    for sample in (each for each in subject.samples if each.group != LAYOUT):
        for layout, placing in subject.placings().items():
            args, kwargs = subject.arguments(sample, placing, device)
            results = forward(subject.operator.function, args, kwargs)
            found[f"{sample.name}, {layout}"] = [torch.tensor(each.stride()) for each in results]
    return found


@of("backward")
def test_backward(subject: Subject, precision_compare: PrecisionCompare) -> None:
    results = {each.name: subject.stored_gradients(each) for each in subject.samples}
    actual: Found = {each.name: subject.go_back(each) for each in subject.samples}
    judge(subject, precision_compare, actual, results, backward=True)


@of("backward-layout")
def test_backward_layout(subject: Subject, precision_compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    for sample in subject.samples[:2]:
        stored = subject.stored_gradients(sample)
        for layout in ("transposed", "stepped"):
            name = f"{sample.name}, {layout}"
            actual[name] = list(subject.go_back(sample, LAYOUTS[layout]))
            results[name] = stored
    judge(subject, precision_compare, actual, results, backward=True)


@of("out")
def test_out(subject: Subject, precision_compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    gaps: Found = {}
    for sample in subject.samples:
        stored = subject.stored(sample)
        for kind, target in _targets(stored.first, subject.device).items():
            name = f"{sample.name}, {kind}"
            args, kwargs = subject.arguments(sample)
            part = steps(target) if kind == "stepped" else target
            returned = subject.operator.function(*args, **kwargs, out=part)
            assert returned is part, f"{subject.operator.name}: out= was not what it returned ({name})"
            actual[name], results[name] = subject.fetched([part]), stored
            if kind == "stepped":
                gaps[name] = _gaps(target)
    judge(subject, precision_compare, actual, results)
    same(precision_compare, gaps, _untouched(gaps), f"{subject.operator.name}: beside out=")


def _targets(like: torch.Tensor, device: torch.device) -> dict[str, torch.Tensor]:
    """Return what to write into: a tensor that is ready, one with gaps, one to be resized; all full of poison."""
    with unseen():
        ready = poisoned(tuple(like.shape), like.dtype)
        targets = {"ready": ready.to(device), "to be resized": torch.empty(0, dtype=like.dtype, device=device)}
        return targets | ({"stepped": surrounded(ready).to(device)} if like.ndim else {})


def _gaps(whole: torch.Tensor) -> list[torch.Tensor]:
    """Return what is left of a surrounding tensor without the elements."""
    with unseen():
        left = whole.to("cpu", copy=True)
        steps(left).copy_(poisoned(tuple(steps(left).shape), left.dtype))
    return [left]


def _untouched(gaps: Found) -> Found:
    with unseen():
        return {name: [poisoned(tuple(each.shape), each.dtype) for each in found] for name, found in gaps.items()}


@of("in-place")
def test_in_place(subject: Subject, precision_compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    gaps: Found = {}
    for sample in subject.samples:
        stored = subject.stored_in_place(sample)
        actual[sample.name], results[sample.name] = _changed(subject, sample), stored
        name = f"{sample.name}, stepped"
        actual[name], gaps[name] = _changed_within(subject, sample)
        results[name] = stored
    judge(subject, precision_compare, actual, results)
    same(precision_compare, gaps, _untouched(gaps), f"{subject.operator.name}_: beside the view")
    if subject.operator.family == "arithmetic" and not subject.operator.recorded:
        _must_not_grow(subject)


def _changed(subject: Subject, sample: Any) -> list[torch.Tensor]:
    """Change a tensor in place; autograd has to see that it is another one now."""
    (first, *rest), kwargs = subject.arguments(sample)
    before = first._version  # noqa: SLF001  (its public name is this one)
    returned = subject.in_place()(first, *rest, **kwargs)
    assert returned is first, f"{subject.operator.name}_ returned another tensor than it was given"
    assert first._version > before, f"{subject.operator.name}_ did not bump the tensor's version"  # noqa: SLF001
    return subject.fetched([first])


def _changed_within(subject: Subject, sample: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Change a view in place; give the view and what is beside it."""
    (first, *others), named = subject.on_cpu(sample)
    with unseen():
        given = (surrounded(first), *others), named
        (whole, *rest), kwargs = subject.placed(given, contiguous, subject.device)
        view = steps(whole)
        before = view.stride()
    subject.in_place()(view, *rest, **kwargs)
    left = steps(whole) if view.stride() == before else view  # what changes strides has written nothing
    return subject.fetched([left]), _gaps(whole)


def _must_not_grow(subject: Subject) -> None:
    """A tensor cannot be changed into a larger one: the other operand must not be broadcast against it silently."""
    (first, *rest), kwargs = subject.arguments(subject.samples[0])
    with pytest.raises(RuntimeError):
        subject.in_place()(first[:1].clone(), *rest, **kwargs)


@of("repeat")
def test_repeat(subject: Subject, precision_compare: PrecisionCompare) -> None:
    first: Found = {}
    second: Found = {}
    before, after = {}, {}
    for sample in subject.samples:
        before[sample.name] = subject.on_cpu(sample)
        args, kwargs = subject.arguments(sample)
        for way, computed in _ways(subject, sample, args, kwargs).items():
            name = f"{sample.name}, {way}" if way else sample.name
            first[name] = computed()
            _leave_poison(first[name], subject.device)
            second[name] = computed()
        after[sample.name] = on_tensors(torch.Tensor.cpu, (args, kwargs))
    name = subject.operator.name
    same(precision_compare, second, first, f"{name}, called again", standard="binary")
    given, left = ({key: tensors(each) for key, each in found.items()} for found in (before, after))
    same(precision_compare, left, given, f"{name}: its inputs, after the calls", standard="binary")


def _ways(subject: Subject, sample: Any, args: Any, kwargs: Any) -> dict[str, Callable[[], list[Any]]]:
    """Return how a sample can be computed: forward, in place on a copy, and back, as far as the operator has these.

    Back only where there is one gradient, of one number each: no device promises the order of sums.
    """
    operator = subject.operator
    ways: dict[str, Callable[[], list[Any]]] = {"": lambda: subject.fetched(forward(operator.function, args, kwargs))}
    if subject.shows(sample, "in-place"):
        ways["in place"] = lambda: subject.fetched([subject.in_place()(args[0].clone(), *args[1:], **kwargs)])
    is_of_one = operator.family in _OF_ONE and len(sample.values()) == 1
    if is_of_one and subject.shows(sample, "backward"):
        ways["backward"] = lambda: [each for each in subject.go_back(sample) if each is not None]
    return ways


def _leave_poison(like: list[torch.Tensor], device: torch.device) -> None:
    """Let the memory that the next results are put into hold what no result has."""
    with unseen():
        junk = [poisoned(tuple(each.shape), each.dtype).to(device) for each in like for _ in range(4)]
    del junk
