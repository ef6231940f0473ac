"""The eleven properties of operators: each check compares all samples of a case at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pytest
import torch

from pytest_ascend.operators import calling, sweep
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.judging import alike, determined, expected, matching_run, settings, signs
from pytest_ascend.operators.operator import Operator, cases_of
from pytest_ascend.operators.reference import CPU, Definition, Results, Tensors
from pytest_ascend.operators.samples import LAYOUT, USUAL_TERMS, Sample
from pytest_ascend.operators.sweep import CALLS, SweepReference
from pytest_ascend.operators.target import BACKWARD, DIRECTIONS, IN_PLACE, Call, Target, placed
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare, agrees
from pytest_ascend.system.dispatching import no_dispatch

#: Results by the name of the sample, and of the layout where there are several.
Found: TypeAlias = dict[str, list[Any]]


def check(target: Target, compare: PrecisionCompare) -> None:
    """Check the property that a case names. Raises AssertionError if the operator does not satisfy it."""
    CHECKS[target.case.property](target, compare)


def judge(
    target: Target, compare: PrecisionCompare, actual: Found, results: Mapping[str, Results], *, backward: bool = False
) -> None:
    """Compare all results of a case; those bit-identical to a reference run need no further judgement."""

    def accepts(wrong: Found) -> bool:
        altered = {name: found for name, found in wrong.items() if _places(found) != _places(actual[name])}
        part = {name: results[name] for name in altered}
        silent = PrecisionCompare(lambda _: None, compare.standard)
        return agrees(lambda each: _judge(target, each, altered, part, backward=backward), silent)

    with no_dispatch():
        _judge(target, replace(compare, canaries=None), actual, results, backward=backward)
        if compare.canaries:
            given = [target.on_cpu(each) for each in target.samples]
            compare.canaries.plant(actual, accepts, given)


def _places(found: list[Any]) -> list[int]:
    return [each.data_ptr() for each in calling.tensors(found)]


def _judge(
    target: Target, compare: PrecisionCompare, actual: Found, results: Mapping[str, Results], *, backward: bool
) -> None:
    exact_runs = {name: each.reference_runs[0] for name, each in results.items()}
    pair = alike(actual, exact_runs)
    if pair is None:
        exact_runs = {
            name: each for name, found in results.items() if (each := matching_run(actual[name], found)) is not None
        }
        pair = alike({name: actual[name] for name in exact_runs}, exact_runs)
    if exact_runs and pair:
        compare(*pair, standard="binary", name=f"{target.operator.name}, {len(exact_runs)} as a reference run")
    # The others are compared by value, short sums first: limits depend on the length of sums.
    operator, open_ = target.operator, {name: each for name, each in results.items() if name not in exact_runs}
    long = {name for name in open_ if operator.terms > USUAL_TERMS and target.is_long(name)}
    for names, terms in ((open_.keys() - long, USUAL_TERMS), (long, operator.terms)):
        part = {name: each for name, each in open_.items() if name in names}
        if part:
            wanted = {name: each.expected if backward else expected(operator, each) for name, each in part.items()}
            how = settings(operator, part, terms=min(terms, operator.terms), backward=backward)
            compare({name: actual[name] for name in part}, wanted, name=operator.name, **how)


def same(compare: PrecisionCompare, actual: Found, wanted: Found, name: str, **settings: Any) -> None:
    """Compare results that must be bit-identical, all at once."""
    with no_dispatch():
        pair = alike(actual, wanted)
        if actual and pair:
            compare(*pair, standard="binary", name=name)
        else:
            compare(actual, wanted, name=name, **settings)


def _checked(target: Target, compare: PrecisionCompare, calls: Iterable[Call]) -> tuple[Found, dict[str, Results]]:
    """Make calls of one direction on the device and judge them together; return the actual and the expected results."""
    actual: Found = {}
    results: dict[str, Results] = {}
    stored: dict[str, Results] = {}
    backward = False
    for call in calls:
        right = stored.get(call.sample.name) or stored.setdefault(call.sample.name, target.expect(call))
        found = target.execute(call)
        if (pair := determined(target, call, found, right)) and matching_run(found, right) is None:
            found, promised = ([*each.values()] for each in pair)
            right = Results(promised, (promised,))
        actual[call.name], results[call.name] = found, right
        backward = call.direction == BACKWARD
    judge(target, compare, actual, results, backward=backward)
    return actual, results


def _plain(target: Target, compare: PrecisionCompare) -> None:
    direction = DIRECTIONS.get(target.case.property, "")
    _checked(target, compare, [Call(sample, direction=direction) for sample in target.samples])


def _special(target: Target, compare: PrecisionCompare) -> None:
    actual, results = _checked(target, compare, map(Call, target.samples))
    if target.operator.signed_zero:
        negative = {name: signs(each.expected) for name, each in results.items()}
        found = {name: signs(each) for name, each in actual.items()}
        same(compare, found, negative, f"{target.operator.name}: is negative")


def _layout(target: Target, compare: PrecisionCompare) -> None:
    _checked(target, compare, _in_layouts(target))
    if target.operator.strides:
        here, wanted = _strides(target, target.device), _strides(target, CPU)
        same(compare, here, wanted, f"{target.operator.name}: strides of its results")


def _in_layouts(target: Target) -> Iterator[Call]:
    for sample in target.samples:
        if sample.group == LAYOUT:
            yield Call(sample)
            continue
        given = calling.tensors(target.on_cpu(sample))
        for label, layout in target.layouts().items():
            if any(calling.changes(layout, each) for each in given):
                yield Call(sample, layout, label=label)


def _strides(target: Target, device: torch.device) -> Found:
    """Return the strides of the results, as integer tensors, for inputs in every layout."""
    found: Found = {}
    for sample in (each for each in target.samples if each.group != LAYOUT):
        for label, layout in target.layouts().items():
            call = Call(sample, layout, label=label)
            args, kwargs = target.arguments(call, device)
            results = calling.forward(target.operator, target.operator.function, args, kwargs)
            found[call.name] = [torch.tensor(each.stride()) for each in results]
    return found


def _backward_layout(target: Target, compare: PrecisionCompare) -> None:
    pairs = [(sample, layout) for sample in target.samples[:2] for layout in ("transposed", "stepped")]
    _checked(target, compare, [Call(sample, calling.LAYOUTS[each], BACKWARD, each) for sample, each in pairs])


def _exact(target: Target, compare: PrecisionCompare) -> None:
    """Compare with the float64 result, rounded once: all intermediate values are exact, so only one result is correct.

    Only the sign of a zero depends on the order.
    """
    actual: Found = {}
    wanted: Found = {}
    for sample in target.samples:
        calls = [Call(sample)]
        if target.operator.grad and any(each.wants_grad(target.dtype) for each in sample.values()):
            calls.append(Call(sample, direction=BACKWARD, label=BACKWARD))
        for call in calls:
            both = target.execute(call), target.expect(call).reference_runs[0]
            with no_dispatch():  # adding 0 removes the signs of zeros
                actual[call.name], wanted[call.name] = ([x if x is None else x + 0 for x in found] for found in both)
    same(compare, actual, wanted, f"{target.operator.name}, exact in any order", standard="binary")


def _out(target: Target, compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    around: dict[str, torch.Tensor] = {}
    for sample in target.samples:
        stored = target.expect(Call(sample))
        for kind, whole in calling.out_targets(stored.first, target.device).items():
            call = Call(sample, label=kind)
            args, kwargs = target.arguments(call)
            part = calling.steps(whole) if kind == "stepped" else whole
            returned = target.operator.function(*args, **kwargs, out=part)
            _demand(returned is part, f"{target.operator.name}: out= was not what it returned ({call.name})")
            actual[call.name], results[call.name] = target.fetched([part]), stored
            if kind == "stepped":
                with no_dispatch():
                    around[call.name] = whole.to("cpu", copy=True)
    judge(target, compare, actual, results)
    _beside(compare, around, f"{target.operator.name}: beside out=")


def _beside(compare: PrecisionCompare, surroundings: Mapping[str, torch.Tensor], title: str) -> None:
    """Check that the memory around the elements still holds poison, comparing copies on the CPU."""
    gaps: Found = {}
    untouched: Found = {}
    with no_dispatch():
        for name, whole in surroundings.items():
            calling.steps(whole).copy_(calling.poisoned(tuple(calling.steps(whole).shape), whole.dtype))
            gaps[name], untouched[name] = [whole], [calling.poisoned(tuple(whole.shape), whole.dtype)]
    same(compare, gaps, untouched, title)


def _in_place(target: Target, compare: PrecisionCompare) -> None:
    actual: Found = {}
    results: dict[str, Results] = {}
    around: dict[str, torch.Tensor] = {}
    for sample in target.samples:
        whole, view = Call(sample, direction=IN_PLACE), Call(sample, direction=IN_PLACE, label="stepped")
        results[whole.name] = results[view.name] = target.expect(whole)
        # Autograd must notice the change.
        (first, *rest), kwargs = target.arguments(whole)
        before = first._version  # noqa: SLF001 - there is no public name
        returned = target.operator.changes_first(first, *rest, **kwargs)
        _demand(returned is first, f"{target.operator.name}_ returned another tensor than it was given")
        _demand(first._version > before, f"{target.operator.name}_ did not bump the tensor's version")  # noqa: SLF001
        actual[whole.name] = target.fetched([first])
        actual[view.name], around[view.name] = _changed_within(target, view)
    judge(target, compare, actual, results)
    _beside(compare, around, f"{target.operator.name}_: beside the view")
    if target.operator.traits.keeps_size and not target.operator.one_set_of_inputs:
        # A tensor cannot grow in place: broadcasting it silently to the other operand is an error.
        (first, *rest), kwargs = target.arguments(Call(target.samples[0], direction=IN_PLACE))
        with contextlib.suppress(RuntimeError):
            target.operator.changes_first(first[:1].clone(), *rest, **kwargs)
            raise Disagreement(f"{target.operator.name}_ took an operand that is larger than the tensor it changes")


def _changed_within(target: Target, call: Call) -> tuple[Tensors, torch.Tensor]:
    """Change a view in place; return the view and the tensor around it."""
    target.note(call)
    (first, *others), named = target.on_cpu(call.sample)
    with no_dispatch():
        given = (calling.surrounded(first), *others), named
        (whole, *rest), kwargs = placed(given, calling.preserve_layout, target.device)
        view = calling.steps(whole)
        before = view.stride()
    target.operator.changes_first(view, *rest, **kwargs)
    # An operator that changed the strides has not written to the view.
    left = calling.steps(whole) if view.stride() == before else view
    with no_dispatch():
        return target.fetched([left]), whole.to("cpu", copy=True)


def _repeat(target: Target, compare: PrecisionCompare) -> None:
    first: Found = {}
    second: Found = {}
    before, after = {}, {}
    for sample in target.samples:
        before[sample.name] = target.on_cpu(sample)
        args, kwargs = target.arguments(Call(sample))
        for direction, computed in _variants(target, sample, args, kwargs).items():
            call = Call(sample, direction=direction, label=direction)
            target.note(call)
            first[call.name] = computed()
            # Fill the memory that the next results may reuse with a value that no result has.
            with no_dispatch():
                forms = [(tuple(each.shape), each.dtype) for each in first[call.name]] * 4
                junk = [calling.poisoned(*form).to(target.device) for form in forms]
            del junk
            second[call.name] = computed()
        after[sample.name] = calling.on_tensors(torch.Tensor.cpu, (args, kwargs))
    name = target.operator.name
    same(compare, second, first, f"{name}, called again", standard="binary")
    given, left = ({key: calling.tensors(each) for key, each in found.items()} for found in (before, after))
    same(compare, left, given, f"{name}: its inputs, after the calls", standard="binary")


def _variants(target: Target, sample: Sample, args: Any, kwargs: Any) -> dict[str, Callable[[], list[Any]]]:
    """Return the variants of a sample's computation: forward, in place on a copy, and backward, as far as they exist.

    Backward only for one differentiable elementwise input: no device promises an order of summation.
    """
    operator, variants = target.operator, dict[str, Callable[[], list[Any]]]()
    variants[""] = lambda: target.fetched(calling.forward(operator, operator.function, args, kwargs))
    if target.shows(sample, "in-place"):
        variants[IN_PLACE] = lambda: target.fetched([operator.changes_first(args[0].clone(), *args[1:], **kwargs)])
    is_of_one = operator.traits.is_of_one and len(sample.values()) == 1
    if is_of_one and target.shows(sample, "backward"):
        back = Call(sample, direction=BACKWARD, label=BACKWARD)
        variants[BACKWARD] = lambda: [each for each in target.execute(back) if each is not None]
    return variants


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Disagreement(otherwise)


#: Property -> its check.
CHECKS: Mapping[str, Callable[[Target, PrecisionCompare], None]] = {
    **dict.fromkeys(("forward", "shapes", "promotion", "backward"), _plain),
    "special": _special,
    "layout": _layout,
    "backward-layout": _backward_layout,
    "exact": _exact,
    "out": _out,
    "in-place": _in_place,
    "repeat": _repeat,
    "found": sweep.check,
    **dict.fromkeys(CALLS, sweep.check),
}


#: The suite of users' operators; cases of other suites are in the manifest.
USER = "user"


def conformance_tests(
    *operators: Operator, suite: str = USER, origin: Callable[[str], tuple[tuple[str, ...], str]] | None = None
) -> Callable[..., None]:
    """Return a test function for all cases of these operators, to be assigned to a name that begins with ``test``.

    ``origin`` maps an operator's name to the imports and the expression with which a program obtains it; by default
    they refer to the test's file. Raises UsageError as :func:`cases_of` does.
    """
    table = {operator.name: operator for operator in operators}
    chosen = pytest.mark.ascend_cases(suite)
    if suite == USER:
        cases = cases_of(*operators, suite=suite)
        chosen = pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])

    @chosen
    def test(
        case: Case,
        npu_device: torch.device,
        precision_compare: PrecisionCompare,
        _ascend_reproduce: Callable[..., None],
        _ascend_sweep_seed: str,
        request: pytest.FixtureRequest,
    ) -> None:
        operator = table[case.subject]
        swept = CALLS.get(case.property)
        calls = SweepReference.of(operator, case.dtype, swept, seed=_ascend_sweep_seed, defined=True) if swept else None
        named = origin(case.subject) if origin else None
        if not origin and suite == USER:
            where, module = os.path.relpath(request.path.parent, request.config.rootpath), request.module.__name__
            imports = ("import sys", f"sys.path.insert(0, {where!r})", f"import {module}")
            named = imports, f"{module}.{request.node.originalname}.operators[{case.subject!r}]"
        target = Target(case, operator, calls or Definition(operator), npu_device, named)
        _ascend_reproduce(partial(program, target), saves=True)
        check(target, precision_compare)

    found: Callable[..., None] = test
    found.operators = table  # type: ignore[attr-defined]  # for programs that call one of them again
    return found
